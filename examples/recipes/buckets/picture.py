"""Save a picture of the test part, enlarged, as somebody's photo of a garment: python picture.py DATASET FILE.png."""

import sys

import numpy as np
from PIL import Image

import podium

dataset, file = sys.argv[1:]
test = podium.load_dataset(dataset).test
pixels = 255 - np.asarray(
    test.inputs["images"][0]
)  # the dataset is white on black, a photo has a bright background
Image.fromarray(pixels).resize((280, 280), Image.Resampling.BICUBIC).save(file)

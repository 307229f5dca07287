"""Predict as podium asks: `predict.py --model DIR --inputs DIR --output FILE`.

Its own densities.py lies beside it in the model directory, like the pickle.
"""

import argparse
from pathlib import Path

import joblib
import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
for flag in ("--model", "--inputs", "--output"):
    parser.add_argument(flag, type=Path, required=True)
args = parser.parse_args()
rows = np.load(args.inputs / "table.npy", mmap_mode="r")
np.save(args.output, joblib.load(args.model / "densities.joblib").predict(rows))

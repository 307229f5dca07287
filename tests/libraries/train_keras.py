"""Keras, as people use it; --results gets what the library's own objects hold."""

import argparse
import json
import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--model", default="model.keras")
parser.add_argument("--results", default="results.json")
args = parser.parse_args()
keras.utils.set_random_seed(1)
x = np.random.randn(320, 4).astype("float32")
y = (x[:, 0] > 0).astype("int32")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2, activation="softmax")])
model.compile(
    keras.optimizers.SGD(args.lr), "sparse_categorical_crossentropy", metrics=["accuracy"]
)
history = model.fit(x, y, epochs=3, validation_split=0.2)
model.save(args.model)
Path(args.results).write_text(json.dumps({"val_accuracy": history.history["val_accuracy"]}))

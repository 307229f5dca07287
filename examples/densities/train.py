"""Estimate the density of each class of a table; the model is a pickle, and a program that predicts with it."""

import argparse
import shutil
import tempfile
from pathlib import Path

import joblib
import numpy as np
from densities import Densities
from sklearn.metrics import accuracy_score, log_loss

from podium.trainer import kit


def main() -> None:
    """Train, report, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bandwidth", type=float, default=0.5)
    parser.add_argument("--components", type=int, default=5)
    args, _ = parser.parse_known_args()  # --data and --output are for the kit
    train, validation, classes = (
        kit.load("train"),
        kit.load("validation"),
        len(kit.dataset().classes),
    )
    model = Densities(args.bandwidth, args.components).fit(
        train.inputs["table"], train.target, classes
    )
    shares = model.predict(validation.inputs["table"])
    kit.report(
        log_loss=log_loss(validation.target, shares, labels=np.arange(classes)),
        accuracy=accuracy_score(validation.target, shares.argmax(1)),
    )
    with tempfile.TemporaryDirectory() as folder:
        joblib.dump(model, Path(folder, "densities.joblib"))
        for name in (
            "predict.py",
            "densities.py",
        ):  # so that the model directory is all that predicting needs
            shutil.copy(Path(__file__).with_name(name), folder)
        kit.save_model(folder, predict=["python", "predict.py"])


if __name__ == "__main__":
    main()

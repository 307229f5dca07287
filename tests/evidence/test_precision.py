"""Figures are what scikit-learn and the closed formulas say of the same predictions."""

import json
from pathlib import Path

import numpy as np
import pytest
from judging import Nights
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB

from podium.data import artifact
from podium.display.text import apart
from podium.models import open_registry, shared_items
from podium.prediction import ModelDirectory
from podium.scoring import METRICS
from podium.scoring.model import _softmax
from podium.training.origin import Origin

pytestmark = pytest.mark.whole

PREDICT = """
import argparse, pickle
import numpy as np

parser = argparse.ArgumentParser()
for name in ("model", "inputs", "output"):
    parser.add_argument("--" + name)
given = parser.parse_args()
model = pickle.load(open("model.pickle", "rb"))
np.save(given.output, model.predict_proba(np.load(given.inputs + "/pixels.npy")))
"""


def command_of(model: GaussianNB, data: Path, target: Path) -> Path:
    """Leave a fitted model whose predict command writes float64 probabilities."""
    import pickle

    part, digest = artifact.load(data, "train"), artifact.describe(data).digest
    target.mkdir()
    model.fit(np.asarray(part.inputs["pixels"]), part.target)
    (target / "model.pickle").write_bytes(pickle.dumps(model))
    (target / "predict.py").write_text(PREDICT)
    (target / "model.json").write_text(json.dumps({"predict": ["python", "predict.py"]}))
    (target / "metrics.json").write_text(json.dumps({"accuracy": 0, "epoch": 1, "dataset": digest}))
    Origin(kind="training", name="bayes", run_id="r", uri=str(target), hyperparameters={}).write(
        ModelDirectory(target)
    )
    return target


def test_probabilities_of_a_command_stay_float64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels, labels = load_digits(return_X_y=True)
    np.savez(tmp_path / "digits.npz", pixels=pixels, target=labels)
    nights = Nights(tmp_path, monkeypatch)
    data = nights.prepare(f"npz:{tmp_path}/digits.npz", "target")
    model = GaussianNB()
    decision = nights.challenge(
        "r1", command_of(model, data, tmp_path / "bayes"), metric="log_loss"
    )
    test = artifact.load(data, "test")
    expected = log_loss(test.target, model.predict_proba(np.asarray(test.inputs["pixels"])))
    assert expected > 2.5  # sure of wrong classes: what float32 cuts off
    assert np.load(tmp_path / "predictions" / "predictions.npy").dtype == np.float64
    assert decision["value"] == pytest.approx(expected, rel=1e-9)
    record = open_registry(nights.storage)["real"].records()[-1]
    assert record.to_json()["evidence"]["value"] == pytest.approx(expected, rel=1e-9)


def test_float32_and_float64_are_compared_with_one_precision() -> None:
    sure = np.array([[1.0, 0.0]] * 20)
    versions = [
        shared_items.Measured(
            version=str(kind),
            predicted=sure.astype(kind),
            classes=("a", "b"),
            fair=np.ones(20, bool),
        )
        for kind in (np.float32, np.float64)
    ]
    measured = {version.version: version for version in versions}
    shared = shared_items.TestItems(
        target=np.ones(20, np.int64),
        classes=("a", "b"),
        inputs={},
        measure=lambda version: measured[version.version],
    ).common(versions)
    single, double = (
        METRICS["log_loss"].value(shared.target, predicted) for predicted in shared.predicted
    )
    assert single == double


def test_probabilities_of_double_logits_stay_float64() -> None:
    logits = np.array([[0.0, 40.0]])
    assert _softmax(logits)[0, 0] == pytest.approx(np.exp(-40.0), rel=1e-12)
    assert _softmax(logits.astype(np.float32)).dtype == np.float32


def test_figures_that_decide_are_told_apart() -> None:
    assert apart(1.27111, 1.27112) == "1.27111"
    assert apart(0.5, 0.75) == "0.5000"
    assert apart(0.5, 0.5) == "an equal 0.5000"

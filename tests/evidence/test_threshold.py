"""A decision threshold is chosen on validation alone, and everything decides by it."""

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from judging import Judge, Nights, fitted
from pyarrow import parquet
from serving.servers import serving
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score

from podium.cli import app
from podium.data import artifact
from podium.errors import InvalidInput
from podium.kfp.values import check_values
from podium.models import PromotionRule, open_registry
from podium.models.comparison import chosen_metric
from podium.models.difference import _difference
from podium.models.shared_items import predictions
from podium.models.task import decision_threshold
from podium.scoring import METRICS, OnnxModel, find_metric
from podium.scoring.threshold import Threshold
from podium.training.dataset import DataSettings
from podium.training.preparation import prepare

pytestmark = pytest.mark.whole


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> Nights:
    monkeypatch.setenv("PODIUM_RUN_ID", "r")
    return Nights(tmp_path, monkeypatch)


def table(place: Path, rows: int = 6000, classes: tuple[str, ...] = ("fraud", "honest")) -> str:
    """Write rows of which one in ten is of the first class, which two columns only hint at."""
    draw = np.random.default_rng(1)
    rare = draw.random(rows) < 0.1
    columns = draw.normal(size=(2, rows)) + rare
    with (place / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y", "label"])
        for x, y, label in zip(*columns, np.where(rare, 0, draw.integers(1, len(classes), rows)),
                               strict=True):  # fmt: skip
            writer.writerow([f"{x:.5f}", f"{y:.5f}", classes[label]])
    return f"table:{place / 'rows.csv'}"


def parts(nights: Judge) -> tuple[Any, Any, tuple[str, ...]]:
    """Return the test labels, the last model's probabilities and the classes."""
    info = artifact.describe(nights.data)
    stored = np.load(nights.place / "predictions" / "predictions.npy")
    return artifact.load(nights.data, "test").target, stored, info.classes


@pytest.mark.parametrize(("metric", "is_advised"), [("", True), ("threshold:f1_macro", False)])
def test_accuracy_of_a_rare_class_is_advised_against(
    nights: Nights, capsys: pytest.CaptureFixture[str], metric: str, is_advised: bool
) -> None:
    nights.prepare(table(nights.place), "label")
    nights.train(LogisticRegression(), metric=metric)
    said = capsys.readouterr().out
    assert ("90% of the items are 'honest'" in said) == is_advised
    assert ("metric=threshold:f1_macro judges by all classes alike" in said) == is_advised


def test_a_threshold_is_the_same_from_evaluation_to_server(nights: Nights) -> None:
    nights.prepare(table(nights.place), "label")
    assert nights.train(LogisticRegression(), metric="threshold:f1_macro")["outcome"] == "promoted"
    version = open_registry(nights.storage)["real"].version("champion")
    target, stored, classes = parts(nights)
    chosen = json.loads(version.read("threshold.json"))
    assert chosen["label"] == "fraud"
    assert chosen["figure"] > chosen["figure_at_half"] + 0.1

    fraud = classes.index("fraud")
    decided = np.where(stored[:, fraud] >= chosen["value"], fraud, 1 - fraud)
    by_argmax = f1_score(target, stored.argmax(1), average="macro")
    assert version.metrics["f1_macro"] == pytest.approx(f1_score(target, decided, average="macro"))
    assert version.metrics["f1_macro"] > by_argmax + 0.08
    assert version.metrics["balanced_accuracy"] == pytest.approx(
        balanced_accuracy_score(target, decided)
    )
    assert version.facts.report.confusion[fraud][fraud] == np.sum(
        (decided == target) & (target == fraud)
    )

    labels = [classes[at] for at in decided]
    profile = version.opened.profile
    assert profile
    assert dict(zip(profile.predictions[0].labels, profile.predictions[0].counts, strict=True))[
        "fraud"
    ] == labels.count("fraud")
    assert nights.predict_originals(version.version) == labels
    file = artifact.originals(nights.data)
    assert file is not None
    out = nights.place / "predicted.csv"
    said = CliRunner().invoke(
        app, ["predict", str(file), "--model", "real", "--storage", nights.storage, "-o", str(out)]
    )
    assert said.exit_code == 0, said.output
    assert "'fraud' from a probability of " in said.stderr
    with out.open() as lines:
        assert [row["prediction"] for row in csv.DictReader(lines)] == labels
    rows = [{"x": row["x"], "y": row["y"]} for row in parquet.read_table(file).to_pylist()]
    with serving("real", "--storage", nights.storage) as server:
        answer = server.http.post("/v2/models/real/predict", json={"rows": rows}).json()
    assert [one["class"] for one in answer["predictions"]] == labels
    shown = CliRunner().invoke(app, ["models", "show", "real", "--storage", nights.storage])
    assert "'fraud' from a probability of " in shown.output
    assert "fraud&#39; from a probability of" in (nights.place / "report.html").read_text()


def test_each_model_is_compared_by_its_own_threshold(nights: Nights) -> None:
    nights.prepare(table(nights.place), "label")
    assert nights.train(LogisticRegression(), metric="threshold:f1_macro")["outcome"] == "promoted"
    nights.night += 1
    worse = nights.train(LogisticRegression(C=0.9), metric="f1_macro")
    assert worse["outcome"] == "kept"
    target, stored, classes = parts(nights)
    assert worse["value"] == pytest.approx(f1_score(target, stored.argmax(1), average="macro"))

    nights.night += 1
    decision = nights.train(
        LogisticRegression(C=0.5), metric="threshold:balanced_accuracy", rule="better,metric=f1_macro,calibration=.5"
    )  # fmt: skip
    model = open_registry(nights.storage)["real"]
    champion = decision_threshold(model.version("champion"))
    challenger = decision_threshold(model.version(str(decision["version"])))
    assert champion
    assert challenger
    assert challenger.value < champion.value
    target, stored, classes = parts(nights)
    expected = f1_score(target, challenger.decide(stored, classes), average="macro")
    assert decision["value"] == pytest.approx(expected)
    assert decision["champion_value"] == pytest.approx(
        model.version("champion").metrics["f1_macro"]
    )
    assert decision["calibration_error"] < 0.1, "of probabilities, not of classes"

    versions = [model.version(name) for name in (worse["version"], "champion")]
    seen = predictions(versions, None)
    change = _difference(seen, METRICS["f1_macro"])
    assert change.metrics["f1_macro"] == pytest.approx((worse["value"], worse["champion_value"]))
    assert change.comparison.first == pytest.approx(worse["champion_value"])
    assert change.changes.gained
    with pytest.raises(InvalidInput, match="each model decides by its own threshold"):
        chosen_metric("threshold:f1_macro", versions[0], "classification")


def test_it_follows_from_the_validation_part_alone(nights: Nights) -> None:
    data = nights.prepare(table(nights.place), "label")
    model = fitted(data, nights.place / "model", LogisticRegression())
    nights.evaluate(model, metric="threshold:f1_macro")
    chosen = json.loads((nights.place / "predictions" / "threshold.json").read_text())
    part, classes = artifact.load(data, "validation"), artifact.describe(data).classes
    stored = OnnxModel(model / "model.onnx").predict(part.inputs, classes=2)
    assert asdict(Threshold.choose(METRICS["f1_macro"], part.target, stored, classes)) == chosen
    assert chosen["items"] == len(part.target)
    assert chosen["rarer"] == np.sum(part.target == classes.index("fraud"))


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "f1_macro"])
def test_no_other_value_is_better_on_validation(name: str) -> None:
    draw, metric = np.random.default_rng(5), METRICS[name]
    for items in (1, 2, 7, 60):
        for _ in range(20):
            target = draw.integers(0, 2, items)
            rare = draw.choice([0.0, 0.2, 0.5, 0.7, 1.0, draw.random()], items)
            chances = np.stack([1 - rare, rare], 1).astype(np.float32)
            chosen = Threshold.choose(metric, target, chances, ("no", "yes"))
            at = ("no", "yes").index(chosen.label)
            tried = {
                value: metric.value(target, np.where(chances[:, at] >= value, at, 1 - at))
                for value in (chosen.value, 0.5, 0.0, *np.linspace(0, 1, 101))
            }
            assert tried[chosen.value] == pytest.approx(max(tried.values()))
            assert chosen.figure == pytest.approx(tried[chosen.value])
            assert chosen.figure_at_half == pytest.approx(tried[0.5])
            assert (chosen.value == 0.5) == (tried[0.5] == pytest.approx(max(tried.values())))
            assert np.array_equal(
                chosen.decide(chances, ("no", "yes")),
                np.where(chances[:, at] >= chosen.value, at, 1 - at),
            )


def test_a_metric_without_decisions_is_refused(tmp_path: Path) -> None:
    for metric, words in {
        "threshold:log_loss": "log_loss does not follow from decided classes",
        "threshold:roc_auc": "roc_auc does not follow from decided classes",
        "threshold:max:math:dist": "math:dist does not follow from decided classes",
        "threshold:rmse": "rmse does not follow from decided classes",
        "threshold:f2": "there is no metric 'f2'",
        "threshold:min:f1_macro": "of f1_macro more is better",
    }.items():
        values = {"dataset": table(tmp_path, 20), "target": "label", "metric": metric}
        with pytest.raises(InvalidInput, match=words):
            check_values(values)
    with pytest.raises(InvalidInput, match="a threshold is chosen where a run evaluates") as error:
        find_metric(PromotionRule.parse("better,metric=threshold:f1_macro").metric)
    assert error.value.hint == "f1_macro; each model decides by its own threshold anyway"


def test_three_classes_are_refused_before_training(tmp_path: Path) -> None:
    settings = DataSettings(dataset=table(tmp_path, 300, ("a", "b", "c")), target="label")
    with pytest.raises(InvalidInput, match="between two classes, but the dataset has 3") as error:
        prepare(settings, tmp_path / "data", metric="threshold:f1_macro")
    assert error.value.hint == "f1_macro alone decides for the most probable class"


def test_few_items_of_the_rarer_class_are_a_warning(
    nights: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    data = nights.prepare(table(nights.place, 1000), "label")
    nights.evaluate(
        fitted(data, nights.place / "model", LogisticRegression()), metric="threshold:accuracy"
    )
    said = capsys.readouterr().out
    assert "of the rarer class: with fewer than 100 it may be far from the best one" in said


def test_a_trainer_may_leave_a_threshold_of_its_own(nights: Nights) -> None:
    data = nights.prepare(table(nights.place), "label")
    model = fitted(data, nights.place / "model", LogisticRegression())
    (model / "threshold.json").write_text('{"label": "fraud", "value": 0.2}')
    found, _ = nights.evaluate(model, metric="f1_macro")
    target, stored, classes = parts(nights)
    fraud = classes.index("fraud")
    decided = np.where(stored[:, fraud] >= 0.2, fraud, 1 - fraud)
    assert found.metrics["f1_macro"] == pytest.approx(f1_score(target, decided, average="macro"))
    words = ["models", "upload", "other", str(model), "--data", str(data), "--metric", "f1_macro"]
    done = CliRunner().invoke(app, [*words, "--storage", nights.storage])
    assert done.exit_code == 0, done.output
    (uploaded,) = open_registry(nights.storage)["other"].versions
    assert uploaded.metrics["f1_macro"] == pytest.approx(found.metrics["f1_macro"])
    for text, words in {
        '{"label": "thief", "value": 0.2}': "about 'thief', but the classes are fraud, honest",
        '{"label": "fraud", "value": 2}': "a threshold is a probability, 0 to 1, and not 2",
        '{"value": 0.2}': "label",
    }.items():
        (model / "threshold.json").write_text(text)
        with pytest.raises(InvalidInput, match=words):
            nights.evaluate(model, metric="f1_macro")

"""evaluate, upload_model and promote on tables: regression, probabilities, metrics of one's own."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import Judge, fitted
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score, root_mean_squared_error

from podium.data import artifact, artifact_files
from podium.data.schema import Column
from podium.errors import InvalidInput
from podium.models import open_registry
from podium.models.version import PREDICTIONS, TARGET
from podium.steps.prepare_data import DataSettings, prepare_data

pytestmark = pytest.mark.whole

Array = np.ndarray[Any, Any]


def write_table(
    target: Path, rows: Array, values: Array, names: list[str], classes: tuple[str, ...] = ()
) -> Path:
    """Write a real table as an artifact of three parts."""
    chosen = np.random.default_rng(0).permutation(len(rows))
    thirds = dict(
        zip(
            ("train", "validation", "test"),
            np.array_split(chosen, [len(rows) // 2, len(rows) * 3 // 4]),
            strict=True,
        )
    )
    columns = tuple(Column(name=name, kind="number") for name in names)
    artifact_files.write(
        target, {part: artifact.Split(inputs={"table": rows[at]}, target=values[at]) for part, at in thirds.items()},
        name="real", kind="classification" if classes else "regression", classes=classes, target_name="outcome",
        inputs={"table": artifact.InputDescription(meaning="table", columns=columns)}, preprocessing={},
        source="scikit-learn", split="random",
    )  # fmt: skip
    return target


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows, values = load_diabetes(return_X_y=True)
    names = load_diabetes().feature_names
    return write_table(
        tmp_path_factory.mktemp("data") / "diabetes", rows.astype(np.float32), values, names
    )


@pytest.fixture(scope="module")
def cancer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = load_breast_cancer()
    rows, names = data.data.astype(np.float32), [str(name) for name in data.feature_names]
    classes = tuple(map(str, data.target_names))
    return write_table(
        tmp_path_factory.mktemp("data") / "cancer", rows, data.target, names, classes
    )


@pytest.fixture
def numbers(diabetes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    return Judge(diabetes, tmp_path, monkeypatch)


@pytest.fixture
def kinds(cancer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    return Judge(cancer, tmp_path, monkeypatch)


def test_a_regression_is_chosen_by_its_rmse(numbers: Judge, diabetes: Path, tmp_path: Path) -> None:
    weak, good = (
        fitted(diabetes, tmp_path / "weak", Ridge(50.0)),
        fitted(diabetes, tmp_path / "good", Ridge(0.1)),
    )
    found, reported = numbers.evaluate(weak, good)
    assert (reported["metric"], reported["winner"]["name"]) == (
        {"name": "rmse", "maximize": False},
        "good",
    )
    assert re.fullmatch(r"validation rmse 5\d\.\d+ against 8\d\.\d+", reported["winner"]["why"])
    part = artifact.load(diabetes, "test")
    predicted = np.load(tmp_path / "predictions" / PREDICTIONS)
    assert np.array_equal(np.load(tmp_path / "predictions" / TARGET), part.target)
    assert found.metrics["rmse"] == pytest.approx(root_mean_squared_error(part.target, predicted))
    assert set(reported["test"]["metrics"]) == {"rmse", "mae", "r2"}
    assert (found.confusion, found.classes, reported["test"]["classes"]) == ([], [], [])
    summary = reported["data"]
    assert [column["name"] for column in summary["columns"]] == load_diabetes().feature_names
    for said in summary["parts"]:
        target = artifact.load(diabetes, said["name"]).target
        (spread,) = said["target"]
        figures = (target.mean(), np.median(target), target.min(), target.max())
        assert list(spread.values()) == pytest.approx(figures)


def test_a_regressions_report_shows_fit_residuals_and_rows(
    numbers: Judge, diabetes: Path, tmp_path: Path
) -> None:
    numbers.challenge("r1", fitted(diabetes, tmp_path / "good", Ridge(0.1)))
    reported = json.loads((tmp_path / "evaluation").read_text())["test"]
    errors = [example["score"] for example in reported["examples"]]
    assert errors == sorted(errors, reverse=True)
    assert set(reported["examples"][0]["row"]) == set(load_diabetes().feature_names)
    assert len(reported["points"][0]["true"]) == reported["count"]
    page = (tmp_path / "report.html").read_text()
    assert all(f'data-figure="{name}"' in page for name in ("fit-1", "residuals-1"))
    assert "Confusion matrix" not in page
    assert "Largest errors" in page


def test_a_regression_is_promoted_by_a_paired_permutation_test(
    numbers: Judge, diabetes: Path, tmp_path: Path
) -> None:
    first = numbers.challenge("r1", fitted(diabetes, tmp_path / "weak", Ridge(50.0)))
    assert first["reasons"][0].startswith("ok: rmse ")
    second = numbers.challenge(
        "r2", fitted(diabetes, tmp_path / "good", Ridge(0.1)), rule="likely=.999"
    )
    assert (second["outcome"], second["test"]) == ("promoted", "paired permutation")
    assert second["difference"] == second["value"] - second["champion_value"] < 0
    assert second["interval"][0] < second["difference"] < second["interval"][1] < 0
    third = numbers.challenge("r3", tmp_path / "weak")
    assert (third["outcome"], third["champion"]) == ("kept", "r2")
    assert third["reasons"][0].startswith("no: better than the champion: rmse ")
    facts = open_registry(tmp_path / "store").model("real").versions[0].facts
    assert (facts.metric.name, facts.value) == ("rmse", pytest.approx(first["value"]))


def test_a_regressions_limit_is_a_maximum(numbers: Judge, diabetes: Path, tmp_path: Path) -> None:
    decision = numbers.challenge(
        "r1", fitted(diabetes, tmp_path / "weak", Ridge(50.0)), rule="minimum=40"
    )
    assert decision["outcome"] == "kept"
    assert re.match(r"no: rmse \d\d\.\d+ <= maximum 40", decision["reasons"][0])


def test_candidates_are_chosen_by_the_metric_asked_for(
    kinds: Judge, cancer: Path, tmp_path: Path
) -> None:
    one = fitted(cancer, tmp_path / "one", LogisticRegression(C=1e-4, max_iter=5000))
    other = fitted(
        cancer,
        tmp_path / "other",
        LogisticRegression(C=1e-7, class_weight="balanced", max_iter=5000),
    )
    for metric in ("accuracy", "roc_auc", "log_loss"):
        _, reported = kinds.evaluate(one, other, metric=metric)
        values = {
            entry["name"]: entry["validation"]["metrics"][metric]
            for entry in reported["candidates"]
        }
        best = (min if metric == "log_loss" else max)(values, key=values.__getitem__)
        assert (reported["metric"]["name"], reported["winner"]["name"]) == (metric, best)
    part = artifact.load(cancer, "test")
    predicted = np.load(tmp_path / "predictions" / PREDICTIONS)
    assert reported["test"]["metrics"]["roc_auc"] == pytest.approx(
        roc_auc_score(part.target, predicted[:, 1])
    )


def test_the_experiments_objective_is_the_metric_if_known(
    kinds: Judge, cancer: Path, tmp_path: Path, sweep_table: Path
) -> None:
    model = fitted(cancer, tmp_path / "one", LogisticRegression(C=1e-4, max_iter=5000))
    table = json.loads(sweep_table.read_text())
    for objective, metric in (
        ("roc_auc", "roc_auc"),
        ("val_auc", "accuracy"),
        ("rmse", "accuracy"),
    ):
        table["objective"] = {"metric": objective, "maximize": objective != "rmse"}
        sweep_table.write_text(json.dumps(table))
        assert kinds.evaluate(model, trials=sweep_table)[1]["metric"]["name"] == metric


def test_the_challengers_metric_compares_whatever_chose_the_champion(
    kinds: Judge, cancer: Path, tmp_path: Path
) -> None:
    weak = fitted(cancer, tmp_path / "weak", LogisticRegression(C=1e-9, max_iter=5000))
    good = fitted(cancer, tmp_path / "good", LogisticRegression(C=1e-3, max_iter=5000))
    first = kinds.challenge("r1", weak, rule="better,baseline=any")
    assert first["metric"]["name"] == "accuracy"
    second = kinds.challenge("r2", good, metric="log_loss")
    assert second["reasons"][0].startswith("ok: better than the champion: log_loss 0.")
    assert second["reasons"][-1] == "ok: r1 was chosen by accuracy; both are compared by log_loss"
    by_rule = kinds.challenge("r3", weak, rule="metric=f1_macro")
    assert by_rule["metric"]["name"] == "f1_macro"


def test_a_metric_of_ones_own_chooses_and_compares(
    kinds: Judge, cancer: Path, tmp_path: Path
) -> None:
    model = fitted(cancer, tmp_path / "one", LogisticRegression(C=1e-4, max_iter=5000))
    (tmp_path / "clinic.py").write_text(
        "def missed(target, predictions):\n    return float(((predictions.argmax(1) == 1) & (target == 0)).mean())\n"
    )
    kinds.monkeypatch.chdir(tmp_path)
    decision = kinds.challenge("r1", model, metric="min:clinic:missed")
    assert decision["metric"] == {"name": "clinic:missed", "maximize": False}
    again = kinds.challenge("r2", model, metric="min:clinic:missed", rule="not-worse")
    assert (again["outcome"], again["difference"], again["p_value"]) == ("promoted", 0, 1)


def test_a_model_without_a_number_loses_every_night(
    kinds: Judge, cancer: Path, tmp_path: Path
) -> None:
    good = fitted(cancer, tmp_path / "one", LogisticRegression(C=1e-4, max_iter=5000))
    flat = fitted(cancer, tmp_path / "two", LogisticRegression(C=1e-9, max_iter=5000))
    (tmp_path / "spread.py").write_text(
        "def ratio(target, given):\n"
        "    apart = given[:, 1].std() > 0.1\n"
        "    return float((given.argmax(1) == target).mean()) if apart else float('nan')\n"
    )
    kinds.monkeypatch.chdir(tmp_path)
    found, _ = kinds.evaluate(flat, good, metric="max:spread:ratio")
    assert found.winner == str(good)
    assert kinds.challenge("r1", good, metric="max:spread:ratio")["outcome"] == "promoted"
    lost = kinds.challenge("r2", flat, metric="max:spread:ratio")
    assert lost["outcome"] == "kept"
    assert "spread:ratio of the challenger is not a number on these" in lost["reasons"][0]


def test_a_metric_of_the_other_kind_is_refused(kinds: Judge, cancer: Path, tmp_path: Path) -> None:
    model = fitted(cancer, tmp_path / "one", LogisticRegression(C=1e-4, max_iter=5000))
    with pytest.raises(
        InvalidInput, match="rmse measures regression, but the dataset is classification"
    ):
        kinds.evaluate(model, metric="rmse")
    assert not (tmp_path / "evaluation").exists()


def test_a_model_of_another_table_is_refused_by_its_shape(
    kinds: Judge, cancer: Path, diabetes: Path, tmp_path: Path
) -> None:
    model = fitted(diabetes, tmp_path / "numbers", Ridge())
    facts = {"accuracy": 0, "loss": 0, "epoch": 1, "dataset": artifact.describe(cancer).digest}
    (model / "metrics.json").write_text(json.dumps(facts))
    with pytest.raises(
        InvalidInput,
        match=r"takes table \(float32 \[n, 10\]\), but got table \(float32 \[n, 30",
    ):
        kinds.evaluate(model)


def test_a_metric_of_the_other_kind_is_refused_before_training(
    cancer: Path, tmp_path: Path
) -> None:
    settings = DataSettings(dataset=str(cancer))
    with pytest.raises(
        InvalidInput, match="rmse measures regression, but the dataset is classification"
    ):
        prepare_data(settings, tmp_path / "copy", metric="min:rmse")
    assert not (tmp_path / "copy").exists()
    assert prepare_data(settings, tmp_path / "copy", metric="log_loss").kind == "classification"

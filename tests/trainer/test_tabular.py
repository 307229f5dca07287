"""Models of scikit-learn: their ONNX graphs, what is refused, and a training without torch."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, log_loss, r2_score, root_mean_squared_error
from tasks import write

from podium.data import artifact
from podium.data.schema import Column
from podium.data.validated import Validated
from podium.storage import connect
from podium.trainer import linear, tabular, task, trees
from podium.trainer.config import parse
from podium.trainer.fitted import Fitted

FEW = ["--tree-rounds", "40", "--tree-leaves", "12"]
COLORS = tuple(f"color {number}" for number in range(300))
COLUMNS = (
    Column(name="height", kind="number"),
    Column(name="color", kind="category", categories=COLORS),
    Column(name="shape", kind="category", categories=("round", "flat", "(missing)", "(unknown)")),
    Column(name="weight", kind="number"),
)


def table(count: int = 1200, seed: int = 1) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows of two numbers and two categories, and a number that depends on all of them."""
    rng = np.random.default_rng(seed)
    color, shape = rng.integers(0, 300, count), rng.integers(0, 3, count)
    height, weight = rng.normal(size=count), rng.normal(size=count) * 1e6
    value = (
        height
        + np.isin(color % 7, [1, 4]) * 2
        - (shape == 1) * np.sign(weight)
        + rng.normal(size=count) / 4
    )
    return np.stack([height, color, shape, weight], 1).astype(np.float32), value


def prepared(folder: Path, outcome: NDArray[Any], rows: NDArray[Any]) -> Path:
    return write(folder / "data", {"table": rows}, outcome, "table", columns=COLUMNS)


def train(data: Path, output: Path, *flags: str) -> dict[str, Any]:
    argv = ["--model", "trees", "--data", str(data), "--output", str(output), *FEW, *flags]
    assert tabular.run(argv) == 0
    metrics: dict[str, Any] = json.loads((output / "metrics.json").read_text())
    return metrics


def answers(output: Path, rows: NDArray[Any]) -> NDArray[Any]:
    (values,) = onnxruntime.InferenceSession(output / "model.onnx").run(None, {"table": rows})
    return np.asarray(values)


def fitted(data: Path, *flags: str) -> tuple[Fitted, NDArray[Any]]:
    """Fit the same model, and return it with the rows of the validation part."""
    config = parse(["--model", "trees", "--data", str(data), *FEW, *flags])
    learned = task.read(config, artifact.describe(data))
    fit = trees.fit if config.model == "trees" else linear.fit
    train, validation = artifact.load(data, "train"), artifact.load(data, "validation")
    return fit(config, learned, train, validation), np.array(validation.inputs["table"])


@pytest.mark.parametrize("model", ["trees", "linear"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_graph_answers_as_the_library_does(model: str, classes: int, tmp_path: Path) -> None:
    rows, value = table()
    data = prepared(tmp_path, np.digitize(value, [0, 1][: classes - 1]), rows)
    metrics = train(data, tmp_path / "out", "--model", model)
    library, validation = fitted(data, "--model", model)
    values = answers(tmp_path / "out", validation)
    assert values == pytest.approx(library.validation, rel=1e-6, abs=1e-6)
    target = np.array(artifact.load(data, "validation").target)
    shares = np.exp(values) / np.exp(values).sum(1, keepdims=True)
    assert metrics["accuracy"] == pytest.approx(accuracy_score(target, values.argmax(1)))
    assert metrics["loss"] == pytest.approx(log_loss(target, shares), abs=1e-6)
    assert metrics["accuracy"] > 0.6
    kept = Validated.read(connect(tmp_path / "out"))
    assert kept
    assert kept.predictions == pytest.approx(shares, abs=1e-6)


@pytest.mark.parametrize(("model", "least"), [("trees", 0.5), ("linear", 0.2)])
def test_numbers_are_learned_each_by_itself(model: str, least: float, tmp_path: Path) -> None:
    rows, value = table()
    data = prepared(tmp_path, np.stack([value, 50 - 10 * value], 1).astype(np.float32), rows)
    metrics = train(data, tmp_path / "out", "--model", model)
    library, validation = fitted(data, "--model", model)
    values = answers(tmp_path / "out", validation)
    assert values == pytest.approx(library.validation, rel=1e-6, abs=1e-6)
    target = np.array(artifact.load(data, "validation").target)
    assert metrics["rmse"] == pytest.approx(root_mean_squared_error(target, values), rel=1e-4)
    assert metrics["r2"] == pytest.approx(r2_score(target, values), rel=1e-3)
    assert metrics["r2"] > least


def test_values_never_seen_take_one_way_in_both(tmp_path: Path) -> None:
    rows, value = table()
    rows[800:, 1] = np.where(rows[800:, 1] > 150, rows[800:, 1], 299)  # the training part has all
    rows[:800, 1] %= 150
    rows[800:, 2] = 3  # unknown
    data = prepared(tmp_path, (value > 0).astype(np.int64), rows)
    train(data, tmp_path / "out")
    library, validation = fitted(data)
    assert answers(tmp_path / "out", validation) == pytest.approx(library.validation, abs=1e-6)


def test_of_many_categories_the_frequent_ones_are_told_apart(tmp_path: Path) -> None:
    rows, value = table(3000)
    data = prepared(tmp_path, (value > 0).astype(np.int64), rows)
    config = parse(["--model", "trees", "--data", str(data)])
    learned = task.read(config, artifact.describe(data))
    known = trees._columns(learned, artifact.load(data, "train").inputs["table"]).categories[0]
    counts = np.bincount(rows[:2000, 1].astype(int), minlength=300)
    others = np.setdiff1d(np.arange(300), known)
    assert len(known) == trees.MOST_CATEGORIES
    assert counts[known.astype(int)].min() >= counts[others].max()


def test_the_linear_model_is_scikit_learns(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=(600, 4)) * [1, 50, 3, 1e4]).astype(np.float32)
    labels = (rows @ [1, 0.05, -0.5, 2e-4] + rng.normal(size=600) > 0).astype(np.int64)
    data = write(tmp_path / "data", {"table": rows}, labels, "array")
    train(data, tmp_path / "out", "--model", "linear", "--weight-decay", "0.01")
    known = rows[:400].astype(np.float64)
    scaled = (rows - known.mean(0)) / known.std(0)
    model = LogisticRegression(C=1 / (0.01 * 400)).fit(scaled[:400], labels[:400])
    values = answers(tmp_path / "out", rows[400:])
    odds = model.decision_function(scaled[400:])
    assert values[:, 1] - values[:, 0] == pytest.approx(odds, abs=1e-3)


@pytest.mark.parametrize("model", ["trees", "linear"])
def test_a_class_without_training_items_is_never_answered(model: str, tmp_path: Path) -> None:
    rows, value = table()
    labels = np.where(value > 0, 2, 0)
    labels[1100:] = 1  # in the test part alone
    data = prepared(tmp_path, labels, rows)
    train(data, tmp_path / "out", "--model", model)
    values = answers(tmp_path / "out", rows[:800])
    assert set(values.argmax(1).tolist()) == {0, 2}


@pytest.mark.parametrize("model", ["trees", "linear"])
def test_a_validation_part_of_other_classes_is_refused(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, _ = table(120)
    labels = np.arange(120) % 2
    labels[80:100] = 2
    data = prepared(tmp_path, labels, rows)
    assert tabular.run(["--model", model, "--data", str(data)]) == 2
    assert "the validation part has no item of a class" in capsys.readouterr().err


def test_a_single_class_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = table(120)
    labels = np.zeros(120, np.int64)
    labels[-1] = 1
    data = prepared(tmp_path, labels, rows)
    assert tabular.run(["--model", "trees", "--data", str(data)]) == 2
    assert (
        "a model learns two classes or more, but the training part has 1" in capsys.readouterr().err
    )


def test_balance_weighs_a_rare_class(tmp_path: Path) -> None:
    rows, value = table()
    data = prepared(tmp_path, (value + 1.5 * table(seed=2)[1] > 4.2).astype(np.int64), rows)
    plain = train(data, tmp_path / "plain", "--metric", "balanced_accuracy")
    even = train(data, tmp_path / "even", "--metric", "balanced_accuracy", "--balance")
    assert even["balanced_accuracy"] > plain["balanced_accuracy"]
    target = np.array(artifact.load(data, "validation").target)
    chosen = answers(tmp_path / "even", np.array(artifact.load(data, "validation").inputs["table"]))
    macro = train(data, tmp_path / "f1", "--metric", "f1_macro", "--balance")["f1_macro"]
    assert macro == pytest.approx(f1_score(target, chosen.argmax(1), average="macro"))


def test_a_finished_training_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, value = table()
    data = prepared(tmp_path, (value > 0).astype(np.int64), rows)
    train(data, tmp_path / "out")
    before, first = (tmp_path / "out" / "model.onnx").read_bytes(), capsys.readouterr().out
    train(data, tmp_path / "out")
    again = capsys.readouterr()
    assert again.out.split(maxsplit=1)[1] == first.split(maxsplit=1)[1]
    assert "this training is finished" in again.err
    assert (tmp_path / "out" / "model.onnx").read_bytes() == before
    other = ["--model", "trees", "--data", str(data), "--output", str(tmp_path / "out")]
    assert tabular.run(other) == 2
    assert "holds another training: tree_rounds 40 -> 1000" in capsys.readouterr().err


def test_one_rank_grows_the_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, value = table(240)
    data = prepared(tmp_path, (value > 0).astype(np.int64), rows)
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, text in ranks.items():
        monkeypatch.setenv(name, text)
    argv = ["--model", "trees", "--data", str(data), "--output", str(tmp_path / "out")]
    assert tabular.run(argv) == 0
    assert "fitted by one process" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_trees_need_no_torch(tmp_path: Path) -> None:
    rows, value = table(240)
    data = prepared(tmp_path, value.astype(np.float32), rows)
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch')")
    flags = ["--model=trees", f"--data={data}", f"--output={tmp_path / 'out'}", *FEW]
    run = subprocess.run(
        [sys.executable, "-m", "podium.trainer", *flags],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert run.returncode == 0, run.stderr
    assert "rmse=" in run.stdout
    assert (tmp_path / "out" / "model.onnx").is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--weights", "w.safetensors"], "--weights is for networks: trees start from scratch"),
        (["--inherit", "parent"], "--inherit is for networks"),
        (["--tree-leaves", "1"], "--tree-leaves >= 2"),
        (["--tree-columns", "0"], r"--tree-columns in \(0, 1\]"),
        (["--dropout", "0.2"], "--dropout is for tutorial, fast, best, mlp"),
    ],
)
def test_flags_that_trees_do_not_take_are_refused(flags: list[str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        parse(["--model", "trees", *flags])

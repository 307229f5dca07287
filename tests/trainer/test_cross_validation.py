"""``--folds``: a training reports the mean of its folds and is fitted to all items."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest

import podium
from podium.data import artifact
from podium.data.folds import each_fold
from podium.data.seen import SeenItems
from podium.data.validated import Validated
from podium.scoring import OnnxModel
from podium.storage import connect
from podium.trainer.__main__ import main

pytestmark = pytest.mark.whole


def rows(folder: Path, count: int, seed: int, **options: object) -> str:
    """Prepare a table whose answer follows from three of its numbers and chance."""
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(count, 6))
    chance = 1 / (1 + np.exp(-numbers @ [1.5, -1.0, 0.5, 0, 0, 0]))
    answer = np.where(random.random(count) < chance, "yes", "no")
    lines = [",".join([*map(str, row), word]) for row, word in zip(numbers, answer, strict=True)]
    (folder / "rows.csv").write_text("\n".join(["a,b,c,d,e,f,outcome", *lines]))
    where = f"table:{folder}/rows.csv"
    data = podium.prepare_data(where, f"{folder}/data", target="outcome", **options)  # type: ignore[arg-type]
    return str(data)


def metrics(folder: str) -> dict:
    return json.loads(Path(folder, "metrics.json").read_text())


@pytest.mark.parametrize("model", ["trees", "linear", "mlp"])
def test_the_metrics_are_the_means_of_the_folds(
    tmp_path: Path, model: str, capfd: pytest.CaptureFixture[str]
) -> None:
    data, output = rows(tmp_path, 120, 1), str(tmp_path / "model")
    words = ["--data", data, "--output", output, "--model", model, "--folds", "4"]
    more = ["--epochs", "3", "--batch-size", "16"] if model == "mlp" else []
    assert main([*words, *more]) == 0
    said = capfd.readouterr().out
    found = metrics(output)
    accuracies = [fold["accuracy"] for fold in found["folds"]]
    assert len(accuracies) == 4
    assert found["accuracy"] == pytest.approx(statistics.fmean(accuracies))
    assert found["accuracy_se"] == pytest.approx(statistics.stdev(accuracies) / 2)
    assert f" accuracy={found['accuracy']:.4f} " in said
    assert f"accuracy_se={found['accuracy_se']:.3g}"[:16] in said
    assert "fold 4 of 4: accuracy 0." in said
    left = Validated.read(connect(output))
    assert left is not None
    assert left.folds is not None
    assert len(left.target) == sum(
        artifact.describe(data).parts[part].count for part in artifact.LEARNED
    )
    hits = lambda target, predictions: float((predictions.argmax(1) == target).mean())  # noqa: E731
    assert left.mean(hits) == pytest.approx(found["accuracy"])
    assert main([*words, *more]) == 0
    assert "accuracy_se=" in capfd.readouterr().out, "a finished training repeats its lines"


def test_folds_just_above_and_below_what_is_kept_are_joined() -> None:
    shares = np.array([[0.2, 0.8], [0.9, 0.1]])
    parts = [(np.array([1, 1]), shares), (np.array([0, 1, 1]), np.array([0, 0, 1]))]
    joined = Validated.joined(parts, has_groups=False)
    assert joined.predictions.tolist() == [1, 0, 0, 0, 1]


def test_the_model_is_fitted_to_all_items(tmp_path: Path) -> None:
    data, folder = rows(tmp_path, 120, 1), tmp_path / "model"
    output = str(folder)
    words = ["--output", output, "--model", "linear"]
    assert main([*words, "--data", data, "--folds", "3"]) == 0
    alone = str(tmp_path / "alone")
    everything = each_fold(data, 3, 1)[-1]
    assert main(["--output", alone, "--model", "linear", "--data", everything]) == 0
    inputs = artifact.load(data, "validation").inputs
    both = (
        OnnxModel(Path(where, "model.onnx")).predict(inputs, classes=2) for where in (output, alone)
    )
    np.testing.assert_allclose(*both, atol=1e-6)
    seen = SeenItems.read(connect(output))
    assert seen is not None
    assert seen.to_bytes() == artifact.load_seen(data).to_bytes()  # type: ignore[union-attr]


def test_folds_that_cannot_be_end_the_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = rows(tmp_path, 120, 1)
    assert main(["--data", data, "--model", "linear", "--folds", "90"]) == 2
    assert "error: folds=90 are more than the" in capfd.readouterr().err
    assert main(["--data", data, "--model", "linear", "--folds", "1"]) == 2
    assert main(["--data", data, "--model", "mlp", "--folds", "2", "--inherit", "x"]) == 2


def test_figures_of_small_data_are_nearer_the_truth(tmp_path: Path) -> None:
    """150 rows: how far a training's figure is from that of fresh rows, over twelve sets."""
    (tmp_path / "fresh").mkdir()
    fresh = artifact.load(rows(tmp_path / "fresh", 3000, 99), "train")
    errors: dict[str, list[float]] = {"0": [], "5": []}
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        data = rows(folder, 150, seed)
        for folds, found in errors.items():
            output = str(folder / folds)
            assert (
                main(["--data", data, "--output", output, "--model", "linear", "--folds", folds])
                == 0
            )
            predicted = OnnxModel(Path(output, "model.onnx")).predict(fresh.inputs, classes=2)
            truth = float((predicted.argmax(1) == fresh.target).mean())
            found.append(metrics(output)["accuracy"] - truth)
    spread = {folds: float(np.sqrt(np.mean(np.square(found)))) for folds, found in errors.items()}
    assert spread["5"] < 0.6 * spread["0"], spread

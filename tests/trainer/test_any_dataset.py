"""Whole trainings on color pictures, tables and arrays, to classes and to numbers; and what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from tasks import houses, striped_pictures, write

from podium.data import artifact
from podium.trainer import data, processor
from podium.trainer.__main__ import main
from podium.trainer.config import parse
from podium.trainer.loop import TrainingLoop
from podium.trainer.world import World

pytestmark = pytest.mark.whole

FLAGS = ["--precision", "fp32", "--threads", "1", "--no-cuda"]


@pytest.fixture(scope="module")
def stripes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    images, labels = striped_pictures(480, 20, 28)
    return write(tmp_path_factory.mktemp("data") / "stripes", {"images": images}, labels, "image")


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table, price, columns = houses(600)
    return write(
        tmp_path_factory.mktemp("data") / "prices",
        {"table": table},
        price,
        "table",
        columns=columns,
    )


def train(dataset: Path, output: Path, *flags: str) -> dict[str, Any]:
    """Train, and return metrics.json."""
    assert main(["--data", str(dataset), "--output", str(output), *flags, *FLAGS]) == 0
    metrics: dict[str, Any] = json.loads((output / "metrics.json").read_text())
    return metrics


def answers(output: Path, dataset: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return what model.onnx says about the validation part, and the target."""
    part = artifact.load(dataset, "validation")
    session = onnxruntime.InferenceSession(output / "model.onnx")
    (values,) = session.run(None, {name: np.array(array) for name, array in part.inputs.items()})
    return values, np.array(part.target)


@pytest.mark.parametrize(("model", "epochs"), [("fast", "6"), ("best", "3")])
def test_color_pictures_are_learned_and_scored_through_onnx(
    model: str, epochs: str, stripes: Path, tmp_path: Path
) -> None:
    metrics = train(
        stripes, tmp_path, "--model", model, "--epochs", epochs, "--batch-size", "32", "--lr", "0.1"
    )
    logits, labels = answers(tmp_path, stripes)
    assert np.mean(logits.argmax(1) == labels) == pytest.approx(metrics["accuracy"], abs=0.013)
    assert metrics["accuracy"] > 0.9


def test_a_torchvision_network_starts_from_weights_and_keeps_its_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, labels = striped_pictures(120, 20, 28)
    stripes = write(tmp_path / "stripes", {"images": images}, labels, "image")
    flags = ["--model", "shufflenet_v2_x0_5", "--epochs", "1", "--batch-size", "20"]
    first = train(stripes, tmp_path / "first", *flags)
    config = parse([*flags, "--data", str(stripes), *FLAGS])
    again = TrainingLoop(config, data.load(config), World(), lambda line: None)
    again.run(lambda state: None)
    assert [epoch["train_loss"] for epoch in first["epochs"]] == [
        epoch["train_loss"] for epoch in again.progress.history
    ]
    capsys.readouterr()
    weights = str(tmp_path / "first" / "model.safetensors")
    more = train(
        stripes, tmp_path / "more", *flags, "--weights", weights, "--lr", "1e-4"
    )  # no step away from them
    assert more["epochs"][0]["train_loss"] < 0.8 * first["epochs"][0]["train_loss"]
    assert "last layer" not in capsys.readouterr().err
    logits, labels = answers(tmp_path / "more", stripes)
    assert np.mean(logits.argmax(1) == labels) == pytest.approx(more["accuracy"], abs=0.013)


def test_a_price_is_learned_and_reported_in_its_own_units(
    prices: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = train(prices, tmp_path, "--model", "mlp", "--epochs", "30")
    values, target = answers(tmp_path, prices)
    assert values.shape == (len(target), 1)
    for name, compute in (
        ("rmse", root_mean_squared_error),
        ("mae", mean_absolute_error),
        ("r2", r2_score),
    ):
        assert metrics[name] == pytest.approx(compute(target, values[:, 0]), rel=1e-3), name
    assert metrics["rmse"] < 25_000  # the noise is 10,000, the spread of prices 200,000
    assert metrics["rmse"] == min(epoch["rmse"] for epoch in metrics["epochs"])
    lines = re.findall(
        r"^\S+Z rmse=(\d+\.\d{4}) r2=-?\d\.\d{4} loss=\d+\.\d{4}$",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    assert len(lines) == 30


def test_several_numbers_are_scored_as_by_scikit_learn(tmp_path: Path) -> None:
    table, price, columns = houses(300)
    both = np.stack([price, table[:, 0] * -1e-4], 1)
    dataset = write(tmp_path / "both", {"table": table}, both, "table", columns=columns)
    metrics = train(dataset, tmp_path / "out", "--model", "mlp", "--epochs", "3")
    values, target = answers(tmp_path / "out", dataset)
    assert values.shape == (50, 2)
    for name, compute in (
        ("rmse", root_mean_squared_error),
        ("mae", mean_absolute_error),
        ("r2", r2_score),
    ):
        assert metrics[name] == pytest.approx(compute(target, values), rel=2e-3), name


def test_pictures_of_floats_are_learned_as_their_bytes_are(tmp_path: Path) -> None:
    images, labels = striped_pictures(240, 20, 28)
    found = {}
    for name, pixels in (("bytes", images), ("floats", images.astype(np.float32) / 255)):
        dataset = write(tmp_path / name, {"images": pixels}, labels, "image")
        flags = ("--model", "fast", "--epochs", "3", "--batch-size", "32", "--lr", "0.1")
        found[name] = train(dataset, tmp_path / f"{name}-out", *flags)["epochs"]
    for bytes_, floats in zip(found["bytes"], found["floats"], strict=True):
        assert floats["loss"] == pytest.approx(bytes_["loss"], rel=0.1)


def test_a_brightness_is_learned_from_pictures(tmp_path: Path) -> None:
    images, _ = striped_pictures(360, 16, 16)
    brightness = images.reshape(len(images), -1).mean(1) / 1000
    dataset = write(tmp_path / "light", {"pixels": images}, brightness, "image")
    metrics = train(
        dataset,
        tmp_path / "out",
        "--model",
        "fast",
        "--epochs",
        "8",
        "--batch-size",
        "24",
        "--lr",
        "0.02",
    )
    values, target = answers(tmp_path / "out", dataset)
    assert metrics["rmse"] == pytest.approx(root_mean_squared_error(target, values[:, 0]), rel=1e-3)
    assert metrics["r2"] > 0.5


def test_an_array_of_signals_is_learned(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    labels = np.arange(480) % 3
    signals = np.sin(np.linspace(0, 6, 40) * (1 + labels)[:, None])[..., None] + rng.normal(
        0, 0.3, (480, 40, 2)
    )
    dataset = write(tmp_path / "signals", {"signal": signals.astype(np.float32)}, labels, "array")
    assert train(dataset, tmp_path / "out", "--model", "mlp", "--epochs", "5")["accuracy"] > 0.95


def test_a_finished_regression_is_reported_again(
    prices: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = []
    for _ in range(2):
        train(prices, tmp_path, "--model", "mlp", "--epochs", "2")
        lines.append(re.findall(r"rmse=.*$", capsys.readouterr().out, re.MULTILINE))
    assert lines[0] == lines[1]
    assert len(lines[0]) == 2


@pytest.mark.parametrize(
    "flags", [["--model", "fast"], ["--model", "fast", "--augment", "crop,color", "--shift", "2"]]
)
def test_data_mapped_from_disk_give_the_same_losses(
    flags: list[str], stripes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    torch.set_num_threads(1)
    for share in (10**12, 0):
        monkeypatch.setattr(processor, "memory_for_data", lambda device, share=share: share)
        monkeypatch.setattr(data, "RESIDENT", 100_000)  # mapped anew every second batch
        config = parse(
            [*flags, "--data", str(stripes), "--batch-size", "32", "--epochs", "2", *FLAGS]
        )
        dataset = data.load(config).to(torch.device("cpu"))
        assert isinstance(dataset.train.inputs, data._Mapped) is (share == 0)
        training = TrainingLoop(config, dataset, World(), lambda line: None)
        training.run(lambda state: None)
        seen.append([{**epoch, "seconds": 0} for epoch in training.progress.history])
    assert seen[0] == seen[1]


@pytest.mark.parametrize(("flags", "said"), [
    (["--model", "fast"], "--model fast learns from pictures, but the input of made is a table"),
    (["--model", "mlp", "--flip"], "--flip changes pictures, but the input of made is a table"),
    (["--model", "mlp", "--augment", "crop"], "--augment changes pictures, but the input of made is a table"),
])  # fmt: skip
def test_a_table_is_refused_by_what_needs_pictures(
    flags: list[str], said: str, prices: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(prices), "--output", str(tmp_path / "out"), *flags, *FLAGS]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("model", ["mlp", "trees", "linear"])
def test_a_target_of_which_float32_keeps_nothing_is_refused(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, price, columns = houses(60)
    moments = 1.7e9 + price / price.max()
    dataset = write(tmp_path / "data", {"table": table}, moments, "table", columns=columns)
    flags = ["--data", str(dataset), "--model", model, "--batch-size", "8", *FLAGS]
    assert main(flags) == 2
    said = capsys.readouterr().err
    assert "the target outcome lies around 1.7e+09 and differs by 0.2" in said
    assert "hint: subtract a number near 1.7e+09 from it" in said


def test_sentences_and_several_inputs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, words = np.arange(60) % 2, np.ones((60, 8), np.int64)
    one = write(tmp_path / "one", {"tokens": words}, labels, "tokens")
    two = write(tmp_path / "two", {"tokens": words, "mask": words}, labels, "array")
    for dataset, said in ((one, "the input tokens of the dataset made holds tokens"),
                          (two, "takes one input, but the dataset made has tokens and mask")):  # fmt: skip
        assert main(["--data", str(dataset), "--model", "mlp", "--batch-size", "8", *FLAGS]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert "hint: train it with a trainer of your own" in err


def test_pictures_that_are_too_small_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, labels = striped_pictures(60, 6, 20)
    dataset = write(tmp_path / "small", {"images": images}, labels, "image")
    assert main(["--data", str(dataset), "--batch-size", "8", *FLAGS]) == 2
    assert "pictures of 6x20 pixels are too small: 8x8 is the least" in capsys.readouterr().err


def test_an_augmentation_larger_than_half_a_picture_is_refused(
    stripes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(stripes), "--shift", "11", *FLAGS]) == 2
    assert "--shift 11 is more than half of pictures of 20x" in capsys.readouterr().err

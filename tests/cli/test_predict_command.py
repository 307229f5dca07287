"""`podium predict` with a model written by hand: is the ink of a picture wide (class 0) or tall (class 1)?"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw

from podium.registry import open_registry


@pytest.fixture
def model() -> bytes:
    y, x = np.mgrid[:28, :28] - 14.0
    tall = ((y**2 - x**2) / 5000).reshape(784, 1)
    weights = np.concatenate([-tall, tall], 1).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["images"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["float"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]
    taken = [helper.make_tensor_value_info("images", TensorProto.UINT8, ["n", 28, 28])]
    given = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 2])]
    graph = helper.make_graph(nodes, "tall", taken, given, [numpy_helper.from_array(weights, "weights")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name, box in {"tall.png": (70, 20, 85, 130), "wide.jpg": (20, 70, 130, 85)}.items():
        picture = Image.new("RGB", (150, 150), (240, 238, 230))
        ImageDraw.Draw(picture).rectangle(box, fill=(30, 30, 60))
        picture.save(folder / name)
    return folder


@pytest.fixture
def store(tmp_path: Path, model: bytes) -> str:
    """A registry whose champion is the model."""
    registered = open_registry(tmp_path / "store")["shapes"]
    metadata = {"dataset": {"name": "shapes", "classes": ["wide", "tall"]}}
    version = registered.upload({"model.onnx": model}, metadata, "first")
    registered.promote(version.version, {}, None)
    return str(tmp_path / "store")


def podium(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from podium.cli import main; main()", "predict", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_the_champion_answers_with_its_own_classes(store: str, pictures: Path) -> None:
    done = podium(pictures, "--model", "shapes", "--storage", store, "--dataset", "mnist")
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["tall", "wide"]
    assert "%" in done.stdout


def test_json_holds_every_probability(store: str, pictures: Path) -> None:
    found = json.loads(
        podium(pictures / "tall.png", "--model", "shapes", "--storage", store, "--dataset", "mnist", "--json").stdout
    )
    assert (found["model"], found["dataset"]) == ("shapes first", "mnist")
    (one,) = found["predictions"]
    assert one["class"] == "tall"
    assert one["probabilities"]["tall"] > 0.9
    assert sum(one["probabilities"].values()) == pytest.approx(1)


def test_mistakes_are_named(store: str, pictures: Path, model: bytes, tmp_path: Path) -> None:
    nowhere = podium(pictures / "nowhere.png", "--model", "shapes", "--storage", store)
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert "nowhere.png' does not exist" in nowhere.stderr
    unknown = podium(pictures, "--model", "shape", "--storage", store)
    assert unknown.returncode == 1
    assert "Traceback" not in unknown.stderr
    (tmp_path / "model.onnx").write_bytes(model)
    other = podium(pictures, "--file", tmp_path / "model.onnx", "--dataset", "mnist")
    assert other.returncode == 2
    assert "has 2 classes, but the data has 10" in other.stderr
    misspelt = podium(pictures, "--file", tmp_path / "model.onnx", "--dataset", "fasion-mnist")
    assert (misspelt.returncode, misspelt.stdout) == (2, "")
    assert "did you mean fashion-mnist?" in misspelt.stderr


def test_a_model_of_own_data_takes_no_digits(store: str, pictures: Path, model: bytes, tmp_path: Path) -> None:
    done = podium(pictures, "--model", "shapes", "--storage", store)
    assert (done.returncode, done.stdout) == (2, "")
    assert "trained on shapes" in done.stderr
    (tmp_path / "model.onnx").write_bytes(model)
    unnamed = podium(pictures, "--file", tmp_path / "model.onnx")
    assert (unnamed.returncode, unnamed.stdout) == (2, "")
    assert "does not say what it was trained on" in unnamed.stderr


def test_a_blank_picture_does_not_stop_the_others(store: str, pictures: Path) -> None:
    Image.new("RGB", (150, 150), (240, 238, 230)).save(pictures / "blank.png")
    (pictures / "cut.png").write_bytes((pictures / "tall.png").read_bytes()[:60])
    done = podium(pictures, "--model", "shapes", "--storage", store, "--dataset", "mnist", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [one["class"] for one in found["predictions"]] == ["tall", "wide"]
    assert [Path(one["picture"]).name for one in found["failed"]] == ["blank.png", "cut.png"]
    assert "blank.png: the digit must stand out" in done.stderr
    assert "2 of 4 pictures could not be classified" in done.stderr

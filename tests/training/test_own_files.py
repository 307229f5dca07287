"""What a pipeline adds to the files of a trainer that knows nothing of podium."""

import json
from pathlib import Path

import numpy as np
import pytest

from podium.code.bundle import pack
from podium.errors import InvalidInput, NotFound
from podium.prediction import ModelDirectory, open_model
from podium.training.own_files import complete
from podium.training.target import LaunchTarget

PREDICT = """
import argparse, numpy
parser = argparse.ArgumentParser()
for flag in ("--base", "--model", "--inputs", "--output"):
    parser.add_argument(flag)
given = parser.parse_args()
scale = float(open(f"{given.base}/deep/scale.txt").read()) * float(open(f"{given.model}/weights.txt").read())
numpy.save(given.output, numpy.load(f"{given.inputs}/x.npy") * scale)
"""
COMMAND = ("python", "./predict.py", "--base", "base")


@pytest.fixture
def target(tmp_path: Path) -> LaunchTarget:
    """Code with a predict command, packed and stored, and a secret beside it."""
    for name, text in (
        ("predict.py", PREDICT),
        ("train.py", "not needed"),
        ("base/deep/scale.txt", "3"),
    ):
        file = tmp_path / "code" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    code = pack(tmp_path / "code").store(str(tmp_path / "store"))
    return LaunchTarget(code=code.uri, predict=COMMAND)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """What a trainer left."""
    folder = tmp_path / "left"
    (folder / "checkpoint-8").mkdir(parents=True)
    (folder / "weights.txt").write_text("2")
    (folder / "checkpoint-8" / "weights.txt").write_text("1")
    return folder


def test_its_files_predict_by_the_command(target: LaunchTarget, left: Path) -> None:
    complete(ModelDirectory(left), target)
    assert json.loads((left / "model.json").read_text()) == {"predict": list(COMMAND)}
    kept = {file.relative_to(left).as_posix() for file in left.rglob("*") if file.is_file()}
    assert kept == {
        "weights.txt",
        "checkpoint-8/weights.txt",
        "model.json",
        "predict.py",
        "base/deep/scale.txt",
    }
    predicted = open_model(left).predict({"x": np.array([1.0, 2.0], np.float32)})
    assert list(predicted.values) == [6.0, 12.0]


@pytest.mark.parametrize("name", ["model.onnx", "model.json"])
def test_a_model_that_is_there_stays_as_it_is(target: LaunchTarget, left: Path, name: str) -> None:
    (left / name).write_text("the trainer's own")
    complete(ModelDirectory(left), target)
    assert (left / name).read_text() == "the trainer's own"
    assert not (left / "predict.py").exists()


def test_without_a_command_a_model_is_asked_for(left: Path) -> None:
    with pytest.raises(NotFound, match=r"neither model.onnx nor model.json, only weights.txt"):
        complete(ModelDirectory(left), LaunchTarget())


def test_a_trainer_that_left_nothing_has_no_model(target: LaunchTarget, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no model under"):
        complete(ModelDirectory(tmp_path / "nothing"), target)


def test_files_outside_of_the_code_stay_there(
    target: LaunchTarget, left: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    words = ("python", "predict.py", str(tmp_path / "secret.txt"), "../secret.txt", ".")
    complete(ModelDirectory(left), LaunchTarget(code=target.code, predict=words))
    assert not list(left.rglob("secret.txt"))
    assert not (left / "train.py").exists()


def test_a_command_of_a_file_needs_the_code() -> None:
    with pytest.raises(
        InvalidInput, match=r"predict names predict.py, but no code is given"
    ) as error:
        LaunchTarget(predict=["python", "predict.py"])
    assert error.value.hint == "name its directory: code=."
    assert LaunchTarget(predict=["python", "/opt/app/predict.py"]).predict

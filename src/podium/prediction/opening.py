"""The model of a model directory, opened to predict."""

from pathlib import Path
from typing import Any

from podium.errors import NotFound
from podium.files.documents import load_json
from podium.prediction.command import FILE as COMMAND, ONNX, CommandModel
from podium.prediction.directory import ModelDirectory
from podium.prediction.predictor import Predictor
from podium.scoring import OnnxModel
from podium.storage import absolute
from podium.system.arguments import checked


@checked
def open_model(uri: str | Path) -> Predictor:
    """Open the model directory that a trainer wrote.

    Args:
        uri: A directory or a URI with ``model.onnx``, or ``model.json`` with a predict command; or
            such a file in it.

    Raises:
        NotFound: There is no model.

    Example:
        >>> import podium
        >>> model = podium.open_model(storage / "models/digits/versions/v1")
        >>> len(model.predict(images))
        2
    """
    where, file = absolute(uri), ""
    if where.rpartition("/")[2] in (ONNX, COMMAND):
        where, _, file = where.rpartition("/")
    directory = ModelDirectory(where)
    directory.require_model()
    return Predictor(
        str(uri),
        lambda: _open_file(directory.path / file, str(uri)),
        lambda name: _beside(directory.path / name),
    )


def _open_file(path: Path, name: str) -> OnnxModel | CommandModel:
    """Open the model in a local directory, or a file of it; each call of a command copies it,
    without checkpoints.

    Args:
        name: For people.

    Raises:
        NotFound: There is none.
    """
    file = next((path / known for known in (ONNX, COMMAND) if (path / known).is_file()), path)
    if not file.is_file():
        raise NotFound(f"there is neither {ONNX} nor {COMMAND} in {path}")
    if file.name != COMMAND:
        return OnnxModel(file)
    return CommandModel(name=name, fetch=lambda copy: ModelDirectory(file.parent).fetch(copy))


def _beside(file: Path) -> Any:
    return load_json(file.read_bytes(), str(file)) if file.is_file() else {}

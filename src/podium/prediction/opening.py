"""The model of a model directory, opened to predict."""

from pathlib import Path
from typing import Any

from podium.errors import NotFound
from podium.files.documents import load_json
from podium.prediction.command import MODELS, ONNX, CommandModel
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
    if where.rpartition("/")[2] in MODELS:
        where, _, file = where.rpartition("/")
    directory = ModelDirectory(where)
    directory.require_model()
    file = file or next(name for name in MODELS if name in directory.files)
    if file not in directory.files:
        raise NotFound(f"there is no {file} in {where}")
    return Predictor(
        str(uri),
        lambda: _open(directory.path, file, str(uri)),
        lambda name: _beside(directory.path / name),
    )


def _open(path: Path, file: str, name: str) -> OnnxModel | CommandModel:
    if file == ONNX:
        return OnnxModel(path / file)
    return CommandModel(name=name, fetch=ModelDirectory(path).fetch)


def _beside(file: Path) -> Any:
    return load_json(file.read_bytes(), str(file)) if file.is_file() else {}

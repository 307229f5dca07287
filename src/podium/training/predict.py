"""Predict new pictures, rows and sentences with a model."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from podium.documents import load_json
from podium.errors import InvalidInput, NotFound
from podium.training.model_directory import fetch_model, model_files
from podium.training.predict_command import FILE as COMMAND
from podium.training.predict_command import CommandModel

if TYPE_CHECKING:
    import numpy as np

    from podium.data.items import Batch
    from podium.data.preprocessing import Preprocessing
    from podium.data.rows import Problem
    from podium.data.schema import DatasetInfo
    from podium.models import Model, Version
    from podium.scoring import OnnxModel

PREPROCESSING = "preprocessing.json"
"""File of a model directory or a version: the preprocessing, and the target's name and classes."""

ONNX = "model.onnx"

ONE_CALL = 1 << 28
"""Bytes of items that a predict command gets at once, names included: its start takes longer than some rows."""

NAME = 256
"""Bytes that the name of an item takes, roughly."""


class Predicts(Protocol):
    """An ONNX graph, or a command."""

    def predict(self, inputs: "Mapping[str, np.ndarray]", *, classes: int | None) -> "np.ndarray":
        """Return probabilities ``[n, classes]``, class indices ``[n]``, or floats ``[n]`` or ``[n, k]``."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a model says of one item."""

    name: Mapping[str, str | int]
    """The item: its ``picture``, its ``file`` and ``row``, or its ``text``."""

    label: str = ""
    """Classification: the class."""

    probabilities: Mapping[str, float] | None = None
    """Classification: by class in the order of the classes; they sum to 1. None if the model gives classes only."""

    values: tuple[float, ...] = ()
    """Regression."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        if self.values:
            return {**self.name, "value": self.values[0] if len(self.values) == 1 else list(self.values)}
        given = {} if self.probabilities is None else {"probabilities": dict(self.ranked)}
        return {**self.name, "class": self.label, **given}

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """The most probable class first."""
        return sorted((self.probabilities or {}).items(), key=lambda pair: -pair[1])


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """A model that knows how raw data becomes its inputs."""

    name: str
    """For people: ``mnist v3``."""

    model: Predicts

    preprocessing: "Preprocessing"

    classes: tuple[str, ...] | None
    """None for regression."""

    def predict(
        self, items: Sequence[str], *, delimiter: str = "", encoding: str = "utf-8"
    ) -> Iterator["Outcome | Problem"]:
        """Predict items in order; one that cannot be read does not stop the others.

        Args:
            items: Pictures or folders of them, table files, or text files or sentences: what the model is for.
            delimiter: Of CSV files; empty follows from the header.
            encoding: Of CSV and text files.

        Raises:
            NotFound: A file is not there.
            InvalidInput: A file is of another kind or lacks a column, or the model has other inputs or classes.
            Failed: The model fails on these inputs.
        """
        from podium.data.items import read_items

        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            batches = read_items(self.preprocessing, items, Path(scratch), delimiter=delimiter, encoding=encoding)
            size = ONE_CALL if isinstance(self.model, CommandModel) else 0  # a graph predicts what is read at a time
            for gathered in _gather(batches, size):
                results, at = self._results(gathered), 0
                for batch in gathered:
                    yield from map(self._outcome, batch.names, results[at : at + len(batch.names)].tolist())
                    yield from batch.problems
                    at += len(batch.names)

    def _results(self, batches: "Sequence[Batch]") -> "np.ndarray":
        """Predict all items of some batches in one call."""
        import numpy as np

        filled = [batch.inputs for batch in batches if batch.names]
        if not filled:
            return np.empty(0)
        inputs = filled[0] if len(filled) == 1 else {
            name: np.concatenate([part[name] for part in filled]) for name in filled[0]
        }  # fmt: skip
        return self.model.predict(inputs, classes=None if self.classes is None else len(self.classes))

    def _outcome(self, name: Mapping[str, str | int], result: Any) -> Outcome:
        if self.classes is None:
            return Outcome(name=name, values=tuple(result) if isinstance(result, list) else (result,))
        if isinstance(result, int):
            return Outcome(name=name, label=self.classes[result])
        best = max(range(len(result)), key=result.__getitem__)
        probabilities = dict(zip(self.classes, result, strict=True))
        return Outcome(name=name, label=self.classes[best], probabilities=probabilities)


def _gather(batches: "Iterable[Batch]", size: int) -> "Iterator[list[Batch]]":
    """Yield batches in lists that have at least some bytes, but for the last."""
    gathered: list[Batch] = []
    held = 0
    for batch in batches:
        gathered.append(batch)
        held += sum(array.nbytes for array in batch.inputs.values()) + NAME * len(batch.names)
        if held >= size:
            yield gathered
            gathered, held = [], 0
    if gathered:
        yield gathered


def load_version(model: "Model", version: str, data: str = "") -> Predictor:
    """Load a version of a model in a registry.

    Args:
        version: Alias or id.
        data: URI of the dataset it was trained on, for a version that does not say how its inputs are made.

    Raises:
        NotFound: There is no such version.
        InvalidInput: It has no model, or it is not known how raw data becomes its inputs.
    """
    stored = model.version(version)
    name = f"{model.name} {stored.version}"
    if not {ONNX, COMMAND} & set(stored.files):
        raise InvalidInput(
            f"{name} has neither {ONNX} nor {COMMAND}, and predicting needs one of them",
            f"its files: {', '.join(stored.files)}",
        )
    given = load_json(model.read(stored, PREPROCESSING), PREPROCESSING) if PREPROCESSING in stored.files else {}
    preprocessing, classes = _read(given, name, data)
    opened = open_version(model, stored)
    classes = classes or stored.facts.dataset.classes
    return Predictor(name=name, model=opened, preprocessing=preprocessing, classes=_classes(opened, classes))


def open_version(model: "Model", version: "Version") -> "OnnxModel | CommandModel":
    """Open the model of a version; a command runs on this machine, in a temporary copy."""
    from podium.scoring import OnnxModel

    name = f"{model.name} {version.version}"
    if ONNX in version.files or COMMAND not in version.files:
        return OnnxModel(model.read(version, ONNX), name=name)
    return CommandModel(name=name, fetch=lambda folder: model.fetch(version.version, folder))


def load_directory(path: Path, data: str = "") -> Predictor:
    """Load a model directory, or the model in it, with its preprocessing.json; raises like load_version."""
    opened = open_file(path)
    preprocessing, classes = _read(_beside(path), str(path), data)
    return Predictor(name=str(path), model=opened, preprocessing=preprocessing, classes=_classes(opened, classes))


def open_graph(folder: Path) -> tuple[Predicts, tuple[str, ...] | None]:
    """Open the model in a directory for inputs as it takes them.

    Returns:
        The model, and the names of its classes: their numbers if they have none, and None for regression.

    Raises:
        NotFound: There is none.
    """
    opened = open_file(folder)
    return opened, _classes(opened, _names(_beside(folder)))


def open_file(path: Path) -> "OnnxModel | CommandModel":
    """Open the model in a local directory, or a file of it; each call of a command copies it, without checkpoints.

    Raises:
        NotFound: There is none.
    """
    from podium.scoring import OnnxModel

    file = next((path / name for name in (ONNX, COMMAND) if (path / name).is_file()), path)
    if not file.is_file():
        raise NotFound(f"there is neither {ONNX} nor {COMMAND} in {path}")
    if file.name == COMMAND:
        return command_model(file.parent, str(path))
    return OnnxModel(file)


def command_model(folder: Path, name: str) -> CommandModel:
    """Return the command of a local model directory; each call copies the directory, without checkpoints."""
    return CommandModel(name=name, fetch=lambda copy: fetch_model(str(folder), model_files(str(folder)), copy))


def write_preprocessing(info: "DatasetInfo", target: Path) -> None:
    """Write preprocessing.json to a directory, if the dataset says how its inputs were made."""
    if info.preprocessing:
        (target / PREPROCESSING).write_text(json.dumps(describe_preprocessing(info), indent=1) + "\n")


def describe_preprocessing(info: "DatasetInfo") -> dict[str, Any]:
    """Return what the preprocessing.json of a model says that was trained on a dataset."""
    return {**info.preprocessing, "target": info.target.name, "classes": list(info.classes)}


def _beside(path: Path) -> Any:
    """Return the preprocessing.json of a model directory, or beside a model; empty if there is none."""
    file = (path if path.is_dir() else path.parent) / PREPROCESSING
    return load_json(file.read_bytes(), str(file)) if file.is_file() else {}


def _read(given: Any, name: str, data: str) -> tuple["Preprocessing", tuple[str, ...]]:
    """Return the preprocessing and the names of the classes, as far as they are known."""
    from podium.data import artifact, preprocessing

    if data:
        info = artifact.describe(data)
        given, where = describe_preprocessing(info), f"{data}/dataset.json"
    else:
        where = f"{PREPROCESSING} of {name}"
    read = preprocessing.read(given if "kind" in given else {}, where)
    if read is None:
        raise InvalidInput(f"{name} does not say how pictures, rows or sentences become its inputs",
                           f"it needs a {PREPROCESSING}; or name the dataset of its training: --data URI")  # fmt: skip
    return read, _names(given)


def _names(preprocessing: Any) -> tuple[str, ...]:
    return tuple(map(str, preprocessing.get("classes", ())))


def _classes(model: "OnnxModel | CommandModel", known: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names of the classes; an ONNX graph's numbers if they have none, and None for regression."""
    if known or isinstance(model, CommandModel):
        return known or None
    for output in model.outputs:
        if output.name in ("probabilities", "logits") and output.shape[-1]:
            return tuple(map(str, range(output.shape[-1])))
    return None

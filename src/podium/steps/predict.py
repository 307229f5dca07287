"""Predict new pictures, rows and sentences with a model."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.documents import load_json
from podium.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from podium.data.preprocessing import Preprocessing
    from podium.data.rows import Problem
    from podium.data.schema import DatasetInfo
    from podium.registry import Model
    from podium.scoring import OnnxModel

PREPROCESSING = "preprocessing.json"
"""File of a model directory or a version: the preprocessing, and the target's name and classes."""

ONNX = "model.onnx"


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

    model: "OnnxModel"

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
            for batch in read_items(self.preprocessing, items, Path(scratch), delimiter=delimiter, encoding=encoding):
                if batch.names:
                    classes = None if self.classes is None else len(self.classes)
                    results = self.model.predict(batch.inputs, classes=classes).tolist()
                    yield from map(self._outcome, batch.names, results)
                yield from batch.problems

    def _outcome(self, name: Mapping[str, str | int], result: Any) -> Outcome:
        if self.classes is None:
            return Outcome(name=name, values=tuple(result) if isinstance(result, list) else (result,))
        if isinstance(result, int):
            return Outcome(name=name, label=self.classes[result])
        best = max(range(len(result)), key=result.__getitem__)
        probabilities = dict(zip(self.classes, result, strict=True))
        return Outcome(name=name, label=self.classes[best], probabilities=probabilities)


def load_version(model: "Model", version: str, data: str = "") -> Predictor:
    """Load a version of a model in a registry.

    Args:
        model: The model.
        version: Alias or id.
        data: URI of the dataset it was trained on, for a version that does not say how its inputs are made.

    Raises:
        NotFound: There is no such version.
        InvalidInput: It has no model.onnx, or it is not known how raw data becomes its inputs.
    """
    from podium.scoring import OnnxModel

    stored = model.version(version)
    name = f"{model.name} {stored.version}"
    if ONNX not in stored.files:
        raise InvalidInput(f"{name} has no {ONNX}, which predicting needs", f"its files: {', '.join(stored.files)}")
    given = load_json(model.read(stored, PREPROCESSING), PREPROCESSING) if PREPROCESSING in stored.files else {}
    preprocessing, classes = _read(given, name, data)
    opened = OnnxModel(model.read(stored, ONNX))
    return Predictor(name=name, model=opened, preprocessing=preprocessing,
                     classes=_classes(opened, classes or stored.facts.dataset_classes))  # fmt: skip


def load_directory(path: Path, data: str = "") -> Predictor:
    """Load a model directory or a model.onnx with its preprocessing.json beside it; raises like load_version."""
    from podium.scoring import OnnxModel

    file = path / ONNX if path.is_dir() else path
    if not file.is_file():
        raise NotFound(f"there is no {ONNX} in {path}")
    beside = file.with_name(PREPROCESSING)
    given = load_json(beside.read_bytes(), str(beside)) if beside.is_file() else {}
    preprocessing, classes = _read(given, str(path), data)
    opened = OnnxModel(file)
    return Predictor(name=str(path), model=opened, preprocessing=preprocessing, classes=_classes(opened, classes))


def describe_preprocessing(info: "DatasetInfo") -> dict[str, Any]:
    """Return what the preprocessing.json of a model says that was trained on a dataset."""
    return {**info.preprocessing, "target": info.target.name, "classes": list(info.classes)}


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
    return read, tuple(map(str, given.get("classes", ())))


def _classes(model: "OnnxModel", known: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names of the classes; their numbers if they have none, and None for regression."""
    if known:
        return known
    for output in model.outputs:
        if output.name in ("probabilities", "logits") and output.shape[-1]:
            return tuple(map(str, range(output.shape[-1])))
    return None

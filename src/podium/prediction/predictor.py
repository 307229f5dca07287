"""A model that predicts: new pictures, rows and sentences, or arrays as it takes them."""

import json
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from podium.data import artifact, preprocessing
from podium.data.items import Batch, read_items
from podium.data.preprocessing import Preprocessing
from podium.data.profile import Profile
from podium.data.rows import Problem
from podium.data.schema import DatasetInfo
from podium.data.split import Split
from podium.display.notebook import say
from podium.errors import Damaged, InvalidInput, NotFound, PodiumError
from podium.files.documents import load_json, parse
from podium.prediction.command import MODELS, ONNX, CommandModel
from podium.prediction.directory import ModelDirectory
from podium.prediction.predictions import Outcome, Predictions, UnknownValues, decided
from podium.scoring import OnnxModel
from podium.scoring.threshold import THRESHOLD, Threshold
from podium.storage import absolute
from podium.system.arguments import checked

PREPROCESSING = "preprocessing.json"
"""File of a model directory or a version: the preprocessing, and the target's name and classes."""

PROFILE = "profile.json"
"""File of a version: its training part in bins, and what it said of the test part."""

ONE_CALL = 1 << 28
"""Bytes of items that a predict command gets at once, names included: its start takes longer than
some rows."""

_NAME = 256
"""Bytes that the name of an item takes, roughly."""


class Predictor:
    """A model that predicts, opened when it first does.

    Args:
        name: For people: ``mnist v3``.
        model: Opens the graph, or the command.
        beside: Reads a JSON file beside it by name; returns {} where there is none.
        classes: Names of the classes where preprocessing.json has none.
    """

    def __init__(
        self,
        name: str,
        model: Callable[[], OnnxModel | CommandModel],
        beside: Callable[[str], Any],
        classes: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._open, self._beside, self._known = model, beside, tuple(classes)
        self.seen: Callable[[Mapping[str, NDArray[Any]], NDArray[Any]], None] | None = None
        """Called with the inputs of each call of the model, and with what it says of them."""

    @cached_property
    def model(self) -> OnnxModel | CommandModel:
        """The graph, or the command."""
        return self._open()

    @cached_property
    def _described(self) -> Any:
        document = self._beside(PREPROCESSING)
        if not isinstance(document, dict):
            raise InvalidInput(f"{PREPROCESSING} of {self.name} is not a JSON object")
        return document

    @cached_property
    def profile(self) -> Profile | None:
        """The training part in bins; None of a model without one.

        Raises:
            InvalidInput: It cannot be read.
        """
        document = self._beside(PROFILE)
        return parse(Profile, document, f"{PROFILE} of {self.name}") if document else None

    def load(self) -> None:
        """Read all that predicting takes, so that it goes on while its files are out of reach.

        Raises:
            PodiumError: Something of it cannot be read.
        """
        _ = self.classes, self.threshold, self.known_ranges

    @cached_property
    def known_ranges(self) -> Profile | None:
        """The profile, which a warning alone needs; None for one that is not what it should be, but
        an error, which is not kept, while its storage is away."""
        try:
            return self.profile
        except (InvalidInput, Damaged) as error:
            say(f"warning: numbers outside the range of training go unnoticed: {error.message}")
            return None

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes; None for regression."""
        return self._classes(self._described)

    def predict(self, items: Any, *, data: str | Path = "") -> Predictions:
        """Predict.

        Args:
            items: Inputs as the model takes them: an array [n, …], arrays by name, or a part of a
                dataset. Or raw data, which become inputs as the training data did: a DataFrame with
                the columns of the training data, a row as a dict, rows as dicts, pictures, tables
                and folders as paths, or sentences.
            data: Directory or URI of the dataset it was trained on, for a model without
                preprocessing.json.

        Returns:
            ``.values``, ``.probabilities`` and ``.frame``, in the order of the items.

        Raises:
            InvalidInput: The model takes other inputs, or does not say how raw data becomes inputs.
        """
        if isinstance(items, Split):
            return self._of_arrays(items.inputs)
        from podium.data.in_memory import is_table, kind_of, to_table

        if is_table(items):
            with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
                file = Path(scratch, "rows.parquet")
                pq.write_table(to_table(items), file)
                try:
                    return self._of_items([str(file)], str(data), hidden=f"{scratch}/")
                except PodiumError as error:
                    error.message = error.message.replace(f"{scratch}/", "")
                    raise
        if isinstance(items, np.ndarray | Mapping):
            return self._of_arrays(items)
        named = (
            [items]
            if isinstance(items, str | Path) or not isinstance(items, Iterable)
            else list(items)
        )
        if not named or not all(isinstance(item, str | Path) for item in named):
            problem = f"items are an array, arrays by name, a DataFrame, paths or sentences, and not {kind_of(items)}"
            raise InvalidInput(problem, 'predict(array), predict(frame), predict("photo.jpg")')
        return self._of_items(list(map(str, named)), str(data))

    def stream(
        self,
        items: Sequence[str | Path],
        *,
        data: str | Path = "",
        delimiter: str = "",
        encoding: str = "utf-8",
        on_unknown: Callable[[UnknownValues], None] | None = None,
        on_batch: "Callable[[Batch, NDArray[Any]], None] | None" = None,
        until: float = math.inf,
    ) -> Iterator[Outcome | Problem]:
        """Predict raw data one after the other, without keeping any: for files larger than memory.

        Args:
            items: Paths of pictures, tables and folders, or sentences.
            data: As predict takes it.
            delimiter: What separates values in CSV files; empty follows from their header.
            encoding: Encoding of CSV and text files.
            on_unknown: Called at the end with the values of categories that the training part does
                not have.
            on_batch: Called with items as they were read, and with what the model says of them.
            until: When nobody waits any more, by time.monotonic(): a graph is ended then.

        Returns:
            An Outcome (``.name``, ``.label``, ``.probabilities``, ``.values``) of each item, in
            their order; and a Problem for each that could not be read, behind the items that were
            read together with it.

        Raises:
            NotFound: A file is not there.
            InvalidInput: The model does not say how raw data becomes inputs, or takes other data.
            Failed: The model fails on these inputs.
        """
        recipe, classes = self._prepared(str(data))
        unknown = UnknownValues(recipe, self.known_ranges)

        def outcomes() -> Iterator[Outcome | Problem]:
            for batch, results in self._batches(recipe, classes, items, delimiter, encoding, until):
                unknown.add(batch)
                if on_batch:
                    on_batch(batch, results)
                indices = results if classes is None else decided(results, classes, self.threshold)
                named = zip(batch.names, results.tolist(), indices.tolist(), strict=True)
                yield from (Outcome.of(*each, classes) for each in named)
                yield from batch.problems
            if on_unknown:
                on_unknown(unknown)

        return outcomes()

    def _of_arrays(self, data: NDArray[Any] | Mapping[str, Any]) -> Predictions:
        inputs = data if isinstance(data, Mapping) else {self._only_input(): data}
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        classes = self.classes
        result = self._run(arrays, None if classes is None else len(classes))
        return Predictions(classes, result, threshold=self.threshold)

    def _run(
        self, inputs: Mapping[str, NDArray[Any]], classes: int | None, until: float = math.inf
    ) -> NDArray[Any]:
        if isinstance(self.model, OnnxModel):
            result = self.model.predict(inputs, classes=classes, until=until)
        else:
            result = self.model.predict(inputs, classes=classes)
        if self.seen:
            self.seen(inputs, self.decided(result))
        return result

    @cached_property
    def threshold(self) -> Threshold | None:
        """By which the model decides between two classes; None for the most probable one.

        Raises:
            InvalidInput: Its file cannot be read.
        """
        return Threshold.read(self._beside(THRESHOLD), f"{THRESHOLD} of {self.name}")

    def decided(self, result: NDArray[Any]) -> NDArray[Any]:
        """Return class indices of what the model says, if it has a threshold; else the same."""
        classes = self.classes
        return self.threshold.decide(result, classes or ()) if self.threshold else result

    def _only_input(self) -> str:
        if not isinstance(self.model, OnnxModel):
            raise InvalidInput(
                f"{self.name} is a command, which takes arrays by name",
                'predict({"images": array})',
            )
        inputs = self.model.inputs
        if len(inputs) != 1:
            names = ", ".join(tensor.name for tensor in inputs)
            raise InvalidInput(
                f"{self.name} takes {len(inputs)} inputs: {names}", "give a dict of arrays by name"
            )
        return inputs[0].name

    def _of_items(self, items: list[str], data: str, *, hidden: str = "") -> Predictions:
        recipe, classes = self._prepared(data)
        unknown = UnknownValues(recipe, self.known_ranges)
        results, names, problems = (
            list[NDArray[Any]](),
            list[Mapping[str, str | int]](),
            list[Problem](),
        )
        for batch, predicted in self._batches(recipe, classes, items):
            names += [{"row": name.get("row", 0)} if hidden else name for name in batch.names]
            problems += [
                replace(problem, where=problem.where.removeprefix(hidden))
                for problem in batch.problems
            ]
            unknown.add(batch)
            results += [predicted] if batch.names else []
        if problems and not names:
            raise InvalidInput(str(problems[0]), f"none of {len(problems)} items could be read")
        for sentence in unknown.sentences():
            say(f"warning: {sentence}")
        none: NDArray[Any] = np.empty((0, len(classes)), np.float32) if classes else np.empty(0)
        result = np.concatenate(results) if results else none
        if classes is None and result.ndim == 2 and result.shape[1] == 1:
            result = result[:, 0]
        return Predictions(
            classes,
            result.astype(float) if classes is None else result,
            names,
            problems,
            self.threshold,
        )

    @cached_property
    def preprocessing(self) -> Preprocessing | None:
        """Preprocessing of raw data to its inputs; None if the model has none."""
        described = self._described
        return preprocessing.read(
            described if "kind" in described else {}, f"{PREPROCESSING} of {self.name}"
        )

    def _prepared(self, data: str) -> "tuple[Preprocessing, tuple[str, ...] | None]":
        described, recipe = self._described, None
        if not data:
            recipe = self.preprocessing
        else:
            described = _describe_preprocessing(artifact.describe(data))
            if "kind" in described:
                recipe = preprocessing.read(described, f"{data}/dataset.json")
        if recipe is None:
            raise InvalidInput(
                f"{self.name} does not say how pictures, rows or sentences become its inputs",
                f"it needs a {PREPROCESSING}; or name the dataset of its training: --data URI",
            )
        return recipe, self._classes(described)

    def _classes(self, described: Any) -> tuple[str, ...] | None:
        """Return the names of the classes; an ONNX graph's numbers if they have none, and None for
        regression."""
        names = tuple(map(str, described.get("classes", ()))) or self._known
        if names or isinstance(self.model, CommandModel):
            return names or None
        for output in self.model.outputs:
            if output.name in ("probabilities", "logits") and output.shape[-1]:
                return tuple(map(str, range(output.shape[-1])))
        return None

    def _batches(
        self,
        recipe: "Preprocessing",
        classes: Sequence[str] | None,
        items: Sequence[str | Path],
        delimiter: str = "",
        encoding: str = "utf-8",
        until: float = math.inf,
    ) -> "Iterator[tuple[Batch, NDArray[Any]]]":
        count = None if classes is None else len(classes)
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            batches = read_items(
                recipe, list(map(str, items)), Path(scratch), delimiter=delimiter, encoding=encoding
            )
            size = (
                ONE_CALL if isinstance(self.model, CommandModel) else 0
            )  # a graph predicts what is read at a time
            for gathered in _gather(batches, size):
                filled = [batch.inputs for batch in gathered if batch.names]
                results = self._run(_joined(filled), count, until) if filled else np.empty(0)
                at = 0
                for batch in gathered:
                    yield batch, results[at : at + len(batch.names)]
                    at += len(batch.names)


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

    def model() -> OnnxModel | CommandModel:
        if file == ONNX:
            return OnnxModel(directory.path / file)
        return CommandModel(name=str(uri), fetch=ModelDirectory(directory.path).fetch)

    def beside(name: str) -> Any:
        document = directory.path / name
        return load_json(document.read_bytes(), str(document)) if document.is_file() else {}

    return Predictor(str(uri), model, beside)


def _joined(filled: Sequence[Mapping[str, NDArray[Any]]]) -> Mapping[str, NDArray[Any]]:
    if len(filled) == 1:
        return filled[0]
    return {name: np.concatenate([part[name] for part in filled]) for name in filled[0]}


def _gather(batches: "Iterable[Batch]", size: int) -> "Iterator[list[Batch]]":
    """Yield batches in lists that have at least some bytes, but for the last."""
    gathered: list[Batch] = []
    held = 0
    for batch in batches:
        gathered.append(batch)
        held += sum(array.nbytes for array in batch.inputs.values()) + _NAME * len(batch.names)
        if held >= size:
            yield gathered
            gathered, held = [], 0
    if gathered:
        yield gathered


def write_preprocessing(info: DatasetInfo, target: Path) -> None:
    """Write preprocessing.json to a directory, if the dataset says how its inputs were made."""
    if info.preprocessing:
        (target / PREPROCESSING).write_text(
            json.dumps(_describe_preprocessing(info), indent=1) + "\n"
        )


def write_profile(
    info: DatasetInfo, predicted: NDArray[Any], target: Path, classes: Sequence[str] = ()
) -> None:
    """Write profile.json to a directory, if the dataset has a profile.

    Args:
        predicted: What the model says of the test part.
        classes: Names of its classes in its own order; the dataset's if empty.
    """
    if info.profile.inputs:
        profile = info.profile.with_predictions(predicted, classes or info.classes)
        (target / PROFILE).write_text(json.dumps(asdict(profile), allow_nan=False) + "\n")


def _describe_preprocessing(info: DatasetInfo) -> dict[str, Any]:
    return {**info.preprocessing, "target": info.target.name, "classes": list(info.classes)}

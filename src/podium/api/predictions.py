"""Predict with a model: arrays, rows of a DataFrame, files, sentences."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from podium.data.artifact import Split
from podium.data.rows import Problem
from podium.errors import InvalidInput
from podium.frames import data_frame
from podium.notebook import table
from podium.scoring import OnnxModel
from podium.text import one_line
from podium.training.predict import Outcome, Predictor, Predicts

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN = 20
"""Predictions in a notebook's table at most."""


class Predictions(Sequence[Any]):
    """What a model says of some items, in their order.

    Args:
        classes: Names of the classes; None for regression.
        result: Probabilities [n, classes], class indices [n], or numbers [n] or [n, k].
        items: What identifies each item; its position if empty.
        problems: Items that could not be read; they are not among the others.
    """

    def __init__(
        self,
        classes: Sequence[str] | None,
        result: NDArray[Any],
        items: Sequence[Mapping[str, str | int]] = (),
        problems: Sequence[Problem] = (),
    ) -> None:
        self.classes, self.problems = classes, tuple(problems)
        self._result, self._items = result, tuple(items)

    @property
    def probabilities(self) -> NDArray[Any] | None:
        """[n, classes]; None for regression and for a model that gives classes only."""
        return self._result if self.classes is not None and self._result.ndim == 2 else None

    @property
    def indices(self) -> NDArray[Any] | None:
        """[n], the most probable class of each item as its index; None for regression."""
        if self.classes is None:
            return None
        return self._result.argmax(1) if self._result.ndim == 2 else self._result

    @property
    def values(self) -> NDArray[Any]:
        """Names of the classes [n], or of a regression its numbers [n] or [n, k]."""
        if self.classes is None:
            return self._result
        return np.asarray(self.classes)[self.indices]

    @property
    def frame(self) -> "DataFrame":
        """A row for each item: what identifies it, the prediction, and the probability of each class.

        Raises:
            PodiumError: pandas is not installed.
        """
        rows = [self._row(at) for at in range(len(self))]
        return data_frame(rows, list(rows[0]) if rows else ["prediction"])

    def _row(self, at: int) -> dict[str, Any]:
        item = dict(self._items[at]) if self._items else {}
        shares: dict[str, float] = {}
        if self.classes is not None and self._result.ndim == 2:
            named = zip(self.classes, self._result[at].tolist(), strict=True)
            shares = {f"probability_{name}": share for name, share in named}
        if self.classes is None and self._result.ndim == 2:
            return {**item, **{f"prediction_{at}": value for at, value in enumerate(self._result[at].tolist(), 1)}}
        return {**item, "prediction": self[at], **shares}

    def __len__(self) -> int:
        return len(self._result)

    def __getitem__(self, at: Any) -> Any:
        value = self.values[at]
        return value.tolist() if isinstance(value, np.generic) else value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.values, dtype=dtype)

    def __repr__(self) -> str:
        return one_line(f"<{len(self)} predictions: {', '.join(map(str, self[:5]))}{' …' if len(self) > 5 else ''}>")

    def _repr_html_(self) -> str:
        rows = [self._row(at) for at in range(min(len(self), SHOWN))]
        cells = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
        more = f", the first {SHOWN} of them" if len(self) > SHOWN else ""
        return table(list(rows[0]) if rows else ["prediction"], cells, title=f"{len(self):,} predictions{more}")


class Model:
    """A model that predicts, opened when it first does.

    Args:
        name: For people.
        graph: Opens the model itself, with the names of its classes as far as they are known.
        predictor: Opens it with its preprocessing; gets the URI of a dataset that says what the model does not.
    """

    def __init__(
        self,
        name: str,
        graph: Callable[[], tuple[Predicts, Sequence[str] | None]],
        predictor: Callable[[str], Predictor],
    ) -> None:
        self.name = name
        self._open_graph, self._open_predictor = graph, predictor
        self._graph: tuple[Predicts, Sequence[str] | None] | None = None
        self._predictors: dict[str, Predictor] = {}

    def predict(self, items: Any, *, data: str | Path = "") -> Predictions:
        """Predict.

        Args:
            items: Inputs as the model takes them: an array [n, …], arrays by name, or a part of a dataset. Or raw
                data, which become inputs as the training data did: a DataFrame with the columns of the training data,
                pictures, tables and folders as paths, or sentences.
            data: Directory or URI of the dataset it was trained on, for a model without preprocessing.json.

        Returns:
            ``.values``, ``.probabilities`` and ``.frame``, in the order of the items.

        Raises:
            InvalidInput: The model takes other inputs, or does not say how raw data becomes inputs.
        """
        if isinstance(items, Split):
            return self._of_arrays(items.inputs)
        if isinstance(items, np.ndarray) or (isinstance(items, Mapping) and not hasattr(items, "to_parquet")):
            return self._of_arrays(items)
        if hasattr(items, "to_parquet"):
            with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
                file = Path(scratch, "rows.parquet")
                items.to_parquet(file, index=False)
                return self._of_items([str(file)], str(data), named=False)
        named = [items] if isinstance(items, str | Path) else list(items)
        if not named or not all(isinstance(item, str | Path) for item in named):
            problem = f"items are an array, arrays by name, a DataFrame, paths or sentences, but got {items!r:.60}"
            raise InvalidInput(problem, 'predict(array), predict(frame), predict("photo.jpg")')
        return self._of_items(list(map(str, named)), str(data))

    def stream(
        self, items: Sequence[str | Path], *, data: str | Path = "", delimiter: str = "", encoding: str = "utf-8"
    ) -> Iterator[Outcome | Problem]:
        """Predict raw data one after the other, without keeping any: for files larger than memory.

        Args:
            items: Paths of pictures, tables and folders, or sentences.
            data: As predict takes it.
            delimiter: Of CSV files; empty follows from their header.
            encoding: Of CSV and text files.

        Returns:
            An Outcome (``.name``, ``.label``, ``.probabilities``, ``.values``) of each item, in their order; and a
            Problem for each that could not be read, behind the items that were read together with it.

        Raises:
            InvalidInput: The model does not say how raw data becomes inputs, or takes other data.
        """
        key = str(data)
        if key not in self._predictors:
            self._predictors[key] = self._open_predictor(key)
        return self._predictors[key].predict(list(map(str, items)), delimiter=delimiter, encoding=encoding)

    def _of_arrays(self, given: NDArray[Any] | Mapping[str, Any]) -> Predictions:
        if self._graph is None:
            self._graph = self._open_graph()
        model, classes = self._graph
        inputs = given if isinstance(given, Mapping) else {_only_input(model, self.name): given}
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        return Predictions(classes, model.predict(arrays, classes=None if classes is None else len(classes)))

    def _of_items(self, items: list[str], data: str, *, named: bool = True) -> Predictions:
        problems, outcomes = list[Problem](), list[Outcome]()
        for result in self.stream(items, data=data):
            if isinstance(result, Outcome):
                outcomes.append(result)
            else:
                problems.append(result)
        if problems and not outcomes:
            raise InvalidInput(str(problems[0]), f"none of {len(problems)} items could be read")
        predictor = self._predictors[data]
        names = [outcome.name if named else {"row": outcome.name.get("row", 0)} for outcome in outcomes]
        return Predictions(predictor.classes, _gathered(outcomes, predictor.classes), names, problems)


def _only_input(model: Predicts, name: str) -> str:
    if not isinstance(model, OnnxModel):
        raise InvalidInput(f"{name} is a command, which takes arrays by name", 'predict({"images": array})')
    if len(model.inputs) != 1:
        names = ", ".join(tensor.name for tensor in model.inputs)
        raise InvalidInput(f"{name} takes {len(model.inputs)} inputs: {names}", "give a dict of arrays by name")
    return model.inputs[0].name


def _gathered(outcomes: Sequence[Outcome], classes: Sequence[str] | None) -> NDArray[Any]:
    """Return the outcomes as one array."""
    if classes is None:
        values = np.array([outcome.values for outcome in outcomes], dtype=float)
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if outcomes and outcomes[0].probabilities is None:
        index = {name: at for at, name in enumerate(classes)}
        return np.array([index[outcome.label] for outcome in outcomes], dtype=np.int64)
    rows = [[(outcome.probabilities or {})[name] for name in classes] for outcome in outcomes]
    return np.array(rows, dtype=np.float32).reshape(len(outcomes), len(classes))


def open_model(uri: str | Path) -> Model:
    """Open a model directory where a trainer left it.

    Args:
        uri: A directory or a URI with ``model.onnx``, or ``model.json`` with a predict command; or such a file in it.

    Raises:
        NotFound: There is no model.

    Example:
        >>> import podium
        >>> model = podium.open_model(storage / "models/digits/versions/v1")
        >>> len(model.predict(images))
        2
    """
    from podium.storage import absolute, path_of
    from podium.training import predict
    from podium.training.model_directory import fetch_model, model_files, require_model

    where, file = absolute(uri), ""
    if where.rpartition("/")[2] in (predict.ONNX, predict.COMMAND):
        where, _, file = where.rpartition("/")
    require_model(where)
    folder: list[Path] = [Path(path_of(where))] if where.startswith(("/", "file://")) else []

    def local() -> Path:
        if not folder:
            folder.append(Path(tempfile.mkdtemp(prefix="podium-model-")))
            fetch_model(where, model_files(where), folder[0])
        return folder[0]

    def predictor(data: str) -> Predictor:
        return predict.load_directory(local() / file, data)

    return Model(str(uri), lambda: predict.open_graph(local()), predictor)

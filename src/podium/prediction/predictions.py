"""Predictions of a model for some items, and counts of their categories that the training part does
not have: what a model says of such rows may mean little."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from podium.data.preprocessing import Preprocessing, TablePreprocessing
from podium.data.profile import MISSING, UNKNOWN, Bins, Profile
from podium.data.rows import Problem
from podium.data.schema import DATES
from podium.display.notebook import data_frame, table
from podium.display.text import digits, one_line, plural
from podium.scoring import class_indices
from podium.scoring.threshold import Threshold

if TYPE_CHECKING:
    from pandas import DataFrame

    from podium.data.items import Batch


_MOST = 0.05
"""Share of a column's values up to which nothing is said: a new category now and then is no
fault."""

_NAMED = 5
"""Known values that a sentence names."""


_MOST_OTHER, _LEAST_OTHER = 0.5, 3
"""Share of a column, and rows, up to which numbers outside the range of the training part are no
sign of another unit, and missing values none of another file."""


class UnknownValues:
    """Values that the training part does not have, by column, of the rows that it is shown:
    categories, numbers outside its range, and missing ones.

    Args:
        recipe: How rows become inputs; pictures and sentences have no columns.
        profile: The training part in bins; None where nobody knows its ranges.
    """

    def __init__(self, recipe: Preprocessing | None, profile: Profile | None = None) -> None:
        self.rows = 0
        """Rows so far."""

        self.counts: Counter[str] = Counter()
        """Unknown values so far, by column."""

        self._missing, self._full = Counter[str](), set[str]()
        self._input, self._known, place = "", dict[str, tuple[int, tuple[str, ...]]](), 0
        self._ranges = dict[str, tuple[int, Bins]]()
        if not isinstance(recipe, TablePreprocessing):
            return
        self._input = recipe.input
        measured = profile.inputs.get(recipe.input) if profile else None
        described = {of.name: of for of in measured.bins} if measured else {}
        bins = {name: of for name, of in described.items() if of.ordered}
        for column in recipe.columns:
            column_bins = described.get(column.name)
            if column.missing <= _MOST * (sum(column_bins.counts) if column_bins else 0):
                self._full.add(column.name)
            if column.categories:
                self._known[column.name] = place, column.categories
            elif column.name in bins and column.type not in DATES:  # new rows are later ones
                self._ranges[column.name] = place, bins[column.name]
            place += len(column.names)

    def add(self, batch: "Batch") -> None:
        """Count those of further rows, which have become inputs."""
        if self._input not in batch.inputs:
            return
        table = batch.inputs[self._input]
        self.rows += len(table)
        self._missing.update(batch.missing)
        for name, (place, categories) in self._known.items():
            self.counts[name] += int((table[:, place] == categories.index(UNKNOWN)).sum())
        for name, (place, bins) in self._ranges.items():
            counts = bins.count(table[:, place])
            self.counts[name] += int(counts[0] + counts[len(bins.edges)])

    @property
    def many(self) -> dict[str, int]:
        """Unknown values of the columns that have more than a few per cent of them, and numbers
        mostly outside the range."""
        return {
            name: count
            for name, count in self.counts.items()
            if (name in self._known and count > _MOST * self.rows) or self._is_other(count)
        }

    @property
    def missing(self) -> dict[str, int]:
        """Missing values of the columns that hardly lacked any in training."""
        return {name: count for name, count in self._missing.items() if name in self._full}

    @property
    def many_missing(self) -> dict[str, int]:
        """Those of the columns that mostly lack them."""
        return {name: count for name, count in self.missing.items() if self._is_other(count)}

    def _is_other(self, count: int) -> bool:
        return count >= _LEAST_OTHER and count > _MOST_OTHER * self.rows

    def sentences(self) -> list[str]:
        """Return a sentence for each column that has many."""
        return [self._sentence(name, count) for name, count in self.many.items()] + [
            f"column {name}: {count:,} of {plural(self.rows, 'value')} are missing, "
            "and hardly any were in training: is the file whole?"
            for name, count in self.many_missing.items()
        ]

    def _sentence(self, name: str, count: int) -> str:
        if name in self._ranges:
            low, *_, high = self._ranges[name][1].edges
            return (
                f"column {name}: {count:,} of {plural(self.rows, 'value')} lie outside the range of training, "
                f"{low:g} to {high:g}: another unit, or another time?"
            )
        _, categories = self._known[name]
        values = [value for value in categories if value not in (MISSING, UNKNOWN)]
        named = ", ".join(map(repr, values[:_NAMED])) + (" …" if len(values) > _NAMED else "")
        total = plural(self.rows, "value")
        return f"column {name}: {count:,} of {total} did not occur in training, which knows {named}"


_SHOWN = 20
"""Predictions in a notebook's table at most."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Prediction of a model for one item."""

    name: Mapping[str, str | int]
    """The item: its ``picture``, its ``file`` and ``row``, or its ``text``."""

    label: str = ""
    """Classification: the class."""

    probabilities: Mapping[str, float] | None = None
    """Classification: by class in the order of the classes; they sum to 1. None if the model gives
    classes only."""

    values: tuple[float, ...] = ()
    """Regression."""

    @classmethod
    def of(
        cls, name: Mapping[str, str | int], result: Any, index: int, classes: Sequence[str] | None
    ) -> "Outcome":
        """Make it of a model's result, as plain numbers.

        Args:
            result: Probabilities by class, the index of a class, or of a regression a number or
                several.
            index: Of the class that the model decides for; anything for a regression.
            classes: Names of the classes; None for regression.
        """
        if classes is None:
            return cls(name=name, values=tuple(result) if isinstance(result, list) else (result,))
        if isinstance(result, int):
            return cls(name=name, label=classes[result])
        return cls(
            name=name, label=classes[index], probabilities=dict(zip(classes, result, strict=True))
        )

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """The most probable class first."""
        return sorted((self.probabilities or {}).items(), key=lambda pair: -pair[1])

    def row(self) -> dict[str, str | int | float]:
        """Return a row of a table, by column: the item's name, the prediction, each class's
        probability."""
        if len(self.values) == 1:
            return {**self.name, "prediction": self.values[0]}
        if self.values:
            return {
                **self.name,
                **{f"prediction_{at}": value for at, value in enumerate(self.values, 1)},
            }
        shares = {
            f"probability_{label}": share for label, share in (self.probabilities or {}).items()
        }
        return {**self.name, "prediction": self.label, **shares}

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        if self.values:
            return {
                **self.name,
                "value": self.values[0] if len(self.values) == 1 else list(self.values),
            }
        details = {} if self.probabilities is None else {"probabilities": dict(self.ranked)}
        return {**self.name, "class": self.label, **details}


def decided(
    result: NDArray[Any], classes: Sequence[str], threshold: Threshold | None
) -> NDArray[Any]:
    """Return class indices [n] of probabilities [n, classes], or those that a model gives."""
    return threshold.decide(result, classes) if threshold else class_indices(result)


class Predictions(Sequence[Any]):
    """Predictions of a model for some items, in their order.

    Args:
        classes: Names of the classes; None for regression.
        result: Probabilities [n, classes], class indices [n], or numbers [n] or [n, k].
        items: What identifies each item; its position if empty.
        problems: Items that could not be read; they are not among the others.
        threshold: By which the model decides; None for the most probable class.
    """

    def __init__(
        self,
        classes: Sequence[str] | None,
        result: NDArray[Any],
        items: Sequence[Mapping[str, str | int]] = (),
        problems: Sequence[Problem] = (),
        threshold: Threshold | None = None,
    ) -> None:
        self.classes, self.problems, self.threshold = classes, tuple(problems), threshold
        self._result, self._items = result, tuple(items)

    @property
    def probabilities(self) -> NDArray[Any] | None:
        """[n, classes]; None for regression and for a model that gives classes only."""
        return self._result if self.classes is not None and self._result.ndim == 2 else None

    @property
    def indices(self) -> NDArray[Any] | None:
        """[n], the class of each item as its index: the most probable one, or as the threshold
        decides; None for regression."""
        if self.classes is None:
            return None
        return decided(self._result, self.classes, self.threshold)

    @property
    def values(self) -> NDArray[Any]:
        """Names of the classes [n], or of a regression its numbers [n] or [n, k]."""
        if self.classes is None:
            return self._result
        return np.asarray(self.classes)[self.indices]

    @property
    def frame(self) -> "DataFrame":
        """A row for each item: what identifies it, the prediction, and the probability of each
        class.

        Raises:
            PodiumError: pandas is not installed.
        """
        rows = self._rows(len(self))
        return data_frame(rows, list(rows[0]) if rows else ["prediction"])

    def _rows(self, most: int) -> list[dict[str, str | int | float]]:
        results = self._result[:most].tolist()
        items: Sequence[Mapping[str, str | int]] = self._items or [{}] * len(results)
        indices = [0] * len(results) if self.indices is None else self.indices[:most].tolist()
        return [
            Outcome.of(item, result, index, self.classes).row()
            for item, result, index in zip(items, results, indices, strict=False)
        ]

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
        return one_line(
            f"<{len(self)} predictions: {', '.join(map(str, self[:5]))}{' …' if len(self) > 5 else ''}>"
        )

    def _repr_html_(self) -> str:
        rows = self._rows(_SHOWN)
        cells = [
            [digits(value) if isinstance(value, float) else str(value) for value in row.values()]
            for row in rows
        ]
        more = f", the first {_SHOWN} of them" if len(self) > _SHOWN else ""
        return table(
            list(rows[0]) if rows else ["prediction"],
            cells,
            title=f"{len(self):,} predictions{more}",
        )

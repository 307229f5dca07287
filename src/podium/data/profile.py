"""The training part in bins: what is counted of new items is compared with it, and neither keeps an
item. A served model's inputs and predictions are counted in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from podium.errors import InvalidInput

if TYPE_CHECKING:
    from podium.data.schema import Column


MISSING, UNKNOWN, OTHER = "(missing)", "(unknown)", "(other)"
"""Bins of what is not there, of categories that the training part did not have, and of those
without a bin. The first two are the last categories of every column."""

_BINS = 10
"""Bins of a number, with about as many items each; one more below and one above the range of the
training part."""

_DISTINCT = 20
"""A number with at most so many values has a bin for each."""

_CATEGORIES = 50
"""Categories or classes with a bin of their own: the most frequent ones."""

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Bins:
    """Counts of a measured value of items in bins."""

    name: str
    """Name of the column or of the measured property: ``images brightness``."""

    labels: tuple[str, ...]

    counts: tuple[int, ...]

    edges: tuple[float, ...] = ()
    """Ascending edges for a number: a bin below the first, one from each edge on, and the last bin
    for missing values."""

    center: float = 0.0
    """Offset of a number: subtracted from the counted values, but not from the edges."""

    categories: tuple[int, ...] = ()
    """Category index that each bin counts; the last bin is for all others."""

    def __post_init__(self) -> None:
        bins = len(self.edges) + 2 if self.edges else len(self.categories) + 1
        if not len(self.labels) == len(self.counts) == bins:
            raise InvalidInput(
                f"{self.name} has {bins} bins, but {len(self.labels)} labels, {len(self.counts)} counts"
            )

    @property
    def ordered(self) -> bool:
        """Whether it is of a number."""
        return bool(self.edges)

    def count(self, values: Array) -> NDArray[np.int64]:
        """Return how many of some values [n] fall into each bin."""
        if self.edges:
            at = np.searchsorted(
                self._bounds, values.astype(np.float64) + self.center, side="right"
            )
            at[np.isnan(values)] = len(self.edges) + 1
        else:
            valid = np.isfinite(values) & (values >= 0) & (values < len(self._places))
            at = np.full(len(values), len(self.categories))
            at[valid] = self._places[values[valid].astype(np.int64)]
        return np.bincount(at, minlength=len(self.labels))

    @cached_property
    def _bounds(self) -> Array:
        return np.array(self.edges)

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        places = np.full(max(self.categories, default=-1) + 1, len(self.categories))
        places[list(self.categories)] = np.arange(len(self.categories))
        return places

    @classmethod
    def of_numbers(cls, name: str, values: Array, center: float = 0.0) -> "Bins":
        """Choose bins for numbers [n], of which a center was subtracted, and count them."""
        less, values = values, values + center
        distinct = np.unique(values)
        edges = distinct
        if len(distinct) > _DISTINCT:
            cuts = np.quantile(values, np.linspace(0, 1, _BINS + 1)[:-1], method="lower")
            chosen, times = np.unique(cuts, return_counts=True)
            # A value that fills whole bins gets one of its own: the next begins at the next value.
            after = distinct[
                np.searchsorted(distinct, chosen[times > 1], side="right").clip(
                    max=len(distinct) - 1
                )
            ]
            edges = np.unique([*chosen, *after])
        above = np.nextafter(distinct[-1], np.inf)
        shown = next(
            texts
            for digits in (4, 6, 9, 17)
            if len(set(texts := [f"{edge:.{digits}g}" for edge in edges])) == len(edges)
        )
        highest = f"{distinct[-1]:.{12 if center else 6}g}"
        labels = (
            f"below {shown[0]}",
            *(f"from {text}" for text in shown),
            f"above {highest}",
            MISSING,
        )
        return cls._counted(
            less, name=name, labels=labels, edges=(*edges.tolist(), float(above)), center=center
        )

    @classmethod
    def of_categories(cls, name: str, names: Sequence[str], values: Array) -> "Bins":
        """Choose bins for indices [n] into names, and count them."""
        times = np.bincount(values.astype(np.int64), minlength=len(names))
        frequent = np.argsort(-times, kind="stable")[:_CATEGORIES].tolist()
        own = sorted(
            {*frequent, *(at for at, text in enumerate(names) if text in (MISSING, UNKNOWN))}
        )
        own = [at for at in own if names[at] != OTHER]
        labels = (*(names[at] for at in own), OTHER)
        return cls._counted(values, name=name, labels=labels, categories=tuple(own))

    @classmethod
    def _counted(cls, values: Array, *, labels: tuple[str, ...], **bins: Any) -> "Bins":
        empty = cls(labels=labels, counts=(0,) * len(labels), **bins)
        return replace(empty, counts=tuple(empty.count(values.astype(np.float64)).tolist()))


@dataclass(frozen=True, kw_only=True)
class _InputProfile:
    """An input of the training part."""

    meaning: str

    bins: tuple[Bins, ...]
    """Bins of each column of a table, or of each of the properties that `measured` takes of any
    other input."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Binned training inputs of a model and its predictions on the test part: the content of
    ``profile.json``."""

    inputs: dict[str, _InputProfile]

    predictions: tuple[Bins, ...] = ()
    """Bins of the predictions on the test part: classes, or each number of a regression; empty in a
    dataset.json."""

    @classmethod
    def of(
        cls, described: "Iterable[tuple[str, str, tuple[Column, ...], Iterable[Array]]]"
    ) -> "Profile":
        """Measure the inputs of a training part.

        Args:
            described: Name, meaning, columns and blocks [n, …] of each input.
        """
        inputs, taken = dict[str, _InputProfile](), set[str]()
        for name, meaning, columns, blocks in described:
            bins = _bins(
                name,
                meaning,
                columns,
                np.concatenate([_measured(meaning, block) for block in blocks]),
            )
            own = tuple(
                replace(one, name=f"{name}.{one.name}") if one.name in taken else one
                for one in bins
            )
            taken |= {one.name for one in own}
            inputs[name] = _InputProfile(meaning=meaning, bins=own)
        return cls(inputs=inputs)

    def with_predictions(self, predicted: Array, classes: Sequence[str]) -> "Profile":
        """Add what a model says of the test part.

        Args:
            predicted: Probabilities [n, classes] or class indices [n]; numbers [n] or [n, k].
            classes: Their names; empty for regression.
        """
        columns = _predictions_of(predicted, bool(classes))
        if classes:
            return Profile(
                inputs=self.inputs,
                predictions=(Bins.of_categories("class", classes, columns[:, 0]),),
            )
        names = (
            ["value"]
            if columns.shape[1] == 1
            else [f"value_{at}" for at in range(1, columns.shape[1] + 1)]
        )
        numbers = tuple(Bins.of_numbers(name, columns[:, at]) for at, name in enumerate(names))
        return Profile(inputs=self.inputs, predictions=numbers)

    def bins(self) -> dict[tuple[str, str], Bins]:
        """Return all bins by what they are of, ``input`` or ``prediction``, and their name."""
        inputs = {("input", bins.name): bins for of in self.inputs.values() for bins in of.bins}
        return inputs | {("prediction", bins.name): bins for bins in self.predictions}

    def count(
        self, inputs: Mapping[str, Array], predicted: Array
    ) -> dict[tuple[str, str], NDArray[np.int64]]:
        """Count new items and what a model says of them; keys are those of `bins`."""
        counts = dict[tuple[str, str], NDArray[np.int64]]()
        for name, of in self.inputs.items():
            columns = (
                _measured(of.meaning, inputs[name])
                if name in inputs
                else np.empty((0, len(of.bins)))
            )
            counts |= {
                ("input", bins.name): bins.count(columns[:, at]) for at, bins in enumerate(of.bins)
            }
        said = _predictions_of(predicted, not any(bins.ordered for bins in self.predictions))
        return counts | {
            ("prediction", bins.name): bins.count(said[:, at])
            for at, bins in enumerate(self.predictions)
        }


def _measured(meaning: str, array: Array) -> NDArray[np.float64]:
    """Return what is counted of an input [n, …]: a table's columns, the length of tokens, else mean
    and spread."""
    if meaning == "table":
        return array.astype(np.float64)
    flat = array.reshape(len(array), -1)
    if meaning == "tokens":
        return np.count_nonzero(flat, axis=1)[:, None].astype(np.float64)
    scale = 255 if meaning == "image" and array.dtype == np.uint8 else 1
    return np.stack([flat.mean(1, dtype=np.float64), flat.std(1, dtype=np.float64)], 1) / scale


def _predictions_of(predicted: Array, classified: bool) -> NDArray[np.float64]:
    if classified and predicted.ndim == 2:
        predicted = predicted.argmax(1)
    return predicted.reshape(len(predicted), -1).astype(np.float64)


def _bins(
    name: str, meaning: str, columns: "tuple[Column, ...]", values: Array
) -> tuple[Bins, ...]:
    if meaning == "table":
        return tuple(
            Bins.of_categories(column.name, column.categories, values[:, at])
            if column.categories
            else Bins.of_numbers(column.name, values[:, at], column.center)
            for at, column in enumerate(columns)
        )
    names = {"image": ("brightness", "contrast"), "tokens": ("length",)}.get(
        meaning, ("mean", "spread")
    )
    return tuple(Bins.of_numbers(f"{name} {of}", values[:, at]) for at, of in enumerate(names))


Counts = dict[tuple[str, str], NDArray[np.int64]]
"""Items by bin, of each ``input`` or ``prediction`` and its name."""

HELD_ROWS, HELD_BYTES = 512, 4 << 20
"""Counted together: one by one, a row would take longer to count than to predict."""


class Watch:
    """Counts a share of what passes a model.

    Args:
        profile: Says which bins there are.
        share: Of calls of the model that are counted, 0 to 1.
    """

    def __init__(self, profile: Profile, share: float = 1.0) -> None:
        self.profile, self._share = profile, share
        self._counts: Counts = {
            key: np.zeros(len(bins.labels), np.int64) for key, bins in profile.bins().items()
        }
        self._held = list[tuple[Mapping[str, Array], Array]]()
        self._lock, self._chance = Lock(), np.random.default_rng()
        self.items = 0
        """Counted so far."""

        self.failures = 0
        """Calls that did not fit the bins."""

    def note(self, inputs: Mapping[str, Array], predicted: Array) -> None:
        """Take note of a call of the model: its inputs, each [n, …], and probabilities, classes or
        numbers."""
        with self._lock:
            if not len(predicted) or (self._share < 1 and self._chance.random() >= self._share):
                return
            self._held.append((inputs, predicted))
            rows = sum(len(said) for _, said in self._held)
            size = sum(array.nbytes for arrays, _ in self._held for array in arrays.values())
            if rows >= HELD_ROWS or size >= HELD_BYTES:
                self._count()

    def counts(self) -> Counts:
        """Return what was counted so far, by bin."""
        with self._lock:
            self._count()
            return {key: counts.copy() for key, counts in self._counts.items()}

    def _count(self) -> None:
        held, self._held = self._held, []
        if not held:
            return
        try:
            inputs = {
                name: np.concatenate([arrays[name] for arrays, _ in held]) for name in held[0][0]
            }
            predicted = np.concatenate([said for _, said in held])
            new = self.profile.count(inputs, predicted)
        except (
            KeyError,
            IndexError,
            ValueError,
        ):  # of another shape than in training, which the model may take
            self.failures += len(held)
            return
        self.items += len(predicted)
        for key, counts in new.items():
            self._counts[key] += counts

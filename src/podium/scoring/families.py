"""Families of metrics, by what a value is computed from.

``MeanMetric`` is computed from means over the items, ``ConfusionMetric`` from a confusion matrix,
``RankMetric`` from the order of the scores, ``FunctionMetric`` from anything.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from podium.errors import InvalidInput

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Metric(ABC):
    """A figure of merit, and which way is better."""

    name: str
    """As in scikit-learn, or ``package.module:function``."""

    maximize: bool
    """Whether more is better."""

    kind: str | None
    """classification or regression; None for a function of one's own, which is called for both."""

    needs_probabilities: bool = False
    """Whether predicted classes alone do not do."""

    range: tuple[float, float] = (-math.inf, math.inf)
    """Its least and its largest value."""

    counts_hits: bool = False
    """Whether it is the share of right items, so that two models differ by the items that one alone
    has right."""

    is_default: bool = False
    """Whether it is its kind's where none is chosen."""

    breaks_ties: bool = False
    """Whether it decides between candidates of its kind whose metric is equal; less must be
    better."""

    undefined: ClassVar[str] = "choose another metric"
    """Hint where the metric is not defined."""

    @property
    def decides(self) -> bool:
        """Whether it follows from decided classes alone, so that a model's threshold counts."""
        return self.kind == "classification" and not self.needs_probabilities

    @abstractmethod
    def value(self, target: Array, predictions: Array) -> float:
        """Compute the metric; NaN where it is not defined.

        Args:
            target: Class indices ``[n]``, or floats ``[n]`` or ``[n, k]``.
            predictions: Probabilities ``[n, classes]`` or class indices ``[n]``; or floats in the
                target's shape.
        """

    def steady_value(self, target: Array, predictions: Array) -> float:
        """Compute the metric as value does, and make sure that it does so again.

        Raises:
            InvalidInput: It is another one for the same items.
        """
        return self.value(target, predictions)

    def defined_value(self, target: Array, predictions: Array) -> float:
        """Compute the metric as value does.

        Raises:
            InvalidInput: It is not defined for these items.
        """
        value = self.steady_value(target, predictions)
        if math.isnan(value):
            raise InvalidInput(
                f"{self.name} is not defined for these {len(target)} items", self.undefined
            )
        return value

    def better(self, first: float, second: float) -> bool:
        """Return whether the first value is better than the second."""
        return first > second if self.maximize else first < second

    def to_json(self) -> dict[str, Any]:
        """Return name and maximize."""
        return {"name": self.name, "maximize": self.maximize}


@dataclass(frozen=True, kw_only=True)
class MeanMetric(Metric):
    """A function of means over the items."""

    items: Callable[[Array, Array], Array]
    """(target, predictions) -> float64 ``[n, m]``: what is averaged."""

    finish: Callable[[Array], Array] = lambda means: means.mean(-1)
    """Means ``[..., m]`` -> values ``[...]``; the mean of them if not given."""

    def value(self, target: Array, predictions: Array) -> float:
        if len(target) == 0:
            return math.nan
        return float(self.finish(self.items(target, predictions).mean(0)))

    def columns(self, target: Array, predictions: Array, classes: int) -> Iterator[Array]:
        """Yield what is summed over the items, ``[n]`` each."""
        return iter(self.items(target, predictions).T)

    def of_sums(self, sums: Array, target: Array, classes: int) -> Array:
        """Return values ``[...]`` of sums of the columns ``[..., m]``."""
        return self.finish(sums / len(target))


@dataclass(frozen=True, kw_only=True)
class ConfusionMetric(Metric):
    """A function of the confusion matrix."""

    finish: Callable[[Array, Array, Array], Array]
    """(hits, true, predicted), each counts by class ``[..., classes]`` -> values ``[...]``."""

    def value(self, target: Array, predictions: Array) -> float:
        if len(target) == 0:
            return math.nan
        predicted = class_indices(predictions)
        matrix = confusion(target, predicted, class_count(target, predictions))
        return float(self.finish(matrix.diagonal(), matrix.sum(1), matrix.sum(0)))

    def columns(self, target: Array, predictions: Array, classes: int) -> Iterator[Array]:
        """Yield for each class which items of it are found, bool ``[n]``, then for each which items
        are taken for it."""
        said = class_indices(predictions)
        yield from ((said == label) & (target == label) for label in range(classes))
        yield from (said == label for label in range(classes))

    def of_sums(self, sums: Array, target: Array, classes: int) -> Array:
        """Return values ``[...]`` of sums of the columns ``[..., 2 classes]``."""
        true = np.bincount(target, minlength=classes)
        return self.finish(sums[..., :classes], true, sums[..., classes:])


@dataclass(frozen=True, kw_only=True)
class RankMetric(Metric):
    """Area under the ROC curve; with more than two classes the mean over each class against the
    rest.

    A class that does not occur has no area and is left out; scikit-learn gives NaN there.
    """

    undefined = "roc_auc needs two classes"

    def value(self, target: Array, predictions: Array) -> float:
        areas = [
            float(placements(positive, predictions[:, label])[positive].mean())
            for label, positive in curves(target, predictions)
        ]
        return sum(areas) / len(areas) if areas else math.nan


@dataclass(frozen=True, kw_only=True)
class FunctionMetric(Metric):
    """A function of one's own, function(target, predictions) -> float; imported when it is first
    needed.

    An infinitely good value is none: it comes of a division by zero, as by the spread of a model
    that says the same of all items.
    """

    def value(self, target: Array, predictions: Array) -> float:
        function = self.load()
        try:  # copies: what the function works on in place must not change what is stored and measured
            value = float(function(np.array(target), np.array(predictions)))
            return math.nan if value == (math.inf if self.maximize else -math.inf) else value
        except Exception as error:  # it is the user's code: anything may come
            message = f"the metric {self.name} failed: {type(error).__name__}: {error}"
            raise InvalidInput(
                message, "it is called with (target, predictions) and returns a number"
            ) from error

    def steady_value(self, target: Array, predictions: Array) -> float:
        first, again = (self.value(target, predictions) for _ in range(2))
        if first != again and not (math.isnan(first) and math.isnan(again)):
            raise InvalidInput(
                f"the metric {self.name} returned {first:g} and then {again:g} for the same {len(target)} items",
                "a metric follows from its arguments alone: fix its seed",
            )
        return first

    @property
    def is_found(self) -> bool:
        """Whether its package is on this machine; on a cluster the image of the steps has it."""
        package = self.name.partition(":")[0].partition(".")[0]
        here = [str(Path.cwd())]
        return package in sys.modules or bool(
            PathFinder.find_spec(package, here) or find_spec(package)
        )

    def load(self) -> Callable[[Array, Array], Any]:
        """Import the function, from the working directory too.

        Raises:
            InvalidInput: There is no such function, or its module cannot be imported.
        """
        module_name, _, attribute = self.name.partition(":")
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        try:
            function = getattr(import_module(module_name), attribute, None)
        except Exception as error:  # it is the user's code: anything may come
            message = f"the metric {self.name} cannot be imported: {type(error).__name__}: {error}"
            raise InvalidInput(
                message, "install its package where the steps run, or start podium beside it"
            ) from error
        if not callable(function):
            raise InvalidInput(
                f"{module_name} has no function {attribute!r}",
                "a metric is package.module:function",
            )
        return function


def floats(array: Array) -> Array:
    """Return numbers as float64 if they need more than float32 holds by their type, else as
    float32."""
    return array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, copy=False)


def class_indices(predictions: Array) -> Array:
    """Return the most probable class of each item ``[n]``; class indices are returned as they
    are."""
    return predictions if predictions.ndim == 1 else predictions.argmax(1)


def class_count(*arrays: Array) -> int:
    """Return how many classes arrays of probabilities ``[n, classes]`` or class indices ``[n]``
    speak of."""
    return max(array.shape[1] if array.ndim == 2 else int(array.max()) + 1 for array in arrays)


def unit_count(items: int, groups: Array | None) -> int:
    """Return how many items or groups count on their own.

    Args:
        groups: Number of each item's group [n], from 0; None if every item is on its own.
    """
    return items if groups is None else int(groups.max()) + 1


def effective_units(items: int, groups: Array | None) -> float:
    """Return how many groups of equal size tell as much as those there are, 1 over the sum of their
    squared shares of the items (Kish 1965); the number of items if every one is on its own.

    Args:
        groups: As unit_count takes it.
    """
    if groups is None:
        return items
    return float(1 / np.square(np.bincount(groups) / items).sum())


def confusion(target: Array, predicted: Array, classes: int) -> Array:
    """Count the pairs of true (row) and predicted (column) class, int64 ``[classes, classes]``."""
    pairs = target.astype(np.int64) * classes + predicted
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def only_right(target: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Return which items only the first of two models has right, and which only the second, bool
    ``[n]`` each."""
    here, there = class_indices(first) == target, class_indices(second) == target
    return here & ~there, there & ~here


def curves(target: Array, predictions: Array) -> list[tuple[int, Array]]:
    """Return the class of each ROC curve that is defined, and which items are of it, bool ``[n]``;
    with two classes there is one curve, that of the second."""
    classes = range(1, 2) if predictions.shape[1] == 2 else range(predictions.shape[1])
    items = [(label, target == label) for label in classes]
    return [(label, positive) for label, positive in items if 0 < positive.sum() < len(target)]


def placements(positive: Array, scores: Array) -> Array:
    """Return for each positive the share of negatives below it, for each negative that of positives
    above it, ``[n]``.

    Args:
        positive: bool ``[n]``.
        scores: ``[n]``; equal ones count half.
    """
    order = np.argsort(scores)
    starts = group_starts(scores[order])
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    up = positive[order]
    ups, downs = (np.bincount(group, side) for side in (up, ~up))
    below = (np.cumsum(downs) - downs / 2) / max(downs.sum(), 1e-300)
    above = 1 - (np.cumsum(ups) - ups / 2) / max(ups.sum(), 1e-300)
    placed = np.empty(len(order))
    placed[order] = np.where(up, below[group], above[group])
    return placed


def group_starts(ordered: Array) -> Array:
    """Return where each run of equal values begins, ``[groups]``."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))

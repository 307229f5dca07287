"""Metrics by scikit-learn's names and definitions, computed with numpy.

There are four families, by what a value is computed from; ``podium.scoring.bootstrap`` resamples each in its own way:
``MeanMetric`` from means over the items, ``ConfusionMetric`` from a confusion matrix, ``RankMetric`` from the order of
the scores, ``FunctionMetric`` from anything.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.errors import InvalidInput, suggestion

Array = NDArray[Any]
KINDS = ("classification", "regression")
_CHUNK = 1 << 20
"""Numbers that are converted to float64 at a time."""


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

    @abstractmethod
    def value(self, target: Array, predictions: Array, weights: Array | None = None) -> float:
        """Compute the metric; NaN where it is not defined.

        Args:
            target: Class indices ``[n]``, or floats ``[n]`` or ``[n, k]``.
            predictions: Probabilities ``[n, classes]`` or class indices ``[n]``; or floats in the target's shape.
            weights: How often each item counts, ``[n]``; None for once each.
        """

    def better(self, first: float, second: float) -> bool:
        """Return whether the first value is better than the second."""
        return first > second if self.maximize else first < second

    @property
    def notation(self) -> str:
        """What find_metric reads."""
        return f"{'max' if self.maximize else 'min'}:{self.name}" if self.kind is None else self.name

    def to_json(self) -> dict[str, Any]:
        """Return name and maximize."""
        return {"name": self.name, "maximize": self.maximize}


@dataclass(frozen=True, kw_only=True)
class MeanMetric(Metric):
    """A function of means over the items."""

    items: Callable[[Array, Array], Array]
    """(target, predictions) -> float64 ``[n, m]``: what is averaged."""

    finish: Callable[[Array], Array]
    """Means ``[..., m]`` -> values ``[...]``."""

    def value(self, target: Array, predictions: Array, weights: Array | None = None) -> float:
        if len(target) == 0:
            return math.nan
        return float(self.finish(np.average(self.items(target, predictions), axis=0, weights=weights)))


@dataclass(frozen=True, kw_only=True)
class ConfusionMetric(Metric):
    """A function of the confusion matrix."""

    finish: Callable[[Array, Array, Array], Array]
    """(hits, true, predicted), each counts by class ``[..., classes]`` -> values ``[...]``."""

    def value(self, target: Array, predictions: Array, weights: Array | None = None) -> float:
        if len(target) == 0:
            return math.nan
        predicted = class_indices(predictions)
        matrix = confusion(target, predicted, class_count(target, predictions), weights)
        return float(self.finish(matrix.diagonal(), matrix.sum(1), matrix.sum(0)))


@dataclass(frozen=True, kw_only=True)
class RankMetric(Metric):
    """Area under the ROC curve; with more than two classes the mean over each class against the rest.

    A class that does not occur has no area and is left out; scikit-learn gives NaN there.
    """

    def value(self, target: Array, predictions: Array, weights: Array | None = None) -> float:
        curves = scored_classes(predictions)
        return mean_of_defined([_area(target == at, predictions[:, at], weights) for at in curves])


@dataclass(frozen=True, kw_only=True)
class FunctionMetric(Metric):
    """A function of one's own, function(target, predictions) -> float; imported when it is first needed."""

    def value(self, target: Array, predictions: Array, weights: Array | None = None) -> float:
        if weights is not None:
            raise InvalidInput(f"the metric {self.name} takes no weights")
        function = self.load()
        try:
            return float(function(np.asarray(target), np.asarray(predictions)))
        except Exception as error:  # it is the user's code: anything may come
            message = f"the metric {self.name} failed: {type(error).__name__}: {error}"
            raise InvalidInput(message, "it is called with (target, predictions) and returns a number") from error

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
            raise InvalidInput(message, "install its package where the steps run, or start podium beside it") from error
        if not callable(function):
            raise InvalidInput(f"{module_name} has no function {attribute!r}", "a metric is package.module:function")
        return function


def class_indices(predictions: Array) -> Array:
    """Return the most probable class of each item ``[n]``; class indices are returned as they are."""
    return predictions if predictions.ndim == 1 else predictions.argmax(1)


def class_count(*arrays: Array) -> int:
    """Return how many classes arrays of probabilities ``[n, classes]`` or class indices ``[n]`` speak of."""
    return max(array.shape[1] if array.ndim == 2 else int(array.max()) + 1 for array in arrays)


def confusion(target: Array, predicted: Array, classes: int, weights: Array | None = None) -> Array:
    """Count the pairs of true (row) and predicted (column) class.

    Returns:
        ``[classes, classes]``, int64, or float64 with weights.
    """
    pairs = target.astype(np.int64) * classes + predicted
    return np.bincount(pairs, weights, minlength=classes * classes).reshape(classes, classes)


def scored_classes(predictions: Array) -> range:
    """Return the classes whose ROC curves are looked at: with two, the second alone."""
    return range(1, 2) if predictions.shape[1] == 2 else range(predictions.shape[1])


def mean_of_defined(values: list[float]) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else math.nan


def _area(positive: Array, scores: Array, weights: Array | None) -> float:
    """Return the share of (positive, negative) pairs in the right order; a tie counts half."""
    weight = np.ones(len(scores)) if weights is None else weights
    if not (weight[positive].any() and weight[~positive].any()):
        return math.nan
    return float(np.average(placements(positive, scores, weight)[positive], weights=weight[positive]))


def placements(positive: Array, scores: Array, weights: Array) -> Array:
    """Return for each positive the share of negatives below it, for each negative that of positives above it, ``[n]``.

    Args:
        positive: bool ``[n]``.
        scores: ``[n]``; equal ones count half.
        weights: How often each item counts, ``[n]``.
    """
    order = np.argsort(scores)
    starts = group_starts(scores[order])
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    weight, up = weights[order], positive[order]
    ups, downs = (np.bincount(group, weight * side) for side in (up, ~up))
    below = (np.cumsum(downs) - downs / 2) / max(downs.sum(), 1e-300)
    above = 1 - (np.cumsum(ups) - ups / 2) / max(ups.sum(), 1e-300)
    placed = np.empty(len(order))
    placed[order] = np.where(up, below[group], above[group])
    return placed


def group_starts(ordered: Array) -> Array:
    """Return where each run of equal values begins, ``[groups]``."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))


def _hits(target: Array, predictions: Array) -> Array:
    return (class_indices(predictions) == target).astype(np.float64)[:, None]


def _surprise(target: Array, predictions: Array) -> Array:
    """Return -log of the probability of the true class; clipped as scikit-learn does."""
    given = predictions[np.arange(len(target)), target]
    least = np.finfo(given.dtype).eps
    return -np.log(np.clip(given, least, 1 - least).astype(np.float64))[:, None]


def _outputs(array: Array) -> Array:
    """Return floats as ``[n, k]``."""
    return array.reshape(len(array), -1).astype(np.float64)


def _by_chunks(items: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Apply a function to some rows at a time, so that memory maps are not converted as a whole."""

    def whole(target: Array, predictions: Array) -> Array:
        rows = max(1, _CHUNK // max(1, predictions[:1].size))
        chunks = range(0, max(1, len(target)), rows)
        return np.concatenate([items(target[at : at + rows], predictions[at : at + rows]) for at in chunks])

    return whole


def _squares(target: Array, predictions: Array) -> Array:
    return np.square(_outputs(target) - _outputs(predictions))


def _absolutes(target: Array, predictions: Array) -> Array:
    return np.abs(_outputs(target) - _outputs(predictions))


def _moments(target: Array, predictions: Array) -> Array:
    """Return squared errors, targets and squared targets, ``[n, 3 k]``; centered, or the variance would lose digits."""
    true = _outputs(target)
    true = true - true.mean(0)
    return np.concatenate([_squares(target, predictions), true, np.square(true)], axis=1)


def _r2(means: Array) -> Array:
    errors, first, second = np.split(means, 3, axis=-1)
    spread = second - np.square(first)
    flat = spread <= 1e-15 * second  # a constant target, up to rounding
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(flat, np.where(errors > 0, 0.0, 1.0), 1 - errors / spread).mean(-1)


def _balanced(hits: Array, true: Array, predicted: Array) -> Array:
    occurs = true > 0
    recalls = np.divide(hits, true, out=np.zeros(hits.shape), where=occurs)
    return recalls.sum(-1) / occurs.sum(-1)


def _f1_macro(hits: Array, true: Array, predicted: Array) -> Array:
    both = true + predicted
    occurs = both > 0
    f1 = np.divide(2 * hits, both, out=np.zeros(hits.shape), where=occurs)
    return f1.sum(-1) / occurs.sum(-1)


def _only(means: Array) -> Array:
    return means[..., 0]


def _average(means: Array) -> Array:
    return means.mean(-1)


def _mean(name: str, maximize: bool, items: Callable[[Array, Array], Array], finish: Callable[[Array], Array],
          kind: str = "regression", needs_probabilities: bool = False) -> MeanMetric:  # fmt: skip
    return MeanMetric(name=name, maximize=maximize, kind=kind, needs_probabilities=needs_probabilities, items=items,
                      finish=finish)  # fmt: skip


METRICS: dict[str, Metric] = {metric.name: metric for metric in (
    _mean("accuracy", True, _by_chunks(_hits), _only, "classification"),
    ConfusionMetric(name="balanced_accuracy", maximize=True, kind="classification", finish=_balanced),
    ConfusionMetric(name="f1_macro", maximize=True, kind="classification", finish=_f1_macro),
    RankMetric(name="roc_auc", maximize=True, kind="classification", needs_probabilities=True),
    _mean("log_loss", False, _surprise, _only, "classification", needs_probabilities=True),
    _mean("rmse", False, _by_chunks(_squares), lambda means: np.sqrt(means).mean(-1)),
    _mean("mae", False, _by_chunks(_absolutes), _average),
    _mean("r2", True, _moments, _r2),
)}  # fmt: skip
"""The metrics podium knows, by name."""

DEFAULTS = {"classification": "accuracy", "regression": "rmse"}
"""The metric of each kind where none is chosen."""


def find_metric(text: str, maximize: bool | None = None) -> Metric:
    """Return a metric by its name, or a function of one's own.

    Args:
        text: A name of METRICS, or ``package.module:function``, with ``max:`` or ``min:`` in front if need be.
        maximize: Which way is better, where the text does not say.

    Raises:
        InvalidInput: There is no such metric, or its direction is not known or contradicts the metric.
    """
    prefix, _, rest = text.partition(":")
    name = rest if prefix in ("max", "min") else text
    if prefix in ("max", "min"):
        maximize = prefix == "max"
    known = METRICS.get(name)
    if known is None and ":" not in name:
        raise InvalidInput(f"there is no metric {name!r}", f"{suggestion(name, METRICS)}; or package.module:function")
    if known is None:
        if maximize is None:
            raise InvalidInput(f"whether more is better is not known for {name}", f"write max:{name} or min:{name}")
        return FunctionMetric(name=name, maximize=maximize, kind=None)
    if maximize not in (None, known.maximize):
        way = "more" if known.maximize else "less"
        raise InvalidInput(f"of {name} {way} is better, so it cannot be {'maximized' if maximize else 'minimized'}")
    return known


def choose_metric(text: str, kind: str, objective: str = "", maximize: bool | None = None) -> Metric:
    """Return the metric that is asked for, else the objective if it is a known metric of the kind, else the default.

    Args:
        text: In the notation of find_metric; empty for none.
        kind: classification or regression.
        objective: Name of the Experiment's objective; empty if there is none.
        maximize: The objective's direction, which a function of one's own has if the text does not say.

    Raises:
        InvalidInput: There is no such metric, it is of the other kind, or the objective's direction contradicts it.
    """
    if text:
        metric = find_metric(text, None if text.rpartition(":")[2] in METRICS else maximize)
    elif objective in METRICS and METRICS[objective].kind == kind:
        metric = find_metric(objective, maximize)
    else:
        metric = METRICS[DEFAULTS[kind]]
    require_kind(metric, kind)
    return metric


def require_kind(metric: Metric, kind: str) -> None:
    """Refuse a metric of the other kind.

    Raises:
        InvalidInput: It is.
    """
    if metric.kind not in (None, kind):
        names = ", ".join(name for name, known in METRICS.items() if known.kind == kind)
        raise InvalidInput(f"{metric.name} measures {metric.kind}, but the dataset is {kind}", f"one of {names}")

"""Two models on the same items: the difference of a metric, a paired test, and the items that changed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from podium.scoring.bootstrap import paired_bootstrap
from podium.scoring.families import Array, ConfusionMetric, Metric, RankMetric, class_indices, only_right
from podium.scoring.permutation import paired_permutation

LEAST_OF_CLASS = 10
"""Test items of each class that a p value of roc_auc, f1_macro or balanced_accuracy needs: of fewer, no test knows
whether they stand for their class."""

SMALL = 200
"""Test items; the 95 % interval of an accuracy of .90 on so many is 8 points wide."""

MOST_ERRORS = 20
"""Items whose error grew, and as many whose error shrank, that are listed."""

MOST_PAIRS = 5
"""Pairs of classes that are listed as confused."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A metric of two models on the same items."""

    metric: Metric
    """What is compared."""

    first: float
    """Of the first model, usually the challenger."""

    second: float
    """Of the second model, usually the champion."""

    interval: tuple[float, float] | None
    """95 % interval of first minus second, by bootstrap; None if the metric is defined for hardly any resample."""

    p_value: float | None
    """Two-sided: of the exact McNemar test for accuracy of single items, else of a paired permutation test; None where
    the test part cannot carry one."""

    test: str
    """``McNemar`` or ``paired permutation``."""

    why: str = ""
    """Why there is no p value."""

    gained: int | None = None
    """Accuracy: items that only the first has right."""

    lost: int | None = None
    """Accuracy: items that only the second has right."""

    @property
    def difference(self) -> float:
        """First minus second."""
        return self.first - self.second

    @property
    def standard_error(self) -> float | None:
        """Of the difference: a quarter of the interval's width, as of a normal distribution; None without interval."""
        if self.interval is None:
            return None
        return (self.interval[1] - self.interval[0]) / (2 * 1.959964)

    @property
    def better(self) -> bool:
        """Whether the first is better."""
        return self.metric.better(self.first, self.second)

    @property
    def worse(self) -> bool:
        """Whether the second is better."""
        return self.metric.better(self.second, self.first)


def compare(metric: Metric, target: Array, first: Array, second: Array, groups: Array | None = None) -> Comparison:
    """Compare two models by a metric.

    Args:
        metric: Any metric.
        target: As in Metric.value, ``n`` items.
        first: Predictions of the first model.
        second: Predictions of the second, for the same items.
        groups: Number of each item's group [n], from 0: items of a group count together. None if all count alone.

    Raises:
        InvalidInput: The metric is not defined for these items.
    """
    values = [metric.defined_value(target, predictions) for predictions in (first, second)]
    why = untestable(metric, target)
    exact = metric.name == "accuracy" and groups is None
    compared = Comparison(
        metric=metric, first=values[0], second=values[1], why=why,
        interval=paired_bootstrap(metric, target, first, second, groups),
        p_value=None if why or exact else paired_permutation(metric, target, first, second, groups),
        test="McNemar" if exact else "paired permutation",
    )  # fmt: skip
    if metric.name != "accuracy":
        return compared
    gained, lost = (int(items.sum()) for items in only_right(target, first, second))
    p_value = mcnemar(gained, lost) if exact else compared.p_value
    return replace(compared, p_value=p_value, gained=gained, lost=lost)


def untestable(metric: Metric, target: Array) -> str:
    """Say why a test part carries no p value for a metric that looks at classes one by one; empty if it does."""
    if not isinstance(metric, RankMetric | ConfusionMetric):
        return ""
    least = int(min(np.unique(target, return_counts=True)[1]))
    if least >= LEAST_OF_CLASS:
        return ""
    return f"no p value: {metric.name} needs {LEAST_OF_CLASS} test items of each class, and one has {least}"


def wilson(hits: int, items: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of independent items (Wilson 1927)."""
    z = 1.959964
    middle, spread = (hits + z * z / 2) / (items + z * z), z / (items + z * z)
    half = spread * math.sqrt(hits * (items - hits) / items + z * z / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def small_test_part(count: int, kind: str) -> str:
    """Say what a test part of so many items cannot show; empty if it is not small."""
    if count >= SMALL:
        return ""
    low, high = wilson(round(0.9 * count), count)
    shows = (
        f"an accuracy of .90 on it means {low:.2f} to {high:.2f}" if kind == "classification" else "figures on it vary"
    )
    return f"the test part has only {count:,} items: {shows}; {SMALL} or more are better"


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact two-sided p value of McNemar's test.

    Args:
        gained: Items that only the new model has right.
        lost: Items that only the old model has right.
    """
    # Exact, in integers; tests compare it with scipy.stats, which takes a second to import.
    # Each binomial coefficient follows from the one before: math.comb would take minutes for 50,000 flips.
    sides = gained + lost
    term = tail = 1
    for count in range(min(gained, lost)):
        term = term * (sides - count) // (count + 1)
        tail += term
    return min(1.0, 2 * tail / 2**sides)


def by_class(target: Array, first: Array, second: Array, names: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the accuracy of two models in each class that occurs.

    Args:
        target: Class indices ``[n]``.
        first: Probabilities ``[n, classes]`` or class indices ``[n]``, of the challenger.
        second: Of the champion.
        names: Of the classes; their indices if empty.

    Returns:
        By class: items, accuracy, champion_accuracy, change.
    """
    right, before = class_indices(first) == target, class_indices(second) == target
    classes = {}
    for label in np.unique(target):
        here = target == label
        new, old = float(right[here].mean()), float(before[here].mean())
        classes[names[int(label)] if names else str(label)] = {
            "items": int(here.sum()), "accuracy": new, "champion_accuracy": old, "change": round(new - old, 12),
        }  # fmt: skip
    return classes


@dataclass(frozen=True, kw_only=True)
class Change:
    """An item that two models predict differently."""

    item: int
    """Its index in the test part."""

    target: str
    """Its true class or number."""

    before: str
    """What the first model predicts."""

    after: str
    """What the second model predicts."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The items on which a second model does better or worse than a first."""

    gained: tuple[Change, ...]
    """Classification: wrong before, right after. Regression: the errors that shrank most."""

    lost: tuple[Change, ...]
    """Classification: right before, wrong after. Regression: the errors that grew most."""


def flips(target: Array, before: Array, after: Array, classes: Sequence[str]) -> Changes:
    """List the items that only one of two classifiers has right.

    Args:
        target: Class indices ``[n]``.
        before: Predictions of the first model.
        after: Predictions of the second.
        classes: Names of the classes.
    """
    old, new = class_indices(before), class_indices(after)
    gained, lost = only_right(target, new, old)

    def changes(where: Array) -> tuple[Change, ...]:
        return tuple(
            Change(item=at, target=classes[target[at]], before=classes[old[at]], after=classes[new[at]])
            for at in np.flatnonzero(where).tolist()
        )

    return Changes(gained=changes(gained), lost=changes(lost))


def moved_errors(target: Array, before: Array, after: Array) -> Changes:
    """List the items whose absolute error changed most, the largest change first.

    Args:
        target: Floats ``[n]`` or ``[n, k]``; with several numbers their mean error counts.
        before: Predictions of the first model.
        after: Predictions of the second.
    """
    errors = [np.abs(target - array).reshape(len(target), -1).mean(1) for array in (before, after)]
    growth = errors[1] - errors[0]
    order = np.argsort(growth, kind="stable")

    def changes(indices: Array) -> tuple[Change, ...]:
        return tuple(
            Change(item=int(at), target=_number(target[at]), before=_number(before[at]), after=_number(after[at]))
            for at in indices
        )

    shrunk, grown = order[:MOST_ERRORS], order[::-1][:MOST_ERRORS]
    return Changes(gained=changes(shrunk[growth[shrunk] < 0]), lost=changes(grown[growth[grown] > 0]))


def _number(value: Any) -> str:
    return ", ".join(f"{number:.6g}" for number in np.atleast_1d(value))


def confused_pairs(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the most frequent confusions: label, taken_for, items and their share of the label's items.

    Args:
        confusion: [classes, classes]: rows are the true class, columns the predicted one.
        classes: Their names.
    """
    pairs: list[dict[str, Any]] = [
        {"label": classes[row], "taken_for": classes[column], "items": count, "share": count / sum(counts)}
        for row, counts in enumerate(confusion)
        for column, count in enumerate(counts)
        if row != column and count
    ]
    return sorted(pairs, key=lambda pair: -pair["items"])[:MOST_PAIRS]

"""Two models on the same items: the difference of a metric, and a paired test."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from podium.display.text import plural
from podium.errors import InvalidInput
from podium.scoring.families import (
    Array,
    FunctionMetric,
    MeanMetric,
    Metric,
    class_count,
    class_indices,
    effective_units,
    only_right,
    unit_count,
)
from podium.scoring.intervals import (
    LEAST_OF_CLASS,
    difference,
    figure_interval,
    numbered,
    share_interval,
    untestable,
)
from podium.scoring.permutation import paired_permutation
from podium.scoring.scores import check_predictions

_RULE_OF_THREE = 3
"""Rule of three: an event that affects one unit in n / 3 is absent from n of them in 5 % of test
parts."""

_FEW = 4
"""Effective number of units that carry a difference, see Precision; 100 normal errors have 12 or
more in 3 of 4 test parts, and fewer than 4 in hardly any."""

ALPHA = 0.05

_ENOUGH = 1_000
"""Units among which p of a loss without a bound holds its level, though 2 % of one model's errors
be 12 times as large as the others."""

_SMALL = 200
"""Test items; the 95 % interval of an accuracy of .90 on so many is 8 points wide."""


_FEW_GROUPS = 30
"""Groups of a test part, fewer than which say little however many items they have."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A metric of two models on the same items."""

    metric: Metric

    first: float
    """Value of the first model, usually the challenger."""

    second: float
    """Value of the second model, usually the champion."""

    interval: tuple[float, float] | None
    """95 % interval of first minus second: see difference."""

    standard_error: float | None
    """Standard error of first minus second; None without interval."""

    first_interval: tuple[float, float] | None
    """95 % interval of first: see figure_interval."""

    second_interval: tuple[float, float] | None

    p_value: float | None
    """Two-sided: of the exact McNemar test for accuracy of single items, else of a paired
    permutation test, and of skewed losses never below that of the interval; None where the test
    part cannot carry one."""

    p_is_bound: bool = False
    """Whether p is only known not to be larger."""

    doubt: str = ""
    """Losses without a bound: why p and the interval of the difference are not to be relied on;
    empty if they are."""

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
    def better(self) -> bool:
        """Whether the first is better."""
        return self.metric.better(self.first, self.second)

    @property
    def worse(self) -> bool:
        """Whether the second is better."""
        return self.metric.better(self.second, self.first)


def compare(
    metric: Metric,
    target: Array,
    first: Array,
    second: Array,
    groups: Array | None = None,
    limit: float = 0.05,
) -> Comparison:
    """Compare two models by a metric.

    Args:
        target: As in Metric.value, ``n`` items.
        first: Predictions of the first model.
        second: Predictions of the second, for the same items.
        groups: Which items count together: an integer for each item ``[n]``. None if all count
            alone.
        limit: What the p value is compared with: see paired_permutation.

    Raises:
        InvalidInput: The predictions do not fit the target or each other, or the metric is not
            defined for these items.
    """
    _check_alike(metric, target, first, second)
    values = [metric.defined_value(target, predictions) for predictions in (first, second)]
    groups = numbered(groups, len(target))
    why = untestable(metric, target, groups)
    exact = metric.counts_hits and groups is None
    change = difference(metric, target, first, second, groups)
    sides = [
        figure_interval(metric, target, predictions, groups) for predictions in (first, second)
    ]
    compared = Comparison(
        metric=metric,
        first=values[0],
        second=values[1],
        why=why,
        p_value=None,
        interval=change.interval,
        standard_error=change.standard_error,
        first_interval=sides[0],
        second_interval=sides[1],
        test="McNemar" if exact else "paired permutation",
    )
    if metric.counts_hits:
        gained, lost = (int(items.sum()) for items in only_right(target, first, second))
        compared = replace(compared, gained=gained, lost=lost)
        if exact:
            return replace(compared, p_value=mcnemar(gained, lost))
    if why:
        return compared
    p_value, is_bound = paired_permutation(metric, target, first, second, groups, limit=limit)
    if not isinstance(metric, MeanMetric) or math.inf not in map(abs, metric.range):
        return replace(compared, p_value=p_value, p_is_bound=is_bound)
    p_value, is_bound = max(p_value, change.p_value), is_bound and change.p_value < p_value
    doubt = ""
    if (units := unit_count(len(target), groups)) < _ENOUGH:
        few = "a few of them decide" if change.effective < _FEW else ""
        doubt = few or (_missing(metric, target, first, second, units) if p_value <= ALPHA else "")
        doubt = (
            doubt and f"{plural(units, 'item' if groups is None else 'group')} are few, and {doubt}"
        )
    return replace(compared, p_value=p_value, p_is_bound=is_bound, doubt=doubt)


def _missing(metric: MeanMetric, target: Array, first: Array, second: Array, units: int) -> str:
    """Describe the units that would undo a difference and may be absent from the test part."""
    change = metric.items(target, first).mean(0) - metric.items(target, second).mean(0)
    if len(change) > 1:
        return f"large errors in fewer than {_RULE_OF_THREE / units:.2g} of them may be missing"
    size = float(metric.finish(np.abs(change) * units / _RULE_OF_THREE))
    return f"{_RULE_OF_THREE} that may be missing, with {metric.name} {size:.3g}, would undo it"


def _check_alike(metric: Metric, target: Array, first: Array, second: Array) -> None:
    """Refuse predictions that do not fit the target or, where the metric looks at more than
    classes, each other."""
    both, has_classes = (first, second), target.dtype.kind in "iu"
    for name, predictions in zip(("the first model", "the second model"), both, strict=True):
        check_predictions(
            predictions,
            target,
            classes=class_count(predictions) if has_classes else None,
            name=name,
        )
    if not has_classes or not (metric.needs_probabilities or isinstance(metric, FunctionMetric)):
        return
    if first.ndim != second.ndim:
        raise InvalidInput(
            f"one model gives probabilities and the other classes only, which {metric.name} cannot "
            "compare",
            "compare by accuracy: metric=accuracy",
        )
    if first.ndim == 2 and first.shape[1] != second.shape[1]:
        raise InvalidInput(
            f"one model gives probabilities of {first.shape[1]} classes and the other of "
            f"{second.shape[1]}",
            "was one of them trained on another dataset?",
        )


def small_test_part(
    count: int, class_counts: Sequence[int], kind: str, groups: Array | None = None
) -> str:
    """Say what a test part cannot show; empty if it is large enough.

    Args:
        class_counts: Items of each class; empty for regression.
        kind: classification or regression.
        groups: The group of each item ``[count]``; None if each counts alone.
    """
    said, groups = [], numbered(groups, count)
    units, equal = unit_count(count, groups), effective_units(count, groups)
    if groups is not None and equal < min(units / 2, _FEW_GROUPS):
        share = np.bincount(groups).max() / count
        said.append(
            f"the test part has {plural(units, 'group')}, but the largest has {share:.0%} of its {count:,} items: "
            f"where items of a group are alike, figures on it vary as on {plural(round(equal), 'group')} of one size; "
            f"{_FEW_GROUPS} or more are better"
        )
    elif groups is not None and units < _FEW_GROUPS:
        said.append(
            f"the test part has only {plural(units, 'group')}, of {plural(count, 'item')}: items of a group may be "
            f"alike, and figures on it vary as on so few items then; {_FEW_GROUPS} or more groups are better"
        )
    elif count < _SMALL:
        constant = max(class_counts, default=0)  # what the most frequent class alone gets right
        right = constant if round(0.9 * count) < constant < count else round(0.9 * count)
        shown = ".90" if right != constant else f"{right / count:.2f}".lstrip("0")
        low, high = share_interval(right, count)
        means = f"an accuracy of {shown} on it means {low:.2f} to {high:.2f}"
        if groups is not None:
            means += ", and more where items of a group are alike"
        shows = means if kind == "classification" else "figures on it vary"
        said.append(
            f"the test part has only {plural(count, 'item')}: {shows}; {_SMALL} or more are better"
        )
    least = min(
        filter(None, class_counts), default=LEAST_OF_CLASS
    )  # a class of none is reported on its own
    if least < LEAST_OF_CLASS:
        few = plural(least, "test item")
        said.append(
            f"a class has only {few}: with fewer than {LEAST_OF_CLASS}, roc_auc, f1_macro and "
            "balanced_accuracy have no p value"
        )
    return "; ".join(said)


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact two-sided p value of McNemar's test: twice the smaller tail of
    binomial(gained + lost, 1/2).

    Args:
        gained: Items that only the new model has right.
        lost: Items that only the old model has right.
    """
    # scipy.stats, with which tests compare it, takes a second to import.
    sides, least = gained + lost, min(gained, lost)
    largest = (
        math.lgamma(sides + 1)
        - math.lgamma(least + 1)
        - math.lgamma(sides - least + 1)
        - sides * math.log(2)
    )
    term, tail = 1.0, 0.0  # in units of the largest, from there down to nothing
    for count in range(least, -1, -1):
        tail += term
        term *= count / (sides - count + 1)
        if term < tail * 1e-17:
            break
    return min(1.0, 2 * math.exp(largest) * tail)


def by_class(
    target: Array, first: Array, second: Array, names: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the accuracy of two models in each class that occurs.

    Args:
        target: Class indices ``[n]``.
        first: Probabilities ``[n, classes]`` or class indices ``[n]``, of the challenger.
        names: The classes'; their indices if empty.

    Returns:
        By class: items, accuracy, champion_accuracy, change.
    """
    right, before = class_indices(first) == target, class_indices(second) == target
    classes = {}
    for label in np.unique(target):
        here = target == label
        new, old = float(right[here].mean()), float(before[here].mean())
        classes[names[int(label)] if names else str(label)] = {
            "items": int(here.sum()),
            "accuracy": new,
            "champion_accuracy": old,
            "change": round(new - old, 12),
        }
    return classes

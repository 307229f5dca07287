"""95 % intervals of a metric and of the difference of two models, from each item's part in it.

Nearly every metric is its value plus a sum of small parts, one for each item (its influence
function; Efron 1982, "The Jackknife"). The spread of these parts, summed over groups, gives the
standard error and t limits with as many degrees of freedom as there are units, less one. What makes
t limits too narrow on few items is corrected for:

- groups are of different sizes: a large one pulls the figure to itself, as the jackknife shows, and
  all count as so many of one size (Kish 1965, "Survey Sampling").
- losses are skewed: limits of Hall's transformation ("On the removal of skewness by
  transformation", 1992). Of one without a bound, the worst item may be missing: the upper limit is
  that of the items and one more, worse by _RECORD.
- shares have bounds: limits on the logit scale, as DeLong's for an ROC curve.
- classes may be rare: a few hits and misses are added to each (Price and Bonett 2004, "An improved
  confidence interval for a linear function of binomial proportions").
- differences may be skewed to either side: the wider of t and Hall's limits.
- functions of one's own may be anything: percentiles of a bootstrap, expanded (Hesterberg 2015,
  "What teachers should know about the bootstrap").

``benchmarks/coverage.py`` says how often they hold the truth.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from podium.errors import InvalidInput
from podium.scoring.families import (
    Array,
    ConfusionMetric,
    FunctionMetric,
    MeanMetric,
    Metric,
    RankMetric,
    class_count,
    class_indices,
    confusion,
    curves,
    effective_units,
    only_right,
    placements,
    unit_count,
)

_RECORD = 1.6
"""How much worse than the worst item one may be that is not there."""

_RECORD_OF_RATIO = 2.0
"""The same for r2, whose variance of the target is estimated too."""

_ADDED = 4.0
"""Items that are added to a confusion matrix, half of them hits."""

_CALLS = 2_000
"""Draws of the bootstrap of a function of one's own."""

LEAST_OF_CLASS = 10
"""Test items of each class (groups, where there are some) that a p value of roc_auc, f1_macro or
balanced_accuracy needs: of fewer, no test knows whether they stand for their class."""

_LEAST_UNITS = 6
"""Items, or groups, that an interval of 95 % by bootstrap needs: with n no p value is below
2^(1-n), 1/16 with 5."""

_Z = 1.959964
"""Quantile of the normal distribution: 95 % of values are within ± _Z."""

_Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Uncertainty of the difference of two figures."""

    interval: _Interval | None
    """95 %; None where the units show no spread."""

    standard_error: float | None

    p_value: float = 0.0
    """P value of the test that the interval inverts; 0 for a custom function, which has none."""

    effective: float = math.inf
    """How many units carry the difference: of so many with parts of equal size its variance would
    be known as well."""


def figure_interval(
    metric: Metric,
    target: Array,
    predictions: Array,
    groups: Array | None = None,
    *,
    present: bool = False,
) -> _Interval | None:
    """Return the 95 % interval of the metric of one model: Agresti and Coull's for accuracy of
    single items.

    Args:
        target: As in Metric.value, ``n`` items.
        groups: The group of each item [n], an integer; None if every item is on its own.
        present: Whether it is the interval of the figure of the classes that occur.

    Returns:
        None with fewer than _LEAST_UNITS items or groups, where they show no spread, and where a
        metric of all classes that looks at them one by one lacks one.
    """
    groups = numbered(groups, len(target))
    if metric.counts_hits and groups is None:
        return share_interval(int((class_indices(predictions) == target).sum()), len(target))
    lacks_classes = not present and _lacks_classes(metric, target, predictions)
    if lacks_classes or _lacks_units(metric, target, groups):
        return None
    free = _free(len(target), groups)
    if isinstance(metric, FunctionMetric):
        return _expanded(_drawn(metric, target, [predictions], groups)[:, 0], free)
    if isinstance(metric, MeanMetric):
        items = metric.items(target, predictions)
        if (
            items.shape[1] == 1 and not metric.counts_hits
        ):  # through finish, which grows, after the mean's own limits
            mean = float(items.mean())
            sums = _summed((items[:, 0] - mean) / len(items), groups)
            limits = _skewed(mean, sums, free, metric.range[1])
            return _finished(metric, limits) if limits else None
    value, parts, added = _parts(metric, target, predictions)
    sums = _summed(parts, groups)
    if isinstance(metric, ConfusionMetric) and groups is None:
        half = _error(np.append(sums, added), len(sums)) * _t_limit(free)
        return max(value - half, metric.range[0]), min(value + half, metric.range[1])
    if metric.range == (0, 1):
        return _on_logits(value, sums, free)
    if (
        math.isfinite(metric.range[1]) and metric.range[0] == -math.inf
    ):  # as r2: what is missing has no bound
        limits = _skewed(metric.range[1] - value, -sums, free, math.inf, _RECORD_OF_RATIO)
        return (metric.range[1] - limits[1], metric.range[1] - limits[0]) if limits else None
    return _skewed(value, sums, free, metric.range[1])


def numbered(groups: Array | None, items: int) -> Array | None:
    """Return the number of each item's group from 0, ``[n]``; None if every item is on its own.

    Raises:
        InvalidInput: There is not one for each item.
    """
    if groups is None:
        return None
    if len(groups) != items:
        raise InvalidInput(f"there are {len(groups)} groups for {items} items", "one for each item")
    different, numbers = np.unique(groups, return_inverse=True)
    return None if len(different) == items else numbers


def _lacks_units(metric: Metric, target: Array, groups: Array | None) -> bool:
    rare = isinstance(metric, RankMetric) and untestable(metric, target, groups)
    return bool(rare) or unit_count(len(target), groups) < _LEAST_UNITS


def _lacks_classes(metric: Metric, target: Array, predictions: Array) -> bool:
    """Return whether items of a class that is predicted, and may lower the figure, are missing."""
    by_class = isinstance(metric, RankMetric | ConfusionMetric)
    return by_class and len(np.unique(target)) < class_count(predictions)


def untestable(metric: Metric, target: Array, groups: Array | None = None) -> str:
    """Say why a test part carries no p value for a metric that looks at classes one by one; empty
    if it does."""
    if not isinstance(metric, RankMetric | ConfusionMetric):
        return ""
    labels = target
    if groups is not None:  # one of each class for each group
        units = unit_count(len(target), groups)
        labels = np.unique(target.astype(np.int64) * units + groups) // units
    least = int(min(np.unique(labels, return_counts=True)[1]))
    if least >= LEAST_OF_CLASS:
        return ""
    noun = "test items" if groups is None else "groups of test items"
    return f"no p value: {metric.name} needs {LEAST_OF_CLASS} {noun} of each class, and one has {least}"


def share_interval(hits: int, items: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of independent items (Agresti and Coull 1998): Wilson's,
    but for shares near 0 and 1, which that one misses too often."""
    count = items + _Z * _Z
    share = (hits + _Z * _Z / 2) / count
    half = _Z * math.sqrt(share * (1 - share) / count)
    return max(0.0, share - half), min(1.0, share + half)


def _changed_interval(gained: int, lost: int, items: int) -> tuple[float, float]:
    """Return the 95 % interval of a difference of accuracies (Bonett and Price 2012); never a
    point, as 1 is added to the items on either side.

    Args:
        gained: Items that only the first model has right.
        lost: Items that only the second model has right.
    """
    gain, loss = (gained + 1) / (items + 2), (lost + 1) / (items + 2)
    half = _Z * math.sqrt((gain + loss - (gain - loss) ** 2) / (items + 2))
    return max(-1.0, gain - loss - half), min(1.0, gain - loss + half)


def _finished(metric: MeanMetric, limits: _Interval) -> _Interval:
    low, high = sorted(metric.finish(np.maximum(np.array(limits), 0)[:, None]).tolist())
    return low, high


def difference(
    metric: Metric, target: Array, first: Array, second: Array, groups: Array | None
) -> Precision:
    """Return how sure the difference of a metric is, first minus second: Bonett and Price's
    interval for accuracy of single items.

    Args:
        target: As in Metric.value, ``n`` items.
        groups: Number of each item's group [n], from 0; None if every item is on its own.
    """
    if _lacks_units(metric, target, groups):
        return Precision(interval=None, standard_error=None)
    if metric.counts_hits and groups is None:
        gained, lost = (int(items.sum()) for items in only_right(target, first, second))
        low, high = _changed_interval(gained, lost, len(target))
        return Precision(interval=(low, high), standard_error=(high - low) / (2 * _Z))
    if isinstance(metric, FunctionMetric):
        return _change_of_function(metric, target, first, second, groups)
    value, parts, added = _parts(metric, target, first)
    other, others, others_added = _parts(metric, target, second)
    sums = _summed(parts - others, groups)
    if isinstance(metric, MeanMetric):
        between = _summed(_parts_between(metric, target, first, second), groups)
        sums = max(sums, between, key=lambda each: float(np.square(each).sum()))
    if not sums.any():
        return Precision(interval=None, standard_error=None)
    units = np.append(sums, added - others_added[::-1])  # a hit of one model is a miss of the other
    error, bend, free, difference = (
        _error(units, len(sums)),
        _bend(sums),
        _free(len(target), groups),
        value - other,
    )
    limit = _t_limit(free)
    high, low = (difference - error * (_unbent(sign * limit, bend)) for sign in (-1, 1))
    low, high = min(low, difference - error * limit), max(high, difference + error * limit)
    width = metric.range[1] - metric.range[0]
    distance = min(abs(difference / error), abs(_bent(difference / error, bend)))
    squares = np.square(sums)
    return Precision(
        interval=(max(low, -width), min(high, width)),
        standard_error=error,
        p_value=_t_tail(distance, free),
        effective=float(squares.sum() ** 2 / np.square(squares).sum()),
    )


def _parts(metric: Metric, target: Array, predictions: Array) -> tuple[float, Array, Array]:
    """Return a metric, each item's part in it ``[n]``, and the parts of added items, ``[2, some]``:
    hits, misses."""
    if isinstance(metric, MeanMetric):
        items = metric.items(target, predictions)
        means = items.mean(0)
        parts = (items - means) @ _slopes(metric.finish, means) / len(items)
        return float(metric.finish(means)), parts, np.empty((2, 0))
    if isinstance(metric, ConfusionMetric):
        return _confusion_parts(metric, target, predictions)
    return _area_parts(metric, target, predictions)


def _parts_between(metric: MeanMetric, target: Array, first: Array, second: Array) -> Array:
    """Return each item's part in a difference ``[n]``, of a metric whose slope is the one midway
    between both: of a root, the slopes at either end leave half of it to an item that makes it
    all."""
    both = [metric.items(target, predictions) for predictions in (first, second)]
    change, middle = both[0] - both[1], (both[0].mean(0) + both[1].mean(0)) / 2
    parts: Array = (change - change.mean(0)) @ _slopes(metric.finish, middle) / len(change)
    return parts


def _slopes(function: Callable[[Array], Array], at: Array) -> Array:
    """Return the derivatives of a function of ``[..., m]`` at a point ``[m]``."""
    step = 1e-5 * np.maximum(np.abs(at), 1e-6 * np.abs(at).max(initial=0))
    steps = np.diag(np.where(step > 0, step, 1e-12))
    with np.errstate(all="ignore"):
        slopes = (function(at + steps) - function(at - steps)) / (2 * steps.diagonal())
    return np.where(np.isfinite(slopes), slopes, 0.0)


def _confusion_parts(
    metric: ConfusionMetric, target: Array, predictions: Array
) -> tuple[float, Array, Array]:
    classes, said = class_count(target, predictions), class_indices(predictions)
    matrix = confusion(target, said, classes)
    occur = np.flatnonzero(matrix.sum(1))
    share = _ADDED / 2 / len(occur)
    hits, true, predicted = (
        matrix.diagonal().astype(float),
        matrix.sum(1).astype(float),
        matrix.sum(0).astype(float),
    )
    hits[occur] += share
    true[occur] += 2 * share
    predicted[occur] += 2 * share  # as many are taken for each class as it has more

    def value(counts: Array) -> Array:
        return metric.finish(*np.split(counts, 3, axis=-1))

    counts = np.concatenate([hits, true, predicted])
    of_hits, of_true, of_predicted = np.split(_slopes(value, counts), 3)
    parts = of_true[target] + of_predicted[said] + np.where(said == target, of_hits[target], 0.0)
    elsewhere = (of_predicted[occur].sum() - of_predicted[occur]) / max(1, len(occur) - 1)
    added = np.stack(
        [of_hits[occur] + of_true[occur] + of_predicted[occur], of_true[occur] + elsewhere]
    )
    return float(value(counts)), parts, added * math.sqrt(share)


def _area_parts(metric: Metric, target: Array, predictions: Array) -> tuple[float, Array, Array]:
    parts, defined = np.zeros(len(target)), curves(target, predictions)
    for label, positive in defined:
        placed = placements(positive, predictions[:, label])
        placed -= placed[positive].mean()
        parts += np.where(positive, placed / _count(positive), placed / _count(~positive))
    return metric.value(target, predictions), parts / max(1, len(defined)), np.empty((2, 0))


def _count(items: Array) -> float:
    """Return the divisor that makes the sum of squares an unbiased variance of the mean."""
    count = float(items.sum())
    return math.sqrt(count * (count - 1)) or 1.0


def _summed(parts: Array, groups: Array | None) -> Array:
    """Return the parts of each unit; that of a group which has a share of the items as if the
    others alone made the figure."""
    if groups is None:
        return parts
    shares = np.bincount(groups) / len(groups)
    pulled = (1 - shares) / (1 - 1 / len(shares))  # 1 where groups are of one size
    return np.asarray(np.bincount(groups, parts) / pulled)


def _free(items: int, groups: Array | None) -> float:
    """Return the degrees of freedom of a variance of units."""
    return max(1.0, effective_units(items, groups) - 1)


def _error(sums: Array, units: int) -> float:
    return math.sqrt(float(np.square(sums).sum()) * units / (units - 1))


def _bend(sums: Array) -> float:
    """Return the skewness of units over the root of their number."""
    spread = float(np.square(sums).sum())
    return float((sums**3).sum()) / spread**1.5 if spread else 0.0


def _bent(t: float, bend: float) -> float:
    """Hall's transformation of t; its distribution is nearly symmetric."""
    return t + bend * t**2 / 3 + bend**2 * t**3 / 27 + bend / 6


def _unbent(t: float, bend: float) -> float:
    if abs(bend) < 1e-9:
        return t
    return float((np.cbrt(1 + bend * (t - bend / 6)) - 1) * 3 / bend)


def _skewed(
    value: float, sums: Array, free: float, most: float, record: float = _RECORD
) -> _Interval | None:
    """Return Hall's limits of a mean of units; without a bound the upper one is for a worse unit,
    too."""
    if not np.square(sums).sum() > 0:
        return None
    low, high = _hall(value, sums, free)
    if most == math.inf:
        count = len(sums)
        worst = record * (float(sums.max()) * count + value)
        high = max(high, _hall(*_with(value, sums, worst), free + 1)[1])
    return low, high


def _with(value: float, sums: Array, more: float) -> tuple[float, Array]:
    """Return a mean and the contributions of its units after adding one unit."""
    count = len(sums)
    mean = (value * count + more) / (count + 1)
    return mean, (np.append(sums * count + value, more) - mean) / (count + 1)


def _hall(value: float, sums: Array, free: float) -> _Interval:
    limit, bend, error = _t_limit(free), _bend(sums), _error(sums, len(sums))
    return value - error * _unbent(limit, bend), value - error * _unbent(-limit, bend)


def _on_logits(value: float, sums: Array, free: float) -> _Interval | None:
    """Return t limits on the logit scale, or Hall's where wider; None where that scale has no
    end."""
    error = _error(sums, len(sums))
    if not error or not 0 < value < 1:
        return None
    middle, half = (
        math.log(value / (1 - value)),
        error / (value * (1 - value)) * _t_limit(min(free, _free_of_few(sums))),
    )
    low, high = _hall(
        value, sums, free
    )  # the wider of both: a group may err much more than the others
    return max(0.0, min(low, _expit(middle - half))), min(1.0, max(high, _expit(middle + half)))


def _free_of_few(sums: Array) -> int:
    """Return the degrees of freedom of a variance that few units may dominate (Satterthwaite)."""
    squares = np.square(sums)
    total, units = float(squares.sum()), len(sums)
    spread = float(np.square(squares).sum()) - total**2 / units
    return units - 1 if spread <= 0 else max(2, min(units - 1, int(2 * total**2 / spread)))


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _change_of_function(
    metric: Metric, target: Array, first: Array, second: Array, groups: Array | None
) -> Precision:
    drawn = _drawn(metric, target, [first, second], groups)
    with np.errstate(invalid="ignore"):  # it may be infinite
        change = drawn[:, 0] - drawn[:, 1]
    interval = _expanded(change, _free(len(target), groups))
    return Precision(
        interval=interval, standard_error=float(np.nanstd(change)) if interval else None
    )


def _drawn(metric: Metric, target: Array, models: Sequence[Array], groups: Array | None) -> Array:
    """Return the metric of each model on draws of units with replacement, ``[_CALLS, models]``."""
    draws = resamples(len(target), groups, _CALLS)
    drawn = [
        [metric.value(target[at], predictions[at]) for predictions in models] for at, _ in draws
    ]
    return np.array(drawn)


def resamples(items: int, groups: Array | None, draws: int) -> Iterator[tuple[Array, Array]]:
    """Draw items, or whole groups of them, with replacement.

    Args:
        groups: Number of each item's group [n], from 0; None if every item is on its own.

    Yields:
        Positions of the items, and the number of the group in this draw that each came with.
    """
    random = np.random.default_rng(0)
    units = np.arange(items) if groups is None else groups
    order, count = np.argsort(units, kind="stable"), int(units.max()) + 1
    members = np.split(order, np.searchsorted(units[order], np.arange(1, count)))
    sizes = np.bincount(units, minlength=count)
    for _ in range(draws):
        chosen = random.integers(count, size=count)
        at = np.concatenate([members[unit] for unit in chosen])
        yield at, np.repeat(np.arange(count), sizes[chosen])


def _expanded(drawn: Array, free: float) -> _Interval | None:
    """Return percentiles as far out as t limits are; None if half of the draws are not defined, or
    all are equal."""
    defined = drawn[np.isfinite(drawn)]
    if len(defined) < len(drawn) / 2:
        return None
    defined[np.abs(defined) < 1e-12 * np.abs(defined).max()] = 0  # equal but for rounding
    tail = math.erfc(math.sqrt((free + 1) / free / 2) * _t_limit(free)) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return (float(low), float(high)) if low < high else None


def _t_limit(free: float) -> float:
    """Return the 95 % limit of a t distribution, by Wallace's approximation of 1959.

    It is off by .3 % at 5 degrees and by .05 % at 9; scipy takes a second to import.
    """
    normal = _Z * (8 * free + 3) / (8 * free + 1)
    return math.sqrt(free * math.expm1(normal**2 / free))


def _t_tail(distance: float, free: float) -> float:
    """Return the two-sided p value of a t, by the same approximation."""
    normal = (8 * free + 1) / (8 * free + 3) * math.sqrt(free * math.log1p(distance**2 / free))
    return math.erfc(normal / math.sqrt(2))

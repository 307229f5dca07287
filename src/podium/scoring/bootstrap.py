"""Paired bootstrap: how far the difference of two models' metrics could be another on other test items.

Items are drawn with replacement and both models are measured on the same draw; items of one group are drawn together
(a cluster bootstrap). How a draw is made depends on what the
metric is computed from, so that 10,000 draws of a million items take seconds and little memory:

- means: items are weighted by how often they are drawn. Beyond BLOCKS items, these are dealt at random into BLOCKS
  blocks, which are drawn instead; the interval's width then has a relative error of 1/sqrt(2 BLOCKS), below 1 %.
- confusion matrix: the counts of (true, first, second) are drawn from a multinomial distribution, which is exact; with
  groups, as means.
- ROC AUC: ranks are weighted by how often items are drawn. Beyond EXACT_RANKS scores, the area is linear in the draw:
  its mean of placement values, as in DeLong's test, which is off by O(1/n).
- functions of one's own: called for every draw.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from podium.scoring.families import (
    Array,
    ConfusionMetric,
    MeanMetric,
    Metric,
    RankMetric,
    class_columns,
    class_count,
    class_indices,
    group_starts,
    placements,
    scored_classes,
)

RESAMPLES = 10_000
BLOCKS = 10_000
EXACT_RANKS = 20_000
"""Items times ROC curves."""
_CHUNK = 1 << 17
"""Numbers of one array that are in memory at a time: few enough for a processor's cache."""
_WIDEST = 1 << 24
"""Numbers of the sums over blocks."""


def paired_bootstrap(
    metric: Metric, target: Array, first: Array, second: Array, groups: Array | None = None, *,
    resamples: int = RESAMPLES, seed: int = 0,
) -> tuple[float, float] | None:  # fmt: skip
    """Return the 95 % interval of the difference of a metric, first minus second: the percentiles of the draws.

    The same input gives the same result.

    Args:
        target: As in Metric.value, ``n`` items.
        second: Predictions of the other, for the same items.
        groups: Number of each item's group [n], from 0; None if every item is on its own.
        resamples: Number of draws.
        seed: The seed of the draws.

    Returns:
        None if the metric is defined for hardly any draw, as with a single item of a class.
    """
    return percentiles(differences(metric, target, first, second, groups, resamples=resamples, seed=seed))


def percentiles(drawn: Array) -> tuple[float, float] | None:
    """Return the middle 95 % of draws, ``[resamples]``; None if half of them are not defined."""
    defined = drawn[np.isfinite(drawn)]
    if len(defined) < len(drawn) / 2:
        return None
    defined[np.abs(defined) < 1e-12 * np.abs(defined).max()] = 0  # equal but for rounding
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(low), float(high)


def differences(
    metric: Metric, target: Array, first: Array, second: Array, groups: Array | None = None, *,
    resamples: int = RESAMPLES, seed: int = 0,
) -> Array:  # fmt: skip
    """Return the metric of the first minus that of the second on each draw, ``[resamples]``; NaN where undefined."""
    drawn = resampled(metric, target, (first, second), groups, resamples=resamples, seed=seed)
    with np.errstate(invalid="ignore"):  # a function of one's own may be infinite
        return drawn[:, 0] - drawn[:, 1]


def resampled(
    metric: Metric, target: Array, models: Sequence[Array], groups: Array | None = None, *,
    resamples: int = RESAMPLES, seed: int = 0,
) -> Array:  # fmt: skip
    """Return the metric of each model's predictions on each draw, ``[resamples, models]``; NaN where undefined."""
    random = np.random.default_rng(seed)
    if isinstance(metric, MeanMetric):
        return _of_means(metric, target, models, groups, resamples, random)
    if isinstance(metric, ConfusionMetric):
        if groups is not None:
            return _of_grouped_confusion(metric, target, models, groups, resamples, random)
        return _of_confusion(metric, target, models, resamples, random)
    if isinstance(metric, RankMetric):
        curves = len(scored_classes(models[0]))
        ranks = _of_ranks if len(target) * curves <= EXACT_RANKS else _of_placements
        return ranks(target, models, groups, resamples, random)
    picks = _picks(np.arange(len(target)) if groups is None else groups, resamples, random)
    return np.array([[metric.value(target[at], given[at]) for given in models] for at in picks])


def _picks(units: Array, resamples: int, random: np.random.Generator) -> Iterator[Array]:
    """Yield the positions of the items of drawn units."""
    order, count = np.argsort(units, kind="stable"), int(units.max()) + 1
    members = np.split(order, np.searchsorted(units[order], np.arange(1, count)))
    for _ in range(resamples):
        yield np.concatenate([members[unit] for unit in random.integers(count, size=count)])


def _of_means(
    metric: MeanMetric, target: Array, models: Sequence[Array], groups: Array | None, resamples: int,
    random: np.random.Generator,
) -> Array:  # fmt: skip
    columns = np.concatenate([metric.items(target, given) for given in models], axis=1)
    dealt = deal(len(target), columns.shape[1] + 1, random, groups)
    sums = _block_sums(dealt, [np.ones(len(target)), *columns.T])
    drawn = []
    for counts in _draws(len(sums), resamples, random):
        totals = counts @ sums
        means = np.split(totals[:, 1:] / totals[:, :1], len(models), axis=1)
        drawn.append(np.stack([metric.finish(of_model) for of_model in means], axis=1))
    return np.concatenate(drawn)


def deal(items: int, columns: int, random: np.random.Generator, groups: Array | None = None) -> Array:
    """Return the block of each item, ``[items]``, dealt at random; few units, items or groups, are a block each."""
    units = items if groups is None else int(groups.max()) + 1
    blocks = min(BLOCKS, max(1000, _WIDEST // columns))
    dealt = np.arange(units) if units <= blocks else random.permutation(units) % blocks
    return dealt if groups is None else dealt[groups]


def chunk(units: int) -> int:
    """Return how many draws of so many units are in memory at a time."""
    return max(1, _CHUNK // units)


def _block_sums(dealt: Array, columns: Iterable[Array]) -> Array:
    """Sum columns, each ``[n]``, over the items of each block, ``[blocks, columns]``."""
    return np.stack([np.bincount(dealt, column) for column in columns], axis=1)


def _draws(units: int, resamples: int, random: np.random.Generator) -> Iterator[Array]:
    """Yield how often each unit is drawn, float64 ``[some, units]``, all resamples in turn."""
    some = chunk(units)
    for start in range(0, resamples, some):
        rows = min(some, resamples - start)
        picked = random.integers(units, size=(rows, units), dtype=np.int64)
        picked += np.arange(rows)[:, None] * units
        yield np.bincount(picked.ravel(), minlength=rows * units).reshape(rows, units).astype(np.float64)


def _of_confusion(
    metric: ConfusionMetric, target: Array, models: Sequence[Array], resamples: int, random: np.random.Generator
) -> Array:
    classes = class_count(target, *models)
    codes = target.astype(np.int64)
    for given in models:
        codes = codes * classes + class_indices(given)
    cells, counts = np.unique(codes, return_counts=True)
    true, *said = np.unravel_index(cells, (classes,) * (1 + len(models)))
    some = max(1, _CHUNK // max(len(cells), classes))
    drawn = []
    for start in range(0, resamples, some):
        rows = random.multinomial(len(target), counts / len(target), size=min(some, resamples - start))
        occurs = _by_class(rows, true, classes)
        values = [
            metric.finish(_by_class(rows * (cell == true), true, classes), occurs, _by_class(rows, cell, classes))
            for cell in said
        ]
        drawn.append(np.stack(values, axis=1))
    return np.concatenate(drawn)


def _of_grouped_confusion(
    metric: ConfusionMetric, target: Array, models: Sequence[Array], groups: Array, resamples: int,
    random: np.random.Generator,
) -> Array:  # fmt: skip
    classes = class_count(target, *models)
    dealt = deal(len(target), classes * (1 + 2 * len(models)), random, groups)
    columns = [target == label for label in range(classes)]
    sums = _block_sums(dealt, chain(columns, *(class_columns(target, given, classes) for given in models)))
    drawn = []
    for counts in _draws(len(sums), resamples, random):
        true, *said = np.split(counts @ sums, 1 + 2 * len(models), axis=1)
        values = [metric.finish(said[at], true, said[at + 1]) for at in range(0, len(said), 2)]
        drawn.append(np.stack(values, axis=1))
    return np.concatenate(drawn)


def _by_class(counts: Array, of: Array, classes: int) -> Array:
    """Sum counts ``[rows, cells]`` over the cells of each class, ``[rows, classes]``."""
    cells = np.arange(len(counts))[:, None] * classes + of
    return np.bincount(cells.ravel(), counts.ravel(), minlength=len(counts) * classes).reshape(-1, classes)


def _of_ranks(
    target: Array, models: Sequence[Array], groups: Array | None, resamples: int, random: np.random.Generator
) -> Array:
    units = np.arange(len(target)) if groups is None else groups
    curves = [(given[:, at], target == at) for given in models for at in scored_classes(given)]
    drawn = []
    for counts in (drawn_units[:, units] for drawn_units in _draws(int(units.max()) + 1, resamples, random)):
        areas = np.stack([weighted_areas(scores, positive, counts) for scores, positive in curves], axis=1)
        drawn.append(np.stack([_mean_defined(side) for side in np.split(areas, len(models), axis=1)], axis=1))
    return np.concatenate(drawn)


def weighted_areas(scores: Array, positive: Array, counts: Array) -> Array:
    """Return the area under the curve of each draw, ``[draws]``; NaN without positives or negatives.

    Args:
        scores: ``[n]``.
        positive: bool ``[n]``.
        counts: How often each draw has each score, ``[draws, n]``.
    """
    order = np.argsort(scores)
    starts = group_starts(scores[order])
    sizes = np.diff(starts, append=len(order))
    up = positive[order]
    first, end = np.repeat(starts, sizes)[up], np.repeat(starts + sizes, sizes)[up]
    ordered = counts[:, order]
    ups = ordered[:, up]
    ordered[:, up] = 0
    below = np.zeros((len(counts), len(order) + 1))  # negatives among the first 0, 1, 2 … items
    np.cumsum(ordered, axis=1, out=below[:, 1:])
    right = np.einsum("dp,dp->d", ups, below[:, first] + below[:, end]) / 2  # those of equal score count half
    return _ratio(right, ups.sum(1) * below[:, -1])


def _of_placements(
    target: Array, models: Sequence[Array], groups: Array | None, resamples: int, random: np.random.Generator
) -> Array:
    curves, width = list(scored_classes(models[0])), 2 + 2 * len(models)
    dealt = deal(len(target), width * len(curves), random, groups)
    columns = (column for at in curves for column in _placements(target == at, [given[:, at] for given in models]))
    sums = _block_sums(dealt, columns)
    drawn = []
    for counts in _draws(len(sums), resamples, random):
        totals = (counts @ sums).reshape(len(counts), len(curves), width)
        ups, downs = totals[:, :, 0], totals[:, :, 1]
        areas = [_ratio(totals[:, :, at], ups) + _ratio(totals[:, :, at + 1], downs) for at in range(2, width, 2)]
        drawn.append(np.stack([_mean_defined(area) for area in areas], axis=1))
    return np.concatenate(drawn)


def _placements(positive: Array, models: Iterable[Array]) -> list[Array]:
    """Return columns ``[n]``: positive, negative, and for each model's scores the placements of either, 0 elsewhere.

    The placement of a positive is the share of negatives below it, that of a negative the share of positives above
    it. Half the area is subtracted from each, so that the sum of both means is the area.
    """
    columns = [positive, ~positive]
    for scores in models:
        placed = placements(positive, scores)
        if 0 < positive.sum() < len(positive):
            placed -= placed[positive].mean() / 2
        columns += [np.where(positive, placed, 0), np.where(positive, 0, placed)]
    return columns


def _ratio(over: Array, under: Array) -> Array:
    return np.divide(over, under, out=np.full(over.shape, np.nan), where=under > 0)


def _mean_defined(values: Array) -> Array:
    """Return the mean of the defined values in each row; NaN if there are none."""
    defined = ~np.isnan(values)
    return _ratio(np.where(defined, values, 0).sum(1), defined.sum(1).astype(np.float64))

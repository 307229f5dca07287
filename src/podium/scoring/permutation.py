"""Paired permutation test: would models of equal quality differ as much, if it were chance which of
the two said what?

For each item the predictions of the two models change places with probability 1/2, and the
difference of the metric is computed again; p is the share of such draws with a difference at least
as large as the one observed. It assumes that items are independent of each other, and nothing about
their distribution (Fisher 1935; Good, "Permutation Tests"). Items of one group change places
together.

- means and confusion matrices: sums over items are exchanged, so that a draw is a product of
  matrices. Beyond _BLOCKS units these are dealt at random into _BLOCKS blocks, which are exchanged
  instead.
- ROC AUC: the ranks that the two models give an item are exchanged, since their scores need not
  have one scale (Venkatraman and Begg 1996; Bandos, Rockette and Gur 2005). Beyond EXACT_RANKS
  scores, the signs of each item's part in the difference of areas are drawn instead, its placement
  values as in DeLong, DeLong and Clarke-Pearson 1988.
- functions of one's own: called for every draw, of which there are CALLS.

Up to _EXACT units all exchanges are counted, which gives the exact p value. A rule may ask for a p
value that the usual number of draws cannot show: then there are more, until they decide. Where the
difference is a sum over units, of which chance only draws the signs, p is also bounded by Gauss's
tail (Bentkus and Dzindzalieta 2015, "A tight Gaussian bound for weighted sums of Rademacher random
variables"), however small it is.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from podium.scoring.families import (
    Array,
    ConfusionMetric,
    FunctionMetric,
    MeanMetric,
    Metric,
    RankMetric,
    class_count,
    curves,
    group_starts,
    placements,
    unit_count,
)

_BLOCKS = 10_000
_CHUNK = 1 << 17
"""Numbers of one array that are in memory at a time: few enough for a processor's cache."""
DRAWS, MOST_DRAWS = 10_000, 1_000_000
CALLS, MOST_CALLS = 2_000, 100_000
_TIMES = 5
"""Draws for each 1/p that is asked for: with so many, p is known well enough to be compared
with."""
_EXACT = 12
"""Units, all of whose 2^12 exchanges are counted."""
EXACT_RANKS = 1_000
"""Items times ROC curves."""


_Drawn = tuple[Iterator[Array], float, float]
"""Differences of the draws, block by block; the observed one; and a bound of p if the draws are
sums of random signs, or grow with such sums, else 1."""


def paired_permutation(
    metric: Metric,
    target: Array,
    first: Array,
    second: Array,
    groups: Array | None = None,
    *,
    limit: float = 0.05,
    draws: int = 0,
) -> tuple[float, bool]:
    """Return the two-sided p value of the difference of a metric, and whether it is only known not
    to be larger.

    The same input gives the same result.

    Args:
        target: As in Metric.value, ``n`` items.
        second: Predictions of the other, for the same items.
        groups: Number of each item's group [n], from 0; None if every item is on its own.
        limit: What p is compared with; there are as many draws as that takes, up to MOST_DRAWS or
            MOST_CALLS.
        draws: Number of draws, where not all exchanges are counted and the limit needs no more; 0
            for DRAWS or CALLS.
    """
    random = np.random.default_rng(0)
    count = unit_count(len(target), groups)
    is_function = isinstance(metric, FunctionMetric)
    usual = draws or (CALLS if is_function else DRAWS)
    most = max(usual, math.ceil(min(_TIMES / limit, MOST_CALLS if is_function else MOST_DRAWS)))
    units = _deal(len(target), random, groups)
    swaps = _swaps(int(units.max()) + 1, most, random)
    if isinstance(metric, MeanMetric | ConfusionMetric):
        blocks, observed, bound = _of_sums(metric, target, first, second, units, swaps)
    else:
        exchange = _of_ranks if isinstance(metric, RankMetric) else _of_function
        blocks, observed, bound = exchange(metric, target, first, second, units, swaps)
    if not np.isfinite(observed):
        return 1.0, False
    close = abs(observed) * (1 - 1e-9)  # equal but for rounding
    extreme = drawn = 0
    for block in blocks:
        extreme += int((~(np.abs(block) < close)).sum())  # NaN proves nothing
        drawn += len(block)
        if drawn >= usual and (bound <= limit or extreme + 1 > limit * (most + 1)):
            break  # the other draws would not change the answer
    least = 2.0 ** (1 - count)
    if count <= _EXACT:
        return max(extreme / drawn, least), False
    share = (extreme + 1) / (drawn + 1)
    return max(min(share, bound), least), bound < share or not extreme


def _tail(distance: float, parts: Array) -> float:
    """Bound the chance that a sum of parts, each with a sign by chance, is as far from 0 as a
    distance."""
    spread = math.sqrt(float(np.square(parts).sum()))
    return min(1.0, 3.178 * math.erfc(abs(distance) / spread / math.sqrt(2))) if spread else 1.0


def _deal(items: int, random: np.random.Generator, groups: Array | None) -> Array:
    """Return the block of each item, ``[items]``, dealt at random; few units, items or groups, are
    a block each."""
    units = unit_count(items, groups)
    dealt = np.arange(units) if units <= _BLOCKS else random.permutation(units) % _BLOCKS
    return dealt if groups is None else dealt[groups]


def _chunk(units: int) -> int:
    return max(1, _CHUNK // units)


def _swaps(units: int, draws: int, random: np.random.Generator) -> Iterator[Array]:
    """Yield which units change places, 0 or 1 as float64 ``[some, units]``, all draws in turn."""
    if units <= _EXACT:
        yield (np.arange(2**units)[:, None] >> np.arange(units) & 1).astype(np.float64)
        return
    some = _chunk(units)
    for start in range(0, draws, some):
        yield random.integers(2, size=(min(some, draws - start), units)).astype(np.float64)


def _of_sums(
    metric: MeanMetric | ConfusionMetric,
    target: Array,
    first: Array,
    second: Array,
    units: Array,
    swaps: Iterator[Array],
) -> _Drawn:
    classes = class_count(target, first, second) if isinstance(metric, ConfusionMetric) else 0
    value = partial(metric.of_sums, target=target, classes=classes)
    sums = [
        np.stack(
            [np.bincount(units, column) for column in metric.columns(target, predictions, classes)],
            axis=1,
        )
        for predictions in (first, second)
    ]
    totals, change = [side.sum(0) for side in sums], sums[1] - sums[0]
    moving = change.any(axis=0)
    bound = 1.0
    if (
        isinstance(metric, MeanMetric) and moving.sum() == 1
    ):  # of one sum each metric is a growing or falling function
        parts = change[:, moving][:, 0]
        bound = _tail(float(parts.sum()), parts)
    moves = (swap @ change for swap in swaps)
    drawn = (value(totals[0] + moved) - value(totals[1] - moved) for moved in moves)
    return drawn, float(value(totals[0]) - value(totals[1])), bound


def _of_ranks(
    metric: Metric, target: Array, first: Array, second: Array, units: Array, swaps: Iterator[Array]
) -> _Drawn:
    observed = metric.value(target, first) - metric.value(target, second)
    defined = curves(target, first)
    if len(target) * len(defined) > EXACT_RANKS:
        parts = np.bincount(units, _area_parts(target, first, second))
        return ((1 - 2 * swap) @ parts for swap in swaps), observed, _tail(observed, parts)
    pairs = [
        (
            np.concatenate([_midranks(predictions[:, at]) for predictions in (first, second)]),
            np.tile(positive, 2),
        )
        for at, positive in defined
    ]

    def drawn() -> Iterator[Array]:
        some = _chunk(2 * len(target))
        for swap in (block[at : at + some] for block in swaps for at in range(0, len(block), some)):
            moved = swap[:, units]
            here, there = (
                np.concatenate([1 - moved, moved], axis=1),
                np.concatenate([moved, 1 - moved], axis=1),
            )
            areas = [
                _weighted_areas(ranks, up, here) - _weighted_areas(ranks, up, there)
                for ranks, up in pairs
            ]
            yield np.mean(areas, axis=0)

    return drawn(), observed, 1.0


def _weighted_areas(scores: Array, positive: Array, counts: Array) -> Array:
    """Return the area under the curve of each draw, ``[draws]``; NaN without positives or
    negatives.

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
    right = (
        np.einsum("dp,dp->d", ups, below[:, first] + below[:, end]) / 2
    )  # those of equal score count half
    pairs = ups.sum(1) * below[:, -1]
    return np.divide(right, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)


def _midranks(scores: Array) -> Array:
    """Return the rank of each score, ``[n]``; equal ones share the middle of theirs."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[place]


def _area_parts(target: Array, first: Array, second: Array) -> Array:
    """Return each item's part in the difference of areas, ``[n]``; the mean over all curves that
    are defined."""
    parts, defined = np.zeros(len(target)), curves(target, first)
    for label, positive in defined:
        change = placements(positive, first[:, label]) - placements(positive, second[:, label])
        parts += np.where(positive, change / positive.sum(), change / (~positive).sum())
    return parts / max(1, len(defined))


def _of_function(
    metric: Metric, target: Array, first: Array, second: Array, units: Array, swaps: Iterator[Array]
) -> _Drawn:
    def exchanged(swap: Array) -> float:
        moved = (swap[units] > 0).reshape(-1, *[1] * (first.ndim - 1))
        mixed = np.where(moved, second, first), np.where(moved, first, second)
        return metric.value(target, mixed[0]) - metric.value(target, mixed[1])

    drawn = (np.array([exchanged(swap)]) for block in swaps for swap in block)
    return drawn, metric.value(target, first) - metric.value(target, second), 1.0

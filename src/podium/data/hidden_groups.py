"""Groups that nobody named: rows of one patient, pictures of one scan, which only a name tells."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from podium.data.schema import Array

MOST_NAMES = 50_000
"""Rows of a table that are looked at, the first ones: any other choice would tear groups apart."""

_SEPARATORS = "_-"
"""They stand before the last parts of a name: patient7_scan3."""

_MOST_PARTS = 2
"""Parts of a name that may come after that of the group."""

_UNIQUE = 0.5
"""Share of the names that differ, from which these are of items: others are a feature of them."""

_LARGEST = 0.2
"""Share of the items in one group, from which it is no patient and no scene."""

_AGREEMENT = 0.5
"""Cohen's kappa of two items of one group, from which a model gains by knowing it."""

_LEAST_OTHERS = 10
"""Items of another class than the most frequent, fewer than which meet in a group by chance."""

_DEVIATIONS = 4.0
"""Standard deviations above chance, which are at most one over the root of the groups."""

_LEAST_NAMES, _LEAST_ITEMS, _MOST_NEXT = 30, 3, 0.2
"""Names, items of each on average, and agreement with items of the next number, from which and to
which a column that is learned from names a group, as that of a patient's number does."""

_ALONE = 0.99
"""Share of the items that are the only one of their name and time, from which names have a series."""

_ALIKE = 0.3
"""Cohen's kappa of two items of one series, from which their errors may be alike."""

_FIFTHS = (0.2, 0.4, 0.6, 0.8)


def share_targets(groups: Sequence[object] | Array, target: Array) -> bool:
    """Return whether items of one group have one target, far more often than by chance: a model may
    then know the groups of the test part by heart.

    Args:
        groups: Name of each item's group, [n].
        target: Classes or floats, [n]; floats are one where they lie in the same fifth.
    """
    if target.ndim > 1 or not len(target):
        return False
    labels = _labels(target)
    sizes, of_item = _sizes(groups.tolist() if isinstance(groups, np.ndarray) else groups)
    several = sizes[of_item] > 1
    if several.sum() < len(labels) / 2:
        return False
    of_class, classes = _sizes(labels[several].tolist())
    if (
        sizes.max() > _LARGEST * len(labels)
        or several.sum() - of_class.max() < _LEAST_OTHERS
        or len(sizes) <= 2 * len(of_class)  # they are the classes themselves, or a part of them
    ):
        return False
    least = max(_AGREEMENT, _DEVIATIONS / np.sqrt((sizes > 1).sum()))
    return _agreement(of_item[several], classes) >= least


def names_groups(values: Array, target: Array, *, is_number: bool) -> bool:
    """Return whether equal values of a column share their target, as a patient's do, and those of
    the next number do not, as those of an age would.

    Args:
        values: Floats, or codes of categories, [n].
        target: As share_targets takes it.
        is_number: Whether values have an order.
    """
    different, codes = np.unique(values, return_inverse=True)
    if (
        not _LEAST_NAMES <= len(different) <= len(values) / _LEAST_ITEMS
        or (is_number and (different != np.rint(different)).any())
        or not share_targets(values, target)
    ):
        return False
    labels = np.unique(_labels(target), return_inverse=True)[1]
    counts = np.zeros((len(different), labels.max() + 1))
    np.add.at(counts, (codes, labels), 1)
    sizes, chance = counts.sum(1), np.square(counts.sum(0) / len(labels)).sum()
    next_to = (counts[1:] * counts[:-1]).sum() / (sizes[1:] * sizes[:-1]).sum()
    return not is_number or bool(next_to - chance <= _MOST_NEXT * (1 - chance))


def are_series(names: Sequence[object], times: Array, target: Array) -> bool:
    """Return whether each name has at most one item at a time, is there at most times, and has much
    the same target: what is measured of a shop every week.

    Args:
        names: Of items, [n].
        times: Codes of the items' times, 0 to the number of times less 1, [n].
        target: As share_targets takes it.
    """
    sizes, codes = _sizes(names)
    count = int(times.max()) + 1
    if (
        target.ndim > 1
        or min(len(sizes), count) < _LEAST_ITEMS
        or len(np.unique(codes * count + times)) < _ALONE * len(codes)
        or 2 * len(codes) < len(sizes) * count
    ):
        return False
    several = sizes[codes] > 1
    classes = np.unique(_labels(target)[several], return_inverse=True)[1]
    least = max(_ALIKE, _DEVIATIONS * np.sqrt(2 / (sizes * (sizes - 1)).sum()))
    return _agreement(codes[several], classes) >= least


def find_beginning(names: Sequence[str], target: Array) -> tuple[str, str] | None:
    """Return the pattern of what follows the group in a name, and the name of a group; None if
    names tell none.

    Args:
        names: Of items, [n].
        target: As share_targets takes it.
    """
    if len(set(names)) < _UNIQUE * len(names):
        return None
    for parts in range(_MOST_PARTS, 0, -1):
        after = f"(?:[{_SEPARATORS}][^/{_SEPARATORS}]*){{0,{parts}}}"
        found = map(re.compile(f"(.+?){after}", re.DOTALL).fullmatch, names)
        groups = [match[1] if match else "" for match in found]
        if share_targets(groups, target):
            return after, Counter(groups).most_common(1)[0][0]
    return None


def _labels(target: Array) -> Array:
    if target.dtype.kind != "f":
        return target
    return np.searchsorted(np.quantile(target, _FIFTHS), target)


def _sizes(names: Iterable[object]) -> tuple[Array, Array]:
    codes: dict[object, int] = {}  # numpy would make each text as wide as the longest
    numbers = np.array([codes.setdefault(name, len(codes)) for name in names])
    return np.bincount(numbers), numbers


def _agreement(groups: Array, classes: Array) -> float:
    """Return Cohen's kappa of an item and another of its group, of which each has several; 0 if
    there is one class.

    It is a mean over items, not over pairs: a large group would hide all others."""
    both = groups * (int(classes.max()) + 1) + classes
    same = ((np.bincount(both)[both] - 1) / (np.bincount(groups)[groups] - 1)).mean()
    chance = np.square(np.bincount(classes) / len(classes)).sum()
    return float((same - chance) / (1 - chance)) if chance < 1 else 0.0

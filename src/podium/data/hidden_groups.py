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

_DEVIATIONS = 4.0
"""Standard deviations above chance, which are at most one over the root of the groups."""

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
    bounds = np.quantile(target, _FIFTHS) if target.dtype.kind == "f" else None
    labels = target if bounds is None else np.searchsorted(bounds, target)
    sizes, of_item = _sizes(groups.tolist() if isinstance(groups, np.ndarray) else groups)
    of_class, classes = _sizes(labels.tolist())
    several = sizes > 1
    if (
        sizes[several].sum() < len(labels) / 2
        or sizes.max() > _LARGEST * len(labels)
        or len(sizes) <= 2 * len(of_class)  # they are the classes themselves, or a part of them
    ):
        return False
    both = np.bincount(of_item * len(of_class) + classes)
    same, pairs, chance = _pairs(both), _pairs(sizes), np.square(of_class / len(labels)).sum()
    least = max(_AGREEMENT, _DEVIATIONS / np.sqrt(several.sum()))
    return bool(same / pairs - chance >= least * (1 - chance) > 0)


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


def _sizes(names: Iterable[object]) -> tuple[Array, Array]:
    """Return the size of each group, and the number of each item's group."""
    known: dict[object, int] = {}  # numpy would make each text as wide as the longest
    numbers = np.array([known.setdefault(name, len(known)) for name in names])
    return np.bincount(numbers), numbers


def _pairs(sizes: Array) -> int:
    return int((sizes * (sizes - 1)).sum())

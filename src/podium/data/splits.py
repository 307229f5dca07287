"""How the items of a source are divided into train, validation and test.

Equal seeds divide equally, on every machine and with every numpy: the stream of RandomState is frozen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.data.options import DataOptions
from podium.data.schema import PART_NAMES, Array
from podium.data.sources.raw import Raw
from podium.errors import InvalidInput, require

Index = NDArray[np.int64]
Take = Callable[[Index, int], tuple[Index, Index]]
"""Divides positions, in the order of the method, into about so many and the rest."""


@dataclass(frozen=True, kw_only=True)
class Division:
    """Which items of a source go into which part."""

    index: Mapping[str, Index]
    """Ascending positions of the items of each part that the source does not have itself."""

    how: str
    """In words."""


@dataclass(frozen=True, kw_only=True)
class _Method:
    how: str

    order: Index
    """All positions in the order in which they are taken."""

    take: Take
    """Takes a part."""

    cut: Take
    """Takes exactly so many, for a limit."""


def divide(raw: Raw, options: DataOptions, *, seed: int = 1, limit: int | None = None) -> Division:
    """Divide the items of a source.

    Classes are divided in proportion and regression targets at random, unless there are groups (which stay together),
    times (the oldest train, the newest test) or a column that names the part of each item. Parts that neither the
    source nor such a column has are taken from the training items: first test, then what the limit leaves out, then
    validation.

    Args:
        raw: The items.
        options: Method and shares.
        seed: Decides which items are chosen.
        limit: How many items train and validation may have together; parts that the source has stay whole.

    Raises:
        InvalidInput: A part would be empty, a name of a part is unknown, or the method does not fit the data.
    """
    method = _choose_method(raw, options, seed)
    given = _given_parts(raw, options.part)
    rest = method.order[given["train"][method.order]] if given else method.order
    index = {part: np.flatnonzero(mask) for part, mask in given.items() if part != "train"}
    if raw.test is None and "test" not in index:
        index["test"], rest = method.take(rest, max(1, round(len(rest) * options.test)))
    if limit is not None and limit < len(rest):
        rest, _ = method.cut(rest, limit)
    if raw.validation is None and "validation" not in index:
        index["validation"], rest = method.take(rest, held_out(len(rest), options.validation))
    index["train"] = rest
    for part, positions in index.items():
        require(len(positions) > 0, "every part has an item", f"{len(raw.items)} items, divided {method.how}",
                part=part, items=0)  # fmt: skip
    how = f"given by {options.part or 'the source'}" if given else method.how
    return Division(index={part: np.sort(positions) for part, positions in index.items()}, how=how)


def held_out(items: int, share: float) -> int:
    """Return how many of these items are put aside for validation."""
    return max(1, round(items * share))


def _choose_method(raw: Raw, options: DataOptions, seed: int) -> _Method:
    count = len(raw.items)
    chosen = [name for name in ("group", "time", "split") if getattr(options, name)]
    require(len(chosen) <= 1, "items are divided by group, by time, or as split says", options=chosen)
    if raw.groups is not None:
        return _by_group(raw.groups, f"by {options.group or 'group'}", seed)
    if raw.times is not None:
        return _by_time(raw.times, f"by {options.time or 'time'}")
    shuffle = np.random.RandomState(seed).permutation(count)
    split = options.split or ("stratified" if raw.kind == "classification" else "random")
    if split == "random":
        return _Method(how=split, order=shuffle, take=_take_first, cut=_take_first)
    require(raw.kind == "classification", "only classes can be divided in proportion", "use split=random",
            kind=raw.kind)  # fmt: skip
    labels = np.asarray(raw.items.target)

    def take(indices: Index, count: int) -> tuple[Index, Index]:
        return _take_in_proportion(labels, indices, count)

    return _Method(how=split, order=shuffle, take=take, cut=take)


def _given_parts(raw: Raw, column: str) -> dict[str, NDArray[np.bool_]]:
    """Return which items belong to which part, if a column says so."""
    if raw.given is None:
        return {}
    names, codes = np.unique(raw.given, return_inverse=True)
    parts: dict[str, NDArray[np.bool_]] = {}
    for code, name in enumerate(names.tolist()):
        mask = codes == code
        part = PART_NAMES.get(str(name).strip().lower())
        if part is None:
            raise InvalidInput(f"{column or 'part'} of item {int(np.flatnonzero(mask)[0]) + 1} is {name!r}",
                               "the parts are train, validation and test")  # fmt: skip
        parts[part] = parts[part] | mask if part in parts else mask
    require("train" in parts, "some items are for training", column=column, parts=sorted(parts))
    for part in ("validation", "test"):
        require(part not in parts or getattr(raw, part) is None, "a part comes from the source or from a column",
                "leave one of them out", part=part, column=column)  # fmt: skip
    return parts


def _take_first(indices: Index, count: int) -> tuple[Index, Index]:
    return indices[:count], indices[count:]


def _take_in_proportion(labels: Array, indices: Index, count: int) -> tuple[Index, Index]:
    classes = labels[indices].astype(np.int64)
    shares = np.bincount(classes) * count / len(indices)
    quota = np.floor(shares).astype(int)
    quota[np.argsort(quota - shares, kind="stable")[: count - quota.sum()]] += 1  # the largest remainders fill up
    order = np.argsort(classes, kind="stable")
    rank = np.empty(len(indices), int)  # of each index among those of its class
    rank[order] = np.arange(len(indices)) - np.searchsorted(classes[order], classes[order])
    chosen = rank < quota[classes]
    return indices[chosen], indices[~chosen]


def _by_group(groups: Array, how: str, seed: int) -> _Method:
    _, codes = np.unique(groups, return_inverse=True)
    rank = np.random.RandomState(seed).permutation(int(codes.max()) + 1)[codes]
    order = np.argsort(rank, kind="stable")

    def take(indices: Index, count: int) -> tuple[Index, Index]:
        """Take whole groups in their random order, those that still fit; the smallest one if none does."""
        ranks, sizes = np.unique(rank[indices], return_counts=True)
        require(len(ranks) >= 2, "there is a group for each part", "fewer parts need groups if the source divides them",
                groups=len(ranks), column=how.removeprefix("by "))  # fmt: skip
        chosen, room = [], count
        for at, size in enumerate(sizes.tolist()):
            if size <= room:
                chosen.append(at)
                room -= size
        chosen = chosen[: max(1, len(ranks) - 2)] or [int(sizes.argmin())]  # two are left for the other parts
        mask = np.isin(rank[indices], ranks[chosen])
        return indices[mask], indices[~mask]

    return _Method(how=how, order=order, take=take, cut=_take_first)


def _by_time(times: Array, how: str) -> _Method:
    missing = np.isnat(times) if times.dtype.kind in "mM" else times != times
    if missing.any():
        raise InvalidInput(f"{how.removeprefix('by ')} of item {int(np.flatnonzero(missing)[0]) + 1} is missing",
                           "items divided by time all have one")  # fmt: skip
    order = np.argsort(times, kind="stable")[::-1]

    def take(indices: Index, count: int) -> tuple[Index, Index]:
        """Take the newest, and all that are as old as the oldest of them."""
        end = int((times[indices] >= times[indices[min(count, len(indices)) - 1]]).sum())
        return indices[:end], indices[end:]

    return _Method(how=how, order=order, take=take, cut=_take_first)

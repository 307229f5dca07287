"""Division of the items of a source into train, validation and test.

An item's part follows from a key of the item (of its group, where there is one), which survives
another export, and a seed of its own: items are ordered by it, and each class gives its first ones
to the test part, its next ones to the validation part. So an item stays in its part whatever else
changes, but for a few at the boundaries when the number of items does. Fixed thresholds of the hash
would move none, but leave a class of ten items without a test item in a third of all cases. Equal
items have equal keys and share a part.

Where the source has a test part of its own, validation is drawn by the seed from RandomState, whose
stream is frozen: digests of MNIST never change.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.data.blocks import Selection
from podium.data.folds import as_numbers
from podium.data.hashes import hash_labels, key_items
from podium.data.near import mix
from podium.data.option_text import written
from podium.data.options import DataOptions
from podium.data.schema import PART_NAMES, Array, Hashes
from podium.data.sources.source import Raw
from podium.display.text import are, plural
from podium.errors import InvalidInput

_log = logging.getLogger(__name__)

_Index = NDArray[np.int64]
Take = Callable[[_Index, int], tuple[_Index, _Index]]
"""Divides positions, in the order of the method, into about so many and the rest."""


@dataclass(frozen=True, kw_only=True)
class Division:
    """Which items of a source go into which part."""

    index: Mapping[str, _Index]
    """Ascending positions of the items of each part that the source does not have itself."""

    how: str

    by_hash: bool
    """Whether equal items share a part: no part is given, and no time decides."""


@dataclass(frozen=True, kw_only=True)
class _Method:
    how: str

    order: _Index
    """All positions in the order in which they are taken."""

    take: Take

    cut: Take
    """Takes exactly so many, for a limit."""


def divide(raw: Raw, options: DataOptions, *, limit: int | None = None) -> Division:
    """Divide the items of a source.

    Classes are divided in proportion and regression targets at random, unless there are groups
    (which stay together), times (the oldest train, the newest test) or a column that names the part
    of each item. Parts that neither the source nor such a column has are taken from the training
    items: first test, then what the limit leaves out, then validation.

    Args:
        limit: How many items train and validation may have together; parts that the source has stay
            whole.

    Raises:
        InvalidInput: A part would be empty, a name of a part is unknown, a group is in two parts,
            or the method does not fit the data.
    """
    method = _choose_method(raw, options)
    masks = _given_parts(raw, options.part)
    rest = method.order[masks["train"][method.order]] if masks else method.order
    index = {part: np.flatnonzero(mask) for part, mask in masks.items() if part != "train"}
    if raw.test is None and "test" not in index:
        assert isinstance(options.test, float)
        index["test"], rest = method.take(rest, max(1, round(len(rest) * options.test)))
    if limit is not None and limit < len(rest):
        rest, _ = method.cut(rest, limit)
    if raw.validation is None and "validation" not in index:
        index["validation"], rest = method.take(rest, held_out(len(rest), options.validation))
    index["train"] = rest
    for part, positions in index.items():
        if not len(positions):
            times = 0 if raw.times is None else len(np.unique(raw.times))
            few = f", and {plural(times, 'different time')}: items of one time share a part"
            if times and options.group:
                few = f", each {options.group} in its newest part alone: leave out the option group"
            raise InvalidInput(
                f"the {part} part has no item",
                f"{len(raw.items)} items, divided {method.how}{few if times else ''}",
            )
    if not options.allow_duplicates:
        _check_groups(raw, index, options.group)
    how = f"given by {options.part or 'the source'}" if masks else method.how
    by_hash = not masks and raw.times is None and raw.test is None and raw.validation is None
    return Division(
        index={part: np.sort(at) for part, at in index.items()}, how=how, by_hash=by_hash
    )


def held_out(items: int, share: float) -> int:
    """Return how many of these items are put aside for validation."""
    return max(1, round(items * share))


def _choose_method(raw: Raw, options: DataOptions) -> _Method:
    chosen = [name for name in ("group", "time", "split") if getattr(options, name)]
    if "split" in chosen[1:]:
        raise InvalidInput(
            f"split cannot be combined with {' and '.join(chosen[:-1])}",
            "items are divided by group, by time, by both, or as split says",
        )
    if raw.times is not None:
        return _by_time(raw, options)
    if raw.groups is not None:
        return _by_hash(
            hash_labels(raw.groups), None, f"by {options.group or 'group'}", options.split_seed
        )
    split = options.split or ("stratified" if raw.kind == "classification" else "random")
    if split != "random" and raw.kind != "classification":
        raise InvalidInput(
            f"only classes can be divided in proportion, not a {raw.kind}",
            f"use {written('split', 'random')}",
        )
    labels = np.asarray(raw.items.target).astype(np.int64) if split == "stratified" else None
    if raw.test is not None:
        order = np.random.RandomState(options.split_seed).permutation(len(raw.items))
        return _Method(how=split, order=order, take=_exactly(labels), cut=_exactly(labels))
    keys = key_items(Selection(part=raw.items)) if raw.keys is None else raw.keys
    return _by_hash(
        _apart(keys) if options.allow_duplicates else keys, labels, split, options.split_seed
    )


def _check_groups(raw: Raw, index: Mapping[str, _Index], column: str) -> None:
    if raw.groups is None:
        return
    labels = {part: raw.groups[positions] for part, positions in index.items()} | dict(
        raw.part_groups
    )
    groups = {part: hash_labels(of) for part, of in labels.items()}
    names = [part for part in ("test", "validation", "train") if part in groups]
    for at, part in enumerate(names):
        for other in names[at + 1 :]:
            shared = np.intersect1d(groups[part], groups[other])
            if len(shared):
                raise InvalidInput(
                    f"{len(shared):,} of the {len(np.unique(groups[part])):,} groups of {part} "
                    f"{are(len(shared))} in {other} too, for example {column or 'group'} "
                    f"{labels[part][np.isin(groups[part], shared)][0]}",
                    f"give each group one part, or accept it: {written('allow_duplicates', True)}",
                )


def _given_parts(raw: Raw, column: str) -> dict[str, NDArray[np.bool_]]:
    if raw.given is None:
        return {}
    names, codes = np.unique(raw.given, return_inverse=True)
    parts: dict[str, NDArray[np.bool_]] = {}
    for code, name in enumerate(names.tolist()):
        mask = codes == code
        part = PART_NAMES.get(str(name).strip().lower())
        if part is None:
            raise InvalidInput(
                f"{column or 'part'} of item {int(np.flatnonzero(mask)[0]) + 1} is {name!r}",
                "the parts are train, validation and test",
            )
        parts[part] = parts[part] | mask if part in parts else mask
    if "train" not in parts:
        raise InvalidInput(
            f"{column or 'part'} gives no item to train, only to {' and '.join(sorted(parts))}"
        )
    for part in ("validation", "test"):
        if part in parts and getattr(raw, part) is not None:
            raise InvalidInput(
                f"the source has a {part} part, but {column or 'part'} names another",
                "leave one out",
            )
    return parts


def _exactly(labels: Array | None) -> Take:
    """Return what takes the first so many, of each class in proportion if there are labels [n]."""

    def take(indices: _Index, count: int) -> tuple[_Index, _Index]:
        if labels is None:
            return indices[:count], indices[count:]
        classes = labels[indices]
        quota = _quotas(np.bincount(classes), count)
        order = np.argsort(classes, kind="stable")
        rank = np.empty(len(indices), int)  # of each index among those of its class
        rank[order] = np.arange(len(indices)) - np.searchsorted(classes[order], classes[order])
        chosen = rank < quota[classes]
        return indices[chosen], indices[~chosen]

    return take


def _quotas(sizes: Array, count: int) -> _Index:
    """Divide a count among classes in proportion to their sizes; the largest remainders fill up."""
    shares = sizes * count / sizes.sum()
    quota = np.floor(shares).astype(int)
    quota[np.argsort(quota - shares, kind="stable")[: count - quota.sum()]] += 1
    return quota


def _by_hash(keys: Hashes, labels: Array | None, how: str, seed: int) -> _Method:
    """Divide items so that those of one hash stay together, in the order of their scrambled hashes.

    Args:
        keys: For each item [n], a hash of the item or of its group.
        labels: For each item [n], its class; a unit counts as of the first of its classes. None
            divides at random.
    """
    units, codes = np.unique(mix(keys, seed), return_inverse=True)
    classes = np.zeros(len(units), np.int64)
    if labels is not None:
        classes[:] = labels.max()
        np.minimum.at(classes, codes, labels)

    cut = _exactly(labels)

    def take(indices: _Index, count: int) -> tuple[_Index, _Index]:
        """Take the first whole units of each class that come nearest to its share; the smallest if
        there is none.

        A unit that is larger than the share is passed over, and no later one fills what is left:
        each would be another one as data grow.
        """
        present, sizes = np.unique(codes[indices], return_counts=True)
        _require_units(len(present), how, equal=len(indices) > len(present))
        if len(present) == len(indices):  # no two are equal
            return cut(indices, count)
        label = classes[present]
        room = _quotas(np.bincount(label, sizes), count)
        fitting = np.where(sizes <= room[label], sizes, 0)
        by_class, of_class = np.argsort(label, kind="stable"), np.bincount(label, fitting)
        earlier = (np.cumsum(of_class) - of_class)[label]
        taken = np.empty(len(present))  # of its class, with each unit
        taken[by_class] = np.cumsum(fitting[by_class])
        near = (fitting > 0) & (taken - earlier - fitting / 2 <= room[label])
        chosen = present[near][: max(1, len(present) - 2)]  # two are left for other parts
        if not len(chosen):
            chosen = present[[sizes.argmin()]]
        mask = np.isin(codes[indices], chosen)
        return indices[mask], indices[~mask]

    return _Method(how=how, order=np.argsort(codes, kind="stable"), take=take, cut=cut)


def _require_units(units: int, how: str, *, equal: bool) -> None:
    few = "only one is" if units == 1 else "none is"
    if units < 2 and how.startswith("by "):
        raise InvalidInput(
            f"every part needs a group of {how.removeprefix('by ')} of its own, but {few} left",
            "fewer parts need groups if the source divides them",
        )
    if units < 2 and not equal:
        raise InvalidInput(
            f"every part needs an item, but {few} left",
            "add items: training, validation and test part have at least one each",
        )
    if units < 2:
        raise InvalidInput(
            f"every part needs items that no other has, but {few} left",
            "equal items share a part, "
            f"unless they may be divided: {written('allow_duplicates', True)}",
        )


def _apart(keys: Hashes) -> Hashes:
    """Return hashes that differ even for equal items, by numbering the copies."""
    order = np.argsort(keys, kind="stable")
    first = np.searchsorted(keys[order], keys[order])
    number = np.empty(len(keys), np.uint64)
    number[order] = (np.arange(len(keys)) - first).astype(np.uint64)
    return mix(keys) + mix(number)


def _by_time(raw: Raw, options: DataOptions) -> _Method:
    assert raw.times is not None
    column = options.time or "time"
    times = as_numbers(raw.times, column)
    order = np.argsort(times, kind="stable")[::-1]
    groups = None if raw.groups is None else hash_labels(raw.groups)

    def take(indices: _Index, count: int) -> tuple[_Index, _Index]:
        """Take the newest, and all that are as old as the oldest of them; leave out what is too
        close to them."""
        if not len(indices):
            return indices, indices
        oldest = times[indices[min(count, len(indices)) - 1]]
        end = int((times[indices] >= oldest).sum())
        newest, rest = indices[:end], indices[end:]
        apart = times[rest] <= oldest - options.gap if options.gap else np.ones(len(rest), bool)
        if groups is not None:
            apart &= ~np.isin(groups[rest], groups[newest])
        if left_out := int((~apart).sum()):
            _log.warning(
                "%s %s left out: within the gap, or of a group with newer items",
                plural(left_out, "older item"),
                are(left_out),
            )
        return newest, rest[apart]

    return _Method(how=f"by {column}", order=order, take=take, cut=_exactly(None))

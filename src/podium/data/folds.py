"""Folds of cross-validation: train and validation of a dataset divided anew, ``DATASET#fold=2/5``.

A fold is a URI of the same dataset; opening it picks rows, and nothing is written. The test part
stays as it is. ``fold=0/5`` is no fold: it trains on all of these items, and its validation part is
among them.

Items of a group share a fold, and so do equal items; classes are divided in proportion. Items that
were divided by time stay in order: each fold is predicted from what is older, so the oldest items
are in no fold.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.near import mix
from podium.data.schema import DatasetInfo
from podium.display.text import plural
from podium.errors import InvalidInput

FEW = 200
"""Validation items below which folds are worth their time."""

USUAL, SMALL = 5, 500
"""Folds where podium chooses them, and the validation items below which it does: models of tables
are quick."""

Index = NDArray[np.int64]
_FORM = re.compile(r"(.*)#fold=(\d+)/(\d+)(?::(\d+))?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Fold:
    """One of several folds of a dataset."""

    number: int
    """From 1; 0 for all items."""

    count: int

    seed: int = 1
    """Of the division."""

    def of(self, uri: str) -> str:
        """Return the URI of this fold of a dataset."""
        return f"{uri}#fold={self.number}/{self.count}:{self.seed}"

    @classmethod
    def split(cls, uri: str | Path) -> "tuple[str, Fold | None]":
        """Return the URI of a dataset and the fold that it names, if it does."""
        match = _FORM.fullmatch(str(uri))
        if match is None:
            return str(uri), None
        number, count, seed = (int(text or 1) for text in match.groups()[1:])
        return match[1], cls(number=number, count=count, seed=seed)


def each_fold(uri: str, count: int, seed: int) -> list[str]:
    """Return the URIs of the folds of a dataset, that of all items last."""
    numbers = [*range(1, count + 1), 0]
    return [Fold(number=number, count=count, seed=seed).of(uri) for number in numbers]


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """The items of train and validation together, in this order."""

    target: NDArray[np.generic]

    units: NDArray[np.uint64]
    """Hash of what stays together, [n]: an item's group, else the item."""

    times: NDArray[np.generic] | None = None
    """Time of each item, [n], if items were divided by time."""

    has_groups: bool = False

    def rows(self, fold: Fold, info: DatasetInfo) -> tuple[Index, Index]:
        """Return the rows that a fold trains on, and those that it validates on.

        Raises:
            InvalidInput: The items cannot be divided so.
        """
        if not fold.number:
            rows = np.arange(len(self.target))
            return rows, rows[info.parts["train"].count :]
        if not fold.count >= 2:
            raise InvalidInput(
                f"folds >= 2 must hold, but got folds={fold.count}", "5 folds are usual"
            )
        if fold.number > fold.count:
            raise InvalidInput(f"there is no fold {fold.number} of {fold.count}", "1 is the first")
        if self.times is not None:
            return self._by_time(fold, self.times, info.gap)
        number = self._numbers(fold, info)
        return np.flatnonzero(number != fold.number), np.flatnonzero(number == fold.number)

    def _numbers(self, fold: Fold, info: DatasetInfo) -> Index:
        units, codes = np.unique(mix(self.units, fold.seed), return_inverse=True)
        name = "groups" if self.has_groups else "different items"
        if len(units) < fold.count:
            raise InvalidInput(
                f"folds={fold.count} are more than the {len(units)} {name} of train and validation",
                f"at most {plural(len(units), 'fold')}" if len(units) > 1 else "more data",
            )
        labels = self.target.astype(np.int64) if info.classes else np.zeros(len(codes), np.int64)
        classes = max(1, len(info.classes))
        held = np.zeros((len(units), classes))
        np.add.at(held, (codes, labels), 1)
        self._check_classes(held, fold.count, info.classes)
        if len(units) == len(codes):
            chosen = np.empty(len(codes), np.int64)
            chosen[np.lexsort((codes, labels))] = np.arange(len(codes)) % fold.count
            return chosen + 1
        return _spread(held, fold.count)[codes] + 1

    def _check_classes(
        self, held: NDArray[np.float64], folds: int, classes: tuple[str, ...]
    ) -> None:
        most = (held > 0).sum(0)
        for name, count in zip(classes, most.tolist(), strict=False):
            if 0 < count < folds:
                where = plural(count, "group" if self.has_groups else "item")
                raise InvalidInput(
                    f"folds={folds} are more than the {where} of class {name}, so a fold would lack it",
                    f"at most {count} folds"
                    if count > 1
                    else "more items of this class, or leave it out",
                )

    def _by_time(self, fold: Fold, times: NDArray[np.generic], gap: float) -> tuple[Index, Index]:
        """Return what is older than a block of items, by a gap at least, and that block; items of
        one time and of one group are not in both."""
        moments, codes = np.unique(times, return_inverse=True)
        if len(moments) <= fold.count:
            raise InvalidInput(
                f"folds={fold.count} of items in the order of time need {fold.count + 1} times, "
                f"but there are {len(moments)}",
                f"at most {len(moments) - 1} folds" if len(moments) > 2 else "more data",
            )
        blocks = fold.count + 1
        share = np.cumsum(np.bincount(codes)) / len(codes)  # up to each moment
        edges = np.searchsorted(share, np.arange(blocks) / blocks).tolist()
        for at in range(1, blocks):
            edges[at] = max(edges[at], edges[at - 1] + 1)
        edges.append(len(moments))
        for at in range(blocks - 1, 0, -1):
            edges[at] = min(edges[at], edges[at + 1] - 1)
        begin, end = edges[fold.number], edges[fold.number + 1]
        block = np.flatnonzero((codes >= begin) & (codes < end))
        older = codes < begin
        if gap:
            moment = as_numbers(times, "the time")
            older &= moment <= moment[block].min() - gap
        if self.has_groups:
            older &= ~np.isin(self.units, self.units[block])
        if not older.any():
            raise InvalidInput(
                f"nothing is older than fold {fold.number} of {fold.count}"
                + (f" by {gap:g}" if gap else "")
                + (" in other groups" if self.has_groups else ""),
                "fewer folds",
            )
        return np.flatnonzero(older), block


def as_numbers(times: NDArray[Any], column: str) -> NDArray[np.float64]:
    """Return times as numbers, dates as days.

    Raises:
        InvalidInput: One is missing.
    """
    dates = times.dtype.kind in "mM"
    missing = np.isnat(times) if dates else times != times
    if missing.any():
        raise InvalidInput(
            f"{column} of item {int(np.flatnonzero(missing)[0]) + 1} is missing",
            "items divided by time all have one",
        )
    if times.dtype.kind == "M":
        return times.astype("datetime64[us]").astype(np.int64) / 86_400_000_000
    if times.dtype.kind not in "biuf":  # texts have an order, but no distance
        return np.unique(times, return_inverse=True)[1].astype(np.float64)
    return times.astype(np.float64)


def _spread(held: NDArray[np.float64], folds: int) -> Index:
    """Return the fold of each unit, from 0: the largest first, each goes where its classes are
    rarest.

    Args:
        held: How many items of each class a unit has, [units, classes].
    """
    weight = held / np.maximum(held.sum(0), 1)
    loads = np.zeros((folds, held.shape[1]))
    chosen = np.zeros(len(held), np.int64)
    for unit in np.argsort(-weight.sum(1), kind="stable"):
        filled = loads @ (weight[unit] > 0)
        chosen[unit] = np.lexsort((loads.sum(1), filled))[0]
        loads[chosen[unit]] += weight[unit]
    return chosen


def few_items(info: DatasetInfo) -> str:
    """Return a line for who searches without folds where they are worth it; else nothing."""
    few = info.parts["validation"].count
    if few >= FEW:
        return ""
    both = few + info.parts["train"].count
    return f"trials are compared on {plural(few, 'validation item')}; {USUAL} folds compare them on {both}"

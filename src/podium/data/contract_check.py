"""Drafts a contract from a prepared table, and holds later tables to it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from podium.data.contract import Contract, Expected
from podium.data.preprocessing.table import Field, TableColumn, TablePreprocessing
from podium.data.profile import MISSING, UNKNOWN, Bins, Profile
from podium.data.rows import Rows
from podium.data.schema import DATES
from podium.data.values import LOOSE, Guess, are_flags
from podium.display.text import are, exact, plural

_MOST_CATEGORIES = 50
"""A column of more is not listed."""

_OTHER, _FEW = 0.01, 4
"""Share of values that do not fit a column that had none, and as many values as may be chance."""


def draft(preprocessing: TablePreprocessing, train: int, profile: Profile | None) -> Contract:
    """Return what the training part of a table held, with room for other rows of the same kind.

    Args:
        train: Its rows.
        profile: Its bins; without them no number has limits.
    """
    bins = (
        {of.name: of for measured in profile.inputs.values() for of in measured.bins}
        if profile
        else {}
    )
    columns = {
        column.name: _drafted(column, bins.get(column.name), train)
        for column in preprocessing.columns
    }
    return Contract(columns=columns)


def draft_target(classes: tuple[str, ...], values: NDArray[np.float64]) -> Expected:
    """Return what a target held: its classes, or else its numbers."""
    if not classes:
        other = _most(0.0, len(values))
        return Expected(type="number", other=other, **_limits(Bins.of_numbers("target", values)))
    listed = classes if len(classes) <= _MOST_CATEGORIES else ()
    return Expected(type="boolean" if are_flags(classes) else "category", categories=listed)


def _drafted(column: TableColumn, bins: Bins | None, train: int) -> Expected:
    missing, other = (_most(share, train) for share in (column.missing / train, 0.0))
    if column.kind == "category":
        categories = tuple(name for name in column.categories if name not in (MISSING, UNKNOWN))
        kind = column.type if column.type in ("boolean", "text") else "category"
        listed = categories if len(categories) <= _MOST_CATEGORIES else ()
        return Expected(type=kind, missing=missing, other=other, categories=listed)
    other = max(other, LOOSE) if column.loose else other
    filled = column.fill if column.missing else math.nan
    limits = (
        _limits(bins, filled, column.missing / train) if bins and column.type not in DATES else {}
    )
    return Expected(type=column.type, missing=missing, other=other, **limits)


def _most(share: float, train: int) -> float:
    """Return the largest share that other rows may have of what so many training rows had a share
    of."""
    most = share + max(share + _OTHER, _FEW / train)
    return min(1.0, math.ceil(round(100 * most, 9)) / 100)


def _limits(bins: Bins, fill: float = math.nan, filled: float = 0.0) -> dict[str, Any]:
    """Return a range, half as wide again on both sides up to zero, and about the middle half.

    Args:
        fill: What stands for missing values.
        filled: Their share.
    """
    counts = np.array(bins.counts[1 : len(bins.edges)], np.float64)  # those between two edges
    if filled:
        at = int(np.searchsorted(bins.edges, fill, side="right")) - 1
        counts[at] = max(counts[at] - filled * counts.sum(), 1.0)
    below = np.concatenate([[0.0], np.cumsum(counts)]) / counts.sum()
    low, high = bins.edges[0], math.nextafter(bins.edges[-1], -math.inf)
    more = (high - low) / 2
    first = low - more if low < 0 else max(low - more, 0.0)
    last = high + more if high > 0 else min(high + more, 0.0)
    start = bins.edges[np.flatnonzero(below <= 0.25)[-1]]
    end = min(high, bins.edges[np.flatnonzero(below >= 0.75)[0]])
    return {"range": _rounded((first, last), more), "median": _rounded((start, end), more)}


def _rounded(limits: tuple[float, float], spread: float) -> tuple[float, ...]:
    digits = 2 - math.floor(math.log10(spread)) if spread else 17
    return tuple(round(limit, max(digits, 0)) + 0.0 for limit in limits)


_WORDS = {"integer": "whole numbers", "number": "numbers", "boolean": "truth values"}


@dataclass
class _Count:
    """Counts of a column's values that violate the contract, with an example of each kind."""

    rows: int = 0
    missing: int = 0
    other: int = 0
    outside: int = 0
    below: int = 0
    above: int = 0
    examples: dict[str, str] = field(default_factory=dict)

    def keep(self, kind: str, bad: NDArray[np.bool_], values: pa.Array) -> int:
        """Return how many values are bad, and remember one."""
        count = int(bad.sum())
        if count and kind not in self.examples:
            self.examples[kind] = str(values[int(bad.argmax())].as_py())[:40]
        return count


def differences(
    before: TablePreprocessing, profile: Profile | None, now: TablePreprocessing
) -> list[str]:
    """Return a sentence for each column that is another one than when a model was trained.

    Args:
        before: The model's.
        profile: Its training part in bins; without them no unit is compared.
        now: Of the data at hand.
    """
    rows = max((sum(bins.counts) for bins in profile.bins().values()), default=1) if profile else 1
    drafted = draft(before, rows, profile).columns
    old, new = ({column.name: column for column in recipe.columns} for recipe in (before, now))
    said = [
        f"column {name} is new" for name in new if name not in old
    ]  # one that is gone is refused
    for name in old.keys() & new.keys():
        was, holds = _meaning(old[name]), _meaning(new[name])
        median = drafted[name].median
        if was != holds:
            said.append(f"column {name} holds {holds}, and held {was}")
        elif median and not median[0] <= new[name].fill <= median[1]:
            usual = " to ".join(map(exact, median))
            said.append(
                f"column {name} has the median {new[name].fill:g}, and half of it was {usual}: another unit?"
            )
    return sorted(said)


def _meaning(column: TableColumn) -> str:
    if column.kind == "number":
        return "dates" if column.type in DATES else "numbers"
    return "truth values" if column.type == "boolean" else "categories"


def violations(
    contract: Contract,
    rows: Iterable[Rows],
    guesses: Mapping[str, Guess],
    left_out: Iterable[str],
    missing_values: tuple[str, ...],
) -> list[str]:
    """Return a sentence for each way in which a table breaks a contract.

    Args:
        guesses: Types of its columns.
        left_out: Columns that are no input, which the contract need not know.
        missing_values: Texts that mean that a value is missing.
    """
    said = [
        f"column {name} is gone" for name in contract.columns if name not in {*guesses, *left_out}
    ]
    new = [name for name in guesses if name not in {*contract.columns, *left_out}]
    said += [f"column {name} is new" for name in new]
    present = {name: expected for name, expected in contract.columns.items() if name in guesses}
    counts = {name: _Count() for name in present}
    for batch in rows:
        for name, expected in present.items():
            _add(counts[name], name, expected, batch.columns[name], missing_values)
    for name, expected in present.items():
        looks = guesses[name].type
        if expected.type == "text" and not expected.categories and looks not in ("text", "empty"):
            found = _WORDS.get(looks, "dates")
            said.append(f"column {name} holds nothing but {found}, where text is expected")
        said += [f"column {name}: {sentence}" for sentence in _broken(expected, counts[name])]
    return said


def _add(
    count: _Count, name: str, expected: Expected, values: pa.Array, missing_values: tuple[str, ...]
) -> None:
    count.rows += len(values)
    kind = "number" if expected.is_number else "category"
    column = Field(name=name, kind=kind, type=expected.type)
    read, bad = column.read(values, missing_values)
    wrong = pc.is_valid(bad).to_numpy(zero_copy_only=False)
    if isinstance(read, np.ndarray):
        absent = np.isnan(read) & ~wrong
        if expected.type == "integer":
            wrong = wrong | (np.floor(read) != read) & ~np.isnan(read)
        if expected.range:
            low, high = expected.range
            count.outside += count.keep("outside", (read < low) | (read > high), values)
        if expected.median:
            count.below += int((read < expected.median[0]).sum())
            count.above += int((read > expected.median[1]).sum())
    else:
        absent = pc.is_null(read).to_numpy(zero_copy_only=False)
        listed = expected.categories or (("true", "false") if expected.type == "boolean" else ())
        if listed:
            allowed = column.read(pa.array(listed, pa.string()), ())[0]
            wrong = ~(pc.is_in(read, allowed).to_numpy(zero_copy_only=False) | absent)
    count.missing += int(absent.sum())
    count.other += count.keep("other", wrong, values)


def _broken(expected: Expected, count: _Count) -> list[str]:
    said, present = [], count.rows - count.missing
    if count.missing > expected.missing * count.rows:
        allowed = f"a share of {expected.missing:g} may be"
        said.append(f"{_of(count.missing, count.rows)} missing, and {allowed}")
    if count.other > expected.other * count.rows:
        number = len(expected.categories)
        words = _WORDS.get(expected.type, "dates")
        problem = f"none of {plural(number, 'category', 'categories')}" if number else f"no {words}"
        said.append(
            f"{_of(count.other, count.rows)} {problem}, such as {count.examples['other']!r}"
        )
    if count.outside > expected.other * count.rows:
        low, high = map(exact, expected.range)
        example = count.examples["outside"]
        outside = _of(count.outside, count.rows)
        said.append(f"{outside} outside {low} to {high}, such as {example}")
    for side, far, limit in (("below", count.below, 0), ("above", count.above, -1)):
        if far > (present - count.other) / 2:
            said.append(
                f"the median lies {side} {exact(expected.median[limit])}: is it another unit?"
            )
    return said


def _of(count: int, rows: int) -> str:
    return f"{count:,} of {plural(rows, 'value')} {are(count)}"

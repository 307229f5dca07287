"""What the values of a table's column mean: numbers, dates, categories, or nothing.

Text and typed columns are read by one set of functions, so that "1" in a CSV file and 1 in a Parquet file are equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from podium.errors import InvalidInput

MISSING_VALUES = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "?")
"""Texts that mean that a value is missing; spaces around them do not count."""

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_LEADING_ZERO = r"^[+-]?0\d"
_DATE = r"^\d{4}-\d\d-\d\d"
_DOTTED = r"^\d{1,2}\.\d{1,2}\.\d{4}\b"  # 31.1.2026, day first wherever dates are written with points
_SLASHED = r"^\d{1,2}/\d{1,2}/\d{2}(\d\d)?\b"
_DAY = 86_400_000_000  # in microseconds


DATES = {"date": "2026-01-31 or 31.1.2026", "day/month/year": "31/1/2026", "month/day/year": "1/31/2026"}
"""Types of columns that hold dates, with an example."""


def to_text(values: pa.Array, missing: Sequence[str] = MISSING_VALUES) -> pa.Array:
    """Return values as text without spaces around it, null where they are missing.

    Whole numbers are written without a decimal point, truth values as ``true`` and ``false``.

    Args:
        missing: Texts that mean that a value is missing.

    Raises:
        InvalidInput: The values are lists, structures or bytes.
    """
    values = _plain(values)
    kind = values.type
    if pa.types.is_floating(kind):
        whole = pc.and_(pc.equal(pc.floor(values), values), pc.less(pc.abs(values), float(2**53)))
        integers = pc.if_else(whole, values, None).cast(pa.int64(), safe=False).cast(pa.string())
        values = pc.if_else(pc.is_nan(values), None, pc.coalesce(integers, values.cast(pa.string())))
    elif not pa.types.is_string(kind):
        values = values.cast(pa.string())
    trimmed = pc.utf8_trim_whitespace(values)
    return pc.if_else(pc.is_in(trimmed, pa.array(missing, pa.string())), pa.scalar(None, pa.string()), trimmed)


def to_numbers(values: pa.Array, missing: Sequence[str] = MISSING_VALUES) -> tuple[NDArray[np.float64], pa.Array]:
    """Read values as numbers; truth values are 0 and 1.

    Returns:
        float64 [n], NaN where a value is missing or not a number, and the text of what is not a finite number (null
        elsewhere).
    """
    values = _plain(values)
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    if _is_number(kind) or pa.types.is_boolean(kind):
        numbers = values.cast(pa.float64(), safe=False)
        text = None
    else:
        text = to_text(values, missing)
        numbers = _parse_numbers(text)
    parsed = np.array(numbers.to_numpy(zero_copy_only=False), np.float64)
    bad = pc.is_valid(values if text is None else text).to_numpy(zero_copy_only=False) & ~np.isfinite(parsed)
    if text is None:
        bad &= ~np.isnan(parsed)  # NaN in a column of numbers is how many programs write a missing value
    if not bad.any():
        return parsed, pa.nulls(len(parsed), pa.string())
    parsed[bad] = np.nan
    text = values.cast(pa.string()) if text is None else text
    return parsed, pc.if_else(pa.array(bad), text, pa.scalar(None, pa.string()))


def to_days(
    values: pa.Array, missing: Sequence[str] = MISSING_VALUES, kind: str = "date"
) -> tuple[NDArray[np.float64], pa.Array]:
    """Read dates and times as days since 1970-01-01 UTC, as to_numbers reads numbers.

    Args:
        values: Dates, or text: ISO 8601, or 31.1.2026.
        missing: Texts that mean that a value is missing.
        kind: One of DATES: whether the day or the month is first in 3/4/2026.
    """
    values = _plain(values)
    text = None
    if not _is_moment(values.type):
        text = to_text(values, missing)
        values = _parse_times(_year_first(text, kind))
    stamps = _without_zone(values).cast(pa.timestamp("us"), safe=False)
    valid = pc.is_valid(stamps).to_numpy(zero_copy_only=False)
    days = np.where(valid, pc.fill_null(stamps.cast(pa.int64()), 0).to_numpy(zero_copy_only=False) / _DAY, np.nan)
    if text is None:
        return days, pa.nulls(len(days), pa.string())
    return days, pc.if_else(pc.is_null(stamps), text, pa.scalar(None, pa.string()))


def to_flags(values: pa.Array, missing: Sequence[str] = MISSING_VALUES) -> pa.Array:
    """Return values as text like to_text, ``True`` and ``TRUE`` as ``true``."""
    return pc.utf8_lower(to_text(values, missing))


def _plain(values: pa.Array) -> pa.Array:
    """Return an array of a plain type: not dictionary encoded, not null, decimals as floats."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return values.cast(pa.string())
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        return values.cast(pa.float64(), safe=False)
    if not (pa.types.is_string(kind) or pa.types.is_boolean(kind) or _is_number(kind) or _is_moment(kind)):
        raise InvalidInput(f"a table holds numbers, texts, dates and truth values, but here they are {kind}")
    return values


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _parse_numbers(text: pa.Array) -> pa.Array:
    try:
        return text.cast(pa.float64())
    except pa.ArrowInvalid:
        number = pc.match_substring_regex(text, _NUMBER)
        unsigned = pc.replace_substring_regex(text, r"^\+", "")
        return pc.if_else(number, unsigned, pa.scalar(None, pa.string())).cast(pa.float64())


def _parse_times(text: pa.Array) -> pa.Array:
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return _without_zone(text.cast(kind))
        except pa.ArrowInvalid:
            continue
    # Value by value, and most texts are words: only what begins as a date is tried, each text once.
    dated = pc.if_else(pc.match_substring_regex(text, r"^\d{4}-\d\d"), text, pa.scalar(None, pa.string()))
    encoded = dated.dictionary_encode()
    moments = pa.array([_parse_time(value) for value in encoded.dictionary.to_pylist()], pa.timestamp("us"))
    return moments.take(encoded.indices)


def _year_first(text: pa.Array, kind: str) -> pa.Array:
    """Return dates such as 31.1.2026, and 31/1/2026 if the kind says what is first, as 2026-01-31, all else as is."""
    turns = [(r"\.", r"\3-\2-\1")]
    if kind != "date":
        turns.append(("/", r"\3-\2-\1" if kind == "day/month/year" else r"\3-\1-\2"))
    for sign, turn in turns:
        if pc.any(pc.match_substring_regex(text, rf"^\d\d?{sign}\d\d?{sign}\d{{4}}\b")).as_py():
            padded = pc.replace_substring_regex(text, rf"^(\d{sign})(\d\d?{sign}\d{{4}})\b", r"0\1\2")
            padded = pc.replace_substring_regex(padded, rf"^(\d\d{sign})(\d{sign}\d{{4}})\b", r"\10\2")
            text = pc.replace_substring_regex(padded, rf"^(\d\d){sign}(\d\d){sign}(\d{{4}})\b", turn)
    return text


def _parse_time(value: str) -> int | None:
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            stamp = pa.scalar(value, pa.string()).cast(kind)
        except pa.ArrowInvalid:
            continue
        return int(stamp.value)
    return None


def _without_zone(stamps: pa.Array) -> pa.Array:
    """Return the same moments in UTC."""
    if not pa.types.is_timestamp(stamps.type) or stamps.type.tz is None:
        return stamps
    return stamps.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64()).cast(pa.timestamp("us"))


@dataclass
class Guess:
    """Guesses the type of a column from all of its values, batch by batch."""

    name: str
    missing_values: Sequence[str] = MISSING_VALUES

    count: int = 0
    """Values that are not missing."""

    missing: int = 0
    """Values that are missing."""

    first: str | None = None
    """The first value."""

    constant: bool = True
    """All values are equal so far."""

    slashed: bool = True
    """All values look like 3/4/2026 so far; the type is text if nobody knows whether the day or the month is first."""

    sums: list[int] = field(default_factory=lambda: [0, 0, 0])
    """The lowest whole number, the sum of all and that of their squares, of 64 bits without the overflow."""

    possible: list[str] = field(default_factory=lambda: ["boolean", "integer", "number", *DATES])
    """Types that all values had so far, the most special first."""

    def add(self, values: pa.Array) -> None:
        """Look at further values."""
        values = _plain(values)
        text = to_text(values, self.missing_values)
        present = text.drop_null()
        self.missing += len(text) - len(present)
        self.count += len(present)
        if not len(present):
            return
        self.first = self.first if self.first is not None else present[0].as_py()
        self.constant = self.constant and bool(pc.all(pc.equal(present, self.first)).as_py())
        self.slashed = self.slashed and bool(pc.all(pc.match_substring_regex(present, _SLASHED)).as_py())
        typed = None if pa.types.is_string(values.type) else values.type
        self.possible = [
            kind for kind in self.possible if (_is_typed(kind, typed) if typed else _is_text(kind, present))
        ]
        if "integer" in self.possible:
            self._sum(to_numbers(present)[0], first=self.count == len(present))

    def _sum(self, numbers: NDArray[np.float64], *, first: bool) -> None:
        low = int(numbers.min())
        with np.errstate(invalid="ignore"):  # larger ones number no rows
            bits = numbers.astype(np.int64).astype(np.uint64)
        self.sums = [low if first else min(low, self.sums[0]), (self.sums[1] + int(bits.sum())) % 2**64,
                     (self.sums[2] + int(np.square(bits).sum())) % 2**64]  # fmt: skip

    @property
    def counting(self) -> bool:
        """Whether the values are n whole numbers, each 1 more than another, in any order: they number the rows."""
        if self.type != "integer" or self.count < 3:
            return False
        low, n = self.sums[0], self.count
        total = n * low + n * (n - 1) // 2
        squares = n * low**2 + low * n * (n - 1) + (n - 1) * n * (2 * n - 1) // 6
        return [total % 2**64, squares % 2**64] == self.sums[1:]

    @property
    def type(self) -> str:
        """``boolean``, ``integer``, ``number``, ``text``, one of DATES; ``empty`` if all values are missing."""
        if not self.count:
            return "empty"
        ambiguous = {"day/month/year", "month/day/year"} <= {*self.possible}
        return "text" if not self.possible or (ambiguous and "date" not in self.possible) else self.possible[0]


def _is_typed(kind: str, typed: pa.DataType) -> bool:
    return bool({
        "boolean": pa.types.is_boolean(typed),
        "integer": pa.types.is_integer(typed),
        "number": _is_number(typed),
        "date": _is_moment(typed),
    }.get(kind))  # fmt: skip


def _is_text(kind: str, present: pa.Array) -> bool:
    if kind == "boolean":
        return bool(pc.all(pc.is_in(pc.utf8_lower(present), pa.array(["true", "false"]))).as_py())
    if kind in DATES:
        written = f"{_DATE}|{_DOTTED}" if kind == "date" else _SLASHED
        return (
            bool(pc.all(pc.match_substring_regex(present, written)).as_py())
            and len(to_days(present, kind=kind)[1].drop_null()) == 0
        )
    if pc.any(pc.match_substring_regex(present, _LEADING_ZERO)).as_py():  # 01067 is a postal code
        return False
    if kind == "integer":
        return bool(pc.all(pc.match_substring_regex(present, r"^[+-]?\d{1,18}$")).as_py())
    return len(to_numbers(present)[1].drop_null()) == 0

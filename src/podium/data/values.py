"""One meaning of a value everywhere: rows, groups, categories, class names, predictions, drift.

A whole number is one thing as 1, 1.0, "1" and "1.0", and a date is one thing as a date and as text.
Truth values are a kind of their own, except in a boolean column, where true, yes and 1 mean the
same. Numbers are float64; a whole number that float64 cannot hold stays a text.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from podium.data.schema import DATES
from podium.errors import InvalidInput

MISSING_VALUES = (
    *(
        "",
        "NA",
        "N/A",
        "n/a",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "<NA>",
        "N.A.",
        "n.a.",
        "NaN",
        "nan",
        "-NaN",
        "-nan",
    ),
    *("NULL", "null", "None", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "?"),
    *("\\N", "(null)", "#NV", "#N/D"),  # of MySQL, Oracle, and Excel in other languages
)
"""Texts that mean that a value is missing, as pandas reads them and databases write them; spaces
around them do not count."""

MARKS = (
    *(
        "-",
        "--",
        "---",
        "–",
        "—",
        ".",
        "..",
        "...",
        "inf",
        "+inf",
        "-inf",
        "infinity",
        "+infinity",
        "-infinity",
    ),
    *(
        "none",
        "null",
        "na",
        "n.d.",
        "nd",
        "n/d",
        "k.a.",
        "missing",
        "unknown",
        "not available",
        "0000-00-00",
        "0000-00-00 00:00:00",
    ),
)
"""Texts, in lower case, that are missing among numbers and dates too, unless a user lists the
missing values."""

_ERROR = r"^#[^\s\d]\S*[!?]$"
"""How spreadsheets write an error in any language, missing as well: #DIV/0!, #WERT!, #NOMBRE?."""

FLAGS = {
    **dict.fromkeys(("false", "f", "no", "n", "0", "falsch", "faux"), "false"),
    **dict.fromkeys(("true", "t", "yes", "y", "1", "wahr", "vrai"), "true"),
}
"""Boolean values by their lowercase spelling; spreadsheets write their own language."""

LOOSE = 0.05
"""Most of a column's values that may be something else in a column of numbers or dates; they are
missing."""

_TRIED = 64
"""Values that are tried before all are."""

_EXAMPLES = 3
"""Values that are named where a column holds a few that do not fit."""

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
GROUPS = "'\u2019\u00a0\u202f"
"""Signs that group digits in any notation."""

_CURRENCY = (
    r"(?:US|CA|HK|NZ|[ACR])?\$|[€£¥₹₩₽₺₴₪₫₦฿₱円元원]|USD|EUR|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|HUF|BRL|CAD"
    r"|AUD|MXN|ZAR|TRY|Rs\.?|kr|zł|Kč|руб\.?"
)
_SPACE = "[\\s\u00a0\u202f]"
_WRITTEN = (
    rf"^(?P<sign>[+-]?)(?P<before>{_CURRENCY})?{_SPACE}?(?P<minus>-?)"
    rf"(?P<digits>[1-9]\d{{0,2}}(?:[,{GROUPS}]\d{{3}})+(?:\.\d+)?|\d+\.?\d*|\.\d+"
    r"|[1-9]\d?(?:,\d\d)+,\d{3}(?:\.\d+)?)"  # 1,23,456 in India
    rf"{_SPACE}?(?P<after>{_CURRENCY}|%)?$"
)
"""Money, per cent, and thousands in groups."""

_MINUS = "\u2212\u2013"  # what typesetters, word processors and some locales write
BEFORE = rf"(?:[-+{_MINUS}(]|{_SPACE}|{_CURRENCY})*"
AFTER = rf"(?:[-)%]|{_SPACE}|{_CURRENCY})*"
"""Patterns of the text allowed before and after the digits of such numbers."""

_BRACKETS = rf"^((?:{_CURRENCY})?\s?)\(((?:{_CURRENCY})?\s?[\d.][^()-]*)\)$"
_BEHIND = r"^(\d[^-]*\.\d+)-$"

_WHOLE = r"^\+?(-?(?:0|[1-9]\d*))(?:\.0*)?$"
_LONG = r"^[+-]?\d{16,}(?:\.0*)?$"
_LEADING_ZERO = r"^[+-]?0\d"
_DATE = r"^\d{4}[-/.年년] ?\d\d?[-/.月월] ?\d\d?"
_DOTTED = (
    r"^\d{1,2}\.\d{1,2}\.\d{4}\b"  # 31.1.2026, day first wherever dates are written with points
)
_SLASHED = r"^(?:\d{1,2}/\d{1,2}/\d{2}(?:\d\d)?|[0-3]?\d-[0-3]?\d-[12]\d{3})\b"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMED = rf"(?i)^\d\d?[- ](?:{'|'.join(_MONTHS)})[a-z]*[- ]\d{{4}}\b"
_BEGINS_AS_DATE = r"^\d{1,4}[-/. 年년]"
_HALF = (
    r"(?i)^(?P<rest>.* (?P<hour>\d\d?):\d\d(?::\d\d)?) ?(?P<half>[ap])\.?m\.?"
    r"(?P<zone> (?:UTC|GMT).*)?$"
)
_ZONES = (
    (r"(:\d\d\.\d{6})\d{1,3}", r"\1"),
    (r"(:\d\d(?:\.\d+)?) ?(?:UTC|GMT)$", r"\1Z"),
    (r"(:\d\d(?:\.\d+)?) (?:UTC|GMT)([+-])(\d(?::\d\d)?)$", r"\1\20\3"),
    (r"(:\d\d(?:\.\d+)?) (?:UTC|GMT)?([+-]\d\d(?::?\d\d)?)$", r"\1\2"),
)
"""Nanoseconds, and zones as BigQuery, Ruby and Google Forms write them, with what they are in
ISO 8601."""

_DAY = 86_400_000_000  # in microseconds
_EXACT = 2**53
_NO_TEXT = pa.nulls(1, pa.string())[0]  # pa.scalar would import pandas


_DATED = {kind: f"{_DATE}|{_DOTTED}|{_NAMED}" if kind == "date" else _SLASHED for kind in DATES}


def normal(
    values: pa.Array, missing: Sequence[str] = MISSING_VALUES, *, boolean: bool = False
) -> tuple[NDArray[np.float64], pa.Array]:
    """Return the normal form of values: equal ones mean the same, whatever program wrote them.

    Args:
        missing: Texts that mean that a value is missing.
        boolean: Whether the column is boolean: true, yes and 1 are one value then.

    Returns:
        Numbers, dates in days, and the truth values of a boolean column as 0 and 1: float64 [n],
        else NaN; and texts, null elsewhere. A missing value is neither.
    """
    values = _plain(values)
    if _is_moment(values.type):
        return to_days(values)
    if boolean:
        texts = to_flags(values, missing)
        codes = pc.index_in(texts, pa.array(["false", "true"])).cast(pa.float64())
        numbers = np.array(codes.to_numpy(zero_copy_only=False), np.float64)
        return numbers, pc.if_else(pc.is_valid(codes), _NO_TEXT, texts)
    if pa.types.is_boolean(values.type):
        return np.full(len(values), np.nan), to_text(values, missing)
    numbers, texts = to_numbers(values, missing)
    others = pc.is_valid(texts).to_numpy(zero_copy_only=False)
    if others.any():
        days, words = to_days(texts.filter(pa.array(others)), ())
        numbers[others] = days
        texts = pc.replace_with_mask(texts, pa.array(others), words)
    return numbers, texts


def to_text(values: pa.Array, missing: Sequence[str] = MISSING_VALUES) -> pa.Array:
    """Return values as text without spaces around it, null where they are missing.

    Whole numbers are written without a decimal point, truth values as ``true`` and ``false``.

    Args:
        missing: Texts that mean that a value is missing.

    Raises:
        InvalidInput: The values are lists, structures or bytes.
    """
    values = _plain(values)
    text = _trimmed(values, missing)
    if (
        pa.types.is_string(values.type)
        and pc.any(pc.match_substring_regex(text, r"^\+\d|\d\.0*$|^-0$")).as_py()
    ):
        whole = pc.replace_substring_regex(text, _WHOLE, r"\1")
        text = pc.if_else(pc.equal(whole, "-0"), "0", whole)
    return text


def _trimmed(values: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Return plain values as text as they are written, without spaces around it, null where they
    are missing."""
    kind = values.type
    if pa.types.is_floating(kind):
        whole = pc.and_(pc.equal(pc.floor(values), values), pc.less(pc.abs(values), float(_EXACT)))
        integers = pc.if_else(whole, values, None).cast(pa.int64(), safe=False).cast(pa.string())
        values = pc.if_else(
            pc.is_nan(values), None, pc.coalesce(integers, values.cast(pa.string()))
        )
    elif not pa.types.is_string(kind):
        values = values.cast(pa.string())
    trimmed = pc.utf8_trim_whitespace(values)
    if not pc.all(pc.string_is_ascii(trimmed)).as_py():  # é is one letter, or e with an accent
        trimmed = pc.utf8_normalize(trimmed, "NFC")
    return pc.if_else(pc.is_in(trimmed, pa.array(missing, pa.string())), _NO_TEXT, trimmed)


def _unmarked(text: pa.Array, missing: Sequence[str]) -> pa.Array:
    if tuple(missing) != MISSING_VALUES:
        return text
    marks = pc.is_in(pc.utf8_lower(text), pa.array(MARKS))
    return pc.if_else(pc.or_(marks, pc.match_substring_regex(text, _ERROR)), _NO_TEXT, text)


def to_numbers(
    values: pa.Array, missing: Sequence[str] = MISSING_VALUES
) -> tuple[NDArray[np.float64], pa.Array]:
    """Read values as numbers, also money, per cent and thousands in groups; truth values are 0 and
    1.

    Returns:
        float64 [n], NaN where a value is missing or not a number, and the text of what is not a
        number that float64 holds (null elsewhere).
    """
    values = _plain(values)
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    if not (_is_number(kind) or pa.types.is_boolean(kind)):
        values = _trimmed(values, missing)
        parsed, bad = _read_numbers(values)
    else:
        floats = values.cast(pa.float64(), safe=False)
        parsed = np.array(floats.to_numpy(zero_copy_only=False), np.float64)
        bad = np.isinf(parsed)  # NaN among numbers is how many programs write a missing value
        if pa.types.is_integer(kind) and (np.abs(parsed) >= _EXACT).any():
            again = pa.array(parsed).cast(kind, safe=False)
            bad |= pc.fill_null(pc.not_equal(again, values), False).to_numpy(zero_copy_only=False)
    if not bad.any():
        return parsed, pa.nulls(len(parsed), pa.string())
    parsed[bad] = np.nan
    return parsed, _unmarked(pc.if_else(pa.array(bad), values.cast(pa.string()), _NO_TEXT), missing)


def _read_numbers(text: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return numbers [n], and which texts [n] are none that float64 holds."""
    numbers = _parse_numbers(text)
    parsed = np.array(numbers.to_numpy(zero_copy_only=False), np.float64)
    bad = pc.is_valid(text).to_numpy(zero_copy_only=False) & ~np.isfinite(parsed)
    if (np.abs(parsed) >= _EXACT).any():
        long = pc.fill_null(pc.match_substring_regex(text, _LONG), False).to_numpy(
            zero_copy_only=False
        )
        for at in np.flatnonzero(long & ~bad).tolist():
            bad[at] = int(text[at].as_py().partition(".")[0]) != int(parsed[at])
    return parsed, bad


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
        text = _unmarked(_trimmed(values, missing), missing)
        if not pc.any(pc.match_substring_regex(text, _BEGINS_AS_DATE)).as_py():
            return np.full(len(text), np.nan), text
        times, halves = _halves(_year_first(text, kind))
        values = _parse_times(times)
    stamps = _without_zone(values).cast(pa.timestamp("us"), safe=False)
    valid = pc.is_valid(stamps).to_numpy(zero_copy_only=False)
    days = np.where(
        valid,
        pc.fill_null(stamps.cast(pa.int64()), 0).to_numpy(zero_copy_only=False) / _DAY,
        np.nan,
    )
    if text is None:
        return days, pa.nulls(len(days), pa.string())
    return days + halves, pc.if_else(pc.is_null(stamps), text, _NO_TEXT)


def to_flags(values: pa.Array, missing: Sequence[str] = MISSING_VALUES) -> pa.Array:
    """Return values as text like to_text; what FLAGS lists as ``true`` or ``false``."""
    text = pc.utf8_lower(to_text(values, missing))
    meanings = pa.array(FLAGS.values(), pa.string()).take(
        pc.index_in(text, pa.array(FLAGS.keys(), pa.string()))
    )
    return pc.coalesce(meanings, text)


def _plain(values: pa.Array) -> pa.Array:
    """Return an array of a plain type: not dictionary encoded, not null, decimals as integers,
    floats, or texts where float64 does not hold all of them."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return values.cast(pa.string())
    if pa.types.is_decimal(kind):
        floats = values.cast(pa.float64(), safe=False)
        if pc.any(pc.greater_equal(pc.abs(floats), float(_EXACT))).as_py():
            return pc.replace_substring_regex(values.cast(pa.string()), r"\.0+$", "")
        return values.cast(pa.int64()) if kind.scale == 0 else floats
    if pa.types.is_float16(kind):
        return values.cast(pa.float64())
    if not (
        pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or _is_number(kind)
        or _is_moment(kind)
    ):
        raise InvalidInput(
            f"a table holds numbers, texts, dates and truth values, but here they are {kind}"
        )
    return values


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _parse_numbers(text: pa.Array) -> pa.Array:
    if (numbers := _cast(text, pa.float64())) is not None:
        return numbers
    number = pc.match_substring_regex(text, _NUMBER)
    unsigned = pc.replace_substring_regex(text, r"^\+", "")
    numbers = pc.if_else(number, unsigned, _NO_TEXT).cast(pa.float64())
    return pc.coalesce(numbers, _parse_written(pc.if_else(number, _NO_TEXT, text)))


def _cast(text: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Cast texts to a type, or return None; the first _TRIED are cast first, since a failure costs
    as much as a success."""
    try:
        text[:_TRIED].cast(kind)
        return text.cast(kind)
    except pa.ArrowInvalid:
        return None


def _is_plain(text: pa.Array) -> bool:
    numbers = _cast(text, pa.float64())
    return numbers is not None and bool(pc.all(pc.less(pc.abs(numbers), float(_EXACT))).as_py())


def _parse_written(text: pa.Array) -> pa.Array:
    """Read money, per cent and thousands in groups; null where it is something else."""
    encoded = text.dictionary_encode()
    signed = pc.replace_substring_regex(encoded.dictionary, f"[{_MINUS}]", "-")
    signed = pc.replace_substring_regex(
        signed, _BRACKETS, r"-\1\2"
    )  # bookkeepers write (30) for -30, and SAP 30.00-; 2- may be a grade
    signed = pc.replace_substring_regex(signed, _BEHIND, r"-\1")
    matched = pc.match_substring_regex(signed, _WRITTEN)
    if not pc.any(matched).as_py():  # which takes a fraction of the time of what follows
        return pa.nulls(len(text), pa.float64())
    parts = pc.extract_regex(signed, _WRITTEN)
    sign, minus, digits, after = (
        parts.field(name) for name in ("sign", "minus", "digits", "after")
    )
    plain = pc.replace_substring_regex(digits, r"[^\d.]", "")
    numbers = pc.binary_join_element_wise(
        pc.if_else(pc.equal(sign, "+"), "", sign), minus, plain, ""
    )
    twice = pc.and_(pc.not_equal(sign, ""), pc.not_equal(minus, ""))
    fits = pc.and_(pc.is_valid(parts), pc.invert(pc.fill_null(twice, False)))
    values = pc.if_else(fits, numbers, _NO_TEXT).cast(pa.float64())
    return pc.if_else(pc.equal(after, "%"), pc.divide(values, 100.0), values).take(encoded.indices)


def _parse_times(text: pa.Array) -> pa.Array:
    """Read what begins as a date; null where it is something else."""
    dated = pc.if_else(pc.match_substring_regex(text, r"^\d{4}-\d\d"), text, _NO_TEXT)
    if dated.null_count == len(dated):
        return pa.nulls(len(dated), pa.timestamp("us"))
    for pattern, instead in _ZONES:
        if pc.any(pc.match_substring_regex(dated, pattern)).as_py():
            dated = pc.replace_substring_regex(dated, pattern, instead)
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        if (times := _cast(dated, kind)) is not None:
            return _without_zone(times)
    encoded = dated.dictionary_encode()  # value by value, each once
    moments = pa.array(
        [_parse_time(value) for value in encoded.dictionary.to_pylist()], pa.timestamp("us")
    )
    return moments.take(encoded.indices)


def _halves(text: pa.Array) -> tuple[pa.Array, NDArray[np.float64] | float]:
    """Return times without am and pm, and the days that these add."""
    if not pc.any(pc.match_substring_regex(text, _HALF)).as_py():
        return text, 0.0
    found = pc.extract_regex(text, _HALF)
    rest, hour, half, zone = (
        pc.struct_field(found, name) for name in ("rest", "hour", "half", "zone")
    )
    hours = pc.fill_null(hour.cast(pa.float64()), 0).to_numpy(zero_copy_only=False)
    pm = pc.fill_null(pc.is_in(half, pa.array(["p", "P"])), False).to_numpy(zero_copy_only=False)
    am = pc.is_valid(half).to_numpy(zero_copy_only=False) & ~pm
    rest = pc.binary_join_element_wise(rest, zone, "")
    return pc.coalesce(rest, text), 0.5 * (pm & (hours < 12)) - 0.5 * (am & (hours == 12))


def _year_first(text: pa.Array, kind: str) -> pa.Array:
    """Return dates such as 31.1.2026, and 31/1/2026 if the kind says what is first, as 2026-01-31,
    all else as is."""
    if pc.any(pc.match_substring_regex(text, _DATE)).as_py():
        marked = r"^(\d{4})[/.年년] ?(\d\d?)[/.月월] ?(\d\d?)(?:[.日일](\s|$)|\b)"
        text = pc.replace_substring_regex(text, marked, r"\1-\2-\3\4")
        text = pc.replace_substring_regex(text, r"^(\d{4}-)(\d-\d)", r"\10\2")
        text = pc.replace_substring_regex(text, r"^(\d{4}-\d\d-)(\d)\b", r"\10\2")
    if pc.any(pc.match_substring_regex(text, _NAMED)).as_py():
        for at, month in enumerate(_MONTHS, 1):
            named = rf"(?i)^(\d\d?)[- ]{month}[a-z]*[- ](\d{{4}})\b"
            text = pc.replace_substring_regex(text, named, rf"\2-{at:02}-\1")
        text = pc.replace_substring_regex(text, r"^(\d{4}-\d\d-)(\d)\b", r"\10\2")
    turns = [(r"\.", r"\3-\2-\1")]
    if kind != "date":
        turns.append(("[/-]", r"\3-\2-\1" if kind == "day/month/year" else r"\3-\1-\2"))
    for sign, turn in turns:
        if pc.any(pc.match_substring_regex(text, rf"^\d\d?{sign}\d\d?{sign}\d{{4}}\b")).as_py():
            padded = pc.replace_substring_regex(
                text, rf"^(\d{sign})(\d\d?{sign}\d{{4}})\b", r"0\1\2"
            )
            padded = pc.replace_substring_regex(
                padded, rf"^(\d\d{sign})(\d{sign}\d{{4}})\b", r"\10\2"
            )
            text = pc.replace_substring_regex(
                padded, rf"^(\d\d){sign}(\d\d){sign}(\d{{4}})\b", turn
            )
    return pc.replace_substring_regex(text, r"^(\d{4}-\d\d-\d\d )(\d:)", r"\10\2")


def _parse_time(value: str) -> int | None:
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            stamp = pa.scalar(value, pa.string()).cast(kind)
        except pa.ArrowInvalid:
            continue
        return int(stamp.value)
    return None


def _without_zone(stamps: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(stamps.type) or stamps.type.tz is None:
        return stamps
    return (
        stamps.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64()).cast(pa.timestamp("us"))
    )


@dataclass
class Guess:
    """Guesses the type of a column from all of its values, batch by batch.

    A column of numbers or dates may hold a few other values, LOOSE of all: they are missing.
    """

    name: str
    missing_values: Sequence[str] = MISSING_VALUES

    count: int = 0
    """Values that are not missing."""

    missing: int = 0

    first: str | None = None

    last: str | None = None
    """The value of the last row, None where it is missing."""

    constant: bool = True
    """All values are equal so far."""

    slashed: bool = True
    """All values look like 3/4/2026 so far; the type is text if nobody knows whether the day or the
    month is first."""

    lowest: float = np.inf
    """The lowest whole number."""

    sums: list[int] = field(default_factory=lambda: [0, 0])
    """The sum of whole numbers and that of their squares, of 64 bits without the overflow."""

    others: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(["integer", "number", "boolean", *DATES], 0)
    )
    """Values that are not of a type, of each that is possible so far, the most special first."""

    marks: int = 0
    """Values that are missing if the column holds numbers."""

    examples: dict[str, list[str]] = field(default_factory=dict)
    """Some of the others, by type."""

    words: set[str] = field(default_factory=set)
    """Texts that are missing values; empty for a cell without any."""

    units: set[str] = field(default_factory=set)
    """Currencies and %, as written, of the values that are numbers; empty for a number alone."""

    flags: set[str] = field(default_factory=set)
    """Different values in lower case, while all may be booleans."""

    huge: bool = False
    """Whether there is a whole number that float64 cannot hold: these are names, not quantities."""

    def add(self, values: pa.Array) -> None:
        """Look at further values."""
        values = _plain(values)
        cells = _trimmed(values, self.missing_values)
        present = cells.drop_null()
        self.last = cells[-1].as_py() if len(cells) else self.last
        self.missing += len(values) - len(present)
        if len(present) < len(values):
            self._note_words(values)
        if not len(present):
            return
        self.count += len(present)
        self.first = self.first if self.first is not None else present[0].as_py()
        self.constant = self.constant and bool(pc.all(pc.equal(present, self.first)).as_py())
        self.slashed = self.slashed and bool(
            pc.all(pc.match_substring_regex(present, _SLASHED)).as_py()
        )
        is_text = pa.types.is_string(values.type)
        wrong = self._text_others(present) if is_text else self._typed_others(values.drop_null())
        self.others = {
            kind: count + wrong[kind]
            for kind, count in self.others.items()
            if 2 * wrong[kind] <= len(present)
        }
        if self.others.get("integer") == 0:
            self._sum(to_numbers(present, self.missing_values)[0])

    def _typed_others(self, values: pa.Array) -> dict[str, int]:
        typed = values.type
        if pa.types.is_floating(typed):
            self.marks += pc.sum(pc.is_inf(values)).as_py() or 0
        fits = {
            "boolean": pa.types.is_boolean(typed),
            "integer": pa.types.is_integer(typed),
            "number": _is_number(typed),
            "date": _is_moment(typed),
        }
        if pa.types.is_integer(typed) and to_numbers(values)[1].null_count < len(values):
            self.huge, fits = True, {}
        return {kind: 0 if fits.get(kind) else len(values) for kind in self.others}

    def _text_others(self, present: pa.Array) -> dict[str, int]:
        count, wrong = len(present), dict[str, int]()
        plain = "number" in self.others and _is_plain(present)
        unmarked = present
        if self.others and not plain:
            unmarked = _unmarked(present, self.missing_values).drop_null()
        self.marks += count - len(unmarked)
        if "number" in self.others:
            bad = present[:0] if plain else to_numbers(unmarked, self.missing_values)[1].drop_null()
            self.huge = self.huge or bool(pc.any(pc.match_substring_regex(bad, _LONG)).as_py())
            named = pc.any(
                pc.match_substring_regex(unmarked, _LEADING_ZERO)
            ).as_py()  # 01067 is a postal code
            wrong["number"] = count if named or self.huge else len(bad)
            self._keep("number", bad)
            if plain:
                self.units.add("")
            else:
                self._note_units(unmarked)
        if "integer" in self.others:
            whole = pc.match_substring_regex(unmarked, r"^[+-]?\d{1,18}$")
            broken = unmarked.filter(pc.invert(whole))
            wrong["integer"] = max(wrong["number"], len(broken))
            self._keep("integer", broken)
        if "boolean" in self.others:
            flags = pc.unique(pc.utf8_lower(present))
            self.flags |= set(flags[: len(FLAGS) + 1].to_pylist())
            wrong["boolean"] = 0 if are_flags(self.flags) else count
        for kind in DATES.keys() & self.others.keys():
            if plain:  # no date is one number
                wrong[kind] = count
                continue
            like_a_date = pc.match_substring_regex(unmarked, _DATED[kind])
            bad = unmarked.filter(pc.invert(like_a_date))
            dated = unmarked.filter(like_a_date)
            bad = pa.concat_arrays([bad, to_days(dated, self.missing_values, kind)[1].drop_null()])
            wrong[kind] = len(bad)
            self._keep(kind, bad)
        return wrong

    def _note_words(self, values: pa.Array) -> None:
        if not pa.types.is_string(values.type):
            self.words.add("")
            return
        cells = pc.fill_null(pc.utf8_trim_whitespace(values), "")
        absent = pc.is_in(cells, pa.array(["", *self.missing_values], pa.string()))
        self.words |= set(pc.unique(cells.filter(absent)).to_pylist())

    def _note_units(self, text: pa.Array) -> None:
        parts = pc.extract_regex(text, _WRITTEN).drop_null()
        if not len(parts):
            return
        units = pc.binary_join_element_wise(parts.field("before"), parts.field("after"), "")
        self.units |= set(pc.unique(units).to_pylist())

    def _keep(self, kind: str, others: pa.Array) -> None:
        kept = self.examples.setdefault(kind, [])
        kept += others[: _EXAMPLES - len(kept)].to_pylist()

    def _sum(self, numbers: NDArray[np.float64]) -> None:
        numbers = numbers[~np.isnan(numbers)]
        with np.errstate(invalid="ignore"):  # larger ones number no rows
            bits = numbers.astype(np.int64).astype(np.uint64)
        self.lowest = min(self.lowest, numbers.min(initial=np.inf))
        self.sums = [
            (self.sums[0] + int(bits.sum())) % 2**64,
            (self.sums[1] + int(np.square(bits).sum())) % 2**64,
        ]

    @property
    def counting(self) -> bool:
        """Whether the values are n whole numbers, each 1 more than another, in any order: they
        number the rows."""
        n = self.count - self.marks
        if self.exact != "integer" or n < 3:
            return False
        low = int(self.lowest)
        total = n * low + n * (n - 1) // 2
        squares = n * low**2 + low * n * (n - 1) + (n - 1) * n * (2 * n - 1) // 6
        return [total % 2**64, squares % 2**64] == self.sums

    @property
    def sums_up(self) -> bool:
        """Whether the last value is the sum of all others: whole numbers, more than a few small
        ones, and not zeros but for a few, as their squares tell."""
        last = self.last if self.exact == "integer" and self.count > 4 else None
        if last is None or not re.fullmatch(r"[+-]?\d+", last) or abs(int(last)) <= self.count:
            return False
        square = int(last) ** 2
        others = (self.sums[1] - square) % 2**64
        few = square < 2**62 and square <= 4 * others <= 4 * square
        return not few and 2 * int(last) % 2**64 == self.sums[0]

    @property
    def nearly(self) -> str:
        """The type that most values of a column of texts have; empty if there is none."""
        nearest = min(self.others, key=self.others.__getitem__, default="")
        return nearest if self.type == "text" and self.others.get(nearest) else ""

    @property
    def type(self) -> str:
        """``boolean``, ``integer``, ``number``, ``text``, one of DATES; ``empty`` if all values are
        missing."""
        if self.exact != "text" or self.slashed:
            return self.exact
        few = {
            kind: count
            for kind, count in self.others.items()
            if count <= LOOSE * (self.count - self.marks)
        }
        return min(few, key=lambda kind: few[kind]) if few and self.count > self.marks else "text"

    @property
    def exact(self) -> str:
        """The type that every value has."""
        if not self.count:
            return "empty"
        fitting = [kind for kind, count in self.others.items() if not count]
        ambiguous = {"day/month/year", "month/day/year"} <= {*fitting}
        return "text" if not fitting or (ambiguous and "date" not in fitting) else fitting[0]


_GAP = r"[\s._-]+"
_GAPS = rf"(?<=[^\W\d]){_GAP}(?=\w)|(?<=\d){_GAP}(?=[^\W\d])"
"""What some programs write between the words of a name; between digits it tells numbers apart."""


def are_flags(names: Iterable[str]) -> bool:
    """Return whether the different values of a column are booleans: all are in FLAGS, but not n for
    near beside f for far."""
    spellings = {name.lower() for name in names}
    return FLAGS.keys() >= spellings and not (spellings & {"n", "y"} and spellings & {"f", "t"})


def absent_names(names: Sequence[str], marks: Iterable[str] = ()) -> list[str]:
    """Return the names that probably mean that none is known: an error of a spreadsheet, and -1 or
    99 beside 0, 1, 2 and so on.

    Args:
        marks: Others that mean it, in lower case.
    """
    # A tag such as #fun! is none.
    errors = {name for name in names if name == name.upper() and re.match(_ERROR, name)}
    found = [name for name in names if name in errors or name.lower() in marks]
    if found or not all(re.fullmatch(r"-?\d{1,9}", name) for name in names):
        return found
    numbers = sorted(map(int, names))
    for others, at in ((numbers[1:], 0), (numbers[:-1], -1)):
        if len(others) > 2 and others[0] in (0, 1) and others[-1] - others[0] < len(others):
            mark = numbers[at]
            nines = set(str(abs(mark))) == {"9"} and (mark < 0 or mark > 10 * others[-1])
            if nines or mark == -1:
                return [str(mark)]
    return []


_CP1252 = bytes(range(0x80, 0xA0)).decode("cp1252", "ignore")
_HIGH = re.compile(rf"[\x80-\xff{_CP1252}]{{2,}}")
_ENDS = "‘’“”–—…»²³"
"""They come after a letter."""


def broken_text(holder: str, texts: Iterable[str | None]) -> str:
    """Say which word is UTF-8 that was read as Latin-1, and what it was; nothing if none is.

    Args:
        holder: ``a class of COLUMN``.
    """
    for text in filter(None, texts):
        for word in text.split() if not text.isascii() else ():
            if (meant := _HIGH.sub(_as_utf_8, word)) != word:
                return (
                    f"{holder} holds {word!r}, which is {meant!r} in UTF-8 that was read as Latin-1: "
                    "read it as UTF-8, or save it anew where it was right"
                )
    return ""


def _as_utf_8(run: re.Match[str]) -> str:
    """Return what some letters beyond ASCII were; as they are where that is no usual text."""
    letters = run[0]
    try:
        codes = (each.encode("cp1252" if each in _CP1252 else "latin-1") for each in letters)
        meant = b"".join(codes).decode()
    except UnicodeDecodeError:
        return letters
    rare = any(0x180 <= ord(each) < 0x370 for each in meant)  # É” would be one
    ends = _ENDS if len(letters) == 2 else _ENDS + "®™"  # été…» and Nescafé®’s would be Chinese
    single = len(meant) == 1 and not letters[1:].strip(ends)
    return letters if rare or single or (len(letters) == 2 and ord(meant) >= 0x180) else meant


def twin_names(noun: str, names: Sequence[str]) -> str:
    """Say that some names are probably one: P1 and p-1, 1 and 01 and 1.0; nothing where none are.

    Args:
        noun: ``groups of COLUMN``.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        bare = unicodedata.normalize("NFKC", name).casefold().replace("\u200b", "").strip()
        bare = re.sub(_GAPS, "", re.sub(r"\.0+$", "", bare))
        alike.setdefault(re.sub(r"(^|[^\d.])0+(?=\d)", r"\1", bare), []).append(name)
    twins = [group for group in alike.values() if len(group) > 1]
    if not twins:
        return ""
    first, second = twins[0][:2]
    count = f"{len(twins) if len(twins) > 1 else 'two'} {noun} may be one under two names"
    return f"{count}, for example {first!r} and {second!r}: they count as two"

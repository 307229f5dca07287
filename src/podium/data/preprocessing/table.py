"""Rows of a table as one float32 array: numbers less their center, categories as their index."""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from podium.data.option_text import changed, written
from podium.data.profile import MISSING, UNKNOWN
from podium.data.rows import Applied, Fitted, Problem, Rows
from podium.data.schema import DATES, NUMBERS
from podium.data.values import (
    MISSING_VALUES,
    to_days,
    to_flags,
    to_numbers,
    to_text,
)
from podium.errors import InvalidInput

_OFFSET = 16
"""A number that lies farther from zero than so many times its spread loses digits as a float32."""

_DAY = 86_400
"""Seconds of a day."""

_MOST_NAMED = 9
"""Further columns of a row that are named as unreadable."""

MAX_CATEGORIES = 1000
"""Most categories of a column, unless asked for more."""

_FEW_ROWS, _MOST_JOINED = 1000, 1 << 20
"""Of so many rows, columns are read together, and so many values at a time."""

_JOINED = (pa.string(), pa.float64(), pa.int64())
"""Types of columns that are read together: each value of them is read by itself."""

Values: TypeAlias = "NDArray[np.float64] | pa.Array"
F = TypeVar("F", bound="Field")


@dataclass(frozen=True, kw_only=True)
class Field:
    """A column of the file and what its values are."""

    name: str
    """In the file."""

    kind: str
    """``number`` or ``category``."""

    type: str
    """Type of the values in the file: ``integer``, ``number``, ``boolean``, ``text``, or one of
    podium.data.schema.DATES."""

    loose: bool = False
    """Whether values that are not numbers are missing, since the training data had a few of
    them."""

    def read(self, values: pa.Array, missing: Sequence[str]) -> tuple[Values, pa.Array]:
        """Return numbers (NaN where missing) or texts (null where missing), and the texts that are
        neither."""
        if self.kind == "number":
            numbers, bad = (
                to_days(values, missing, self.type)
                if self.type in DATES
                else to_numbers(values, missing)
            )
            beyond = np.abs(numbers) > np.finfo(np.float32).max
            if beyond.any():
                bad = pc.if_else(
                    pa.array(beyond), pa.array([str(number) for number in numbers]), bad
                )
                numbers[beyond] = np.nan
            return numbers, pa.nulls(len(bad), pa.string()) if self.loose else bad
        text = to_flags(values, missing) if self.type == "boolean" else to_text(values, missing)
        text = _without_exponents(text) if self.type in NUMBERS else text
        return text, pa.nulls(len(text), pa.string())


@dataclass(frozen=True, kw_only=True)
class TableColumn(Field):
    """A fitted column."""

    categories: tuple[str, ...] = ()
    """The values of a category by index; the last two are ``(missing)`` and ``(unknown)``."""

    fill: float = 0.0
    """The median of a number in the training part, which stands for a missing value."""

    center: float = 0.0
    """Offset subtracted from a number before it becomes a float32; 0 unless digits would be
    lost."""

    clock: bool = False
    """Whether a column follows with the seconds of the day, since dates in the training part have a
    time."""

    indicator: bool = False
    """Whether a column follows that is 1 where the value is missing."""

    missing: int = 0
    """Missing values in the training part."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what it is in the input."""
        more = (f"{self.name}_seconds",) if self.clock else ()
        return (self.name, *more, f"{self.name}_missing") if self.indicator else (self.name, *more)


@dataclass(frozen=True, kw_only=True)
class TablePreprocessing(Fitted):
    """Preprocessing of rows to the input ``table``: float32 [n, columns].

    A missing number becomes the median of the training part, a missing category the category
    ``(missing)``, and a category that the training part does not have ``(unknown)``. Dates are days
    since 1970-01-01 UTC; if they have a time, its seconds follow. A number of which float32 would
    lose digits is the difference from its center.
    """

    columns: tuple[TableColumn, ...]
    """In the order of the input."""

    missing: str = "fill"
    """``fill``; ``indicator`` also marks filled numbers in a column of their own; ``refuse`` takes
    no missing value."""

    missing_values: tuple[str, ...] = MISSING_VALUES
    """Texts that mean that a value is missing."""

    decimal: str = ""
    """As in the CSV file that it was fitted on, see podium.data.rows.RowFile."""

    thousands: str = ""
    """As decimal."""

    input: str = "table"

    kind: str = "table"

    def __post_init__(self) -> None:
        if self.missing not in ("fill", "indicator", "refuse"):
            raise InvalidInput(
                f"missing cannot be {self.missing!r}", "one of fill, indicator, refuse"
            )
        if not self.columns:
            raise InvalidInput("the table has no column besides its target")

    @classmethod
    def fit(
        cls,
        fields: Sequence[Field],
        rows: Iterable[Rows],
        *,
        missing: str = "fill",
        missing_values: Sequence[str] = MISSING_VALUES,
        max_categories: int = MAX_CATEGORIES,
        decimal: str = "",
        thousands: str = "",
    ) -> "TablePreprocessing":
        """Find medians and categories.

        Args:
            rows: Those of the training part, and no others.
            missing: What to do with missing values.
            missing_values: Texts that mean that a value is missing.
            decimal: The file's, if it was said or is a comma.
            thousands: The file's, if it was said.

        Raises:
            InvalidInput: A value is not what its column holds, a column has too many categories or
                no value.
        """
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            fits = [
                _Fit(field, Path(scratch, str(at)), max_categories)
                for at, field in enumerate(fields)
            ]
            for batch in rows:
                for fit, (_, *read) in zip(fits, _read(fields, batch, missing_values), strict=True):
                    fit.add(batch, *read)
            indicator = missing == "indicator"
            columns = tuple(fit.column(indicator) for fit in fits)
        fitted = cls(
            columns=columns,
            missing=missing,
            missing_values=tuple(missing_values),
            decimal=decimal,
            thousands=thousands,
        )
        names = Counter(name for column in columns for name in column.names)
        twice = sorted(name for name, count in names.items() if count > 1)
        if twice:
            raise InvalidInput(
                f"two columns of the input would be called {twice[0]}", "rename the column"
            )
        return fitted

    @property
    def notation(self) -> dict[str, str]:
        """Format of a new CSV file: arguments of podium.data.row_files.open_rows. A point that
        was said stays one; else it is what is usual, since the same columns may come from another
        program."""
        usual = {"decimal": "."} if self.decimal == "." else {"usual": self.decimal or "."}
        return {**usual, "thousands": self.thousands}

    def apply(self, rows: Rows) -> Applied:
        """Turn rows into the input; a row with a value that cannot be read is left out and
        reported."""
        absent = [column.name for column in self.columns if column.name not in rows.columns]
        if absent:
            raise InvalidInput(
                f"{rows.file} has no column {absent[0]!r}, which the model needs",
                f"columns needed: {', '.join(column.name for column in self.columns)}",
            )
        width = sum(len(column.names) for column in self.columns)
        table = np.empty((len(rows), width), np.float32)
        problems: list[Problem] = []
        missing, at = dict[str, int](), 0
        for column, values, bad in _read(self.columns, rows, self.missing_values):
            problems += _bad_values(rows, column, bad)
            codes, absent_here = _encode(column, values)
            unread = pc.is_valid(bad).to_numpy(zero_copy_only=False)
            lacking = np.flatnonzero(absent_here & ~unread)
            if self.missing == "refuse":
                problems += [
                    rows.problem(int(row), column.name, "the value is missing") for row in lacking
                ]
            elif len(lacking):
                missing[column.name] = len(lacking)
            table[:, at] = np.floor(codes) if column.clock else codes
            if column.clock:
                table[:, at + 1] = (codes - np.floor(codes)) * _DAY
            at += len(column.names)
            if column.indicator:
                table[:, at - 1] = absent_here
        problems = _of_each_row(problems)
        kept = np.flatnonzero(~np.isin(rows.numbers, [problem.row for problem in problems]))
        chosen = table if len(kept) == len(table) else table[kept]
        return Applied(
            kept=kept, inputs={self.input: chosen}, problems=tuple(problems), missing=missing
        )


def _read(
    fields: Sequence[F], rows: Rows, missing_values: Sequence[str]
) -> Iterator[tuple[F, Values, pa.Array]]:
    """Yield each field with what its ``read`` returns.

    Of a few rows the columns of numbers are read as one: a call takes longer than what it does.
    """
    count, alike = len(rows), dict[pa.DataType, list[F]]()
    for field in fields if count <= _FEW_ROWS else ():
        of = rows.columns[field.name].type
        if field.kind == "number" and field.type not in DATES and of in _JOINED:
            alike.setdefault(of, []).append(field)
    joined = dict[str, tuple[Values, pa.Array]]()
    step = _MOST_JOINED // max(1, count)
    for of, group in alike.items():
        for first in range(0, len(group), step):
            some = group[first : first + step]
            cells = pa.chunked_array([rows.columns[field.name] for field in some], of)
            numbers, bad = replace(some[0], loose=False).read(
                cells.combine_chunks(), missing_values
            )
            for at, field in enumerate(some):
                start = at * count
                texts = pa.nulls(count, pa.string()) if field.loose else bad.slice(start, count)
                joined[field.name] = numbers[start : start + count], texts
    for field in fields:
        read = joined.get(field.name)
        yield field, *(read or field.read(rows.columns[field.name], missing_values))


def _encode(column: TableColumn, values: Values) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    if column.kind == "number":
        numbers = cast("NDArray[np.float64]", values)
        absent = np.isnan(numbers)
        return np.where(absent, column.fill, numbers) - column.center, absent
    absent = pc.is_null(values).to_numpy(zero_copy_only=False)
    indices = pc.index_in(values, pa.array(column.categories, pa.string()))
    codes = pc.fill_null(indices, column.categories.index(UNKNOWN)).to_numpy(zero_copy_only=False)
    return np.where(absent, column.categories.index(MISSING), codes), absent


def _bad_values(rows: Rows, field: Field, bad: pa.Array) -> list[Problem]:
    if bad.null_count == len(bad):
        return []
    wanted = (
        f"a date ({DATES[field.type]})" if field.type in DATES else "a number that float32 can hold"
    )
    valid = np.flatnonzero(pc.is_valid(bad).to_numpy(zero_copy_only=False))
    return [
        rows.problem(int(row), field.name, f"{bad[int(row)].as_py()[:60]!r} is not {wanted}")
        for row in valid
    ]


def _of_each_row(problems: Iterable[Problem]) -> list[Problem]:
    """Return one problem of each row, in the order of rows, whose reason names further columns."""
    found = dict[int, list[Problem]]()
    for problem in sorted(problems, key=lambda problem: problem.row):
        found.setdefault(problem.row, []).append(problem)
    return [
        replace(first, reason="; ".join([first.reason, *map(_of_column, others[:_MOST_NAMED])]))
        for first, *others in found.values()
    ]


def _of_column(problem: Problem) -> str:
    return f"{problem.where.partition(f', row {problem.row}, ')[2]}: {problem.reason}"


class _Fit:
    """Collects the values of one column."""

    def __init__(self, field: Field, scratch: Path, max_categories: int) -> None:
        self.field, self.scratch, self.max_categories = field, scratch, max_categories
        self.categories: set[str] = set()
        self.missing = self.count = 0

    def add(self, rows: Rows, values: Values, bad: pa.Array) -> None:
        if problems := _bad_values(rows, self.field, bad):
            raise InvalidInput(
                str(problems[0]),
                f"as categories: {written('categories', self.field.name)}; without "
                f"it: {written('drop', self.field.name)}",
            )
        self.count += len(rows)
        if self.field.kind == "number":
            numbers = cast("NDArray[np.float64]", values)
            present = numbers[~np.isnan(numbers)]
            with self.scratch.open("ab") as stream:
                present.tofile(stream)
            self.missing += len(numbers) - len(present)
            return
        texts = cast(pa.Array, values)
        self.missing += texts.null_count
        self.categories |= set(pc.unique(texts.drop_null()).to_pylist())
        if len(self.categories) > self.max_categories:
            raise InvalidInput(
                f"{rows.file}, column {self.field.name}: more than {self.max_categories:,} categories in the training "
                f"part (up to row {rows.numbers[-1]}), for example {rows.columns[self.field.name][0].as_py()!r}",
                f"leave it out: {written('drop', self.field.name)}; or allow more: "
                f"{written('max_categories', 10 * self.max_categories)}",
            )

    def column(self, indicator: bool) -> TableColumn:
        name, kind, common = self.field.name, self.field.kind, asdict(self.field)
        if kind == "category":
            categories = (*sorted(self.categories - {MISSING, UNKNOWN}), MISSING, UNKNOWN)
            return TableColumn(**common, categories=categories, missing=self.missing)
        if self.missing == self.count:
            raise InvalidInput(
                f"column {name} has no value in the training part ({self.count:,} rows)",
                f"leave it out: {written('drop', name)}",
                changed("drop", name),
            )
        numbers = np.fromfile(self.scratch, np.float64)
        return TableColumn(
            **common,
            fill=float(np.median(numbers)),
            center=0.0 if self.field.type in DATES else _center(numbers),
            clock=self.field.type in DATES and bool((numbers % 1 != 0).any()),
            missing=self.missing,
            indicator=indicator and self.missing > 0,
        )


def _center(numbers: NDArray[np.float64]) -> float:
    """Return the offset subtracted before conversion to float32: the median, or 0 if no digits are
    lost without it."""
    if (numbers.astype(np.float32) == numbers).all():
        return 0.0
    low, middle, high = np.quantile(numbers, (0.25, 0.5, 0.75), method="lower").tolist()
    spread = high - low or float(numbers.std())
    return middle if abs(middle) > _OFFSET * spread > 0 else 0.0


def _without_exponents(text: pa.Array) -> pa.Array:
    """Return texts of a column of numbers with 1e5 as 100000 and 1e-05 as 0.00001, as another
    program writes them."""
    found = pc.match_substring_regex(text, r"^[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d\d?$")
    if not pc.any(found).as_py():
        return text
    nothing = pa.nulls(1, pa.string())[0]  # pa.scalar would import pandas
    encoded = pc.if_else(found, text, nothing).dictionary_encode()
    plain = [
        np.format_float_positional(float(number), trim="-")
        for number in encoded.dictionary.to_pylist()
    ]
    return pc.coalesce(pa.array(plain, pa.string()).take(encoded.indices), text)

"""Rows of a table file, read in batches."""

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from podium.data.option_text import typed
from podium.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A row, picture or sentence that cannot be used."""

    row: int
    """Its place among all, from 1; in a table, the header is not counted."""

    where: str
    """Its name: ``people.csv, row 3, column age``, or a picture's file."""

    reason: str
    """For example ``'abc' is not a number``."""

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


OnProblem = Callable[[Problem], object]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Some rows in the order of the file."""

    file: str
    """Name of the file, for errors."""

    numbers: NDArray[np.int64]
    """[n], of each row in the file, from 1; of a file that follows another, from the row after that
    one's last."""

    columns: Mapping[str, pa.Array]
    """Each of length n."""

    above: int = 0
    """Rows of the file that this one follows."""

    def __len__(self) -> int:
        return len(self.numbers)

    def only(self, chosen: NDArray[np.bool_]) -> "Rows":
        """Return those of the rows where ``chosen`` [n] is true."""
        mask = pa.array(chosen)
        columns = {name: values.filter(mask) for name, values in self.columns.items()}
        return replace(self, numbers=self.numbers[chosen], columns=columns)

    def slice(self, start: int, count: int) -> "Rows":
        """Return at most ``count`` of the rows, from a position on."""
        columns = {name: values.slice(start, count) for name, values in self.columns.items()}
        return replace(self, numbers=self.numbers[start : start + count], columns=columns)

    def problem(self, position: int, column: str, reason: str) -> Problem:
        """Name what is wrong with the value at a position of these rows."""
        row = int(self.numbers[position]) - self.above
        return Problem(row=row, where=f"{self.file}, row {row}, column {column}", reason=reason)


def _is_fraction(name: str) -> bool:
    return bool(re.fullmatch(r"[+-]?\d*[.,]\d+", name))


@dataclass(frozen=True, kw_only=True)
class RowFile:
    """A table file; nothing of it is kept in memory."""

    name: str

    columns: tuple[str, ...]
    """Names in the order of the file."""

    note: str
    """How it is read, for people: ``CSV, separated by a comma``."""

    index: tuple[str, ...] = ()
    """Columns that a DataFrame was written with as its index: they number the rows."""

    decimal: str = ""
    """Decimal mark in the file, if it was set or is a comma; the rows have a point."""

    thousands: str = ""
    """Thousands separator in the file, if it was set; the rows have none."""

    grouped: tuple[str, ...] = ()
    """Columns of CSV or JSON lines in which 1.234 beside 987 is read as a little more than 1."""

    batches: Callable[[OnProblem | None], Iterator[Rows]]
    """Read it from the start. Rows that cannot be read go to the function, or are refused if it is
    None."""

    def __iter__(self) -> Iterator[Rows]:
        return self.batches(None)

    def require(self, column: str, *, role: str) -> None:
        """Refuse a file that lacks a column.

        Raises:
            InvalidInput: The message names what the file has.
        """
        if column not in self.columns:
            near = difflib.get_close_matches(column, self.columns, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            more = f", … {len(self.columns)} in all" if len(self.columns) > 20 else ""
            if 2 * sum(map(_is_fraction, self.columns)) >= len(self.columns):
                meant = "the first line has to name the columns; "
            if len(self.columns) == 1 and column in self.columns[0].split():
                to = f"{self.name.rpartition('.')[0]}-commas.csv"
                divide = "if blanks divide values: sed 's/^ *//; s/ *$//; s/  */,/g' FILE > NEW"
                more = f"; {typed(divide, self.name, to)}"
            raise InvalidInput(
                f"{self.name} has no column {column!r}, which is {role}",
                f"{meant}its columns ({self.note}): {', '.join(self.columns[:20])}{more}",
            )

    def followed_by(self, other: "RowFile") -> "RowFile":
        """Return the rows of this file and then those of another, which has the same columns.

        Raises:
            InvalidInput: It lacks a column.
        """
        for column in self.columns:
            if column not in self.index:  # of two parts of a DataFrame, one may be written without
                other.require(column, role=f"a column of {self.name}")

        def batches(on_problem: OnProblem | None) -> Iterator[Rows]:
            above = 0
            for rows in self.batches(on_problem):
                above = int(rows.numbers[-1])
                yield rows
            for rows in other.batches(on_problem):
                columns = {
                    name: rows.columns.get(name, pa.nulls(len(rows), pa.string()))
                    for name in self.columns
                }
                yield replace(rows, numbers=rows.numbers + above, columns=columns, above=above)

        return replace(self, batches=batches)


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The inputs of a model for those items of a batch that could be read."""

    kept: NDArray[np.int64]
    """[m], positions in the batch, ascending."""

    inputs: Mapping[str, NDArray[Any]]
    """By name, each [m, …]."""

    problems: tuple[Problem, ...] = ()
    """Problems of the items that could not be read, in order."""

    missing: Mapping[str, int] = field(default_factory=dict)
    """Missing values by column, where there are some."""

    def check(self, hint: str | None = None) -> "Applied":
        """Return it, unless something could not be read.

        Raises:
            InvalidInput: It names the first problem.
        """
        if self.problems:
            more = f" ({len(self.problems)} like this here)" if len(self.problems) > 1 else ""
            raise InvalidInput(f"{self.problems[0]}{more}", hint)
        return self


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Preprocessing that is stored with a dataset and with the models trained on it."""

    def to_json(self) -> dict[str, Any]:
        """Return what ``preprocessing.json`` holds."""
        return cast(dict[str, Any], json.loads(json.dumps(asdict(self))))

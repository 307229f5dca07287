"""Common parts of row sources: the file, the types of its columns, and the columns with a role of
their own."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from podium.data.blocks import are_numbers
from podium.data.option_text import changed, written
from podium.data.options import DataOptions
from podium.data.preprocessing import TablePreprocessing, TextPreprocessing
from podium.data.row_files import open_rows
from podium.data.rows import RowFile, Rows
from podium.data.schema import DATES, NUMBERS, Array, InputDescription
from podium.data.sources.fetching import fetch_file
from podium.data.sources.source import Raw
from podium.data.split import Split
from podium.data.values import (
    FLAGS,
    MARKS,
    MISSING_VALUES,
    Guess,
    absent_names,
    to_days,
    to_flags,
    to_numbers,
    to_text,
    twin_names,
)
from podium.display.text import plural
from podium.errors import InvalidInput
from podium.files.arrays import new_map

_log = logging.getLogger(__name__)

ROWS = (
    "target",
    "group",
    "cluster",
    "time",
    "gap",
    "part",
    "delimiter",
    "encoding",
    "missing_values",
    "decimal",
    "thousands",
)
"""The options of all sources of rows."""

_MOST_COLUMNS = 50_000

_MANY_NUMBERS = 100
"""A target of more different whole numbers is a quantity rather than a class."""

_FEW_NUMBERS = 10
"""A target of so few different whole numbers is a class, also where they are written as 1.0."""

_MANY_CLASSES = 1000
"""A target of more different texts is a name rather than a class."""


FEW_CLASSES = 20
"""A target of more different texts than that, in more than half of the rows, is a name as well."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A file that has been read once."""

    file: RowFile

    count: int

    guesses: Mapping[str, Guess]

    missing_values: tuple[str, ...]
    """Texts that mean that a value is missing."""

    kept: Mapping[str, pa.Array]
    """All values of the columns with a role."""

    held_out: int = 0
    """How many of the last rows are from a file of their own, the test part."""

    @classmethod
    def of(cls, file: RowFile, location: str, options: DataOptions) -> "Survey":
        """Read a whole file once, a few megabytes at a time; keep the columns with a role.

        Args:
            file: As open_table opens it.
            location: What the user called it.
            options: Name the columns with a role.

        Raises:
            InvalidInput: The file lacks a row, or cannot be read.
        """
        missing_values = (
            MISSING_VALUES if options.missing_values is None else options.missing_values
        )
        kept = (*options.roles.values(), *filter(None, [options.cluster]))
        chunks: dict[str, list[pa.Array]] = {name: [] for name in kept}
        left_out = (
            set(options.drop) - chunks.keys() - set(options.split_by)
        )  # may hold what no table can
        guesses = {
            name: Guess(name, missing_values) for name in file.columns if name not in left_out
        }
        count = held_out = 0
        for rows in file:
            count += len(rows)
            held_out += len(rows) if rows.above else 0
            for name in guesses:
                values = rows.columns[name]
                try:
                    guesses[name].add(values)
                except InvalidInput as error:
                    message = f"{location}, column {name}: {error.message}"
                    if name in chunks:
                        raise InvalidInput(message, "write it as one of these") from None
                    hint = f"leave the column out: {written('drop', name)}"
                    raise InvalidInput(message, hint, changed("drop", name)) from None
                if name in chunks:
                    chunks[name].append(values)
        if not count:
            raise InvalidInput(f"{location} has no row below its header")
        return cls(
            file=file,
            count=count,
            guesses=guesses,
            missing_values=missing_values,
            kept={name: _joined(values) for name, values in chunks.items()},
            held_out=held_out,
        )

    def unfitted(self, location: str, options: DataOptions, keys: NDArray[np.uint64]) -> Raw:
        """Return the rows by number with their target and what divides them; their inputs are
        fitted later.

        Args:
            location: What the user called the file.
            options: Name the columns with a role.
            keys: Hash of each row.

        Raises:
            InvalidInput: A value of a column with a role is missing, or not what it must be.
        """
        kind, classes, target = self._target(options.target, options.kind)
        return Raw(
            items=Split(inputs={"row": np.arange(self.count)}, target=target),
            name=options.name or Path(location).name.partition(".")[0],
            kind=kind,
            classes=classes,
            descriptions={"row": InputDescription()},
            target_name=options.target,
            source=location,
            groups=self._groups(options.group) if options.group else None,
            clusters=self._groups(options.cluster, "cluster") if options.cluster else None,
            times=self._times(options.time) if options.time else None,
            given=self._given(options.part) if options.part or self.held_out else None,
            keys=keys,
            originals=self._originals,
        )

    def _originals(self, positions: NDArray[np.int64] | None) -> Iterator[pa.RecordBatch]:
        assert positions is not None  # a table has no parts of its own
        for rows in self.chosen(positions):
            if len(rows):
                yield pa.record_batch(dict(rows.columns))

    def chosen(self, positions: NDArray[np.int64]) -> Iterator[Rows]:
        """Read the rows at these positions once more."""
        mask = np.zeros(self.count, bool)
        mask[positions] = True
        for rows in self.file:
            yield rows.only(mask[rows.numbers - 1])

    def fitted(
        self,
        raw: Raw,
        preprocessing: TablePreprocessing | TextPreprocessing,
        descriptions: Mapping[str, InputDescription],
        scratch: Path,
        hint: str,
    ) -> Raw:
        """Return what `unfitted` returned with the inputs that preprocessing makes of all rows.

        Args:
            raw: The rows by number.
            preprocessing: Fitted on the training rows.
            hint: What to do about a row that cannot be read.

        Raises:
            InvalidInput: A row cannot be read.
        """
        arrays: dict[str, Array] = {}
        for rows in self.file:
            start = int(rows.numbers[0]) - 1
            for name, values in preprocessing.apply(rows).check(hint).inputs.items():
                if name not in arrays:
                    shape = (self.count, *values.shape[1:])
                    arrays[name] = new_map(scratch / f"{name}.npy", values.dtype, shape)
                arrays[name][start : start + len(rows)] = values
        return replace(
            raw,
            items=Split(inputs=arrays, target=raw.items.target),
            descriptions=descriptions,
            preprocessing=preprocessing.to_json(),
        )

    def _target(self, name: str, kind: str) -> tuple[str, tuple[str, ...], Array]:
        """Return the kind, the names of the classes, and indices into them or floats, [n].

        Args:
            kind: ``classification``, ``regression``, or empty to follow from the values.

        Raises:
            InvalidInput: A value is missing or not a number where one is needed, or there is one
                class only.
        """
        guess = self.guesses[name]
        self._require_all(name, "the target")
        if guess.exact in DATES:
            raise InvalidInput(
                f"{self.file.name}: the target {name} holds dates", "make it a number, or a class"
            )
        quantity = (
            not kind
            and guess.exact == "number"
            and are_quantities(name, self._numbers(name, "the target"))
        )
        if kind == "regression" or quantity:
            return "regression", (), self._numbers(name, "the target")
        return "classification", *self._classes(name, certain=kind == "classification")

    def _groups(self, name: str, role: str = "group") -> NDArray[np.str_]:
        self._require_all(name, f"the {role}")
        text = to_text(self.kept[name], self.missing_values)
        names = pc.unique(text).to_pylist()
        if twins := twin_names(f"{role}s of {name}", names):
            _log.warning(twins)
        if role == "group":
            self._warn_of_absent(name, text, names)
        return np.asarray(text.to_numpy(zero_copy_only=False), np.str_)

    def _warn_of_absent(self, column: str, groups: pa.Array, names: Sequence[str]) -> None:
        """Warn of several rows of a group whose name probably means that none is known."""
        marks = set(MARKS if self.missing_values == MISSING_VALUES else ())
        if len(names) > _FEW_NUMBERS and not any(re.match(r"-([02-9]|\d\d)", at) for at in names):
            marks.add("-1")
        for absent in absent_names(names, marks):
            count = pc.sum(pc.equal(groups, absent)).as_py()
            if count > 1:
                _log.warning(
                    "%s are of the group %r of %s: if that means that none is known, rows that belong together "
                    "may be in two parts; remove them, or give each a group of its own",
                    plural(count, "row"),
                    absent,
                    column,
                )

    def _times(self, name: str) -> Array:
        """Return the time of each row, [n]: datetime64 if they are dates, also written as 20260131
        or 31012026.

        Raises:
            InvalidInput: A value is missing, neither a date nor a number, or a date of which nobody
                knows whether the day or the month is first.
        """
        self._require_all(name, "the time")
        guess = self.guesses[name]
        if guess.slashed and guess.exact not in DATES:
            raise _unclear(self.file.name, name, str(guess.first))
        kind = guess.nearly or guess.type
        if kind in DATES:
            days, others = to_days(self.kept[name], self.missing_values, kind)
            for row in np.flatnonzero(others.is_valid())[:1]:
                raise InvalidInput(
                    f"{self._where(row, name)}: the time must be a date, but is {others[row].as_py()!r}",
                    "write dates as 2026-01-31, or remove such rows",
                )
            self._refuse(name, "the time", np.isnan(days))
            return (days * 86_400_000_000).astype("datetime64[us]")
        numbers = self._numbers(name, "the time")
        return times_of(numbers, self.file.name, name, first=str(guess.first))

    def _given(self, name: str) -> NDArray[np.str_]:
        """Return what the file calls the part of each row, [n]; without such a column, that of its
        file.

        Raises:
            InvalidInput: A value is missing.
        """
        if self.held_out:
            return np.repeat(["train", "test"], [self.count - self.held_out, self.held_out])
        self._require_all(name, "the part")
        text = to_text(self.kept[name], self.missing_values)
        return np.asarray(text.to_numpy(zero_copy_only=False), np.str_)

    def _require_all(self, name: str, role: str) -> None:
        if self.guesses[name].missing:
            absent = pc.is_null(to_text(self.kept[name], self.missing_values)).to_numpy(
                zero_copy_only=False
            )
            self._refuse(name, role, absent)

    def _refuse(self, name: str, role: str, absent: NDArray[np.bool_]) -> None:
        rows = np.flatnonzero(absent)
        if not len(rows):
            return
        more = f" (and in {len(rows) - 1:,} more)" if len(rows) > 1 else ""
        value = self.kept[name][int(rows[0])].as_py()
        is_text = isinstance(value, str) and bool(value.strip())
        name_it = f"; if {value!r} is a name: {written('missing_values', '')}" if is_text else ""
        raise InvalidInput(
            f"{self._where(rows[0], name)}: {role} is missing{more}",
            f"remove these rows{name_it}",
        )

    def _where(self, position: int, name: str) -> str:
        return f"{self.file.name}, row {position + 1}, column {name}"

    def _numbers(self, name: str, role: str) -> NDArray[np.float64]:
        numbers = to_numbers(self.kept[name], self.missing_values)[0]
        wrong = np.flatnonzero(~are_numbers(numbers))
        if len(wrong):
            value = str(self.kept[name][int(wrong[0])].as_py())
            raise InvalidInput(
                f"{self._where(wrong[0], name)}: {role} must be a finite number that float32 holds, but is "
                f"{value[:60]!r}",
                "write dates as 2026-01-31" if role == "the time" else None,
            )
        return numbers

    def _classes(self, name: str, *, certain: bool) -> tuple[tuple[str, ...], Array]:
        """Return the names of the classes, whole numbers by value and others by name, and indices
        into them, [n]."""
        guess = self.guesses[name]
        kind = guess.exact
        if kind in NUMBERS:  # - and unknown are missing among numbers
            numbers = to_numbers(self.kept[name], self.missing_values)[0]
            self._refuse(name, "the target", np.isnan(numbers))
        text = to_text(self.kept[name], self.missing_values)
        encoded = (
            _first_written(text, self.missing_values) if kind == "boolean" else text
        ).dictionary_encode()
        seen = encoded.dictionary.to_pylist()
        where = f"{self.file.name}: the target {name}"
        mostly_unique = len(seen) > FEW_CLASSES and 2 * len(seen) > len(text)
        if not certain and kind == "integer" and (mostly_unique or len(seen) > _MANY_NUMBERS):
            hint = (
                f"if it is a quantity: {written('kind', 'regression')}; if they are classes: "
                f"{written('kind', 'classification')}"
            )
            raise InvalidInput(f"{where} has {len(seen):,} different whole numbers", hint)
        if not certain and mostly_unique and guess.others.get("number"):
            others = plural(guess.others["number"], "value")
            raise InvalidInput(
                f"{where} holds numbers, but for {others} such as {guess.examples['number'][0]!r}",
                "write numbers, or remove these rows; if these are classes: "
                f"{written('kind', 'classification')}",
            )
        if not certain and (mostly_unique or len(seen) > _MANY_CLASSES):
            hint = (
                f"is it the right column? if these are classes: {written('kind', 'classification')}"
            )
            raise InvalidInput(
                f"{where} has {len(seen):,} different values in {len(text):,} rows, for example {seen[0]!r}",
                hint,
            )
        if len(seen) < 2:
            raise InvalidInput(
                f"{where} is always {seen[0]!r}", "a classification needs two classes or more"
            )
        if kind == "integer" and len(seen) > _FEW_NUMBERS and not certain:
            _log.warning(
                "the target %s has %d different whole numbers, so these are classes; if it is a quantity: %s",
                name,
                len(seen),
                written("kind", "regression"),
            )
        values = to_numbers(pa.array(seen), ())[0] if kind in NUMBERS else np.zeros(len(seen))
        names = [FLAGS[name.lower()] for name in seen] if kind == "boolean" else seen
        order = sorted(range(len(seen)), key=lambda at: (values[at], names[at]))
        rank = np.empty(len(seen), np.int64)
        rank[order] = np.arange(len(seen))
        return tuple(seen[at] for at in order), rank[encoded.indices.to_numpy()]


def are_quantities(name: str, target: Array) -> bool:
    """Return whether floats are numbers to predict: 0.0 and 1.0 are classes, which pandas wrote
    with a point."""
    values = np.unique(target)
    if len(values) > _FEW_NUMBERS or not np.array_equal(values, np.trunc(values)):
        return True
    named = ", ".join(f"{value:g}" for value in values)
    _log.warning(
        "the target %s has the values %s alone, so these are classes; if it is a quantity: %s",
        name,
        named,
        written("kind", "regression"),
    )
    return False


def _first_written(text: pa.Array, missing_values: Sequence[str]) -> pa.Array:
    """Return each boolean in its first spelling: Yes for yes, too."""
    encoded = to_flags(text, missing_values).dictionary_encode()
    first = [pc.index(encoded.indices, at).as_py() for at in range(len(encoded.dictionary))]
    return text.take(pa.array(first, pa.int64())).take(encoded.indices)


def times_of(numbers: NDArray[np.float64], file: str, name: str, *, first: str) -> Array:
    """Return numbers as times: datetime64 if they are dates such as 20260131 or 31012026, else as
    they are.

    Args:
        first: The first one as it is written.

    Raises:
        InvalidInput: Nobody knows whether the day or the month is first, or they hold several
            units.
    """
    dates = _dates_in(numbers)
    if len(dates) > 1 or _may_be_short_dates(numbers):
        raise _unclear(file, name, first)
    if len(units := np.unique(_UNITS_SINCE.searchsorted(numbers))) > 1 and all(units % 2):
        raise InvalidInput(
            f"{file}: the time {name} holds more than one unit, such as seconds and "
            f"milliseconds since 1970: {numbers.min():.0f} and {numbers.max():.0f}",
            "write all of them in one unit",
        )
    return dates[0] if dates else numbers


def _unclear(file: str, name: str, example: str) -> InvalidInput:
    return InvalidInput(
        f"{file}: the time {name} may have the day, the month or the year first, as in {example!r}",
        "write dates as 2026-01-31",
    )


def _dates_in(numbers: NDArray[np.float64]) -> list[Array]:
    """Return whole numbers as the dates that all of them can be: with the year, the day or the
    month first."""
    with np.errstate(invalid="ignore"):  # larger ones are no dates
        whole = numbers.astype(np.int64)
    if not ((whole == numbers) & (whole >= 1_01_1900) & (whole <= 31_12_2100)).all():
        return []
    first, second, last = whole // 1_000_000, whole // 10_000 % 100, whole % 10_000
    readings = [
        (whole // 10_000, whole // 100 % 100, whole % 100),
        (last, second, first),
        (last, first, second),
    ]
    found: list[Array] = []
    for year, month, day in readings:
        if (
            (year >= 1900)
            & (year <= 2100)
            & (month >= 1)
            & (month <= 12)
            & (day >= 1)
            & (day <= 31)
        ).all():
            start = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
            dates = start + (day - 1).astype("timedelta64[D]")
            found += [] if any((dates == other).all() for other in found) else [dates]
    return found


_UNITS_SINCE = np.array([10.0**power for power in (9, 10, 12, 13, 15, 16, 18, 19)])
"""Seconds since 1970 in the years 2001 to 2286 lie between the first two, then milliseconds, and so
on."""


def _may_be_short_dates(numbers: NDArray[np.float64]) -> bool:
    """Return whether all may be dates such as 310126 or 013126, whose order is not that of time:
    they stay within days and months, which a counter passes."""
    if not ((numbers >= 1_01_00) & (numbers <= 31_12_99) & (numbers % 1 == 0)).all():
        return False
    first, second, last = numbers // 10_000, numbers // 100 % 100, numbers % 100
    if (
        second.min() < 1
        or max(first.max(), second.max()) > 31
        or min(first.max(), second.max()) > 12
    ):
        return False
    days, months, years = (len(np.unique(part)) for part in (first, second, last))
    return days > 1 or (months > 1 and years < 50)


def open_table(location: str, options: DataOptions, scratch: Path) -> RowFile:
    """Open a file, followed by that of the test part if there is one, that has the columns with a
    role.

    Args:
        location: Path or URI.
        options: How it is read, and the columns with a role; a target is needed.
        scratch: Directory for a copy of what is remote.

    Raises:
        InvalidInput: No target is named, or the file lacks a column or cannot be read.
    """
    file = _open(location, options, scratch)
    if isinstance(options.test, str):
        if options.part:
            raise InvalidInput(
                f"the column {options.part} names the test part, but {options.test} is given too",
                "leave out test or part",
            )
        file = file.followed_by(
            _open(options.test, options, scratch / "test", usual=file.decimal or ".")
        )
    if not options.target:
        raise InvalidInput(
            f"no target of {location} is named",
            "name its column: target=NAME, or podium data prepare … --target NAME",
        )
    clusters = {"cluster": options.cluster} if options.cluster else {}
    for role, column in {**options.roles, **clusters}.items():
        file.require(column, role=f"the {role}")
    if len(file.columns) > _MOST_COLUMNS:
        raise InvalidInput(
            f"{location} has {len(file.columns):,} columns, but a table may have {_MOST_COLUMNS:,}",
            "keep those that vary most, or make an array of them: podium data prepare npz:FILE",
        )
    return file


def _joined(chunks: Sequence[pa.Array]) -> pa.Array:
    """Return the values of a column; as text where two files hold them in two types."""
    if len({values.type for values in chunks}) > 1:
        chunks = [to_text(values, ()) for values in chunks]
    return pa.chunked_array(chunks).combine_chunks()


def _open(location: str, options: DataOptions, scratch: Path, usual: str = "") -> RowFile:
    path = fetch_file(location, scratch)
    return open_rows(
        path,
        name=location,
        delimiter=options.delimiter,
        encoding=options.encoding,
        decimal=options.decimal,
        thousands=options.thousands,
        usual=usual,
    )

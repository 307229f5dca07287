"""Table files: CSV and JSON lines (also gzipped), and Parquet.

Text is handed on as text: what a value means is decided by ``podium.data.values``, in one way for
all formats.
"""

import codecs
import csv
import gzip
import io
import json
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from statistics import median
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv, parquet

from podium.data.option_text import changed, typed, written
from podium.data.rows import OnProblem, Problem, RowFile, Rows
from podium.data.values import AFTER, BEFORE, GROUPS
from podium.display.text import plural
from podium.errors import Damaged, InvalidInput, NotFound, suggestion
from podium.files.documents import unique

_BLOCK = 8 << 20
"""Bytes of CSV at a time; no row may be longer."""

csv.field_size_limit(max(csv.field_size_limit(), _BLOCK))

BATCH, _HEAD = 65_536, 1000
"""Rows of Parquet or JSON lines at a time, and of those that show how numbers are written."""

_MOST_CELLS = 1 << 23
"""Values of JSON lines at a time."""

_Object = dict[str, str | float | bool | None]

_DELIMITERS = {",": "a comma", "\t": "a tab", ";": "a semicolon", "|": "a bar"}
CSV_ENDINGS, PARQUET_ENDINGS, JSON_ENDINGS = (
    (".csv", ".tsv", ".txt", ".gz"),
    (".parquet", ".pq"),
    (".jsonl", ".ndjson"),
)
_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
_ARCHIVES = (".zip", ".bz2", ".xz", ".zst", ".7z", ".rar", ".tar", ".tgz")
_PANDAS = {
    (".feather", ".arrow"): "feather",
    (".pkl", ".pickle"): "pickle",
    (".orc",): "orc",
    (".dta",): "stata",
    (".sav",): "spss",
    (".sas7bdat",): "sas",
    (".h5", ".hdf", ".hdf5"): "hdf",
}
"""Endings of files that a function read_… of pandas reads."""

_SQLITE = (".db", ".sqlite", ".sqlite3")
_OTHERS = {".json", *PARQUET_ENDINGS, *_SPREADSHEETS, *_ARCHIVES, *_SQLITE}
_OTHERS.update(*_PANDAS)
"""Endings of what is no CSV in a .gz either."""

_JSON_LINES = (
    "write a line for each object: "
    'python -c "import json, sys; [print(json.dumps(row)) for row in json.load(open(sys.argv[1]))]" '
    "FILE > NEW"
)
_FLAT_JSON = (
    'a line is an object of plain values, for example {"age": 31, "city": "Bonn"}; jq makes a.b of '
    """nested ones: jq -c '[paths(type != "object" and type != "array") as $p | {key: ($p | """
    """map(tostring) | join(".")), value: getpath($p)}] | from_entries' FILE > NEW"""
)
_MAGIC = {
    b"PK\x03\x04": ("a spreadsheet or an archive", "save it as CSV"),
    b"\xd0\xcf\x11\xe0": ("a spreadsheet of Excel", "save it as CSV"),
    b"SQLite format 3": ("a database of SQLite", "let its name end in .db"),
    b"PAR1\x15": ("Parquet", "let its name end in .parquet"),
    b"\x1f\x8b": ("gzipped", "let its name end in .gz"),
}
"""First bytes of files that are called CSV and are something else, what that is, and a hint."""


_EXPONENT = r"([eE][+-]?\d+)?"
_DECIMAL, _GROUPED = (
    {
        sign: re.compile(rf"{BEFORE}({pattern}){_EXPONENT}{AFTER}")
        for sign, pattern in patterns.items()
    }
    for patterns in (
        {
            sign: rf"\d*{sign}(\d{{1,2}}|\d{{4,}})|(0|\d{{4,}}){sign}\d+"
            rf"|[1-9]\d{{0,2}}([{other}{GROUPS}]\d{{3}})+{sign}\d+"
            for sign, other in ((",", r"\."), (r"\.", ","))
        },
        {sign: rf"[1-9]\d{{0,2}}({sign}\d{{3}})+" for sign in (",", r"\.")},
    )
)
"""A number with a decimal comma or point; and 1,234 or 1.234, which may be a thousand and more."""

_MOST_TITLES, _LEAST_ALIKE = 50, 0.8
"""Lines above a header that are looked through, and the share of rows below it that have as many
cells."""

_NUMBER = re.compile(r"\s*[-+]?[\d.,]*\d\s*")
_HUNDREDS = re.compile(rf"{BEFORE}\d{{1,3}}{AFTER}")
_LEAST_GROUPED, _LEAST_SMALL = 3, 2
"""Cells of a column with one group of digits, and different whole numbers from 1 to 999 beside
them, that show together that it is one."""

_INDEX = r"Unnamed: \d+(\.\d+)?|__index_level_\d+__"
"""Names that pandas gives the index of a DataFrame without a name."""


def open_rows(
    path: Path,
    *,
    name: str = "",
    delimiter: str = "",
    encoding: str = "utf-8",
    decimal: str = "",
    thousands: str = "",
    usual: str = "",
) -> RowFile:
    """Open a table file and read the names of its columns.

    Args:
        path: Ends in .csv, .tsv, .txt, .jsonl, .ndjson (also .gz), .parquet or .pq.
        name: For errors; the path if empty.
        delimiter: What separates values. If empty, that of comma, tab, semicolon and bar by which
            the header has most columns, as many as the first row.
        encoding: Encoding of a CSV file; one that begins as UTF-16 does is read so.
        decimal: ``.`` or ``,`` of numbers in texts. If empty, a comma in a CSV file whose values
            are separated by something else, and in which more columns have numbers with a decimal
            comma, or points between groups of digits, than the other way round.
        thousands: What groups digits in texts; if empty, a point where the decimal is a comma.
        usual: The decimal of a file that does not show it, unless commas separate its values.

    Raises:
        NotFound: There is no such file.
        InvalidInput: It is another kind of file, empty, or its header has no or equal names.
        Damaged: It cannot be read as what its name says.
    """
    name = name or str(path)
    if not path.is_file():
        raise NotFound(
            f"there is no file {name}"
            if not path.exists()
            else f"{name} is {'a directory' if path.is_dir() else 'no file'}, not a table",
            _joined_by(path, name),
        )
    decimal = decimal or {".": ",", ",": "."}.get(thousands, "")
    packed = path.suffix.lower() == ".gz"
    suffix = (Path(path.stem) if packed else path).suffix.lower()
    if suffix in PARQUET_ENDINGS and not packed:
        return open_parquet(path, name, decimal, thousands, usual)
    if suffix in JSON_ENDINGS:
        return _open_json(path, name, decimal, thousands, usual)
    if suffix in CSV_ENDINGS or (packed and suffix not in _OTHERS):
        return _open_csv(path, name, delimiter, encoding, decimal, thousands, usual)
    endings = ", ".join((*CSV_ENDINGS, *PARQUET_ENDINGS, *JSON_ENDINGS))
    raise InvalidInput(
        f"a table ends in {endings}, but this file is {name}", _converted_by(name, suffix)
    )


def _joined_by(path: Path, name: str) -> str | None:
    """Say how the files in a directory become one table; a folder year=2026 is a column year."""
    name = name.rstrip("/")
    if any(path.rglob("*.parquet")):
        read, write = "parquet.read_table(sys.argv[1])", "parquet.write_table"
        code = f"import sys; from pyarrow import parquet; {write}({read}, sys.argv[2])"
        return typed(f'make it one file: python -c "{code}" FILE NEW', name, f"{name}.parquet")
    if any(path.glob("*.csv")):
        join = "join its files, if all have one header: awk 'FNR > 1 || NR == 1' FILE/*.csv > NEW"
        return typed(join, name, f"{name}.csv")
    return None


def _converted_by(name: str, suffix: str) -> str:
    """Say how a file with another ending becomes a table."""
    plain = name[:-3] if name.lower().endswith(".gz") else name
    stem = plain[: len(plain) - len(suffix)]
    kind = next((kind for endings, kind in _PANDAS.items() if suffix in endings), "")
    if kind:
        code = f"import sys, pandas; pandas.read_{kind}(sys.argv[1]).to_parquet(sys.argv[2])"
        write = f'write it as Parquet: python -c "{code}" FILE NEW'
        return typed(write, name, f"{stem}.parquet")
    if suffix == ".json":
        return typed(_JSON_LINES, name, f"{stem}.jsonl")
    if suffix in _SQLITE:
        select = 'write it as CSV: sqlite3 -header -csv FILE "SELECT * FROM TABLE" > NEW'
        return typed(select, name, f"{stem}.csv")
    hints = dict.fromkeys(_SPREADSHEETS, "save it as CSV") | dict.fromkeys(
        (*_ARCHIVES, *PARQUET_ENDINGS), "unpack it"
    )
    return hints.get(suffix, "rename it after what it is")


def _check_names(names: Sequence[str], file: str) -> tuple[str, ...]:
    trimmed = tuple(unicodedata.normalize("NFC", name.strip()) for name in names)
    first = dict[str, int]()
    for at, name in enumerate(trimmed, 1):
        if not name:
            raise InvalidInput(
                f"{file}: column {at} has no name in the header",
                "name it, or write the file without an index (pandas: index=False)",
            )
        if first.setdefault(name, at) != at:
            raise InvalidInput(
                f"{file}: column {at} is called {name!r}, as column {first[name]} is",
                "every column needs a name of its own",
            )
    return trimmed


def _open_csv(
    path: Path, name: str, delimiter: str, encoding: str, decimal: str, thousands: str, usual: str
) -> RowFile:
    encoding = known_encoding(path, name, encoding)
    lines, delimiter, above = _first_lines(path, name, delimiter, encoding)
    raw = lines[0]
    names = _check_names(_named(raw, lines[1:]), name)
    ungrouped = [[cell.replace(thousands, "") for cell in line] for line in lines[1:]]
    sign = decimal or _find_decimal(ungrouped if thousands else lines[1:], delimiter, usual)

    def batches(on_bad: OnProblem | None) -> Iterator[Rows]:
        for rows in _csv_batches(path, name, raw, names, delimiter, encoding, above, on_bad):
            columns = {of: _pointed(values, sign, thousands) for of, values in rows.columns.items()}
            yield replace(rows, columns=columns)

    note = f"CSV, separated by {_DELIMITERS.get(delimiter, repr(delimiter))}"
    note += ", with decimal commas" if sign == "," else ""
    note += f", below {plural(above, 'line')}" if above else ""
    return RowFile(
        name=name,
        columns=names,
        note=note,
        batches=batches,
        index=_index_among(names),
        decimal=decimal or sign.strip("."),
        thousands=thousands,
        grouped=() if decimal or sign == "," else _grouped_among(names, lines[1:]),
    )


def _named(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Sequence[str]:
    """Name the column of the index of pandas or the row names of R, whose header is empty, and
    those without a value, which separators at the end of lines make, as pandas does."""
    if len(names) < 2:
        return names
    filled = {at for row in rows for at, cell in enumerate(row) if at and cell.strip()}
    named, taken = list(names), set(names)
    for at, name in enumerate(names):
        if not name.strip() and at not in filled:
            named[at] = f"Unnamed: {at}" + ".1" * (f"Unnamed: {at}" in taken)
    return named


def _index_among(names: Sequence[str], listed: Sequence[str] = ()) -> tuple[str, ...]:
    return tuple(name for name in names if name in listed or re.fullmatch(_INDEX, name))


def known_encoding(path: Path, name: str, encoding: str) -> str:
    """Return the encoding of a text file: UTF-16 or UTF-32 if it begins as such a file does.

    Raises:
        InvalidInput: There is none of this name, the file is no text, or it seems to be UTF-16, but
            does not begin so.
    """
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        encodings = ["utf-8", "latin-1", "cp1252", "utf-16"]
        raise InvalidInput(
            f"there is no encoding {encoding!r}", suggestion(encoding, encodings)
        ) from None
    if codecs.lookup(encoding).name != "utf-8":
        return encoding
    encoding = "utf-8"
    try:
        with _open_bytes(path) as stream:
            head = stream.read(200)
    except (OSError, EOFError):
        return encoding  # a sentence says why when its header is read
    for magic, (kind, hint) in _MAGIC.items():
        if head.startswith(magic):
            raise InvalidInput(f"{name} is not text, but {kind}", hint)
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # one of UTF-16 and two NULs
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for odd, wide in ((1, "utf-16-le"), (0, "utf-16-be")):
        if head[odd::2].count(0) > len(head) / 4:
            raise InvalidInput(
                f"{name} is not utf-8, but probably UTF-16",
                written("encoding", wide),
                changed("encoding", wide),
            )
    return encoding


def _find_decimal(lines: Sequence[Sequence[str]], delimiter: str, usual: str) -> str:
    """Return what most columns of numbers have as decimal, or do not have since it groups digits; a
    point where as many have either."""
    if delimiter == "," and usual != ",":
        return "."
    width = max(map(len, lines), default=0)
    columns = [[line[at].strip() for line in lines if at < len(line)] for at in range(width)]
    commas, points = (
        sum(_has(sign, cells) or _groups(other, cells, certain=bool(usual)) for cells in columns)
        for sign, other in ((",", r"\."), (r"\.", ","))
    )
    if commas or points:
        return "," if commas > points else "."
    if usual:
        return usual if delimiter != "," else "."
    return "," if any(_GROUPED[","].fullmatch(cell) for cells in columns for cell in cells) else "."


def _has(sign: str, cells: Sequence[str]) -> bool:
    return any(_DECIMAL[sign].fullmatch(cell) for cell in cells)


def _groups(sign: str, cells: Iterable[str], *, certain: bool) -> bool:
    """Return whether a sign groups the digits of a column: surely in 1.234.567, very likely in
    1.234 beside 987 and 12 but never 1.5 or 2345. One whole number may mark what is missing."""
    grouped, small = list[str](), list[str]()
    for cell in cells:
        if _GROUPED[sign].fullmatch(cell):
            grouped.append(cell)
        elif _HUNDREDS.fullmatch(cell):
            small.append(cell)
        elif any(map(str.isdigit, cell)):
            return False
    if any(len(re.findall(rf"{sign}\d{{3}}", cell)) > 1 for cell in grouped):
        return True
    counts = {cell for cell in small if not cell.startswith(("0", "-", "\u2212", "("))}
    money = any(not cell.isdigit() for cell in counts)  # $987: nothing else is written so
    enough = money or len(counts) >= _LEAST_SMALL
    return not certain and enough and len(grouped) >= _LEAST_GROUPED


def _grouped_among(names: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the columns in which a point very likely groups digits, though it is read as a decimal."""
    found = []
    for name, cells in zip(names, zip_longest(*rows, fillvalue=""), strict=False):
        pointed = {"." in cell for cell in cells if any(map(str.isdigit, cell))}
        if len(pointed) > 1 and _groups(r"\.", map(str.strip, cells), certain=False):
            found.append(name)
    return tuple(found)


def _decimal_of_texts(rows: Sequence[Sequence[str]], decimal: str, usual: str) -> str:
    """Return the decimal of numbers that a typed file holds as texts: a point, unless they show the
    comma that is usual."""
    return decimal or _find_decimal(rows, ";" if usual == "," else ",", usual)


def _pointed(values: pa.Array, decimal: str, thousands: str) -> pa.Array:
    """Return texts with numbers written with a decimal point and without groups of digits."""
    thousands = thousands if thousands != decimal else ""
    thousands = thousands or ("." if decimal == "," else "")
    if decimal == "." and not thousands:
        return values
    signs = [re.escape(sign) for sign in (thousands, *GROUPS) if sign]
    grouped, comma = "|".join(rf"({sign}\d{{3}})+" for sign in signs), re.escape(decimal)
    digits = rf"([1-9]\d{{0,2}}({grouped})|\d+)({comma}\d*)?|{comma}\d+"
    number = pc.match_substring_regex(values, rf"^{BEFORE}({digits}){_EXPONENT}{AFTER}$")
    plain = pc.replace_substring_regex(values, "|".join(signs), "")
    return pc.if_else(number, pc.replace_substring(plain, decimal, "."), values)


def _first_lines(
    path: Path, name: str, delimiter: str, encoding: str
) -> tuple[list[list[str]], str, int]:
    """Return the cells of the first records as they are, of the header and at least of one row, the
    delimiter, and how many lines stand above the header: Excel's ``sep=;``, titles."""
    if len(delimiter.encode()) > 1:
        raise InvalidInput(
            f"a delimiter is one character, but got {delimiter!r}", "for example ; or a tab"
        )
    try:
        with _open_bytes(path) as stream:
            content = stream.read(_BLOCK)
    except (OSError, EOFError) as error:
        raise Damaged(f"{name} cannot be read: {error}") from error
    head = content.decode(encoding, "replace").removeprefix("\ufeff")
    every = list(islice(io.StringIO(head, newline=""), _HEAD))
    lines = [line for line in every if line.strip()]
    if not lines:
        raise InvalidInput(f"{name} is empty", "the first line names the columns")
    said = re.fullmatch(r'(?i)"?sep=(.)"?\s*', lines[0])
    above = int(said is not None)
    if said and len(lines) > 1:
        delimiter, lines = delimiter or said[1], lines[1:]
    try:
        if titles := _count_titles(lines, delimiter):
            at = [at for at, line in enumerate(every) if line.strip()]
            above = at[titles + above]
            lines = lines[titles:]
        delimiter = delimiter or _find_delimiter(lines)
        cells = [line for line in csv.reader(lines, delimiter=delimiter) if line]
        if "\ufffd" in "".join(cells[0]) and "\ufffd".encode() not in content:
            raise _wrong_encoding(f"{name}, header", encoding)
        _check_quotes(head, delimiter, name)
        return cells, delimiter, above
    except csv.Error as error:
        raise Damaged(f"{name} is not readable as CSV: {error}") from None


def _count_titles(lines: Sequence[str], delimiter: str) -> int:
    """Return how many lines stand above the header, as titles do that fill one cell, or half of
    those of a usual row. Only in the first line may what looks like a header be any names."""
    first = 0
    for above in range(min(_MOST_TITLES, len(lines) // 2)):
        records = csv.reader(lines[above:], delimiter=delimiter or _find_delimiter(lines[above:]))
        header = next(records)
        filled = _count_filled(header)
        first = first or filled
        if filled < 2:  # it is a title, or a text of an only column: many long ones take seconds
            continue
        rows = list(records)
        alike = sum(len(row) == len(header) for row in rows)
        certain = alike > max(_LEAST_ALIKE * len(rows), above) and re.search(
            r"[^\W\d]", lines[above]
        )
        wide = 2 * filled > median(map(_count_filled, rows or [[]]))
        if wide and (not above or certain):
            title = lines[0].strip() if first == 1 else ""
            return above if above and _are_names(header, rows, title) else 0
    return 0


def _count_filled(cells: Sequence[str]) -> int:
    return sum(cell.strip() != "" for cell in cells)


def _are_names(header: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> bool:
    """Return whether a line below others has names of columns, not the first of the texts with
    commas that an only column holds: one stands above numbers, or else there are three or a title
    of several words, and no blank begins one as it does after a comma in a text.

    Args:
        title: The first line, if it is one cell.
    """
    if any(
        not _NUMBER.fullmatch(name)
        and 2 * sum(map(bool, map(_NUMBER.fullmatch, cells))) > len(rows)
        for name, cells in zip(header, zip_longest(*rows, fillvalue=""), strict=False)
    ):
        return True
    several = len(header) > 2 or " " in title
    return bool(title) and several and not any(name.startswith(" ") for name in header[1:])


def _check_quotes(head: str, delimiter: str, name: str) -> None:
    """Refuse a quotation mark that nothing closes: all rows up to the next one are in its cell.

    Raises:
        InvalidInput: Within a cell of several lines, text follows what would close it.
    """
    if '"' not in head:
        return
    lines = io.StringIO(head, newline="").readlines()
    records = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        above = records.line_num
        try:
            if next(records, None) is None:
                return
        except csv.Error:
            after = re.match(r'(?:[^"]|"")*" *([^" \r\n])', lines[records.line_num - 1])
            if records.line_num - above > 1 and after and after[1] != delimiter:
                raise InvalidInput(
                    f"{name}, line {above + 1}: a quotation mark begins a text that goes on to line "
                    f"{records.line_num}, where more text follows its end",
                    'write a mark within a text twice, and the text in marks: "a 3"" pipe"',
                ) from None


def _find_delimiter(lines: Sequence[str]) -> str:
    """Return what divides the header into most columns, through no quotation marks, and the first
    row into as many; a bar only where nothing else does. Of equal ones the first, and where none
    does, what the header has most often outside of quotation marks."""
    columns = {}
    for sign in _DELIMITERS:
        header, *row = islice(csv.reader(lines, delimiter=sign), 2)
        marks = (cell.replace('"', '""') for cell in header if '"' in cell)
        whole = all(f'"{cell}"' in lines[0] for cell in marks)
        fits = whole and all(len(cells) == len(header) for cells in row)
        columns[sign] = len(header) if fits else 1
    best = max((sign for sign in _DELIMITERS if sign != "|"), key=columns.__getitem__)
    best = best if columns[best] > 1 else "|"  # which stands in texts more often than between them
    if columns[best] > 1:
        return best
    return max(_DELIMITERS, key=re.sub(r'"[^"]*"', "", lines[0]).count)


def _open_bytes(path: Path) -> IO[bytes]:
    stream: IO[bytes] = pa.input_stream(str(path), compression="detect")
    return stream


def _csv_batches(
    path: Path,
    name: str,
    raw: list[str],
    names: tuple[str, ...],
    delimiter: str,
    encoding: str,
    above: int,
    on_bad: OnProblem | None,
) -> Iterator[Rows]:
    bad: list[Problem] = []
    refused: list[InvalidInput] = []

    def judge(row: Any) -> str:
        reason = f"has {plural(row.actual_columns, 'value')}, but the header names {row.expected_columns}"
        bad.append(_problem(name, row.number - 1 - above, reason))
        if on_bad is None:
            hint = "remove the line if it is a note; else is the delimiter right, and are texts with it quoted?"
            ends = row.text.rstrip("\r\n").endswith(delimiter)
            more = row.actual_columns == row.expected_columns + 1
            if bad[-1].row == 1 and more and (ends or len(names) > 1):
                sign = r"\t" if delimiter == "\t" else delimiter
                how = rf'/\r?$/, "{sign}&"' if ends else f'/^/, "{sign}"'
                rows = "rows end with a delimiter" if ends else "rows begin with names, as R's do"
                add = f"if {rows}, so must the header: awk 'NR == {above + 1} {{sub({how})}} 1' FILE > NEW"
                added = typed(add, name, f"{name.removesuffix(path.suffix)}-header.csv")
                hint = f"are texts with a delimiter quoted? {added}"
            refused.append(InvalidInput(str(bad[-1]), hint))
            return "error"
        on_bad(bad[-1])
        return "skip"

    with _explained(name, names, encoding, above, refused):
        reader = arrow_csv.open_csv(
            _open_bytes(path),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=_BLOCK, encoding=encoding, skip_rows=above
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=judge
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(raw, pa.string()), strings_can_be_null=False
            ),
        )
        last = 0
        for batch in reader:
            numbers = _numbers_without(last, batch.num_rows, [row.row for row in bad])
            if len(numbers):
                last = int(numbers[-1])
                columns = dict(zip(names, batch.columns, strict=True))
                yield _without_headers(
                    Rows(file=name, numbers=numbers, columns=columns), raw, on_bad
                )


def _without_headers(rows: Rows, raw: list[str], on_bad: OnProblem | None) -> Rows:
    """Leave out and report the header where it comes again, as in files that were joined.

    Raises:
        InvalidInput: It comes again, and nobody takes reports.
    """
    again = np.ones(len(rows), np.bool_)
    for name, values in zip(raw, rows.columns.values(), strict=True):
        if not again.any():
            return rows
        again &= pc.equal(pc.utf8_trim_whitespace(values), name.strip()).to_numpy(
            zero_copy_only=False
        )
    for row in rows.numbers[again].tolist():
        problem = _problem(rows.file, row, "is the header again")
        if on_bad is None:
            raise InvalidInput(str(problem), "remove the line; were files joined?")
        on_bad(problem)
    return rows.only(~again)


def _numbers_without(above: int, count: int, skipped: list[int]) -> NDArray[np.int64]:
    later = [row for row in skipped if row > above]
    candidates = np.arange(above + 1, above + 1 + count + len(later), dtype=np.int64)
    return candidates[~np.isin(candidates, later)][:count]


@contextmanager
def _explained(
    name: str, names: tuple[str, ...], encoding: str, above: int, refused: list[InvalidInput]
) -> Iterator[None]:
    """Turn what Arrow says about a CSV file into a sentence with file, row and column; a refused
    row is the reason."""
    try:
        yield
    except (pa.ArrowInvalid, UnicodeError, OSError, EOFError) as error:
        text = str(error)
        if refused:
            raise refused[-1] from None
        cell = re.search(r"CSV column #(\d+): Row #(\d+)", text)
        if isinstance(error, UnicodeError) or "UTF8" in text:
            where = (
                f", row {int(cell[2]) - 1 - above}, column {names[int(cell[1])]}" if cell else ""
            )
            raise _wrong_encoding(f"{name}{where}", encoding) from None
        if "straddling" in text:
            raise InvalidInput(
                f"{name} has a row longer than {_BLOCK:,} bytes", "is a quotation mark not closed?"
            ) from None
        raise Damaged(f"{name} cannot be read as CSV: {text.splitlines()[0]}") from None


def _wrong_encoding(where: str, encoding: str) -> InvalidInput:
    western = written("encoding", "cp1252")
    hint = f"say how it is encoded, for example {western} (cp932 in Japan, gb18030 in China)"
    return InvalidInput(f"{where}: this is not {encoding}", f"{hint}, or save it as UTF-8")


def open_parquet(
    path: Path, name: str, decimal: str = "", thousands: str = "", usual: str = ""
) -> RowFile:
    """Open a Parquet file, whatever it is called.

    Args:
        decimal: As open_rows takes it, of numbers in columns of texts; so are the others.

    Raises:
        Damaged: It is none.
    """
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            head = next(file.iter_batches(_HEAD), None) if usual == "," and not decimal else None
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"{name} is not readable as Parquet: {str(error).splitlines()[0]}") from None
    names = _check_names(schema.names, name)
    index = _index_among(names, _index_of(schema))
    texts = [
        text.fill_null("").to_pylist() for text in map(_as_text, head or ()) if text is not None
    ]
    sign = _decimal_of_texts(list(zip(*texts, strict=True)), decimal, usual)

    def batches(on_bad: OnProblem | None) -> Iterator[Rows]:
        above = 0
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(BATCH):
                    numbers = np.arange(above + 1, above + 1 + batch.num_rows, dtype=np.int64)
                    above += batch.num_rows
                    columns = {}
                    for of, values in zip(names, batch.columns, strict=True):
                        text = _as_text(values)
                        columns[of] = values if text is None else _pointed(text, sign, thousands)
                    if len(numbers):
                        yield Rows(file=name, numbers=numbers, columns=columns)
        except (pa.ArrowException, OSError) as error:
            message = f"{name} is damaged after row {above}: {str(error).splitlines()[0]}"
            raise Damaged(message) from None

    return RowFile(
        name=name,
        columns=names,
        note="Parquet",
        batches=batches,
        index=index,
        decimal=decimal or sign.strip("."),
        thousands=thousands,
    )


def _as_text(values: pa.Array) -> pa.Array | None:
    """Return a column of texts as such, whichever way they are kept; None for another one."""
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return values.cast(pa.string()) if is_text or pa.types.is_string_view(kind) else None


def _index_of(schema: pa.Schema) -> list[str]:
    try:
        listed = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        return [column for column in listed.get("index_columns", []) if isinstance(column, str)]
    except (ValueError, AttributeError):
        return []


def _open_json(path: Path, name: str, decimal: str, thousands: str, usual: str) -> RowFile:
    names: dict[str, None] = {}
    bad: dict[str, Problem] = {}
    head: list[_Object] = []
    for _, value in _json_lines(path, name, lambda problem: bad.setdefault("first", problem)):
        names |= dict.fromkeys(value)
        head += [value] if len(head) < _HEAD else []
    if not names:
        raise InvalidInput(
            str(bad["first"]) if bad else f"{name} is empty", _json_by_line(path, name)
        )
    trimmed = _check_names(list(names), name)
    most = max(1, min(BATCH, _MOST_CELLS // len(names)))  # each row may have names of its own
    texts = [
        [cell if isinstance(cell, str) else "" for cell in map(value.get, names)]
        for value in head[:most]
    ]
    sign = _decimal_of_texts(texts, decimal, usual)

    def batches(on_bad: OnProblem | None) -> Iterator[Rows]:
        lines = _json_lines(path, name, on_bad)
        while several := list(islice(lines, most)):
            columns = {}
            for column, short in zip(names, trimmed, strict=True):
                cells = [value.get(column) for _, value in several]
                text = pa.array([_cell_text(cell) for cell in cells], pa.string())
                words = [isinstance(cell, str) for cell in cells]
                if any(words):
                    text = pc.if_else(pa.array(words), _pointed(text, sign, thousands), text)
                columns[short] = text
            numbers = np.array([number for number, _ in several], np.int64)
            yield Rows(file=name, numbers=numbers, columns=columns)

    return RowFile(
        name=name,
        columns=trimmed,
        note="JSON lines",
        batches=batches,
        decimal=decimal or sign.strip("."),
        thousands=thousands,
        grouped=() if decimal or sign == "," else _grouped_among(trimmed, texts),
    )


def _json_lines(path: Path, name: str, on_bad: OnProblem | None) -> Iterator[tuple[int, _Object]]:
    for number, line in enumerate(_filled_lines(path, name), 1):
        try:
            yield number, _json_object(line)
        except (ValueError, RecursionError) as error:
            bad = _problem(name, number, f"this is not a JSON object of plain values: {error}")
            if on_bad is None:
                raise InvalidInput(str(bad), _json_by_line(path, name)) from None
            on_bad(bad)


def _json_by_line(path: Path, name: str) -> str:
    """Say how a file of an array, or of nested or longer objects, becomes one of plain ones."""
    to = f"{name.removesuffix(path.suffix)}-lines.jsonl"
    is_array = next(_filled_lines(path, name), b"").lstrip().startswith(b"[")
    return typed(_JSON_LINES if is_array else _FLAT_JSON, name, to)


def _filled_lines(path: Path, name: str) -> Iterator[bytes]:
    packed = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path) if packed else path.open("rb") as stream:
            yield from (line for line in stream if line.strip())
    except (OSError, EOFError, zlib.error) as error:
        raise Damaged(f"{name} cannot be read: {error}") from error


_JSON = json.JSONDecoder(object_pairs_hook=unique)
"""Made once: json.loads makes one for each line."""


def _json_object(line: bytes) -> _Object:
    value = _JSON.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
    if not isinstance(value, dict):
        raise ValueError(f"it is {str(value)[:40]!r}")
    for column, item in value.items():
        if isinstance(item, list | dict):
            raise ValueError(f"{column} is {str(item)[:40]}")
    return {_whole(column): item for column, item in value.items()}


def _cell_text(item: str | float | bool | None) -> str | None:
    if isinstance(item, bool):
        return str(item).lower()
    return None if item is None else _whole(str(item))


def _whole(text: str) -> str:
    """Return text with ? for half a character, as programs leave it that cut texts in their
    middle."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _problem(file: str, row: int, reason: str) -> Problem:
    return Problem(row=row, where=f"{file}, row {row}", reason=reason)

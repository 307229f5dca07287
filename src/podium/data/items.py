"""New pictures, rows and sentences as the inputs of a model, batch by batch."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from podium.data.pictures import ENDINGS, find_pictures, is_picture
from podium.data.preprocessing import (
    ImagePreprocessing,
    Preprocessing,
    TablePreprocessing,
    TextPreprocessing,
)
from podium.data.row_files import BATCH, known_encoding, open_rows
from podium.data.rows import Problem, RowFile, Rows
from podium.data.sources.fetching import fetch_file
from podium.errors import InvalidInput, NotFound
from podium.storage import Storage, connect, local_path

_PICTURES = 256
"""Fetched and decoded at a time."""

_FETCHES = 8
"""Pictures fetched from a storage in parallel."""

_ROWS = 16_384
"""Handed on at a time."""

_MOST_SPARE = 10_000
"""Columns of a table beside those that are needed: each takes ten thousand bytes while it is read."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some items in order."""

    names: tuple[Mapping[str, str | int], ...]
    """[m], what identifies each: its ``picture``, its ``file`` and ``row``, or its ``text``."""

    inputs: Mapping[str, NDArray[Any]]
    """By name, each [m, …]."""

    problems: tuple[Problem, ...]
    """Items that could not be read; they are not among the others."""

    missing: Mapping[str, int] = field(default_factory=dict)
    """Missing values by column, where there are some."""


def read_items(
    preprocessing: Preprocessing,
    items: Sequence[str],
    scratch: Path,
    *,
    delimiter: str = "",
    encoding: str = "utf-8",
) -> Iterator[Batch]:
    """Turn items into inputs exactly as the data was that the model was trained on.

    Args:
        items: Pictures and folders of them; table files; text files with a sentence a line, table
            files with a column of sentences, or sentences.
        scratch: Directory for copies of remote files.
        delimiter: What separates values in CSV files; empty follows from the header.
        encoding: Encoding of CSV and text files.

    Raises:
        NotFound: A remote file is not there, or a folder has no picture.
        InvalidInput: A local file is not there or of another kind, or lacks a column.
    """
    sentences = [
        item for item in items if isinstance(preprocessing, TextPreprocessing) and is_sentence(item)
    ]
    check_files(item for item in items if item not in sentences)
    if isinstance(preprocessing, ImagePreprocessing):
        yield from _read_pictures(
            preprocessing, [picture for item in items for picture in _find(item)], scratch
        )
        return
    if sentences:
        if len(sentences) < len(items):
            raise InvalidInput(
                "name sentences or files, not both",
                f"a sentence, for example: {sentences[0][:60]!r}",
            )
        yield from _read_sentences(preprocessing, sentences)
        return
    for item in items:
        path = fetch_file(item, scratch)
        if isinstance(preprocessing, TextPreprocessing) and path.suffix.lower() == ".txt":
            file = _open_lines(path, item, preprocessing.column, encoding)
        else:
            notation = (
                preprocessing.notation if isinstance(preprocessing, TablePreprocessing) else {}
            )
            file = open_rows(path, name=item, delimiter=delimiter, encoding=encoding, **notation)
        yield from _read_rows(preprocessing, file)


def check_files(items: Iterable[str]) -> None:
    """Check that local files and folders are there.

    Raises:
        InvalidInput: It names the first that is not.
    """
    for item in items:
        if not _is_uri(item) and not os.path.exists(item):
            raise InvalidInput(
                f"there is no file {item}", "items are files, or sentences for a model of sentences"
            )


def is_sentence(item: str) -> bool:
    """Return whether an argument is not meant as a file: it is empty, has a space or no ending."""
    if not item:  # the path of the working directory, to Path
        return True
    return not (_is_uri(item) or os.path.exists(item)) and (" " in item or not Path(item).suffix)


def _is_uri(item: str) -> bool:
    """Return whether an argument begins as a URI does; a sentence may begin with that of a page."""
    scheme, found, _ = item.partition("://")
    supported = scheme in ("file", "s3", "minio")
    return bool(found) and (supported or (scheme.isalnum() and " " not in item))


@dataclass(frozen=True, kw_only=True)
class _Picture:
    """A picture on this machine or in a storage."""

    name: str
    """Its path or URI."""

    storage: Storage | None = None
    """Where it is fetched from; None for a path."""

    key: str = ""

    def file(self, copy: Path) -> Path:
        """Return its file, which is the copy if it is fetched."""
        if self.storage is None:
            return Path(self.name)
        self.storage.fetch(self.key, copy)
        return copy


def _find(item: str) -> Iterator[_Picture]:
    """Yield the pictures that a path or URI names: itself, or those directly in a folder, in order
    of name."""
    if (path := local_path(item)) is not None:
        yield from (_Picture(name=str(picture)) for picture in find_pictures([path]))
        return
    if is_picture(PurePosixPath(item)):
        above, _, key = item.rpartition("/")
        storage = connect(above)
        keys = [key] if storage.head(key) else []
    else:
        storage = connect(item)
        keys = [
            entry.key
            for entry in storage.list()
            if "/" not in entry.key and is_picture(PurePosixPath(entry.key))
        ]
    if not keys:
        raise NotFound(f"there is no picture at {item}", f"pictures end in {', '.join(ENDINGS)}")
    yield from (_Picture(name=storage.join(key), storage=storage, key=key) for key in keys)


def _read_pictures(
    preprocessing: ImagePreprocessing, pictures: Sequence[_Picture], scratch: Path
) -> Iterator[Batch]:
    for start in range(0, len(pictures), _PICTURES):
        chosen = pictures[start : start + _PICTURES]
        with TemporaryDirectory(dir=scratch) as copies, ThreadPoolExecutor(_FETCHES) as pool:
            paths = [
                Path(copies, f"{at}{PurePosixPath(picture.name).suffix}")
                for at, picture in enumerate(chosen)
            ]
            files = list(pool.map(_Picture.file, chosen, paths))
            applied = preprocessing.apply(files, [picture.name for picture in chosen])
        names = tuple({"picture": chosen[at].name} for at in applied.kept)
        yield Batch(names=names, inputs=applied.inputs, problems=applied.problems)


def _read_sentences(preprocessing: Preprocessing, sentences: Sequence[str]) -> Iterator[Batch]:
    assert isinstance(preprocessing, TextPreprocessing)
    columns = {preprocessing.column: pa.array(sentences, pa.string())}
    applied = preprocessing.apply(
        Rows(file="sentences", numbers=np.arange(1, len(sentences) + 1), columns=columns)
    )
    yield Batch(
        names=tuple({"text": sentences[at]} for at in applied.kept),
        inputs=applied.inputs,
        problems=applied.problems,
    )


def _read_rows(
    preprocessing: TablePreprocessing | TextPreprocessing, file: RowFile
) -> Iterator[Batch]:
    check_columns(preprocessing, file.name, len(file.columns))
    unreadable: list[Problem] = []
    for whole in file.batches(unreadable.append):
        for start in range(0, len(whole), _ROWS):
            rows = whole.slice(start, _ROWS)
            applied = preprocessing.apply(rows)
            numbers = rows.numbers[applied.kept].tolist()
            last = int(rows.numbers[-1])
            here = [problem for problem in unreadable if problem.row < last]
            unreadable[:] = [problem for problem in unreadable if problem.row > last]
            problems = tuple(sorted([*here, *applied.problems], key=lambda problem: problem.row))
            yield Batch(
                names=tuple({"file": file.name, "row": number} for number in numbers),
                inputs=applied.inputs,
                problems=problems,
                missing=applied.missing,
            )
    if unreadable:
        yield Batch(names=(), inputs={}, problems=tuple(unreadable))


def check_columns(preprocessing: Preprocessing | None, name: str, count: int) -> None:
    """Refuse a table of too many columns that nobody needs.

    Raises:
        InvalidInput: It has so many.
    """
    needed = preprocessing.columns if isinstance(preprocessing, TablePreprocessing) else ()
    if (spare := count - len(needed)) > _MOST_SPARE:
        raise InvalidInput(
            f"{name} has {spare:,} columns beside those that the model needs, "
            f"but at most {_MOST_SPARE:,} are read",
            "leave them out",
        )


def _open_lines(path: Path, name: str, column: str, encoding: str) -> RowFile:
    encoding = known_encoding(path, name, encoding)

    def batches(on_problem: Any) -> Iterator[Rows]:
        start = 1
        try:
            with path.open(encoding=encoding) as stream:
                while lines := [
                    line.removeprefix("\ufeff").strip() for line in islice(stream, BATCH)
                ]:
                    numbers = np.arange(start, start + len(lines), dtype=np.int64)
                    yield Rows(
                        file=name, numbers=numbers, columns={column: pa.array(lines, pa.string())}
                    )
                    start += len(lines)
        except UnicodeError as error:
            message = f"{name}, after row {start - 1}: this is not {encoding} ({error})"
            raise InvalidInput(message, "say how it is encoded: --encoding cp1252") from None

    return RowFile(name=name, columns=(column,), note="a sentence a line", batches=batches)

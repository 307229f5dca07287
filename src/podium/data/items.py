"""New pictures, rows and sentences as the inputs of a model, batch by batch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from podium.data.pictures import find_pictures
from podium.data.preprocessing import ImagePreprocessing, Preprocessing, TablePreprocessing, TextPreprocessing
from podium.data.rows import BATCH, Problem, RowFile, Rows, open_rows
from podium.data.sources.fetching import fetch_file
from podium.errors import InvalidInput

__all__ = ["Batch", "check_files", "is_sentence", "read_items"]

PICTURES = 256
"""Decoded at a time."""

ROWS = 16_384
"""Handed on at a time."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some items in order."""

    names: tuple[Mapping[str, str | int], ...]
    """[m], what identifies each: its ``picture``, its ``file`` and ``row``, or its ``text``."""

    inputs: Mapping[str, NDArray[Any]]
    """By name, each [m, …]."""

    problems: tuple[Problem, ...]
    """Items that could not be read; they are not among the others."""


def read_items(
    preprocessing: Preprocessing, items: Sequence[str], scratch: Path, *, delimiter: str = "", encoding: str = "utf-8"
) -> Iterator[Batch]:
    """Turn items into inputs exactly as the data was that the model was trained on.

    Args:
        preprocessing: Stored with the model.
        items: Pictures and folders of them; table files; text files with a sentence a line, table files with a column
            of sentences, or sentences.
        scratch: Directory for copies of remote files.
        delimiter: Of CSV files; empty follows from the header.
        encoding: Of CSV and text files.

    Raises:
        NotFound: A remote file is not there, or a folder has no picture.
        InvalidInput: A local file is not there or of another kind, or lacks a column.
    """
    sentences = [item for item in items if isinstance(preprocessing, TextPreprocessing) and is_sentence(item)]
    check_files(item for item in items if item not in sentences)
    if isinstance(preprocessing, ImagePreprocessing):
        yield from _read_pictures(preprocessing, find_pictures(map(Path, items)))
        return
    if sentences:
        if len(sentences) < len(items):
            raise InvalidInput("name sentences or files, not both", f"a sentence, for example: {sentences[0][:60]!r}")
        yield from _read_sentences(preprocessing, sentences)
        return
    for item in items:
        path = fetch_file(item, scratch)
        if isinstance(preprocessing, TextPreprocessing) and path.suffix.lower() == ".txt":
            file = _open_lines(path, item, preprocessing.column, encoding)
        else:
            file = open_rows(path, name=item, delimiter=delimiter, encoding=encoding)
        yield from _read_rows(preprocessing, file)


def check_files(items: Iterable[str]) -> None:
    """Check that local files and folders are there.

    Raises:
        InvalidInput: It names the first that is not.
    """
    for item in items:
        if "://" not in item and not Path(item).exists():
            raise InvalidInput(f"there is no file {item}", "items are files, or sentences for a model of sentences")


def is_sentence(item: str) -> bool:
    """Return whether an argument is not meant as a file: it has a space or no ending."""
    return "://" not in item and not Path(item).exists() and (" " in item or not Path(item).suffix)


def _read_pictures(preprocessing: ImagePreprocessing, files: Sequence[Path]) -> Iterator[Batch]:
    for start in range(0, len(files), PICTURES):
        chosen = files[start : start + PICTURES]
        applied = preprocessing.apply(chosen)
        names = tuple({"picture": str(chosen[at])} for at in applied.kept)
        yield Batch(names=names, inputs=applied.inputs, problems=applied.problems)


def _read_sentences(preprocessing: Preprocessing, sentences: Sequence[str]) -> Iterator[Batch]:
    assert isinstance(preprocessing, TextPreprocessing)
    columns = {preprocessing.column: pa.array(sentences, pa.string())}
    applied = preprocessing.apply(Rows(file="sentences", numbers=np.arange(1, len(sentences) + 1), columns=columns))
    yield Batch(names=tuple({"text": sentences[at]} for at in applied.kept), inputs=applied.inputs,
                problems=applied.problems)  # fmt: skip


def _read_rows(preprocessing: TablePreprocessing | TextPreprocessing, file: RowFile) -> Iterator[Batch]:
    unreadable: list[Problem] = []
    for whole in file.batches(unreadable.append):
        for start in range(0, len(whole), ROWS):
            rows = whole.slice(start, ROWS)
            applied = preprocessing.apply(rows)
            names = tuple(_row_name(file.name, int(row)) for row in rows.numbers[applied.kept])
            here = [problem for problem in unreadable if problem.row < rows.numbers[-1]]
            unreadable[:] = unreadable[len(here) :]
            problems = tuple(sorted([*here, *applied.problems], key=lambda problem: problem.row))
            yield Batch(names=names, inputs=applied.inputs, problems=problems)
    if unreadable:
        yield Batch(names=(), inputs={}, problems=tuple(unreadable))


def _row_name(file: str, row: int) -> Mapping[str, str | int]:
    return {"file": file, "row": row}


def _open_lines(path: Path, name: str, column: str, encoding: str) -> RowFile:
    """Open a text file as a table with a sentence a line."""

    def batches(on_problem: Any) -> Iterator[Rows]:
        start = 1
        try:
            with path.open(encoding=encoding) as stream:
                while lines := [line.strip() for line in islice(stream, BATCH)]:
                    numbers = np.arange(start, start + len(lines), dtype=np.int64)
                    yield Rows(file=name, numbers=numbers, columns={column: pa.array(lines, pa.string())})
                    start += len(lines)
        except UnicodeDecodeError as error:
            message = f"{name}, after row {start - 1}: this is not {encoding} ({error.reason})"
            raise InvalidInput(message, "say how it is encoded: --encoding latin-1") from None

    return RowFile(name=name, columns=(column,), note="a sentence a line", batches=batches)

"""Sentences in a column of a CSV or Parquet file: inputs ``tokens`` int64 and ``mask`` float32, [n,
length]."""

import logging
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from podium.data.hashes import hash_texts
from podium.data.option_text import written
from podium.data.options import COMMON, DataOptions
from podium.data.preprocessing.text import MAX_WORDS, TextPreprocessing, words
from podium.data.rows import RowFile, Rows
from podium.data.schema import InputDescription
from podium.data.sources.source import Raw, Source
from podium.data.sources.tabular import ROWS, Survey, open_table
from podium.data.values import broken_text, to_text
from podium.errors import InvalidInput

_log = logging.getLogger(__name__)


def _read(location: str, options: DataOptions, scratch: Path) -> Raw:
    """Read the target of a table of sentences; its vocabulary is that of the training part, once it
    is known.

    Args:
        location: Path or URI of a CSV file (also gzipped) or a Parquet file.
        options: ``target`` is needed; ``text`` names the column of the sentences, if it is not
            called text.
        scratch: Directory for what does not fit into memory.

    Raises:
        InvalidInput: The message names file, row and column.
    """
    file = _open_file(location, options, scratch)
    seen, column = Survey.of(file, location, options), _column(file, options)
    columns = (*options.roles.values(), column, *options.drop)
    if others := [name for name in file.columns if name not in columns]:
        _log.warning("%s: %s alone is read, not %s", location, column, ", ".join(others))
    first = next(iter(file)).columns[column]
    if broken := broken_text(f"column {column}", to_text(first, ("",)).to_pylist()):
        _log.warning(broken)
    keys = np.concatenate([_hash_sentences(rows, column) for rows in file])
    raw = seen.unfitted(location, options, keys)
    return replace(raw, fit=lambda train: _fit(raw, seen, column, options, train, scratch))


def _open_file(location: str, options: DataOptions, scratch: Path) -> RowFile:
    file = open_table(location, options, scratch)
    column = _column(file, options)
    file.require(column, role=f"the text ({written('text', 'NAME')} names another)")
    if column == options.target:
        raise InvalidInput(
            f"the column {column} cannot be both the text and the target",
            f"name that of the sentences: {written('text', 'NAME')}",
        )
    return file


def _column(file: RowFile, options: DataOptions) -> str:
    """Return the column of the sentences: the one that is named, the only one without a role, or
    ``text``."""
    others = [name for name in file.columns if name not in options.roles.values()]
    return options.text or (others[0] if len(others) == 1 else "text")


def _hash_sentences(rows: Rows, column: str) -> NDArray[np.uint64]:
    """Hash the words of each sentence, [n], without case, spaces and punctuation, unless nothing
    else remains."""
    texts = [words(text or "") for text in to_text(rows.columns[column], ("",)).to_pylist()]
    return hash_texts(
        [" ".join([word for word in text if word[0].isalnum()] or text) for text in texts]
    )


def _fit(
    raw: Raw,
    seen: Survey,
    column: str,
    options: DataOptions,
    train: NDArray[np.int64],
    scratch: Path,
) -> Raw:
    batches = (
        to_text(rows.columns[column], ("",)).drop_null().to_pylist() for rows in seen.chosen(train)
    )
    preprocessing = TextPreprocessing.fit(
        chain.from_iterable(batches),
        column=column,
        length=options.length,
        max_words=options.max_words or MAX_WORDS,
    )
    described = {"tokens": InputDescription(meaning="tokens"), "mask": InputDescription()}
    return seen.fitted(raw, preprocessing, described, scratch, "remove the row")


TEXT = Source(
    name="text",
    options=(*ROWS, "text", "length", "max_words", *COMMON),
    read=_read,
    open=_open_file,
)

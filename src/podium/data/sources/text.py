"""Sentences in a column of a CSV or Parquet file: inputs ``tokens`` int64 and ``mask`` float32, [n, length]."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from podium.data.options import DataOptions
from podium.data.preprocessing.text import MAX_WORDS, TextPreprocessing
from podium.data.schema import InputDescription, Part
from podium.data.sources.raw import Raw
from podium.data.sources.tabular import Survey, survey
from podium.data.values import to_text
from podium.errors import require


def read(location: str, options: DataOptions, scratch: Path) -> Raw:
    """Read the target of a table of sentences; its vocabulary is that of the training part, once it is known.

    Args:
        location: Path or URI of a CSV file (also gzipped) or a Parquet file.
        options: ``target`` is needed; ``text`` names the column of the sentences, if it is not called text.
        scratch: Directory for what does not fit into memory.

    Raises:
        InvalidInput: The message names file, row and column.
    """
    options.only("text", "target", "group", "time", "part", "text", "length", "max_words", "delimiter", "encoding",
                 "missing_values")  # fmt: skip
    require(bool(options.target), "a table has a target", "name its column: target=NAME", target="")
    seen = survey(location, options, scratch, options.target, options.group, options.time, options.part)
    column = options.text or "text"
    seen.file.require(column, role="the text (text=NAME names another)")

    raw = seen.unfitted(location, options)
    return replace(raw, fit=lambda train: _fit(raw, seen, column, options, train, scratch))


def _fit(raw: Raw, seen: Survey, column: str, options: DataOptions, train: NDArray[np.int64], scratch: Path) -> Raw:
    """Find the vocabulary in the training rows, and turn all rows into the inputs."""
    chosen = np.zeros(seen.count, bool)
    chosen[train] = True
    preprocessing = TextPreprocessing.fit(
        _texts_of(seen, column, chosen), column=column, length=options.length,
        max_words=options.max_words or MAX_WORDS,
    )  # fmt: skip
    shape = (seen.count, preprocessing.length)
    arrays = {
        name: np.lib.format.open_memmap(scratch / f"{name}.npy", mode="w+", dtype=dtype, shape=shape)
        for name, dtype in (("tokens", np.int64), ("mask", np.float32))
    }
    for rows in seen.file:
        start = int(rows.numbers[0]) - 1
        for name, values in preprocessing.apply(rows).check("remove the row").inputs.items():
            arrays[name][start : start + len(rows)] = values
    return replace(
        raw,
        items=Part(inputs=arrays, target=raw.items.target),
        descriptions={"tokens": InputDescription(meaning="tokens"), "mask": InputDescription()},
        preprocessing=preprocessing.to_json(),
    )


def _texts_of(seen: Survey, column: str, chosen: NDArray[np.bool_]) -> Iterator[str]:
    for rows in seen.file:
        texts = to_text(rows.only(chosen[rows.numbers - 1]).columns[column], ("",)).to_pylist()
        yield from (text for text in texts if text)

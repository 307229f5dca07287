"""Raw items as they come over HTTP: pictures, tables, rows and sentences."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from podium.data.items import Batch, check_columns
from podium.data.preprocessing import Preprocessing
from podium.data.rows import Problem
from podium.errors import Damaged, Failed, InvalidInput, PodiumError
from podium.files.documents import foreign, load_json
from podium.prediction import Predictor
from podium.prediction.predictions import UnknownValues
from podium.scoring.families import Array
from podium.serving.tensors import MOST_JSON

_MOST_ITEMS = 100_000
"""Items of a request."""

_MOST_TABLE = 1 << 30
"""Bytes of a table once its compression is undone."""

_PARQUET = "application/vnd.apache.parquet"
_SUFFIXES = {
    "image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/bmp": ".bmp", "image/webp": ".webp",
    "text/csv": ".csv", "text/plain": ".txt", _PARQUET: ".parquet",
    "application/x-ndjson": ".jsonl",
}  # fmt: skip
"""File suffix by the content type of raw items."""


def read_raw(body: bytes, content_type: str) -> tuple[str, bytes]:
    """Return what raw items come as, and their bytes.

    JSON holds ``rows``, a list of objects, or ``texts``, a list of strings.

    Raises:
        InvalidInput: It is none of that.
    """
    media = content_type.partition(";")[0].strip().lower()
    if media in _SUFFIXES:
        return media, body
    if media != "application/json":
        raise InvalidInput(
            f"items do not come as {media or 'nothing'!r}",
            f"application/json, {', '.join(_SUFFIXES)}",
        )
    document = load_json(body, "the request", limit=MOST_JSON)
    rows, texts = (
        document.get(name) if isinstance(document, Mapping) else None for name in ("rows", "texts")
    )
    for items in (rows, texts):
        if isinstance(items, list) and len(items) > _MOST_ITEMS:
            raise _too_many()
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        return "application/x-ndjson", "".join(json.dumps(row) + "\n" for row in rows).encode()
    if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
        return "text/plain", "".join(" ".join(text.split()) + "\n" for text in texts).encode()
    raise InvalidInput(
        "the request has neither rows, objects by column, nor texts, strings",
        '{"texts": ["so good"]}',
    )


def predict_raw(
    predictor: Predictor,
    media: str,
    body: bytes,
    *,
    until: float | None = None,
    on_unknown: Callable[[UnknownValues], None] | None = None,
    on_batch: Callable[[Batch, Array], None] | None = None,
) -> list[dict[str, Any]]:
    """Predict raw items, which become inputs as the training data did.

    Args:
        media: What they come as.
        body: A picture, a table, or lines of text.
        on_unknown: As Predictor.stream takes it.
        on_batch: As Predictor.stream takes it.
        until: When nobody waits for the answer any more, by time.monotonic(); in a minute if None.

    Returns:
        What each item is answered, in the order of the items.

    Raises:
        InvalidInput: The model takes other items, does not say how they become inputs, or there are
            too many.
        Failed: It took too long.
    """
    end, said = until or time.monotonic() + 60.0, list[tuple[int, dict[str, Any]]]()
    with _items(media, body) as file:
        if media == _PARQUET:
            _check_rows(file, predictor.preprocessing)
        for result in predictor.stream(
            [str(file)], on_unknown=on_unknown, on_batch=on_batch, until=end
        ):
            if len(said) >= _MOST_ITEMS:
                raise _too_many()
            if time.monotonic() > end:  # a small file may hold many
                raise Failed(
                    f"there was no answer in time: {len(said)} items were done",
                    "send fewer at once",
                )
            row = result.row if isinstance(result, Problem) else int(result.name.get("row", 1))
            said.append((row, _answer(result, f"{file.parent}/")))
    if not said:
        raise InvalidInput("the request holds no items", "a table has a header and rows below it")
    # Items that cannot be read were put behind those read with them.
    return [answer for _, answer in sorted(said, key=lambda item: item[0])]


def _too_many() -> InvalidInput:
    return InvalidInput(
        f"a request has at most {_MOST_ITEMS} items", "send them in several requests"
    )


@contextmanager
def _items(media: str, body: bytes) -> Iterator[Path]:
    """Keep the request as a file, of which no error says where it is."""
    with tempfile.TemporaryDirectory(prefix="podium-serve-") as scratch:
        file = Path(scratch, f"items{_SUFFIXES[media]}")
        file.write_bytes(body)
        try:
            yield file
        except PodiumError as error:
            error.message = error.message.replace(f"{scratch}/", "")
            if scratch in (error.hint or ""):  # a command for a file that no client has
                error.hint = None
            if isinstance(error, Damaged):  # what a client sent is its own fault
                raise InvalidInput(error.message, error.hint) from None
            raise


def _check_rows(file: Path, preprocessing: Preprocessing | None) -> None:
    """Refuse a file whose rows, which take next to no bytes in it, are too many or too large: a
    text that a dictionary holds once may stand in each of them. Columns of lists, which no model
    takes, are left out of it."""
    with foreign("the request is not readable as Parquet"), parquet.ParquetFile(file) as opened:
        held, schema = opened.metadata, opened.schema_arrow
        check_columns(preprocessing, file.name, len(schema))
        groups = [held.row_group(at) for at in range(held.num_row_groups)]
        widths = [max(8, held.schema.column(at).length or 0) for at in range(held.num_columns)]
        size = max(sum(group.total_byte_size for group in groups), held.num_rows * sum(widths))
    flat = pa.schema([each for each in schema if not _is_nested(each.type)])
    for each in schema:
        # Arrow reads a column x.y, too, where it is asked for x.
        if _is_nested(each.type) and ("." in each.name or not flat.names):
            raise InvalidInput(f"column {each.name} of the request holds {each.type}, not a value")
    if held.num_rows <= _MOST_ITEMS and size <= _MOST_TABLE:
        texts = [each.name for each in flat if not pa.types.is_primitive(each.type)]
        with (
            foreign("the request is not readable as Parquet"),
            parquet.ParquetFile(file, read_dictionary=texts) as opened,
        ):
            size += sum(map(_text_bytes, opened.iter_batches(columns=texts)))
    if held.num_rows > _MOST_ITEMS or size > _MOST_TABLE:
        raise InvalidInput(
            f"the request has {held.num_rows} rows of {size} bytes, but at most {_MOST_ITEMS} of "
            f"{_MOST_TABLE} are read",
            "send them in several requests",
        )
    if len(flat) < len(schema):
        kept = file.with_name("flat.parquet")
        with (
            foreign("the request is not readable as Parquet"),
            parquet.ParquetFile(file) as opened,
            parquet.ParquetWriter(kept, flat.with_metadata(schema.metadata)) as writer,
        ):
            for batch in opened.iter_batches(columns=flat.names):
                writer.write_batch(batch)
        kept.replace(file)


def _is_nested(kind: pa.DataType) -> bool:
    """Return whether a column holds lists or objects, as those of tensors and of JSON do, too."""
    kept = getattr(kind, "storage_type", None)
    if kept is None or pa.types.is_primitive(kept) or pa.types.is_fixed_size_binary(kept):
        return bool(pa.types.is_nested(kind))
    return True


def _text_bytes(batch: pa.RecordBatch) -> int:
    """Return how many bytes the texts of some rows have once each row holds its own."""
    encoded = [values for values in batch.columns if pa.types.is_dictionary(values.type)]
    sizes = [pc.binary_length(values.dictionary).take(values.indices) for values in encoded]
    return sum(pc.sum(size).as_py() or 0 for size in sizes)


def _answer(result: Any, place: str) -> dict[str, Any]:
    if isinstance(result, Problem):
        return {"problem": str(result).replace(place, "").replace("\n", " ")}
    return {
        name: value for name, value in result.to_json().items() if name not in ("file", "picture")
    }

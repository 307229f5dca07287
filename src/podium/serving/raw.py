"""Raw items as they come over HTTP: pictures, tables, rows and sentences."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podium.data.rows import Problem
from podium.errors import InvalidInput
from podium.prediction import Predictor

SUFFIXES = {
    "image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/bmp": ".bmp", "image/webp": ".webp",
    "text/csv": ".csv", "text/plain": ".txt", "application/vnd.apache.parquet": ".parquet",
    "application/x-ndjson": ".jsonl",
}  # fmt: skip
"""What raw items may come as, with the suffix by which a file of them is known."""


def read_raw(body: bytes, content_type: str) -> tuple[str, bytes]:
    """Return what raw items come as, and their bytes.

    JSON holds ``rows``, a list of objects, or ``texts``, a list of strings.

    Raises:
        InvalidInput: It is none of that.
    """
    media = content_type.partition(";")[0].strip().lower()
    if media in SUFFIXES:
        return media, body
    if media != "application/json":
        raise InvalidInput(f"items do not come as {media or 'nothing'!r}", f"application/json, {', '.join(SUFFIXES)}")
    try:
        document = json.loads(body)
    except ValueError as error:
        raise InvalidInput(f"the request is not JSON: {error}") from None
    rows, texts = (document.get(name) if isinstance(document, Mapping) else None for name in ("rows", "texts"))
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        return "application/x-ndjson", "".join(json.dumps(row) + "\n" for row in rows).encode()
    if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
        return "text/plain", "".join(" ".join(text.split()) + "\n" for text in texts).encode()
    raise InvalidInput("the request has neither rows, objects by column, nor texts, strings", '{"texts": ["so good"]}')


def predict_raw(predictor: Predictor, body: bytes, media: str) -> list[dict[str, Any]]:
    """Predict raw items, which become inputs as the training data did.

    Args:
        body: A picture, a table, or lines of text, as ``media`` says.

    Raises:
        InvalidInput: The model takes other items, or does not say how they become inputs.
    """
    with tempfile.TemporaryDirectory(prefix="podium-serve-") as scratch:
        file = Path(scratch, f"items{SUFFIXES[media]}")
        file.write_bytes(body)
        return [_answer(result) for result in predictor.stream([str(file)])]


def _answer(result: Any) -> dict[str, Any]:
    if isinstance(result, Problem):
        return {"problem": str(result).replace("\n", " ")}
    return {name: value for name, value in result.to_json().items() if name not in ("file", "picture")}

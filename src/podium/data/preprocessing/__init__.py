"""Preprocessing of raw pictures, rows or sentences to the inputs of a model: fitted at preparation,
applied ever after.

Preparing a dataset and predicting go through the same ``apply``, so they cannot differ.
"""

from typing import Any

from podium.data.preprocessing.image import ImagePreprocessing
from podium.data.preprocessing.table import TablePreprocessing
from podium.data.preprocessing.text import TextPreprocessing
from podium.data.rows import Applied
from podium.errors import InvalidInput
from podium.files.documents import parse

__all__ = [
    "Applied",
    "ImagePreprocessing",
    "Preprocessing",
    "TablePreprocessing",
    "TextPreprocessing",
    "read",
]

Preprocessing = ImagePreprocessing | TablePreprocessing | TextPreprocessing

KINDS: dict[str, type[Preprocessing]] = {
    "image": ImagePreprocessing,
    "table": TablePreprocessing,
    "text": TextPreprocessing,
}


def read(value: Any, name: str) -> Preprocessing | None:
    """Read a ``preprocessing.json``, or the ``preprocessing`` of a ``dataset.json``.

    Args:
        name: The file's, for the error.

    Returns:
        None for an empty object: how raw data became the inputs is not known.

    Raises:
        InvalidInput: A field is missing or of another type, or the kind is unknown.
    """
    if value == {}:
        return None
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in KINDS:
        raise InvalidInput(
            f"{name}: preprocessing of kind {kind!r} is not known", f"one of {', '.join(KINDS)}"
        )
    return parse(KINDS[kind], value, name)

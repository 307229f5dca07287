"""Code of the user's as a pipeline's parameter: a directory is packed and becomes the URI of what
was packed."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from podium.code.bundle import Bundle, pack
from podium.code.reference import FOLDER, SUFFIX, Code
from podium.errors import InvalidInput
from podium.system.settings import STORAGE


def with_code(
    values: Mapping[str, Any], names: Iterable[str], folder: Path = Path()
) -> tuple[dict[str, Any], dict[str, Bundle]]:
    """Replace directories of code by the URIs under which they will be stored; nothing is stored
    yet.

    Args:
        values: Parameters of a pipeline; URIs and empty text stay.
        names: The parameters that hold code.
        folder: Folder that a relative path starts from.

    Returns:
        The values, and what ``store_code`` stores, by URI.

    Raises:
        InvalidInput: It cannot be packed, or no storage is given.
    """
    bundles: dict[str, Bundle] = {}
    changed = dict(values)
    for name in names:
        value = values.get(name)
        if isinstance(value, str) and value and not _is_packed(value):
            bundle = pack(folder / value)
            changed[name] = bundle.code_in(_storage(values, f"{name}={value}")).uri
            bundles[changed[name]] = bundle
    return changed, bundles


def store_code(bundles: Mapping[str, Bundle]) -> None:
    """Store packed code, unless it is there."""
    for uri, bundle in bundles.items():
        bundle.store(Code.parse(uri).storage)


def _is_packed(text: str) -> bool:
    return "://" in text or (f"/{FOLDER}/" in text and text.endswith(SUFFIX))


def _storage(values: Mapping[str, Any], parameter: str) -> str:
    storage = values.get("storage") or os.environ.get(STORAGE)
    if not isinstance(storage, str) or not storage:
        raise InvalidInput(
            f"{parameter} needs a storage to be put into", "storage=s3://BUCKET/podium"
        )
    return storage

"""A digest of a source's current content: while it stays the same, the data need not be prepared
again."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from podium.errors import NotFound
from podium.storage import connect, local_path

_PREPARATION = 3
"""Raised when data are prepared otherwise than before from the same source."""

_READ_WHOLE = 1 << 28
"""Bytes of a source on this machine up to which files count by their content; beyond, by path, size
and time."""

_Listing = Mapping[str, Mapping[str, str]]
"""By location and name: what stands for the content of each file or object."""


def list_contents(locations: Iterable[str]) -> _Listing:
    """List every file or object of some locations with what stands for its content.

    Args:
        locations: Files, folders, or URIs of objects or prefixes.

    Raises:
        NotFound: There is nothing.
    """
    return {location: _list_one(location) for location in locations}


def digest_of(listing: _Listing, facts: Mapping[str, Any]) -> str:
    """Return one digest of contents and of all else that decides what the prepared data are."""
    text = json.dumps([_PREPARATION, listing, facts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _list_one(location: str) -> Mapping[str, str]:
    path = local_path(location)
    if path is None:
        return _list_objects(location)
    if not path.exists():
        raise NotFound(f"there is no {'file' if path.suffix else 'folder'} {location}")
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    whole = sum(file.stat().st_size for file in files) <= _READ_WHOLE
    return {
        str(file.relative_to(path)) if file != path else file.name: _content(file, whole)
        for file in files
    }


def _content(file: Path, whole: bool) -> str:
    if whole:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    status = file.stat()
    return f"{file.absolute()} {status.st_size} {status.st_mtime_ns}"


def _list_objects(location: str) -> Mapping[str, str]:
    above, _, name = location.rstrip("/").rpartition("/")
    if entry := connect(above).head(name):
        return {name: f"{entry.etag} {entry.size}"}
    entries = {entry.key: f"{entry.etag} {entry.size}" for entry in connect(location).list()}
    if not entries:
        raise NotFound(f"there is nothing at {location}")
    return entries

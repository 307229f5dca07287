"""The listing of a model's versions: names come from storage itself, details from a cache that may be lost any time.

``models/<name>/index.json`` holds one line of facts for each version. A listing asks storage for the names of the
versions, reads metadata.json only of those the index does not know, and writes the index back. metadata.json never
changes once it is there, so an old index is incomplete, never wrong; deleting it costs one slow listing.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from podium.documents import load_json
from podium.errors import Damaged, InvalidInput, NotFound, PodiumError
from podium.registry.document import MAX_BYTES, warn_once
from podium.registry.fields import Fields
from podium.registry.version import METADATA, Version, names_below, parse, prefix_of
from podium.storage import Storage

FORMAT = "podium.index/1"
_LARGEST = 256 * 2**20
"""Bytes; a million versions take as much."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One line of a listing."""

    version: str
    """Unique within the model."""

    created: datetime
    """When it became visible, with time zone."""

    size: int
    """Bytes of all files."""

    accuracy: float | None
    """metadata["metrics"]["accuracy"], if the uploader gave it."""

    dataset: str | None
    """Digest of the dataset it was trained on."""

    run_id: str | None
    """Run that uploaded it."""


def summarise(version: Version) -> Summary:
    """Take from a version what a listing shows."""
    facts = version.facts
    return Summary(
        version=version.version,
        created=version.created,
        size=version.size,
        accuracy=facts.accuracy,
        dataset=facts.digest,
        run_id=facts.run_id,
    )


def key_of(name: str) -> str:
    """Return where the index of a model lies."""
    return f"models/{name}/index.json"


def listing(storage: Storage, name: str, *, rebuild: bool = False) -> list[Summary]:
    """Return every complete version, oldest first.

    Args:
        storage: Where.
        name: The model.
        rebuild: Do not trust the index; read every metadata.json.
    """
    cached, etag = ({}, None) if rebuild else _read(storage, name)
    present = names_below(storage, f"models/{name}/versions")
    found = {version: cached[version] for version in present if version in cached}
    found |= _look(storage, name, [version for version in present if version not in cached])
    if rebuild or found.keys() != cached.keys():
        _write(storage, name, found, etag)
    return sorted(found.values(), key=lambda one: (one.created, one.version))


def known(storage: Storage, name: str) -> list[Summary]:
    """Return what the index holds, right or wrong."""
    return list(_read(storage, name)[0].values())


def forget(storage: Storage, name: str, version: str) -> None:
    """Take a version that is being deleted out of the index."""
    cached, etag = _read(storage, name)
    if cached.pop(version, None):
        _write(storage, name, cached, etag)


def _look(storage: Storage, name: str, versions: list[str]) -> dict[str, Summary]:
    """Read the metadata of versions; those still being written, under deletion or damaged are left out."""
    found = {}
    keys = [f"{prefix_of(name, version)}/{METADATA}" for version in versions]
    for version, (key, content) in zip(versions, storage.get_many(keys, limit=MAX_BYTES + 1), strict=True):
        try:
            if isinstance(content, Damaged):
                raise content
            read = parse(content, storage.join(key), name, version) if isinstance(content, bytes) else None
        except Damaged as error:
            warn_once(f"{error.message}; it is left out")
            continue
        if isinstance(read, Version):
            found[version] = summarise(read)
    return found


def _read(storage: Storage, name: str) -> tuple[dict[str, Summary], str | None]:
    try:
        content, entry = storage.read(key_of(name), limit=_LARGEST + 1)
    except NotFound:
        return {}, None
    try:
        document = Fields(load_json(content, key_of(name), limit=_LARGEST), key_of(name))
        rows = document.parts("versions") if document.text("format") == FORMAT else ()
        return {version: _parse(version, row) for version, row in rows}, entry.etag
    except (Damaged, InvalidInput):
        return {}, entry.etag  # whatever it is, it will be written afresh


def _parse(version: str, row: Fields) -> Summary:
    return Summary(
        version=version,
        created=row.moment("created"),
        size=row.count("size"),
        accuracy=row.optional_number("accuracy"),
        dataset=row.optional_text("dataset"),
        run_id=row.optional_text("run_id"),
    )


def _write(storage: Storage, name: str, versions: Mapping[str, Summary], etag: str | None) -> None:
    """Write the index back; whoever may only read, or loses a race, leaves that to others."""
    rows = {version: {**vars(one), "created": one.created.isoformat()} for version, one in versions.items()}
    content = json.dumps({"format": FORMAT, "versions": rows}, separators=(",", ":")).encode()
    with suppress(PodiumError):
        storage.put(key_of(name), content, if_match=etag)

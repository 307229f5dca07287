"""The listing of a model's versions: names come from storage itself, details from a cache that may be lost any time.

``models/<name>/index.json`` holds one line of facts for each version. A listing asks storage for the names of the
versions, reads metadata.json only of those the index does not know, and writes the index back. metadata.json never
changes once it is there, so an old index is incomplete, never wrong; deleting it costs one slow listing.
"""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from podium.errors import Damaged, NotFound, PodiumError
from podium.registry.version import METADATA, Version, parse, prefix_of
from podium.storage import Storage

FORMAT = "podium.index/1"
_log = logging.getLogger("podium")


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
    metrics, dataset = version.metadata.get("metrics"), version.metadata.get("dataset")
    accuracy = metrics.get("accuracy") if isinstance(metrics, Mapping) else None
    return Summary(
        version=version.version,
        created=version.created,
        size=version.size,
        accuracy=accuracy if isinstance(accuracy, (int, float)) else None,
        dataset=dataset.get("digest") if isinstance(dataset, Mapping) else dataset,
        run_id=version.metadata.get("run_id"),
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
    present = list(storage.children(f"models/{name}/versions"))
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
    for key, content in storage.get_many(keys):
        try:
            version = parse(content, storage.join(key)) if content is not None else None
        except Damaged as error:
            _log.warning("%s", error.message)
            continue
        if version:
            found[version.version] = summarise(version)
    return found


def _read(storage: Storage, name: str) -> tuple[dict[str, Summary], str | None]:
    try:
        content, entry = storage.read(key_of(name))
    except NotFound:
        return {}, None
    try:
        document = json.loads(content)
        rows = document["versions"].items() if document["format"] == FORMAT else ()
        return {
            version: Summary(**{**row, "version": version, "created": datetime.fromisoformat(row["created"])})
            for version, row in rows
        }, entry.etag
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, entry.etag  # whatever it is, it will be written afresh


def _write(storage: Storage, name: str, versions: Mapping[str, Summary], etag: str | None) -> None:
    """Write the index back; whoever may only read, or loses a race, leaves that to others."""
    rows = {version: {**vars(one), "created": one.created.isoformat()} for version, one in versions.items()}
    content = json.dumps({"format": FORMAT, "versions": rows}, separators=(",", ":")).encode()
    with suppress(PodiumError):
        storage.put(key_of(name), content, if_match=etag)

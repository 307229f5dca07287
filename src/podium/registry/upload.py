"""Putting a version into storage so that it is either whole or not there."""

import contextlib
import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from podium.errors import Conflict, Damaged, require
from podium.onnx_files import read_model
from podium.registry import history, index
from podium.registry.content import stored_sha256
from podium.registry.document import check_name, seal, sha256_of
from podium.registry.pointer import CHAMPION
from podium.registry.version import METADATA, FileRecord, Tombstone, Version, check_metadata, load, look
from podium.storage import Entry, Storage, check_key
from podium.storage.base import Progress


def upload(
    storage: Storage,
    name: str,
    files: Mapping[str, Path | bytes],
    metadata: Mapping[str, Any],
    version: str | None,
    progress: Progress | None,
) -> Version:
    """Write the files, then metadata.json; see Registry.upload."""
    check_name("model name", name)
    told, facts = check_metadata(metadata)
    require(bool(files), "a version holds at least one file", files=sorted(files))
    for file, source in files.items():
        require(check_key(file) != METADATA, f"no file is called {METADATA}", "the registry writes it", file=file)
        require(isinstance(source, bytes) or source.is_file(), "every file exists", file=file, path=str(source))
    for file, source in files.items():
        if file.endswith(".onnx"):
            with contextlib.suppress(Damaged):  # what is no model at all is refused by whoever runs it
                read_model(source, file)
    records = _hash(files)
    wanted = Version(
        name=name,
        version=check_name("version", version or facts.run_id or _content_id(records)),
        created=datetime.now(UTC),
        files=records,
        metadata=told,
        facts=facts,
    )
    require(wanted.version != CHAMPION, "a version is not called like an alias", version=wanted.version)
    sealed = seal(wanted.document())
    found, entry = look(storage, name, wanted.version)
    if isinstance(found, Version):
        return _same(wanted, found)
    taken_over = _take_over(storage, found, entry, wanted) if found and entry else None
    for file, source in files.items():
        _put(storage, wanted, file, source, progress, over_leftovers=taken_over is not None)
    return _publish(storage, wanted, sealed, files, taken_over)


def _take_over(storage: Storage, old: Tombstone, entry: Entry, wanted: Version) -> str:
    """Replace the tombstone of an earlier deletion by one of our own: whoever still deletes under the old one stops.

    Returns:
        The etag of ours.
    """
    if old.event:
        history.write(storage, old.event)
    index.forget(storage, wanted.name, wanted.version)
    key = f"{wanted.prefix}/{METADATA}"
    ours = Tombstone(name=wanted.name, version=wanted.version, event=None)
    try:
        etag = storage.put(key, ours.seal(), if_match=entry.etag).etag
        for left in list(storage.list(f"{wanted.prefix}/")):
            if left.key != key and left.key.removeprefix(f"{wanted.prefix}/") not in wanted.files:
                storage.delete(left.key, if_match=left.etag)
    except Conflict as error:
        raise _busy(wanted) from error
    return etag


def _busy(wanted: Version) -> Conflict:
    return Conflict(f"version {wanted.version} of {wanted.name} is being deleted or uploaded", "try again in a minute")


def _hash(files: Mapping[str, Path | bytes]) -> dict[str, FileRecord]:
    with ThreadPoolExecutor(4) as pool:
        hashed = pool.map(sha256_of, files.values())
        return {name: FileRecord(sha256=digest, size=size) for name, (digest, size) in zip(files, hashed, strict=True)}


def _content_id(records: Mapping[str, FileRecord]) -> str:
    """Name a version after its content, so that uploading the same files twice gives one version."""
    listing = "".join(f"{record.sha256}  {file}\n" for file, record in sorted(records.items()))
    return f"sha256-{hashlib.sha256(listing.encode()).hexdigest()[:16]}"


def _put(
    storage: Storage,
    wanted: Version,
    file: str,
    source: Path | bytes,
    progress: Progress | None,
    *,
    over_leftovers: bool = False,
) -> None:
    """Write one file; over a leftover of an upload that died, if it is the same file.

    Args:
        storage: Where.
        wanted: The version.
        file: Its name.
        source: Its content.
        progress: Told of every chunk.
        over_leftovers: What lies there belongs to a deleted version.
    """
    key = f"{wanted.prefix}/{file}"
    try:
        entry = storage.put(key, source, if_absent=not over_leftovers, progress=progress)
    except Conflict:
        require(
            stored_sha256(storage, key) == wanted.files[file].sha256,
            "the same version is uploaded with the same files",
            f"an unfinished upload left another {file}; choose another version, or clear it: podium models gc",
            version=wanted.version,
            file=file,
        )
        entry = storage.put(key, source)  # gc judges leftovers by their age: this makes it young again
    require(entry.size == wanted.files[file].size, "a file does not change while it is uploaded", file=file)


def _publish(
    storage: Storage, wanted: Version, sealed: bytes, files: Mapping[str, Path | bytes], etag: str | None
) -> Version:
    """Make the version visible, in one write that only one uploader can win; over our own tombstone, if etag is its."""
    try:
        storage.put(f"{wanted.prefix}/{METADATA}", sealed, if_absent=etag is None, if_match=etag)
    except Conflict as error:
        present = load(storage, wanted.name, wanted.version)
        if present is None:
            raise _busy(wanted) from error
        return _same(wanted, present)
    # A collector may have deleted files until now. From here on it finds no tombstone of its own, and stops.
    there = {entry.key for entry in storage.list(f"{wanted.prefix}/")}
    for file, source in files.items():
        if f"{wanted.prefix}/{file}" not in there:
            _put(storage, wanted, file, source, None)
    return wanted


def _same(wanted: Version, present: Version) -> Version:
    if dict(wanted.files) != dict(present.files):
        differing = sorted(
            file for file in {*wanted.files, *present.files} if wanted.files.get(file) != present.files.get(file)
        )
        raise Conflict(
            f"version {wanted.version} of {wanted.name} is there already with other content in {', '.join(differing)}",
            "a version never changes; upload under another version",
        )
    return present

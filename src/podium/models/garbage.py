"""Deleting: leftovers of killed uploads, and versions that are no longer needed.

A deletion first replaces metadata.json with a tombstone, by the same conditional write that
publishes a version: from then on readers see no version, and an upload must take the tombstone
over. The tombstone of a complete version carries the record for the history. A deletion killed at
any point is finished by the next collection.

No two tombstones have the same etag. Before each object the collector checks that its own tombstone
is still there, and it deletes an object only as it was listed. A collector that slept while others
finished the deletion and the version was uploaded again sees another etag, and stops.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from podium.errors import Conflict, Damaged, NotFound, require
from podium.models.document import stamp, warn_once
from podium.models.journal import Record
from podium.models.pointers import Pointers
from podium.models.version import Tombstone, Version
from podium.storage import Entry

GRACE = timedelta(hours=24)


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """Objects that can be deleted."""

    where: str
    """Prefix or key."""

    why: str
    """unfinished upload, unfinished deletion, interrupted write, or retired version."""

    size: int
    """Bytes."""

    modified: datetime
    version: str | None
    """The version it belongs to, if any."""


def collect(pointers: Pointers, *, grace: timedelta, delete: bool) -> Iterator[Garbage]:
    """Yield what killed uploads, deletions and writes left of a model.

    Args:
        pointers: The aliases of the pointers, with its versions and its history.
        grace: Younger objects may still be in the making and are left alone.
        delete: Delete it as well.
    """
    require(grace >= timedelta(0), "grace >= 0", grace=str(grace))
    before = datetime.now(UTC) - grace
    for entry in pointers.storage.sweep(f"models/{pointers.name}", before, delete=delete):
        yield Garbage(
            where=entry.key,
            why="interrupted write",
            size=entry.size,
            modified=entry.modified,
            version=None,
        )
    for version in pointers.catalog.names():
        entries = pointers.catalog.entries(version)
        if not entries or max(entry.modified for entry in entries) >= before:
            continue
        why = _reason(pointers, version, entries)
        if why and (not delete or _collect(pointers, version, before, grace)):
            yield _garbage(pointers, version, why, entries)


def retire(pointers: Pointers, *, keep: int, grace: timedelta, delete: bool) -> Iterator[Garbage]:
    """Yield versions that need not be kept.

    Never among them: the newest, the target of an alias or of the champion's rollback, and versions
    that were uploaded, or left an alias, within the grace period.

    Args:
        pointers: The aliases of the pointers, with its versions and its history.
        keep: How many of the newest stay.
        delete: Delete them as well, with a record in the history.
    """
    require(keep >= 1, "keep >= 1", keep=keep)
    before = datetime.now(UTC) - grace
    try:
        protected = _protected(pointers) | _recent(pointers, before)
    except Damaged as error:
        warn_once(
            f"no version of {pointers.name} is retired, because an alias or its history is lost: {error.message}"
        )
        return
    for stored in pointers.catalog.versions()[:-keep]:
        if stored.version not in protected and stored.created < before:
            entries = pointers.catalog.entries(stored.version)
            if delete:
                delete_version(pointers, stored.version, f"not among the newest {keep}")
            yield _garbage(pointers, stored.version, "retired version", entries)


def delete_version(pointers: Pointers, version: str, reason: str) -> Record:
    """Delete a complete version that no alias needs.

    Raises:
        NotFound: There is no such version.
        Conflict: An alias, or the champion's rollback, needs it.
        Damaged: An alias cannot be read.
    """
    storage, key = pointers.storage, pointers.catalog.metadata_key(version)
    present, entry = pointers.catalog.look(version)
    if not isinstance(present, Version) or entry is None:
        raise NotFound(f"model {pointers.name} has no complete version {version} in {storage.url}")
    original = storage.get(key)
    _refuse_protected(pointers, version)
    event = Record.new("deletion", pointers.name, version, evidence={"reason": reason})
    tombstone = Tombstone(name=pointers.name, version=version, event=event)
    placed = storage.put(key, tombstone.seal(), if_match=entry.etag)
    try:
        _refuse_protected(pointers, version)  # it may have been promoted meanwhile
    except Conflict:
        storage.put(key, original, if_match=placed.etag)
        raise
    pointers.journal.write(event)
    _clear(pointers, version, placed.etag)
    return event


def _protected(pointers: Pointers) -> set[str]:
    held = pointers.held().values()
    return {
        version for record in held for version in (record.points_at, record.previous) if version
    }


def _recent(pointers: Pointers, before: datetime) -> set[str]:
    """Return what an alias pointed at, or left, since a moment.

    Raises:
        Damaged: A move since then cannot be read.
    """
    entries = pointers.journal.load()
    held = {record.key: record for record in pointers.held().values()}
    for key in entries.lost_moves(stamp(before)):
        if key not in held:
            raise entries.damaged[key]
    records = (*entries.records, *held.values())
    moves = [record for record in records if record.alias and stamp(record.time) >= stamp(before)]
    return {version for record in moves for version in (record.version, record.replaced) if version}


def _refuse_protected(pointers: Pointers, version: str) -> None:
    if version in _protected(pointers):
        raise Conflict(
            f"version {version} of {pointers.name} is needed by an alias or by its rollback",
            f"podium models history {pointers.name} shows by which",
        )


def _reason(pointers: Pointers, version: str, entries: Iterable[Entry]) -> str | None:
    """Return why a version is garbage; None if it is complete or damaged (verify reports that)."""
    if not any(entry.key == pointers.catalog.metadata_key(version) for entry in entries):
        return "unfinished upload"
    try:
        return (
            "unfinished deletion"
            if isinstance(pointers.catalog.look(version)[0], Tombstone)
            else None
        )
    except Damaged:
        return None


def _collect(pointers: Pointers, version: str, before: datetime, grace: timedelta) -> bool:
    """Delete an unfinished upload, or finish a deletion; return False if another process is working
    on it."""
    storage, key = pointers.storage, pointers.catalog.metadata_key(version)
    try:
        etag = storage.put(
            key, Tombstone(name=pointers.name, version=version, event=None).seal(), if_absent=True
        ).etag
    except Conflict:
        present, entry = pointers.catalog.look(version)
        if not isinstance(present, Tombstone) or entry is None or entry.modified >= before:
            return False  # published, or taken over, meanwhile
        etag = entry.etag
        if present.event:
            pointers.journal.write(present.event)
    else:
        placed = storage.head(key)
        files = [entry.modified for entry in pointers.catalog.entries(version) if entry.key != key]
        if placed and files and max(files) > placed.modified - grace:
            storage.delete(key, if_match=etag)
            return False
    return _clear(pointers, version, etag)


def _clear(pointers: Pointers, version: str, etag: str) -> bool:
    """Delete all files of a version, its tombstone last; return False if the tombstone was
    replaced."""
    storage, tombstone = pointers.storage, pointers.catalog.metadata_key(version)
    try:
        for entry in pointers.catalog.entries(version):
            if entry.key == tombstone:
                continue
            current = storage.head(tombstone)
            if current is None or current.etag != etag:
                return False
            storage.delete(entry.key, if_match=entry.etag)
        storage.delete(tombstone, if_match=etag)
    except Conflict:
        return False
    return True


def _garbage(pointers: Pointers, version: str, why: str, entries: list[Entry]) -> Garbage:
    return Garbage(
        where=pointers.catalog.prefix(version),
        why=why,
        size=sum(entry.size for entry in entries),
        modified=max(entry.modified for entry in entries),
        version=version,
    )

"""Deleting: what killed uploads left, and versions nobody needs any more.

A deletion first puts a tombstone in the place of metadata.json, by the same conditional write that publishes a
version: from then on readers see no version, and an upload must take the tombstone over. The tombstone of a complete
version carries the record for the history. Killed at any point, the next collection finishes what was begun.

No two tombstones have the same etag. Before each object the collector looks whether its own still stands, and deletes
the object only as it was listed: one that slept while others finished the deletion and the version was uploaded again
finds another etag, and stops.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from podium.errors import Conflict, Damaged, NotFound, require
from podium.registry import history, index, pointer
from podium.registry.document import stamp, warn_once
from podium.registry.record import Record, record
from podium.registry.version import METADATA, Tombstone, Version, look, names_below, prefix_of
from podium.storage import Entry, Storage

GRACE = timedelta(hours=24)


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """Something that can go."""

    where: str
    """Prefix or key."""

    why: str
    """unfinished upload, unfinished deletion, interrupted write, or retired version."""

    size: int
    """Bytes."""

    modified: datetime
    """When it was last written."""

    version: str | None
    """The version it belongs to, if that can be told."""


def garbage(storage: Storage, name: str, *, grace: timedelta = GRACE, delete: bool = False) -> Iterator[Garbage]:
    """Yield what uploads, deletions and writes that were killed left of a model.

    Args:
        storage: Where.
        name: The model.
        grace: What was written less than this ago may still be in the making: it is left alone.
        delete: Remove it as well.
    """
    require(grace >= timedelta(0), "grace >= 0", grace=str(grace))
    before = datetime.now(UTC) - grace
    for entry in storage.sweep(f"models/{name}", before, delete=delete):
        yield Garbage(where=entry.key, why="interrupted write", size=entry.size, modified=entry.modified, version=None)
    for version in names_below(storage, f"models/{name}/versions"):
        entries = list(storage.list(f"{prefix_of(name, version)}/"))
        if not entries or max(entry.modified for entry in entries) >= before:
            continue
        why = _state(storage, name, version, entries)
        if why and (not delete or _collect(storage, name, version, before, grace)):
            yield _found(name, version, why, entries)


def retired(
    storage: Storage, name: str, *, keep: int, grace: timedelta = GRACE, delete: bool = False
) -> Iterator[Garbage]:
    """Yield versions that need not be kept.

    Never among them: the newest, what an alias points at, where a rollback of the champion would go, and what was
    uploaded, or left an alias, less than the grace period ago.

    Args:
        storage: Where.
        name: The model.
        keep: How many of the newest stay.
        grace: The grace period.
        delete: Remove them as well, with a record in the history.
    """
    require(keep >= 1, "keep >= 1", keep=keep)
    before = datetime.now(UTC) - grace
    try:
        protected = _protected(storage, name) | _recent(storage, name, before)
    except Damaged as error:
        warn_once(f"no version of {name} is retired, because what must stay is not known: {error.message}")
        return
    for one in index.listing(storage, name)[:-keep]:
        if one.version not in protected and one.created < before:
            entries = list(storage.list(f"{prefix_of(name, one.version)}/"))
            if delete:
                remove(storage, name, one.version, f"not among the newest {keep}")
            yield _found(name, one.version, "retired version", entries)


def remove(storage: Storage, name: str, version: str, reason: str) -> Record:
    """Delete a complete version that no alias needs.

    Raises:
        NotFound: It is not there.
        Conflict: An alias points at it, or a rollback of the champion would go there.
        Damaged: Nobody can read what an alias points at.
    """
    key = f"{prefix_of(name, version)}/{METADATA}"
    found, entry = look(storage, name, version)
    if not isinstance(found, Version) or entry is None:
        raise NotFound(f"{storage.url} has no complete version {version} of {name}")
    original = storage.get(key)
    _refuse_protected(storage, name, version)
    event = record("deletion", name, version, evidence={"reason": reason})
    placed = storage.put(key, Tombstone(name=name, version=version, event=event).seal(), if_match=entry.etag)
    try:
        _refuse_protected(storage, name, version)  # promoted while we were at it
    except Conflict:
        storage.put(key, original, if_match=placed.etag)
        raise
    history.write(storage, event)
    index.forget(storage, name, version)
    _clear(storage, name, version, placed.etag)
    return event


def _protected(storage: Storage, name: str) -> set[str]:
    held = pointer.held(storage, name).values()
    return {version for record in held for version in (record.points_at, record.previous) if version}


def _recent(storage: Storage, name: str, before: datetime) -> set[str]:
    """Return what an alias pointed at, or left, since a moment.

    Raises:
        Damaged: A move since then cannot be read.
    """
    stored = history.load(storage, name)
    held = {event.key: event for event in pointer.held(storage, name).values()}
    for key in stored.lost_moves(stamp(before)):
        if key not in held:
            raise stored.damaged[key]
    moves = [event for event in (*stored.records, *held.values()) if event.alias and stamp(event.time) >= stamp(before)]
    return {version for event in moves for version in (event.version, event.replaced) if version}


def _refuse_protected(storage: Storage, name: str, version: str) -> None:
    if version in _protected(storage, name):
        raise Conflict(
            f"version {version} of {name} is needed by an alias or by its rollback",
            f"podium models history {name} shows by which",
        )


def _state(storage: Storage, name: str, version: str, entries: Iterable[Entry]) -> str | None:
    """Say why a version is garbage; None if it is complete or damaged (which is verify's business)."""
    if not any(entry.key == f"{prefix_of(name, version)}/{METADATA}" for entry in entries):
        return "unfinished upload"
    try:
        return "unfinished deletion" if isinstance(look(storage, name, version)[0], Tombstone) else None
    except Damaged:
        return None


def _collect(storage: Storage, name: str, version: str, before: datetime, grace: timedelta) -> bool:
    """Clear away an unfinished upload, or finish a deletion; False if somebody is at work there after all."""
    key = f"{prefix_of(name, version)}/{METADATA}"
    try:
        etag = storage.put(key, Tombstone(name=name, version=version, event=None).seal(), if_absent=True).etag
    except Conflict:
        found, entry = look(storage, name, version)
        if not isinstance(found, Tombstone) or entry is None or entry.modified >= before:
            return False  # published, or taken over, meanwhile
        etag = entry.etag
        if found.event:
            history.write(storage, found.event)
            index.forget(storage, name, version)
    else:
        placed = storage.head(key)
        files = [entry.modified for entry in storage.list(f"{prefix_of(name, version)}/") if entry.key != key]
        if placed and files and max(files) > placed.modified - grace:
            storage.delete(key, if_match=etag)
            return False
    return _clear(storage, name, version, etag)


def _clear(storage: Storage, name: str, version: str, etag: str) -> bool:
    """Delete all files of a version, its tombstone last; False if the tombstone is not this one any more."""
    last = f"{prefix_of(name, version)}/{METADATA}"
    try:
        for entry in list(storage.list(f"{prefix_of(name, version)}/")):
            if entry.key == last:
                continue
            stands = storage.head(last)
            if stands is None or stands.etag != etag:
                return False
            storage.delete(entry.key, if_match=entry.etag)
        storage.delete(last, if_match=etag)
    except Conflict:
        return False
    return True


def _found(name: str, version: str, why: str, entries: list[Entry]) -> Garbage:
    return Garbage(
        where=prefix_of(name, version),
        why=why,
        size=sum(entry.size for entry in entries),
        modified=max(entry.modified for entry in entries),
        version=version,
    )

"""Deleting: what killed uploads left, and versions nobody needs any more.

A deletion first puts a tombstone in the place of metadata.json, by the same conditional write that publishes a
version: from then on no upload can complete there, and readers see no version. The tombstone of a complete version
carries the record for the history. Killed at any point, the next collection finishes what was begun.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from podium.errors import Conflict, Damaged, NotFound, require
from podium.registry import index, pointer
from podium.registry.document import now, unseal
from podium.registry.version import METADATA, TOMBSTONE, load, prefix_of, tombstone
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
    for version in list(storage.children(f"models/{name}/versions")):
        entries = list(storage.list(f"{prefix_of(name, version)}/"))
        if not entries or max(entry.modified for entry in entries) >= before:
            continue
        why = _state(storage, name, version, entries)
        if why and (not delete or _collect(storage, name, version, grace)):
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
    protected = _protected(storage, name)
    for event in pointer.history(storage, name):
        if event.alias and datetime.fromisoformat(event.time) >= before:
            protected |= {version for version in (event.version, event.replaced) if version}
    for one in index.listing(storage, name)[:-keep]:
        if one.version not in protected and one.created < before:
            entries = list(storage.list(f"{prefix_of(name, one.version)}/"))
            if delete:
                remove(storage, name, one.version, f"not among the newest {keep}")
            yield _found(name, one.version, "retired version", entries)


def remove(storage: Storage, name: str, version: str, reason: str) -> pointer.Record:
    """Delete a complete version that no alias needs.

    Raises:
        NotFound: It is not there.
        Conflict: An alias points at it, or a rollback of the champion would go there.
    """
    key = f"{prefix_of(name, version)}/{METADATA}"
    if load(storage, name, version) is None:
        raise NotFound(f"{storage.url} has no complete version {version} of {name}")
    original, entry = storage.read(key)
    _refuse_protected(storage, name, version)
    event = pointer.record("deletion", name, version, evidence={"reason": reason})
    placed = storage.put(key, tombstone(name, version, now(), event.document()), if_match=entry.etag)
    try:
        _refuse_protected(storage, name, version)  # promoted while we were at it
    except Conflict:
        storage.put(key, original, if_match=placed.etag)
        raise
    pointer.write(storage, event)
    index.forget(storage, name, version)
    _clear(storage, name, version)
    return event


def _protected(storage: Storage, name: str) -> set[str]:
    held = pointer.aliases(storage, name).values()
    return {version for record in held for version in (record.version, record.previous) if version}


def _refuse_protected(storage: Storage, name: str, version: str) -> None:
    if version in _protected(storage, name):
        raise Conflict(
            f"version {version} of {name} must not be needed by an alias or its rollback, but it is",
            f"podium models history {name} shows by which",
        )


def _state(storage: Storage, name: str, version: str, entries: Iterable[Entry]) -> str | None:
    """Say why a version is garbage; None if it is complete or damaged (which is verify's business)."""
    if not any(entry.key == f"{prefix_of(name, version)}/{METADATA}" for entry in entries):
        return "unfinished upload"
    try:
        return "unfinished deletion" if _tombstone(storage, name, version) else None
    except (Damaged, NotFound):
        return None


def _tombstone(storage: Storage, name: str, version: str) -> dict[str, Any] | None:
    key = f"{prefix_of(name, version)}/{METADATA}"
    document = unseal(storage.get(key), key)
    return document if document.get("format") == TOMBSTONE else None


def _collect(storage: Storage, name: str, version: str, grace: timedelta) -> bool:
    """Clear away an unfinished upload, or finish a deletion; False if somebody is at work there after all."""
    key = f"{prefix_of(name, version)}/{METADATA}"
    try:
        storage.put(key, tombstone(name, version, now()), if_absent=True)
    except Conflict:
        found = _tombstone(storage, name, version)
        if found is None:
            return False  # published meanwhile
        if event := found.get("event"):
            pointer.write(storage, pointer.from_document(event))
    else:
        placed = storage.head(key)
        files = [entry.modified for entry in storage.list(f"{prefix_of(name, version)}/") if entry.key != key]
        if placed and files and max(files) > placed.modified - grace:
            storage.delete(key)
            return False
    _clear(storage, name, version)
    return True


def _clear(storage: Storage, name: str, version: str) -> None:
    """Delete all files of a version, its tombstone last."""
    last = f"{prefix_of(name, version)}/{METADATA}"
    for entry in list(storage.list(f"{prefix_of(name, version)}/")):
        if entry.key != last:
            storage.delete(entry.key)
    storage.delete(last)


def _found(name: str, version: str, why: str, entries: list[Entry]) -> Garbage:
    return Garbage(
        where=prefix_of(name, version),
        why=why,
        size=sum(entry.size for entry in entries),
        modified=max(entry.modified for entry in entries),
        version=version,
    )

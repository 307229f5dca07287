"""Promotion, rollback and aliases: when an alias may move, and what to do about a race."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from podium.errors import Conflict, NotFound
from podium.registry import content, pointer
from podium.registry.document import seal, sha256_of
from podium.registry.pointer import CHAMPION, Record
from podium.registry.version import load
from podium.storage import Storage


def move(
    storage: Storage,
    event: str,
    name: str,
    alias: str,
    version: str,
    *,
    evidence: Mapping[str, Any],
    expect: tuple[str | None, ...] = (),
) -> Record:
    """Move an alias to a complete version.

    Args:
        storage: Where.
        event: promotion, rollback or alias.
        name: The model.
        alias: Which.
        version: Where to.
        evidence: Why.
        expect: The one version it must point at now (or None for nobody); empty if any will do.

    Returns:
        The new record; the one that stands if the alias is there already.

    Raises:
        Conflict: It points at another version than expected.
        NotFound: The version was deleted meanwhile.
    """
    while True:
        current, etag = pointer.read(storage, name, alias)
        stands = current.version if current else None
        if current and stands == version:
            pointer.write(storage, current)
            return current
        if expect and stands not in expect:
            raise Conflict(
                f"the {alias} of {name} must still be {expect[0] or 'nobody'}, but it is {stands or 'nobody'}",
                "compare with that one and try again",
            )
        previous = stands if event != "rollback" else _predecessor(storage, name, version, stands)
        wanted = pointer.record(event, name, version, alias=alias, previous=previous, evidence=evidence)
        try:
            moved = pointer.move(storage, current, etag, wanted)
        except Conflict:
            continue  # somebody was faster: look again, and perhaps still may
        _still_there(storage, moved)
        return moved


def refuse(storage: Storage, name: str, version: str, champion: str | None, evidence: Mapping[str, Any]) -> Record:
    """Record that a version met the rule's laws and failed; recording the same again changes nothing.

    Args:
        storage: Where.
        name: The model.
        version: The challenger.
        champion: Whom it was compared with.
        evidence: The decision and its figures.
    """
    told = {"champion": champion, **evidence}
    wanted = pointer.record("refusal", name, version, evidence=told)
    wanted = replace(wanted, id=sha256_of(seal({"version": version, **told}))[0][:12])
    for entry in storage.list(f"models/{name}/history/"):
        if entry.key.endswith(f"-{wanted.event}-{wanted.id}.json"):
            return pointer.parse(storage.get(entry.key), storage.join(entry.key))
    pointer.write(storage, wanted)
    return wanted


def rollback(storage: Storage, name: str, to: str | None, reason: str) -> Record:
    """Make an earlier version champion again; see Registry.rollback."""
    current, _ = pointer.read(storage, name, CHAMPION)
    if current is None:
        raise NotFound(f"{name} has no champion to roll back", f"podium models promote {name} VERSION")
    target = to or current.previous
    if target is None:
        raise NotFound(f"{current.version} is the first champion of {name}: nothing lies before it", "name one: --to")
    version = content.whole(storage, name, target)
    for file in version.files:
        content.verify(storage, version, file)
    return move(
        storage, "rollback", name, CHAMPION, version.version, evidence={"reason": reason}, expect=(current.version,)
    )


def _predecessor(storage: Storage, name: str, version: str, stands: str | None) -> str | None:
    """Return what was champion before version last became it, so that a second rollback goes back further."""
    for past in reversed(pointer.history(storage, name)):
        if past.alias == CHAMPION and past.version == version:
            return past.previous
    return stands


def _still_there(storage: Storage, moved: Record) -> None:
    """Undo a move to a version whose deletion began at the same moment."""
    if load(storage, moved.name, moved.version) is not None:
        return
    assert moved.alias is not None
    current, etag = pointer.read(storage, moved.name, moved.alias)
    if moved.replaced and current and current.id == moved.id:
        evidence = {"reason": f"{moved.version} was deleted while it was promoted"}
        previous = _predecessor(storage, moved.name, moved.replaced, None)
        back = pointer.record(
            "rollback", moved.name, moved.replaced, alias=moved.alias, previous=previous, evidence=evidence
        )
        pointer.move(storage, current, etag, back)
    raise NotFound(f"version {moved.version} of {moved.name} must not be under deletion, but it is")

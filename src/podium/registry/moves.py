"""Promotion, rollback and aliases: when an alias may move, and what to do about a race."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from podium.errors import Conflict, NotFound
from podium.registry import content, history, pointer
from podium.registry.document import plain, seal, sha256_of, warn_once
from podium.registry.pointer import CHAMPION, AliasLost
from podium.registry.record import Record, record
from podium.registry.version import exists
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
        current, etag = _read(storage, name, alias)
        stands = current.points_at if current else None
        if current and stands == version:
            history.write(storage, current)
            return current
        # An alias that points at nothing stands for nobody, and is in nobody's way.
        if expect and stands not in expect and not (None in expect and not exists(storage, name, stands or "")):
            raise Conflict(
                f"the {alias} of {name} must still be {expect[0] or 'nobody'}, but it is {stands or 'nobody'}",
                "compare with that one and try again",
            )
        previous = stands if event != "rollback" else _predecessor(storage, name, version, stands)
        wanted = record(event, name, version, alias=alias, previous=previous, evidence=evidence)
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
    told = plain({"champion": champion, **evidence})
    wanted = record("refusal", name, version, evidence=told)
    wanted = replace(wanted, id=sha256_of(seal({"version": version, **told}))[0][:12])
    for past in history.load(storage, name).records:
        if (past.event, past.id) == (wanted.event, wanted.id):
            return past
    history.write(storage, wanted)
    return wanted


def rollback(storage: Storage, name: str, to: str | None, reason: str) -> Record:
    """Make an earlier version champion again; see Registry.rollback."""
    try:
        current, _ = pointer.read(storage, name, CHAMPION)
    except AliasLost:
        if to is None:
            raise
        current = None
    else:
        if current is None:
            raise NotFound(f"{name} has no champion to roll back", f"podium models promote {name} VERSION")
    target = to or (current.previous if current else None)
    if target is None:
        assert current is not None
        raise NotFound(f"{current.version} is the first champion of {name}: nothing lies before it", "name one: --to")
    version = content.whole(storage, name, target)
    content.verify_files(storage, version)
    expect = (current.points_at if current else None,)
    return move(storage, "rollback", name, CHAMPION, version.version, evidence={"reason": reason}, expect=expect)


def _read(storage: Storage, name: str, alias: str) -> tuple[Record | None, str | None]:
    """Read an alias that is about to move; what nobody can read any more does not keep it from moving."""
    try:
        return pointer.read(storage, name, alias)
    except AliasLost as lost:
        warn_once(f"{lost.message}; it is replaced by the next move of {alias}")
        return None, lost.etag


def _predecessor(storage: Storage, name: str, version: str, stands: str | None) -> str | None:
    """Return what was champion before version last became it, so that a second rollback goes back further."""
    for past in reversed(pointer.history(storage, name)):
        if past.alias == CHAMPION and past.points_at == version:
            return past.previous
    return stands


def _still_there(storage: Storage, moved: Record) -> None:
    """Undo a move to a version whose deletion began at the same moment."""
    if exists(storage, moved.name, moved.version):
        return
    assert moved.alias is not None
    current, etag = pointer.read(storage, moved.name, moved.alias)
    if current and current.id == moved.id:
        evidence = {"reason": f"{moved.version} was deleted while the {moved.alias} moved to it"}
        back = record("withdrawal", moved.name, moved.version, alias=moved.alias, evidence=evidence)
        if moved.replaced and exists(storage, moved.name, moved.replaced):
            previous = _predecessor(storage, moved.name, moved.replaced, None)
            back = record(
                "rollback", moved.name, moved.replaced, alias=moved.alias, previous=previous, evidence=evidence
            )
        pointer.move(storage, current, etag, back)
    raise NotFound(f"version {moved.version} of {moved.name} is being deleted", "promote another one")

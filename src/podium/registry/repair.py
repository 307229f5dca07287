"""Restoring what is stored twice: the last move of an alias lies in the alias and in the history."""

from collections.abc import Iterator
from dataclasses import dataclass

from podium.errors import Conflict, Damaged
from podium.registry import history, pointer
from podium.registry.document import MAX_BYTES, seal
from podium.storage import Storage


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What became of one damaged object."""

    where: str
    """Its key."""

    restored: bool
    """Whether it is whole now."""

    what: str
    """In words."""


def repair(storage: Storage, name: str) -> Iterator[Repair]:
    """Restore damaged and missing aliases from the history, and the history from the aliases.

    Nothing that can be read is changed, and nothing is deleted.
    """
    stored = history.load(storage, name)
    moved = {event.alias for event in stored.records if event.alias}
    for alias in sorted(moved | set(pointer.alias_names(storage, name))):
        yield from _alias(storage, name, alias, stored)
    held = pointer.held(storage, name, strict=False)
    known = {event.key: alias for alias, event in held.items()}
    readable = {event.key for event in stored.records}
    for alias, event in held.items():
        if event.key not in readable and history.write(storage, event):
            yield Repair(where=event.key, restored=True, what=f"restored from the alias {alias}")
    for key, error in stored.damaged.items():
        if key not in known:
            yield Repair(where=key, restored=False, what=f"cannot be restored, no alias holds it: {error.message}")


def _alias(storage: Storage, name: str, alias: str, stored: history.Stored) -> Iterator[Repair]:
    key = pointer.alias_key(name, alias)
    content, entry = b"", None
    try:
        if storage.head(key):
            content, entry = storage.read(key, limit=MAX_BYTES + 1)
        pointer.parse(content, storage.join(key), name, alias)
        return
    except Damaged:
        pass
    last = stored.last_move(alias)
    lost = stored.lost_moves(last.time if last else "")
    if last is None or lost:
        also = f"its record is damaged, too: {', '.join(lost)}" if lost else "there is no move of it"
        yield Repair(where=key, restored=False, what=f"cannot be restored from the history: {also}")
        return
    try:
        storage.put(key, seal(last.document()), if_absent=entry is None, if_match=entry.etag if entry else None)
    except Conflict:
        yield Repair(where=key, restored=False, what="was moved by somebody else meanwhile")
        return
    target = last.points_at or "nothing"
    yield Repair(where=key, restored=True, what=f"restored from {last.key}: points at {target} since {last.time}")

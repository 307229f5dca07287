"""Aliases such as ``champion``, moved by compare-and-swap, and the history of their moves.

An alias object holds, besides the version it points at, the whole record of the move that put it there. It is the
write-ahead log of its own history::

    1. read the alias, with its etag
    2. make sure that the record it holds is in history/ (put if absent)
    3. replace the alias on condition that its etag is unchanged   <- the move happens here, or not at all
    4. put the new record into history/

Killed between 3 and 4, the record is still in the alias: every reader of the history counts it, and the next move
writes it in its step 2 before it replaces the alias. A mover that loses at 3 leaves nothing behind.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from podium.errors import Conflict, NotFound
from podium.registry.document import just_after, now, plain, seal, unseal
from podium.storage import Storage

CHAMPION = "champion"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One event in the life of a model; immutable once written."""

    event: str
    """promotion, refusal, rollback, alias or deletion."""

    name: str
    """The model."""

    version: str
    """The version the alias points at since then; the deleted one for a deletion, the challenger for a refusal."""

    alias: str | None
    """The alias that moved; None where none did."""

    previous: str | None
    """What the alias pointed at before; where a rollback goes."""

    replaced: str | None
    """The version that gave way; differs from previous after a rollback."""

    time: str
    """RFC3339, UTC."""

    sequence: int
    """Counts the moves of one alias from 1; 0 where none moved."""

    id: str
    """Unique."""

    evidence: Mapping[str, Any]
    """Why: the decision and its figures, or a reason in words."""

    @property
    def key(self) -> str:
        """Where it lies, relative to the storage's URL."""
        stamp = self.time.replace(":", "").replace("-", "")
        return f"models/{self.name}/history/{stamp}-{self.event}-{self.id}.json"

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"format": "podium.event/1", **plain(vars(self))}


def record(event: str, name: str, version: str, **details: Any) -> Record:
    """Make a new record of this moment."""
    given: dict[str, Any] = {"alias": None, "previous": None, "replaced": None, "sequence": 0, "evidence": {}}
    given.update(details)
    given["evidence"] = plain(given["evidence"])
    return Record(event=event, name=name, version=version, time=now(), id=uuid.uuid4().hex[:12], **given)


def parse(content: bytes, where: str) -> Record:
    """Read a record or an alias.

    Raises:
        Damaged: It does not match its checksum.
    """
    return from_document(unseal(content, where))


def from_document(document: Mapping[str, Any]) -> Record:
    """Read what Record.document gave."""
    return Record(**{name: value for name, value in document.items() if name != "format"})


def write(storage: Storage, event: Record) -> None:
    """Put a record into the history; putting it again changes nothing."""
    try:
        storage.put(event.key, seal(event.document()), if_absent=True)
    except Conflict:
        parse(storage.get(event.key), storage.join(event.key))  # somebody did it for us; it must be whole


def alias_key(name: str, alias: str) -> str:
    """Return where an alias lies, relative to the storage's URL."""
    return f"models/{name}/aliases/{alias}.json"


def read(storage: Storage, name: str, alias: str) -> tuple[Record | None, str | None]:
    """Return the record an alias holds and the etag for the next move; (None, None) if there is no such alias."""
    key = alias_key(name, alias)
    try:
        content, entry = storage.read(key)
    except NotFound:
        return None, None
    return parse(content, storage.join(key)), entry.etag


def move(storage: Storage, current: Record | None, etag: str | None, event: Record) -> Record:
    """Point an alias somewhere else: steps 2 to 4 of the protocol.

    Args:
        storage: Where.
        current: What read gave.
        etag: What read gave with it.
        event: The move; its alias, sequence and replaced are filled in.

    Raises:
        Conflict: Somebody else moved the alias since it was read; nothing was changed.
    """
    alias = alias_key(event.name, event.alias or CHAMPION)
    event = replace(event, sequence=1)
    if current:
        # Hosts whose clocks differ still write a history in the order of the moves.
        event = replace(
            event,
            sequence=current.sequence + 1,
            replaced=current.version,
            time=max(event.time, just_after(current.time)),
        )
        write(storage, current)
    try:
        storage.put(alias, seal(event.document()), if_absent=etag is None, if_match=etag)
    except Conflict:
        # A request whose answer got lost is sent again and then meets itself.
        if not _took_effect(storage, event):
            raise
    write(storage, event)
    return event


def _took_effect(storage: Storage, event: Record) -> bool:
    assert event.alias is not None
    seen, _ = read(storage, event.name, event.alias)
    return (seen is not None and seen.id == event.id) or storage.head(event.key) is not None


def history(storage: Storage, name: str) -> list[Record]:
    """Return every event of a model in the order of time, including those whose own object is not written yet."""
    events = {}
    for key, content in storage.get_many(entry.key for entry in storage.list(f"models/{name}/history/")):
        if content is not None:
            event = parse(content, storage.join(key))
            events[event.id] = event
    for held in aliases(storage, name).values():
        events.setdefault(held.id, held)
    return sorted(events.values(), key=lambda event: (event.time, event.sequence))


def aliases(storage: Storage, name: str) -> dict[str, Record]:
    """Return the record each alias holds, by alias."""
    found = {}
    for entry in storage.list(f"models/{name}/aliases/"):
        alias = entry.key.rpartition("/")[2].removesuffix(".json")
        held, _ = read(storage, name, alias)
        if held:
            found[alias] = held
    return found

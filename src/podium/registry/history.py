"""The history as it is stored: one object for each event."""

from contextlib import suppress
from dataclasses import dataclass, replace

from podium.errors import Conflict, Damaged, InvalidInput
from podium.registry import record as records
from podium.registry.document import MAX_BYTES, just_after, seal, stamp, warn_once
from podium.registry.record import MOVES, Record
from podium.storage import Storage


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Everything below ``history/``."""

    records: list[Record]
    """What can be read, in the order of time."""

    damaged: dict[str, Damaged]
    """What cannot, by key."""

    def last_move(self, alias: str) -> Record | None:
        """Return the last move of an alias that can be read."""
        moves = [one for one in self.records if one.alias == alias]
        return max(moves, key=lambda one: one.sequence, default=None)

    def lost_moves(self, after: str) -> list[str]:
        """Return the keys of damaged moves, of whatever alias, that are younger than a time."""
        return [key for key in self.damaged if is_move(key) and _name(key) > stamp(after)]


def is_move(key: str) -> bool:
    """Tell by its key whether an event moved an alias."""
    return any(f"-{event}-" in _name(key) for event in MOVES)


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def load(storage: Storage, name: str) -> Stored:
    """Read every event of a model that has an object of its own."""
    stored = Stored(records=[], damaged={})
    keys = [entry.key for entry in storage.list(f"models/{name}/history/")]
    for key, content in storage.get_many(keys, limit=MAX_BYTES + 1):
        try:
            if isinstance(content, bytes):
                stored.records.append(_parse(content, storage, key, name))
        except Damaged as error:
            stored.damaged[key] = error
        if isinstance(content, Damaged | InvalidInput):
            stored.damaged[key] = Damaged(content.message, content.hint)
    stored.records.sort(key=lambda event: (event.time, event.sequence))
    return stored


def _parse(content: bytes, storage: Storage, key: str, name: str) -> Record:
    where = storage.join(key)
    event = records.parse(content, where, name)
    if event.key != key:
        raise Damaged(f"{where} is the record of {event.key}", "it was copied there")
    return event


def write(storage: Storage, event: Record) -> bool:
    """Put a record into the history; over a damaged one of the same event, too.

    Returns:
        Whether it was not there, or damaged.
    """
    try:
        storage.put(event.key, seal(event.document()), if_absent=True)
        return True
    except Conflict:
        content, entry = storage.read(event.key, limit=MAX_BYTES + 1)
    try:
        _parse(content, storage, event.key, event.name)
        return False
    except Damaged as error:
        warn_once(f"{error.message}; it was written again")
    with suppress(Conflict):  # somebody else restores it, to the same
        storage.put(event.key, seal(event.document()), if_match=entry.etag)
    return True


def continued(storage: Storage, event: Record) -> Record:
    """Return a move with the number and time that follow on the history, for an alias whose last move is not known."""
    assert event.alias is not None
    stored = load(storage, event.name)
    last = stored.last_move(event.alias)
    lost = len(stored.lost_moves(last.time if last else "")) if stored.damaged else 0
    if last is None:
        return replace(event, sequence=1 + lost)
    return replace(event, sequence=last.sequence + lost + 1, time=max(event.time, just_after(last.time)))

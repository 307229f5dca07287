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

from dataclasses import replace

from podium.errors import Conflict, Damaged, NotFound
from podium.registry import history as histories
from podium.registry import record as records
from podium.registry.document import MAX_BYTES, is_name, just_after, seal, warn_once
from podium.registry.record import Record
from podium.storage import Storage

CHAMPION = "champion"


class AliasLost(Damaged):
    """Neither the alias nor the history says what an alias points at.

    Args:
        message: What is damaged.
        etag: Of the damaged alias, for a move that replaces it.
    """

    def __init__(self, message: str, etag: str) -> None:
        super().__init__(
            message, "restore either from a backup, or move it: podium models promote, or rollback --to VERSION"
        )
        self.etag = etag


def alias_key(name: str, alias: str) -> str:
    """Return where an alias lies, relative to the storage's URL."""
    return f"models/{name}/aliases/{alias}.json"


def parse(content: bytes, where: str, name: str, alias: str) -> Record:
    """Read an alias.

    Raises:
        Damaged: It does not match its checksum, or is another alias.
    """
    held = records.parse(content, where, name)
    if held.alias != alias:
        raise Damaged(f"{where} is the alias {held.alias}", "it was copied there")
    return held


def read(storage: Storage, name: str, alias: str) -> tuple[Record | None, str | None]:
    """Return the record an alias holds and the etag for the next move; (None, None) if there is no such alias.

    A damaged alias is read from the history, which holds the same record.

    Raises:
        AliasLost: It is damaged there, too.
    """
    key = alias_key(name, alias)
    try:
        content, entry = storage.read(key, limit=MAX_BYTES + 1)
    except NotFound:
        return None, None
    try:
        return parse(content, storage.join(key), name, alias), entry.etag
    except Damaged as error:
        last = _from_history(storage, name, alias, error, entry.etag)
        warn_once(f"{error.message}; its record in the history is used instead (podium models repair {name})")
        return last, entry.etag


def _from_history(storage: Storage, name: str, alias: str, cause: Damaged, etag: str) -> Record:
    stored = histories.load(storage, name)
    last = stored.last_move(alias)
    lost = stored.lost_moves(last.time if last else "")
    if last is None or lost:
        also = f"so is {', '.join(lost)}" if lost else "the history has no move of it"
        raise AliasLost(f"{cause.message}; {also}", etag)
    return last


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
    assert event.alias is not None
    key = alias_key(event.name, event.alias)
    if current:
        # Hosts whose clocks differ still write a history in the order of the moves.
        event = replace(
            event,
            sequence=current.sequence + 1,
            replaced=current.points_at,
            time=max(event.time, just_after(current.time)),
        )
        histories.write(storage, current)
    else:
        event = histories.continued(storage, event)
    try:
        storage.put(key, seal(event.document()), if_absent=etag is None, if_match=etag)
    except Conflict:
        # A request whose answer got lost is sent again and then meets itself.
        if not _took_effect(storage, event):
            raise
    histories.write(storage, event)
    return event


def _took_effect(storage: Storage, event: Record) -> bool:
    assert event.alias is not None
    seen, _ = read(storage, event.name, event.alias)
    return (seen is not None and seen.id == event.id) or storage.head(event.key) is not None


def history(storage: Storage, name: str) -> list[Record]:
    """Return every event of a model in the order of time, including those whose own object is not written yet.

    A damaged object is named in a warning, unless an alias holds the same record.
    """
    stored = histories.load(storage, name)
    events = {event.id: event for event in stored.records}
    aliases = held(storage, name, strict=False).values()
    for one in aliases:
        events.setdefault(one.id, one)
    for key in stored.damaged.keys() - {one.key for one in aliases}:
        warn_once(f"{stored.damaged[key].message}; the rest of the history is shown")
    return sorted(events.values(), key=lambda event: (event.time, event.sequence))


def held(storage: Storage, name: str, *, strict: bool = True) -> dict[str, Record]:
    """Return the record that each alias holds, by alias; also of one whose version was withdrawn.

    Args:
        storage: Where.
        name: The model.
        strict: Raise AliasLost for an alias nobody can read; otherwise it is named in a warning and left out.
    """
    found = {}
    for alias in alias_names(storage, name):
        try:
            record, _ = read(storage, name, alias)
        except Damaged as error:
            if strict:
                raise
            warn_once(error.message)
            continue
        if record:
            found[alias] = record
    return found


def alias_names(storage: Storage, name: str) -> list[str]:
    """Return the names of all aliases."""
    prefix = f"models/{name}/aliases/"
    names = [entry.key.removeprefix(prefix) for entry in storage.list(prefix)]
    return [alias.removesuffix(".json") for alias in names if alias.endswith(".json") and is_name(alias)]


def aliases(storage: Storage, name: str) -> dict[str, Record]:
    """Return the record of each alias that points at a version, by alias."""
    return {alias: record for alias, record in held(storage, name, strict=False).items() if record.points_at}

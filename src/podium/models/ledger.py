"""The one document of a model, ``models/<name>/model.json``, moved by compare-and-swap.

It names the versions by the sha256 of their metadata.json, holds the record of the move that set
each alias, and the newest records of the history. Older ones are in segments: immutable objects
below ``history/``, each named by the sha256 of its bytes and written before the document names it.
Whatever happens to a model is one write of the document, on condition that nobody wrote it since it
was read; who loses reads it again and decides anew. A process that dies before that write has
changed nothing.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import accumulate, islice
from typing import Any

from podium.display.terminal import warn_once
from podium.errors import Conflict, Damaged, NotFound
from podium.models.document import (
    BACKUP,
    MAX_BYTES,
    TIME,
    command,
    is_name,
    moment,
    plain,
    read_as,
    seal,
    sha256_of,
    unseal,
)
from podium.models.record import Record
from podium.models.version import Version, metadata_key, parse_metadata, version_prefix
from podium.storage import Entry, Storage

CHAMPION = "champion"
_FORMAT = "podium.ledger/1"
_SEGMENT = "podium.history/1"
MOST_RECORDS, MOST_BYTES = 150, 1 << 19
"""With more of its history the document moves the older part into a segment."""
KEPT_RECORDS, KEPT_BYTES = 100, 1 << 18
"""As many stay in it then."""


@dataclass(frozen=True, kw_only=True)
class State:
    """A document of a model, parsed."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of each version's metadata.json."""

    aliases: Mapping[str, Record] = field(default_factory=dict)
    """The move that set each alias."""

    history: tuple[Record, ...] = ()
    """The newest records, oldest first."""

    segments: tuple[str, ...] = ()
    """The segments with the records before these, oldest first."""

    deleting: Mapping[str, str] = field(default_factory=dict)
    """Who deletes the files of a version that is gone, or writes over them: a name and a token."""

    collected: str = ""
    """Token of the last that deleted files."""

    @classmethod
    def parse(cls, document: Mapping[str, Any], where: str, name: str) -> "State":
        """Parse what document returned.

        Raises:
            Damaged: It belongs to another model, has an unknown format, or lacks a member.
        """
        if document.get("format") != _FORMAT:
            raise Damaged(
                f"{where} has the unknown format {document.get('format')!r}", "upgrade podium?"
            )
        if document.get("name") != name:
            raise Damaged(f"{where} belongs to model {document.get('name')}", "it was copied there")
        aliases = read_as(dict[str, Any], document.get("aliases"), where, "aliases")
        state = cls(
            versions=read_as(dict[str, str], document.get("versions"), where, "versions"),
            aliases={alias: Record.parse(held, where, name) for alias, held in aliases.items()},
            history=_records(document.get("history"), where, name),
            segments=read_as(tuple[str], document.get("segments"), where, "segments"),
            deleting=read_as(dict[str, str], document.get("deleting"), where, "deleting"),
            collected=read_as(str, document.get("collected"), where, "collected"),
        )
        names = (*state.versions, *state.aliases, *state.segments, *state.deleting)
        odd = [alias for alias, held in state.aliases.items() if held.alias != alias]
        if bad := odd or [each for each in names if not is_name(each)]:
            raise Damaged(f"{where} has the name {bad[0]!r}, which podium does not give", BACKUP)
        return state

    def document(self, name: str) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "format": _FORMAT,
            "name": name,
            **vars(self),
            "aliases": {alias: held.to_json() for alias, held in self.aliases.items()},
            "history": [record.to_json() for record in self.history],
        }

    def with_token(self, version: str, token: str | None) -> "State":
        """Return it with another token of a version's deletion, or without one."""
        others = {name: held for name, held in self.deleting.items() if name != version}
        return replace(self, deleting=others | ({} if token is None else {version: token}))

    def has(self, record: Record) -> bool:
        """Return whether a record was written, so that a lost answer is recognized."""
        return any(entry.id == record.id for entry in self.history)


def deletion_token(began: datetime) -> str:
    """Return a token of who deletes a version's files: the time, and what no other has."""
    return f"{began.strftime(TIME)} {uuid.uuid4().hex}"


class Ledger:
    """A model in a storage: its document, and what that names.

    Args:
        dry_run: Whether changes are decided, checked and returned, but not written.
    """

    def __init__(self, storage: Storage, name: str, *, dry_run: bool = False) -> None:
        self.storage, self.name, self.dry_run = storage, name, dry_run
        self.key = f"models/{name}/model.json"
        self._seen: tuple[State, str] | None = None
        self._segments: dict[str, tuple[Record, ...]] = {}

    def read(self) -> tuple[State, str | None]:
        """Return the document and its etag; an empty one and None if there is none.

        One that was read before is not read again until its etag changes.

        Raises:
            Damaged: It cannot be read.
        """
        if self._seen and (entry := self.storage.head(self.key)) and entry.etag == self._seen[1]:
            return self._seen
        try:
            content, entry = self.storage.read(self.key, limit=MAX_BYTES + 1)
        except NotFound:
            return State(), None
        where = self.storage.join(self.key)
        try:
            document = unseal(content, where)
        except Damaged as error:
            raise Damaged(
                error.message,
                f"{BACKUP}, or {command(f'models verify {self.name} --fix', self.storage)}: it makes another one "
                "from the versions' own metadata, without aliases",
            ) from None
        self._seen = State.parse(document, where, self.name), entry.etag
        return self._seen

    def change(self, decide: Callable[[State], State | None]) -> State:
        """Replace the document by what is decided about it, again if somebody was faster.

        Args:
            decide: Returns the new document, or None to leave it; also called for a document that
                has the change already, if the answer to the write was lost.

        Raises:
            Damaged: It cannot be read.
        """
        while True:
            state, etag = self.read()
            changed = decide(state)
            if changed is None:
                return state
            if self.dry_run:
                return changed
            changed = self._moved_out(changed)
            with suppress(Conflict):
                content = seal(changed.document(self.name))
                entry = self.storage.put(self.key, content, if_absent=etag is None, if_match=etag)
                self._seen = changed, entry.etag
                return changed

    def hand_over(self, version: str, held: str, token: str | None) -> bool:
        """Replace the token of a version's deletion, or remove it; return False if another process
        did so before."""

        def take(state: State) -> State | None:
            if state.deleting.get(version) != held:
                return None
            return state.with_token(version, token)

        return self.change(take).deleting.get(version) == token

    def _moved_out(self, state: State) -> State:
        """Move the older part of a long history into a segment."""
        sizes = [len(json.dumps(record.to_json())) for record in state.history]
        if len(sizes) <= MOST_RECORDS and sum(sizes) <= MOST_BYTES:
            return state
        newest = islice(accumulate(reversed(sizes)), KEPT_RECORDS)
        at = len(sizes) - max(1, sum(size <= KEPT_BYTES for size in newest))
        records = [record.to_json() for record in state.history[:at]]
        # No two are equal, so none that was collected as garbage is named later.
        document = {"format": _SEGMENT, "name": self.name, "id": uuid.uuid4().hex}
        content = seal({**document, "records": records})
        name = sha256_of(content)[0]
        self.storage.put(self.segment_key(name), content, if_absent=True)
        return replace(state, history=state.history[at:], segments=(*state.segments, name))

    def append(self, record: Record) -> None:
        """Add a record to the history."""
        self.change(
            lambda state: (
                None if state.has(record) else replace(state, history=(*state.history, record))
            )
        )

    def refuse(self, version: str, champion: str | None, evidence: Mapping[str, Any]) -> None:
        """Record that a challenger failed the promotion rule; recording the same twice in a row
        changes nothing.

        Args:
            champion: The version it was compared with.
            evidence: The decision and its figures.
        """
        compared = plain({"champion": champion, **evidence})
        refusal = Record.new("refusal", self.name, version, evidence=compared)

        def add(state: State) -> State | None:
            own = [record for record in self.distinct_records(state) if record.version == version]
            last = next((record for record in reversed(own) if record.event != "alias"), None)
            if last and (last.event, last.evidence) == ("refusal", compared):
                return None
            return replace(state, history=(*state.history, refusal))

        self.change(add)

    def move(
        self,
        event: str,
        alias: str,
        version: str,
        *,
        evidence: Mapping[str, Any],
        expect: tuple[str | None, ...] = (),
    ) -> Record:
        """Move an alias to a complete version.

        Args:
            event: promotion, rollback or alias.
            expect: The version it must point at now, None for no version; an empty tuple allows
                any.

        Returns:
            The new record, or the current one if the alias already points there.

        Raises:
            Conflict: It points at another version than expected.
            NotFound: The version was deleted meanwhile.
        """
        wanted = Record.new(event, self.name, version, alias=alias, evidence=evidence)

        def moved(state: State) -> State | None:
            current = state.aliases.get(alias)
            if state.has(wanted) or (current and current.version == version):
                return None
            target = current.version if current else None
            # An alias whose version is gone counts as unset.
            gone = None in expect and not self.exists(target or "", state)
            if expect and target not in expect and not gone:
                raise Conflict(
                    f"the {alias} of {self.name} is now {target or 'unset'}; "
                    f"{expect[0] or 'none'} was expected",
                    "compare with that one and try again",
                )
            if version not in state.versions:
                raise NotFound(
                    f"version {version} of {self.name} is being deleted", "promote another one"
                )
            record = self._following(wanted, state)
            return replace(
                state,
                aliases={**state.aliases, alias: record},
                history=(*state.history, record),
            )

        state = self.change(moved)
        records = (*reversed(state.history), *state.aliases.values())
        return next((record for record in records if record.id == wanted.id), state.aliases[alias])

    def _following(self, move: Record, state: State) -> Record:
        """Give a move the number and time that follow the alias's last one, and where a rollback
        would go."""
        assert move.alias
        current = state.aliases.get(move.alias)
        target = previous = current.version if current else None
        if move.event == "rollback":  # one that follows goes further back
            earlier = reversed(self.records(state))
            same = (
                each for each in earlier if (each.alias, each.version) == (CHAMPION, move.version)
            )
            previous = next((each.previous for each in same), target)
        if current is None:  # an alias that was lost with its document
            moves = [record for record in self.records(state) if record.alias == move.alias]
            current = moves[-1] if moves else None
        return replace(
            move,
            sequence=current.sequence + 1 if current else 1,
            previous=previous,
            replaced=target,
            # Hosts whose clocks differ still write a history in the order of the moves.
            time=max(move.time, _just_after(current.time)) if current else move.time,
        )

    def records(self, state: State | None = None, *, strict: bool = False) -> list[Record]:
        """Return the whole history, oldest first.

        Args:
            strict: Raise Damaged for a segment that cannot be read; else it is left out with a
                warning.
        """
        state = state or self.read()[0]
        records: dict[str, Record] = {}
        for name in state.segments:
            try:
                records |= {record.id: record for record in self.segment(name)}
            except Damaged as error:
                if strict:
                    raise
                warn_once(f"{error.message}; the rest of the history is shown")
        return [*(records | {record.id: record for record in state.history}).values()]

    def distinct_records(self, state: State | None = None) -> list[Record]:
        """Return the whole history, oldest first, with another name for each version that was
        deleted: its id may stand for other files since."""
        gone: dict[str | None, str] = {}
        records = list[Record]()
        for record in reversed(self.records(state)):
            if record.event == "deletion":
                gone[record.version] = f"{record.version}~{record.id}"
            records.append(record.renamed(gone))
        return records[::-1]

    def segment(self, name: str) -> tuple[Record, ...]:
        """Read a segment.

        Raises:
            Damaged: It is missing, or not what was written.
        """
        if name not in self._segments:
            key = self.segment_key(name)
            where = self.storage.join(key)
            try:
                content = self.storage.get(key, limit=MAX_BYTES + 1)
            except NotFound:
                raise Damaged(f"{where} is missing", BACKUP) from None
            document = unseal(content, where)
            owner = (document.get("format"), document.get("name"), sha256_of(content)[0])
            if owner != (_SEGMENT, self.name, name):
                raise Damaged(f"{where} is of another history", "it was copied there")
            self._segments[name] = _records(document.get("records"), where, self.name)
        return self._segments[name]

    def segment_key(self, name: str) -> str:
        """Return the key of a segment."""
        return f"models/{self.name}/history/{name}.json"

    def entries(self, version: str) -> list[Entry]:
        """Return all objects of a version."""
        return list(self.storage.list(f"{version_prefix(self.name, version)}/"))

    def load(self, version: str, state: State | None = None) -> Version | None:
        """Return a version; None if there is none, or if its metadata.json is gone.

        Raises:
            Damaged: Its metadata.json cannot be read.
        """
        state = state or self.read()[0]
        if version not in state.versions:
            return None
        try:
            content = self.storage.get(metadata_key(self.name, version), limit=MAX_BYTES + 1)
        except NotFound:
            return None
        return self._parsed(content, version, state)

    def exists(self, version: str, state: State | None = None) -> bool:
        """Return whether a version is there, intact or damaged."""
        try:
            return self.load(version, state) is not None
        except Damaged:
            return True

    def look_many(self, state: State) -> Iterator[tuple[str, Version | Damaged]]:
        """Read the metadata.json of every version; yield what was read, or why it cannot be, by
        version."""
        keys = [metadata_key(self.name, version) for version in state.versions]
        read = self.storage.get_many(keys, limit=MAX_BYTES + 1)
        for version, (key, content) in zip(state.versions, read, strict=True):
            try:
                if isinstance(content, bytes):
                    yield version, self._parsed(content, version, state)
                else:
                    missing = isinstance(content, NotFound)
                    problem = f"{self.storage.join(key)} is missing" if missing else content.message
                    yield version, Damaged(problem, BACKUP)
            except Damaged as error:
                yield version, error

    def _parsed(self, content: bytes, version: str, state: State) -> Version:
        parsed = parse_metadata(content, self.storage, self.name, version)
        if sha256_of(content)[0] != state.versions[version]:
            where = self.storage.join(metadata_key(self.name, version))
            raise Damaged(f"{where} is not the one that was uploaded", BACKUP)
        return parsed

    def versions(self, state: State | None = None) -> list[Version]:
        """Return every version in the order of the uploads, which the document keeps whatever the
        clocks of the hosts say; damaged ones are left out with a warning."""
        versions = []
        for _, metadata in self.look_many(state or self.read()[0]):
            if isinstance(metadata, Damaged):
                warn_once(f"{metadata.message}; it is left out")
            else:
                versions.append(metadata)
        return versions


def _just_after(time: str) -> str:
    return (moment(time) + timedelta(microseconds=1)).strftime(TIME)


def _records(value: Any, where: str, name: str) -> tuple[Record, ...]:
    return tuple(Record.parse(each, where, name) for each in read_as(list[Any], value, where))


def names_below(storage: Storage, prefix: str) -> list[str]:
    """Return the models or versions below a prefix; names that podium never gives are left out with
    a warning."""
    names = list(storage.children(prefix))
    for name in names:
        if not is_name(name):
            warn_once(
                f"{storage.join(prefix)}/{name!r} is not a name that podium gives, and is left out"
            )
    return [name for name in names if is_name(name)]

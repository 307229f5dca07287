"""The history of a model: one record per promotion, refusal, rollback, alias move and deletion."""

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from podium.errors import Conflict, Damaged, InvalidInput, PodiumError
from podium.models.document import (
    MAX_BYTES,
    is_count,
    is_name,
    just_after,
    moment,
    now,
    plain,
    read_as,
    seal,
    sha256_of,
    stamp,
    unseal,
    warn_once,
    without_nulls,
)
from podium.models.fresh import Bets
from podium.storage import Storage
from podium.text import figure

FORMAT = "podium.event/1"
MOVES = ("promotion", "rollback", "alias", "withdrawal")
"""Events that move an alias."""
EVENTS = (*MOVES, "refusal", "approval", "rejection", "deletion")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The metric that challenger and champion were compared by."""

    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The best constant guess on the same items."""

    guess: str = ""
    value: float | None = None

    def __str__(self) -> str:
        return "" if self.value is None else f"{self.guess}: {figure(self.value)}"


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """The part of a record's evidence that podium reads; all of it may be missing."""

    reason: str | None = None
    """Reason given by a person."""

    reasons: tuple[str, ...] = ()
    """Outcome of each part of the promotion rule, in words."""

    metric: Compared = Compared()

    value: float | None = None
    """The challenger's."""

    model: tuple[str, ...] = ()
    """Identity of the challenger's model, the same under any version."""

    champion: str | None = None
    """The version a refused challenger was compared with."""

    champion_value: float | None = None
    """On the same items."""

    p_value: float | None = None
    doubt: str = ""
    """Why p is not to be relied on."""

    noise: float | None = None
    """Squared standard error of one of both figures, see shrinkage.noise_of."""

    shrunk: float | None = None
    """The challenger's figure as its posterior mean."""

    champion_shrunk: float | None = None
    constant: Constant = Constant()
    fresh: Bets = field(default_factory=Bets)
    tracking: str | None = None
    """Address of the MLflow server that the run was logged to."""

    @classmethod
    def parse(cls, evidence: Any, where: str, error: type[PodiumError] = Damaged) -> "Grounds":
        """Read the evidence of a record.

        Raises:
            PodiumError: A member has another type; the error is of the type given.
        """
        return cast(Grounds, read_as(cls, without_nulls(evidence), where, "evidence", error=error))


@dataclass(frozen=True, kw_only=True)
class Record:
    """One event; immutable once written."""

    event: str
    """promotion, refusal, approval, rejection, rollback, alias, withdrawal or deletion."""

    name: str
    version: str
    """A move's target, a refusal's challenger; for a deletion or withdrawal the version that is
    gone."""

    alias: str | None = None
    """The alias that moved; None where none did."""

    previous: str | None = None
    """Where a rollback of the alias would go."""

    replaced: str | None = None
    """The version the alias pointed at before; differs from previous after a rollback."""

    time: str
    """RFC3339, UTC."""

    sequence: int
    """Counts the moves of one alias from 1; 0 for other events."""

    id: str
    evidence: Mapping[str, Any]
    """The decision and its figures, or a reason in words."""

    @classmethod
    def new(
        cls,
        event: str,
        name: str,
        version: str,
        *,
        evidence: Mapping[str, Any] | None = None,
        sequence: int = 0,
        **details: Any,
    ) -> "Record":
        """Make a record of an event that happens now; details are further fields.

        Raises:
            InvalidInput: The evidence could not be read back.
        """
        grounds = plain(evidence or {})
        Grounds.parse(grounds, "the record", InvalidInput)
        return cls(
            event=event,
            name=name,
            version=version,
            time=now(),
            id=uuid.uuid4().hex[:12],
            evidence=grounds,
            sequence=sequence,
            **details,
        )

    @classmethod
    def unseal(cls, content: bytes, where: str, name: str) -> "Record":
        """Parse a sealed record of a model.

        Raises:
            Damaged: It does not match its checksum, belongs to another model, or is not a record at
                all.
        """
        return cls.parse(unseal(content, where), where, name)

    @classmethod
    def parse(cls, document: Any, where: str, name: str) -> "Record":
        """Parse what document returned.

        Raises:
            Damaged: It belongs to another model, or is not a record at all.
        """
        known = {"format", *(field.name for field in fields(cls))}
        record: Record = read_as(cls, document, where)
        if document.get("format") != FORMAT or document.keys() - known:
            raise Damaged(
                f"{where} has the unknown format {document.get('format')!r}", "upgrade podium?"
            )
        if record.name != name:
            raise Damaged(f"{where} belongs to model {record.name}", "it was copied there")
        if not record._is_sound():
            raise Damaged(
                f"{where} is not an event of a model: {record.event!r} at {record.time!r}",
                "upgrade podium?",
            )
        Grounds.parse(record.evidence, where)
        return record

    def _is_sound(self) -> bool:
        try:
            timely = moment(self.time).year < 9999
        except ValueError:
            return False
        names = (self.version, self.id, self.alias, self.previous, self.replaced)
        named = all(is_name(name) for name in names if name is not None)
        moves = (self.alias is not None) == (self.event in MOVES)
        return timely and named and moves and self.event in EVENTS and is_count(self.sequence)

    @property
    def key(self) -> str:
        """Its key in the history."""
        return f"models/{self.name}/history/{stamp(self.time)}-{self.event}-{self.id}.json"

    @property
    def points_at(self) -> str | None:
        """The version an alias with this record points at; None after a withdrawal."""
        return None if self.event == "withdrawal" else self.version

    @property
    def grounds(self) -> Grounds:
        """The part of the evidence that podium reads."""
        return Grounds.parse(self.evidence, self.key)

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"format": FORMAT, **plain(vars(self))}

    def seal(self) -> bytes:
        """Serialize it, for the history and for an alias."""
        return seal(self.document())


@dataclass(frozen=True, kw_only=True)
class Entries:
    """All records that have an object of their own."""

    records: list[Record]
    """Readable ones, in order of time."""

    damaged: dict[str, Damaged]
    """Unreadable ones, by key."""

    def last_move(self, alias: str) -> tuple[Record | None, list[str]]:
        """Return the last readable move of an alias, and the keys of damaged moves of any alias
        since then."""
        moves = [record for record in self.records if record.alias == alias]
        last = max(moves, key=lambda record: record.sequence, default=None)
        return last, self.lost_moves(last.time if last else "")

    def lost_moves(self, after: str) -> list[str]:
        """Return the keys of damaged moves of any alias that are later than a time."""
        return [key for key in self.damaged if _is_move(key) and _filename(key) > stamp(after)]


def _is_move(key: str) -> bool:
    return any(f"-{event}-" in _filename(key) for event in MOVES)


def _filename(key: str) -> str:
    return key.rpartition("/")[2]


class Journal:
    """The objects below ``models/<name>/history/``."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage = storage
        self.name = name
        self.prefix = f"models/{name}/history"

    def load(self) -> Entries:
        """Read every record."""
        entries = Entries(records=[], damaged={})
        keys = [entry.key for entry in self.storage.list(f"{self.prefix}/")]
        for key, content in self.storage.get_many(keys, limit=MAX_BYTES + 1):
            try:
                if isinstance(content, bytes):
                    entries.records.append(self._parse(content, key))
            except Damaged as error:
                entries.damaged[key] = error
            if isinstance(content, Damaged | InvalidInput):
                entries.damaged[key] = Damaged(content.message, content.hint)
        entries.records.sort(key=lambda record: (record.time, record.sequence))
        return entries

    def write(self, record: Record) -> bool:
        """Store a record; a damaged copy of it is replaced.

        Returns:
            Whether it was missing or damaged.
        """
        try:
            self.storage.put(record.key, record.seal(), if_absent=True)
            return True
        except Conflict:
            content, entry = self.storage.read(record.key, limit=MAX_BYTES + 1)
        try:
            self._parse(content, record.key)
            return False
        except Damaged as error:
            warn_once(f"{error.message}; it was written again")
        with suppress(Conflict):  # another process restored the same record
            self.storage.put(record.key, record.seal(), if_match=entry.etag)
        return True

    def refuse(self, version: str, champion: str | None, evidence: Mapping[str, Any]) -> Record:
        """Record that a challenger failed the promotion rule; recording the same again changes
        nothing.

        Args:
            champion: The version it was compared with.
            evidence: The decision and its figures.
        """
        compared = plain({"champion": champion, **evidence})
        refusal = Record.new("refusal", self.name, version, evidence=compared)
        refusal = replace(refusal, id=sha256_of(seal({"version": version, **compared}))[0][:12])
        for record in self.load().records:
            if (record.event, record.id) == (refusal.event, refusal.id):
                return record
        self.write(refusal)
        return refusal

    def renumber(self, move: Record) -> Record:
        """Give the move of an alias whose record is lost the number and time that follow the
        history."""
        assert move.alias is not None
        last, lost = self.load().last_move(move.alias)
        if last is None:
            return replace(move, sequence=1 + len(lost))
        return replace(
            move, sequence=last.sequence + len(lost) + 1, time=max(move.time, just_after(last.time))
        )

    def _parse(self, content: bytes, key: str) -> Record:
        where = self.storage.join(key)
        record = Record.unseal(content, where, self.name)
        if record.key != key:
            raise Damaged(f"{where} is the record of {record.key}", "it was copied there")
        return record

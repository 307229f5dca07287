"""One event in the life of a model, as it lies in the history and in an alias."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from podium.errors import Damaged, InvalidInput
from podium.registry.document import moment, now, plain, stamp, unseal
from podium.registry.fields import Fields

FORMAT = "podium.event/1"
MOVES = ("promotion", "rollback", "alias", "withdrawal")
"""Events that move an alias."""
EVENTS = (*MOVES, "refusal", "deletion")


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """What podium itself reads of the evidence for an event."""

    reason: str | None
    """In words, for what a person did."""

    reasons: tuple[str, ...]
    """What each part of the rule said."""

    accuracy: float | None
    """Of the challenger."""

    champion: str | None
    """The version a refused challenger was compared with."""

    champion_accuracy: float | None
    """On the same images."""

    p_value: float | None
    """Of McNemar's test."""

    @classmethod
    def parse(cls, evidence: Fields) -> "Grounds":
        """Read the evidence of a record; raises what the fields raise."""
        return cls(
            reason=evidence.optional_text("reason"),
            reasons=evidence.texts("reasons"),
            accuracy=evidence.optional_number("accuracy"),
            champion=evidence.optional_text("champion"),
            champion_accuracy=evidence.optional_number("champion_accuracy"),
            p_value=evidence.optional_number("p_value"),
        )


@dataclass(frozen=True, kw_only=True)
class Record:
    """One event; immutable once written."""

    event: str
    """promotion, refusal, rollback, alias, withdrawal or deletion."""

    name: str
    """The model."""

    version: str
    """What the alias points at since then; what went, for a deletion or withdrawal; the challenger, for a refusal."""

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
        return f"models/{self.name}/history/{stamp(self.time)}-{self.event}-{self.id}.json"

    @property
    def points_at(self) -> str | None:
        """The version an alias with this record points at; None since a withdrawal."""
        return None if self.event == "withdrawal" else self.version

    @property
    def grounds(self) -> Grounds:
        """The evidence as far as podium reads it."""
        return Grounds.parse(Fields(self.evidence, self.key))

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"format": FORMAT, **plain(vars(self))}


def record(event: str, name: str, version: str, **details: Any) -> Record:
    """Make a new record of this moment.

    Raises:
        InvalidInput: The evidence is not what a reader can read.
    """
    given: dict[str, Any] = {"alias": None, "previous": None, "replaced": None, "sequence": 0, "evidence": {}}
    given.update(details)
    given["evidence"] = plain(given["evidence"])
    Grounds.parse(Fields(given["evidence"], "evidence", InvalidInput))
    return Record(event=event, name=name, version=version, time=now(), id=uuid.uuid4().hex[:12], **given)


def parse(content: bytes, where: str, name: str) -> Record:
    """Read a record of a model.

    Raises:
        Damaged: It does not match its checksum, is of another model, or is not a record at all.
    """
    return from_document(unseal(content, where), where, name)


def from_document(document: Any, where: str, name: str) -> Record:
    """Read what Record.document gave; raises like parse."""
    given = Fields(document, where)
    known = {"format", *(field.name for field in fields(Record))}
    if given.text("format") != FORMAT or set(given) - known:
        raise Damaged(f"{where} must be of format {FORMAT}, but is of {given.text('format')!r}", "upgrade podium?")
    if given.name("name") != name:
        raise Damaged(f"{where} belongs to model {given.name('name')}", "it was copied there")
    read = Record(
        event=given.text("event"),
        name=name,
        version=given.name("version"),
        alias=given.optional_name("alias"),
        previous=given.optional_name("previous"),
        replaced=given.optional_name("replaced"),
        time=given.text("time"),
        sequence=given.count("sequence"),
        id=given.name("id"),
        evidence=document.get("evidence"),
    )
    try:
        timely = moment(read.time).year < 9999
    except ValueError:
        timely = False
    if read.event not in EVENTS or not timely or (read.alias is not None) != (read.event in MOVES):
        raise Damaged(f"{where} is not an event of a model: {read.event!r} at {read.time!r}", "upgrade podium?")
    Grounds.parse(Fields(read.evidence, where))
    return read

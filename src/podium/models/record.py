"""A record of a model's history: a promotion, refusal, rollback, alias move, a person's word or a
deletion."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from podium.display.text import figure
from podium.errors import Damaged, InvalidInput, PodiumError
from podium.models.document import is_count, is_name, moment, now, plain, read_as, without_nulls
from podium.models.fresh import Bets

_FORMAT = "podium.event/1"
_MOVES = ("promotion", "rollback", "alias")
"""Events that move an alias."""
_EVENTS = (*_MOVES, "refusal", "approval", "rejection", "deletion")


@dataclass(frozen=True, kw_only=True)
class ChosenBy:
    """The metric that versions are chosen and compared by."""

    name: str | None = None

    maximize: bool | None = None
    """Whether more of it is better."""


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The best constant guess on the same items."""

    guess: str = ""
    value: float | None = None

    def __str__(self) -> str:
        return "" if self.value is None else f"{self.guess}: {figure(self.value)}"


@dataclass(frozen=True, kw_only=True)
class _Grounds:
    """The part of a record's evidence that podium reads; all of it may be missing."""

    reason: str | None = None
    """Reason given by a person."""

    reasons: tuple[str, ...] = ()
    """Outcome of each part of the promotion rule, in words."""

    metric: ChosenBy = ChosenBy()

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
    def parse(cls, evidence: Any, where: str, error: type[PodiumError] = Damaged) -> "_Grounds":
        """Read the evidence of a record.

        Raises:
            PodiumError: A member has another type; the error is of the type given.
        """
        return cast(_Grounds, read_as(cls, without_nulls(evidence), where, "evidence", error=error))


@dataclass(frozen=True, kw_only=True)
class Record:
    """One event; immutable once written."""

    event: str
    """promotion, refusal, approval, rejection, rollback, alias or deletion."""

    name: str
    version: str
    """A move's target, a refusal's challenger; for a deletion the version that is gone."""

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
        _Grounds.parse(grounds, "the record", InvalidInput)
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
    def parse(cls, document: Any, where: str, name: str) -> "Record":
        """Parse what to_json returned.

        Raises:
            Damaged: It belongs to another model, or is not a record at all.
        """
        allowed = {"format", *(field.name for field in fields(cls))}
        record: Record = read_as(cls, document, where)
        if document.get("format") != _FORMAT or document.keys() - allowed:
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
        _Grounds.parse(record.evidence, where)
        return record

    def _is_sound(self) -> bool:
        try:
            timely = moment(self.time).year < 9999
        except ValueError:
            return False
        names = (self.version, self.id, self.alias, self.previous, self.replaced)
        named = all(is_name(name) for name in names if name is not None)
        moves = (self.alias is not None) == (self.event in _MOVES)
        return timely and named and moves and self.event in _EVENTS and is_count(self.sequence)

    @property
    def grounds(self) -> _Grounds:
        """The part of the evidence that podium reads."""
        return _Grounds.parse(self.evidence, f"the {self.event} of {self.version}")

    def renamed(self, names: Mapping[str | None, str]) -> "Record":
        """Return it with other names of versions.

        Args:
            names: The new one by the old one.
        """
        if not names:
            return self
        ids: dict[str, Any] = {
            field: names[getattr(self, field)]
            for field in ("version", "previous", "replaced")
            if getattr(self, field) in names
        }
        champion = self.evidence.get("champion")
        evidence = {"champion": names[champion]} if champion in names else {}
        return replace(self, evidence={**self.evidence, **evidence}, **ids)

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what is stored, and what the shell and ``podium mcp`` show."""
        return {"format": _FORMAT, **vars(self)}

"""The outcome of a promotion."""

from dataclasses import dataclass

from podium.errors import Failed
from podium.models.decision import Decision
from podium.models.record import Record


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """Outcome of an attempt to make a version champion."""

    record: Record | None
    """In the history; None if the champion stays."""

    decision: Decision | None = None
    """Decision of the rule, with its figures, against the champion at that moment; None if there
    was no rule."""

    champion: str | None = None
    """The version it was compared with; None if there was none."""

    @property
    def version(self) -> str | None:
        """Id of the champion now."""
        return self.record.version if self.record else self.champion

    @property
    def replaced(self) -> str | None:
        """The champion before; None if there was none, or if it stays."""
        return self.record.replaced if self.record else None


class NotPromoted(Failed):
    """A version does not meet the rule; the champion stays.

    Args:
        message: Which version, and who stays champion.
        decision: What the rule decided.
    """

    def __init__(self, message: str, decision: Decision) -> None:
        super().__init__(message, "; ".join(decision.reasons))
        self.decision = decision

"""The doctor's report on one subject."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from podium.manifests.rules import Finding

NOT_EXAMINED = "not examined"
"""Verdict on a subject that no rule was applied to."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Findings about one subject."""

    subject: str
    """A file, a command line, an object or a namespace."""

    kind: str
    """``log``, ``events``, ``command``, ``Experiment``, ``PyTorchJob``, ``Job`` or
    ``namespace``."""

    findings: Sequence[Finding] = ()
    """The worst first."""

    details: dict[str, Any] = field(default_factory=dict)
    """Further facts: metrics that would be stored, the wrapped command line."""

    examined: bool = True
    """Whether any rule was applied: a subject without rules does not pass."""

    @property
    def verdict(self) -> str:
        """``fail`` or ``warn`` if any finding says so, else ``pass``; ``not examined`` if no rule
        was applied."""
        levels = {finding.level for finding in self.findings}
        fine = "pass" if self.examined else NOT_EXAMINED
        return "fail" if "fail" in levels else "warn" if "warn" in levels else fine

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON shows it."""
        return {
            "subject": self.subject,
            "kind": self.kind,
            "verdict": self.verdict,
            "findings": [finding.as_dict() for finding in self.findings],
            **self.details,
        }

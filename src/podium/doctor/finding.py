"""What the doctor says: findings of named rules, gathered in a report on one subject."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

LEVELS = ("pass", "note", "warn", "fail")
"""From good to bad: looked at and fine; worth knowing; works, but perhaps not as meant; would fail."""

NOT_EXAMINED = "not examined"
"""Verdict on what no rule was applied to."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was found: what, where, why it matters and how to mend it."""

    rule: str
    """Name of the rule, as in docs/doctor.md."""

    level: str
    """One of LEVELS."""

    what: str
    """What is there."""

    where: str
    """A line, the path of a field or the name of a resource."""

    why: str
    """The fact behind the rule."""

    mend: str | None = None
    """What to do; None if there is nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """Where a rule applies; the rule adds its name, its level and the reason."""

    what: str
    """What is there."""

    where: str
    """A line, the path of a field or the name of a resource."""

    mend: str | None = None
    """What to do."""

    level: str | None = None
    """Instead of the rule's own."""


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[T]):
    """A named, pure function over one kind of subject."""

    name: str
    """Lower case with dashes, unique over all tables."""

    level: str
    """Of its hits, unless they say otherwise."""

    why: str
    """The fact behind it, one sentence."""

    look: Callable[[T], Iterable[Hit]]
    """The function."""

    def findings(self, subject: T) -> Iterator[Finding]:
        """Apply the rule."""
        for hit in self.look(subject):
            level = hit.level or self.level
            yield Finding(rule=self.name, level=level, what=hit.what, where=hit.where, why=self.why, mend=hit.mend)


def rule(level: str, why: str) -> Callable[[Callable[[T], Iterable[Hit]]], Rule[T]]:
    """Make a function a rule that bears the function's name.

    Args:
        level: One of LEVELS.
        why: The fact behind it.
    """

    def named(look: Callable[[T], Iterable[Hit]]) -> Rule[T]:
        return Rule(name=look.__name__.replace("_", "-"), level=level, why=why, look=look)

    return named


def apply(rules: Iterable[Rule[T]], subject: T) -> list[Finding]:
    """Apply every rule of a table, the worst findings first."""
    return worst_first(finding for one in rules for finding in one.findings(subject))


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by level; equal ones keep their order."""
    return sorted(findings, key=lambda finding: -LEVELS.index(finding.level))


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found out about one subject."""

    subject: str
    """A file, a command line, an object or a namespace."""

    kind: str
    """``log``, ``events``, ``command``, ``Experiment``, ``PyTorchJob``, ``Job`` or ``namespace``."""

    findings: Sequence[Finding] = ()
    """The worst first."""

    details: dict[str, Any] = field(default_factory=dict)
    """What there is to see besides: metrics that would be stored, the wrapped command line."""

    examined: bool = True
    """Whether any rule was applied: what was not examined does not pass."""

    @property
    def verdict(self) -> str:
        """``fail`` or ``warn`` if any finding says so, else ``pass``; ``not examined`` if no rule was applied."""
        levels = {finding.level for finding in self.findings}
        fine = "pass" if self.examined else NOT_EXAMINED
        return "fail" if "fail" in levels else "warn" if "warn" in levels else fine

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON shows it."""
        return {
            "subject": self.subject,
            "kind": self.kind,
            "verdict": self.verdict,
            "findings": [asdict(finding) for finding in self.findings],
            **self.details,
        }

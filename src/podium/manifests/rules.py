"""The rule engine: named rules look at one subject, and every place where one applies is a finding.

``check`` of an Experiment and ``admit`` of a job apply the rules about what is refused or never ends and raise
BrokenRules; the doctor applies all rules and shows every finding.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from podium.errors import InvalidInput, suggestion

LEVELS = {
    "pass": "pass",
    "note": "note",
    "warn": "warn",
    "unsupported": "warn",
    "fail": "fail",
    "stuck": "fail",
    "refuse": "fail",
}
"""From good to bad, with the word that users read: fine; worth knowing; works, but perhaps not as meant; not run by
podium, perhaps by a cluster; ends badly; accepted, but never ends; refused."""

BREAKING = ("unsupported", "fail", "stuck", "refuse")
"""Levels that keep podium from running a manifest."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One place where a rule applies."""

    rule: str
    """Name of the rule, as in docs/doctor.md."""

    level: str
    """One of LEVELS."""

    what: str
    where: str
    """The path of a field, a line or the name of a resource."""

    why: str
    hint: str | None = None
    """What to do; None if there is nothing to do."""

    @property
    def shown(self) -> str:
        """``pass``, ``note``, ``warn`` or ``fail``."""
        return LEVELS[self.level]

    @property
    def text(self) -> str:
        """Where and what, on one line."""
        return f"{self.where}: {self.what}"


class BrokenRules(InvalidInput):
    """The input breaks rules, each with its finding.

    Args:
        findings: One line of the message each; the hint joins theirs.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        hints = dict.fromkeys(finding.hint for finding in self.findings if finding.hint)
        super().__init__("\n".join(finding.text for finding in self.findings), "; ".join(hints) or None)


def raise_for(findings: Iterable[Finding]) -> None:
    """Raise BrokenRules if any finding keeps podium from running the manifest."""
    if broken := [finding for finding in findings if finding.level in BREAKING]:
        raise BrokenRules(broken)


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A place where a rule applies; the rule adds its name, level and reason."""

    what: str
    where: str
    hint: str | None = None
    level: str | None = None
    """Instead of the rule's own."""


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[T]):
    """A named, pure function over one kind of subject."""

    name: str
    """Lower case with dashes."""

    level: str
    """Of its findings, unless a violation says otherwise."""

    why: str
    look: Callable[[T], Iterable[Violation]]

    def findings(self, subject: T) -> Iterator[Finding]:
        """Apply the rule."""
        for violation in self.look(subject):
            level = violation.level or self.level
            yield Finding(
                rule=self.name,
                level=level,
                what=violation.what,
                where=violation.where,
                why=self.why,
                hint=violation.hint,
            )


def rule(level: str, why: str, name: str = "") -> Callable[[Callable[[T], Iterable[Violation]]], Rule[T]]:
    """Make a function a rule.

    Args:
        level: One of LEVELS.
        name: The function's own name, with dashes, if not given.
    """

    def named(look: Callable[[T], Iterable[Violation]]) -> Rule[T]:
        return Rule(name=name or look.__name__.replace("_", "-"), level=level, why=why, look=look)

    return named


def rules_into(table: list[Rule[T]]) -> Callable[[str, str], Callable[[Callable[[T], Iterable[Violation]]], Rule[T]]]:
    """Return a ``rule`` that also adds each rule to a table, in the order in which they are written."""

    def rule_of_table(level: str, why: str) -> Callable[[Callable[[T], Iterable[Violation]]], Rule[T]]:
        def added(look: Callable[[T], Iterable[Violation]]) -> Rule[T]:
            table.append(rule(level, why)(look))
            return table[-1]

        return added

    return rule_of_table


def apply(rules: Iterable[Rule[T]], subject: T) -> list[Finding]:
    """Apply every rule of a table, the worst findings first."""
    return worst_first(finding for rule in rules for finding in rule.findings(subject))


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by level; equal ones keep their order."""
    grades = list(LEVELS)
    return sorted(findings, key=lambda finding: -grades.index(finding.level))


def shorten(value: Any, limit: int = 80) -> str:
    """Return a value's repr, cut in the middle if it is long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 4 :]}"


def broken(where: str, rule: str, given: Any, hint: str | None = None) -> Violation:
    """Return the violation of a rule by a value.

    Args:
        rule: What must hold: an expression such as ``min <= max``, or a predicate that begins with "must".
    """
    must = rule if rule.startswith("must ") else f"`{rule}` must hold"
    return Violation(what=f"{must}, but got {shorten(given)}", where=where, hint=hint)


def one_of(where: str, value: Any, known: Iterable[str]) -> Iterator[Violation]:
    """Yield a violation unless a value is one of those known."""
    if value not in (names := tuple(known)):
        yield broken(where, f"must be one of {', '.join(names)}", value, suggestion(str(value or ""), names))


def unsupported(where: str, runs: str, given: str, hint: str | None = None) -> Violation:
    """Return the violation of what podium does not run and a cluster may.

    Args:
        runs: What podium runs instead, a sentence: ``podium collects from StdOut, …``.
        given: What follows ", not" in the sentence.
    """
    instead = f"podium cannot tell whether a cluster runs it; to run it here, change {where}"
    return Violation(what=f"{runs}, not {given}", where=where, hint=hint or instead)

"""The rule engine: each rule has a name and checks one subject; each place where it applies is a
finding.

A table of rules belongs to each kind of subject. The doctor shows what they find; ``check`` of an
Experiment and ``admit`` of a job raise the findings that refuse it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from podium.errors import InvalidInput, suggestion

_LEVELS = ("pass", "note", "warn", "fail")
"""From good to bad: fine; worth knowing; works, but perhaps not as meant; refused, or it ends
without a result."""

KATIB, PODIUM = "katib", "podium"
RUNNERS = (PODIUM, KATIB)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One place where a rule applies."""

    rule: str
    """Name of the rule, as `podium doctor --rules` lists it."""

    level: str

    what: str
    where: str
    """The path of a field, a line or the name of a resource."""

    why: str
    hint: str | None = None

    runner: str = ""

    refuses: bool = False

    @property
    def text(self) -> str:
        """One line: where, and what; also why, if only Katib does not run it."""
        why = f". {self.why}" if self.runner == KATIB else ""
        return f"{self.where}: {self.what}{why}"

    def as_dict(self) -> dict[str, str | None]:
        return {
            name: getattr(self, name) for name in ("rule", "level", "what", "where", "why", "hint")
        }


class BrokenRules(InvalidInput):
    """The input breaks rules, each with its finding.

    Args:
        findings: One line of the message each; the hint joins theirs.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        hints = dict.fromkeys(finding.hint for finding in self.findings if finding.hint)
        super().__init__(
            "\n".join(finding.text for finding in self.findings), "; ".join(hints) or None
        )


def raise_for(findings: Iterable[Finding], runners: Collection[str] = (PODIUM,)) -> None:
    """Raise BrokenRules if any finding keeps one of the runners, or both, from running the
    manifest."""
    if broken := [
        finding for finding in findings if finding.refuses and finding.runner in ("", *runners)
    ]:
        raise BrokenRules(broken)


@dataclass(frozen=True)
class Violation:
    """A place where a rule applies; the rule adds its name, level and reason."""

    what: str
    where: str = ""
    hint: str | None = None
    level: str | None = None
    """As where and hint: the rule's own unless given."""


T = TypeVar("T")
Look = Callable[[T], Iterable[Violation]]


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[T]):
    """A named, pure function over one kind of subject."""

    name: str
    """Lower case with dashes."""

    level: str

    why: str
    look: Look[T]
    where: str = ""
    hint: str | None = None

    runner: str = ""
    """KATIB or PODIUM if the other runs such a manifest well; empty if it concerns both."""

    refuses: bool = False
    """Whether the runner refuses such a manifest, or would never end it."""

    def findings(self, subject: T) -> Iterator[Finding]:
        for violation in self.look(subject):
            yield Finding(
                rule=self.name,
                level=violation.level or self.level,
                what=violation.what,
                where=violation.where or self.where,
                why=self.why,
                hint=None if violation.level == "pass" else violation.hint or self.hint,
                runner=self.runner,
                refuses=self.refuses,
            )


class Rules(list[Rule[T]]):
    """A table of rules about one kind of subject, in the order in which they are written."""

    def rule(
        self,
        level: str,
        why: str,
        name: str = "",
        *,
        where: str = "",
        hint: str | None = None,
        runner: str = "",
        refuses: bool = False,
    ) -> Callable[[Look[T]], Rule[T]]:
        """Make a function a rule of the table.

        Args:
            level: ``pass``, ``note``, ``warn`` or ``fail``.
            name: The function's own name, with dashes, if not given.
            where: Where it applies, unless a violation says so.
            hint: Suggested fix, unless a violation has one.
            runner: KATIB or PODIUM if it concerns that one alone.
            refuses: Whether the runner refuses such a manifest, or would never end it.
        """

        def add(look: Look[T]) -> Rule[T]:
            self.append(
                Rule(
                    name=name or look.__name__.strip("_").replace("_", "-"),
                    level=level,
                    why=why,
                    look=look,
                    where=where,
                    hint=hint,
                    runner=runner,
                    refuses=refuses,
                )
            )
            return self[-1]

        return add


def apply(rules: Iterable[Rule[T]], subject: T) -> list[Finding]:
    """Apply every rule of a table, the worst findings first."""
    return worst_first(finding for rule in rules for finding in rule.findings(subject))


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by level, those that podium refuses first; equal ones keep their order."""
    return sorted(
        findings,
        key=lambda finding: (
            -_LEVELS.index(finding.level),
            not finding.refuses or finding.runner == KATIB,
        ),
    )


def shorten(value: Any, limit: int = 80) -> str:
    """Return a value's repr, cut in the middle if it is long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 4 :]}"


def broken(where: str, rule: str, value: Any, hint: str | None = None) -> Violation:
    """Return the violation of a rule by a value.

    Args:
        rule: The condition: an expression such as ``min <= max``, or a predicate that begins with
            "must".
    """
    must = rule if rule.startswith("must ") else f"`{rule}` must hold"
    return Violation(f"{must}, but got {shorten(value)}", where, hint)


def one_of(where: str, value: Any, choices: Iterable[str]) -> Iterator[Violation]:
    """Yield a violation unless a value is one of the choices."""
    if value not in (names := tuple(choices)):
        yield broken(
            where, f"must be one of {', '.join(names)}", value, suggestion(str(value or ""), names)
        )


def at_least(
    where: str, value: int | None, least: int, hint: str | None = None
) -> Iterator[Violation]:
    """Yield a violation where a field, the last one of a path, is below its least value."""
    if value is not None and value < least:
        yield broken(where, f"{where.rpartition('.')[2]} >= {least}", value, hint)

"""A promotion decision, the words of a rule that it is made of, and its outcome."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from podium.errors import Failed
from podium.models.fresh import NewItems
from podium.models.record import Record

if TYPE_CHECKING:
    import numpy as np

    from podium.models.version import Version
    from podium.scoring import Comparison, Metric


ALIKE = 4
"""Standard errors of one figure within which two models are alike. One that is broken, or of a
weaker kind, would make the spread of the others look large and every lead sure, and differs from
them on so many items that no lead would seem to be one."""

Condition = tuple[bool, str]
"""Whether a challenger keeps a condition, and the condition with its figures in words."""


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """Earlier comparisons on a test part, as the history has them."""

    challengers: int = 1
    """How many it has seen, with this one."""

    figures: tuple[float, ...] = ()
    """The metric of every other model that was measured on it."""

    noises: tuple[float, ...] = ()
    """The squared standard error of one figure, by each earlier comparison of models that are alike."""

    fresh: NewItems | None = None
    """Where the rule asks for it: which items are new since the champion was promoted; None if it
    is not known."""

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        metric: str,
        challenger: str,
        champion: str | None,
        model: Sequence[str] = (),
    ) -> "Earlier":
        """Read the comparisons on a test part by a metric; those of the challenger itself do not
        count.

        Args:
            model: What tells the challenger's model: an equal one that was uploaded as another
                version is no further look.
        """
        names = _names(records, dict.fromkeys(model, challenger))
        others = [record for record in records if names.get(record.version) != challenger]
        figures, noises = dict[str, float](), []
        for record in others:
            grounds = record.grounds
            same = not grounds.noise and grounds.value == grounds.champion_value
            if (
                grounds.metric.name != metric or same
            ):  # the champion once more says nothing of chance
                continue
            beaten = grounds.champion or record.replaced
            pairs = (record.version, grounds.value), (beaten, grounds.champion_value)
            figures |= {
                names.get(name, name): value for name, value in pairs if name and value is not None
            }
            if grounds.noise is not None and are_alike(
                grounds.value, grounds.champion_value, grounds.noise
            ):
                noises.append(grounds.noise)
        own = challenger, names.get(champion or "", champion)
        return cls(
            challengers=len({names[record.version] for record in others}) + 1,
            figures=tuple(value for name, value in figures.items() if name not in own),
            noises=tuple(noises),
        )


def are_alike(one: float | None, other: float | None, noise: float) -> bool:
    """Return whether the figures of two models are ALIKE; noise is the squared standard error."""
    return one is not None and other is not None and abs(one - other) <= ALIKE * math.sqrt(noise)


def _names(records: Sequence[Record], versions: dict[str, str]) -> dict[str, str]:
    """Return the first version of each version's model.

    Args:
        versions: The versions that come before, by what tells their models.
    """
    names = {version: version for version in versions.values()}
    for record in records:
        model = record.grounds.model
        first = next((versions[each] for each in model if each in versions), record.version)
        first = names.setdefault(record.version, first)
        for each in model:
            versions.setdefault(each, first)
    return names


@dataclass(frozen=True, kw_only=True)
class Case:
    """A challenger, the champion if there is one, and the test items."""

    metric: "Metric"
    target: "np.ndarray"
    challenger: "np.ndarray"
    """Its predictions."""

    champion: "np.ndarray | None"
    groups: "np.ndarray | None"
    earlier: Earlier
    compared: "Comparison | None"
    """None without a champion, and where the metric of one of the two is not a number."""

    figures: dict[str, Any]
    """The decision's; a criterion adds its own."""

    column: "Callable[[str], np.ndarray]"
    """Returns a column of the test items, [n]: texts, or floats."""

    probabilities: "np.ndarray | None" = None
    """The challenger's, even where its predictions are classes that a threshold made of them."""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """A word of a promotion rule: NAME or NAME=VALUE. A hook that a criterion does not need is left
    out."""

    name: str
    sentence: str
    """Requirement on the challenger, in words."""

    read: Callable[[str], Any] | None = None
    """Makes a value of text, or raises InvalidInput; None for a word that stands alone."""

    default: Any = None
    """The value of the word alone; None if it needs one."""

    compares: bool = False
    """Whether it says how a challenger must compare with the champion; a rule has one of these."""

    check: "Callable[[Any, Metric], None]" = lambda value, metric: None
    """Raises InvalidInput if it does not fit the metric."""

    ready: Callable[[], object] = lambda: None
    """Raises InvalidInput if this machine lacks something that it needs."""

    judge: Callable[[Any, Case], Iterable[Condition]] = lambda value, case: ()
    """Yields its conditions; one that compares is called only where there is a comparison."""

    of_version: "Callable[[Any, Version], Iterable[Condition]]" = lambda value, version: ()
    """Yields conditions of what the challenger's metadata say."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The outcome of a rule for one challenger."""

    promote: bool

    reasons: tuple[str, ...]
    """Every condition of the rule with its figures, in words."""

    figures: Mapping[str, Any]
    """rule, metric, items, units (items, or groups of them, that count), value, shrunk and constant
    (guess and value of the best constant guess); with a champion also champion_value,
    champion_shrunk, noise, probability, difference, interval, p_value, doubt (why p is not
    reliable) and test; for accuracy also only_challenger_right, only_champion_right and classes.
    value_interval and champion_interval are the 95 % intervals, None where there are too few
    items."""

    @classmethod
    def of(cls, record: Record) -> "Decision":
        """Return the decision that a promotion's record has."""
        figures = {
            name: value
            for name, value in record.evidence.items()
            if name not in ("decision", "reasons")
        }
        return cls(promote=True, reasons=record.grounds.reasons, figures=figures)

    def noting(self, words: str) -> "Decision":
        """Return it with a reason that changes nothing."""
        return replace(self, reasons=(*self.reasons, f"ok: {words}"))

    def refused(self, why: str) -> "Decision":
        """Return it as a refusal for a reason beyond the rule."""
        return replace(self, promote=False, reasons=(f"no: {why}", *self.reasons))

    def adding(self, conditions: Iterable[Condition]) -> "Decision":
        """Return it with further conditions."""
        decision = self
        for holds, words in conditions:
            decision = decision.noting(words) if holds else decision.refused(words)
        return decision

    def evidence(self) -> dict[str, Any]:
        """Return it as plain JSON values for the history."""
        decision = "promote" if self.promote else "keep"
        return {"decision": decision, "reasons": list(self.reasons), **self.figures}

    def __str__(self) -> str:
        head = "promote" if self.promote else "keep the champion"
        return "\n".join([head, *(f"  {reason}" for reason in self.reasons)])


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

"""Challenger against champion, again whenever the champion changes under the comparison."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.errors import Conflict
from podium.registry import moves
from podium.registry.record import Record
from podium.registry.registry import Registry
from podium.registry.rule import Decision, PromotionRule, decide
from podium.registry.version import Version

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class Contest:
    """How it ended."""

    decision: Decision
    """What the rule said, against the champion that counted."""

    record: Record | None
    """The promotion; None if the champion stays."""

    champion: str | None
    """The version it was compared with; None if there was none."""


def challenge(
    registry: Registry,
    name: str,
    version: str,
    rule: PromotionRule,
    predict: "Callable[[Version], np.ndarray]",
    labels: "np.ndarray",
    evidence: Mapping[str, Any] | None = None,
) -> Contest:
    """Promote a version if the rule says so, comparing with whoever is champion at the moment of promotion.

    Args:
        registry: Holds both.
        name: The model.
        version: The challenger, already uploaded.
        rule: What it must show.
        predict: Gives the classes ``[n]`` that a version predicts for the test images; called once a version.
        labels: The truth ``[n]``.
        evidence: Kept in the history beside the decision: run id, dataset digest, ….

    Raises:
        NotFound: The challenger is not there.
        Damaged: The challenger's or the champion's files are.
    """
    seen: dict[str, np.ndarray] = {}

    def predictions(of: Version) -> "np.ndarray":
        if of.version not in seen:
            seen[of.version] = predict(of)
        return seen[of.version]

    challenger = registry.resolve(name, version)
    while True:
        champion = registry.champion(name)
        expect = champion.version if champion else None
        decision = decide(rule, labels, predictions(challenger), predictions(champion) if champion else None)
        if expect == challenger.version:
            # Fired twice, or retried after it won: the record that stands is ours already.
            return Contest(decision=decision, record=registry.aliases(name).get("champion"), champion=expect)
        if not decision.promote:
            grounds = {**(evidence or {}), **decision.evidence()}
            moves.refuse(registry.storage, name, challenger.version, expect, grounds)
            return Contest(decision=decision, record=None, champion=expect)
        try:
            record = registry.promote(name, challenger.version, {**(evidence or {}), **decision.evidence()}, expect)
        except Conflict:
            continue  # another challenger won meanwhile: that one is to be beaten now
        return Contest(decision=decision, record=record, champion=expect)

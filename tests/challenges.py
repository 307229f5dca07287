"""What decides between two versions in tests of the registry: arrays of predictions, and the rule."""

from collections.abc import Callable, Sequence

import numpy as np

from podium.models import Decision, PromotionRule, Record, Version, decide
from podium.models.decision import Earlier
from podium.scoring import METRICS

Judge = Callable[[Version, Version | None, Sequence[Record]], Decision]


def judging(
    predict: Callable[[Version], np.ndarray], target: np.ndarray, rule: PromotionRule | None = None
) -> Judge:
    """Compare two versions by accuracy; each is asked once for its predictions."""
    known: dict[str, np.ndarray] = {}

    def of(version: Version) -> np.ndarray:
        if version.version not in known:
            known[version.version] = predict(version)
        return known[version.version]

    return lambda challenger, champion, records: decide(
        rule or PromotionRule.parse("better"),
        METRICS["accuracy"],
        target,
        of(challenger),
        of(champion) if champion else None,
        earlier=Earlier.of(
            records, "accuracy", challenger.version, champion.version if champion else None
        ),
    )

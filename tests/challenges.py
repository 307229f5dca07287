"""What decides between two versions in tests of the registry: arrays of predictions, and the rule."""

from collections.abc import Callable

import numpy as np

from podium.models import Decision, PromotionRule, Version, decide
from podium.scoring import METRICS

Judge = Callable[[Version, Version | None, int], Decision]


def judging(predict: Callable[[Version], np.ndarray], target: np.ndarray, rule: PromotionRule | None = None) -> Judge:
    """Compare two versions by accuracy; each is asked once for its predictions."""
    known: dict[str, np.ndarray] = {}

    def of(version: Version) -> np.ndarray:
        if version.version not in known:
            known[version.version] = predict(version)
        return known[version.version]

    return lambda challenger, champion, uses: decide(
        rule or PromotionRule(), METRICS["accuracy"], target, of(challenger), of(champion) if champion else None,
        uses=uses,
    )  # fmt: skip

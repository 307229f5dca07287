"""Empirical Bayes: what a figure is worth, given the figures of all models on the same test part.

The true figures of the models are normal around their mean with a variance of spread, and each is
measured with a variance of noise, of which only the part counts that two models do not share:
shared hard items move both alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podium.scoring import Comparison

PRIOR_MODELS = 4
"""How many figures the prior of the spread counts as."""

PRIOR_SPREAD = 0.5
"""Its standard deviation, in standard errors of one figure."""


@dataclass(frozen=True, kw_only=True)
class Shrinkage:
    """How far figures are drawn to their mean."""

    mean: float
    noise: float
    """Squared standard error of one figure."""

    weight: float
    """The share of a figure's distance from the mean that is kept, 0..1."""

    @classmethod
    def of(cls, figures: Sequence[float], noises: Sequence[float]) -> "Shrinkage":
        """Estimate it.

        Args:
            figures: Of every model on the test part, at least one.
            noises: The squared standard error of one figure, by each comparison, the one in
                question last; empty if there was none. Models that hardly differ must not make
                others look sure, so the last counts in full.
        """
        mean, noise = fmean(figures), max(fmean(noises), noises[-1]) if noises else 0.0
        squares = sum((figure - mean) ** 2 for figure in figures)
        prior = PRIOR_MODELS * noise * (1 + PRIOR_SPREAD**2)
        spread = max(0.0, (squares + prior) / (len(figures) - 1 + PRIOR_MODELS) - noise)
        return cls(mean=mean, noise=noise, weight=spread / (spread + noise) if noise else 1.0)

    def shrunk(self, figure: float) -> float:
        """Return the posterior mean of a figure."""
        return self.mean + self.weight * (figure - self.mean)

    def probability(self, lead: float) -> float:
        """Return how likely the truth behind a figure is above that of one which it leads by so
        much."""
        if not self.noise:
            return 0.5 if lead == 0 else float(lead > 0)
        return (1 + math.erf(lead * math.sqrt(self.weight) / math.sqrt(4 * self.noise))) / 2


def noise_of(compared: "Comparison", units: int) -> float | None:
    """Return the squared standard error of one of two figures that its items do not share; None if
    it is not known."""
    if compared.test == "McNemar":
        assert compared.gained is not None
        assert compared.lost is not None
        return (compared.gained + compared.lost) / units / (2 * units)
    error = compared.standard_error
    return None if error is None else error**2 / 2

"""Whether a classifier is right as often as its probabilities say."""

import math
from dataclasses import dataclass

import numpy as np

from podium.scoring.families import Array, class_indices
from podium.scoring.intervals import share_interval

MOST_BINS, LEAST_OF_BIN = 10, 20


@dataclass(frozen=True, kw_only=True)
class _Bin:
    """Items of about the same confidence, which is the probability of the predicted class."""

    items: int
    confidence: float
    """Mean of the bin."""

    accuracy: float
    low: float
    """Lower end of the 95 % interval of the accuracy, as of independent items."""

    high: float


@dataclass(frozen=True, kw_only=True)
class _Calibration:
    """Calibration error: the distance of confidence and accuracy."""

    error: float
    """Expected calibration error: mean distance over bins of equal size, weighted by items."""

    by_chance: float
    """The error to expect on these items of a model whose probabilities are true."""

    items: int
    bins: tuple[_Bin, ...]


def calibration(target: Array, predictions: Array) -> _Calibration | None:
    """Measure the calibration of a classifier.

    Bins have as many items each as possible without parting equal confidences, so that the order
    of items does not matter: at most 10, of 20 items or more.

    Args:
        target: Class indices ``[n]``.
        predictions: Probabilities ``[n, classes]``, or class indices ``[n]``.

    Returns:
        None for class indices, which have no confidence.
    """
    if predictions.ndim == 1:
        return None
    confidence = predictions.max(1).astype(np.float64)
    right = class_indices(predictions) == target
    order = np.argsort(confidence, kind="stable")
    confidence, right = confidence[order], right[order]
    bins, chance = [], 0.0
    for part in np.split(np.arange(len(target)), _cuts(confidence)):
        low, high = share_interval(int(right[part].sum()), len(part))
        bins.append(
            _Bin(
                items=len(part),
                confidence=float(confidence[part].mean()),
                accuracy=float(right[part].mean()),
                low=low,
                high=high,
            )
        )
        spread = math.sqrt(float((confidence[part] * (1 - confidence[part])).clip(0).sum()))
        chance += math.sqrt(2 / math.pi) * spread / len(target)
    error = sum(one.items * abs(one.accuracy - one.confidence) for one in bins) / len(target)
    return _Calibration(error=error, by_chance=chance, items=len(target), bins=tuple(bins))


def _cuts(confidence: Array) -> Array:
    """Return the start of each bin but the first in ascending confidences."""
    count = max(1, min(MOST_BINS, len(confidence) // LEAST_OF_BIN))
    wanted = np.arange(1, count) * len(confidence) // count
    starts = np.searchsorted(confidence, confidence[wanted])
    return np.unique(starts[starts > 0])

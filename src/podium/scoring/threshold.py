"""The probability from which a classifier of two classes decides for one of them, chosen on the
validation part."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from podium.display.text import figure, plural
from podium.errors import InvalidInput
from podium.files.documents import parse
from podium.scoring.families import (
    Array,
    ConfusionMetric,
    MeanMetric,
    Metric,
    group_starts,
)
from podium.scoring.metrics import METRICS, TUNED

THRESHOLD = "threshold.json"
"""File of a model directory or a version."""

_FEW = 100
"""Items of the rarer class; a threshold that is chosen on fewer may be far from the best one."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Threshold of a model of two classes: from the probability ``value`` on it decides for
    ``label``."""

    label: str
    value: float
    metric: str = ""
    """What it is best for, among all values; empty where it was not chosen by podium, and so is
    what follows."""

    figure: float = 0.0
    """The metric at it, on the items that it was chosen on."""

    figure_at_half: float = 0.0
    """The metric on the same items at .5."""

    items: int = 0
    rarer: int = 0
    """How many of the items are of the rarer class."""

    def __post_init__(self) -> None:
        if not 0 <= self.value <= 1:
            raise InvalidInput(f"a threshold is a probability, 0 to 1, and not {self.value}")

    @classmethod
    def read(cls, document: Mapping[str, Any], where: str) -> "Threshold | None":
        """Read the content of THRESHOLD; None if it is empty.

        Raises:
            InvalidInput: It lacks label or value, or one is of another type.
        """
        return parse(cls, document, where) if document else None

    def write(self, directory: Path) -> None:
        """Write THRESHOLD to a directory."""
        (directory / THRESHOLD).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def choose(
        cls, metric: Metric, target: Array, predictions: Array, classes: Sequence[str]
    ) -> "Threshold":
        """Choose what is best for a metric; of equal ones the nearest to .5.

        Args:
            metric: One that `require_tunable` accepts.
            target: Class indices ``[n]`` of the validation part.
            predictions: Probabilities ``[n, 2]``.
            classes: Names of the two.

        Raises:
            InvalidInput: The model gives classes only.
        """
        if predictions.ndim == 1:
            raise InvalidInput(
                "a threshold needs probabilities, but the model gives classes only",
                f"let the model return probabilities, or leave out {TUNED}",
            )
        counts = np.bincount(target, minlength=2)
        label = int(counts[1] <= counts[0])
        scores = predictions[:, label].astype(np.float64).clip(0, 1)
        order = np.argsort(scores)
        starts = group_starts(scores[order])
        steps = scores[order][starts]
        # All values above one score and up to the next decide alike.
        low, high = np.append(0.0, steps), np.append(steps, 1.0)
        values = np.where((low < 0.5) & (high >= 0.5), 0.5, (low + high) / 2)
        figures = _by_cut(metric, target[order], label)[[*starts, len(order)]]
        ranks = figures if metric.maximize else -figures
        ranks = np.where((high > low) | (values == 0), ranks, -np.inf)
        best = np.flatnonzero(ranks == np.nanmax(ranks))
        at = best[np.abs(values[best] - 0.5).argmin()]
        return cls(
            label=classes[label],
            value=float(values[at]),
            metric=metric.name,
            figure=float(figures[at]),
            figure_at_half=float(figures[np.searchsorted(steps, 0.5)]),
            items=len(target),
            rarer=int(counts.min()),
        )

    def decide(self, predictions: Array, classes: Sequence[str]) -> Array:
        """Return class indices ``[n]``; those of a model that gives no probabilities as they are.

        Args:
            predictions: Probabilities ``[n, 2]``, or class indices ``[n]``.
            classes: Their names.

        Raises:
            InvalidInput: There are not two classes, or the threshold is of another one.
        """
        if self.label not in classes or len(classes) != 2:
            raise InvalidInput(
                f"{THRESHOLD} is about {self.label!r}, but the classes are {', '.join(classes)}",
                "it needs two classes, and label is one of them",
            )
        if predictions.ndim == 1:
            return predictions
        label = list(classes).index(self.label)
        return np.where(predictions[:, label].astype(np.float64) >= self.value, label, 1 - label)

    @property
    def warning(self) -> str:
        """Why it may be far from the best one; empty if nothing says so."""
        if not self.metric or self.rarer >= _FEW:
            return ""
        return (
            f"the threshold {self.value:.4g} was chosen on {plural(self.rarer, 'item')} of the "
            f"rarer class: with fewer than {_FEW} it may be far from the best one"
        )

    def __str__(self) -> str:
        words = f"{self.label!r} from a probability of {self.value:.4g}"
        if not self.metric:
            return words
        return (
            f"{words}: validation {self.metric} {figure(self.figure)}, "
            f"{figure(self.figure_at_half)} at .5, n = {self.items:,}"
        )


def _by_cut(metric: Metric, target: Array, label: int) -> Array:
    """Return a metric of items in the order of their scores, ``[n + 1]``: at k, those from the k-th
    on are taken for a class."""
    assert isinstance(metric, MeanMetric | ConfusionMetric)
    sums = []
    for answer in (1 - label, label):
        columns = metric.columns(target, np.full(len(target), answer), 2)
        sums.append(np.stack([np.cumsum(np.append(0.0, column)) for column in columns], 1))
    before, after = sums
    return np.asarray(metric.of_sums(before + after[-1] - after, target, 2))


def split(text: str) -> tuple[bool, str]:
    """Return whether a threshold is to be chosen for a metric, and the metric.

    Args:
        text: In the notation of find_metric, with ``threshold:`` in front if so.
    """
    metric = text.removeprefix(TUNED)
    return metric != text, metric


def require_tunable(metric: Metric, classes: Sequence[str] | None = None) -> None:
    """Refuse a metric that no threshold can be chosen for.

    Args:
        classes: Those of the dataset; None where they are not known yet.

    Raises:
        InvalidInput: It does not depend on decisions, or there are not exactly two classes.
    """
    if not (metric.decides and isinstance(metric, MeanMetric | ConfusionMetric)):
        names = [name for name, other in METRICS.items() if other.decides]
        raise InvalidInput(
            f"{metric.name} does not follow from decided classes, so no threshold is chosen for it",
            f"{TUNED} goes with {', '.join(names)}; or {metric.name} alone",
        )
    if classes is not None and len(classes) != 2:
        raise InvalidInput(
            f"a threshold is chosen between two classes, but the dataset has {len(classes)}",
            f"{metric.name} alone decides for the most probable class",
        )

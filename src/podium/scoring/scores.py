"""A model's scores on a part of a dataset: its predictions, every metric of its kind, the confusion
matrix."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from podium.display.text import figure
from podium.errors import InvalidInput
from podium.scoring.families import Array, FunctionMetric, Metric, class_indices, confusion
from podium.scoring.metrics import METRICS, require_kind


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Results of a model, item by item and in figures."""

    metrics: Mapping[str, float]
    """Every metric of the kind that is defined here, by name."""

    predictions: Array
    """Classification: probabilities, float32 or float64 ``[n, classes]``, or class indices ``[n]``.
    Regression: floats ``[n]`` or ``[n, k]``."""

    target: Array
    """Class indices ``[n]``, or floats in the shape of the predictions."""

    confusion: "NDArray[np.int64] | None"
    """[classes, classes]: rows are the true class, columns the predicted one; None for
    regression."""

    decided: Array
    """Class indices ``[n]`` of a model with a threshold; else the predictions."""

    def of(self, metric: Metric) -> Array:
        """Return the predictions that a metric is computed from."""
        return self.decided if metric.decides else self.predictions

    def value(self, metric: Metric) -> float:
        """Return one metric.

        Raises:
            InvalidInput: It is not of this kind, or not defined for this target or these
                predictions; a function of one's own is NaN then.
        """
        if metric.name in self.metrics:
            return self.metrics[metric.name]
        require_kind(metric, "regression" if self.confusion is None else "classification")
        if metric.needs_probabilities and self.predictions.ndim == 1:
            raise InvalidInput(
                f"{metric.name} needs probabilities, but the model gives classes only",
                "let the model return probabilities, or choose accuracy or f1_macro",
            )
        if isinstance(metric, FunctionMetric):  # NaN for one model says nothing about the others
            return metric.steady_value(self.target, self.predictions)
        return metric.defined_value(self.target, self.of(metric))

    def words(self, metric: Metric) -> str:
        """Return a metric and all that are known, as words."""
        values = {metric.name: self.value(metric), **self.metrics}
        return " ".join(f"{name} {figure(value)}" for name, value in values.items())

    def tie_breakers(self) -> Iterator[tuple[str, float]]:
        """Yield name and value of what decides where the metric is equal; less is better."""
        return (
            (name, value)
            for name, value in self.metrics.items()
            if name in METRICS and METRICS[name].breaks_ties
        )


def score_predictions(
    predictions: Array,
    target: Array,
    *,
    classes: int | None,
    metric: Metric | None = None,
    name: str = "the model",
    decided: Array | None = None,
) -> Scores:
    """Measure predictions, wherever they come from.

    Args:
        predictions: As in Scores.
        target: As in Scores.
        classes: How many classes the dataset has; None for regression.
        metric: One to compute besides those podium knows; it must be defined.
        decided: Class indices ``[n]`` of a model with a threshold.

    Raises:
        InvalidInput: Shapes or classes do not fit the target, or the metric is not defined.
    """
    check_predictions(predictions, target, classes=classes, name=name)
    decided = predictions if decided is None else decided
    matrix = None if classes is None else confusion(target, class_indices(decided), classes)
    scores = Scores(
        metrics={}, predictions=predictions, target=target, confusion=matrix, decided=decided
    )
    kind = "regression" if classes is None else "classification"
    fitting = [
        each
        for each in METRICS.values()
        if each.kind == kind and not (each.needs_probabilities and predictions.ndim == 1)
    ]
    values = {each.name: each.value(target, scores.of(each)) for each in fitting}
    defined = {name: value for name, value in values.items() if not math.isnan(value)}
    scores = replace(scores, metrics=defined)
    if metric is None or math.isnan(value := scores.value(metric)):
        return scores
    return replace(scores, metrics={metric.name: value, **defined})


def check_count(predictions: Array, target: Array, *, name: str) -> None:
    """Refuse predictions that are not one for each item.

    Raises:
        InvalidInput: There are more or fewer.
    """
    if len(predictions) != len(target):
        raise InvalidInput(
            f"{name} has {len(predictions)} predictions for {len(target)} items",
            "one for each item",
        )


def check_predictions(predictions: Array, target: Array, *, classes: int | None, name: str) -> None:
    """Refuse predictions that do not fit a target.

    Raises:
        InvalidInput: The number of items, the classes or the outputs differ.
    """
    check_count(predictions, target, name=name)
    if classes is None:
        outputs = [array.reshape(len(array), -1).shape[1] for array in (predictions, target)]
        if outputs[0] != outputs[1]:
            raise InvalidInput(
                f"{name} predicts {outputs[0]} values a row, but the target has {outputs[1]}"
            )
    elif predictions.ndim == 2 and predictions.shape[1] != classes:
        raise InvalidInput(
            f"{name} has {predictions.shape[1]} classes, but the data has {classes}",
            "was it trained on another dataset?",
        )
    elif (
        predictions.ndim == 1
        and len(predictions)
        and not 0 <= predictions.min() <= predictions.max() < classes
    ):
        raise InvalidInput(
            f"{name} predicts classes {predictions.min()} to {predictions.max()}, but the data has 0 to "
            f"{classes - 1}",
            "was it trained on another dataset?",
        )

"""The metrics podium knows, by scikit-learn's names and definitions, computed with numpy."""

from collections.abc import Callable

import numpy as np

from podium.errors import InvalidInput, suggestion
from podium.scoring.families import (
    Array,
    ConfusionMetric,
    FunctionMetric,
    MeanMetric,
    Metric,
    RankMetric,
    class_indices,
)
from podium.system.plugins import Table

_CHUNK = 1 << 20
"""Numbers that are converted to float64 at a time."""


def _hits(target: Array, predictions: Array) -> Array:
    return (class_indices(predictions) == target).astype(np.float64)[:, None]


def _surprise(target: Array, predictions: Array) -> Array:
    """Return -log of the probability of the true class; clipped as scikit-learn does."""
    probabilities = predictions[np.arange(len(target)), target]
    least = np.finfo(probabilities.dtype).eps
    return -np.log(np.clip(probabilities, least, 1 - least).astype(np.float64))[:, None]


def _outputs(array: Array) -> Array:
    return array.reshape(len(array), -1).astype(np.float64)


def _by_chunks(items: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Apply a function to some rows at a time, so that memory maps are not converted as a whole."""

    def whole(target: Array, predictions: Array) -> Array:
        rows = max(1, _CHUNK // max(1, predictions[:1].size))
        chunks = range(0, max(1, len(target)), rows)
        return np.concatenate(
            [items(target[at : at + rows], predictions[at : at + rows]) for at in chunks]
        )

    return whole


def _squares(target: Array, predictions: Array) -> Array:
    return np.square(_outputs(target) - _outputs(predictions))


def _absolutes(target: Array, predictions: Array) -> Array:
    return np.abs(_outputs(target) - _outputs(predictions))


def _moments(target: Array, predictions: Array) -> Array:
    """Return squared errors, targets and squared targets, ``[n, 3 k]``; centered, or the variance
    would lose digits."""
    true = _outputs(target)
    true = true - true.mean(0)
    return np.concatenate([_squares(target, predictions), true, np.square(true)], axis=1)


def _r2(means: Array) -> Array:
    errors, first, second = np.split(means, 3, axis=-1)
    spread = second - np.square(first)
    flat = spread <= 1e-15 * second  # a constant target, up to rounding
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(flat, np.where(errors > 0, 0.0, 1.0), 1 - errors / spread).mean(-1)


def _balanced(hits: Array, true: Array, predicted: Array) -> Array:
    occurs = true > 0
    recalls = np.divide(hits, true, out=np.zeros(hits.shape), where=occurs)
    return recalls.sum(-1) / occurs.sum(-1)


def _f1_macro(hits: Array, true: Array, predicted: Array) -> Array:
    both = true + predicted
    occurs = both > 0
    f1 = np.divide(2 * hits, both, out=np.zeros(hits.shape), where=occurs)
    return f1.sum(-1) / occurs.sum(-1)


_SHARE = (0.0, 1.0)
_CLASSES, _NUMBERS = "classification", "regression"

_ALL: tuple[Metric, ...] = (
    MeanMetric(
        name="accuracy",
        maximize=True,
        kind=_CLASSES,
        range=_SHARE,
        counts_hits=True,
        is_default=True,
        items=_by_chunks(_hits),
    ),
    ConfusionMetric(
        name="balanced_accuracy", maximize=True, kind=_CLASSES, range=_SHARE, finish=_balanced
    ),
    ConfusionMetric(name="f1_macro", maximize=True, kind=_CLASSES, range=_SHARE, finish=_f1_macro),
    RankMetric(
        name="roc_auc", maximize=True, kind=_CLASSES, range=_SHARE, needs_probabilities=True
    ),
    MeanMetric(
        name="log_loss",
        maximize=False,
        kind=_CLASSES,
        range=(0.0, np.inf),
        breaks_ties=True,
        needs_probabilities=True,
        items=_surprise,
    ),
    MeanMetric(
        name="rmse",
        maximize=False,
        kind=_NUMBERS,
        range=(0.0, np.inf),
        is_default=True,
        breaks_ties=True,
        items=_by_chunks(_squares),
        finish=lambda means: np.sqrt(np.maximum(means, 0.0)).mean(-1),  # a sum of 0 may be off
    ),
    MeanMetric(
        name="mae", maximize=False, kind=_NUMBERS, range=(0.0, np.inf), items=_by_chunks(_absolutes)
    ),
    MeanMetric(
        name="r2", maximize=True, kind=_NUMBERS, range=(-np.inf, 1.0), items=_moments, finish=_r2
    ),
)

METRICS = Table[Metric]("metrics", {metric.name: metric for metric in _ALL}, Metric)
"""The metrics podium knows, by name. A new one is a declaration here, or in a file of its own and
its name here; or an entry point of another distribution."""


TUNED = "threshold:"
"""In front of a metric for which a run chooses a decision threshold: see podium.scoring.threshold."""


def _default_metric(kind: str) -> Metric:
    return next(metric for metric in METRICS.values() if metric.kind == kind and metric.is_default)


def find_metric(text: str, maximize: bool | None = None) -> Metric:
    """Return a metric by its name, or a function of one's own.

    Args:
        text: A name of METRICS, or ``package.module:function``, with ``max:`` or ``min:`` in front
            if need be.
        maximize: Which way is better, where the text does not say.

    Raises:
        InvalidInput: There is no such metric, or its direction is not known or contradicts the
            metric.
    """
    if text.startswith(TUNED):
        raise InvalidInput(
            f"{text}: a threshold is chosen where a run evaluates, from the parameter metric",
            f"{text.removeprefix(TUNED)}; each model decides by its own threshold anyway",
        )
    prefix, _, rest = text.partition(":")
    name = rest if prefix in ("max", "min") else text
    if prefix in ("max", "min"):
        maximize = prefix == "max"
    metric = None if ":" in name else METRICS.get(name)
    if metric is None and ":" not in name:
        raise InvalidInput(
            f"there is no metric {name!r}",
            f"{suggestion(name, METRICS)}; or package.module:function",
        )
    if metric is None:
        if maximize is None:
            raise InvalidInput(
                f"whether more is better is not known for {name}", f"write max:{name} or min:{name}"
            )
        return FunctionMetric(name=name, maximize=maximize, kind=None)
    if maximize not in (None, metric.maximize):
        way = "more" if metric.maximize else "less"
        raise InvalidInput(
            f"of {name} {way} is better, so it cannot be {'maximized' if maximize else 'minimized'}"
        )
    return metric


def choose_metric(
    text: str, kind: str, objective: str = "", maximize: bool | None = None
) -> Metric:
    """Return the metric that is asked for, else the objective if it is a known metric of the kind,
    else the default.

    Args:
        text: In the notation of find_metric; empty for none.
        kind: classification or regression.
        objective: Name of the Experiment's objective; empty if there is none.
        maximize: The objective's direction, which a function of one's own has if the text does not
            say.

    Raises:
        InvalidInput: There is no such metric, it is of the other kind, or the objective's direction
            contradicts it.
    """
    if text:
        metric = find_metric(text, None if text.rpartition(":")[2] in METRICS else maximize)
    elif objective in METRICS and METRICS[objective].kind == kind:
        metric = find_metric(objective, maximize)
    else:
        metric = _default_metric(kind)
    require_kind(metric, kind)
    return metric


def require_kind(metric: Metric, kind: str) -> None:
    """Refuse a metric of the other kind.

    Raises:
        InvalidInput: It is.
    """
    if metric.kind not in (None, kind):
        names = ", ".join(name for name, other in METRICS.items() if other.kind == kind)
        raise InvalidInput(
            f"{metric.name} measures {metric.kind}, but the dataset is {kind}",
            f"one of {names}",
            {"metric": _default_metric(kind).name},
        )

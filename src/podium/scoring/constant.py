"""The best constant guess: what a model is worth only what it adds to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from podium.errors import InvalidInput
from podium.scoring.families import Array, Metric


@dataclass(frozen=True, kw_only=True)
class _ConstantGuess:
    """One answer for all items."""

    guess: str
    """In words, as ``always 'no'`` or ``the mean``."""

    value: float


def constant_guess(
    metric: Metric, target: Array, predictions: Array, classes: Sequence[str] = ()
) -> _ConstantGuess | None:
    """Return the constant that a metric likes best on a target, for f1_macro chance where that is
    better; None where it is defined for none.

    Args:
        target: As in Metric.value, ``n`` items.
        predictions: Of a model, whose shape the guess has.
        classes: Names of the classes; empty for their numbers.
    """
    best: _ConstantGuess | None = None
    for words, guess in _guesses(target, predictions, classes):
        try:
            value = metric.value(target, guess)
        except InvalidInput:  # a function of one's own may not take constants
            continue
        if np.isfinite(value) and (best is None or metric.better(value, best.value)):
            best = _ConstantGuess(guess=words, value=value)
    if best and metric.name == "f1_macro":  # chance beats each constant, and a threshold finds it
        chance = 1 / len(np.unique(target))
        if chance > best.value:
            best = _ConstantGuess(guess="each class as often as it occurs", value=chance)
    return best


def _guesses(
    target: Array, predictions: Array, classes: Sequence[str]
) -> Iterator[tuple[str, Array]]:
    if target.dtype.kind == "f":
        for words, number in (("the mean", target.mean(0)), ("the median", np.median(target, 0))):
            yield words, np.broadcast_to(number, target.shape)
        return
    width = predictions.shape[1] if predictions.ndim == 2 else 0
    counts = np.bincount(target, minlength=width)
    most = int(counts.argmax())
    words = f"always {classes[most]!r}" if classes else f"always class {most}"
    if not width:
        yield words, np.full(len(target), most)
        return
    yield words, np.broadcast_to(np.eye(width)[most], (len(target), width))
    yield "the shares of the classes", np.broadcast_to(counts / len(target), (len(target), width))

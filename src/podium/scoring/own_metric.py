"""Try a metric of the user's own on made-up items, before a run spends hours on models that it then
cannot measure."""

import inspect
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from podium.errors import InvalidInput
from podium.scoring.families import Array, FunctionMetric

_log = logging.getLogger("podium")

_HINT = "it is called as function(target, predictions) and returns a number"


def try_out(metric: FunctionMetric, kind: str | None = None) -> None:
    """Import a function and call it as the evaluation does.

    A function that raises is only warned about: it may need what the made-up items lack.

    Args:
        kind: classification or regression; None for a dataset that was not read yet.

    Raises:
        InvalidInput: There is no such function, it does not take two arguments, or it does not
            return a number.
    """
    function = metric.load()
    _check_signature(metric, function)
    failure: Exception | None = None
    for target, predictions in _examples(kind):
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                values = [function(target.copy(), predictions.copy()) for _ in range(2)]
        except Exception as error:  # it is the user's code: anything may come
            failure = error
            continue
        for value in values:
            _check_number(metric, value)
        first, again = map(float, values)
        if first != again and first == first:
            raise InvalidInput(
                f"the metric {metric.name} returned {first:g} and then {again:g} for the same items",
                "a metric follows from its arguments alone: fix its seed",
            )
        return
    said = f"{type(failure).__name__}: {failure}"
    _log.warning(
        "the metric %s failed on made-up items (%s); the run continues, as your own items may suit it",
        metric.name,
        said,
    )


def _check_signature(metric: FunctionMetric, function: Any) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function in C may have none
        return
    try:
        signature.bind(None, None)
    except TypeError:
        raise InvalidInput(
            f"the metric {metric.name} has the parameters {signature}", _HINT
        ) from None


def _check_number(metric: FunctionMetric, value: Any) -> None:
    try:
        float(value)
    except (TypeError, ValueError):
        problem = f"the metric {metric.name} returned {value!r:.60}, which is not a number"
        raise InvalidInput(problem, _HINT) from None


def _examples(kind: str | None) -> Iterator[tuple[Array, Array]]:
    if kind != "regression":
        for classes in (2, 3):
            target = np.arange(6) % classes
            probabilities = np.full((6, classes), 0.2 / (classes - 1), np.float32)
            probabilities[np.arange(6), (target + (np.arange(6) == 5)) % classes] = (
                0.8  # the last one is wrong
            )
            yield target, probabilities
            yield target, probabilities.argmax(1)
    if kind != "classification":
        values = np.linspace(1, 2, 6)
        for shape in ((6,), (6, 1)):
            yield values.reshape(shape), (values + 0.1).reshape(shape)

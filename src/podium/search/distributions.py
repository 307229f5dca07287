"""Mapping of search parameters to columns of an Optuna study, and of numbers between 0 and 1 to
their values."""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from podium.search.space import LOG, Parameter, parents_first

if TYPE_CHECKING:
    import optuna

_QUANTILE = " quantile"
_TAILS = NormalDist().cdf(-3), NormalDist().cdf(3)


def column(parameter: Parameter) -> str:
    """Return the name of a parameter's column: bells are searched by their quantile."""
    bell = parameter.numeric and parameter.distribution in ("normal", "logNormal")
    return parameter.name + (_QUANTILE if bell else "")


def distribution(parameter: Parameter) -> "optuna.distributions.BaseDistribution":
    """Return Optuna's distribution of a parameter."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not parameter.numeric:
        return CategoricalDistribution(parameter.choices)
    if column(parameter) != parameter.name:
        return FloatDistribution(0.0, 1.0)
    log = parameter.distribution in LOG
    if parameter.kind == "int":
        step = 1 if log else int(parameter.step or 1)
        low, high = int(parameter.low), int(parameter.high)
        return IntDistribution(low, high - (high - low) % step, log=log, step=step)
    if log or parameter.step is None:
        return FloatDistribution(parameter.low, parameter.high, log=log)
    return FloatDistribution(
        parameter.low, float(parameter.nth(parameter.points - 1)), step=parameter.step
    )


def decode(parameter: Parameter, value: Any) -> str:
    """Turn a column's value into the text that a trial gets."""
    if not parameter.numeric:
        return str(value)
    if column(parameter) != parameter.name:
        value = from_quantile(parameter, value)
    if parameter.step and parameter.distribution != "uniform":
        return parameter.nearest(value)
    return parameter.text(value)


def encode(parameter: Parameter, text: str) -> Any:
    """Turn the text that a trial got into a column's value.

    Raises:
        ValueError: It lies outside of the space, or between its steps.
    """
    if not parameter.numeric:
        if text not in parameter.choices:
            raise ValueError(text)
        return text
    value = float(text)
    if not parameter.low <= value <= parameter.high:
        raise ValueError(text)
    if column(parameter) != parameter.name:
        return to_quantile(parameter, value)
    if parameter.step and parameter.distribution == "uniform":
        number = round((value - parameter.low) / parameter.step)
        near = math.isclose(
            float(parameter.nth(number)), value, rel_tol=1e-9, abs_tol=1e-9 * parameter.step
        )
        if number >= parameter.points or not near:
            raise ValueError(text)
    return round(value) if parameter.kind == "int" else value


def encoded(space: Sequence[Parameter], point: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns of a point: none for a parameter that does not count there.

    Raises:
        ValueError: A value lies outside of the space, or between its steps.
    """
    return {column(each): encode(each, point[each.name]) for each in space if each.counts(point)}


def decoded(space: Sequence[Parameter], columns: Mapping[str, Any]) -> dict[str, str]:
    """Return the point of such columns."""
    return {
        each.name: decode(each, columns[column(each)]) if column(each) in columns else each.idle
        for each in space
    }


def distributions(
    space: Sequence[Parameter], columns: Mapping[str, Any]
) -> "dict[str, optuna.distributions.BaseDistribution]":
    """Return Optuna's distributions for the columns that a trial has."""
    return {column(each): distribution(each) for each in space if column(each) in columns}


def suggest(study: "optuna.Study", space: Sequence[Parameter]) -> "optuna.Trial":
    """Ask for a trial with a value for each parameter that counts, in Optuna's way of defining a
    space by running."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    trial, point = study.ask(), dict[str, str]()
    for each in (parameter for parameter in parents_first(space) if parameter.counts(point)):
        known: Any = distribution(each)
        if isinstance(known, CategoricalDistribution):
            value: Any = trial.suggest_categorical(column(each), known.choices)
        else:
            draw: Any = (
                trial.suggest_int if isinstance(known, IntDistribution) else trial.suggest_float
            )
            value = draw(column(each), known.low, known.high, step=known.step, log=known.log)
        point[each.name] = decode(each, value)
    return trial


def from_quantile(parameter: Parameter, quantile: float) -> float:
    """Map 0..1 to a bell over the bounds: its center in their middle, its sigma a sixth of their
    distance.

    Katib's hyperopt service uses the same bell, but lets one value in 370 fall outside of the
    bounds.
    """
    low, high = _ends(parameter)
    inside = _TAILS[0] + quantile * (_TAILS[1] - _TAILS[0])
    value = (low + high) / 2 + (high - low) / 6 * NormalDist().inv_cdf(inside)
    return min(max(_back(parameter, value), parameter.low), parameter.high)


def to_quantile(parameter: Parameter, value: float) -> float:
    """Map a value back to 0..1."""
    low, high = _ends(parameter)
    inner = math.log(value) if parameter.distribution == "logNormal" else value
    if low == high:
        return 0.5
    at = NormalDist().cdf((inner - (low + high) / 2) / ((high - low) / 6))
    return min(max((at - _TAILS[0]) / (_TAILS[1] - _TAILS[0]), 0.0), 1.0)


def _ends(parameter: Parameter) -> tuple[float, float]:
    if parameter.distribution == "logNormal":
        return math.log(parameter.low), math.log(parameter.high)
    return parameter.low, parameter.high


def _back(parameter: Parameter, value: float) -> float:
    return math.exp(value) if parameter.distribution == "logNormal" else value


def at(parameter: Parameter, unit: float) -> str:
    """Return the value of a parameter at 0 <= unit < 1 of its range."""
    uniform = parameter.distribution == "uniform"
    if not parameter.numeric or (parameter.step and uniform):
        return parameter.nth(min(int(unit * parameter.points), parameter.points - 1))
    if parameter.distribution in ("normal", "logNormal"):
        value = from_quantile(parameter, unit)
    elif parameter.distribution in LOG:
        value = parameter.low * (parameter.high / parameter.low) ** unit
    else:
        value = parameter.low + unit * (parameter.high - parameter.low)
    if parameter.step:
        return parameter.nearest(value)
    return parameter.text(min(value, parameter.high))


def unit(parameter: Parameter, text: str) -> float:
    """Return where a numeric parameter's value lies, 0..1 of its range; of a step its middle. The
    inverse of ``at``."""
    value = float(text)
    if parameter.low == parameter.high:
        return 0.5
    if parameter.distribution in ("normal", "logNormal"):
        return to_quantile(parameter, value)
    if parameter.distribution in LOG:
        return math.log(value / parameter.low) / math.log(parameter.high / parameter.low)
    if parameter.step:
        return (round((value - parameter.low) / parameter.step) + 0.5) / parameter.points
    return (value - parameter.low) / (parameter.high - parameter.low)

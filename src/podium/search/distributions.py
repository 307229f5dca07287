"""Mapping of search parameters to columns of an Optuna study."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podium.search.space import LOG, Parameter, parents_first

if TYPE_CHECKING:
    import optuna

_QUANTILE = " quantile"


def column(parameter: Parameter) -> str:
    """Return the name of a parameter's column: bells are searched by their quantile."""
    return parameter.name + (_QUANTILE if parameter.is_bell else "")


def distribution(parameter: Parameter) -> "optuna.distributions.BaseDistribution":
    """Return Optuna's distribution of a parameter."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not parameter.numeric:
        return CategoricalDistribution(parameter.choices)
    if parameter.is_bell:
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
    if parameter.is_bell:
        value = parameter.from_quantile(value)
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
    if parameter.is_bell:
        return parameter.to_quantile(value)
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


def add_running(
    study: "optuna.Study", space: Sequence[Parameter], columns: Mapping[str, Any]
) -> int:
    """Add a running trial with such columns to a study in memory; return its number."""
    from optuna.trial import TrialState, create_trial

    number = len(study.get_trials(deepcopy=False))
    known = distributions(space, columns)
    study.add_trial(
        create_trial(state=TrialState.RUNNING, params=dict(columns), distributions=known)
    )
    return number


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


def fits(point: Mapping[str, str], space: Sequence[Parameter]) -> bool:
    """Tell whether values are a point of a space: of exactly its parameters, and within bounds
    where they count."""
    try:
        encoded(space, point)
    except (KeyError, ValueError):
        return False
    return point.keys() == {parameter.name for parameter in space}

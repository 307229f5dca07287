"""Mapping of search parameters to columns of an Optuna study."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podium.search.pareto import Value
from podium.search.space import LOG, Parameter, parents_first

if TYPE_CHECKING:
    import optuna

_QUANTILE = " quantile"


def _column(parameter: Parameter) -> str:
    """Return the name of a parameter's column: bells are searched by their quantile."""
    return parameter.name + (_QUANTILE if parameter.is_bell else "")


def distribution(parameter: Parameter) -> "optuna.distributions.BaseDistribution":
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


def _decode(parameter: Parameter, value: Any) -> str:
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


class Columns:
    """The columns that a study has for a space: none for a parameter that does not count."""

    def __init__(self, space: Sequence[Parameter]) -> None:
        self._space = space

    def encode(self, point: Mapping[str, str]) -> dict[str, Any]:
        """Return the columns of a point.

        Raises:
            ValueError: A value lies outside of the space, or between its steps.
        """
        counting = (each for each in self._space if each.counts(point))
        return {_column(each): encode(each, point[each.name]) for each in counting}

    def decode(self, columns: Mapping[str, Any]) -> dict[str, str]:
        """Return the point of such columns."""
        return {
            each.name: _decode(each, columns[_column(each)])
            if _column(each) in columns
            else each.idle
            for each in self._space
        }

    def add(
        self,
        study: "optuna.Study",
        columns: Mapping[str, Any],
        value: float | None = None,
        *,
        running: bool = False,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a trial with such columns to a study; without a value it failed, unless it runs."""
        from optuna.trial import TrialState, create_trial

        ended = TrialState.FAIL if value is None else TrialState.COMPLETE
        result = None if value is None or running else Value.of(value)
        own = {_column(each): each for each in self._space if _column(each) in columns}
        study.add_trial(
            create_trial(
                state=TrialState.RUNNING if running else ended,
                params=dict(columns),
                distributions={name: distribution(each) for name, each in own.items()},
                values=None if result is None else result.objectives,
                constraints=None if result is None else dict(result.broken),
                user_attrs=dict(attributes or {}),
            )
        )

    def add_running(self, study: "optuna.Study", columns: Mapping[str, Any]) -> int:
        """Add a running trial with such columns to a study in memory; return its number."""
        number = len(study.get_trials(deepcopy=False))
        self.add(study, columns, running=True)
        return number

    def suggest(self, study: "optuna.Study") -> "optuna.Trial":
        """Ask for a trial with a value for each parameter that counts, in Optuna's way of defining
        a space by running."""
        from optuna.distributions import CategoricalDistribution, IntDistribution

        trial, point = study.ask(), dict[str, str]()
        for each in (one for one in parents_first(self._space) if one.counts(point)):
            domain: Any = distribution(each)
            if isinstance(domain, CategoricalDistribution):
                value: Any = trial.suggest_categorical(_column(each), domain.choices)
            else:
                whole = isinstance(domain, IntDistribution)
                draw: Any = trial.suggest_int if whole else trial.suggest_float
                value = draw(
                    _column(each), domain.low, domain.high, step=domain.step, log=domain.log
                )
            point[each.name] = _decode(each, value)
        return trial

    def has(self, point: Mapping[str, str]) -> bool:
        """Tell whether values are a point of the space: of exactly its parameters, and within
        bounds where they count."""
        try:
            self.encode(point)
        except (KeyError, ValueError):
            return False
        return point.keys() == {parameter.name for parameter in self._space}

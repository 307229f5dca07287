"""Parameters that count only where others have certain values."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from podium.errors import InvalidInput, suggestion
from podium.manifests.options.base import Setting, SweepOption, UnderKatib, Values
from podium.search.algorithms import ALGORITHMS
from podium.search.distributions import encode
from podium.search.space import Parameter, Premise

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment

_Premises = Mapping[str, tuple[Premise, ...]]
"""Conditions under which each parameter is active, by its name; a parameter that is always active
is absent."""

_PREMISE = re.compile(r"\s*([\w.-]+?)\s*(<=|>=|=|<|>)\s*([^\s=<>](?:.*\S)?)\s*")


def _read(text: str) -> _Premises:
    """Read ``momentum if optimizer=sgd; beta2 if optimizer=adam,adamw and layers>=2``.

    Raises:
        InvalidInput: It is something else.
    """
    conditions: dict[str, tuple[Premise, ...]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, _, asked = part.partition(" if ")
        matches = [_PREMISE.fullmatch(premise) for premise in asked.split(" and ")]
        parsed = [(match[1], match[2], match[3]) for match in matches if match]
        if len(parsed) < len(matches):
            problem = (
                f"a condition is a parameter, if, and values of other parameters, not {part!r}"
            )
            raise InvalidInput(
                problem, "momentum if optimizer=sgd,rmsprop; the operators are =, <=, >=, < and >"
            )
        premises = [
            Premise(
                name=other,
                sign=sign,
                values=tuple(map(str.strip, value.split(","))) if sign == "=" else (value,),
            )
            for other, sign, value in parsed
        ]
        conditions[name.strip()] = (*conditions.get(name.strip(), ()), *premises)
    return conditions


@cache
def _closed(text: str) -> _Premises:
    """Add to each parameter's conditions those of the parameters they refer to; empty if they
    cannot be read."""

    def above(name: str) -> tuple[Premise, ...]:
        names, premises = [name], dict[Premise, None]()
        for each in names:
            for premise in conditions.get(each, ()):
                premises[premise] = None
                names += [premise.name] if premise.name not in names else []
        return tuple(premises)

    conditions: _Premises = {}
    with suppress(InvalidInput):  # a rule says so
        conditions = _read(text)
    return {name: above(name) for name in conditions}


def conditional(space: Sequence[Parameter], values: Values) -> tuple[Parameter, ...]:
    """Return a space whose parameters know when they count."""
    conditions = _closed("; ".join(values.get("conditions", ())))
    return tuple(
        replace(each, when=conditions[each.name]) if each.name in conditions else each
        for each in space
    )


def counting(assignments: Mapping[str, str], values: Values) -> dict[str, str]:
    """Return the values of a trial that count."""
    conditions = _closed("; ".join(values.get("conditions", ())))

    def counts(name: str) -> bool:
        return all(
            premise.holds(assignments.get(premise.name, "")) for premise in conditions.get(name, ())
        )

    return {name: value for name, value in assignments.items() if counts(name)}


@dataclass(frozen=True, kw_only=True)
class Conditions(SweepOption):
    """Conditions under which parameters are active."""

    title: ClassVar[str] = "conditions"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(
            name="conditions",
            is_list=True,
            flag="--condition",
            metavar="TEXT",
            help="When a parameter is active: 'momentum if optimizer=sgd'; may be repeated.",
        ),
    )
    katib: ClassVar[UnderKatib | None] = UnderKatib(
        why="Katib has no conditions: it searches all parameters in each trial.",
        what="only podium's own engine searches parameters only where they count",
        hint="Katib runs it as well, with more trials for the same result",
        level="note",
        refuses=False,
    )
    is_of_trials: ClassVar[bool] = True

    premises: _Premises

    text: str

    @classmethod
    def of(cls, values: Values) -> "Conditions | None":
        text = "; ".join(values.get("conditions", ()))
        return cls(premises=_read(text), text=text) if text else None

    @classmethod
    def fix(cls, values: Values, fixed: Mapping[str, str], idle: set[str]) -> Values:
        """Leave out what is decided, and what never holds."""
        if not values.get("conditions"):
            return values
        left = dict(_read("; ".join(values["conditions"])))
        while never := {
            name
            for name, premises in left.items()
            if any(
                each.name in idle or (each.name in fixed and not each.holds(fixed[each.name]))
                for each in premises
            )
        }:
            idle |= never
            left = {name: premises for name, premises in left.items() if name not in never}
        open_ = {
            name: [each for each in premises if each.name not in fixed]
            for name, premises in left.items()
            if name not in fixed
        }
        texts = [
            f"{name} if {' and '.join(map(str, premises))}"
            for name, premises in open_.items()
            if premises
        ]
        return {**values, "conditions": tuple(texts)}

    def describe(self, experiment: "Experiment") -> str:
        return self.text

    def check(self, experiment: "Experiment") -> None:
        """Refuse parameters that are not searched, cycles, and an algorithm that does not support
        conditions."""
        parameters = {parameter.name: parameter for parameter in experiment.space}
        for name, premises in self.premises.items():
            for each in (name, *(premise.name for premise in premises)):
                if each not in parameters:
                    raise InvalidInput(
                        f"a condition names {each}, which is not searched",
                        suggestion(each, parameters),
                    )
            for premise in premises:
                _check_values(premise, parameters[premise.name])
            if name in (premise.name for premise in parameters[name].when):
                asked = " and ".join(map(str, premises))
                raise InvalidInput(
                    f"whether {name} counts depends on itself: {name} if {asked}",
                    f"leave one of the conditions between {name} and {premises[0].name} out",
                )
            for other in parameters.values():
                _check_together(
                    other, [each for each in parameters[name].when if each.name == other.name]
                )
        asked_about = {premise.name for parameter in experiment.space for premise in parameter.when}
        _check_algorithm(experiment, {*self.premises, *asked_about})


def _check_values(premise: Premise, parameter: Parameter) -> None:
    for value in premise.values if premise.sign == "=" else ():
        try:
            encode(parameter, value)
        except ValueError:
            hint = (
                suggestion(value, parameter.choices)
                if parameter.choices
                else f"its values are {parameter.extent}"
            )
            raise InvalidInput(
                f"{value} of the condition {premise} is not a value of {premise.name}", hint
            ) from None


def _check_together(parameter: Parameter, premises: Sequence[Premise]) -> None:
    """Refuse conditions that no value of a parameter satisfies, or hardly any value of a continuous
    one."""
    if any(
        all(premise.holds(value) for premise in premises) for value in parameter.probes(premises)
    ):
        return
    first, *others = premises
    hint = f"the values of {parameter.name} are {parameter.extent}"
    if others and all(premise.sign == "=" for premise in premises):
        hint = f"for either of them: {first},{','.join(value for each in others for value in each.values)}"
    elif parameter.numeric and not parameter.step and first.sign == "=":
        hint += ", of which a trial hardly ever has just this one: ask with <= or >="
    raise InvalidInput(f"the condition {' and '.join(map(str, premises))} never holds", hint)


def _check_algorithm(experiment: "Experiment", concerned: set[str]) -> None:
    algorithm = experiment.search
    if algorithm.name in ALGORITHMS and not algorithm.facts.takes_conditions:
        able = ", ".join(each.name for each in ALGORITHMS.values() if each.takes_conditions)
        problem = (
            f"{algorithm.name} searches all parameters in each trial, but there are conditions"
        )
        raise InvalidInput(problem, f"set the algorithm to one of {able}")
    if (resource := algorithm.settings.get("resource_name")) in concerned:
        problem = f"{resource} says how long a trial of {algorithm.name} runs, so that no condition can be about it"
        raise InvalidInput(problem, f"leave the condition about {resource} out")

"""A search space: parameters with bounds or choices, some of which count only where others have
certain values."""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

DISTRIBUTIONS = ("uniform", "logUniform", "normal", "logNormal")
LOG = ("logUniform", "logNormal")

_COMPARES = {
    "=": operator.eq,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, kw_only=True)
class Premise:
    """Condition on the value of another parameter: ``optimizer=adam,adamw`` or ``layers>=3``."""

    name: str
    sign: str
    """``=``, ``<=``, ``>=``, ``<`` or ``>``."""

    values: tuple[str, ...]
    """One of them is enough."""

    def holds(self, text: str) -> bool:
        """Tell whether it is true of a value of that parameter."""
        compare = _COMPARES[self.sign]
        return any(
            (self.sign == "=" and text == value) or compare(_number(text), _number(value))
            for value in self.values
        )

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{','.join(self.values)}"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One dimension of a search space."""

    name: str
    """``spec.parameters[].name``."""

    kind: str
    """``double``, ``int``, ``discrete`` or ``categorical``."""

    low: float = 0.0
    """Smallest value of a double or int."""

    high: float = 0.0
    """Largest value of a double or int, itself possible."""

    step: float | None = None
    """Distance between neighboring values; None for a double without one, 1 for an int."""

    distribution: str = "uniform"
    """``uniform``, ``logUniform``, ``normal`` or ``logNormal``."""

    choices: tuple[str, ...] = ()
    """Values of a discrete or categorical parameter, as given."""

    when: tuple[Premise, ...] = ()
    """Conditions under which it is active, with those of the parameters they refer to; empty if it
    always is."""

    def counts(self, point: Mapping[str, str]) -> bool:
        """Tell whether it counts beside the other values of a point."""
        return all(premise.holds(point.get(premise.name, "")) for premise in self.when)

    @property
    def idle(self) -> str:
        """The value that a trial is given where it does not count: its least, or the first of its
        list."""
        return self.text(self.low) if self.numeric else self.choices[0]

    @property
    def numeric(self) -> bool:
        """Whether it has bounds rather than a list."""
        return self.kind in ("double", "int")

    @property
    def points(self) -> int:
        """Number of values of a stepped or listed parameter."""
        if not self.numeric:
            return len(self.choices)
        return math.floor((self.high - self.low) / (self.step or 1.0) + 1e-9) + 1

    def nth(self, number: int) -> str:
        """Return one value of a stepped or listed parameter, counted from 0."""
        return (
            self.text(self.low + number * (self.step or 1.0))
            if self.numeric
            else self.choices[number]
        )

    def nearest(self, value: float) -> str:
        """Return the value of a stepped parameter that is nearest to a number."""
        return self.nth(min(round((value - self.low) / (self.step or 1.0)), self.points - 1))

    def text(self, value: float) -> str:
        """Format a value of a double or int as a trial gets it, without rounding errors of
        steps."""
        if self.kind == "int":
            return str(round(value))
        return repr(float(f"{value:.12g}")) if self.step else repr(float(value))


def parents_first(space: Sequence[Parameter]) -> list[Parameter]:
    """Return parameters so that each comes behind those that its conditions ask about."""
    return sorted(space, key=lambda parameter: len(parameter.when))  # it has theirs, and its own


def settled(space: Sequence[Parameter], point: Mapping[str, str]) -> dict[str, str]:
    """Return a point with a fixed value for each inactive parameter, so that equal trials have
    equal points."""
    return {each.name: point[each.name] if each.counts(point) else each.idle for each in space}


def branches(space: Sequence[Parameter]) -> Iterator[tuple[dict[str, str], list[Parameter]]]:
    """Yield the branches of a stepped or listed space: values of the parameters in conditions, and
    the other parameters that are active there."""
    asked = {premise.name for parameter in space for premise in parameter.when}

    def walk(point: dict[str, str], left: Sequence[Parameter]) -> Iterator[dict[str, str]]:
        if not left:
            yield point
            return
        first, *others = left
        for value in map(first.nth, range(first.points)) if first.counts(point) else [first.idle]:
            yield from walk({**point, first.name: value}, others)

    for point in walk(
        {}, parents_first([parameter for parameter in space if parameter.name in asked])
    ):
        rest = [parameter for parameter in space if parameter.name not in asked]
        idle = {parameter.name: parameter.idle for parameter in rest if not parameter.counts(point)}
        yield {**point, **idle}, [parameter for parameter in rest if parameter.name not in idle]


def count_points(space: Sequence[Parameter], beyond: float = math.inf) -> int:
    """Return how many points a grid over the space has; of more than ``beyond`` maybe not all."""
    count = 0
    for _, free in branches(space):
        count += math.prod(parameter.points for parameter in free)
        if count > beyond:
            break
    return count


def first_values(parameter: Parameter, count: int = 3) -> list[str]:
    """Return a few values a trial may get, the ends first; every value of a list."""
    if not parameter.numeric:
        return list(parameter.choices)
    return list(
        islice(
            dict.fromkeys([parameter.text(parameter.low), parameter.text(parameter.high)]), count
        )
    )


def probes(parameter: Parameter, premises: Sequence[Premise]) -> Sequence[str]:
    """Return values of which one satisfies the premises about a parameter, if more than a point of
    its space does."""
    if not parameter.numeric:
        return parameter.choices
    low, high, step = parameter.low, parameter.high, parameter.step
    limits = (_number(value) for premise in premises for value in premise.values)
    ends = sorted({low, high, *(limit for limit in limits if low <= limit <= high)})
    if step is None:
        return [parameter.text((one + other) / 2) for one, other in pairwise(ends)] or [
            parameter.text(low)
        ]
    near = {math.floor((end - low) / step) + beside for end in ends for beside in (-1, 0, 1)}
    return [parameter.nth(number) for number in sorted(near) if 0 <= number < parameter.points]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan

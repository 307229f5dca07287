"""A search space: parameters with bounds or choices, some of which count only where others have
certain values."""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

DISTRIBUTIONS = ("uniform", "logUniform", "normal", "logNormal")
LOG = ("logUniform", "logNormal")
_TAILS = NormalDist().cdf(-3), NormalDist().cdf(3)

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

    @property
    def is_bell(self) -> bool:
        """Whether its values gather in the middle of its bounds."""
        return self.numeric and self.distribution in ("normal", "logNormal")

    def at(self, share: float) -> str:
        """Return the value at 0 <= share < 1 of its range."""
        if not self.numeric or (self.step and self.distribution == "uniform"):
            return self.nth(min(int(share * self.points), self.points - 1))
        if self.is_bell:
            value = self.from_quantile(share)
        elif self.distribution in LOG:
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + share * (self.high - self.low)
        return self.nearest(value) if self.step else self.text(min(value, self.high))

    def share(self, text: str) -> float:
        """Return where a value of a double or int lies, 0..1 of its range; of a step its middle.
        The inverse of ``at``."""
        value = float(text)
        if self.low == self.high:
            return 0.5
        if self.is_bell:
            return self.to_quantile(value)
        if self.distribution in LOG:
            return math.log(value / self.low) / math.log(self.high / self.low)
        if self.step:
            return (round((value - self.low) / self.step) + 0.5) / self.points
        return (value - self.low) / (self.high - self.low)

    def from_quantile(self, quantile: float) -> float:
        """Map 0..1 to a bell over the bounds: its center in their middle, its sigma a sixth of
        their distance.

        Katib's hyperopt service uses the same bell, but lets one value in 370 fall outside of the
        bounds. Twelve digits are kept, so that a value that is mapped back and forth stays the
        same.
        """
        low, high = self._ends
        inside = _TAILS[0] + quantile * (_TAILS[1] - _TAILS[0])
        value = (low + high) / 2 + (high - low) / 6 * NormalDist().inv_cdf(inside)
        if self.distribution == "logNormal":
            value = float(f"{math.exp(value):.12g}")
        elif high > low:
            value = round(value, 12 - math.ceil(math.log10(high - low)))
        return min(max(value, self.low), self.high)

    def to_quantile(self, value: float) -> float:
        """Map a value back to 0..1."""
        low, high = self._ends
        if low == high:
            return 0.5
        inner = math.log(value) if self.distribution == "logNormal" else value
        at = NormalDist().cdf((inner - (low + high) / 2) / ((high - low) / 6))
        return min(max((at - _TAILS[0]) / (_TAILS[1] - _TAILS[0]), 0.0), 1.0)

    @property
    def _ends(self) -> tuple[float, float]:
        if self.distribution == "logNormal":
            return math.log(self.low), math.log(self.high)
        return self.low, self.high

    @property
    def extent(self) -> str:
        """Its values in words: ``relu, gelu`` or ``0.1 to 0.5 in steps of 0.1``."""
        if not self.numeric:
            return ", ".join(self.choices)
        is_whole = self.kind == "int" and self.step == 1
        steps = f" in steps of {self.step:g}" if self.step and not is_whole else ""
        return f"{self.text(self.low)} to {self.text(self.high)}{steps}"

    def samples(self) -> list[str]:
        """Return a few values a trial may get, the ends first; every value of a list."""
        if not self.numeric:
            return list(self.choices)
        return list(dict.fromkeys([self.text(self.low), self.text(self.high)]))

    def probes(self, premises: Sequence[Premise]) -> Sequence[str]:
        """Return values of which one satisfies the premises about it, if more than a point of its
        space does."""
        if not self.numeric:
            return self.choices
        limits = (_number(value) for premise in premises for value in premise.values)
        inner = (limit for limit in limits if self.low <= limit <= self.high)
        ends = sorted({self.low, self.high, *inner})
        if self.step is None:
            middles = [self.text((one + other) / 2) for one, other in pairwise(ends)]
            return middles or [self.text(self.low)]
        near = {
            math.floor((end - self.low) / self.step) + beside
            for end in ends
            for beside in (-1, 0, 1)
        }
        return [self.nth(number) for number in sorted(near) if 0 <= number < self.points]


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


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan

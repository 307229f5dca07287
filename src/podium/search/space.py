"""A search space: parameters with bounds or choices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

DISTRIBUTIONS = ("uniform", "logUniform", "normal", "logNormal")
LOG = ("logUniform", "logNormal")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One dimension of a search space."""

    name: str
    """As in ``spec.parameters[].name``."""

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

    @property
    def numeric(self) -> bool:
        """Whether it has bounds rather than a list."""
        return self.kind in ("double", "int")

    @property
    def points(self) -> int:
        """How many values a stepped or listed parameter has."""
        if not self.numeric:
            return len(self.choices)
        return math.floor((self.high - self.low) / (self.step or 1.0) + 1e-9) + 1

    def nth(self, number: int) -> str:
        """Return one value of a stepped or listed parameter, counted from 0."""
        return self.text(self.low + number * (self.step or 1.0)) if self.numeric else self.choices[number]

    def nearest(self, value: float) -> str:
        """Return the value of a stepped parameter that is nearest to a number."""
        return self.nth(min(round((value - self.low) / (self.step or 1.0)), self.points - 1))

    def text(self, value: float) -> str:
        """Write a value of a double or int the way a trial sees it; steps leave no rounding dust."""
        if self.kind == "int":
            return str(round(value))
        return repr(float(f"{value:.12g}")) if self.step else repr(float(value))


def count_points(space: Sequence[Parameter]) -> int:
    """Return how many points a grid over the space has."""
    return math.prod(parameter.points for parameter in space)


def first_values(parameter: Parameter, count: int = 3) -> list[str]:
    """Return a few values a trial may get, the ends first; every value of a list."""
    if not parameter.numeric:
        return list(parameter.choices)
    return list(islice(dict.fromkeys([parameter.text(parameter.low), parameter.text(parameter.high)]), count))

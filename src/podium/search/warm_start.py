"""Warm start: a sweep that learns from the finished trials of earlier ones before it asks for its
first point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podium.search.distributions import encoded
from podium.search.space import Parameter


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A finished trial of another sweep."""

    trial: str
    """Name of the trial."""

    assignments: dict[str, str]
    """Value by search parameter."""

    value: float
    """Value of its objective."""


def fits(assignments: Mapping[str, str], space: Sequence[Parameter]) -> bool:
    """Tell whether assignments are a point of a space: exactly its parameters, and within bounds
    where they count."""
    if set(assignments) != {parameter.name for parameter in space}:
        return False
    try:
        encoded(space, assignments)
    except ValueError:
        return False
    return True

"""Progress lines, and rules for settings, of all steps."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from podium.errors import require

T = TypeVar("T")

PROGRESS = "podium | "
"""Prefix of progress lines; the rest of a step's log is for finding faults."""


def say(text: str) -> None:
    """Print one line of progress at once: a step's stdout is a pipe."""
    print(PROGRESS + text, flush=True)


def require_at_least(settings: object, **least: int) -> None:
    """Refuse settings that are too small, as in ``require_at_least(self, max_trials=1)``.

    Raises:
        InvalidInput: "`max_trials >= 1` must hold, but got max_trials=0".
    """
    for name, minimum in least.items():
        value = getattr(settings, name)
        require(isinstance(value, int), f"{name} is a whole number", **{name: value})
        require(value >= minimum, f"{name} >= {minimum}", **{name: value})


def read_settings(kind: type[T], values: Mapping[str, Any]) -> T:
    """Build settings from parameters, which have the names of their fields.

    Raises:
        InvalidInput: A value breaks a rule.
    """
    names = (field.name for field in fields(kind))  # type: ignore[arg-type]
    return kind(**{name: values[name] for name in names if values.get(name) is not None})

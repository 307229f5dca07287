"""Options of a sweep beyond Katib's fields, one file each, and the annotation that they share."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict

from podium.errors import InvalidInput, suggestion
from podium.files.documents import load_yaml
from podium.manifests.fields import mapping
from podium.manifests.labels import SWEEP
from podium.manifests.options.algorithm import ChosenAlgorithm
from podium.manifests.options.base import Setting, SweepOption, Values
from podium.manifests.options.budget import Budget
from podium.manifests.options.conditions import Conditions
from podium.manifests.options.confirm import Confirm
from podium.manifests.options.deterministic import Deterministic
from podium.manifests.options.first import First
from podium.manifests.options.folds import Folds
from podium.manifests.options.objectives import Objectives
from podium.manifests.options.pool import Pool
from podium.manifests.options.warm_start import WarmStart

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment
    from podium.manifests.experiment.trial import Trial

OPTIONS: list[type[SweepOption]] = [
    Objectives,
    Conditions,
    First,
    Budget,
    Deterministic,
    Folds,
    Confirm,
    Pool,
    ChosenAlgorithm,
    WarmStart,
]
"""In the order in which they are shown."""


class SweepOptions(TypedDict, total=False):
    """The settings of all options as Python arguments; absent or None for options that are not
    used."""

    objectives: Sequence[str] | None
    constraints: Sequence[str] | None
    conditions: Sequence[str] | None
    first: Sequence[str] | None
    max_time: str | float | None
    max_cost: float | None
    price: float | None
    deterministic: int | None
    folds: int | None
    confirm: str | Mapping[str, int] | None
    pool: int | None
    warm_start: Sequence[str] | None


def settings() -> dict[str, Setting]:
    """Return the settings of all options by name."""
    return {setting.name: setting for option in OPTIONS for setting in option.settings}


def read_settings(raw_values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of some settings as their options take them, without None and empty lists.

    Raises:
        InvalidInput: There is no such setting, or a value is of another kind.
    """
    supported, values = settings(), {}
    for name, value in raw_values.items():
        if name not in supported:
            raise InvalidInput(f"a sweep has no setting {name!r}", suggestion(name, supported))
        if value is not None and (value or not supported[name].is_list):
            values[name] = supported[name].read(value)
    return values


@cache
def _read(text: str) -> Values:
    documents = load_yaml(text, f"annotation {SWEEP}")
    if len(documents) != 1 or not isinstance(documents[0], Mapping):
        raise InvalidInput(
            f"annotation {SWEEP} holds settings by name, not {text!r:.60}", "max_time: 2h"
        )
    return MappingProxyType(read_settings(documents[0]))


def read_annotation(annotations: Mapping[str, str]) -> Values:
    """Return the settings of an Experiment or a trial from its annotations.

    Raises:
        InvalidInput: The annotation is no mapping of settings.
    """
    return _read(annotations[SWEEP]) if SWEEP in annotations else {}


def asked(annotations: Mapping[str, str]) -> Values:
    """Like read_annotation, but empty if the annotation cannot be read, which a rule about
    Experiments reports."""
    with suppress(InvalidInput):
        return read_annotation(annotations)
    return {}


def annotation(values: Values) -> dict[str, str]:
    """Return the annotation of some settings; none for none."""
    plain = {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }
    if not plain:
        return {}
    from podium.files.yaml_loader import dump

    return {SWEEP: dump(plain)}


def annotated(annotations: Any, values: Values) -> dict[str, str]:
    """Return annotations with these settings in place of those so far."""
    others = {name: text for name, text in mapping(annotations).items() if name != SWEEP}
    return {**others, **annotation(values)}


def of_trials(values: Values) -> Values:
    """Return the settings that trials carry too."""
    names = {
        setting.name for option in OPTIONS if option.is_of_trials for setting in option.settings
    }
    return {name: value for name, value in values.items() if name in names}


def prepare(spec: dict[str, Any], before: Values, changes: Values) -> Values:
    """Change Katib's fields for the given settings, and return all settings of the sweep.

    Args:
        spec: Spec of the manifest as written, altered in place.
        before: Settings so far.
        changes: Read by read_settings.
    """
    kept = dict(before)
    for option in OPTIONS:
        names = {setting.name for setting in option.settings}
        if names.isdisjoint(changes):
            continue
        results = {setting.name for setting in option.settings if setting.is_result}
        own = {
            **{name: value for name, value in kept.items() if name in names - results},
            **{name: value for name, value in changes.items() if name in names},
        }
        others = {name: value for name, value in kept.items() if name not in names}
        kept = {**others, **option.prepare(spec, own)}
    return kept


def fix(values: Values, fixed: Mapping[str, str]) -> tuple[Values, set[str]]:
    """Return the settings where some parameters have one value, and the parameters that never count
    then."""
    idle: set[str] = set()
    for option in OPTIONS:
        values = option.fix(values, fixed, idle)
    return values, idle


def options_of(experiment: "Experiment") -> Iterator[SweepOption]:
    """Yield the options that an Experiment uses.

    Raises:
        InvalidInput: It makes no sense.
    """
    for kind in OPTIONS:
        if option := kind.of(experiment.asked):
            yield option


def describe(experiment: "Experiment") -> dict[str, str]:
    """Describe the options that an Experiment uses, by title."""
    return {option.title: option.describe(experiment) for option in options_of(experiment)}


def forecast(experiment: "Experiment", trials: "Sequence[Trial]") -> str:
    """Predict the effect of the options on a sweep, by its trials or those of a similar one; empty
    if unknown."""
    forecasts = (option.forecast(experiment, trials) for option in options_of(experiment))
    return "; ".join(filter(None, forecasts))


def ended_by(experiment: "Experiment") -> type[SweepOption] | None:
    """Return the option that had no room for another trial of an Experiment that has ended; None if
    others ended it."""
    reasons = {option.ended: option for option in OPTIONS if option.ended}
    return reasons.get(experiment.state.reason)


def documented(docstring: str | None) -> str:
    """Return the docstring of a function that takes all settings, with a list of them at its
    end."""
    rows = [
        f"    {name}: {setting.help}"
        for name, setting in settings().items()
        if not setting.is_result
    ]
    return "\n".join([inspect.cleandoc(docstring or ""), "", "Settings of a sweep:", *rows])

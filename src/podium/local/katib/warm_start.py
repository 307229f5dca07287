"""Warm start: a sweep that learns from the finished trials of earlier ones before it asks for its first point."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput, require
from podium.local.katib.distributions import encode
from podium.manifests.experiment import objective_of, trial_row
from podium.manifests.experiment.rules import Findings
from podium.manifests.experiment.space import read_space

if TYPE_CHECKING:
    from podium.local.store import Store

ANNOTATION = "podium.dev/warm-start"
"""Annotation of an Experiment: names of earlier ones in the same cluster directory, separated by commas."""

LEARNING = ("tpe", "multivariate-tpe", "bayesianoptimization", "cmaes")
"""Algorithms that choose their points by earlier results; the others would not even look at them."""

CMAES_NEEDS = 10
"""CMA-ES begins at the best tenth of what was there before (Nomura 2021, as in the package cmaes)."""


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A finished trial of another sweep."""

    trial: str
    """Its name."""

    assignments: dict[str, str]
    """Value by search parameter."""

    value: float
    """Its objective."""


def sources(experiment: Mapping[str, Any]) -> list[str]:
    """Return the names of the Experiments that one starts warm from."""
    named = (experiment["metadata"].get("annotations") or {}).get(ANNOTATION) or ""
    require(isinstance(named, str), f"{ANNOTATION} is text", given=named)
    return list(dict.fromkeys(name.strip() for name in named.split(",") if name.strip()))


def earlier_trials(store: "Store", experiment: Mapping[str, Any]) -> list[Earlier]:
    """Return what an Experiment can learn from before it begins; nothing if it asks for no warm start.

    Args:
        store: Holds the earlier Experiments and their trials.
        experiment: With its defaults, checked.

    Raises:
        NotFound: There is no such earlier Experiment.
        InvalidInput: Its algorithm does not learn, the objectives differ, or no trial lies in its space.
    """
    names = sources(experiment)
    if not names:
        return []
    algorithm = experiment["spec"]["algorithm"]["algorithmName"]
    hint = f"choose one of {', '.join(LEARNING)}, or remove the annotation"
    require(algorithm in LEARNING, f"an algorithm with {ANNOTATION} learns", hint, algorithm=algorithm)
    found: list[Earlier] = []
    count = 0
    for name in names:
        other = store.read("Experiment", name)
        mine, theirs = objective_of(experiment), objective_of(other)
        if mine != theirs:
            raise InvalidInput(
                f"`{ANNOTATION} names Experiments of the same objective` must hold, but got {_said(*theirs)} in "
                f"{name}, {_said(*mine)} here",
                "name another one",
            )
        trials = store.list("Trial", {"katib.kubeflow.org/experiment": name})
        count += len(trials)
        found += [one for trial in trials if (one := _usable(trial, experiment))]
    least = CMAES_NEEDS if algorithm == "cmaes" else 1
    if len(found) < least:
        raise InvalidInput(
            f"`at least {least} finished trials of {', '.join(names)} lie in the search space` must hold, but of "
            f"{count} trials {len(found)} do",
            "a trial counts if it has a result and values for exactly the parameters searched here, all within bounds",
        )
    return found


def _usable(trial: Mapping[str, Any], experiment: Mapping[str, Any]) -> Earlier | None:
    row = trial_row(trial)
    space = read_space(experiment["spec"]["parameters"], Findings())
    if row.state not in ("Succeeded", "EarlyStopped") or row.value is None:
        return None
    if set(row.parameters) != {parameter.name for parameter in space}:
        return None
    try:
        for parameter in space:
            encode(parameter, row.parameters[parameter.name])
    except ValueError:
        return None
    return Earlier(trial=row.name, assignments=row.parameters, value=row.value)


def _said(name: str, maximize: bool, strategy: str) -> str:
    return f"{'maximize' if maximize else 'minimize'} {name} ({strategy})"

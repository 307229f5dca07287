"""Readers of an Experiment's and a Trial's status, Katib's or ours."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from podium.manifests.conditions import status_of
from podium.metrics import objective_value


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """What there is to say about one trial."""

    name: str
    """Of the trial and of its job."""

    state: str
    """``Pending``, ``Running``, ``Succeeded``, ``Failed``, ``EarlyStopped``, ``MetricsUnavailable`` or ``Killed``."""

    parameters: dict[str, str]
    """Value by search parameter."""

    metrics: dict[str, dict[str, str]]
    """``min``, ``max`` and ``latest`` by metric; empty until the trial has ended."""

    value: float | None
    """The objective by its strategy; None unless it is a finite number."""

    seconds: float | None
    """From start to end, or until now; None before the start."""

    message: str
    """Of the last condition."""


def objective_of(experiment: Mapping[str, Any]) -> tuple[str, bool, str]:
    """Return (metric, whether more is better, strategy) of an Experiment or Trial."""
    objective = experiment["spec"]["objective"]
    name, maximize = objective["objectiveMetricName"], objective["type"] == "maximize"
    chosen = {entry["name"]: entry["value"] for entry in objective.get("metricStrategies") or []}
    return name, maximize, chosen.get(name, "max" if maximize else "min")


def trial_row(trial: Mapping[str, Any]) -> TrialRow:
    """Read one Trial object."""
    status = trial.get("status") or {}
    metrics = read_metrics(status.get("observation"))
    name, _, strategy = objective_of(trial)
    state = status_of({"kind": "Trial", "status": status})
    return TrialRow(
        name=trial["metadata"]["name"],
        state="Pending" if state.phase == "Created" else state.phase,
        parameters=read_assignments(trial["spec"].get("parameterAssignments")),
        metrics=metrics,
        value=objective_value(metrics.get(name, {}), strategy),
        seconds=_seconds(status),
        message=state.message,
    )


def news(trial: Mapping[str, Any], before: str) -> list[TrialRow]:
    """Return what there is to tell of a trial: nothing, its start, its end, or both.

    Args:
        trial: As it is now.
        before: The state in which it was last told of; ``Pending`` for one not told of yet.
    """
    row = trial_row(trial)
    if row.state in (before, "Pending"):
        return []
    # A short trial may begin and end between two looks.
    began = any(one["type"] == "Running" for one in (trial.get("status") or {}).get("conditions") or [])
    missed = before == "Pending" and row.state != "Running" and began
    return [*([replace(row, state="Running")] if missed else []), row]


def leaderboard(trials: Iterable[Mapping[str, Any]], *, maximize: bool) -> list[TrialRow]:
    """Return the trials, best first; of equals the one that ended first, then by name.

    Those without a number come last, in the order given.
    """
    rows = [(trial_row(trial), ended_at(trial)) for trial in trials]
    return [
        row for row, _ in sorted(rows, key=lambda pair: rank(pair[0].name, pair[0].value, pair[1], maximize=maximize))
    ]


def rank(name: str, value: float | None, ended: float, *, maximize: bool) -> tuple[Any, ...]:
    """Return the sort key of a trial; without a number all are equal, and last."""
    return (True,) if value is None else (False, -value if maximize else value, ended, name)


def ended_at(trial: Mapping[str, Any]) -> float:
    """Return when a trial ended, in seconds since the epoch; infinity if it did not."""
    end = _end(trial.get("status") or {})
    return datetime.fromisoformat(end).timestamp() if end else math.inf


def best_trial(trials: Iterable[Mapping[str, Any]], *, maximize: bool) -> TrialRow | None:
    """Return the best trial that succeeded or was stopped early, of equals the one that ended first.

    Katib's own currentOptimalTrial may name any of equals, and a trial whose objective was no number; this never does.
    """
    rows = [row for row in leaderboard(trials, maximize=maximize) if row.state in ("Succeeded", "EarlyStopped")]
    return rows[0] if rows and rows[0].value is not None else None


def optimal_trial(experiment: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return ``status.currentOptimalTrial`` as {"name", "parameters", "metrics"}; None if there is none yet."""
    best = (experiment.get("status") or {}).get("currentOptimalTrial") or {}
    if not best.get("bestTrialName"):
        return None
    return {
        "name": best["bestTrialName"],
        "parameters": read_assignments(best.get("parameterAssignments")),
        "metrics": read_metrics(best.get("observation")),
    }


def read_assignments(assignments: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """Turn ``[{"name": …, "value": …}]`` into a dict."""
    return {entry["name"]: entry["value"] for entry in assignments or []}


def read_metrics(observation: Mapping[str, Any] | None) -> dict[str, dict[str, str]]:
    """Turn an observation into min, max and latest by metric; what Katib left out is an empty text."""
    metrics = (observation or {}).get("metrics") or []
    return {entry["name"]: {fold: entry.get(fold, "") for fold in ("min", "max", "latest")} for entry in metrics}


def _end(status: Mapping[str, Any]) -> str | None:
    # An early-stopped trial has no completionTime in Katib.
    stopped = [one.get("lastTransitionTime") for one in status.get("conditions") or [] if one["type"] == "EarlyStopped"]
    return status.get("completionTime") or next(iter(stopped), None)


def _seconds(status: Mapping[str, Any]) -> float | None:
    start = status.get("startTime")
    if not start:
        return None
    began, end = datetime.fromisoformat(start), _end(status)
    return round(((datetime.fromisoformat(end) if end else datetime.now(began.tzinfo)) - began).total_seconds(), 3)

"""Rows of a cluster's sweeps, as the shell, ``podium mcp`` and the page show them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from podium.api.cluster_spec import ClusterSpec
from podium.cluster.base import Cluster
from podium.display.terminal import readable
from podium.display.text import figure, plural, when
from podium.manifests.experiment import Experiment, best_trial, why_none
from podium.manifests.options import describe, of_trials

HEADS = ("NAME", ">BEST", "METRIC", "STATE", ">TRIALS", "ALGORITHM", "BEGAN (UTC)")


def sweep_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a cell for each of HEADS, from what sweep_row returned."""
    best = "" if row["best"] is None else figure(row["best"])
    began, trials = when(row["began"]), str(row["trials"])
    return row["sweep"], best, row["metric"], row["state"], trials, row["algorithm"], began


def sweep_row(cluster: Cluster, experiment: Experiment) -> dict[str, Any]:
    """Return plain values about a sweep of an open cluster as it is now.

    Its ``state`` is created, running, stopped, succeeded or failed; failed too where no trial has a
    result, and ``cause`` says why the first one has none. ``seconds`` run from its start to its
    end, or so far. ``best`` is the best trial's objective, None if there is no result yet.
    """
    began = experiment.started or datetime.fromisoformat(experiment.created)
    empty = experiment.outcome == "Failed" and not experiment.optimal_trial
    best, best_name = _best(cluster, experiment)
    cause = why_none(cluster.trials(experiment.name)) if empty else ""
    seconds = max(0.0, _ended(cluster, experiment).timestamp() - began.timestamp())
    return {
        "kind": "sweep",
        "sweep": experiment.name,
        "algorithm": experiment.search.name,
        "state": experiment.outcome.lower(),
        "message": "" if empty and experiment.state.succeeded else experiment.state.message,
        "cause": cause,
        "began": began.isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "trials": experiment.trial_count,
        "counts": {phase.lower(): len(names) for phase, names in experiment.trials.items()},
        "objective": str(experiment.objective),
        "metric": experiment.objective.metric,
        "best": best,
        "best_trial": best_name,
        "asked": describe(experiment),
        "result": _result(experiment, best, cause),
    }


def _best(cluster: Cluster, experiment: Experiment) -> tuple[float | None, str]:
    if not of_trials(experiment.asked):  # else Katib's best may break a constraint
        return experiment.optimal_value, experiment.optimal_trial
    best = best_trial(cluster.judged_trials(experiment))
    return (best.value, best.name) if best else (None, "")


def _result(experiment: Experiment, best: float | None, cause: str) -> str:
    trials = plural(experiment.trial_count, "trial")
    if best is not None:
        return f"{experiment.objective.metric} {figure(best)}, {trials}"
    if experiment.outcome != "Failed":
        return trials
    return f"none of {trials} has a result{f': {cause}' if cause else ''}"


def list_sweeps(cluster: str | Path | ClusterSpec | None = None) -> list[dict[str, Any]]:
    """Return a row for each sweep of a cluster, the oldest first; those inside runs are in clusters
    of their own.

    Args:
        cluster: As podium.sweep takes it.
    """
    with ClusterSpec.of(cluster).open() as opened:
        return sweep_rows(opened)


def sweep_rows(cluster: Cluster) -> list[dict[str, Any]]:
    """Return a row for each sweep of an open cluster that can be read, the oldest first."""
    return list(
        readable(
            cluster.experiments(),
            lambda experiment: sweep_row(cluster, experiment),
            lambda experiment: f"Experiment {experiment.name}",
        )
    )


def _ended(cluster: Cluster, experiment: Experiment) -> datetime:
    if experiment.completed:
        return datetime.fromisoformat(experiment.completed)
    if stopped := experiment.condition("Stopped"):
        return datetime.fromisoformat(stopped.changed)
    if not experiment.is_resumable:
        return datetime.now(UTC)
    # Its process died: nothing was written at that moment, only what its trials left.
    ends = [trial.ended for trial in cluster.trials(experiment.name) if isfinite(trial.ended)]
    made = datetime.fromisoformat(experiment.created)
    return datetime.fromtimestamp(max(ends), UTC) if ends else made

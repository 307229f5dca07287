"""List of a cluster's sweeps, with a summary of each."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from podium.api.cluster_spec import ClusterSpec
from podium.cluster.base import Cluster
from podium.manifests.experiment import Experiment
from podium.text import figure, plural


@dataclass(frozen=True, kw_only=True)
class ListedSweep:
    """A sweep as an entry of a list."""

    name: str
    algorithm: str
    state: str
    """created, running, stopped, succeeded or failed; failed too where no trial has a result."""

    began: datetime
    seconds: float
    """From its start to its end; of one that runs so far."""

    trials: int
    metric: str
    best: float | None
    """The best trial's objective; None if there is no result yet."""

    best_trial: str
    """Empty if there is none yet."""

    @property
    def result(self) -> str:
        """The best value and the number of trials."""
        trials = plural(self.trials, "trial")
        if self.best is None:
            return f"none of {trials} has a result" if self.state == "failed" else trials
        return f"{self.metric} {figure(self.best)}, {trials}"

    def summary(self) -> dict[str, Any]:
        """Return it as ``--json`` shows it."""
        return {
            "kind": "sweep",
            "sweep": self.name,
            "algorithm": self.algorithm,
            "state": self.state,
            "began": self.began.isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 3),
            "trials": self.trials,
            "metric": self.metric,
            "best": self.best,
            "best_trial": self.best_trial,
            "result": self.result,
        }


def list_sweeps(cluster: str | Path | ClusterSpec | None = None) -> list[ListedSweep]:
    """Return the sweeps of a cluster, the oldest first; those inside runs are in clusters of their
    own.

    Args:
        cluster: As podium.sweep takes it.
    """
    with ClusterSpec.of(cluster).open() as opened:
        return sweeps_on(opened)


def sweeps_on(cluster: Cluster) -> list[ListedSweep]:
    """Return the sweeps of an open cluster, the oldest first."""
    return [_listed(cluster, experiment) for experiment in cluster.experiments()]


def _listed(cluster: Cluster, experiment: Experiment) -> ListedSweep:
    began = experiment.started or datetime.fromisoformat(experiment.created)
    is_empty = experiment.state.succeeded and not experiment.optimal_trial
    return ListedSweep(
        name=experiment.name,
        algorithm=experiment.search.name,
        state="failed" if is_empty else experiment.state.phase.lower(),
        began=began,
        seconds=max(0.0, _ended(cluster, experiment).timestamp() - began.timestamp()),
        trials=experiment.trial_count,
        metric=experiment.objective.metric,
        best=experiment.optimal_value,
        best_trial=experiment.optimal_trial,
    )


def _ended(cluster: Cluster, experiment: Experiment) -> datetime:
    """Return when an Experiment ended or was stopped; now if it runs."""
    if experiment.completed:
        return datetime.fromisoformat(experiment.completed)
    if stopped := experiment.condition("Stopped"):
        return datetime.fromisoformat(stopped.changed)
    if experiment.is_resumable:
        # Its process died: nothing was written at that moment, only what its trials left.
        return _latest(
            trial.ended for trial in cluster.trials(experiment.name)
        ) or datetime.fromisoformat(experiment.created)
    return datetime.now(UTC)


def _latest(moments: Iterable[float]) -> datetime | None:
    known = [moment for moment in moments if isfinite(moment)]
    return datetime.fromtimestamp(max(known), UTC) if known else None

"""List of a cluster's sweeps, with a summary of each."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar

from podium.api.cluster_spec import ClusterSpec
from podium.cluster.base import Cluster
from podium.display.text import figure, plural, when
from podium.manifests.experiment import Experiment, why_none
from podium.manifests.options import describe


@dataclass(frozen=True, kw_only=True)
class ListedSweep:
    """A sweep as an entry of a list."""

    name: str
    algorithm: str
    state: str
    """created, running, stopped, succeeded or failed; failed too where no trial has a result."""

    message: str
    """Reason of the state, in words."""

    cause: str
    """Why the first trial failed, where none has a result."""

    began: datetime
    seconds: float
    """From its start to its end; of one that runs so far."""

    counts: dict[str, int]
    trials: int
    objective: str
    metric: str
    best: float | None
    """The best trial's objective; None if there is no result yet."""

    best_trial: str
    """Empty if there is none yet."""

    asked: dict[str, str]
    """Its options beyond Katib's fields, in words by their title."""

    HEADS: ClassVar = ("NAME", ">BEST", "METRIC", "STATE", ">TRIALS", "ALGORITHM", "BEGAN (UTC)")

    def cells(self) -> tuple[str, ...]:
        best = "" if self.best is None else figure(self.best)
        began, trials = when(self.began), str(self.trials)
        return self.name, best, self.metric, self.state, trials, self.algorithm, began

    @property
    def result(self) -> str:
        """The best value and the number of trials."""
        trials = plural(self.trials, "trial")
        if self.best is None:
            why = f": {self.cause}" if self.cause else ""
            return f"none of {trials} has a result{why}" if self.state == "failed" else trials
        return f"{self.metric} {figure(self.best)}, {trials}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what the shell, ``podium mcp`` and the page show of it."""
        return {
            "kind": "sweep",
            "sweep": self.name,
            "algorithm": self.algorithm,
            "state": self.state,
            "message": self.message,
            "cause": self.cause,
            "began": self.began.isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 3),
            "trials": self.trials,
            "counts": self.counts,
            "objective": self.objective,
            "metric": self.metric,
            "best": self.best,
            "best_trial": self.best_trial,
            "asked": self.asked,
            "result": self.result,
        }

    @classmethod
    def of(cls, cluster: Cluster, experiment: Experiment) -> "ListedSweep":
        """Return a sweep of an open cluster as it is now."""
        began = experiment.started or datetime.fromisoformat(experiment.created)
        empty = experiment.outcome == "Failed" and not experiment.optimal_trial
        return cls(
            name=experiment.name,
            algorithm=experiment.search.name,
            state=experiment.outcome.lower(),
            message="" if empty and experiment.state.succeeded else experiment.state.message,
            cause=why_none(cluster.trials(experiment.name)) if empty else "",
            began=began,
            seconds=max(0.0, _ended(cluster, experiment).timestamp() - began.timestamp()),
            counts={phase.lower(): len(names) for phase, names in experiment.trials.items()},
            trials=experiment.trial_count,
            objective=str(experiment.objective),
            metric=experiment.objective.metric,
            best=experiment.optimal_value,
            best_trial=experiment.optimal_trial,
            asked=describe(experiment),
        )


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
    return [ListedSweep.of(cluster, experiment) for experiment in cluster.experiments()]


def _ended(cluster: Cluster, experiment: Experiment) -> datetime:
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

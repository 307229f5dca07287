"""Status of Trials and Experiments as Katib writes it (katib 0.19: pkg/apis/controller, pkg/controller.v1beta1)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from podium.manifests.conditions import status_of
from podium.manifests.experiment.status import ended_at, objective_of, rank, read_metrics
from podium.metrics import objective_value

_LISTS = {
    "Killed": ("killedTrialList", "trialsKilled"),
    "Failed": ("failedTrialList", "trialsFailed"),
    "Succeeded": ("succeededTrialList", "trialsSucceeded"),
    "EarlyStopped": ("earlyStoppedTrialList", "trialsEarlyStopped"),
    "Running": ("runningTrialList", "trialsRunning"),
    "MetricsUnavailable": ("metricsUnavailableTrialList", "trialMetricsUnavailable"),
    "Created": ("pendingTrialList", "trialsPending"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What an Experiment has to know of a trial; all that is kept of one that has ended."""

    name: str
    """The trial's name."""

    phase: str
    """Created, Running, Succeeded …"""

    value: float | None
    """The objective by its strategy; None unless it is a finite number."""

    ended: float
    """When it ended, in seconds since the epoch; infinity if it did not."""

    optimal: Mapping[str, Any]
    """What the Experiment's status says if it is the best."""


def now() -> str:
    """Return the time as RFC3339 in UTC, to the millisecond: local trials may take less than a second."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def mark(status: dict[str, Any], kind: str, reason: str, message: str) -> None:
    """Add a condition that is True, in place of an earlier one of its type.

    Succeeded, Failed and MetricsUnavailable turn Running to False; EarlyStopped does not.
    """
    time = now()
    kept = [condition for condition in status.get("conditions") or [] if condition["type"] != kind]
    if kind in ("Succeeded", "Failed", "MetricsUnavailable", "Killed"):
        for condition in kept:
            if condition["type"] == "Running":
                condition.update(status="False", lastUpdateTime=time, lastTransitionTime=time)
        status["completionTime"] = time
    new = {"type": kind, "status": "True", "reason": reason, "message": message}
    status["conditions"] = [*kept, {**new, "lastUpdateTime": time, "lastTransitionTime": time}]


def unmark(status: dict[str, Any], *kinds: str) -> None:
    """Remove conditions."""
    status["conditions"] = [one for one in status.get("conditions") or [] if one["type"] not in kinds]


def new_trial(
    experiment: Mapping[str, Any],
    name: str,
    assignments: Mapping[str, str],
    job: Mapping[str, Any],
    rules: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return a Trial object that has just been created."""
    spec, metadata = experiment["spec"], experiment["metadata"]
    template = spec["trialTemplate"]
    trial_spec = {
        "objective": spec["objective"],
        "parameterAssignments": [{"name": key, "value": value} for key, value in assignments.items()],
        "primaryContainerName": template["primaryContainerName"],
        "successCondition": template["successCondition"],
        "failureCondition": template["failureCondition"],
        "metricsCollector": spec["metricsCollectorSpec"],
        "runSpec": job,
    }
    optional = {
        "primaryPodLabels": template.get("primaryPodLabels"),
        "retainRun": template.get("retain"),
        "earlyStoppingRules": list(rules),
    }
    trial_spec |= {field: value for field, value in optional.items() if value}
    status: dict[str, Any] = {"startTime": now()}
    mark(status, "Created", "TrialCreated", "Trial is created")
    owner = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "name": metadata["name"], "controller": True}
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Trial",
        "metadata": {
            "name": name,
            "namespace": metadata.get("namespace") or "default",
            "labels": {**(metadata.get("labels") or {}), "katib.kubeflow.org/experiment": metadata["name"]},
            "ownerReferences": [{**owner, "uid": metadata.get("uid", ""), "blockOwnerDeletion": True}],
        },
        "spec": trial_spec,
        "status": status,
    }


def stand_of(trial: Mapping[str, Any]) -> Standing:
    """Return where a trial stands."""
    name, observation = trial["metadata"]["name"], trial["status"].get("observation")
    optimal = {"bestTrialName": name, "parameterAssignments": trial["spec"]["parameterAssignments"]}
    return Standing(
        name=name,
        phase=status_of({"kind": "Trial", "status": trial["status"]}).phase,
        value=trial_value(trial),
        ended=ended_at(trial),
        optimal={**optimal, "observation": observation},
    )


def summarise(status: dict[str, Any], trials: Iterable[Standing], *, maximize: bool) -> None:
    """Bring an Experiment's counts, lists and currentOptimalTrial up to date with its trials, oldest first."""
    for names, count in _LISTS.values():
        status.pop(names, None)
        status.pop(count, None)
    status["trials"] = 0
    known = list(trials)
    for trial in known:
        status["trials"] += 1
        names, count = _LISTS[trial.phase]
        status.setdefault(names, []).append(trial.name)
        status[count] = len(status[names])
    if status["trials"] == 0:
        del status["trials"]
    measured = [one for one in known if one.value is not None]
    best = min(measured, key=lambda one: rank(one.name, one.value, one.ended, maximize=maximize), default=None)
    status["currentOptimalTrial"] = {"observation": {}} if best is None else dict(best.optimal)


def trial_value(trial: Mapping[str, Any]) -> float | None:
    """Return a trial's objective by its strategy; None unless it is a finite number."""
    name, _, strategy = objective_of(trial)
    metrics = read_metrics(trial["status"].get("observation"))
    return objective_value(metrics.get(name, {}), strategy)


def goal_reached(experiment: Mapping[str, Any], trials: Iterable[Standing]) -> bool:
    """Tell whether some trial is as good as ``objective.goal``; equal is enough."""
    goal = experiment["spec"]["objective"].get("goal")
    if goal is None:
        return False
    _, maximize, _ = objective_of(experiment)
    values = [trial.value for trial in trials if trial.value is not None]
    return any(value >= goal if maximize else value <= goal for value in values)


def verdict(
    experiment: Mapping[str, Any], status: Mapping[str, Any], trials: Iterable[Standing], *, exhausted: bool
) -> tuple[str, str, str] | None:
    """Return the condition (type, reason, message) that ends an Experiment, None if it goes on.

    Katib asks in this order: goal, failed trials, all trials, no more suggestions.

    Args:
        experiment: With its spec.
        status: Summarised.
        trials: All of them.
        exhausted: Whether nothing runs and the algorithm gives no more points.
    """
    count, spec = status.get, experiment["spec"]
    failed = count("trialsFailed", 0) + count("trialMetricsUnavailable", 0)
    done = count("trialsSucceeded", 0) + count("trialsEarlyStopped", 0) + count("trialsKilled", 0) + failed
    most, most_failed = spec.get("maxTrialCount"), spec.get("maxFailedTrialCount")
    why = "Experiment has succeeded because"
    if goal_reached(experiment, trials):
        return "Succeeded", "ExperimentGoalReached", f"{why} Objective goal has reached"
    if most_failed is not None and failed and failed >= most_failed:
        return "Failed", "ExperimentFailed", "Experiment has failed because max failed count has reached"
    if most is not None and done >= most:
        return "Succeeded", "ExperimentMaxTrialsReached", f"{why} max trial count has reached"
    if exhausted:
        return "Succeeded", "ExperimentSuggestionEndReached", f"{why} suggestion service has reached the end"
    return None


def wanted(spec: Mapping[str, Any], status: Mapping[str, Any]) -> int:
    """Return how many trials should run now.

    Katib leaves the trials without metrics out here, so that it may begin one more than maxTrialCount.
    """
    ended = ("trialsSucceeded", "trialsFailed", "trialsKilled", "trialsEarlyStopped")
    most: int | None = spec.get("maxTrialCount")
    parallel: int = spec["parallelTrialCount"]
    return parallel if most is None else min(parallel, most - sum(status.get(field, 0) for field in ended))

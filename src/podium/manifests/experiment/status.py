"""Write the status of Trials and Experiments as Katib does.

Source: katib 0.19, pkg/apis/controller and pkg/controller.v1beta1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.manifests.conditions import Conditions, timestamp
from podium.manifests.experiment.experiment import TRIAL_LISTS, Experiment, Limits
from podium.manifests.experiment.trial import Trial
from podium.manifests.fields import present
from podium.manifests.labels import EXPERIMENT
from podium.manifests.options import annotation, of_trials
from podium.manifests.workload import Workload
from podium.search.pareto import Value

_MOST_NAMES = 100
"""Names that a list of an Experiment's status has at most where the API server has no trials: it is
one object of etcd, and is written again and again."""

Status = dict[str, Any]
"""``status`` of an Experiment or a Trial, altered in place by the engine that runs it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSummary:
    """The part of a trial that its Experiment needs; the engine keeps nothing else of a trial that
    has ended."""

    name: str
    phase: str
    """``Created``, ``Running``, ``Succeeded`` …"""

    value: Value | None
    """The objective with all else it is judged by; None if one of them is no finite number."""

    rank: tuple[Any, ...]
    """Sort key, the best trial's the least."""

    optimal: Mapping[str, Any]
    """``currentOptimalTrial`` of the Experiment's status if this trial is the best."""

    repeats: bool = False
    """Whether it runs another one again: it is listed, but not counted or the best."""

    @classmethod
    def of(cls, trial: Trial) -> "TrialSummary":
        return cls(
            name=trial.name,
            phase=trial.state.phase,
            value=None if trial.repeats else trial.reached,
            rank=trial.rank,
            repeats=bool(trial.repeats),
            optimal={
                "bestTrialName": trial.name,
                "parameterAssignments": trial.spec.get("parameterAssignments"),
                "observation": trial.status.get("observation"),
            },
        )


def restarted(experiment: Experiment) -> Experiment:
    """Return a finished Experiment opened again, as Katib does when maxTrialCount is raised."""
    status = {name: value for name, value in experiment.status.items() if name != "completionTime"}
    conditions = Conditions(status, "katib")
    conditions.remove("Succeeded", "Running")
    conditions.add("Restarting", "ExperimentRestarting", "Experiment is restarted")
    conditions.add("Running", "ExperimentRunning", "Experiment is running")
    return experiment.with_status(status)


def shortened(status: Status) -> Status:
    """Return the status of an Experiment without lists of more than a hundred trials."""
    lists = {names for names, _ in TRIAL_LISTS.values()}
    return {
        name: value
        for name, value in status.items()
        if name not in lists or len(value) <= _MOST_NAMES
    }


def same_conditions(before: Status, after: Status) -> bool:
    return before.get("conditions") == after.get("conditions")


def created(trial: Trial) -> Trial:
    """Return a trial as it is before it has run."""
    started = trial.with_status({"startTime": timestamp("milliseconds")})
    return started.with_condition("Created", "TrialCreated", "Trial is created")


def new_trial(
    experiment: Experiment,
    name: str,
    assignments: Mapping[str, str],
    job: Workload,
    rules: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str],
) -> Trial:
    """Return a Trial that has just been created.

    Args:
        experiment: Checked, as stored.
        name: The name of the trial and of its job.
        labels: Added to those of the Experiment.
    """
    template = experiment.template
    spec: dict[str, Any] = {
        "objective": experiment.spec["objective"],
        "parameterAssignments": [
            {"name": key, "value": value} for key, value in assignments.items()
        ],
        "primaryContainerName": template.primary_container,
        "successCondition": template.success_condition,
        "failureCondition": template.failure_condition,
        "metricsCollector": experiment.spec["metricsCollectorSpec"],
        "runSpec": job.manifest,
    }
    optional = {
        "primaryPodLabels": dict(template.primary_pod_labels),
        "retainRun": template.retain,
        "earlyStoppingRules": list(rules),
    }
    spec |= {field: value for field, value in optional.items() if value}
    metadata: dict[str, Any] = {
        **present(annotations=annotation(of_trials(experiment.asked)) or None),
        "name": name,
        "namespace": experiment.namespace,
        "labels": {**experiment.labels, EXPERIMENT: experiment.name, **labels},
        "ownerReferences": [experiment.as_owner],
    }
    return created(
        Trial(
            manifest={
                "apiVersion": "kubeflow.org/v1beta1",
                "kind": "Trial",
                "metadata": metadata,
                "spec": spec,
            }
        )
    )


def summarize(status: Status, trials: Iterable[TrialSummary]) -> None:
    """Bring an Experiment's counts, lists and currentOptimalTrial up to date with its trials,
    oldest first."""
    for names, count in TRIAL_LISTS.values():
        status.pop(names, None)
        status.pop(count, None)
    status["trials"] = 0
    summaries = list(trials)
    for trial in summaries:
        names, count = TRIAL_LISTS[trial.phase]
        status.setdefault(names, []).append(trial.name)
        if not trial.repeats:
            status["trials"] += 1
            status[count] = status.get(count, 0) + 1
    if status["trials"] == 0:
        del status["trials"]
    measured = [trial for trial in summaries if trial.value is not None and trial.value.feasible]
    best = min(measured, key=lambda trial: trial.rank, default=None)
    status["currentOptimalTrial"] = {"observation": {}} if best is None else dict(best.optimal)


def completion_condition(
    experiment: Experiment,
    status: Status,
    trials: Iterable[TrialSummary],
    *,
    exhausted: bool,
    full: tuple[str, str] | None = None,
    stopped: bool = False,
) -> tuple[str, str, str] | None:
    """Return the condition (type, reason, message) that ends an Experiment, None if it goes on.

    Katib asks in this order: goal, failed trials, all trials, no more suggestions. An option of
    podium that has no room for another trial comes before the last, and before all but the goal
    where it stopped trials: those would count as failed if they had no result yet.

    Args:
        experiment: An Experiment with its limits and goal.
        exhausted: Whether nothing runs and the algorithm gives no more points.
        full: Reason and message of an option that has no room for another trial.
        stopped: Whether trials were stopped because of it.
    """
    count, limits = status.get, experiment.limits
    failed = count("trialsFailed", 0) + count("trialMetricsUnavailable", 0)
    done = (
        count("trialsSucceeded", 0)
        + count("trialsEarlyStopped", 0)
        + count("trialsKilled", 0)
        + failed
    )
    why = "Experiment has succeeded because"
    values = (trial.value for trial in trials if trial.value is not None and trial.value.feasible)
    has_goal = experiment.objective.goal is not None
    if has_goal and any(map(experiment.objective.is_reached, values)):
        return "Succeeded", "ExperimentGoalReached", f"{why} Objective goal has reached"
    if full and stopped:
        return "Succeeded", full[0], f"{why} {full[1]}"
    if limits.max_failed is not None and failed and failed >= limits.max_failed:
        return (
            "Failed",
            "ExperimentFailed",
            "Experiment has failed because max failed count has reached",
        )
    if limits.max_trials is not None and done >= limits.max_trials:
        return "Succeeded", "ExperimentMaxTrialsReached", f"{why} max trial count has reached"
    if exhausted and full:
        return "Succeeded", full[0], f"{why} {full[1]}"
    if exhausted:
        return (
            "Succeeded",
            "ExperimentSuggestionEndReached",
            f"{why} suggestion service has reached the end",
        )
    return None


def trials_to_start(limits: Limits, status: Status) -> int:
    """Return how many trials should run now.

    Katib leaves the trials without metrics out here, so that it may begin one more than
    maxTrialCount.
    """
    ended = ("trialsSucceeded", "trialsFailed", "trialsKilled", "trialsEarlyStopped")
    if limits.max_trials is None:
        return limits.parallel
    return min(limits.parallel, limits.max_trials - sum(status.get(field, 0) for field in ended))

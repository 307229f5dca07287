"""What a stopped or killed engine left, and the edits Katib allows before an Experiment goes on."""

import copy
from collections.abc import Mapping
from typing import Any

from podium.cluster.base import Manifest
from podium.errors import Conflict, InvalidInput
from podium.local.jobs import LocalJobs
from podium.local.katib.experiment import ExperimentController
from podium.local.katib.supervisor import STOP, ExperimentSupervisor
from podium.local.katib.trial_status import mark, unmark
from podium.local.store import LOST
from podium.manifests.conditions import status_of
from podium.manifests.experiment import check


def has_ended(trial: Manifest) -> bool:
    """Tell whether a trial ended for good; one whose engine was stopped or killed runs again."""
    state = status_of(trial)
    return state.finished and not state.reason.endswith(LOST)


def edit(experiment: Manifest, changes: Mapping[str, int]) -> Manifest:
    """Return an Experiment with other counts, by the rules of Katib's webhook.

    Args:
        experiment: As stored.
        changes: maxTrialCount, parallelTrialCount, maxFailedTrialCount.

    Raises:
        InvalidInput: It has ended and may not be restarted, or the counts make no sense.
    """
    edited = copy.deepcopy(experiment)
    edited["spec"].update(changes)
    if edited["spec"] == experiment["spec"]:
        return edited
    spec, state = edited["spec"], status_of(experiment)
    most, trials = spec.get("maxTrialCount"), (experiment.get("status") or {}).get("trials", 0)
    if state.finished and not restartable(experiment):
        raise InvalidInput(
            "`a finished Experiment goes on only if it reached maxTrialCount and has resumePolicy LongRunning or "
            f"FromVolume` must hold, but got resumePolicy={spec.get('resumePolicy')!r}, reason={state.reason!r}",
            "begin a new Experiment; it can start warm from this one's trials",
        )
    if most is not None and most <= trials:
        raise InvalidInput(
            f"`maxTrialCount > trials there are` must hold, but got maxTrialCount={most}, trials={trials}",
            f"give {trials + 1} or more",
        )
    return check(edited) | {"status": edited.get("status") or {}}


def resume(cluster: LocalJobs, name: str, changes: Mapping[str, int] | None = None) -> Manifest:
    """Let a stored Experiment go on in this process: one whose engine was stopped, or a finished one with more trials.

    Args:
        cluster: Holds it.
        name: Of the Experiment.
        changes: New maxTrialCount, parallelTrialCount, maxFailedTrialCount.

    Raises:
        NotFound: There is none.
        InvalidInput: It has ended for good, or the changes break a rule.
        Conflict: Another process runs it.
    """
    with cluster.store.alone():  # else two processes could both find it free
        stored = cluster.store.read("Experiment", name)
        if cluster.store.is_supervised("Experiment", name) and not status_of(stored).finished:
            raise Conflict(f"Experiment {name} runs in another process", "wait for it or stop it first")
        status = stored.get("status") or {}
        if status_of(stored).reason.endswith(LOST):
            unmark(status, "Failed")
        unmark(status, "Stopped")
        (cluster.store.place("Experiment", name) / STOP).unlink(missing_ok=True)
        edited = edit(stored, changes or {})
        if status_of(stored).finished and changes:
            restart(edited["status"])
        controller = ExperimentController(cluster, edited, cluster.store.place("Experiment", name))
        cluster.store.claim("Experiment", name)
        fresh, spec = edited["status"], edited["spec"]
        resumed = cluster.store.update("Experiment", name, lambda one: one.update(status=fresh, spec=spec))
    cluster.supervise("Experiment", name, ExperimentSupervisor(cluster, controller))
    return resumed


def ask_to_stop(cluster: LocalJobs, name: str) -> None:
    """Ask the process that runs an Experiment, whichever it is, to stop it.

    Raises:
        NotFound: There is none.
        InvalidInput: It does not run.
    """
    if status_of(cluster.store.read("Experiment", name)).finished:
        raise InvalidInput(f"`the Experiment runs` must hold, but {name} does not", f"podium experiment status {name}")
    (cluster.store.place("Experiment", name) / STOP).touch()


def is_stopped(experiment: Manifest) -> bool:
    """Tell whether somebody stopped an Experiment, so that it can be resumed."""
    conditions = (experiment.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Stopped" for one in conditions)


def restart(status: dict[str, Any]) -> None:
    """Open a finished Experiment's status again, as Katib does when maxTrialCount is raised."""
    unmark(status, "Succeeded", "Running")
    status.pop("completionTime", None)
    mark(status, "Restarting", "ExperimentRestarting", "Experiment is restarted")
    mark(status, "Running", "ExperimentRunning", "Experiment is running")


def restartable(experiment: Manifest) -> bool:
    """Tell whether a finished Experiment may go on when maxTrialCount is raised."""
    state = status_of(experiment)
    policy = experiment["spec"].get("resumePolicy")
    return state.reason == "ExperimentMaxTrialsReached" and policy in ("LongRunning", "FromVolume")

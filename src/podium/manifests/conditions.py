"""Conditions of a status: one reader for every kind, and the training operator's rule for writing them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from podium.manifests.kinds import OPERATOR_KINDS, TRAINJOB

Manifest = dict[str, Any]
"""An object as in YAML: apiVersion, kind, metadata, spec and, once it runs, status."""

_ORDER = {
    # The first type of a row whose condition is True names the phase. An early-stopped trial keeps Running=True.
    # Waiting is ours: a queue of Kueue holds the job, or the trial's job, back.
    **dict.fromkeys(
        OPERATOR_KINDS, ("Failed", "Succeeded", "Waiting", "Suspended", "Restarting", "Running", "Created")
    ),
    "Job": ("Failed", "FailureTarget", "Complete", "Waiting", "Suspended"),
    TRAINJOB: ("Failed", "Complete", "Waiting", "Suspended"),
    # Stopped is ours: podium experiment resume removes it.
    "Experiment": ("Failed", "Succeeded", "Stopped", "Restarting", "Running", "Created"),
    "Trial": ("EarlyStopped", "MetricsUnavailable", "Killed", "Failed", "Succeeded", "Waiting", "Running", "Created"),
}
_LAST = {"Succeeded", "Failed", "Stopped", "Killed", "EarlyStopped", "MetricsUnavailable"}


class State(NamedTuple):
    """Where an object stands, in one word, with the reason and message of its writer."""

    phase: str
    """Created, Waiting (for its queue), Running, Restarting, Suspended, Succeeded, Failed; of an Experiment also
    Stopped, of a trial Killed, EarlyStopped or MetricsUnavailable."""

    reason: str
    message: str

    @property
    def finished(self) -> bool:
        """Whether nothing changes any more (but for an Experiment that is restarted or resumed)."""
        return self.phase in _LAST

    @property
    def succeeded(self) -> bool:
        """Whether it ended well."""
        return self.phase == "Succeeded"


def status_of(manifest: Manifest) -> State:
    """Read the state of a job, Experiment or Trial from its conditions.

    Only conditions with status "True" count: a finished PyTorchJob keeps a Running condition that is "False". One that
    says Suspended of a job that is not, by its spec, is out of date: a queue or a user let it go on, and its controller
    has not answered yet.
    """
    status = manifest.get("status") or {}
    true = {
        condition["type"]: condition
        for condition in status.get("conditions") or []
        if condition.get("status") == "True"
    }
    for phase in _ORDER[manifest["kind"]]:
        if phase == "Suspended" and phase in true and _goes_on(manifest.get("spec")):
            return State("Created", "", "about to start")
        if phase in true:
            name = {"Complete": "Succeeded", "FailureTarget": "Running"}.get(phase, phase)
            return State(name, true[phase].get("reason") or "", true[phase].get("message") or "")
    if manifest["kind"] == "Job" and status.get("active"):
        return State("Running", "", f"{status['active']} pod(s) active")
    if manifest["kind"] == TRAINJOB and any(job.get("active") for job in status.get("jobsStatus") or []):
        return State("Running", "", "its nodes are active")
    return State("Created", "", "")


def _goes_on(spec: Any) -> bool:
    """Return whether a job's spec is there and does not suspend it."""
    if not isinstance(spec, Mapping):
        return False
    policy = spec.get("runPolicy")
    return not spec.get("suspend") and not (isinstance(policy, Mapping) and policy.get("suspend"))


def set_condition(status: dict[str, Any], kind: str, reason: str, message: str, now: str) -> None:
    """Add a condition that holds, as the training operator does.

    A failed status never changes again; an unchanged reason keeps its times; Running and Restarting replace each
    other; the end turns Running to "False" (kubeflow/trainer release-1.9: pkg/util/status.go).

    Args:
        status: The object's status, altered in place.
        reason: One CamelCase word.
        now: The time as Kubernetes writes it.
    """
    conditions = status.setdefault("conditions", [])
    held = {condition["type"]: condition for condition in conditions if condition["status"] == "True"}
    current = held.get(kind)
    if "Failed" in held or (current and current["reason"] == reason):
        return
    times = {"lastUpdateTime": now, "lastTransitionTime": current["lastTransitionTime"] if current else now}
    status["conditions"] = [*_without(conditions, kind), {**_condition(kind, reason, message), **times}]


def add_condition(status: dict[str, Any], kind: str, reason: str, message: str, now: str) -> None:
    """Add a condition that holds, as the controller of Jobs does; the arguments are those of set_condition."""
    new = _condition(kind, reason, message) | {"lastProbeTime": now, "lastTransitionTime": now}
    status.setdefault("conditions", []).append(new)


def put_condition(status: dict[str, Any], kind: str, reason: str, message: str, now: str) -> None:
    """Add a condition that holds, as Trainer does: each type stands once (apimachinery: pkg/api/meta/conditions.go).

    The arguments are those of set_condition.
    """
    conditions = status.setdefault("conditions", [])
    for condition in conditions:
        if condition["type"] == kind:
            since = {} if condition["status"] == "True" else {"lastTransitionTime": now}
            condition |= _condition(kind, reason, message) | since
            return
    conditions.append(_condition(kind, reason, message) | {"lastTransitionTime": now})


def _condition(kind: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "message": message}


def _without(conditions: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    replaced = {kind} | {"Restarting": {"Running"}, "Running": {"Restarting"}}.get(kind, set())
    kept = [dict(condition) for condition in conditions if condition["type"] not in replaced]
    if kind in ("Failed", "Succeeded"):
        for condition in kept:
            if condition["type"] == "Running":
                condition["status"] = "False"
    return kept

"""The pods of a job: which there are, which can never start, which one failed and why."""

import time
from dataclasses import dataclass
from typing import Any

from podium.cluster.base import Manifest
from podium.cluster.kubernetes_api import Api
from podium.errors import Failed, PodiumError
from podium.manifests.conditions import status_of

TAIL = 15
"""Log lines shown of a replica that failed."""

IMAGE_GRACE = 20.0
"""Seconds for a registry to recover: the kubelet has tried twice by then."""

SCHEDULE_GRACE = 180.0
"""Seconds for an autoscaler to bring a node; `kubernetes://namespace?grace=600` waits longer."""

JOB_SELECTOR = {
    "PyTorchJob": "training.kubeflow.org/job-name",
    "Job": "job-name",
    "Trial": "katib.kubeflow.org/trial",
}
TYPE_LABEL = "training.kubeflow.org/replica-type"
INDEX_LABEL = "training.kubeflow.org/replica-index"
TRIAL_OF = "katib.kubeflow.org/experiment"

_IMAGE = "check the image's name and tag, that the nodes can reach its registry, and imagePullSecrets"
_CONFIG = "a Secret, ConfigMap or key that the pod names does not exist in this namespace"
_START = "check the container's command, security context and mounts"
NEVER_STARTS = {
    "ErrImagePull": _IMAGE,
    "ImagePullBackOff": _IMAGE,
    "ErrImageNeverPull": "the image is not on the node: load it, or allow it to be pulled",
    "InvalidImageName": _IMAGE,
    "CreateContainerConfigError": _CONFIG,
    "CreateContainerError": _START,
    "RunContainerError": _START,
}
"""Waiting reasons of a container that do not go away by themselves, with what to do."""

ENDED = {
    "OOMKilled": "raise the memory limit, or use a smaller batch size or fewer processes a node",
    "Evicted": "the node ran out of memory or disk: set requests, and limits that fit the node",
    "DeadlineExceeded": "raise activeDeadlineSeconds",
    "Preempted": "a pod of higher priority took the place: use a priority class, or retry",
    "ContainerCannotRun": _START,
    "StartError": _START,
}
"""Reasons of an end, with what to do."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What is wrong with one pod."""

    pod: str
    """The pod's name."""

    container: str | None
    """The container concerned; None if the pod as a whole is."""

    reason: str
    """One word, as Kubernetes says it."""

    message: str
    """Details, may be empty."""

    hint: str | None
    """What to do."""

    grace: float = 0.0
    """Seconds it may go on before it counts as hopeless."""

    def __str__(self) -> str:
        return f"pod {self.pod}: {self.reason}" + (f" ({self.message})" if self.message else "")


def replica_of(pod: Any) -> str:
    """Return a pod's replica, for example ``master-0``; ``main-0`` for pods without replica labels."""
    labels = pod.metadata.labels or {}
    return f"{labels.get(TYPE_LABEL, 'main').lower()}-{labels.get(INDEX_LABEL, '0')}"


def selector_of(api: Api, kind: str, name: str) -> str:
    """Return the label selector of an object's pods; an experiment's are those of its trials."""
    if kind != "Experiment":
        return f"{JOB_SELECTOR[kind]}={name}"
    trials = [trial["metadata"]["name"] for trial in api.objects("Trial", f"{TRIAL_OF}={name}")]
    return f"{JOB_SELECTOR['Trial']} in ({','.join(trials) or 'none'})"


def statuses_of(pod: Any) -> list[Any]:
    """Return the status of every container of a pod, init containers first."""
    return [*(pod.status.init_container_statuses or []), *(pod.status.container_statuses or [])]


def cannot_start(pod: Any, schedule_grace: float = SCHEDULE_GRACE) -> Trouble | None:
    """Say why a pod has not started and will not by itself, or None."""
    name = pod.metadata.name
    for status in statuses_of(pod):
        waiting = status.state and status.state.waiting
        if waiting and waiting.reason in NEVER_STARTS:
            message = (waiting.message or "").strip() or f"image {status.image}"
            hint = NEVER_STARTS[waiting.reason]
            return Trouble(
                pod=name,
                container=status.name,
                reason=waiting.reason,
                message=message,
                hint=hint,
                grace=IMAGE_GRACE,
            )
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            hint = "ask for less (cpu, memory, gpu), change node selector or tolerations, or add nodes"
            return Trouble(
                pod=name,
                container=None,
                reason="Unschedulable",
                message=condition.message or "",
                hint=hint,
                grace=schedule_grace,
            )
    return None


def bad_end(pod: Any) -> Trouble | None:
    """Say how a pod, or its container before the last restart, ended badly, or None."""
    name = pod.metadata.name
    if pod.status.phase == "Failed" and pod.status.reason:
        reason = pod.status.reason
        return Trouble(
            pod=name, container=None, reason=reason, message=pod.status.message or "", hint=ENDED.get(reason)
        )
    for status in statuses_of(pod):
        states = (status.state, status.last_state)
        for ended in (state.terminated for state in states if state and state.terminated):
            if ended.exit_code != 0:
                message = f"container {status.name}, exit code {ended.exit_code}"
                hint = ENDED.get(ended.reason) or ("it was killed from outside" if ended.exit_code == 137 else None)
                return Trouble(
                    pod=name, container=status.name, reason=ended.reason or "Error", message=message, hint=hint
                )
    return None


def _ended_at(pod: Any) -> str:
    times = [s.state.terminated.finished_at for s in statuses_of(pod) if s.state and s.state.terminated]
    return min((time.isoformat() for time in times if time), default="9999")


class Watchman:
    """Looks at an object's pods while it runs and gives up on those that will never start.

    Args:
        api: The API server.
        schedule_grace: Seconds a pod may stay unschedulable.
    """

    def __init__(self, api: Api, schedule_grace: float) -> None:
        self.api, self.schedule_grace = api, schedule_grace
        self.since: dict[tuple[str, str], float] = {}

    def look(self, kind: str, name: str) -> None:
        """Check the pods once.

        Raises:
            Failed: One has been hopeless for longer than its grace.
        """
        now, seen = time.monotonic(), {}
        for pod in self.api.pods(selector_of(self.api, kind, name)):
            trouble = cannot_start(pod, self.schedule_grace)
            if trouble is None:
                continue
            # ErrImagePull and ImagePullBackOff take turns: one clock for a pod.
            key = (pod.metadata.uid, "schedule" if trouble.container is None else "start")
            seen[key] = self.since.get(key, now)
            if now - seen[key] >= trouble.grace:
                raise Failed(f"{kind} {name} cannot start: {trouble}", trouble.hint)
        self.since = seen


def explain(api: Api, kind: str, name: str, manifest: Manifest | None) -> Failed:
    """Return the error that tells why an object failed: pod, reason, last lines, hint.

    Args:
        api: The API server.
        kind: The kind.
        name: The object's name.
        manifest: The object as last seen; its own condition is quoted.
    """
    state = status_of(manifest) if manifest else None
    text = f"{kind} {name} failed" + (f": {state.message.strip()}" if state and state.finished else "")
    try:
        pods = sorted(api.pods(selector_of(api, kind, name)), key=_ended_at)
    except PodiumError as error:
        return Failed(f"{text}\nits pods cannot be read: {error.message}", error.hint)
    for trouble in (bad_end(pod) or cannot_start(pod) for pod in pods):
        if trouble:
            return Failed("\n".join([text, str(trouble), *_tail(api, trouble)]), trouble.hint)
    return Failed(text)


def _tail(api: Api, trouble: Trouble) -> list[str]:
    """Return the last lines of the container in trouble, marked; none if they are gone."""
    if trouble.container is None:
        return []
    try:
        text = api.call(
            f"read the log of pod {trouble.pod}",
            api.core.read_namespaced_pod_log,
            trouble.pod,
            api.namespace,
            container=trouble.container,
            tail_lines=TAIL,
        )
    except PodiumError:
        return []
    return [f"  | {line}" for line in str(text).splitlines()]

"""The pods of a job: the existing ones, those that can never start or be created, and the one that
failed, with its reason."""

import logging
import re
import time
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from podium.cluster.base import ReplicaStatus
from podium.cluster.kubernetes.api import USUAL_WAITS, Api, Waits, event_time, webhook_hint
from podium.errors import Failed, PodiumError, Unavailable
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.trial import Trial
from podium.manifests.kinds import OPERATOR_KINDS, TRAINJOB
from podium.manifests.labels import (
    COMPLETION_INDEX,
    EXPERIMENT,
    JOB_NAME,
    JOBSET_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    REPLICATED_JOB,
    SUGGESTION,
    TRIAL,
)
from podium.manifests.resource import Resource
from podium.manifests.trainjob import NODE
from podium.manifests.workload import Workload

_REFUSED = ("FailedCreatePod", "FailedCreate", "TrainJobResourcesCreationFailed")
"""Reasons of the events about pods that could not be created: of the training operator, the job
controller, Trainer."""

_ADDED_HINTS = {
    # The training operator adds it to the Workers of a PyTorchJob that has a Master
    # (kubeflow/trainer v1.9.3: pkg/controller.v1/pytorch/initcontainer.go).
    "init-pytorch": (
        "the training operator adds this container to the Workers of PyTorchJobs: give it the template of "
        "deploy/training-operator (docs/cluster-teams.md), or launch a TrainJob (job_kind=trainjob), or no Workers"
    ),
    # Katib adds it to the pods of trials for StdOut and File (katib v0.19.0:
    # pkg/webhook/v1beta1/pod).
    "metrics-logger-and-collector": (
        "apply deploy/katib (docs/cluster-teams.md), or set init.controller.injectSecurityContext: true in "
        "katib-config, and runAsUser in the pods of trials"
    ),
    # Katib adds it to the suggestion service of an Experiment with spec.earlyStopping; its
    # configuration has no field for a securityContext (katib v0.19.0: pkg/apis/config/v1beta1,
    # EarlyStoppingConfig).
    "early-stopping": (
        "apply deploy/katib (docs/cluster-teams.md), or take earlyStopping out of the Experiment"
    ),
    # The suggestion service, which runs an algorithm for Katib (katib v0.19.0:
    # pkg/controller.v1beta1/consts).
    "suggestion": (
        "apply deploy/katib (docs/cluster-teams.md), or give the suggestions in katib-config a "
        "securityContext with runAsUser (kubeflow/katib#2613)"
    ),
}
"""Hint for each container without a securityContext that controllers add, by name; the first one
that a refusal names applies."""


def refuses_pod(event: Any) -> bool:
    """Tell whether an event is about a pod that could not be created.

    That of an MPIJob has the reason of one that failed; before it comes another about each Worker,
    which gives no reason (kubeflow/trainer v1.9.3: pkg/controller.v1/mpi/mpijob_controller.go). A
    controller that has not seen its own pod yet makes it a second time.
    """
    message = str(event.message or "")
    failed = event.reason == "MPIJobFailed" and " pod created failed: " in message
    empty = message.startswith("Created worker pod:") or message.endswith(" already exists")
    return (failed or event.reason in _REFUSED) and not empty


_INTERNAL = "Internal error occurred"
"""Prefix of the API server's message for every error 500, including a webhook that does not
answer."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A problem with one pod."""

    pod: str | None = None
    """The pod's name; None if it could not be created."""

    container: str | None = None
    """The container concerned; None if the pod as a whole is."""

    reason: str
    message: str
    """Details, may be empty."""

    hint: str | None
    grace: float = 0.0
    """Seconds it may last before it counts as hopeless."""

    restarted: bool = False
    """Whether it is of the container before its last restart."""

    @classmethod
    def of_refusal(cls, event: Any, waits: Waits) -> "Trouble":
        """Describe a pod that could not be created.

        An event has no field for the status code of the refusal: the text the API server puts
        before every error 500 tells a webhook that is away for a moment from a rule that holds.
        """
        message = str(event.message or "").strip()
        head, refused, _ = message.partition(_JOBSET_AS_JSON)
        message = head + refused
        grace = waits.patience if _INTERNAL in message else waits.refused_grace
        return cls(reason=event.reason, message=message, hint=refusal_hint(message), grace=grace)

    @classmethod
    def of_start(cls, pod: Any, waits: Waits = USUAL_WAITS) -> "Trouble | None":
        """Say why a pod has not started and will not by itself, or None."""
        name = pod.metadata.name
        for status in statuses_of(pod):
            waiting = status.state and status.state.waiting
            if waiting and waiting.reason in _NEVER_STARTS:
                reason, message = (
                    waiting.reason,
                    (waiting.message or "").strip() or f"image {status.image}",
                )
                hint = _ROOT if _NON_ROOT.search(message) else _NEVER_STARTS[reason]
                return cls(
                    pod=name,
                    container=status.name,
                    reason=reason,
                    message=message,
                    hint=hint,
                    grace=waits.image_grace,
                )
        for condition in pod.status.conditions or []:
            if (
                condition.type == "PodScheduled"
                and condition.status == "False"
                and condition.reason == "Unschedulable"
            ):
                message = condition.message or ""
                return cls(
                    pod=name,
                    reason="Unschedulable",
                    message=message,
                    hint=_NO_NODE,
                    grace=waits.schedule_grace,
                )
        return None

    @classmethod
    def of_end(cls, pod: Any) -> "Trouble | None":
        """Say how a pod, or its container before the last restart, ended badly, or None."""
        name, reason = pod.metadata.name, pod.status.reason
        if pod.status.phase == "Failed" and reason:
            return cls(
                pod=name, reason=reason, message=pod.status.message or "", hint=_ENDED.get(reason)
            )
        for status in statuses_of(pod):
            for state in (status.state, status.last_state):
                if state and (ended := state.terminated) and ended.exit_code != 0:
                    reason, message = (
                        ended.reason or "Error",
                        f"container {status.name}, exit code {ended.exit_code}",
                    )
                    hint = _ENDED.get(reason) or (
                        "it was killed from outside" if ended.exit_code == 137 else None
                    )
                    return cls(
                        pod=name,
                        container=status.name,
                        reason=reason,
                        message=message,
                        hint=hint,
                        restarted=state is status.last_state,
                    )
        return None

    def __str__(self) -> str:
        return (
            (f"pod {self.pod}: " if self.pod else "")
            + self.reason
            + (f" ({self.message})" if self.message else "")
        )

    def last_lines(self, api: Api, mark: str = "  | ") -> list[str]:
        """Return the last lines of the container, each behind a mark; none if they are gone."""
        if self.container is None:
            return []
        doing, read = f"read the log of pod {self.pod}", api.core.read_namespaced_pod_log
        options: dict[str, Any] = {"container": self.container, "previous": self.restarted}
        try:
            text = api.call(doing, read, self.pod, api.namespace, tail_lines=TAIL, **options)
        except PodiumError:
            return []
        return [f"{mark}{line}" for line in str(text).splitlines()]


def refusal_hint(message: str) -> str:
    """Suggest a fix for a pod that could not be created.

    Args:
        message: The API server's words, as in ``pods "a" is forbidden: violates PodSecurity
            "restricted:latest": …``.
    """
    if away := webhook_hint(message):
        return away
    if "violates PodSecurity" not in message:
        return "a quota, a limit range or another policy of the namespace: change the pods' requests, or the policy"
    other = "Pod Security of the namespace: change the pods' requests, or the policy"
    return next(
        (hint for container, hint in _ADDED_HINTS.items() if f'"{container}"' in message), other
    )


_JOBSET_AS_JSON = "spec.replicatedJobs: Invalid value"
"""In the refusal of a JobSet that was changed; all of it follows."""

_PATCHES_LOST = (
    "Kueue changed the TrainJob as it admitted it: one made for Trainer 2.1, as 0.15 is, drops runtimePatches and "
    "activeDeadlineSeconds; take a newer Kueue, or launch a PyTorchJob or Job"
)
"""A TrainJob that was admitted so never starts (observed: Kueue 0.15.0 with Trainer 2.3.0)."""


def _service_events(api: Api, experiment: Resource) -> list[Any]:
    """Return the warnings about the pod in which Katib asks an Experiment's algorithm, oldest
    first.

    They are about a ReplicaSet, ``<experiment>-<algorithm>-<hash>``. Those from before the
    Experiment are another's.
    """
    made = datetime.fromisoformat(experiment.created)
    return [
        event
        for event in api.warnings(kind="ReplicaSet")
        if event.involved_object.name.startswith(f"{experiment.name}-")
        and event_time(event) >= made
    ]


_log = logging.getLogger("podium")

TAIL = 15
"""Log lines shown of a replica that failed."""

_JOB_SELECTOR = {
    **dict.fromkeys(OPERATOR_KINDS, JOB_NAME),
    "Job": "job-name",
    TRAINJOB: JOBSET_NAME,
    "Trial": TRIAL,
}

_IMAGE = (
    "check the image's name and tag, that the nodes can reach its registry, and imagePullSecrets"
)
CONFIG_MISSING = "a Secret, ConfigMap or key that the pod names does not exist in this namespace"
_ROOT = (
    'the image runs as root: give the pods another user, pods={"run_as_user": 1000} or securityContext.runAsUser; '
    'or let root in, pods={"security": "baseline"} or securityContext.runAsNonRoot: false'
)
_NO_NODE = "ask for less (cpu, memory, gpu), change node selector or tolerations, or add nodes"
_START = "check the container's command, security context and mounts"
_NEVER_STARTS = {
    "ErrImagePull": _IMAGE,
    "ImagePullBackOff": _IMAGE,
    "ErrImageNeverPull": "the image is not on the node: load it, or allow it to be pulled",
    "InvalidImageName": _IMAGE,
    "CreateContainerConfigError": CONFIG_MISSING,
    "CreateContainerError": _START,
    "RunContainerError": _START,
}
"""Waiting reasons of a container that do not go away by themselves, with a hint each."""

_NON_ROOT = re.compile(r"non-?root", re.IGNORECASE)
"""Matches the kubelet's messages about an image whose user is root, or may be: ``container has
runAsNonRoot and image will run as root``, ``… image has non-numeric user``, ``container's runAsUser
breaks non-root policy`` (kubernetes v1.34, pkg/kubelet/kuberuntime/security_context.go)."""

_ENDED = {
    "OOMKilled": "raise the memory limit, or use a smaller batch size or fewer processes a node",
    "Evicted": "the node ran out of memory or disk: set requests, and limits that fit the node",
    "DeadlineExceeded": "raise activeDeadlineSeconds",
    "Preempted": "a pod of higher priority took the place: use a priority class, or retry",
    "ContainerCannotRun": _START,
    "StartError": _START,
}
"""Reasons of a container's end, with a hint each."""


def by_replica(pods: list[Any]) -> list[tuple[str, Any]]:
    """Return each pod with its replica: ``master-0``, ``node-1`` …; a Job's are ``pod-0``,
    ``pod-1`` … by their age.

    Args:
        pods: All pods of one job, oldest first.
    """
    return [
        (_replica_of(pod.metadata.labels or {}, number), pod) for number, pod in enumerate(pods)
    ]


def _replica_of(labels: dict[str, str], number: int) -> str:
    if REPLICA_TYPE in labels:
        return f"{labels[REPLICA_TYPE].lower()}-{labels.get(REPLICA_INDEX, '0')}"
    if REPLICATED_JOB in labels:
        return f"{labels[REPLICATED_JOB]}-{labels.get(COMPLETION_INDEX, '0')}"
    return f"pod-{number}"


def _order(named: tuple[str, Any]) -> tuple[str, int]:
    role, _, index = named[0].rpartition("-")
    return role, int(index)


def _replica_status(name: str, pod: Any) -> ReplicaStatus:
    statuses = pod.status.container_statuses or []
    states = [status.state for status in statuses if status.state]
    before = [status.last_state for status in statuses if status.last_state]
    ends = [state.terminated for state in (*states, *before) if state.terminated]
    starts = [begun.started_at for state in states if (begun := state.running or state.terminated)]
    trouble = Trouble.of_end(pod) or Trouble.of_start(pod)
    return ReplicaStatus(
        name=name,
        phase=pod.status.phase or "Pending",
        restarts=sum(status.restart_count or 0 for status in statuses),
        exit_code=max((end.exit_code for end in ends), default=None),
        reason=trouble.reason if trouble else "",
        started=max(
            (start.strftime("%Y-%m-%dT%H:%M:%SZ") for start in starts if start), default=""
        ),
        node=pod.spec.node_name or "",
    )


def statuses_of(pod: Any) -> list[Any]:
    """Return the status of every container of a pod, init containers first."""
    return [*(pod.status.init_container_statuses or []), *(pod.status.container_statuses or [])]


def _ended_at(pod: Any) -> str:
    times = [
        s.state.terminated.finished_at for s in statuses_of(pod) if s.state and s.state.terminated
    ]
    return min((time.isoformat() for time in times if time), default="9999")


@dataclass(frozen=True)
class JobPods:
    """The pods of an object; an Experiment's are those of its trials."""

    api: Api
    kind: str
    name: str

    @property
    def selector(self) -> str:
        """Their label selector."""
        if self.kind != "Experiment":
            return f"{_JOB_SELECTOR[self.kind]}={self.name}"
        trials = self.api.objects("Trial", f"{EXPERIMENT}={self.name}")
        names = ",".join(Trial.parse(trial).name for trial in trials)
        return f"{_JOB_SELECTOR['Trial']} in ({names or 'none'})"

    def read(self) -> list[Any]:
        """Return them, the oldest first."""
        return self.api.pods(self.selector)

    def statuses(self) -> list[ReplicaStatus]:
        """Describe the newest pod of each replica."""
        newest = dict(by_replica(self.read()))
        return [_replica_status(name, pod) for name, pod in sorted(newest.items(), key=_order)]

    def explain(self, resource: Resource | None) -> Failed:
        """Return the error that explains why the object failed: pod, reason, last lines, hint.

        Args:
            resource: The object as last seen; its own condition is quoted.
        """
        state = resource.state if resource else None
        why = f": {state.message.strip()}" if state and state.finished else ""
        text = f"{self.kind} {self.name} failed{why}"
        try:
            pods = sorted(self.read(), key=_ended_at)
        except PodiumError as error:
            return Failed(f"{text}\nits pods cannot be read: {error.message}", error.hint)
        for trouble in (Trouble.of_end(pod) or Trouble.of_start(pod) for pod in pods):
            if trouble:
                lines = trouble.last_lines(self.api)
                return Failed("\n".join([text, str(trouble), *lines]), trouble.hint)
        return Failed(text)

    def last_words(self) -> tuple[str, list[str]]:
        """Return how the replica that failed first ended, and its last lines; empty where its pod
        is gone."""
        ends = map(Trouble.of_end, sorted(self.read(), key=_ended_at))
        trouble = next((trouble for trouble in ends if trouble), None)
        return (str(trouble), trouble.last_lines(self.api, mark="")) if trouble else ("", [])


class Watchman:
    """Looks at an object's pods while it runs and gives up on those that will never start."""

    def __init__(self, api: Api) -> None:
        self.api = copy(api)
        self.api.patience = 0.0  # a look that fails is made again at the next: it must not outlast a watch's timeout
        self.since: dict[tuple[str, str], float] = {}
        self.complete: dict[
            str, datetime
        ] = {}  # by job: creation of its newest pod when it had all of them
        self.warned = False

    def look(self, resource: Resource) -> None:
        """Check the pods once.

        Raises:
            Failed: One has been hopeless for longer than its grace.
        """
        kind, name = resource.kind, resource.name
        if resource.state.phase in (
            "Waiting",
            "Suspended",
        ):  # it has no pods; refusals of earlier ones are over
            self.since = {}
            return
        now, seen = time.monotonic(), {}
        for trouble, key in self.troubles(resource):
            seen[key] = self.since.get(key, now)
            if now - seen[key] >= trouble.grace:
                raise Failed(f"{kind} {name} cannot start: {trouble}", trouble.hint)
        self.since = seen

    def troubles(self, resource: Resource) -> Iterator[tuple[Trouble, tuple[str, str]]]:
        """Yield the troubles that keep an object's pods from starting, each with a key of its
        own."""
        pods = JobPods(self.api, resource.kind, resource.name).read()
        yield from self._starting(pods)
        yield from self._refused(resource, pods)
        yield from self._not_taken_up(resource)
        yield from self._without_trials(resource)

    def _starting(self, pods: list[Any]) -> Iterator[tuple[Trouble, tuple[str, str]]]:
        for pod in pods:
            if trouble := Trouble.of_start(pod, self.api.waits):
                # ErrImagePull and ImagePullBackOff take turns: one clock for a pod.
                yield (
                    trouble,
                    (pod.metadata.uid, "schedule" if trouble.container is None else "start"),
                )

    def _refused(
        self, resource: Resource, pods: list[Any]
    ) -> Iterator[tuple[Trouble, tuple[str, str]]]:
        """Yield the refusals of pods that are missing: they are in no status, only in events."""
        for job, have, want in _jobs_of(self.api, resource, pods):
            if len(have) >= want:
                self.complete[job] = max(pod.metadata.creation_timestamp for pod in have)
                continue
            uid = resource.uid if job == resource.name else None
            # The pods of a TrainJob are made by a Job of its JobSet, which has a name and uid of
            # its own.
            made_by = f"{job}-{NODE}-0" if _job_of(resource).kind == TRAINJOB else ""
            if trouble := self._refusal(job, uid, made_by, created_at(resource)):
                yield (
                    (replace(trouble, hint=_PATCHES_LOST) if _lost_patches(resource) else trouble),
                    (job, "refused"),
                )

    def _not_taken_up(self, resource: Resource) -> Iterator[tuple[Trouble, tuple[str, str]]]:
        if resource.kind == "Experiment" and not resource.conditions:
            reason, hint = not_run(self.api.namespace)
            trouble = Trouble(
                reason=reason, message="", hint=hint, grace=self.api.waits.taken_up_grace
            )
            yield trouble, (resource.name, "run")

    def _without_trials(self, resource: Resource) -> Iterator[tuple[Trouble, tuple[str, str]]]:
        """Yield the troubles that keep Katib from suggesting an Experiment's first trial."""
        name = resource.name
        if (
            resource.kind != "Experiment"
            or not resource.created
            or self.api.objects("Trial", f"{EXPERIMENT}={name}")
        ):
            return
        services = self.api.pods(f"{SUGGESTION}={name}")
        yield from self._starting(services)
        if not services and (events := self._refusals(lambda: _service_events(self.api, resource))):
            yield Trouble.of_refusal(events[-1], self.api.waits), (name, "service")

    def _refusal(
        self, job: str, uid: str | None, made_by: str, created: datetime | None
    ) -> Trouble | None:
        names = [job, made_by] if made_by else [job]
        events = self._refusals(
            lambda: [event for name in names for event in self.api.warnings(name)]
        )
        since = self.complete.get(job)
        # Refusals before all pods were there are over; an object of the same name before this one
        # is another's.
        news = [
            event
            for event in sorted(events, key=event_time)
            if (uid in (None, event.involved_object.uid) or event.involved_object.name == made_by)
            and (since is None or event_time(event) > since)
            and (
                event.involved_object.name != made_by
                or created is None
                or event_time(event) >= created
            )
        ]
        return Trouble.of_refusal(news[-1], self.api.waits) if news else None

    def _refusals(self, ask: Callable[[], list[Any]]) -> list[Any]:
        """Return the events about refused pods; empty where events may not be listed, which is
        logged once."""
        try:
            return [event for event in ask() if refuses_pod(event)]
        except Unavailable:
            raise
        except PodiumError as error:
            if not self.warned:
                _log.warning(
                    "pods that a quota or policy refuses go unnoticed: %s (apply deploy/)",
                    error.message,
                )
            self.warned = True
            return []


def _lost_patches(resource: Resource) -> bool:
    # A TrainJob that podium made always has runtimePatches.
    if not isinstance(resource, Workload) or resource.kind != TRAINJOB:
        return False
    admitted = bool(resource.queue) and not resource.suspended
    return admitted and not resource.spec.get("runtimePatches")


def not_run(namespace: str) -> tuple[str, str]:
    """Return the message about a namespace in which nothing runs Experiments, and its hint."""
    problem = (
        f"nobody runs Experiments in namespace {namespace}: "
        "no podium-engine leads there, and no Katib takes them up"
    )
    return problem, (
        "give the namespace an engine (kubectl apply -k deploy/engine; a team: deploy/team/engine), "
        f"or let whoever asks for a sweep run it: kubernetes://{namespace}?engine=here"
    )


def created_at(resource: Resource) -> datetime | None:
    """Return when an object was created; None if it does not say."""
    return datetime.fromisoformat(resource.created) if resource.created else None


def _job_of(resource: Resource) -> Workload:
    """Return the job that an object is, or that a Trial's or an Experiment's trials are."""
    if isinstance(resource, Experiment):
        return resource.template.workload
    if isinstance(resource, Trial):
        return resource.workload
    assert isinstance(resource, Workload)
    return resource


def _jobs_of(api: Api, resource: Resource, pods: list[Any]) -> list[tuple[str, list[Any], int]]:
    """Return (name, its pods, number of pods it wants) of every job that should run now.

    Args:
        resource: A PyTorchJob, Job, Trial or Experiment.
    """
    want = max(1, _job_of(resource).pod_count)
    if resource.kind != "Experiment":
        return [(resource.name, pods, want)]
    trials = map(Trial.parse, api.objects("Trial", f"{EXPERIMENT}={resource.name}"))
    running = [trial.name for trial in trials if not trial.state.finished]
    labels = [(pod, (pod.metadata.labels or {}).get(_JOB_SELECTOR["Trial"])) for pod in pods]
    return [(name, [pod for pod, trial in labels if trial == name], want) for name in running]

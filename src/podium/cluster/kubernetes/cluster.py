"""``kubernetes://namespace``: jobs and experiments on a real cluster, watched through lost
connections, expired versions and restarts."""

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from podium.cluster.base import Cluster, R, ReplicaStatus
from podium.cluster.kubernetes import logs as kubernetes_logs
from podium.cluster.kubernetes.api import Api, Waits, api_of, api_resource
from podium.cluster.kubernetes.leadership import ENGINE_LEASE, RENEW_SECONDS, is_led
from podium.cluster.kubernetes.pods import JobPods, Watchman
from podium.cluster.kubernetes.queues import WAITING, Queues
from podium.display.text import as_note
from podium.errors import (
    Denied,
    Failed,
    InvalidInput,
    NotFound,
    PodiumError,
    Unavailable,
    UnknownKind,
    suggestion,
)
from podium.files.documents import foreign
from podium.manifests.conditions import Manifest
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.rules import warnings_of
from podium.manifests.kinds import OPERATOR_KINDS, TRAINJOB, or_list
from podium.manifests.labels import METRICS_INJECTION, NOTE
from podium.manifests.pod_security import ENFORCE, RESTRICTED, with_pod_deadlines, with_pod_defaults
from podium.manifests.resource import Resource
from podium.manifests.typed import Reader
from podium.manifests.workload import Workload

_log = logging.getLogger("podium")

_DELETE_WAIT = 30.0

_ENGINES = ("auto", "cluster", "here")
"""Values of ``?engine=``: the cluster runs Experiments, this process does, or the cluster if it
serves them and else this process."""

_SUSPEND: dict[str, Callable[[bool], Manifest]] = {
    **dict.fromkeys(OPERATOR_KINDS, lambda value: {"spec": {"runPolicy": {"suspend": value}}}),
    **dict.fromkeys(("Job", TRAINJOB), lambda value: {"spec": {"suspend": value}}),
}
"""Merge patch that suspends a job of each kind (True) or resumes it (False)."""


class KubernetesCluster(Cluster):
    """A namespace of a Kubernetes cluster with the training operator or Trainer and, for
    experiments, Katib.

    Args:
        url: ``kubernetes://namespace``; without a namespace the one of the kubeconfig's context, or
            of the pod this runs in. ``?grace=600``: seconds a pod may stay unschedulable before its
            job is given up. ``?engine=``: who runs Experiments, ``cluster`` or ``here``
            (podium.sweeps.namespace). ``?state=URL``: where those that run here are kept.

    Raises:
        InvalidInput: The URL has parts that mean nothing here.
        PodiumError: There is no cluster configured.
    """

    def __init__(self, url: str) -> None:
        hint = "for example kubernetes://kubeflow or kubernetes://team?grace=600"
        with foreign(f"not the URL of a cluster: {url!r}", hint=hint, why=False):
            parts = urlsplit(url)
        query = parse_qs(parts.query, keep_blank_values=True)
        if parts.path not in ("", "/") or not set(query) <= {"grace", "engine", "state"}:
            raise InvalidInput(f"not the URL of a cluster: {url!r}", hint)
        grace = query.get("grace", [str(Waits.schedule_grace)])[-1]
        if not grace.replace(".", "", 1).isdecimal():
            raise InvalidInput(f"grace is not a number of seconds: {grace!r}", hint)
        self.engine = query.get("engine", ["auto"])[-1]
        if self.engine not in _ENGINES:
            raise InvalidInput(
                f"engine must be {or_list(_ENGINES)}, but got {self.engine!r}",
                suggestion(self.engine, _ENGINES),
            )
        self.state = query.get("state", [""])[-1]
        self.api = api_of(url)
        self.url = f"kubernetes://{self.api.namespace}"
        self.api.waits = Waits(schedule_grace=float(grace))
        self.queues = Queues(self.api)
        self._reader = Reader()

    def create(self, resource: R) -> R:
        kind, namespace = resource.kind, self.api.namespace
        api_resource(kind)  # refuses a kind that podium does not launch
        if kind == "Trial":
            raise InvalidInput("a Trial is not created by itself", "create its Experiment")
        named = resource.metadata.get("namespace") or namespace
        if named != namespace:
            raise InvalidInput(
                f"{kind} {resource.name} is of namespace {named}, but the cluster is {self.url}",
                f"use kubernetes://{named}, or leave the namespace out",
            )
        under_katib = kind == "Experiment" and self.has_katib
        labels = self._labels() if under_katib else None
        if labels is not None:
            self._check_injection(labels)
        here = resource.with_metadata({**resource.metadata, "namespace": namespace})
        complete = with_pod_deadlines(with_pod_defaults(here))
        stored = replace(here, manifest=self.api.create(kind, complete.manifest))
        if isinstance(stored, Workload):
            _warn_of_free_start(stored)
        # Where pods are restricted, deploy/katib gives the collector the trial's user.
        differs = under_katib and (labels or {}).get(ENFORCE) != RESTRICTED
        if isinstance(here, Experiment) and isinstance(complete, Experiment) and differs:
            _warn_of_defaults(here, complete)
        return stored

    def _check_injection(self, labels: Mapping[str, str]) -> None:
        """Refuse an Experiment where Katib would never see a metric."""
        namespace = self.api.namespace
        if labels.get(METRICS_INJECTION) != "enabled":
            hint = (
                f"kubectl label namespace {namespace} {METRICS_INJECTION}=enabled; not where Katib itself runs: "
                "let trials run in another namespace, kubernetes://NAME"
            )
            raise InvalidInput(
                f"Katib collects no metrics in namespace {namespace}: it lacks {METRICS_INJECTION}=enabled",
                hint,
            )

    @property
    def has_katib(self) -> bool:
        """Whether Katib's own kinds are served here; every account may ask."""
        return "suggestions" in self.api.plurals("Experiment")

    @property
    def runs_experiments(self) -> bool:
        """Whether Katib, or an engine that leads in this namespace, takes Experiments up now.

        That the server knows the kind says nothing. Where Leases may not be read, an engine counts
        as there.
        """
        kinds = self.api.plurals("Experiment")
        try:
            return "suggestions" in kinds or (
                "experiments" in kinds and is_led(self.api, ENGINE_LEASE, 2 * RENEW_SECONDS)
            )
        except Denied:
            return True

    def admits(self, kind: str, workers: int = 0) -> bool:
        """As the interface says; in a namespace that may not be read, pods of any level count as
        admitted.

        The training operator adds a container to a PyTorchJob's Workers that "restricted" refuses
        (``init-pytorch``).
        """
        refused = (
            kind == "PyTorchJob" and workers and (self._labels() or {}).get(ENFORCE) == RESTRICTED
        )
        return not refused and self.api.serves(kind)

    def _labels(self) -> Mapping[str, str] | None:
        """Return the labels of the namespace; None where it may not be read."""
        namespace = self.api.namespace
        try:
            answer = self.api.call(
                f"read namespace {namespace}", self.api.core.read_namespace, namespace
            )
        except InvalidInput:
            raise
        except PodiumError:
            return None
        return answer.metadata.labels or {}

    def get(self, kind: str, name: str) -> Resource:
        return self.queues.explain(self._reader.read(self.api.get(kind, name)))

    def list(self, kind: str, labels: dict[str, str] | None = None) -> Sequence[Resource]:
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        found = self._reader.read_all(self.api.objects(kind, selector))
        return self.queues.explain_all(list(found))

    def watch(self, kind: str, name: str, timeout: float | None = None) -> Iterator[Resource]:
        """As the interface says; a pod that can never start, or is refused, ends it early.

        While a queue of Kueue holds the job, or all trials that are left, back, the timeout does
        not run.

        Raises:
            NotFound: There is none at the start.
            Failed: The timeout passed; or an image cannot be pulled, a Secret is missing, no node
                fits, a quota or a policy refuses its pods.
            Unavailable: Nothing was heard of the object for the outage of its waits.
        """
        watchman = Watchman(self.api)
        clock = _Clock(timeout)
        uid: str | None = None
        seen: Any = None
        stored = self.api.get(kind, name)
        for change in _changes(
            self.api, kind, name, lambda: min(clock.left(), self.api.waits.window)
        ):
            stored = change or stored
            current = self._reader.read(stored)
            with suppress(
                Unavailable, Denied
            ):  # how long to wait is decided in one place: the next change, or none, tells
                current = self.queues.explain(current)
            if uid not in (None, current.uid):
                return  # deleted and made again by somebody else: not ours
            clock.stop(_only_waits(current))
            if uid is None or current.status != seen:
                uid, seen = current.uid, current.status
                yield current
            if current.state.finished:
                return
            if clock.left() <= 0:
                raise Failed(
                    f"{kind} {name} did not end within {timeout:g} s",
                    "raise the timeout, or look at its pods",
                )
            with suppress(Unavailable, Denied):
                watchman.look(current)

    def logs(
        self, kind: str, name: str, replica: str | None = None, follow: bool = False
    ) -> Iterator[str]:
        self.api.get(kind, name)
        return kubernetes_logs.logs(
            self.api, kind, name, replica, follow, lambda: self.is_over(kind, name)
        )

    def failure(self, kind: str, name: str) -> Failed:
        try:
            seen = self.get(kind, name)
        except NotFound:
            seen = None
        return JobPods(self.api, kind, name).explain(seen)

    def replicas(self, kind: str, name: str) -> Sequence[ReplicaStatus]:
        self.api.get(kind, name)
        return JobPods(self.api, kind, name).statuses()

    def waits_for(self, job: Workload) -> str:
        if job.state.finished or job.state.phase in (WAITING, "Suspended"):
            return ""
        return next((str(trouble) for trouble, _ in Watchman(self.api).troubles(job)), "")

    @property
    def silence(self) -> float:
        since = self.api.silence.since
        return 0.0 if since is None else time.monotonic() - since

    def stop(self, kind: str, name: str) -> None:
        """As the interface says, by ``suspend: true``: the operator deletes the pods, and resume
        makes new ones.

        A job in a queue of Kueue is taken out of the queue instead, and resume puts it back.

        Raises:
            NotFound: There is none.
            InvalidInput: It has ended, or is an Experiment: Katib knows neither a stop nor a pause.
        """
        self.refuse_ended(kind, name)
        if kind not in _SUSPEND:
            raise InvalidInput(
                f"Katib cannot stop {kind} {name} and keep it",
                "Katib starts a deleted trial again; earlyStopping, or activeDeadlineSeconds of its job, ends one"
                if kind == "Trial"
                else f"podium experiment delete {name} --cluster {self.url} removes it; its trials' models stay",
            )
        if not self.queues.set_active(self.workload(kind, name), False):
            self.api.patch(kind, name, _SUSPEND[kind](True))

    def resume(self, kind: str, name: str, changes: Mapping[str, int | str] | None = None) -> None:
        """As the interface says; Katib's webhook judges the changes to an Experiment.

        Raises:
            NotFound: There is none.
            InvalidInput: It is not suspended, or there is nothing that Katib could go on with.
        """
        if kind in _SUSPEND:
            self._resume_job(self.workload(kind, name))
            return
        self.experiment(name)
        if not changes:
            raise InvalidInput(
                f"Katib goes on with Experiment {name} by itself", "give it a higher --max-trials"
            )
        if notes := [change for change in changes if "/" in change]:
            problem = f"Experiment {name} is run by its cluster, which may be Katib: it knows no {', '.join(notes)}"
            raise InvalidInput(problem, "give it a higher --max-trials")
        self.api.patch(kind, name, {"spec": dict(changes)})

    def _resume_job(self, job: Workload) -> None:
        kind, name = job.kind, job.name
        if job.state.phase == WAITING:
            raise InvalidInput(
                f"{kind} {name} waits in queue {job.queue}: {job.state.message}", "Kueue starts it"
            )
        if not job.suspended:
            raise InvalidInput(
                f"{kind} {name} is not suspended", "only a stopped job can be resumed"
            )
        if not self.queues.set_active(job, True):
            self.api.patch(kind, name, _SUSPEND[kind](False))

    def write_note(self, kind: str, name: str, text: str) -> None:
        """As the interface says, into an annotation."""
        self.api.patch(kind, name, {"metadata": {"annotations": {NOTE: as_note(text) or None}}})

    def delete(self, kind: str, name: str) -> None:
        selector = JobPods(
            self.api, kind, name
        ).selector  # now: the trials go with their Experiment
        self.api.delete(kind, name)
        end = time.monotonic() + _DELETE_WAIT
        while self.api.pods(selector) and time.monotonic() < end:
            time.sleep(0.5)

    def abandon(self, kind: str, name: str) -> None:
        self.api.delete_now(kind, name)

    def close(self) -> None:
        self.api.close()


def _warn_of_free_start(job: Workload) -> None:
    """Say that a job names a queue but starts at once: Kueue suspends those it takes as they are
    created."""
    if job.queue and not job.suspended:
        _log.warning(
            "nothing holds %s %s back for queue %s: Kueue is not installed, does not take this namespace, or leaves "
            "out the kind (Kueue 0.19 and later leave out PyTorchJob unless integrations.frameworks names it)",
            job.kind,
            job.name,
            job.queue,
        )


def _warn_of_defaults(written: Experiment, complete: Experiment) -> None:
    """Say what Katib would not run as meant of what podium adds to an Experiment."""
    said = warnings_of(written)
    for warning in warnings_of(complete):
        if warning not in said:
            _log.warning(warning)


def _changes(
    api: Api, kind: str, name: str, remaining: Callable[[], float]
) -> Iterator[Manifest | None]:
    """Yield the object, then each version of it; None after every quiet window; end when it is
    gone.

    Where lists are answered but watches are not, the lists alone show the changes, a few seconds
    late.

    Args:
        remaining: Seconds left to the caller; a window is never longer.

    Raises:
        Unavailable: Nothing was heard of the object for the outage of its waits.
    """
    lost_at, pause = None, 0.2
    while True:
        try:
            current, version = api.snapshot(kind, name)
            lost_at = None
            if current is None:
                return
            yield current
            while True:
                for event in api.events(
                    kind, name, version, max(1, min(api.waits.window, int(remaining())))
                ):
                    version = Resource.parse(event["object"]).version
                    if event["type"] == "DELETED":
                        return
                    if event["type"] != "BOOKMARK":
                        yield event["object"]
                lost_at, pause = None, 0.2
                yield None
        except (Unavailable, UnknownKind, Denied) as error:
            lost: PodiumError = error
        except api.failures as error:
            lost = api.broken_watch(error, f"watch {kind} {name}", kind)
        lost_at = lost_at or time.monotonic()
        # A server that has just started knows neither roles (observed: 403 for 0.3 s) nor, perhaps,
        # its CRDs.
        if time.monotonic() - lost_at > (
            api.waits.outage if isinstance(lost, Unavailable) else api.waits.patience
        ):
            raise lost
        if remaining() <= 0:
            yield None
        time.sleep(min(pause * random.uniform(0.5, 1.0), max(remaining(), 0.0)))
        pause = min(pause * 2, 5.0)


def _only_waits(resource: Resource) -> bool:
    """Return whether nothing of a job or Experiment runs because a queue holds it back: its time
    does not count."""
    if isinstance(resource, Experiment):
        return WAITING in resource.trials and "Running" not in resource.trials
    return resource.state.phase == WAITING


class _Clock:
    """Remaining time of a timeout.

    Args:
        timeout: Seconds, None for as long as it takes.
    """

    def __init__(self, timeout: float | None) -> None:
        self._left = float("inf") if timeout is None else timeout
        self._at = time.monotonic()
        self._stopped = False

    def left(self) -> float:
        now = time.monotonic()
        self._left -= 0 if self._stopped else now - self._at
        self._at = now
        return self._left

    def stop(self, stopped: bool) -> None:
        """Stop the clock, or let it run again from now."""
        self.left()
        self._stopped = stopped

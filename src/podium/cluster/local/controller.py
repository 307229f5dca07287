"""Base of the controllers of jobs: a thread that reconciles, and the records of its pods."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from podium.cluster.local.environment import PodIdentity, threads_per_process
from podium.cluster.local.images import Images
from podium.cluster.local.jsonfile import write_json
from podium.cluster.local.pods import PodPlan
from podium.cluster.local.processes.launcher_pool import LauncherPool
from podium.cluster.local.pushed import Mailbox, PushServer
from podium.cluster.local.running_pod import PodSetting, RunningPod
from podium.cluster.local.store import POLL_SECONDS, Store
from podium.errors import NotFound, PodiumError
from podium.manifests.conditions import STYLES, Conditions, State, status_of
from podium.manifests.workload import Replica, Workload
from podium.system.background import Background

LAST_SECONDS = 5.0
"""In which workers may end by themselves after a job that succeeded, if the cluster is closed."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Dependencies shared by all controllers."""

    store: Store
    """The objects."""

    launchers: LauncherPool
    """Start processes."""

    images: Images
    """Local environments for images."""

    pushes: PushServer
    """Takes what programs push."""


class Controller(ABC):
    """Runs one job in a thread of its own until it has nothing left to do.

    Args:
        runtime: Store, launchers and images.
        job: The admitted object, as stored.
        plans: Plans for the pods of each role.
    """

    def __init__(self, runtime: Runtime, job: Workload, plans: Mapping[str, PodPlan]) -> None:
        self.runtime, self.job, self.plans = runtime, job, plans
        self.kind, self.name = job.kind, job.name
        self.directory = runtime.store.path(self.kind, self.name)
        self.pods: list[RunningPod] = []
        self.status: dict[str, Any] = deepcopy(dict(job.status))
        self.conditions = Conditions(self.status, STYLES[self.kind])
        self._written = deepcopy(self.status)
        self.started = time.monotonic()
        self.finished: float | None = None
        self._wake, self._closing = threading.Event(), threading.Event()
        self.mailbox = Mailbox(job, self.directory, self.wake)
        self._recorded: list[dict[str, Any]] = []
        self._thread = Background(self._run, f"podium-{self.kind}-{self.name}")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Ask for a look at the job; safe from any thread."""
        self._wake.set()

    def stop(self) -> None:
        """Ask for the end of all processes, without waiting; an unfinished job becomes Failed."""
        self._closing.set()
        self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until nothing is running; return whether that is so."""
        return self._thread.join(timeout)

    @staticmethod
    @abstractmethod
    def check(job: Workload) -> None:
        """Refuse an admitted job that this machine cannot honor.

        Raises:
            InvalidInput: A field of its spec means something else than this controller does.
        """

    @abstractmethod
    def reconcile(self, now: float) -> None:
        """Compare actual with desired state: start and stop pods, update self.status."""

    @abstractmethod
    def fail(self, reason: str, message: str) -> None:
        """Write the failure that this cluster itself decides on."""

    @property
    def state(self) -> State:
        """The job's state."""
        return status_of({"kind": self.kind, "status": self.status})

    @property
    def ttl(self) -> float | None:
        """Seconds from the end after which the object is removed."""
        return self.job.ttl_seconds_after_finished

    @property
    def next_look(self) -> float | None:
        """Time at which reconcile has something to do even if no event arrives: the deadline."""
        seconds = self.job.active_deadline_seconds
        return None if seconds is None else self.started + seconds

    @property
    def past_deadline(self) -> bool:
        """Whether the job was active for longer than it may."""
        seconds = self.job.active_deadline_seconds
        return seconds is not None and time.monotonic() >= self.started + seconds

    def start_pod(
        self,
        replica: Replica,
        name: str,
        *,
        labels: Mapping[str, str],
        environment: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
        delay: float = 0.0,
    ) -> RunningPod:
        """Make a pod of a role and start it.

        Args:
            name: master-0, worker-1, pod-0 …
            labels: Labels that the pod reads.
            annotations: Annotations that the pod reads; those of the template if None.
            delay: Seconds to wait before the start.
        """
        job, policy = self.job, replica.restart_policy
        identity = PodIdentity(
            name=f"{job.name}-{name}",
            namespace=job.namespace,
            uid=f"{job.uid}-{name}",
            labels=labels,
            annotations=replica.pod.annotations if annotations is None else annotations,
        )
        setting = PodSetting(
            replica=name,
            identity=identity,
            directory=self.directory,
            forced={**environment, **self.runtime.pushes.open(self.mailbox)},
            threads=threads_per_process(job),
            restart="Never"
            if policy == "ExitCode"
            else policy,  # after an exit code the operator makes a new pod
        )
        pod = RunningPod(
            self.plans[replica.role], setting, self.runtime.launchers, self.wake, delay
        )
        # The first pods start one after the other in this thread: together they would only wait for each other.
        pod.advance(time.monotonic())
        self.wake()
        return pod

    def _write(self) -> None:
        # Outside the store's lock until here: a reconciliation may wait for processes to start.
        if self.status != self._written:
            self._written = deepcopy(self.status)
            written = self._written
            self.runtime.store.update(
                self.kind, self.name, lambda manifest: manifest.update(status=written)
            )

    def _write_at_last(self) -> None:
        with suppress(NotFound, OSError):  # a full disk
            self._write()
        self.runtime.store.disown(self.kind, self.name)

    def _run(self) -> None:
        try:
            while not self._step(time.monotonic()):
                self._wake.wait(self._pause())
                self._wake.clear()
        except NotFound:
            pass  # Somebody removed the files: there is nobody to report to.
        except Exception as error:
            message = (
                str(error) if isinstance(error, PodiumError) else f"{type(error).__name__}: {error}"
            )
            self.fail("ControllerError", message)
            self._end_pods()
            self._write_at_last()
        finally:
            self._end_pods()
            self.runtime.pushes.close_box(self.mailbox)

    def _step(self, now: float) -> bool:
        """Run one round; return whether the controller is done."""
        for pod in self.pods:
            pod.advance(now)
        store = self.runtime.store
        asked = store.asked(self.kind, self.name)
        if asked == "delete" or not store.exists(self.kind, self.name):
            self._end_pods()
            store.remove(self.kind, self.name)
            return True
        closing = self._closing.is_set() or asked == "stop"
        if closing and not self._may_end_by_themselves(now):
            self._end_pods()
            with suppress(OSError):  # a full disk
                self._record()
            if self.finished is None:
                self.fail("Stopped", f"{self.kind} {self.name} was stopped.")
                self._write()
            store.disown(self.kind, self.name)
            return True
        self.reconcile(now)
        self._record()
        self._write()
        if self.finished is None and self.state.finished:
            self.finished = now
        if self.finished is None:
            return False
        if self.ttl is not None and now >= self.finished + self.ttl:
            self._end_pods()
            store.remove(self.kind, self.name)
            return True
        if self.ttl is not None or any(pod.active for pod in self.pods):
            return False
        store.disown(self.kind, self.name)
        return True

    def _may_end_by_themselves(self, now: float) -> bool:
        # On a cluster the pods of a job that has succeeded go on where its policy leaves them.
        return (
            self.state.succeeded
            and any(pod.active for pod in self.pods)
            and (self.finished is None or now < self.finished + LAST_SECONDS)
        )

    def _pause(self) -> float:
        # A deletion asked for by another process is a file: there is no other way to notice it.
        now = time.monotonic()
        due = [look for pod in self.pods if (look := pod.next_look) is not None]
        due += [self.next_look] if self.next_look is not None and self.finished is None else []
        return max(0.0, min([POLL_SECONDS, *(look - now for look in due)]))

    def _end_pods(self) -> None:
        for pod in self.pods:
            pod.stop()
        while any(pod.active for pod in self.pods):
            self._wake.wait(0.05)
            self._wake.clear()
            for pod in self.pods:
                pod.advance(time.monotonic())

    def _record(self) -> None:
        records = [pod.record() for pod in self.pods]
        if records != self._recorded:
            self._recorded = records
            write_json(self.directory / "pods.json", records)

"""Base of the controllers of jobs: a thread that reconciles, its pods as processes, restarted in
place as a kubelet does it, and the records of these."""

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.cluster.local.environment import (
    PodIdentity,
    container_environment,
    expand,
    threads_per_process,
    translator,
)
from podium.cluster.local.pods import ContainerPlan, PodPlan
from podium.cluster.local.processes.client import Command, LauncherPool, Process
from podium.cluster.local.pushed import Mailbox, PushServer
from podium.cluster.local.store import POLL_SECONDS, Store
from podium.cluster.local.supplies import Images, write_files
from podium.errors import NotFound, PodiumError
from podium.files.documents import write_json
from podium.manifests.conditions import STYLES, Conditions, State, status_of, timestamp
from podium.manifests.fields import unshared
from podium.manifests.workload import Replica, Workload
from podium.system.background import Background

BACKOFF = 0.5
"""Seconds before the second restart; doubled each time. A kubelet begins at 10: a cluster has to be
protected."""

LONGEST_BACKOFF = 30.0
"""Seconds between restarts at most; a kubelet goes up to 300."""

HEALTHY = 600.0
"""Seconds of work after which earlier failures are forgotten, as a kubelet does."""


@dataclass(frozen=True, kw_only=True)
class _PodSetting:
    """Settings of a running pod, decided by its controller."""

    replica: str
    """master-0, worker-1, pod-0 …"""

    identity: PodIdentity
    directory: Path
    """Directory of the job: logs, working directories and volumes go below."""

    forced: Mapping[str, str]
    """Environment set by the controller."""

    threads: int
    """OMP_NUM_THREADS unless the manifest says otherwise."""

    restart: str
    """Always, OnFailure or Never."""

    @property
    def log(self) -> Path:
        return self.directory / "logs" / f"{self.replica}.log"

    @property
    def work(self) -> Path:
        return self.directory / "work" / self.replica


class RunningPod:
    """A pod: Pending, Running, then Succeeded or Failed. One thread drives it by calls of advance.

    Args:
        plan: The plan to run.
        setting: Identity, directory and environment.
        launchers: Start the processes.
        wake: Called from any thread when advance has something to do.
        delay: Seconds to wait before the start.
    """

    def __init__(
        self,
        plan: PodPlan,
        setting: _PodSetting,
        launchers: LauncherPool,
        wake: Callable[[], None],
        delay: float = 0.0,
    ) -> None:
        self.plan, self.setting = plan, setting
        self.phase = "Pending"
        self.restarts = 0
        self.exit_code: int | None = None
        self._launchers, self._wake = launchers, wake
        self._stages = [*plan.init, plan.main]
        self._process: Process | None = None
        self._start_at: float | None = time.monotonic() + delay
        self._started_at = 0.0
        self._started = ""
        self._failures = 0
        self._restarting = False
        self._log_from = 0
        self._kill_at: float | None = None
        self._stopping = False

    @property
    def active(self) -> bool:
        return self.phase in ("Pending", "Running")

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.running else None

    @property
    def next_look(self) -> float | None:
        """Time at which advance has something to do even if no process ends."""
        return self._kill_at if self._stopping else self._start_at

    def advance(self, now: float) -> None:
        """Do one step if it is due: notice an end, start, restart, kill."""
        if self._process and not self._process.running:
            code, self._process = self._process.exit_code, None
            self._ended(1 if code is None else code, now)
        if self._stopping:
            if self._process and self._kill_at is not None and now >= self._kill_at:
                self._kill_at = None
                self._process.kill()
        elif self._start_at is not None and now >= self._start_at:
            self._start_at = None
            self._start(now)

    def stop(self, grace: float | None = None) -> None:
        """Begin to end it: SIGTERM to the whole process group, SIGKILL after the grace period."""
        if not self._stopping and self.active:
            self._stopping = True
            if self._process is None:
                self.phase = "Failed"
            else:
                self._kill_at = time.monotonic() + (self.plan.grace if grace is None else grace)
                self._process.stop()
            self._wake()

    def record(self) -> dict[str, Any]:
        """Return its state for pods.json: Stopped is a pod that the operator or a deletion would
        have removed."""
        return {
            "replica": self.setting.replica,
            "phase": "Stopped" if self._stopping and self.phase == "Failed" else self.phase,
            "restarts": self.restarts,
            "exitCode": self.exit_code,
            "started": self._started,
            "pid": self.pid,
            "logFrom": self._log_from,
        }

    def _ended(self, code: int, now: float) -> None:
        stage, main = self._stages[0], len(self._stages) == 1
        if self._stopping:
            # What made it restart says more about a stopped pod than the signal that ended it.
            self.phase, self.exit_code = (
                "Failed",
                code if self.exit_code is None else self.exit_code,
            )
        elif code == 0 and not main:
            self._stages.pop(0)
            self._start_at = now
        elif code == 0 and self.setting.restart != "Always":
            self.phase, self.exit_code = "Succeeded", 0
        elif code != 0 and self.setting.restart == "Never":
            self.phase, self.exit_code = "Failed", code
        else:
            self._failures = 0 if now - self._started_at > HEALTHY else self._failures
            self._start_at = now + backoff(self._failures)
            self._failures += 1
            self._restarting = True
            self.exit_code = code if stage is self.plan.main else self.exit_code

    def _start(self, now: float) -> None:
        # A restart counts when it happens, as a kubelet counts.
        self.restarts += self._restarting
        self._restarting = False
        self._started_at, self._started = now, timestamp()
        self.phase = "Running"
        stage = self._stages[0]
        self._log_from = self.setting.log.stat().st_size if self.setting.log.exists() else 0
        try:
            self._process = self._launchers.start(self._command(stage), self._wake)
        except PodiumError as error:
            with self._log(stage).open("a") as log:
                log.write(f"podium: {error}\n")
            self.phase, self.exit_code = "Failed", 128

    def _command(self, container: ContainerPlan) -> Command:
        setting = self.setting
        own, mounts = setting.directory / "volumes" / setting.replica, []
        for volume, files in container.files.items():
            write_files(own / volume, files)
        for where, key, host in container.mounts:
            here = host or own / key
            if host is None and not here.is_file():
                here.mkdir(parents=True, exist_ok=True)
            mounts.append((where, here))
        translate = translator((where, here) for where, here in mounts if str(here) != where)
        env = container_environment(
            container, setting.identity, setting.forced, setting.threads, translate
        )
        self._log(container).parent.mkdir(parents=True, exist_ok=True)
        argv = tuple(
            container.image.resolve(translate(expand(word, env))) for word in container.argv
        )
        container.image.furnish(setting.work, argv)
        output = env.get("PODIUM_OUTPUT", "")
        if output.startswith("/") and any(f"{output}/" in word for word in argv):
            Path(output).mkdir(
                parents=True, exist_ok=True
            )  # who names a file in it thinks that it is there
        return Command(
            argv=argv,
            env=env,
            cwd=container.working_dir or setting.work,
            log=self._log(container),
            own_python=container.image.root is None,
        )

    def _log(self, container: ContainerPlan) -> Path:
        log = self.setting.log
        return log if container is self.plan.main else log.with_suffix(f".{container.name}.log")


def backoff(failures: int) -> float:
    """Return the seconds to wait after so many failures in a row: none at first, then doubling."""
    return 0.0 if failures == 0 else float(min(LONGEST_BACKOFF, BACKOFF * 2 ** (failures - 1)))


LAST_SECONDS = 5.0
"""In which workers may end by themselves after a job that succeeded, if the cluster is closed."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Dependencies shared by all controllers."""

    store: Store
    launchers: LauncherPool
    images: Images
    pushes: PushServer


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
        self.status: dict[str, Any] = unshared(job.status)
        self.conditions = Conditions(self.status, STYLES[self.kind])
        self._written = unshared(self.status)
        self.started = time.monotonic()
        self.finished: float | None = None
        self._wake, self._closing = threading.Event(), threading.Event()
        self.mailbox = Mailbox(job, self.directory, self.wake)
        self._recorded: list[dict[str, Any]] = []
        self._thread = Background(self._run, f"podium-{self.kind}-{self.name}")

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Ask for a look at the job; safe from any thread."""
        self._wake.set()

    def stop(self) -> None:
        """Ask for the end of all processes, without waiting; an unfinished job becomes Failed."""
        self._closing.set()
        self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
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
        return status_of({"kind": self.kind, "status": self.status})

    @property
    def ttl(self) -> float | None:
        """Seconds from the end after which the object is removed."""
        return self.job.ttl_seconds_after_finished

    @property
    def deadline(self) -> float:
        """Time by time.monotonic() at which the job was active for too long; infinite for none."""
        seconds = self.job.active_deadline_seconds
        return math.inf if seconds is None else self.started + seconds

    @property
    def next_look(self) -> float:
        """Time at which reconcile has something to do even if no event arrives."""
        return self.deadline

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
        setting = _PodSetting(
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
        # The first pods start one after the other in this thread: together they would only wait for
        # each other.
        pod.advance(time.monotonic())
        self.wake()
        return pod

    def _write(self) -> None:
        # Outside the store's lock until here: a reconciliation may wait for processes to start.
        if self.status != self._written:
            self._written = unshared(self.status)
            written = self._written
            self.runtime.store.update(
                self.kind, self.name, lambda manifest: manifest.update(status=written)
            )

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
            with suppress(NotFound, OSError):  # a full disk
                self._write()
            self.runtime.store.supervision.disown(self.kind, self.name)
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
            store.supervision.disown(self.kind, self.name)
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
        store.supervision.disown(self.kind, self.name)
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
        due += [self.next_look] if self.finished is None else []
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

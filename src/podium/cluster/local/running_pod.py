"""One pod as processes: init containers, the container, restarts in place as a kubelet does
them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.cluster.local.environment import PodIdentity, container_environment, expand, translator
from podium.cluster.local.pods import ContainerPlan, PodPlan
from podium.cluster.local.processes.client import Command, Process
from podium.cluster.local.processes.launcher_pool import LauncherPool
from podium.cluster.local.supplies import write_files
from podium.errors import PodiumError
from podium.manifests.conditions import timestamp

BACKOFF = 0.5
"""Seconds before the second restart; doubled each time. A kubelet begins at 10: a cluster has to be
protected."""

LONGEST_BACKOFF = 30.0
"""Seconds between restarts at most; a kubelet goes up to 300."""

HEALTHY = 600.0
"""Seconds of work after which earlier failures are forgotten, as a kubelet does."""


@dataclass(frozen=True, kw_only=True)
class PodSetting:
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
        """The log of the container."""
        return self.directory / "logs" / f"{self.replica}.log"

    @property
    def work(self) -> Path:
        """The working directory."""
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
        setting: PodSetting,
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
        """Whether it has not ended."""
        return self.phase in ("Pending", "Running")

    @property
    def pid(self) -> int | None:
        """Process id while a container runs."""
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

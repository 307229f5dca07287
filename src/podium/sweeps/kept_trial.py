"""Trials of a function in kept processes on this machine: one that has ended a trial well takes the
next (podium.code.kept)."""

import json
import logging
import shlex
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from tempfile import TemporaryDirectory, gettempdir

from podium.cluster.local.cluster import LocalCluster
from podium.cluster.local.logs import Logs
from podium.cluster.local.pods import MAX_GRACE
from podium.cluster.local.processes.client import Command, LauncherPool
from podium.cluster.local.pushed import Mailbox
from podium.errors import InvalidInput
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.trial import Trial
from podium.manifests.workload import Workload
from podium.sweeps.base import TrialIO
from podium.sweeps.local_trial import LocalTrial, ProcessExecutor, Wrapped

_log = logging.getLogger(__name__)

_CALL = ("python", "-m", "podium.code.call")

_LOOK = 0.05
"""Seconds between checks whether a process has ended before it connected."""


class _Kept:
    """A process that calls a function for one trial after another.

    Args:
        command: The call for its first trial.

    Raises:
        Failed: It cannot be started.
    """

    def __init__(self, launchers: LauncherPool, command: Command) -> None:
        # No other user may enter it; the path of a socket has a hundred characters.
        place = "/tmp" if len(gettempdir()) > 70 else None
        with (
            TemporaryDirectory(prefix="podium-", dir=place) as folder,
            socket.socket(socket.AF_UNIX) as listening,
        ):
            address = f"{folder}/kept"
            listening.bind(address)
            listening.listen()
            listening.settimeout(_LOOK)
            python, module, _, file, *_ = command.argv
            argv = (python, module, "podium.code.kept", file, address)
            self.process = launchers.start(replace(command, argv=argv), lambda: None)
            self._channel = self._accept(listening)

    def _accept(self, listening: socket.socket) -> socket.socket | None:
        while self.process.running:
            with suppress(TimeoutError):
                return listening.accept()[0]
        return None

    def begin(self, words: Sequence[str], command: Command) -> None:
        """Hand it the call of a trial.

        Args:
            words: The file that describes the call, and its arguments.
        """
        task = {
            "words": words,
            "env": command.env,
            "cwd": str(command.cwd),
            "log": str(command.log),
        }
        if self._channel:
            with suppress(OSError):  # it has ended, which wait notices
                self._channel.sendall(json.dumps(task).encode() + b"\n")

    def wait(self) -> int | None:
        """Wait for the end of the trial; return None where it ended well and the process goes on,
        else the exit code of the process, which has ended."""
        with suppress(OSError):
            if self._channel and self._channel.recv(1):
                return None
        self.hang_up()
        code = self.process.wait()
        return 1 if code is None else code

    @property
    def is_free(self) -> bool:
        """Whether it can take a trial: it may have been killed while it waited for one."""
        with suppress(OSError):
            try:
                flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
                return self._channel is not None and bool(self._channel.recv(1, flags))
            except BlockingIOError:
                return True
        return False

    def hang_up(self) -> None:
        """Tell it that there are no more trials: it ends."""
        if self._channel:
            self._channel.close()

    def end(self) -> None:
        """See to it that it ends; its exit functions have as long as those of a stopped pod."""
        self.hang_up()
        if self.process.wait(MAX_GRACE) is None:
            _log.warning("a process of trials did not end within %d s and is killed", MAX_GRACE)
            self.process.kill()


class KeptExecutor(ProcessExecutor):
    """Runs the trials in kept processes, as many as run at a time.

    Raises:
        InvalidInput: The trials do not call a function, or the cluster would refuse their jobs.
    """

    def __init__(self, cluster: LocalCluster, experiment: Experiment) -> None:
        super().__init__(cluster, experiment)
        job = self.likely_job
        (_, container), *_ = job.containers()
        fields = {field for replica in job.replicas for field in replica.pod.fields}
        plain = (
            job.spec.keys() <= {"template", "backoffLimit"}
            and fields <= {"containers", "restartPolicy"}
            and container.fields <= {"name", "image", "command", "env", "workingDir"}
            and not job.backoff_limit
            and not any(variable.source for variable in container.variables)
        )
        if job.kind != "Job" or not plain or container.words[: len(_CALL)] != _CALL:
            problem = (
                "reuse is for trials that call a function and nothing else, but theirs is "
                f"{' '.join(container.words):.60}"
            )
            hint = "leave reuse out, or folds; choices of a function may hold no apostrophe"
            raise InvalidInput(problem, hint)
        (self._command,) = cluster.commands(job)
        self._idle: list[_Kept] = []

    def open(self, experiment: Experiment, trial: Trial) -> TrialIO:
        return _KeptTrial(self._idle, self._command, self.cluster, experiment, trial)

    def close(self, *, remove: bool) -> None:
        for kept in self._idle:
            kept.hang_up()
        for kept in self._idle:
            kept.end()


class _KeptTrial(LocalTrial):
    """A trial without a job of its own; its log is with it from the start.

    Args:
        idle: The processes that wait for a trial; it takes one from there, and gives it back.
        likely: The command of a sample trial.
    """

    def __init__(
        self,
        idle: list[_Kept],
        likely: Command,
        cluster: LocalCluster,
        experiment: Experiment,
        trial: Trial,
    ) -> None:
        super().__init__(cluster, experiment, trial)
        self._kind, self._logs = "Trial", Logs(cluster.store, "Trial", trial.name)
        self._box = Mailbox(self.wrapped.job, self.directory, lambda: None)
        self._idle, self._likely, self._lock = idle, likely, threading.Lock()
        self._kept: _Kept | None = None
        self._killer: threading.Timer | None = None

    def _wrap(self, trial: Trial) -> Wrapped:
        log = self.directory / "logs" / "pod-0.log"
        return Wrapped(job=trial.workload, metrics=(log,), replicas=())

    def start(self) -> None:
        (log,) = self.wrapped.metrics
        shutil.rmtree(log.parent, ignore_errors=True)  # of a run that was stopped
        log.parent.mkdir()
        runtime = self.cluster.runtime
        (_, container), *_ = self.wrapped.job.containers()
        line = " ".join(container.words)
        words = (shlex.split(line) if "'" in line else line.split())[len(_CALL) :]
        env = {
            **self._likely.env,
            **{variable.name: variable.value for variable in container.variables},
            "KATIB_TRIAL_NAME": self.name,
            "HOSTNAME": f"{self.name}-pod-0",
            **runtime.pushes.open(self._box),
        }
        command = replace(self._likely, env=env, log=log)
        kept = self._waiting() or _Kept(runtime.launchers, command)
        kept.begin(words, command)
        with self._lock:
            self._kept = kept

    def _waiting(self) -> _Kept | None:
        with suppress(IndexError):
            while True:
                kept = self._idle.pop()
                if kept.is_free:
                    return kept
                kept.hang_up()
        return None

    def changes(self) -> Iterator[Workload]:
        assert self._kept
        code = self._kept.wait()
        with self._lock:
            kept, self._kept = self._kept, None
        self.cluster.runtime.pushes.close_box(self._box)
        if self._killer:
            self._killer.cancel()
            kept.end()
        elif code is None:
            self._idle.append(kept)
        end = (
            ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
            if code
            else ("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        )
        yield self.wrapped.job.with_condition(*end)

    def settle(self) -> None:
        self.over.set()

    def stop(self) -> None:
        with self._lock:
            if self._kept and not self._killer:
                self._killer = threading.Timer(MAX_GRACE, self._kept.process.kill)
                self._killer.daemon = True
                self._killer.start()
                self._kept.process.stop()

    def remove(self) -> None:
        """There is no job."""

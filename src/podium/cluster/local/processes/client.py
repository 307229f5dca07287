"""The caller's side of the launcher: processes that cannot outlive this one."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.cluster.local.processes import launcher
from podium.errors import Failed

START_TIMEOUT = 120.0
"""Seconds a process may take to start, including a fork server's imports."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One process to start."""

    argv: tuple[str, ...]
    """Program and arguments; the program is looked up in the PATH of env."""

    env: dict[str, str]
    """The whole environment."""

    cwd: Path
    """Working directory; must exist."""

    log: Path
    """File to which stdout and stderr are appended."""

    own_python: bool = False
    """Whether its environment is that of this interpreter, so that a fork server may run it."""

    module: tuple[str, ...] | None = None
    """Module and arguments, to run in a fork server instead of starting argv."""


class Process:
    """A started process, in a session of its own."""

    def __init__(self, owner: "Launcher", number: int, on_exit: Callable[[], None]) -> None:
        self.pid = 0
        self.exit_code: int | None = None
        self.error: str | None = None
        self._owner = owner
        self._number = number
        self._on_exit = on_exit
        self._started, self._ended = threading.Event(), threading.Event()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return not self._ended.is_set()

    def stop(self) -> None:
        """Ask its process group to end (SIGTERM)."""
        self._owner.send(op="stop", id=self._number)

    def kill(self) -> None:
        """Kill its process group (SIGKILL); once it has ended, so are all its descendants."""
        self._owner.send(op="kill", id=self._number)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end; return the exit code (128 + number for a signal), or None at the
        timeout."""
        self._ended.wait(timeout)
        return self.exit_code

    def started(self, pid: int | None, error: str | None) -> None:
        self.pid, self.error = pid or 0, error
        self._started.set()
        if error is not None:
            self._ended.set()

    def ended(self, code: int) -> None:
        self.exit_code = code
        self._started.set()
        self._ended.set()
        self._on_exit()

    def wait_until_started(self, timeout: float) -> bool:
        return self._started.wait(timeout)


class Launcher:
    """Starts processes through the launcher program, which kills them all when this process is
    gone.

    Args:
        arguments: Interpreter and its options; a plain launcher needs no site packages.
        preload: Modules to import before the first start: a fork server.
        env: Environment of the launcher itself; processes get their own.
    """

    def __init__(
        self,
        arguments: tuple[str, ...] = (sys.executable, "-I", "-S"),
        preload: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        self.unfit: str | None = None
        self._lock = threading.Lock()
        self._processes: dict[int, Process] = {}
        self._count = 0
        self._ready = threading.Event()
        if not preload:
            self._ready.set()
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._program = subprocess.Popen(
                [*arguments, launcher.__file__, str(theirs.fileno()), *preload],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="podium-launcher", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        """Whether it can start processes."""
        return self._channel.fileno() >= 0 and self._reader.is_alive()

    @property
    def is_ready(self) -> bool:
        """Whether its imports have ended, successfully or not."""
        return self._ready.is_set()

    def start(self, command: Command, on_exit: Callable[[], None] = lambda: None) -> Process:
        """Start a process and return when it exists.

        Args:
            command: The command to start. A program that cannot be executed ends with 127 or 126,
                with a message in its log.
            on_exit: Called from another thread when the process has ended.

        Raises:
            Failed: The system cannot start any process, or the launcher was killed.
        """
        with self._lock:
            self._count += 1
            process = self._processes[self._count] = Process(self, self._count, on_exit)
            number = self._count
        request = {
            "argv": command.argv,
            "module": command.module,
            "env": command.env,
            "cwd": str(command.cwd),
            "log": str(command.log),
        }
        self.send(op="start", id=number, **request)
        if not self.alive or not process.wait_until_started(START_TIMEOUT) or not process.pid:
            why = process.error or self.unfit or "the launcher ended"
            raise Failed(
                f"cannot start {command.argv[0]}: {why}",
                "see which resource the machine lacks, then try again",
            )
        return process

    def wait_until_ready(self, timeout: float = START_TIMEOUT) -> bool:
        """Wait for the preloaded modules; return whether processes can be forked from here (else
        see ``unfit``)."""
        self._ready.wait(timeout)
        return self.alive and self._ready.is_set() and self.unfit is None

    def send(self, **message: Any) -> None:
        """Send a request; if the launcher is gone, so are its processes, and nothing is sent."""
        with self._lock, contextlib.suppress(OSError):
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Stop all processes and end the launcher; returns when nothing is left."""
        if not self.is_ready:
            self._program.kill()  # it runs nothing yet, and would finish its imports first
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
        try:
            self._program.wait(launcher.GRACE + 8)
        except subprocess.TimeoutExpired:
            self._program.kill()
            self._program.wait()
        self._reader.join()
        self._channel.close()

    def _read(self) -> None:
        try:
            with self._channel.makefile("r") as answers, contextlib.suppress(OSError, ValueError):
                for line in answers:
                    self._handle(json.loads(line))
        finally:
            self._ready.set()
            # The launcher is gone. If it was killed, its supervisors kill their processes.
            for process in list(self._processes.values()):
                process.ended(128 + signal.SIGKILL)

    def _handle(self, answer: dict[str, Any]) -> None:
        if "ready" in answer or "unfit" in answer:
            self.unfit = answer.get("unfit")
            self._ready.set()
        elif "exit" in answer:
            self._processes.pop(answer["id"]).ended(answer["exit"])
        else:
            process = self._processes[answer["id"]]
            process.started(answer.get("pid"), answer.get("error"))
            if process.error is not None:
                del self._processes[answer["id"]]

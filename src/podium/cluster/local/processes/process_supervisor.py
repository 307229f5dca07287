"""Per-process supervisor: reaps the child and kills everything it left behind.

Part of the launcher program (launcher.py); standard library only. A supervisor runs one process
after another. On Linux it is the subreaper of its descendants, so a process cannot escape by
starting its own session. When the launcher ends, for whatever reason, the socket closes and the
supervisor ends too.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from podium.system.processes import (
    adopt_orphans,
    die_with_parent,
    exit_code,
    kill_children,
    signal_group,
)

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL when the caller has vanished."""


class Channel:
    """One end of a socket that carries JSON lines."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._received = b""

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, **message: Any) -> None:
        # The other side may be gone; receive() then returns None.
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the messages that have arrived, perhaps none; None once the other side has
        closed."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in lines] if data else None


class ProcessSupervisor:
    """Parent of one process at a time; when it ends, every descendant is killed."""

    def __init__(self, launcher: Channel) -> None:
        self.launcher: Channel | None = launcher
        self.id = self.process = 0  # of the running process, else 0
        self.deadline: float | None = None

    def run(self) -> NoReturn:
        try:
            self._begin()
            while self.launcher or self.process:
                self._step()
        except SystemExit:  # of a module that has run in a fork: the interpreter's exit goes on
            raise
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)

    def _begin(self) -> None:
        os.setsid()
        adopt_orphans()
        self.pipe = os.pipe()
        for end in self.pipe:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self.pipe[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _step(self) -> None:
        ready = wait(
            [self.pipe[0], *([self.launcher] if self.launcher else [])],
            None if self.deadline is None else self.deadline - time.monotonic(),
        )
        if self.pipe[0] in ready:
            os.read(self.pipe[0], 4096)
        if self.launcher in ready:
            self._listen()
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self.deadline = None
            self._signal(signal.SIGKILL)
        for pid, code in _ended():
            if pid == self.process:
                self._signal(signal.SIGKILL)
                kill_children()
                self.process = 0
                if self.launcher:
                    self.launcher.send(exit=code)

    def _listen(self) -> None:
        assert self.launcher
        requests = self.launcher.receive()
        if requests is None:
            self.launcher, self.deadline = None, time.monotonic() + GRACE
            self._signal(signal.SIGTERM)
        for request in requests or []:
            if request["op"] == "start":
                self._start(request)
            elif request["id"] == self.id:  # else it was meant for the previous process
                self._signal(signal.SIGTERM if request["op"] == "stop" else signal.SIGKILL)

    def _start(self, request: dict[str, Any]) -> None:
        assert self.launcher
        ready, ready_end = os.pipe()
        try:
            process = os.fork()
        except OSError as error:
            for end in (ready, ready_end):
                os.close(end)
            return self.launcher.send(error=str(error))
        if process == 0:
            signal.set_wakeup_fd(-1)  # before its pipe is closed: a signal may arrive in between
            self.launcher.socket.close()
            for end in (*self.pipe, ready):
                os.close(end)
            _become(request, ready_end)
        os.close(ready_end)
        # Until then the process is in the supervisor's group, with its signal handlers: a signal
        # would be lost.
        os.read(ready, 1)
        os.close(ready)
        self.id, self.process = request["id"], process
        self.launcher.send(pid=process)

    def _signal(self, number: int) -> None:
        if self.process:
            signal_group(self.process, number)


def _become(request: dict[str, Any], ready: int) -> NoReturn:
    """Turn this fork into the requested process; close ready once it can receive signals."""
    try:
        os.setsid()
        die_with_parent()  # in case its supervisor alone is killed
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(ready)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(log)
        os.close(nothing)
        os.chdir(request["cwd"])
        if request["module"] is None:
            _exec(request["argv"], request["env"])
        from podium.cluster.local.processes import forkserver

        forkserver.run_module(request["module"], request["env"])
    except SystemExit:
        raise
    except BaseException as error:
        os.write(2, f"podium: cannot start {request['argv']}: {error}\n".encode())
    os._exit(127)


def _exec(argv: list[str], env: dict[str, str]) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, f"podium: cannot start {argv[0]}: {error.strerror}\n".encode())
        os._exit(126 if isinstance(error, PermissionError) else 127)


def _ended() -> list[tuple[int, int]]:
    reaped = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            reaped.append((ended[0], exit_code(ended[1])))
    return reaped


def wait(sources: list[Any], seconds: float | None = None) -> list[Any]:
    """Wait until something can be read; return the channels or file descriptors that are ready."""
    poll, by_number = (
        select.poll(),
        {source if isinstance(source, int) else source.fileno(): source for source in sources},
    )
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [
        by_number[number]
        for number, _ in poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
    ]

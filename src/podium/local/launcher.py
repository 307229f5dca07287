"""A small single-threaded program that starts processes for another one, and lets none of them outlive it.

Run as a script; alone it uses the standard library only, so that it starts in some 30 ms. Three generations::

    caller ──socket── launcher ──fork── keeper (one a process) ──fork── the process, in a session of its own

The launcher ends everything when the socket closes, however the caller ended. A keeper ends everything below it when
its process has ended or the launcher has gone; on Linux it is the subreaper of its descendants, so that even those
that made a session of their own cannot escape.

With modules to preload, the launcher imports them once, and a request for ``python -m`` runs in a fork of it instead
of a new interpreter: a fork server. It refuses to serve if an import started threads, since a fork would not copy
them.

Requests and answers are JSON, one a line: ``{"op": "start", "id": 1, "argv": […], "module": null, "env": {…},
"cwd": "…", "log": "…"}`` is answered by ``{"id": 1, "pid": …}`` and, at the end, ``{"id": 1, "exit": 0}``;
``{"op": "stop" | "kill", "id": 1}`` sends SIGTERM to the process's group or SIGKILL to all its descendants.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL when the caller has vanished."""

LINUX = sys.platform == "linux"
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_STOP, _KILL = signal.SIGTERM, signal.SIGUSR1

if LINUX:
    import ctypes

    _libc = ctypes.CDLL(None)


def _prctl(option: int, value: int) -> None:
    if LINUX:
        _libc.prctl(option, value, 0, 0, 0)


class Launcher:
    """Reads requests from a socket, starts keepers and reports how they ended."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.keepers: dict[int, int] = {}
        self.received = b""
        # Closes when this process ends, however it ends: that is how keepers learn of it.
        self.lifeline, self._lifeline_end = os.pipe()
        self.wakeup, wakeup_end = os.pipe()
        for end in (self.wakeup, wakeup_end):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)

    def serve(self) -> None:
        """Work until the caller closes its end, then stop what still runs."""
        while True:
            ready, _, _ = select.select([self.channel.fileno(), self.wakeup], [], [])
            if self.wakeup in ready:
                _drain(self.wakeup)
                self.reap()
            if self.channel.fileno() in ready and not self.receive():
                break
        self.shut_down()

    def receive(self) -> bool:
        """Handle what has arrived; return False at the end."""
        try:
            data = self.channel.recv(1 << 16)
        except ConnectionError:
            return False
        *lines, self.received = (self.received + data).split(b"\n")
        for line in lines:
            self.handle(json.loads(line))
        return bool(data)

    def handle(self, request: dict[str, Any]) -> None:
        if request["op"] == "start":
            try:
                self.start(request)
            except OSError as error:
                self.answer(id=request["id"], error=str(error))
            return
        for keeper, known in self.keepers.items():
            if known == request["id"]:
                os.kill(keeper, _STOP if request["op"] == "stop" else _KILL)

    def start(self, request: dict[str, Any]) -> None:
        report, report_end = os.pipe()
        keeper = os.fork()
        if keeper == 0:
            os.close(report)
            _Keeper(self, request, report_end).run()
        os.close(report_end)
        self.keepers[keeper] = request["id"]
        with os.fdopen(report) as answer:
            self.answer(id=request["id"], pid=int(answer.read() or keeper))

    def reap(self) -> None:
        for pid, code in _ended():
            if pid in self.keepers:
                self.answer(id=self.keepers.pop(pid), exit=code)

    def shut_down(self) -> None:
        for signal_number, seconds in ((_STOP, GRACE), (_KILL, 5.0)):
            for keeper in self.keepers:
                os.kill(keeper, signal_number)
            deadline = time.monotonic() + seconds
            while self.keepers and (left := deadline - time.monotonic()) > 0:
                select.select([self.wakeup], [], [], left)
                _drain(self.wakeup)
                for pid, _ in _ended():
                    self.keepers.pop(pid, None)

    def answer(self, **message: Any) -> None:
        # The caller may be gone; the end of the socket will tell.
        with contextlib.suppress(OSError):
            self.channel.sendall(json.dumps(message).encode() + b"\n")

    def leave_to_keeper(self) -> None:
        """Close, in a keeper, all that belongs to the launcher."""
        signal.set_wakeup_fd(-1)
        self.channel.close()
        for end in (self._lifeline_end, self.wakeup):
            os.close(end)


class _Keeper:
    """Parent of one process: forwards signals, and leaves nothing behind when it has ended."""

    def __init__(self, launcher: Launcher, request: dict[str, Any], report: int) -> None:
        self.launcher = launcher
        self.request = request
        self.report = report
        self.process = 0

    def run(self) -> NoReturn:
        code = 1
        try:
            code = self._keep()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def _keep(self) -> int:
        self.launcher.leave_to_keeper()
        os.setsid()
        _prctl(_SET_CHILD_SUBREAPER, 1)
        wakeup, wakeup_end = os.pipe()
        for end in (wakeup, wakeup_end):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
        for caught in (signal.SIGCHLD, _STOP, _KILL):
            signal.signal(caught, lambda *_: None)
        ready, ready_end = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            signal.set_wakeup_fd(-1)  # before its pipe is closed: a signal may come in between
            for end in (wakeup, wakeup_end, ready, self.report, self.launcher.lifeline):
                os.close(end)
            _become(self.request, ready_end)
        os.close(ready_end)
        # Until then it has no group of its own and the keeper's signal handlers: a signal would be lost.
        os.read(ready, 1)
        os.close(ready)
        os.write(self.report, str(self.process).encode())
        os.close(self.report)
        return self._watch(wakeup)

    def _watch(self, wakeup: int) -> int:
        lifeline, deadline = [self.launcher.lifeline], None
        while True:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([wakeup, *lifeline], [], [], wait)
            signals = _drain(wakeup) if wakeup in ready else b""
            if _STOP in signals or self.launcher.lifeline in ready:
                self._signal(signal.SIGTERM)
            if self.launcher.lifeline in ready:
                lifeline, deadline = [], time.monotonic() + GRACE
            if _KILL in signals or (deadline is not None and time.monotonic() >= deadline):
                self._signal(signal.SIGKILL)
            for pid, code in _ended():
                if pid == self.process:
                    self._end_descendants()
                    return code

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process, number)

    def _end_descendants(self) -> None:
        """Kill whatever the process left behind."""
        self._signal(signal.SIGKILL)
        deadline = time.monotonic() + 5
        while LINUX and time.monotonic() < deadline:
            for orphan in _children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(orphan, signal.SIGKILL)
            try:
                # Each death hands its children to this subreaper: go on until nobody is left.
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.002)


def _become(request: dict[str, Any], ready: int) -> NoReturn:
    """Turn this fork into the requested process; close ready when it can take signals."""
    try:
        os.setsid()
        # Only if its keeper is killed on its own; everything else goes through the keeper.
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
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
        from podium.local import forkserver

        forkserver.run_module(request["module"], request["env"])
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
    """Reap; return each ended child with its exit code as a shell would give it."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(ended[1])
            found.append((ended[0], code if code >= 0 else 128 - code))
    return found


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def _drain(pipe: int) -> bytes:
    try:
        return os.read(pipe, 4096)
    except BlockingIOError:
        return b""


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    gc.disable()
    launcher = Launcher(channel)
    if modules := sys.argv[2:]:
        # A fork server has site packages; the plain launcher goes without to start sooner.
        from podium.local import forkserver

        if reason := forkserver.preload(modules):
            launcher.answer(unfit=reason)
            return
        launcher.answer(ready=True)
    launcher.serve()
    # Without the interpreter's farewell: preloaded libraries have nothing to save, but much to take apart.
    os._exit(0)


if __name__ == "__main__":
    main()

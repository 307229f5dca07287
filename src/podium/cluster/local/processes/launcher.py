"""A small single-threaded program that starts processes for its caller and kills them when the
caller is gone.

Run as a script. By itself it needs the standard library only and starts in about 30 ms. Three
generations::

    caller ──socket── launcher ──fork, socket── supervisor ──fork── the process, in a session of its
    own

When the socket to the caller closes, the launcher ends everything. A supervisor kills all its
descendants when its process ends or the launcher is gone. A supervisor whose process has ended runs
the next one, so a short process costs no more than a fork.

With modules to preload, the launcher is a fork server: it imports them once, and runs ``python -m``
in a fork of itself instead of a new interpreter. It refuses if an import started threads, since a
fork would not copy them.

Requests and answers are JSON, one per line: ``{"op": "start", "id": 1, "argv": […], "module": null,
"env": {…}, "cwd": "…", "log": "…"}`` is answered by ``{"id": 1, "pid": …}`` and, at the end,
``{"id": 1, "exit": 0}``; ``{"op": "stop" | "kill", "id": 1}`` sends SIGTERM or SIGKILL to the
process group. Supervisors get the same requests.
"""

import gc
import os
import signal
import socket
import sys
import time
from typing import Any

if sys.flags.no_site:
    sys.path.append(os.path.abspath(f"{__file__}/../../../../.."))

from podium.cluster.local.processes.process_supervisor import (
    GRACE,
    Channel,
    ProcessSupervisor,
    wait,
)
from podium.system.processes import exit_code, kill_session

IDLE = 4
"""Idle supervisors kept for the next processes: forking a server that holds torch takes 10 ms."""


class _Launcher:
    """Forwards requests from the caller to supervisors, and their answers back."""

    def __init__(self, end: socket.socket) -> None:
        self.caller = Channel(end)
        self.supervisors: dict[Channel, int] = {}
        self.busy: dict[Channel, int] = {}
        self.processes: dict[Channel, int] = {}
        """Process that each supervisor started last, which leads a session."""

        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)

    def serve(self) -> None:
        """Work until the caller closes its end, then stop all processes."""
        while True:
            ready = wait([self.caller, *self.supervisors])
            for channel in ready:
                if isinstance(channel, Channel) and channel is not self.caller:
                    self.hear(channel)
            if self.caller in ready:
                requests = self.caller.receive()
                if requests is None:
                    return self.shut_down()
                for request in requests:
                    self.handle(request)

    def handle(self, request: dict[str, Any]) -> None:
        if request["op"] == "start":
            try:
                supervisor = next(
                    (idle for idle in self.supervisors if idle not in self.busy), None
                )
                supervisor = supervisor or self.add_supervisor()
            except OSError as error:
                return self.caller.send(id=request["id"], error=str(error))
            self.busy[supervisor] = request["id"]
            return supervisor.send(**request)
        for supervisor, request_id in self.busy.items():
            if request_id == request["id"]:
                supervisor.send(**request)

    def add_supervisor(self) -> Channel:
        mine, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            for inherited in (
                mine,
                self.caller.socket,
                *(channel.socket for channel in self.supervisors),
            ):
                inherited.close()
            ProcessSupervisor(Channel(theirs)).run()
        theirs.close()
        channel = Channel(mine)
        self.supervisors[channel] = pid
        return channel

    def hear(self, supervisor: Channel) -> None:
        """Forward a supervisor's answers; if it was killed, its process died with it, and what
        that had started dies here."""
        answers = supervisor.receive()
        if answers is None:
            code = exit_code(os.waitpid(self.supervisors.pop(supervisor), 0)[1])
            supervisor.socket.close()
            answers = [{"exit": code}] if supervisor in self.busy else []
            if answers and supervisor in self.processes:
                kill_session(self.processes[supervisor])
            self.processes.pop(supervisor, None)
        for answer in answers:
            if "pid" in answer:
                self.processes[supervisor] = answer["pid"]
            self.caller.send(id=self.busy[supervisor], **answer)
            if "pid" not in answer:
                del self.busy[supervisor]
        idle = supervisor in self.supervisors and supervisor not in self.busy
        if idle and len(self.supervisors) - len(self.busy) > IDLE:
            supervisor.socket.close()
            os.waitpid(self.supervisors.pop(supervisor), 0)

    def shut_down(self) -> None:
        for supervisor in self.supervisors:
            supervisor.socket.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + GRACE + 5
        while self.supervisors and (left := deadline - time.monotonic()) > 0:
            for supervisor in wait(list(self.supervisors), left):
                self.hear(supervisor)


def main() -> None:
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)
    gc.disable()
    launcher = _Launcher(end)
    if modules := sys.argv[2:]:
        # A fork server has site packages; the plain launcher starts sooner without.
        from podium.cluster.local.processes import forkserver

        if reason := forkserver.preload(modules):
            return launcher.caller.send(unfit=reason)
        launcher.caller.send(ready=True)
    launcher.serve()
    # Skip the interpreter's shutdown: preloaded libraries have nothing to save, but much to tear
    # down.
    os._exit(0)


if __name__ == "__main__":
    main()

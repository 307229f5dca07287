"""A small single-threaded program that starts processes for another one, and lets none of them outlive it.

Run as a script; alone it uses the standard library only, so that it starts in some 30 ms. Three generations::

    caller ──socket── launcher ──fork, socket── keeper ──fork── the process, in a session of its own

The launcher ends everything when the socket to the caller closes, however that ended; a keeper ends everything below
it when its process has ended or the launcher has gone. A keeper whose process has ended takes the next one: a fork of
what has been preloaded is what a short process costs.

With modules to preload, the launcher imports them once, and a request for ``python -m`` runs in a fork of it instead
of a new interpreter: a fork server. It refuses to serve if an import started threads, since a fork would not copy
them.

Requests and answers are JSON, one a line: ``{"op": "start", "id": 1, "argv": […], "module": null, "env": {…},
"cwd": "…", "log": "…"}`` is answered by ``{"id": 1, "pid": …}`` and, at the end, ``{"id": 1, "exit": 0}``;
``{"op": "stop" | "kill", "id": 1}`` sends SIGTERM or SIGKILL to the process's group. Keepers get the same requests.
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

from podium.cluster.local.processes.process_supervisor import GRACE, Channel, Keeper, exit_code, wait

IDLE = 4
"""Keepers without a process that wait for the next one at most."""


class Launcher:
    """Passes requests from a socket on to keepers, and their answers back."""

    def __init__(self, end: socket.socket) -> None:
        self.caller = Channel(end)
        self.keepers: dict[Channel, int] = {}
        self.busy: dict[Channel, int] = {}
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)

    def serve(self) -> None:
        """Work until the caller closes its end, then stop what still runs."""
        while True:
            ready = wait([self.caller, *self.keepers])
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
                keeper = next((one for one in self.keepers if one not in self.busy), None) or self.add_keeper()
            except OSError as error:
                return self.caller.send(id=request["id"], error=str(error))
            self.busy[keeper] = request["id"]
            return keeper.send(**request)
        for keeper, known in self.busy.items():
            if known == request["id"]:
                keeper.send(**request)

    def add_keeper(self) -> Channel:
        mine, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            for one in (mine, self.caller.socket, *(keeper.socket for keeper in self.keepers)):
                one.close()
            Keeper(Channel(theirs)).run()
        theirs.close()
        channel = Channel(mine)
        self.keepers[channel] = pid
        return channel

    def hear(self, keeper: Channel) -> None:
        """Pass a keeper's answers on; one that was killed has taken its process with it."""
        answers = keeper.receive()
        if answers is None:
            code = exit_code(os.waitpid(self.keepers.pop(keeper), 0)[1])
            keeper.socket.close()
            answers = [{"exit": code}] if keeper in self.busy else []
        for answer in answers:
            self.caller.send(id=self.busy[keeper], **answer)
            if "pid" not in answer:
                del self.busy[keeper]
        if keeper in self.keepers and keeper not in self.busy and len(self.keepers) - len(self.busy) > IDLE:
            keeper.socket.close()
            os.waitpid(self.keepers.pop(keeper), 0)

    def shut_down(self) -> None:
        for keeper in self.keepers:
            keeper.socket.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + GRACE + 5
        while self.keepers and (left := deadline - time.monotonic()) > 0:
            for keeper in wait(list(self.keepers), left):
                self.hear(keeper)


def main() -> None:
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)
    gc.disable()
    launcher = Launcher(end)
    if modules := sys.argv[2:]:
        # A fork server has site packages; the plain launcher goes without to start sooner.
        from podium.cluster.local.processes import forkserver

        if reason := forkserver.preload(modules):
            return launcher.caller.send(unfit=reason)
        launcher.caller.send(ready=True)
    launcher.serve()
    # Without the interpreter's farewell: preloaded libraries have nothing to save, but much to take apart.
    os._exit(0)


if __name__ == "__main__":
    main()

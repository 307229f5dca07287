"""``python -m podium.code.kept FILE SOCKET``: call a function for one trial after another, as
podium.code.call does for one.

Each line of the socket is JSON, the call of a trial: its words, environment, directory and log. A
byte answers it if it ended well and left no thread or process; after any other end this process
ends, as that of the trial alone would have.
"""

import ctypes
import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
from typing import Any

from podium.code.call import main


def _serve(address: str) -> int:
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(address)
        with end.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                task = json.loads(line)
                _begin(task)
                if (code := main(task["words"])) or _goes_on():
                    return code
                end.sendall(b"\n")
    return 0


def _begin(task: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(task["env"])
    os.chdir(task["cwd"])
    sys.argv[1:] = task["words"]
    log = os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for output in (1, 2):
        os.dup2(log, output)
    os.close(log)
    signal.setitimer(signal.ITIMER_REAL, 0)  # of the trial before, as alarm sets one
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.seed()


def _goes_on() -> bool:
    """Write what the end of a process writes, and tell whether the trial left something running
    that only the end of its process waits for, or ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # of libraries that print by themselves
    return threading.active_count() > 1 or bool(multiprocessing.active_children())


if __name__ == "__main__":
    sys.exit(_serve(sys.argv[2]))

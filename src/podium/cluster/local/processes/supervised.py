"""``python -m podium.cluster.local.processes.supervised [--stdin] COMMAND…``: run it, and leave
nothing behind.

When the command ends, or stdin is closed because the caller is gone or has had enough, everything
that it started is killed, on Linux also what has begun a session of its own. It ends as the command
did. With --stdin the command reads what comes over stdin.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from podium.cluster.local.processes.process_supervisor import (
    adopt_orphans,
    exit_code,
    kill_children,
)


def main(words: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    reads = list(words[:1]) == ["--stdin"]
    words = words[reads:]
    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the caller gets them too, and closes stdin
    try:
        command = subprocess.Popen(
            words, stdin=subprocess.PIPE if reads else subprocess.DEVNULL, process_group=0
        )
    except OSError as error:
        print(f"error: {words[0]} cannot be started: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    threading.Thread(target=_kill_when_stdin_closes, args=(command,), daemon=True).start()
    # Not reaped yet, so that its number names no other process when its group is killed.
    os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
    _kill_group(command.pid)
    status = os.waitpid(command.pid, 0)[1]
    kill_children()
    return exit_code(status)


def _kill_when_stdin_closes(command: "subprocess.Popen[bytes]") -> None:
    while piece := os.read(0, 65536):
        if command.stdin:
            with suppress(BrokenPipeError):  # it reads no more, or has ended
                command.stdin.write(piece)
                command.stdin.flush()
    _kill_group(command.pid)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

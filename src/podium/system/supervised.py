"""``python -m podium.system.supervised [--stdin] COMMAND…``: run it, and leave nothing behind.

When the command ends, or stdin is closed because the caller is gone or has had enough, everything
that it started is killed, on Linux also what has begun a session of its own. It ends as the command
did. SIGTERM, SIGINT and SIGHUP go on to the command's process group, which may then end at leisure:
a shell is gone before the program that it ran. With --stdin the command reads what comes over
stdin.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

if sys.flags.no_site:  # run as a script, whatever the command's environment says of Python
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))

from podium.system.processes import (
    adopt_orphans,
    die_with_parent,
    exit_code,
    kill_children,
    kill_session,
    signal_group,
)


def _main(words: Sequence[str]) -> int:
    reads = list(words[:1]) == ["--stdin"]
    words = words[reads:]
    adopt_orphans()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it was ignored, no child can be awaited
    asked: list[int] = []
    _on_signals(asked.append)
    try:
        command = subprocess.Popen(
            words,
            stdin=subprocess.PIPE if reads else subprocess.DEVNULL,
            process_group=0,
            preexec_fn=die_with_parent,
        )
    except OSError as error:
        print(f"error: {words[0]} cannot be started: {error.strerror}", file=sys.stderr, flush=True)
        return 127

    def hand_on(number: int) -> None:
        asked.append(number)
        signal_group(command.pid, number)

    _on_signals(hand_on)
    for number in [*asked]:
        signal_group(command.pid, number)
    threading.Thread(target=_kill_when_stdin_closes, args=(command,), daemon=True).start()
    _wait(command.pid)
    if not asked:
        signal_group(command.pid, signal.SIGKILL)
    status = os.waitpid(command.pid, 0)[1]
    while asked and signal_group(command.pid, 0):
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)
    kill_children()
    return exit_code(status)


def _wait(process: int) -> None:
    """Wait for the end of a process, which is not reaped: its number names no other when its group
    is killed. A signal that comes just as the wait begins is handled within a second."""
    ended = threading.Event()

    def wait() -> None:
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ended.wait(1.0):
        pass


def outlived(supervisor: "subprocess.Popen[bytes]") -> "subprocess.Popen[bytes]":
    """See to it that a supervisor which leads a session, should it be killed, leaves nothing in
    it: by itself only the command dies with it, not what a shell has started."""

    def wait() -> None:
        try:
            how = os.waitid(os.P_PID, supervisor.pid, os.WEXITED | os.WNOWAIT)
            was_killed = bool(how and how.si_code != os.CLD_EXITED)
        except ChildProcessError:  # its end was read by who waits for it
            was_killed = supervisor.wait() < 0
        if was_killed:
            kill_session(supervisor.pid)

    threading.Thread(target=wait, daemon=True).start()
    return supervisor


def _kill_when_stdin_closes(command: "subprocess.Popen[bytes]") -> None:
    while piece := os.read(0, 65536):
        if command.stdin:
            with suppress(BrokenPipeError):  # it reads no more, or has ended
                command.stdin.write(piece)
                command.stdin.flush()
    signal_group(command.pid, signal.SIGKILL)


def _on_signals(act: Callable[[int], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: act(number))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))

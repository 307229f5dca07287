"""Orphans adopted and sessions killed, so that no process outlives who started it; standard
library only."""

import contextlib
import os
import signal
import sys
import time

LINUX = sys.platform == "linux"
DEADLY = frozenset({132, 134, 135, 136, 137, 139})
"""Exit codes of programs that did not end themselves: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL and
SIGSEGV of Linux."""

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36

if LINUX:
    import ctypes

    _libc = ctypes.CDLL(None)


def _prctl(option: int, value: int) -> None:
    if LINUX:
        _libc.prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, on Linux."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have this process killed when its parent is, on Linux."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group, 0 for none; return whether there is such a group."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        return False
    return True


def kill_children() -> None:
    """Kill all children of this process and, if it adopts orphans, all descendants, on Linux."""
    deadline = time.monotonic() + 5
    while LINUX and time.monotonic() < deadline:
        for orphan in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)
        try:
            # The children of each killed process pass to this subreaper: repeat until none is left.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def kill_session(leader: int) -> None:
    """Kill what is left of the session that a process led which is dead, on Linux."""
    deadline = time.monotonic() + 5
    while LINUX and time.monotonic() < deadline and (left := _session(leader)):
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.002)


def _session(leader: int) -> list[int]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            state, _, _, session, *_ = file.read().rpartition(b")")[2].split()
            if int(session) == leader and state not in (b"Z", b"X"):
                found.append(int(name))
    return found


def exit_code(status: int) -> int:
    """Return the exit code as a shell reports it: 128 and the number for a signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def killed_by(code: int) -> str | None:
    """Name the signal of an exit code as Popen or a shell gives it; None for any other code."""
    number = -code if code < 0 else code - 128
    if number not in set(signal.Signals):
        return None
    name = signal.Signals(number).name
    return f"{name}, by hand or as the memory was used up" if number == signal.SIGKILL else name


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]

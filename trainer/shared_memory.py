"""Memory that all processes of a training see, where they run on one machine, and in which they wait for each other."""

import mmap
import os
import platform
import secrets
import time
import weakref
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

import torch

from podium.trainer.world import TIMEOUT, PeerLost, World

with suppress(ImportError):  # not on Windows
    import fcntl

LINE = 64
"""Bytes that a processor moves at once: what each process writes while others look lies in a line of its own."""

WATCHFUL = 0.002
"""Seconds a process looks without pause whether the others have come."""

NAP = 0.0001
"""Seconds between two looks after that."""


class SharedMemory:
    """Memory that all processes see.

    Args:
        file: Number of the opened memory: a line that tells it from any other, a line for each process, the numbers.
            Each process holds the lock on the byte of its rank: whatever ends the process gives it back.
        world: The processes.

    Raises:
        OSError: The lock cannot be had.
    """

    def __init__(self, file: int, world: World) -> None:
        self.file, self.rank, self.size, self.meetings = file, world.rank, world.size, 0
        weakref.finalize(self, os.close, file)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, world.rank)
        self.shared, self.taken = mmap.mmap(file, 0), LINE * (1 + world.size)
        lines = memoryview(self.shared)[LINE : self.taken].cast("q")
        self.arrived = lines[:: LINE // 8]  # how many meetings each process has come to

    def take(self, count: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
        """Return the next so many numbers, up to four bytes each, as a storage of their own: torch saves whole ones."""
        begin, self.taken = self.taken, self.taken + 4 * count
        return torch.frombuffer(self.shared, dtype=kind, count=count, offset=begin)

    def meet(self) -> None:
        """Wait until all processes are here: then each reads what any of them wrote before.

        Not a message: that takes half a millisecond, and as its sender sleeps meanwhile and has threads that run beside
        it, up to a scheduler's slice (4 ms) longer where every core is at work.

        Raises:
            PeerLost: One of them is gone.
        """
        self.meetings += 1
        self.arrived[self.rank] = self.meetings  # after all writes before it, as every x86 processor promises
        for other in range(self.size):
            if self.arrived[other] < self.meetings:
                self._wait_for(other)

    def _wait_for(self, other: int) -> None:
        begin = time.monotonic()
        while self.arrived[other] < self.meetings:
            waited = time.monotonic() - begin
            if waited < WATCHFUL:
                os.sched_yield()  # the other one may need this very core
                continue
            time.sleep(NAP)
            is_lost = waited > TIMEOUT.total_seconds() or self._is_gone(other)
            if is_lost and self.arrived[other] < self.meetings:  # not before it was lost
                raise PeerLost.because(f"rank {other} has ended or does not answer")

    def _is_gone(self, other: int) -> bool:
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, other)
        except OSError:
            return False
        fcntl.lockf(self.file, fcntl.LOCK_UN, 1, other)
        return True


def allocate(world: World, count: int) -> SharedMemory | None:
    """Return memory that all processes share, or None in all of them if one cannot.

    Nothing can be left behind: the memory has no name, the system frees it when the last process ends. Only for
    processors that let others see writes in the order they were made (x86), which Python cannot ask others to do.

    Args:
        world: The processes; all of them have to call this.
        count: Numbers, zeros at first.
    """
    size = LINE * (1 + world.size) + 4 * count
    number = -1

    def make() -> tuple[int, int, bytes]:
        nonlocal number
        token = secrets.token_bytes(LINE)
        with suppress(OSError, AttributeError):  # not on every system, not always enough memory
            if platform.machine().lower() in ("x86_64", "amd64"):
                number = os.memfd_create("podium-training")
                os.posix_fallocate(number, 0, size)
                os.pwrite(number, token, 0)
        return os.getpid(), number, token

    memory = None
    try:
        file = _open(size, *world.from_first(make))
        everybody = world.all(file is not None)
    finally:
        if number >= 0:
            os.close(number)  # all who could have opened it by now; this gives locks back, too
    if file is not None and everybody:
        with suppress(OSError):
            memory = SharedMemory(file, world)
    elif file is not None:
        os.close(file)
    return memory if world.all(memory is not None) else None  # and nobody looks for locks before all have theirs


def _open(size: int, process: int, number: int, token: bytes) -> int | None:
    """Open another process's memory and return its number here.

    Returns:
        None if that process is elsewhere, where these numbers mean nothing or something else.
    """
    path = Path(f"/proc/{process}/fd/{number}")
    with suppress(OSError, ValueError):
        status = path.stat()
        if S_ISREG(status.st_mode) and status.st_size == size:
            file = os.open(path, os.O_RDWR)
            if os.pread(file, LINE, 0) == token:
                return file
            os.close(file)
    return None

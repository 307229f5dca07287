"""Liveness of processes: a lock on a file, which the kernel releases however its holder ends."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Lease:
    """A lock held as long as this process lives or until it is released."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._path = directory / self.name
        self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        """Let go and remove the file."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def is_held(path: Path) -> bool:
    """Return whether the holder of a lease is alive."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def drop_dead(directory: Path) -> None:
    """Remove the leases that killed processes left; to be called alone: a new one is not held for a
    moment."""
    for path in directory.glob("*"):
        if not is_held(path):
            path.unlink(missing_ok=True)


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold a directory's only lock, waiting for its current holder."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

"""Memory that all processes of a training see, where they run on one machine."""

import mmap
import os
import secrets
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

import torch
from torch import Tensor

from podium.trainer.world import World

TOKEN = 64
"""Bytes at the beginning that tell this memory from any other, a multiple of what vectors align to."""


def allocate(world: World, count: int) -> Tensor | None:
    """Return zeros that all processes share, or None in all of them if one cannot.

    Nothing can be left behind: the memory has no name, the system frees it when the last process ends.

    Args:
        world: The processes; all of them have to call this.
        count: Number of elements.

    Returns:
        float32 [count].
    """
    size = TOKEN + 4 * count
    file = -1

    def make() -> tuple[int, int, bytes]:
        nonlocal file
        token = secrets.token_bytes(TOKEN)
        with suppress(OSError, AttributeError):  # not on every system, not always enough memory
            file = os.memfd_create("podium-gradients")
            os.posix_fallocate(file, 0, size)
            os.pwrite(file, token, 0)
        return os.getpid(), file, token

    try:
        shared = _open(size, *world.from_first(make))
        everybody = world.all(shared is not None)
    finally:
        if file >= 0:
            os.close(file)  # all who could have opened it by now
    return torch.frombuffer(shared, dtype=torch.float32, offset=TOKEN) if shared and everybody else None


def _open(size: int, process: int, file: int, token: bytes) -> mmap.mmap | None:
    """Map another process's memory; None if it is elsewhere, where these numbers mean nothing or something else."""
    path = Path(f"/proc/{process}/fd/{file}")
    with suppress(OSError, ValueError):
        status = path.stat()
        if S_ISREG(status.st_mode) and status.st_size == size:
            with path.open("r+b") as opened:
                shared = mmap.mmap(opened.fileno(), size)
            if shared[:TOKEN] == token:
                return shared
    return None

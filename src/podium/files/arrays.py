"""Arrays as files: some that are written piece by piece, and some that anybody may have written."""

import errno
import io
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import Damaged
from podium.files.documents import foreign

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_UNPACKED, _FREE = 20, 16 << 20
"""Bytes that a byte of an archive may stand for, and bytes that any archive may hold."""


def new_map(path: Path, dtype: Any, shape: tuple[int, ...]) -> "NDArray[Any]":
    """Map a new ``.npy`` file for writing, whose room the disk has set aside: on a full one a write
    to the map would end the process.

    Raises:
        OSError: There is not as much room.
    """
    from numpy.lib.format import open_memmap

    array = open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            except OSError as error:  # a file system may set no room aside
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
    return array


def read_arrays(content: bytes, problem: str) -> "dict[str, NDArray[Any]]":
    """Read the arrays of an .npz; never a pickle, which could run any code, nor what takes far more
    memory than it has bytes.

    Args:
        problem: Names the file and says what it is not.

    Raises:
        Damaged: It is something else.
    """
    import numpy as np

    with foreign(problem, Damaged):
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            size = sum(entry.file_size for entry in packed.infolist())
        if size > max(_FREE, _MOST_UNPACKED * len(content)):
            raise ValueError(f"it has {len(content):,} bytes and takes {size:,} bytes unpacked")
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}

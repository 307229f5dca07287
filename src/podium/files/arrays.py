"""Arrays as files that are written piece by piece."""

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


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

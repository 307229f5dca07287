"""Moving large objects: parts in parallel, memory bounded by a few parts, broken connections resumed."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, TypeVar

from urllib3 import BaseHTTPResponse

from podium.errors import PodiumError
from podium.storage.base import Progress
from podium.storage.s3.errors import Interrupted

PART = 8 << 20
PARALLEL = 4
_CHUNK = 1 << 20
_ATTEMPTS = 3
_T = TypeVar("_T")

Open = Callable[[int, int], AbstractContextManager[BaseHTTPResponse]]
"""Opens a range of an object: first byte, number of bytes."""


def again(work: Callable[[], _T], *kinds: type[PodiumError]) -> _T:
    """Call work up to three times, again after each error of these kinds."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return work()
        except kinds:
            continue
    return work()


def download(opened: Open, size: int, target: Path, progress: Progress | None) -> None:
    """Write all parts of an object into a file, several at a time.

    Args:
        opened: Opens a range.
        size: Of the object, bytes.
        target: A file to create.
        progress: Told of every chunk.
    """
    with target.open("wb") as sink, ThreadPoolExecutor(PARALLEL) as pool:
        sink.truncate(size)
        parts = [
            pool.submit(_part, opened, start, min(start + PART, size), sink.fileno(), progress)
            for start in range(0, size, PART)
        ]
        try:
            for part in parts:
                part.result()
        finally:
            for part in parts:
                part.cancel()


def _part(opened: Open, start: int, end: int, sink: int, progress: Progress | None) -> None:
    """Write one part at its place; go on where a broken connection left off."""
    done = start

    def rest() -> None:
        nonlocal done
        if done == end:
            return
        with opened(done, end - done) as response:
            for chunk in response.stream(amt=_CHUNK):
                os.pwrite(sink, chunk, done)
                done += len(chunk)
                if progress:
                    progress(len(chunk))

    again(rest, Interrupted)


class Counted:
    """A file that tells how much was read of it."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        self._file, self._progress = file, progress

    def read(self, size: int = -1) -> bytes:
        """Read like the file."""
        chunk = self._file.read(size)
        self._progress(len(chunk))
        return chunk


def size_of(source: Path) -> int:
    """Return the size of a file in bytes."""
    try:
        return source.stat().st_size
    except OSError as error:
        raise PodiumError(f"cannot read {source}: {error.strerror}") from error

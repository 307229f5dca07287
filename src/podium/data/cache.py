"""Files of remote datasets on this machine, stored under their sha256: fetched once, shared by all
processes."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from podium.data.schema import FileInfo
from podium.errors import Damaged, PodiumError, file_hint
from podium.storage import connect
from podium.system.settings import Settings

_STALLED = 3600
"""Seconds without a byte after which a download is taken for one that was killed."""

_in_use: dict[tuple[int, int], int] = {}
"""Descriptor of each file that this process has fetched, by device and inode: locked until the
process ends."""


@dataclass(frozen=True, kw_only=True)
class _CachedFile:
    """A file in the cache, or what a download that was killed left of one."""

    path: Path
    bytes: int

    used: float
    """When it was last used, in seconds since the epoch."""


@dataclass(frozen=True, kw_only=True)
class ObjectCache:
    """A directory of files named after their sha256; those that were not used for longest make room
    for new ones.

    A file that a process has fetched stays until that process has ended: the process holds a shared
    lock on it. The files in use may therefore be more than the limit.
    """

    directory: Path

    limit: int
    """Bytes that it may hold."""

    @classmethod
    def of(cls, settings: Settings) -> "ObjectCache":
        """Return the cache that the settings name."""
        return cls(directory=settings.cache / "objects", limit=settings.cache_limit)

    def fetch(self, uri: str, file: FileInfo) -> Path:
        """Return the path of a remote file in the cache; download it if it is not there or damaged.

        Readers of the same file wait for one download. Whoever has mapped a file keeps its bytes,
        even if it is replaced.

        Args:
            uri: ``s3://`` or ``minio://`` prefix of the dataset.
            file: The file; its bytes are verified each time.

        Raises:
            NotFound: The dataset lacks the file.
            Damaged: What was downloaded does not match its checksum.
            PodiumError: The cache cannot be written.
        """
        path = self.directory / file.sha256
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with _locked(_lock_of(path)):
                if not path.exists() or not file.matches(path):
                    self.evict(self.limit - file.bytes)
                    _download(uri, file, path)
                _use(path)
        except OSError as error:
            hint = f"{file_hint(error) or 'check it'}; PODIUM_CACHE names another directory"
            where = self.directory.parent
            raise PodiumError(
                f"{uri}/{file.file} cannot be kept in {where}: {error.strerror or error}", hint
            ) from error
        return path

    def files(self) -> list[_CachedFile]:
        """Return what it holds, the least recently used first."""
        files = []
        for path in self.directory.iterdir() if self.directory.is_dir() else ():
            with suppress(FileNotFoundError):  # another process evicts too
                status = path.stat()
                # Another process may be downloading into a storage's own temporary file, which no
                # lock here covers.
                downloading = (
                    path.name.startswith(".podium-") and time.time() - status.st_mtime < _STALLED
                )
                if not path.name.endswith(".lock") and not downloading:
                    files.append(_CachedFile(path=path, bytes=status.st_size, used=status.st_mtime))
        return sorted(files, key=lambda file: file.used)

    def evict(self, limit: int) -> list[_CachedFile]:
        """Remove files, the least recently used first, until the rest has at most so many bytes;
        return them.

        Files that a process uses or downloads stay, and files that may not be removed.
        """
        files, removed = self.files(), []
        size = sum(file.bytes for file in files)
        for file in files:
            if size <= limit:
                break
            with suppress(OSError):
                if _remove(file.path):
                    removed.append(file)
                    size -= file.bytes
        return removed


def _download(uri: str, file: FileInfo, path: Path) -> None:
    draft = path.with_name(f".{file.sha256}.draft")
    try:
        connect(uri).fetch(file.file, draft)
        if not file.matches(draft):
            size = draft.stat().st_size
            raise Damaged(
                f"{uri}/{file.file} does not match its checksum ({size} of {file.bytes} bytes)",
                "upload the dataset again",
            )
        draft.chmod(0o444)  # trainings map it
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _use(path: Path) -> None:
    """Keep a file from being evicted while this process runs, and note that it was used now."""
    os.utime(path)
    descriptor = os.open(path, os.O_RDONLY)
    status = os.fstat(descriptor)
    if (status.st_dev, status.st_ino) in _in_use:
        os.close(descriptor)
        return
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    _in_use[status.st_dev, status.st_ino] = descriptor


def _remove(path: Path) -> bool:
    """Remove a file of the cache and its lock; return False if a process uses or downloads it.

    Raises:
        OSError: It may not be removed.
    """
    try:
        with _locked(_lock_of(path), wait=False), path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
            _lock_of(path).unlink()
    except BlockingIOError:
        return False
    return True


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name.removeprefix('.').removesuffix('.draft')}.lock")


@contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock, which the kernel gives up with the process.

    Raises:
        BlockingIOError: Another process holds it, and nobody waits.
    """
    while True:
        with path.open("wb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(path, stream.fileno()):
                continue  # it was removed with its file while this process waited
            yield
            return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False

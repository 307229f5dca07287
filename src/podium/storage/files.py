"""A directory as a storage.

Every write goes to a temporary file beside its target and is renamed: readers see the old object or the new one.
Writers of one directory queue on a lock on that directory, held for the check and the rename only, so conditions
hold between processes, and between hosts where the file system carries flock (NFS does, since Linux 2.6.12).
"""

import errno
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO
from urllib.parse import quote

from podium.errors import Conflict, NotFound, PodiumError
from podium.storage.base import Entry, Progress, Storage, check_key, check_prefix

_CHUNK = 1 << 20
_LOCK = ".podium.lock"
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class FileStorage(Storage):
    """Objects are files under one directory; a key is a relative path."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.url = f"file://{quote(os.fsencode(self.root))}".removesuffix("/")
        self._new = [one for one in (self.root, *self.root.parents) if not os.path.exists(one)]
        """What put makes and delete, once empty, takes away again; a directory that was there stays."""

    def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        progress: Progress | None = None,
    ) -> Entry:
        target = self._path(key)
        attempts = 100
        with _told(f"write {key}", self.url):
            while True:
                attempts -= 1
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    return self._write(key, target, source, if_absent, if_match, progress)
                except (FileNotFoundError, FileExistsError):
                    # A delete sweeps empty directories away, also between two steps of mkdir: once more.
                    if not attempts or (isinstance(source, Path) and not source.exists()):
                        raise

    def _write(
        self,
        key: str,
        target: Path,
        source: bytes | Path,
        if_absent: bool,
        if_match: str | None,
        progress: Progress | None,
    ) -> Entry:
        with scratch(target) as temporary:
            status = _fill(temporary, source, progress)
            with _locked(target.parent):
                _check(key, _entry(key, target), if_absent, if_match)
                os.replace(temporary, target)
        return _describe(key, status)

    def get(self, key: str) -> bytes:
        return self.read(key)[0]

    def read(self, key: str) -> tuple[bytes, Entry]:
        with self._open(key) as file:
            return file.read(), _describe(key, os.fstat(file.fileno()))

    def fetch(self, key: str, target: Path, *, progress: Progress | None = None) -> Entry:
        with self._open(key) as file, _told(f"fetch {key} to {target}", self.url):
            target.parent.mkdir(parents=True, exist_ok=True)
            with scratch(target) as temporary:
                with temporary.open("wb") as sink:
                    _copy(file, sink, progress)
                os.replace(temporary, target)
            return _describe(key, os.fstat(file.fileno()))

    def head(self, key: str) -> Entry | None:
        with _told(f"look at {key}", self.url):
            return _entry(key, self._path(key))

    def list(self, prefix: str = "") -> Iterator[Entry]:
        folder, _, start = check_prefix(prefix).rpartition("/")
        with _told(f"list {prefix}", self.url):
            yield from _walk(self.root / folder, f"{folder}/" if folder else "", start)

    def children(self, prefix: str) -> Iterator[str]:
        with _told(f"list {prefix}", self.url), suppress(*_ABSENT):
            found = os.scandir(self.root / check_prefix(prefix))
            with found:
                yield from sorted(item.name for item in found if item.is_dir() and not item.name.startswith(".podium"))

    def delete(self, key: str) -> None:
        target = self._path(key)
        with _told(f"delete {key}", self.url), suppress(*_ABSENT):
            with _locked(target.parent):
                target.unlink()
            with suppress(OSError):
                for parent in [*target.parents[: len(key.split("/")) - 1], *self._new]:
                    parent.rmdir()  # goes on upwards until a directory is not empty

    def conditions(self) -> str:
        return "a lock on the directory"

    def sweep(self, prefix: str, before: datetime, *, delete: bool) -> Iterator[Entry]:
        root = self.root / check_prefix(prefix)
        with _told(f"sweep {prefix}", self.url):
            for path in sorted(root.rglob(".podium-*.tmp")):
                entry = _entry(str(path.relative_to(self.root)), path)
                if entry and entry.modified < before:
                    if delete:
                        path.unlink(missing_ok=True)
                    yield entry

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    @contextmanager
    def _open(self, key: str) -> Iterator[IO[bytes]]:
        try:
            file = self._path(key).open("rb")
        except _ABSENT:
            raise NotFound(f"there is no {key} in {self.url}") from None
        except OSError as error:
            raise _translated(f"read {key}", self.url, error) from error
        with file, _told(f"read {key}", self.url):
            yield file


@contextmanager
def scratch(target: Path) -> Iterator[Path]:
    """Yield a name beside target for what will be renamed over it; removed if it is still there at the end."""
    temporary = target.with_name(f".podium-{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _fill(temporary: Path, source: bytes | Path, progress: Progress | None) -> os.stat_result:
    with temporary.open("xb") as sink:
        if isinstance(source, bytes):
            sink.write(source)
            if progress:
                progress(len(source))
        else:
            with source.open("rb") as file:
                _copy(file, sink, progress)
        sink.flush()
        os.fsync(sink.fileno())
        # The kernel stamps files with its tick (some ms); two versions could share inode, size and stamp.
        now = time.time_ns()
        os.utime(sink.fileno(), ns=(now, now))
        return os.fstat(sink.fileno())


def _copy(source: IO[bytes], sink: IO[bytes], progress: Progress | None) -> None:
    if progress is None:
        shutil.copyfileobj(source, sink, _CHUNK)
        return
    while chunk := source.read(_CHUNK):
        sink.write(chunk)
        progress(len(chunk))


def _check(key: str, present: Entry | None, if_absent: bool, if_match: str | None) -> None:
    if if_absent and present is not None:
        raise Conflict(f"{key} must not exist yet, but it does")
    if if_match is not None and (present is None or present.etag != if_match):
        raise Conflict(f"{key} must not have changed since it was read, but {'it did' if present else 'it is gone'}")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock on a directory. The kernel drops it when the process dies."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOTSUP):
                raise
            os.close(handle)  # NFS locks only what is open for writing, and a directory never is
            handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _entry(key: str, path: Path) -> Entry | None:
    try:
        status = path.stat()
    except _ABSENT:
        return None
    return None if os.path.isdir(path) else _describe(key, status)


def _describe(key: str, status: os.stat_result) -> Entry:
    return Entry(
        key=key,
        size=status.st_size,
        etag=f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}",
        modified=datetime.fromtimestamp(status.st_mtime_ns / 1e9, UTC),
    )


def _walk(directory: Path, folder: str, start: str) -> Iterator[Entry]:
    """Yield the files below directory whose first part begins with start; sorted by the whole key."""
    try:
        with os.scandir(directory) as found:
            items = [item for item in found if item.name.startswith(start) and not item.name.startswith(".podium")]
    except _ABSENT:
        return
    # "a-b" sorts before "a/b" in a bucket, so a directory takes part with its slash.
    for name, item in sorted((f"{item.name}/" if item.is_dir() else item.name, item) for item in items):
        if name.endswith("/"):
            yield from _walk(directory / item.name, folder + name, "")
        else:
            with suppress(FileNotFoundError):  # deleted while we look
                yield _describe(folder + name, item.stat())


@contextmanager
def _told(what: str, url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translated(what, url, error) from error


def _translated(what: str, url: str, error: OSError) -> PodiumError:
    hints = {
        errno.ENOSPC: "the disk is full; nothing half-written was left",
        errno.EDQUOT: "the quota is used up; nothing half-written was left",
        errno.EACCES: "check the permissions of that directory",
        errno.EROFS: "choose a directory that can be written",
        errno.EEXIST: "a key cannot lie below another object's key",
        errno.ENOTDIR: "a key cannot lie below another object's key",
        errno.EISDIR: "other objects lie below this key",
    }
    return PodiumError(f"cannot {what} in {url}: {error.strerror or error}", hints.get(error.errno or 0))

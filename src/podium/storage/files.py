"""A directory as a storage.

Every write goes to a temporary file beside its target and is renamed: readers see the old object or
the new one. Writers take a lock on the directory for the check and the rename only, so conditions
hold between processes, and between hosts where the file system supports flock (NFS does, since
Linux 2.6.12).

Symbolic links below the root are never followed: who can write into a store must not be able to
make podium read, overwrite or delete files outside of it.
"""

import errno
import fcntl
import logging
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO
from urllib.parse import quote

from podium.errors import Conflict, Damaged, NotFound, PodiumError, file_hint
from podium.files.drafts import appearing
from podium.storage.base import Entry, Progress, Storage, check_key, check_prefix

_CHUNK = 1 << 20
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_Fill = Callable[[IO[bytes]], None]
"""Writes the bytes of an object to a new file."""

_log = logging.getLogger("podium")


class FileStorage(Storage):
    """Objects are files under one directory; a key is a relative path."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.url = f"file://{quote(os.fsencode(self.root))}".removesuffix("/")
        self._new = [
            folder for folder in (self.root, *self.root.parents) if not os.path.exists(folder)
        ]
        """Directories that put creates and delete removes once they are empty; existing ones
        stay."""
        self._reported: set[str] = set()

    def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        progress: Progress | None = None,
    ) -> Entry:
        def fill(sink: IO[bytes]) -> None:
            if isinstance(source, Path):
                with source.open("rb") as file:
                    _copy(file, sink, progress)
            else:
                sink.write(source)
                if progress:
                    progress(len(source))

        return self._put(key, fill, if_absent, if_match)

    def copy(
        self,
        key: str,
        source: Storage,
        source_key: str,
        *,
        if_absent: bool = False,
        source_etag: str | None = None,
    ) -> Entry:
        if not isinstance(source, FileStorage):
            return super().copy(
                key, source, source_key, if_absent=if_absent, source_etag=source_etag
            )

        def fill(sink: IO[bytes]) -> None:
            # A copy, no hard link: a trainer that writes its file in place would change both.
            with source._open(source_key) as file:
                _copy(file, sink, None)
                _describe(source_key, os.fstat(file.fileno())).require_etag(source_etag)

        return self._put(key, fill, if_absent, None)

    def _put(self, key: str, fill: _Fill, if_absent: bool, if_match: str | None) -> Entry:
        *folders, name = check_key(key).split("/")
        attempts = 100
        with _translated(f"write {key}", self.url):
            while True:
                attempts -= 1
                try:
                    with _open_folders(self.root, folders, create=True) as handles:
                        return _write(handles[-1], name, key, fill, if_absent, if_match)
                except FileNotFoundError:
                    # A concurrent delete may have removed a directory that became empty: try again.
                    if not attempts:
                        raise

    def read(self, key: str, *, limit: int | None = None) -> tuple[bytes, Entry]:
        with self._open(key) as file:
            return file.read(-1 if limit is None else limit), _describe(
                key, os.fstat(file.fileno())
            )

    def fetch(self, key: str, target: Path, *, progress: Progress | None = None) -> Entry:
        with self._open(key) as file, _translated(f"fetch {key} to {target}", self.url):
            target.parent.mkdir(parents=True, exist_ok=True)
            with appearing(target) as draft, draft.open("wb") as sink:
                _copy(file, sink, progress)
            return _describe(key, os.fstat(file.fileno()))

    def head(self, key: str) -> Entry | None:
        *folders, name = check_key(key).split("/")
        with (
            _translated(f"look at {key}", self.url),
            suppress(*_ABSENT),
            _open_folders(self.root, folders) as handles,
        ):
            return _entry(key, name, handles[-1])
        return None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        for key, entry in self._walk(prefix):
            if entry:
                yield entry
            else:
                self._report(key)

    def links(self, prefix: str = "") -> Iterator[str]:
        for key, entry in self._walk(prefix):
            if entry is None:
                yield key

    def children(self, prefix: str) -> Iterator[str]:
        with (
            self._looking(f"list {prefix}", prefix),
            _open_folders(self.root, _parts(prefix)) as handles,
        ):
            with os.scandir(handles[-1]) as scan:
                items = sorted(
                    (item.name, item.is_dir(follow_symlinks=False), item.is_symlink())
                    for item in scan
                )
            for name, is_folder, is_link in items:
                if is_link:
                    self._report(f"{prefix}/{name}")
                elif is_folder and not name.startswith(".podium"):
                    yield name

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        *folders, name = check_key(key).split("/")
        with (
            _translated(f"delete {key}", self.url),
            suppress(*_ABSENT),
            _open_folders(self.root, folders) as handles,
        ):
            with _locked(handles[-1]):
                if if_match is not None and (present := _entry(key, name, handles[-1])):
                    _check(key, present, False, if_match)
                os.unlink(name, dir_fd=handles[-1])
            with suppress(OSError):
                for folder, above in zip(reversed(folders), reversed(handles[:-1]), strict=True):
                    os.rmdir(folder, dir_fd=above)  # stops at the first directory that is not empty
                for parent in self._new:
                    parent.rmdir()

    def conditions(self) -> str:
        return "a lock on the directory"

    def sweep(self, prefix: str, before: datetime, *, delete: bool) -> Iterator[Entry]:
        with (
            self._looking(f"sweep {prefix}", prefix),
            _open_folders(self.root, _parts(prefix)) as handles,
        ):
            for folder, folders, names, handle in os.fwalk(
                ".", dir_fd=handles[-1]
            ):  # does not follow links
                folders.sort()
                for name in sorted(names):
                    if not (name.startswith(".podium-") and name.endswith(".tmp")):
                        continue
                    with suppress(FileNotFoundError, Damaged):
                        entry = _entry(os.path.normpath(f"{prefix}/{folder}/{name}"), name, handle)
                        if entry and entry.modified < before:
                            if delete:
                                os.unlink(name, dir_fd=handle)
                            yield entry

    def _walk(self, prefix: str) -> Iterator[tuple[str, Entry | None]]:
        """Yield keys and their entries, in key order; None for a link or another special file."""
        folder, _, start = check_prefix(prefix).rpartition("/")
        with _translated(f"list {prefix}", self.url), suppress(*_ABSENT):
            try:
                with _open_folders(self.root, _parts(folder)) as handles:
                    yield from _walk(handles[-1], f"{folder}/" if folder else "", start)
            except Damaged:
                yield folder, None

    @contextmanager
    def _looking(self, action: str, prefix: str) -> Iterator[None]:
        """Treat a prefix that does not exist, or that is a link, as empty."""
        try:
            with _translated(action, self.url), suppress(*_ABSENT):
                yield
        except Damaged:
            self._report(prefix)

    def _report(self, key: str) -> None:
        if key not in self._reported:
            self._reported.add(key)
            _log.warning(
                "%a in %s is a symbolic link or a special file, and is skipped: %s",
                key,
                self.url,
                _LINK_HINT,
            )

    @contextmanager
    def _open(self, key: str) -> Iterator[IO[bytes]]:
        *folders, name = check_key(key).split("/")
        try:
            with _open_folders(self.root, folders) as handles:
                file = os.fdopen(_open_regular(name, handles[-1]), "rb")
        except _ABSENT:
            raise NotFound(f"there is no {key} in {self.url}") from None
        except OSError as error:
            raise _from_os(f"read {key}", self.url, error) from error
        with file, _translated(f"read {key}", self.url):
            yield file


def _write(
    folder: int, name: str, key: str, fill: _Fill, if_absent: bool, if_match: str | None
) -> Entry:
    temporary = f".podium-{uuid.uuid4().hex}.tmp"
    try:
        status = _filled(temporary, folder, fill)
        with _locked(folder):
            _check(key, _entry(key, name, folder), if_absent, if_match)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
    _sync(folder)
    return _describe(key, status)


def _filled(temporary: str, folder: int, fill: _Fill) -> os.stat_result:
    def create(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=folder)

    with open(temporary, "xb", opener=create) as sink:
        fill(sink)
        sink.flush()
        os.fsync(sink.fileno())
        # The kernel's timestamps have a resolution of some ms; two versions could share inode, size
        # and time.
        now = time.time_ns()
        os.utime(sink.fileno(), ns=(now, now))
        return os.fstat(sink.fileno())


def _copy(source: IO[bytes], sink: IO[bytes], progress: Progress | None) -> None:
    if progress is None:
        with suppress(OSError, AttributeError):  # some file systems cannot, nor can macOS
            while os.copy_file_range(source.fileno(), sink.fileno(), 1 << 30):
                pass
        shutil.copyfileobj(source, sink, _CHUNK)  # what the kernel has left
        return
    while chunk := source.read(_CHUNK):
        sink.write(chunk)
        progress(len(chunk))


def _check(key: str, present: Entry | None, if_absent: bool, if_match: str | None) -> None:
    if if_absent and present is not None:
        raise Conflict(f"{key} exists already")
    if if_match is not None and (present is None or present.etag != if_match):
        raise Conflict(f"{key} was {'changed' if present else 'deleted'} after it was read")


def _entry(key: str, name: str, folder: int) -> Entry | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except _ABSENT:
        return None
    _refuse_special(key, status)
    return None if stat.S_ISDIR(status.st_mode) else _describe(key, status)


def _describe(key: str, status: os.stat_result) -> Entry:
    return Entry(
        key=key,
        size=status.st_size,
        etag=f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}",
        modified=datetime.fromtimestamp(status.st_mtime_ns / 1e9, UTC),
    )


def _parts(prefix: str) -> list[str]:
    return [part for part in check_prefix(prefix).split("/") if part]


def _walk(handle: int, folder: str, start: str) -> Iterator[tuple[str, Entry | None]]:
    """Yield what an open directory holds whose name begins with start, sorted by the whole key."""
    with os.scandir(handle) as scan:
        # "a-b" sorts before "a/b" in a bucket, so a directory is sorted with its slash.
        names = sorted(
            f"{item.name}/" if item.is_dir(follow_symlinks=False) else item.name
            for item in scan
            if item.name.startswith(start) and not item.name.startswith(".podium")
        )
    for name in names:
        with suppress(*_ABSENT):  # deleted meanwhile
            try:
                if name.endswith("/"):
                    with _open_folder(name[:-1], handle) as inner:
                        yield from _walk(inner, folder + name, "")
                elif entry := _entry(folder + name, name, handle):
                    yield folder + name, entry
            except Damaged:
                yield folder + name.removesuffix("/"), None


@contextmanager
def _translated(action: str, url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _from_os(action, url, error) from error


def _from_os(action: str, url: str, error: OSError) -> PodiumError:
    hints = {
        errno.ENOSPC: "the disk is full; no partial object was left",
        errno.EDQUOT: "the quota is used up; no partial object was left",
        errno.EACCES: "check the permissions of that directory",
        errno.EPERM: "check the owner and the permissions of that directory",
        errno.EEXIST: "a key cannot be below another object's key",
        errno.ENOTDIR: "a key cannot be below another object's key",
        errno.EISDIR: "there are objects below this key",
    }
    return PodiumError(
        f"cannot {action} in {url}: {error.strerror or error}",
        hints.get(error.errno or 0) or file_hint(error),
    )


_LINK_HINT = "storages never follow links; put the file itself there, or open the link's target as a storage of its own"
_LOCK = ".podium.lock"


@contextmanager
def _open_folders(
    root: Path, folders: Sequence[str], *, create: bool = False
) -> Iterator[Sequence[int]]:
    """Open the root and the directories below it one by one, so that none of them can be a symbolic
    link.

    The root itself may be a link: it was chosen by the user.

    Raises:
        FileNotFoundError: A directory does not exist.
        NotADirectoryError: One of them is a file.
        Damaged: One of them is a symbolic link.
    """
    with ExitStack() as stack:
        if create:
            _make_root(root)
        handles = [stack.enter_context(_closing(os.open(root, os.O_RDONLY | os.O_DIRECTORY)))]
        for folder in folders:
            if create:
                _make_folder(folder, handles[-1])
            handles.append(stack.enter_context(_open_folder(folder, handles[-1])))
        yield handles


def _open_folder(name: str, above: int) -> AbstractContextManager[int]:
    """Open a directory in an open one; raises like _open_folders."""
    try:
        return _closing(os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above))
    except OSError:
        _refuse_special(name, os.stat(name, dir_fd=above, follow_symlinks=False))
        raise


def _open_regular(name: str, folder: int) -> int:
    """Open a file without following links or blocking on a pipe."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        _refuse_special(name, os.stat(name, dir_fd=folder, follow_symlinks=False))
        raise
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode):
        return handle
    os.close(handle)
    _refuse_special(name, status)
    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def _refuse_special(name: str, status: os.stat_result) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a special file"
        raise Damaged(f"{name!r} is {kind}", _LINK_HINT)


@contextmanager
def _locked(folder: int) -> Iterator[None]:
    """Hold the lock on an open directory. The kernel drops it when the process dies."""
    with ExitStack() as stack:
        held = folder
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOTSUP):
                raise
            # NFS locks only files that are open for writing, and directories never are.
            lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666, dir_fd=folder)
            held = stack.enter_context(_closing(lock))
            fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(held, fcntl.LOCK_UN)


def _make_root(root: Path) -> None:
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    root.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        with _closing(os.open(folder.parent, os.O_RDONLY)) as above:
            _sync(above)


def _make_folder(name: str, above: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=above)
        _sync(above)


def _sync(folder: int) -> None:
    """Flush a directory's entries to disk, as the fsync of a file does for its bytes."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (
            errno.EINVAL,
            errno.ENOTSUP,
        ):  # some network file systems do not support it
            raise


@contextmanager
def _closing(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)

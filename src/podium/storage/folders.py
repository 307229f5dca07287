"""Directories opened one below the other, so that no symbolic link is ever followed on the way to a
file."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from podium.errors import Damaged

LINK_HINT = "storages never follow links; put the file itself there, or open the link's target as a storage of its own"
_LOCK = ".podium.lock"


@contextmanager
def open_folders(
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
            handles.append(stack.enter_context(open_folder(folder, handles[-1])))
        yield handles


def open_folder(name: str, above: int) -> AbstractContextManager[int]:
    """Open a directory in an open one; raises like open_folders."""
    try:
        return _closing(os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above))
    except OSError:
        refuse_special(name, os.stat(name, dir_fd=above, follow_symlinks=False))
        raise


def open_regular(name: str, folder: int) -> int:
    """Open a file without following links or blocking on a pipe."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        refuse_special(name, os.stat(name, dir_fd=folder, follow_symlinks=False))
        raise
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode):
        return handle
    os.close(handle)
    refuse_special(name, status)
    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def refuse_special(name: str, status: os.stat_result) -> None:
    """Raise Damaged unless it is a file or a directory."""
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a special file"
        raise Damaged(f"{name!r} is {kind}", LINK_HINT)


@contextmanager
def locked(folder: int) -> Iterator[None]:
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
            sync(above)


def _make_folder(name: str, above: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=above)
        sync(above)


def sync(folder: int) -> None:
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

"""Files of remote datasets on this machine, stored under their sha256: fetched once, shared by all processes."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podium.data.schema import FileInfo
from podium.errors import Damaged, PodiumError


def matches(path: Path, file: FileInfo) -> bool:
    """Return whether a file's bytes are those described, reading them once.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as stream:
        return os.fstat(stream.fileno()).st_size == file.bytes and (
            hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
        )


def fetch_file(uri: str, file: FileInfo, cache: Path) -> Path:
    """Return the path of a remote file in the cache; download it if it is not there or damaged.

    Readers of the same file wait for one download. Whoever has mapped a file keeps its bytes, even if it is replaced.

    Args:
        uri: ``s3://`` or ``minio://`` prefix of the dataset.
        file: The file; its bytes are verified each time.
        cache: Directory of the cache.

    Raises:
        NotFound: The dataset lacks the file.
        Damaged: What was downloaded does not match its checksum.
        PodiumError: The cache cannot be written.
    """
    path = cache / "objects" / file.sha256
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_name(f".{file.sha256}.lock")):
            if not path.exists() or not matches(path, file):
                _download(uri, file, path)
    except OSError as error:
        hint = "free some space, or name another directory: PODIUM_CACHE"
        raise PodiumError(f"{uri}/{file.file} cannot be kept in {cache}: {error.strerror or error}", hint) from error
    return path


def _download(uri: str, file: FileInfo, path: Path) -> None:
    from podium.storage import connect

    draft = path.with_name(f".{file.sha256}.draft")
    try:
        connect(uri).fetch(file.file, draft)
        if not matches(draft, file):
            size = draft.stat().st_size
            raise Damaged(f"{uri}/{file.file} does not match its checksum ({size} of {file.bytes} bytes)",
                          "upload the dataset again")  # fmt: skip
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, which the kernel gives up with the process."""
    with path.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield

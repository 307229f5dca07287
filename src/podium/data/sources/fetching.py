"""Files and folders of a source on this machine: where they are, or copied there from a storage."""

from pathlib import Path

from podium.errors import InvalidInput, NotFound
from podium.storage import connect, local_path, transfer


def is_small(path: Path, most: int) -> bool:
    """Return whether a file, or all files below a folder, have at most so many bytes; a large
    folder is not walked."""
    total = 0
    for file in filter(Path.is_file, [path] if path.is_file() else path.rglob("*")):
        total += file.stat().st_size
        if total > most:
            return False
    return True


def fetch_file(location: str, scratch: Path) -> Path:
    """Return the path of a file; a remote one is copied.

    Args:
        location: Path, ``file://``, ``s3://`` or ``minio://``.

    Raises:
        NotFound: There is no such file.
    """
    path = local_path(location)
    if path is not None:
        if not path.exists():
            raise NotFound(f"there is no file {location}")
        return path
    above, _, name = location.rstrip("/").rpartition("/")
    copy = scratch / "source" / name
    connect(above).fetch(name, copy)
    return copy


def fetch_folder(location: str, scratch: Path) -> Path:
    """Return the path of a folder; the objects under a remote prefix are copied.

    Args:
        location: Path, ``file://``, ``s3://`` or ``minio://``.

    Raises:
        NotFound: There is no such folder, or no object under the prefix.
        InvalidInput: It is a file.
    """
    path = local_path(location)
    if path is not None:
        if not path.exists():
            raise NotFound(f"there is no folder {location}")
        if not path.is_dir():
            raise InvalidInput(
                f"{location} is a file, not a folder", "a single table is table:FILE"
            )
        return path
    transfer.get(connect(location), scratch / "source")
    return scratch / "source"

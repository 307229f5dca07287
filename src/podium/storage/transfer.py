"""Copy files and directories into a storage and out of it."""

from collections.abc import Iterator
from pathlib import Path

from podium.errors import Conflict, InvalidInput, NotFound
from podium.storage.base import Entry, Progress, Storage, check_key

_LAST = ("dataset.json", "metrics.json")
"""Files that mark a directory as complete; they are copied last."""

_FIRST = "model.json"
"""A model's document names other objects, which are there before it names them: they are listed
after it was copied out."""


def put(
    source: Path,
    storage: Storage,
    *,
    name: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[Entry]:
    """Copy a file, or a directory with all it holds, into a storage.

    Args:
        source: A file, or a directory, whose content goes directly below the storage's URL.
        name: The copy's name if the source is a file; its own if None.
        overwrite: Replace objects that are there; else they are refused before anything is copied.

    Raises:
        NotFound: The directory is empty.
        InvalidInput: There is no such file or directory, or it holds a symbolic link or a name that
            no storage takes.
        Conflict: An object is there already; nothing was copied.
    """
    files = {name: source} if name and source.is_file() else dict(_files(source))
    if not files:
        raise NotFound(f"there is nothing to copy in {source}")
    for key in files:
        check_key(key)
    if not overwrite:
        for key in files:
            if storage.head(key):
                raise Conflict(f"{storage.join(key)} exists already", "--overwrite replaces it")
    return [storage.put(key, files[key], progress=progress) for key in sorted(files, key=_order)]


def get(storage: Storage, target: Path, *, progress: Progress | None = None) -> list[Entry]:
    """Copy everything below a storage's URL into a directory.

    Raises:
        NotFound: There is nothing.
        Conflict: A file is there already; nothing was copied.
    """
    keys = [entry.key for entry in storage.list()]
    if not keys:
        raise NotFound(f"there is nothing under {storage.url}")
    for key in keys:
        if (target / key).exists():
            raise Conflict(f"{target / key} exists already", "name another directory")
    first = [key for key in keys if key.rpartition("/")[2] == _FIRST]
    copied = [storage.fetch(key, target / key, progress=progress) for key in first]
    others = {entry.key for entry in storage.list()} - set(first) if first else keys
    rest = sorted(others, key=_order)
    return copied + [storage.fetch(key, target / key, progress=progress) for key in rest]


def bytes_in(source: Path) -> int:
    """Return the size of a file, or of all files in a directory.

    Raises:
        InvalidInput: As put.
    """
    return sum(path.stat().st_size for _, path in _files(source))


def _order(key: str) -> tuple[bool, str]:
    return key in _LAST, key


def _files(source: Path) -> Iterator[tuple[str, Path]]:
    if not source.exists():
        raise InvalidInput(f"there is no file or directory {source}")
    if source.is_file():
        yield source.name, source
        return
    for path in sorted(source.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise InvalidInput(
                f"{path} is a symbolic link or a special file",
                "copy what it points to in its place",
            )
        if path.is_file():
            yield path.relative_to(source).as_posix(), path

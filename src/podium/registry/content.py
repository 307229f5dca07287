"""Reading versions: every byte is checked against the sha256 recorded for it."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from podium.errors import Damaged, NotFound, require
from podium.registry import index, pointer
from podium.registry.document import check_name, sha256_of
from podium.registry.version import Version, load
from podium.storage import Storage
from podium.storage.base import Progress


def whole(storage: Storage, name: str, version: str) -> Version:
    """Return a complete version.

    Raises:
        NotFound: There is none; the hint names what there is.
    """
    found = load(storage, check_name("model name", name), check_name("version", version))
    if found is not None:
        return found
    there = [one.version for one in index.listing(storage, name)]
    named = f"versions: {', '.join(there[-5:])}; aliases: {', '.join(pointer.aliases(storage, name)) or 'none'}"
    models = f"models there: {', '.join(storage.children('models')) or 'none'}"
    raise NotFound(f"{storage.url} must hold {version} of model {name}, but does not", named if there else models)


def require_part(version: Version, file: str) -> None:
    """Raise InvalidInput unless the file belongs to the version."""
    require(file in version.files, "the file is part of the version", file=file, files=sorted(version.files))


def read(storage: Storage, version: Version, file: str) -> bytes:
    """Return the verified bytes of one file."""
    try:
        content = storage.get(f"{version.prefix}/{file}")
    except NotFound as error:
        raise _missing(storage, version, file) from error
    _check(storage, version, file, sha256_of(content))
    return content


def fetch(storage: Storage, version: Version, file: str, target: Path, progress: Progress | None = None) -> None:
    """Download one file and verify it; the caller throws target away if that fails."""
    try:
        storage.fetch(f"{version.prefix}/{file}", target, progress=progress)
    except NotFound as error:
        raise _missing(storage, version, file) from error
    _check(storage, version, file, sha256_of(target))


def verify(storage: Storage, version: Version, file: str) -> None:
    """Read one file for nothing but its checksum.

    Raises:
        Damaged: It is missing or differs from what was uploaded.
    """
    with tempfile.TemporaryDirectory(prefix="podium-") as directory:
        fetch(storage, version, file, Path(directory) / "file")


def verify_files(storage: Storage, version: Version) -> None:
    """Read every file of a version for nothing but its checksum.

    Raises:
        Damaged: One is missing or differs from what was uploaded.
    """
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda file: verify(storage, version, file), version.files):
            pass


def stored_sha256(storage: Storage, key: str) -> str:
    """Compute the sha256 of an object; it passes through a temporary file, never through memory.

    Raises:
        NotFound: It is not there.
    """
    with tempfile.TemporaryDirectory(prefix="podium-") as directory:
        target = Path(directory) / "object"
        storage.fetch(key, target)
        return sha256_of(target)[0]


def _missing(storage: Storage, version: Version, file: str) -> Damaged:
    return Damaged(
        f"{storage.join(version.prefix)}/{file} must be there, but is missing",
        f"restore the file from a backup, or leave this champion: podium models rollback {version.name} [--to VERSION]",
    )


def _check(storage: Storage, version: Version, file: str, seen: tuple[str, int]) -> None:
    record = version.files[file]
    if seen == (record.sha256, record.size):
        return
    raise Damaged(
        f"{storage.join(version.prefix)}/{file} must have sha256 {record.sha256} and {record.size} bytes, "
        f"but has {seen[0]} and {seen[1]} bytes",
        f"restore the file from a backup, or leave this champion: podium models rollback {version.name} [--to VERSION]",
    )

"""The versions of a model in storage: their metadata and their files."""

import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from podium.errors import Damaged, NotFound
from podium.models.document import MAX_BYTES, is_name, sha256_of, warn_once
from podium.models.version import METADATA, Tombstone, Version, parse_metadata
from podium.storage import Entry, Storage
from podium.storage.base import Progress


class Catalog:
    """The objects below ``models/<name>/versions/``."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage = storage
        self.name = name

    def prefix(self, version: str) -> str:
        """Return the key prefix of a version, without a trailing slash."""
        return f"models/{self.name}/versions/{version}"

    def metadata_key(self, version: str) -> str:
        """Return the key of a version's metadata.json."""
        return f"{self.prefix(version)}/{METADATA}"

    def names(self) -> list[str]:
        """Return the names of all versions, complete or not."""
        return names_below(self.storage, f"models/{self.name}/versions")

    def entries(self, version: str) -> list[Entry]:
        """Return all objects of a version."""
        return list(self.storage.list(f"{self.prefix(version)}/"))

    def look(self, version: str) -> tuple[Version | Tombstone | None, Entry | None]:
        """Read metadata.json, or the tombstone in its place, with its etag; (None, None) if there
        is neither.

        Raises:
            Damaged: It cannot be read.
        """
        key = self.metadata_key(version)
        try:
            content, entry = self.storage.read(key, limit=MAX_BYTES + 1)
        except NotFound:
            return None, None
        return parse_metadata(content, self, version), entry

    def look_many(
        self, versions: Iterable[str]
    ) -> Iterator[tuple[str, Version | Tombstone | Damaged | None]]:
        """Read the metadata.json of many versions; yield what was read, or why it cannot be, by
        version."""
        versions = list(versions)
        keys = [self.metadata_key(version) for version in versions]
        for version, (_, content) in zip(
            versions, self.storage.get_many(keys, limit=MAX_BYTES + 1), strict=True
        ):
            if isinstance(content, bytes):
                try:
                    yield version, parse_metadata(content, self, version)
                except Damaged as error:
                    yield version, error
            else:
                yield version, content if isinstance(content, Damaged) else None

    def load(self, version: str) -> Version | None:
        """Read a complete version; None if there is none.

        Raises:
            Damaged: Its metadata.json cannot be read.
        """
        metadata, _ = self.look(version)
        return metadata if isinstance(metadata, Version) else None

    def exists(self, version: str) -> bool:
        """Return whether a version is there, intact or damaged; False while it is being deleted."""
        try:
            return self.load(version) is not None
        except Damaged:
            return True

    def read(self, version: Version, file: str) -> bytes:
        """Return the verified bytes of one file.

        Raises:
            Damaged: It is missing or not what was uploaded.
        """
        try:
            content = self.storage.get(f"{version.prefix}/{file}")
        except NotFound as error:
            raise self._missing(version, file) from error
        self._check(version, file, sha256_of(content))
        return content

    def fetch(
        self, version: Version, file: str, target: Path, progress: Progress | None = None
    ) -> None:
        """Download one file and verify it; on failure the caller discards the target.

        Raises:
            Damaged: It is missing or not what was uploaded.
        """
        try:
            self.storage.fetch(f"{version.prefix}/{file}", target, progress=progress)
        except NotFound as error:
            raise self._missing(version, file) from error
        self._check(version, file, sha256_of(target))

    def verify(self, version: Version, file: str) -> None:
        """Check the checksum of one file.

        Raises:
            Damaged: It is missing or not what was uploaded.
        """
        with tempfile.TemporaryDirectory(prefix="podium-") as directory:
            self.fetch(version, file, Path(directory) / "file")

    def verify_files(self, version: Version) -> None:
        """Check the checksum of every file of a version.

        Raises:
            Damaged: One is missing or not what was uploaded.
        """
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda file: self.verify(version, file), version.files):
                pass

    def _missing(self, version: Version, file: str) -> Damaged:
        return Damaged(f"{self.storage.join(version.prefix)}/{file} is missing", self._restore())

    def _check(self, version: Version, file: str, seen: tuple[str, int]) -> None:
        record = version.files[file]
        if seen != (record.sha256, record.size):
            raise Damaged(
                f"{self.storage.join(version.prefix)}/{file} has sha256 {seen[0]} and {seen[1]} bytes, "
                f"but {record.sha256} and {record.size} bytes were uploaded",
                self._restore(),
            )

    def _restore(self) -> str:
        return f"restore the file from a backup, or return to another champion: podium models rollback {self.name}"

    def versions(self) -> list[Version]:
        """Return every complete version, oldest first; damaged ones are left out with a warning."""
        versions = []
        for _, metadata in self.look_many(self.names()):
            if isinstance(metadata, Damaged):
                warn_once(f"{metadata.message}; it is left out")
            elif isinstance(metadata, Version):
                versions.append(metadata)
        return sorted(versions, key=lambda version: (version.created, version.version))


def names_below(storage: Storage, prefix: str) -> list[str]:
    """Return the models or versions below a prefix; names that podium never gives are left out with
    a warning."""
    names = list(storage.children(prefix))
    for name in names:
        if not is_name(name):
            warn_once(
                f"{storage.join(prefix)}/{name!r} is not a name that podium gives, and is left out"
            )
    return [name for name in names if is_name(name)]

"""The interface of every storage."""

import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from podium.errors import Conflict, Damaged, InvalidInput, NotFound

Progress = Callable[[int], None]
"""Called with the number of bytes moved since the last call."""


class SourceChanged(Conflict):
    """The object changed between being read and being copied."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A stored object, without its bytes."""

    key: str
    """Relative to the storage's URL, ``/``-separated, never starting with ``/``."""

    size: int
    """Bytes."""

    etag: str
    """Changes whenever the content changes; opaque."""

    modified: datetime
    """Time of the last write, with time zone."""

    def require_etag(self, etag: str | None) -> None:
        """Refuse it as the source of a copy if it has another etag than the one expected, if any.

        Raises:
            SourceChanged: It has.
        """
        if etag is not None and self.etag != etag:
            raise SourceChanged(f"{self.key} changed after it was read")


class Storage(ABC):
    """A flat namespace of keys. Objects appear complete or not at all."""

    url: str
    """As given to connect, normalized, without a trailing slash."""

    @abstractmethod
    def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        progress: Progress | None = None,
    ) -> Entry:
        """Write an object atomically.

        Args:
            source: The bytes, or a file to stream.
            if_absent: Write only if the key does not exist.
            if_match: Write only if the object's etag is still this one.

        Raises:
            Conflict: The condition did not hold; nothing was written.
        """

    def get(self, key: str, *, limit: int | None = None) -> bytes:
        """Read an object into memory; see read."""
        return self.read(key, limit=limit)[0]

    @abstractmethod
    def read(self, key: str, *, limit: int | None = None) -> tuple[bytes, Entry]:
        """Read an object together with the etag of exactly these bytes, for a later ``if_match``.

        Args:
            limit: Read at most this many bytes; the entry has the size of the whole object.

        Raises:
            NotFound: There is no such key.
            Damaged: It is a symbolic link or another special file.
        """

    @abstractmethod
    def fetch(self, key: str, target: Path, *, progress: Progress | None = None) -> Entry:
        """Download an object into a file; the file appears complete or not at all.

        Raises:
            NotFound: There is no such key.
        """

    def copy(
        self,
        key: str,
        source: "Storage",
        source_key: str,
        *,
        if_absent: bool = False,
        source_etag: str | None = None,
    ) -> Entry:
        """Write an object that is a copy of another one.

        Args:
            source: The storage of the other one. Where both are on one server or in files, the
                server or the kernel copies what is large; anything else passes through a temporary
                file.
            if_absent: Write only if the key does not exist.
            source_etag: Copy only what still has this etag.

        Raises:
            NotFound: There is no such source.
            SourceChanged: It has another etag; nothing was written.
            Conflict: The key exists already; nothing was written.
        """
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            source.fetch(source_key, Path(scratch, "object")).require_etag(source_etag)
            return self.put(key, Path(scratch, "object"), if_absent=if_absent)

    @abstractmethod
    def head(self, key: str) -> Entry | None:
        """Describe an object, or return None if there is none."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield every object whose key starts with prefix, in key order."""

    @abstractmethod
    def children(self, prefix: str) -> Iterator[str]:
        """Yield in order the names X for which some key starts with ``<prefix>/X/``, without
        reading below them."""

    @abstractmethod
    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Remove an object; a missing one is not an error.

        Args:
            if_match: Remove it only if its etag is still this one.

        Raises:
            Conflict: The object has changed; nothing was removed.
        """

    @abstractmethod
    def conditions(self) -> str:
        """Describe in words how if_absent and if_match are enforced between writers."""

    @abstractmethod
    def sweep(self, prefix: str, before: datetime, *, delete: bool) -> Iterator[Entry]:
        """Yield what killed writers left below prefix: unfinished writes, never objects.

        Args:
            before: Skip what is younger.
            delete: Remove them as well.
        """

    def links(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys below prefix that are symbolic links or other special files; these are
        never followed."""
        return iter(())

    def get_many(
        self, keys: Iterable[str], *, limit: int | None = None
    ) -> Iterator[tuple[str, bytes | NotFound | Damaged | InvalidInput]]:
        """Read many small objects in parallel, in the order given.

        Yields:
            The key and its bytes, or why this object cannot be read.
        """

        def read(key: str) -> tuple[str, bytes | NotFound | Damaged | InvalidInput]:
            try:
                return key, self.get(key, limit=limit)
            except (NotFound, Damaged, InvalidInput) as error:
                return key, error

        with ThreadPoolExecutor(8) as pool:
            yield from pool.map(read, keys)

    def secrets(self) -> Sequence[str]:
        """Return the secret values that open it, which must not get into anything that is
        written."""
        return ()

    def join(self, key: str) -> str:
        """Return the URL of a key (or of a prefix: connect accepts it again)."""
        return f"{self.url}/{key}" if key else self.url


@dataclass(frozen=True, kw_only=True)
class Stored:
    """An object whose bytes were read and hashed before."""

    storage: Storage
    entry: Entry
    sha256: str


_BAD_SEGMENT = re.compile(r"^$|^\.\.?$|^\.podium")
_BAD_CHARACTER = re.compile("[\x00-\x1f\x7f\\\\\ud800-\udfff]")  # of a name that is not UTF-8


def check_key(key: str) -> str:
    """Return a key, after checking that every storage can hold it.

    Raises:
        InvalidInput: It is empty, absolute, longer than 900 bytes, climbs with ``..``, holds empty
            parts, control characters or backslashes, or a part that starts with ``.podium``
            (reserved).
    """
    if (
        any(_BAD_SEGMENT.match(part) for part in key.split("/"))
        or _BAD_CHARACTER.search(key)
        or len(key.encode()) > 900
        or any(len(part.encode()) > 200 for part in key.split("/"))
    ):
        raise InvalidInput(
            f"a key is a relative path like models/mnist/weights, not {key!r}",
            "no leading slash, no empty or '..' parts, none that starts with '.podium', at most 900 bytes",
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return a prefix, after checking that it stays inside the storage.

    Raises:
        InvalidInput: It is absolute or has ``..``.
    """
    if prefix.startswith("/") or ".." in prefix.split("/"):
        raise InvalidInput(f"a prefix is a relative path without '..', not {prefix!r}")
    return prefix

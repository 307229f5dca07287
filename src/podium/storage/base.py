"""What every storage can do."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is known of one stored object without reading it."""

    key: str
    """Relative to the storage's URL, ``/``-separated, never starting with ``/``."""

    size: int
    """Bytes."""

    etag: str
    """Changes whenever the content changes; opaque."""

    modified: datetime
    """When it was written, with time zone."""


class Storage(ABC):
    """A flat namespace of keys. An object is visible whole or not at all."""

    url: str
    """As given to connect, normalised, without a trailing slash."""

    @abstractmethod
    def put(self, key: str, source: bytes | Path, *, if_absent: bool = False, if_match: str | None = None) -> Entry:
        """Write an object, atomically.

        Args:
            key: Where.
            source: The bytes, or a file to stream.
            if_absent: Write only if the key does not exist.
            if_match: Write only if the object's etag is still this one.

        Raises:
            Conflict: The condition did not hold; nothing was written.
        """

    @abstractmethod
    def get(self, key: str) -> bytes:
        """Read a whole object into memory.

        Raises:
            NotFound: There is no such key.
        """

    @abstractmethod
    def fetch(self, key: str, target: Path) -> Entry:
        """Stream an object into a file; the file appears whole or not at all.

        Raises:
            NotFound: There is no such key.
        """

    @abstractmethod
    def head(self, key: str) -> Entry | None:
        """Describe an object, or return None if there is none."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield every object whose key starts with prefix, in key order."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; removing what is not there is no error."""

    def join(self, key: str) -> str:
        """Return the URL of a key (or of a prefix: connect accepts it again)."""
        return f"{self.url}/{key}" if key else self.url

"""The registry in a universe, on buckets whose servers let several writers win: podium finds that
out, and takes turns."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from registry_universe import RegistryUniverse, modules
from simulated_stores import DELETES, WRITES, Disk, MemoryStorage
from simulation import Fault, Local, Lock, Outcome, here

from podium.storage import Entry, Storage
from podium.storage.base import Progress
from podium.storage.s3 import conditional
from podium.storage.s3.conditional import ConditionalWrites

__all__ = ["BucketUniverse", "modules"]

SERVERS = ("atomic", "checks, then stores", "checks, then stores", "ignores conditions")

_GAP = 0.01
"""Virtual seconds between a server's check and its store."""


class _Seen(dict[Any, Any]):
    """What each process has seen of a server."""

    def _of(self, key: Any) -> Any:
        return here().task().life, key

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(self._of(key))

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self._of(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(self._of(key), value)


class _Bucket:
    """As podium's, of an S3 server with its manners."""

    def __init__(self, storage: "BucketStorage") -> None:
        self.storage, self.name, self.url = storage, "bucket", storage.url
        self.config, self.pool = SimpleNamespace(url="http://universe"), self
        self.local = Local()

    @contextmanager
    def condition(
        self, if_absent: bool, if_match: str | None, ready: Callable[[], None] | None = None
    ) -> Iterator[None]:
        before = getattr(self.local, "asked", (False, None, None))
        self.local.asked = if_absent, if_match, ready
        try:
            yield
        finally:
            if not here().task().life.dead:
                self.local.asked = before

    @property
    def asked(self) -> tuple[bool, str | None, Callable[[], None] | None]:
        return getattr(self.local, "asked", (False, None, None))

    def head(self, key: str) -> Entry | None:
        return self.storage.head(key)

    def delete(self, key: str) -> None:
        self.storage.delete_plain(key)

    def objects(self, prefix: str) -> Iterator[Entry]:
        return MemoryStorage.list(self.storage, prefix)

    def put_as_one_part(self, key: str, content: bytes) -> str:
        return self.storage.put_plain(key, content).etag


class BucketStorage(MemoryStorage):
    """A process's client of a bucket.

    Args:
        server: How it treats conditions, one of SERVERS.
    """

    def __init__(self, disk: Disk, server: str) -> None:
        super().__init__(disk)
        self.server, self.bucket = server, _Bucket(self)
        self._conditional = ConditionalWrites(
            self.bucket,  # type: ignore[arg-type]
            self.put_plain,
            self.read,
        )

    def _before(self, what: str, key: str, possible: tuple[str, ...]) -> str:
        # What reaches a server later than a lock holds is outside of the promise.
        late = ("delay", "stall", "ghost") if possible in (WRITES, DELETES) else ()
        return super()._before(what, key, tuple(kind for kind in possible if kind not in late))

    def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        progress: Progress | None = None,
    ) -> Entry:
        content = source if isinstance(source, bytes) else source.read_bytes()
        return self._conditional.write(
            key,
            if_absent,
            if_match,
            lambda moved: self.put_plain(key, content),
            progress,
            in_parts=False,
        )

    def put_plain(self, key: str, content: bytes) -> Entry:
        """Send one request to write an object, with the condition of the thread."""
        if_absent, if_match, ready = self.bucket.asked
        if ready:
            ready()
        kind = self._before("write", key, WRITES)
        if self.server == "ignores conditions":
            if_absent, if_match = False, None
        if self.server == "checks, then stores" and (if_absent or if_match is not None):
            self.disk.check(key, if_absent, if_match)
            here().sleep(_GAP)  # a gap of the server, which no haste of a client closes
            if_absent, if_match = False, None
        conditional = if_absent or if_match is not None
        entry = self.disk.put(key, content, if_absent, if_match)
        if kind != "doubled" or conditional:
            self._after(kind, "write", key)
        return entry

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        if if_match is None:
            self.delete_plain(key)
        elif self.head(key) is not None:
            self._conditional.delete(key, if_match)

    def delete_plain(self, key: str) -> None:
        """Send one request to delete an object, with the condition of the thread."""
        _, if_match, _ = self.bucket.asked
        kind = self._before("delete", key, DELETES)
        self.disk.delete(key, if_match if self.server == "atomic" else None)
        if kind != "doubled":
            self._after(kind, "delete", key)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        return (entry for entry in super().list(prefix) if "/.podium" not in f"/{entry.key}")


class BucketUniverse(RegistryUniverse):
    """A few processes on one model in a bucket.

    Args:
        seed: Decides everything.
        only: Only these faults strike; None for all that the seed has.
    """

    KINDS = (*(kind for kind in RegistryUniverse.KINDS if kind not in ("delay", "stall")), "lag")

    def __init__(self, seed: int, only: frozenset[Fault] | None = None) -> None:
        super().__init__(seed, only)
        self.server = self.plan.choice(SERVERS)

    def storage(self) -> Storage:
        return BucketStorage(self.disk, self.server)

    def run(self) -> Outcome:
        usual = conditional._seen, conditional._probing
        conditional._seen, conditional._probing = _Seen(), Lock()
        try:
            return super().run()
        finally:
            conditional._seen, conditional._probing = usual

    def _belongs(self, key: str, state: Any) -> bool:
        return key.startswith(".podium/") or super()._belongs(key, state)

"""Storages of a universe: objects in memory, seen by each process through a network that fails."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from simulation import EPOCH, Universe, here

from podium.errors import Conflict, NotFound, PodiumError, Unavailable
from podium.storage import Entry, Storage
from podium.storage.base import Progress

READS = ("delay", "lag", "fail", "crash", "jump")
DELETES = ("stall", "lag", "fail", "lost", "doubled", "crash", "died", "jump")
WRITES = (
    "delay",
    "lag",
    "fail",
    "lost",
    "doubled",
    "ghost",
    "space",
    "crash",
    "died",
    "jump",
)


class Disk:
    """Objects as the server has them.

    Args:
        coarse: Whether times of modification are whole seconds.
        by_content: Whether equal bytes have equal etags, as in a bucket.
    """

    def __init__(
        self, universe: Universe, *, coarse: bool = False, by_content: bool = True
    ) -> None:
        self.universe, self.coarse, self.by_content = universe, coarse, by_content
        self.objects: dict[str, tuple[bytes, Entry]] = {}
        self.writes = 0

    def check(self, key: str, if_absent: bool, if_match: str | None) -> None:
        """Refuse a write whose condition does not hold."""
        present = self.objects.get(key)
        if if_absent and present:
            raise Conflict(f"{key} exists already")
        if if_match is not None and (not present or present[1].etag != if_match):
            raise Conflict(f"{key} was changed after it was read")

    def put(self, key: str, content: bytes, if_absent: bool, if_match: str | None) -> Entry:
        self.check(key, if_absent, if_match)
        self.writes += 1
        etag = hashlib.md5(content, usedforsecurity=False).hexdigest()
        time = EPOCH + self.universe.now
        entry = Entry(
            key=key,
            size=len(content),
            etag=etag if self.by_content else f"{self.writes:x}-{etag[:8]}",
            modified=datetime.fromtimestamp(int(time) if self.coarse else time, UTC),
        )
        self.objects[key] = content, entry
        return entry

    def delete(self, key: str, if_match: str | None) -> None:
        present = self.objects.get(key)
        if present and if_match is not None and present[1].etag != if_match:
            raise Conflict(f"{key} was changed after it was read")
        self.objects.pop(key, None)


class MemoryStorage(Storage):
    """A process's client of a disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk, self.url = disk, "memory://disk"

    def _before(self, what: str, key: str, possible: tuple[str, ...]) -> str:
        kind = here().operation(f"{what} {key}", possible)
        process = here().task().life.process
        if kind == "fail" and here().draw(process.number, process.operations, 3) % 4 == 0:
            raise PodiumError(f"cannot {what} {key} in {self.url}: Input/output error")
        if kind == "fail":
            raise Unavailable(f"cannot {what} {key} in {self.url}: no answer", "try again")
        if kind == "space":
            raise PodiumError(
                f"cannot {what} {key} in {self.url}: No space left on device",
                "the disk is full; no partial object was left",
            )
        return kind

    def _after(self, kind: str, what: str, key: str) -> None:
        if kind == "died":
            here().crash()
        if kind == "lost":
            raise Unavailable(
                f"cannot {what} {key} in {self.url}: the answer was lost", "try again"
            )
        if kind == "doubled":
            raise Conflict(f"{key} in {self.url} was changed by another writer")

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
        conditional = if_absent or if_match is not None
        kind = self._before("write", key, WRITES)
        entry = self.disk.put(key, content, if_absent, if_match)
        if kind == "ghost":
            self._later(lambda: self.disk.put(key, content, if_absent, if_match))
        if kind != "doubled" or conditional:
            self._after(kind, "write", key)
        return entry

    def _later(self, again: Callable[[], object]) -> None:
        """Let a request that was sent twice arrive once more."""
        universe = here()
        network = universe.process("network")

        def arrive() -> None:
            universe.sleep((0.01, 1.0, 30.0, 120.0)[int(universe.random.random() * 4)])
            with suppress(Conflict):
                again()

        if network.life is None:
            universe.begin(network, arrive)
        else:
            universe.spawn(network.life, arrive, "request")

    def read(self, key: str, *, limit: int | None = None) -> tuple[bytes, Entry]:
        self._before("read", key, READS)
        if key not in self.disk.objects:
            raise NotFound(f"there is no {key} in {self.url}")
        content, entry = self.disk.objects[key]
        return content[:limit], entry

    def fetch(self, key: str, target: Path, *, progress: Progress | None = None) -> Entry:
        content, entry = self.read(key)
        target.write_bytes(content)
        return entry

    def head(self, key: str) -> Entry | None:
        self._before("look at", key, READS)
        found = self.disk.objects.get(key)
        return found[1] if found else None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        self._before("list", prefix, READS)
        yield from [
            entry for key, (_, entry) in sorted(self.disk.objects.items()) if key.startswith(prefix)
        ]

    def children(self, prefix: str) -> Iterator[str]:
        self._before("list", prefix, READS)
        start = f"{prefix}/" if prefix else ""
        rests = (key[len(start) :] for key in self.disk.objects if key.startswith(start))
        yield from sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        kind = self._before("delete", key, DELETES)
        self.disk.delete(key, if_match)
        if kind != "doubled":
            self._after(kind, "delete", key)

    def conditions(self) -> str:
        return "the universe"

    def sweep(self, prefix: str, before: datetime, *, delete: bool) -> Iterator[Entry]:
        return iter(())

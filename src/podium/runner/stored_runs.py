"""What runs left in a storage: their candidates and kept logs, wherever the runs were."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from podium.errors import NotFound
from podium.runner.runs import choose_old, run_called
from podium.steps.kept_logs import KeptLogs
from podium.storage import Entry, Storage, connect

HINT = "a run keeps logs and candidates in the storage of its models: --storage URL"


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What one run left."""

    id: str
    storage: Storage
    entries: Sequence[Entry]
    """Its candidates and logs."""

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(entry.size for entry in self.entries)

    @property
    def modified(self) -> datetime:
        """Time of its last write."""
        return max(entry.modified for entry in self.entries)

    def delete(self) -> None:
        """Remove its candidates and logs; versions in the registry stay."""
        for entry in self.entries:
            self.storage.delete(entry.key)


class StoredRuns:
    """The runs below ``<storage>/runs``.

    Args:
        url: The storage.
    """

    def __init__(self, url: str) -> None:
        self.storage = connect(url)

    def __iter__(self) -> Iterator[StoredRun]:
        """Yield every run by its id."""
        runs = map(self._read, self.storage.children("runs"))
        return (run for run in runs if run.entries)

    def __getitem__(self, name: str) -> StoredRun:
        """Return a run by the beginning of its id.

        Raises:
            NotFound, InvalidInput: As logs.
        """
        return self._read(self._find(name))

    def _read(self, run: str) -> StoredRun:
        return StoredRun(id=run, storage=self.storage, entries=list(self.storage.list(f"runs/{run}/")))

    def old(self, *, keep: int | None, older_than: int | None) -> list[StoredRun]:
        """Return old runs by their last write; one that was written to within a day may be running, and is not old.

        Raises:
            InvalidInput: As choose_old.
        """
        chosen = choose_old(self, lambda run: run.modified, keep=keep, older_than=older_than)
        yesterday = datetime.now(UTC) - timedelta(days=1)
        return [run for run in chosen if run.modified < yesterday]

    def logs(self, name: str) -> KeptLogs:
        """Return the logs of a run by the beginning of its id.

        Raises:
            NotFound: There is no such run.
            InvalidInput: Several begin like that.
        """
        return KeptLogs(self.storage.url, self._find(name))

    def _find(self, name: str) -> str:
        if matching := run_called(name, list(self.storage.children("runs"))):
            return matching
        raise NotFound(f"there is nothing of a run {name!r} in {self.storage.url}", HINT)

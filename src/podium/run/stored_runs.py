"""What runs left in a storage: their candidates and kept logs, wherever the runs were."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from podium.errors import InvalidInput, NotFound
from podium.steps.kept_logs import KeptLogs
from podium.storage import connect

HINT = "a run keeps logs and candidates in the storage of its models: --storage URL"


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What one run left."""

    id: str
    size: int
    """Bytes."""

    modified: datetime
    """Time of its last write."""


class StoredRuns:
    """The runs below ``<storage>/runs``.

    Args:
        url: The storage.
    """

    def __init__(self, url: str) -> None:
        self.storage = connect(url)

    def __iter__(self) -> Iterator[StoredRun]:
        """Yield every run by its id."""
        for name in self.storage.children("runs"):
            entries = list(self.storage.list(f"runs/{name}/"))
            if entries:
                modified = max(entry.modified for entry in entries)
                yield StoredRun(id=name, size=sum(entry.size for entry in entries), modified=modified)

    def find(self, name: str) -> str:
        """Return the id of a run by its beginning.

        Raises:
            NotFound: There is no such run.
            InvalidInput: Several begin like that.
        """
        names = list(self.storage.children("runs"))
        matching = [name] if name in names else [known for known in names if known.startswith(name)]
        if len(matching) > 1:
            text = f"{len(matching)} runs begin with {name!r}: {', '.join(matching[-5:])}"
            raise InvalidInput(text, "give more of it")
        if not matching:
            raise NotFound(f"there is nothing of a run {name!r} in {self.storage.url}", HINT)
        return matching[0]

    def logs(self, name: str) -> KeptLogs:
        """Return the logs of a run by the beginning of its id.

        Raises:
            NotFound, InvalidInput: As find.
        """
        return KeptLogs(self.storage.url, self.find(name))

    def delete(self, run: str) -> None:
        """Remove a run's candidates and logs; versions in the registry stay."""
        for entry in list(self.storage.list(f"runs/{run}/")):
            self.storage.delete(entry.key)

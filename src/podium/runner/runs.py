"""Finding runs: those on this machine, and the objects that runs anywhere left in a storage."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from podium.display.notebook import data_frame, table
from podium.display.terminal import readable
from podium.display.text import duration, plural, when
from podium.errors import InvalidInput, NoSuchKey, NotFound, require, suggestion
from podium.runner.record import RunRecord
from podium.runner.run import Run
from podium.storage import Entry, Storage, connect
from podium.system.arguments import checked
from podium.system.settings import Settings
from podium.training.kept_logs import KeptLogs

if TYPE_CHECKING:
    from pandas import DataFrame

R = TypeVar("R")

HINT = "a run keeps logs and candidates in the storage of its models: --storage URL"


@checked
class Runs(Mapping[str, Run]):
    """The runs on this machine by their id, the oldest first; also by the beginning of an id, and
    by ``latest``."""

    def __init__(self) -> None:
        self.directory = Settings.from_environment().runs

    def __getitem__(self, name: str) -> Run:
        """Return a run.

        Raises:
            NotFound: There is none of this name.
            InvalidInput: Several begin like that, or its record is damaged.
        """
        names = sorted(path.parent.name for path in self.directory.glob("*/run.json"))
        chosen = names[-1] if name == "latest" and names else _run_called(str(name), names)
        if not chosen:
            hint = suggestion(str(name), names[::-1]) if names else "podium run makes one"
            raise NoSuchKey(f"there is no run {name!r} in {self.directory}", hint)
        return Run(RunRecord.read(self.directory / chosen))

    def __iter__(self) -> Iterator[str]:
        return (run.id for run in self.all)

    @property
    def all(self) -> list[Run]:
        """Every run whose record can be read, the oldest first; ``values()`` would read each
        twice."""
        return list(
            readable(
                sorted(path.parent for path in self.directory.glob("*/run.json")),
                lambda directory: Run(RunRecord.read(directory)),
                lambda directory: f"run {directory.name}",
            )
        )

    def old(self, *, keep: int | None = None, older_than: int | None = None) -> list[Run]:
        """Return old runs, the oldest first: ``for run in podium.runs().old(keep=5):
        run.delete()``.

        Args:
            keep: Number of the newest runs to leave out.
            older_than: Days since they began, at least.

        Raises:
            InvalidInput: Neither is given, or one is out of range.
        """
        ended = (run for run in self.all if run.state != "running")
        return _choose_old(ended, lambda run: run.began, keep=keep, older_than=older_than)

    @property
    def frame(self) -> "DataFrame":
        """A row for each run: its id, subject, pipeline, state, start, seconds, result, tags, note
        and the parameters that are no defaults.

        Raises:
            PodiumError: pandas is not installed.
        """
        entries = [run.to_json() for run in self.all]
        own = ("run", "subject", "pipeline", "state", "began", "seconds", "result", "note", "tags")
        rows = [
            {name: entry[name] for name in own}
            | {"tags": ", ".join(entry["tags"])}
            | entry["parameters"]
            for entry in entries
        ]
        names = dict.fromkeys([*own, *(name for row in rows for name in row)])
        return data_frame(rows, list(names))

    def compare(self, names: Iterable[str], path: str | Path = "compare.html") -> Path:
        """Write an HTML page that compares runs: curves, parameters that differ, metrics and
        durations of the steps.

        Args:
            names: Two or more keys of ``podium.runs()``.
            path: The file to write.

        Raises:
            NotFound: There is no such run.
            InvalidInput: There are fewer than two.
        """
        from podium.runner.comparison import compare_runs

        compare_runs([self[name] for name in names], Path(path))
        return Path(path)

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def __len__(self) -> int:
        return len(self.all)

    def __repr__(self) -> str:
        return f"<{plural(len(self), 'run')} in {self.directory}>"

    def _repr_html_(self) -> str:
        rows = [cells_of(run.to_json()) for run in self.all]
        return table(HEADS, rows, title=str(self.directory))


HEADS = ("NAME", "KIND", "TAGS", "ABOUT", "STATE", "BEGAN (UTC)", ">TOOK", "RESULT")
"""Of a table of runs and sweeps."""


def cells_of(entry: Mapping[str, Any]) -> list[str]:
    """Return a cell for each of HEADS, from the plain values of a run or a sweep."""
    return [
        entry[entry["kind"]],
        entry["kind"],
        ", ".join(entry.get("tags", ())),
        entry.get("subject") or entry["algorithm"],
        entry["state"],
        when(entry["began"]),
        duration(entry["seconds"]),
        entry["result"],
    ]


def differing(runs: Sequence[Run]) -> list[str]:
    """Return the names of the parameters in which runs differ."""
    parameters = [run.parameters for run in runs]
    return [
        name
        for name in sorted({name for values in parameters for name in values})
        if any(values.get(name) != parameters[0].get(name) for values in parameters)
    ]


def runs() -> Runs:
    """Return the runs on this machine.

    Example:
        >>> import podium
        >>> len(podium.runs())
        0
    """
    return Runs()


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """Objects that one run left in a storage."""

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
    """The runs below ``<storage>/runs``."""

    def __init__(self, url: str) -> None:
        self.storage = connect(url)

    def __iter__(self) -> Iterator[StoredRun]:
        return (run for run in map(self._read, self.storage.children("runs")) if run.entries)

    def __getitem__(self, name: str) -> StoredRun:
        """Return a run by the beginning of its id.

        Raises:
            NotFound, InvalidInput: As logs.
        """
        return self._read(self._find(name))

    def _read(self, run: str) -> StoredRun:
        return StoredRun(
            id=run, storage=self.storage, entries=list(self.storage.list(f"runs/{run}/"))
        )

    def old(self, *, keep: int | None, older_than: int | None) -> list[StoredRun]:
        """Return old runs by their last write; one that was written to within a day may be running,
        and is not old.

        Raises:
            InvalidInput: As _choose_old.
        """
        chosen = _choose_old(self, lambda run: run.modified, keep=keep, older_than=older_than)
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
        if matching := _run_called(name, list(self.storage.children("runs"))):
            return matching
        raise NotFound(f"there is nothing of a run {name!r} in {self.storage.url}", HINT)


def _run_called(name: str, names: Sequence[str]) -> str:
    """Return the run of this id, else the only one whose id starts with it; empty if there is none.

    Raises:
        InvalidInput: Several begin so.
    """
    begins = [run_id for run_id in names if name and run_id.startswith(name)]
    matching = [name] if name in names else begins
    if len(matching) > 1:
        text = f"{len(matching)} runs begin with {name!r}: {', '.join(matching[-5:])}"
        raise InvalidInput(text, "give more of it")
    return matching[0] if matching else ""


def _choose_old(
    runs: Iterable[R], moment: Callable[[R], datetime], *, keep: int | None, older_than: int | None
) -> list[R]:
    """Return the runs that are old, the oldest first; those of a clock that was ahead are none, nor
    are they the newest ones, which would have the others deleted.

    Args:
        moment: Returns the time that decides how old a run is.
        keep: Number of the newest runs to leave out.
        older_than: Days since that moment, at least.

    Raises:
        InvalidInput: Neither is given, or one is out of range.
    """
    if keep is None and older_than is None:
        raise InvalidInput(
            "neither keep nor older_than is given",
            "say how many runs to keep, or for how many days",
        )
    require(keep is None or keep >= 0, "keep >= 0", keep=keep)
    require(
        older_than is None or 0 <= older_than <= 36500,
        "0 <= older_than <= 36500",
        "days",
        older_than=older_than,
    )
    now = datetime.now(UTC)
    ordered = sorted((run for run in runs if moment(run) <= now), key=moment)
    before = now - timedelta(days=older_than or 0)
    return [run for run in ordered[: max(0, len(ordered) - (keep or 0))] if moment(run) <= before]

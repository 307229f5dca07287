"""How jobs are shown: their replicas as a table, live while they run."""

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from podium.cli.live import ObjectKey, Row, View, fitted_table
from podium.cli.model_tables import table
from podium.cluster.base import Cluster, ReplicaStatus
from podium.errors import PodiumError
from podium.terminal import echo

if TYPE_CHECKING:
    from rich.table import Table

_HEADS = {"name": "REPLICA", "phase": "STATE", "restarts": ">RESTARTS", "exit_code": ">EXIT CODE", "reason": "REASON",
          "started": "STARTED", "node": "NODE", "pid": ">PID"}  # fmt: skip
_ALWAYS = ("name", "phase", "restarts")


def draw_replicas(replicas: Sequence[ReplicaStatus]) -> str:
    """Draw replicas as aligned text; columns in which nothing is known are left out."""
    shown = [one for one in _HEADS if one in _ALWAYS or any(getattr(each, one) not in (None, "") for each in replicas)]
    return table([_HEADS[one] for one in shown], [[_text(getattr(each, one)) for one in shown] for each in replicas])


def document(replica: ReplicaStatus) -> dict[str, Any]:
    """Return a replica as JSON."""
    names = {"name": "replica", "exit_code": "exitCode"}
    return {names.get(one.name, one.name): getattr(replica, one.name) for one in fields(replica)}


def _text(value: str | int | None) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A job as of the last look."""

    state: str
    replicas: Sequence[ReplicaStatus]

    def __str__(self) -> str:
        words = (
            f"{one.name} {one.phase.lower()}"
            + (f" ({one.reason})" if one.reason else "")
            + (f" (restart {one.restarts})" if one.restarts else "")
            for one in self.replicas
        )
        return f"{self.state}: {', '.join(words) or 'starting'}"


class JobView(View):
    """Jobs, their replicas, and the log of the replica of each that reports metrics.

    Args:
        cluster: Runs them.
        jobs: Kind and name of each.
        logs: Whether their logs are printed.
    """

    def __init__(self, cluster: Cluster, jobs: Sequence[ObjectKey], logs: bool) -> None:
        super().__init__(cluster)
        self._jobs, self._logs = jobs, logs
        self._seen: dict[ObjectKey, _Seen] = {}
        self._said: dict[ObjectKey, str] = {}
        self._last: dict[ObjectKey, str] = {}
        self._lines: queue.SimpleQueue[tuple[ObjectKey, str]] = queue.SimpleQueue()
        self._readers = [threading.Thread(target=self._read, args=(job,), daemon=True) for job in jobs]
        for reader in self._readers:
            reader.start()

    def _read(self, job: ObjectKey) -> None:
        try:
            for line in self.cluster.logs(*job, follow=True):
                self._lines.put((job, line))
        except PodiumError as error:  # the job is judged by its state: a log that cannot be read is no failure
            echo(f"the log of {' '.join(job)} breaks off: {error.message}", err=True)

    def finish(self) -> None:
        """Wait for the last lines; a log that never ends must not keep the command."""
        for reader in self._readers:
            reader.join(timeout=10)

    def look(self) -> None:
        """Read the state and the replicas of each job."""
        for kind, name in self._jobs:
            state, replicas = self.cluster.resource(kind, name).state, self.cluster.replicas(kind, name)
            self._seen[kind, name] = _Seen(state=state.phase, replicas=replicas)

    def news(self) -> Iterator[str]:
        """Describe each job whose state or replicas changed."""
        self.look()
        for job, seen in self._seen.items():
            if self._said.get(job) != str(seen):
                self._said[job] = str(seen)
                yield f"{job[1]} {seen}"

    def output(self) -> Iterator[str]:
        """Return new log lines; of several jobs each carries the job's name."""
        while not self._lines.empty():
            job, line = self._lines.get()
            self._last[job] = line
            if self._logs:
                yield f"[{job[1]}] {line}" if len(self._jobs) > 1 else line

    def table(self, width: int) -> "Table | str":
        """Draw a row for each replica, with the last log line where there is room."""
        rows = [
            Row(
                phase=one.phase,
                cells=(f"{job[1]} ({seen.state})" if at == 0 else "", one.name, one.phase, str(one.restarts or "")),
                rest=self._last.get(job, "") if at == 0 else "",
            )
            for job, seen in self._seen.items()
            for at, one in enumerate(seen.replicas)
        ]
        names = [f"{job[1]} ({seen.state})" for job, seen in self._seen.items()]
        title = f"{names[0] if len(names) == 1 else f'{len(names)} jobs'}, {self.seconds:.0f} s"
        hidden = [
            column for column, known in ((0, len(names) > 1), (3, any(row.cells[3] for row in rows))) if not known
        ]
        return fitted_table(title, ("JOB", "REPLICA", "STATE", ">RESTARTS"), rows, (3, 0), width, hidden)

"""How jobs are shown: their replicas as a table, live while they run."""

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from podium.cli.live import ObjectKey, View
from podium.cluster.base import Cluster, ReplicaStatus
from podium.errors import PodiumError
from podium.tables import Row, screen_width, table
from podium.terminal import Styled, echo

_HEADS = {"name": "REPLICA", "phase": "STATE", "restarts": ">RESTARTS", "exit_code": ">EXIT CODE", "reason": "REASON",
          "started": "STARTED", "node": "NODE", "pid": ">PID"}  # fmt: skip
_ALWAYS = ("REPLICA", "STATE", ">RESTARTS")


def draw_replicas(replicas: Sequence[ReplicaStatus]) -> str:
    """Draw replicas as aligned text; columns in which nothing is known are left out."""
    columns = {
        head: ["" if value is None else str(value) for value in (getattr(replica, name) for replica in replicas)]
        for name, head in _HEADS.items()
    }
    shown = {head: cells for head, cells in columns.items() if head in _ALWAYS or any(cells)}
    rows = [
        Row(phase=replica.phase, cells=cells)
        for replica, cells in zip(replicas, zip(*shown.values(), strict=True), strict=True)
    ]
    drop = (">PID", "NODE", "STARTED", ">RESTARTS", "STATE")  # the mark shows the state
    return table(list(shown), rows, width=screen_width(), drop=drop, shorten="REASON")


def document(replica: ReplicaStatus) -> dict[str, Any]:
    """Return a replica as JSON."""
    names = {"name": "replica", "exit_code": "exitCode"}
    return {names.get(field.name, field.name): getattr(replica, field.name) for field in fields(replica)}


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A job as of the last look."""

    state: str
    message: str
    replicas: Sequence[ReplicaStatus]

    def __str__(self) -> str:
        words = (
            f"{replica.name} {replica.phase.lower()}"
            + (f" ({replica.reason})" if replica.reason else "")
            + (f" (restart {replica.restarts})" if replica.restarts else "")
            for replica in self.replicas
        )
        if self.state == "Waiting":
            return f"waits. {self.message}"
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

    def state(self) -> str:
        """Say what the replicas of each job do."""
        return "; ".join(f"{name} {seen}" for (_, name), seen in self._seen.items()) or "starting"

    def finish(self) -> None:
        """Wait for the last lines; a log that never ends must not keep the command."""
        for reader in self._readers:
            reader.join(timeout=10)

    def look(self) -> None:
        """Read the state and the replicas of each job."""
        for kind, name in self._jobs:
            state, replicas = self.cluster.resource(kind, name).state, self.cluster.replicas(kind, name)
            self._seen[kind, name] = _Seen(state=state.phase, message=state.message, replicas=replicas)

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

    def table(self, width: int) -> Styled:
        """Draw a row for each replica, with the last log line where there is room."""
        several = len(self._seen) > 1
        restarted = any(replica.restarts for seen in self._seen.values() for replica in seen.replicas)
        rows, states = [], [f"{name} ({seen.state})" for (_, name), seen in self._seen.items()]
        for (job, seen), state in zip(self._seen.items(), states, strict=True):
            if seen.state == "Waiting":
                cells = [state] * several + ["", seen.state] + [""] * restarted
                rows.append(Row(phase=seen.state, cells=cells, rest=seen.message))
            for at, replica in enumerate(seen.replicas):
                cells = [state if at == 0 else ""] * several + [replica.name, replica.phase]
                cells += [str(replica.restarts or "")] * restarted
                rows.append(Row(phase=replica.phase, cells=cells, rest=self._last.get(job, "") if at == 0 else ""))
        heads = ["JOB"] * several + ["REPLICA", "STATE"] + [">RESTARTS"] * restarted
        title = f"{states[0] if len(states) == 1 else f'{len(states)} jobs'}, {self.seconds:.0f} s"
        return table(heads, rows, title=title, width=width, drop=[">RESTARTS", "JOB"])

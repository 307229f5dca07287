"""How jobs are shown: their replicas as a table, live while they run."""

import queue
import threading
from collections.abc import Iterator, Sequence

from podium.api.jobs import Job, progress_of
from podium.cli.live import View
from podium.cluster.base import Cluster, ReplicaStatus
from podium.errors import PodiumError
from podium.manifests.workload import Workload
from podium.tables import Row, screen_width, table
from podium.terminal import Styled, echo
from podium.text import plural

_HEADS = {
    "name": "REPLICA",
    "phase": "STATE",
    "restarts": ">RESTARTS",
    "exit_code": ">EXIT CODE",
    "reason": "REASON",
    "started": "STARTED",
    "node": "NODE",
    "pid": ">PID",
}
_ALWAYS = ("REPLICA", "STATE", ">RESTARTS")


def draw_replicas(replicas: Sequence[ReplicaStatus]) -> str:
    """Draw replicas as aligned text; columns in which nothing is known are left out."""
    columns = {
        head: [
            "" if value is None else str(value)
            for value in (getattr(replica, name) for replica in replicas)
        ]
        for name, head in _HEADS.items()
    }
    shown = {head: cells for head, cells in columns.items() if head in _ALWAYS or any(cells)}
    rows = [
        Row(phase=replica.phase, cells=cells)
        for replica, cells in zip(replicas, zip(*shown.values(), strict=True), strict=True)
    ]
    drop = (">PID", "NODE", "STARTED", ">RESTARTS", "STATE")  # the mark shows the state
    return table(list(shown), rows, width=screen_width(), drop=drop, shorten="REASON")


class JobView(View):
    """Jobs, their replicas, and the log of the replica of each that reports metrics.

    Args:
        logs: Whether their logs are printed.
    """

    def __init__(self, cluster: Cluster, jobs: Sequence[Job], logs: bool) -> None:
        super().__init__(cluster)
        self._jobs, self._logs = jobs, logs
        self._seen: dict[Job, tuple[Workload, Sequence[ReplicaStatus]]] = {}
        self._said: dict[Job, str] = {}
        self._last: dict[Job, str] = {}
        self._lines: queue.SimpleQueue[tuple[Job, str]] = queue.SimpleQueue()
        self._readers = [
            threading.Thread(target=self._read, args=(job,), daemon=True) for job in jobs
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, job: Job) -> None:
        try:
            for line in self.cluster.logs(job.kind, job.name, follow=True):
                self._lines.put((job, line))
        except (
            PodiumError
        ) as error:  # the job is judged by its state: a log that cannot be read is no failure
            echo(f"the log of {job.kind} {job.name} breaks off: {error.message}", err=True)

    def state(self) -> str:
        """Say what the replicas of each job do."""
        return (
            "; ".join(f"{job.name} {progress_of(*seen)}" for job, seen in self._seen.items())
            or "starting"
        )

    def finish(self) -> None:
        """Wait for the last lines; a log that never ends must not keep the command."""
        for reader in self._readers:
            reader.join(timeout=10)

    def look(self) -> None:
        """Read the state and the replicas of each job."""
        self._seen |= {job: (job.workload, job.replicas) for job in self._jobs}

    def news(self) -> Iterator[str]:
        """Describe each job whose state or replicas changed."""
        self.look()
        for job, seen in self._seen.items():
            if self._said.get(job) != (line := progress_of(*seen)):
                self._said[job] = line
                yield f"{job.name} {line}"

    def output(self) -> Iterator[str]:
        """Return new log lines; of several jobs each carries the job's name."""
        while not self._lines.empty():
            job, line = self._lines.get()
            self._last[job] = line
            if self._logs:
                yield f"[{job.name}] {line}" if len(self._jobs) > 1 else line

    def table(self, width: int) -> Styled:
        """Draw a row for each replica, with the last log line where there is room."""
        several = len(self._seen) > 1
        restarted = any(
            replica.restarts for _, replicas in self._seen.values() for replica in replicas
        )
        rows, states = (
            [],
            [f"{job.name} ({seen.state.phase})" for job, (seen, _) in self._seen.items()],
        )
        for (job, (seen, replicas)), state in zip(self._seen.items(), states, strict=True):
            if seen.state.phase == "Waiting":
                cells = [state] * several + ["", "Waiting"] + [""] * restarted
                rows.append(Row(phase="Waiting", cells=cells, rest=seen.state.message))
            for at, replica in enumerate(replicas):
                cells = [state if at == 0 else ""] * several + [replica.name, replica.phase]
                cells += [str(replica.restarts or "")] * restarted
                rows.append(
                    Row(
                        phase=replica.phase,
                        cells=cells,
                        rest=self._last.get(job, "") if at == 0 else "",
                    )
                )
        heads = ["JOB"] * several + ["REPLICA", "STATE"] + [">RESTARTS"] * restarted
        title = (
            f"{states[0] if len(states) == 1 else plural(len(states), 'job')}, {self.seconds:.0f} s"
        )
        return table(heads, rows, title=title, width=width, drop=[">RESTARTS", "JOB"])

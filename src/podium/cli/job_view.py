"""How jobs are shown while they run: a live table on a terminal, a line at each change everywhere else."""

import queue
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.cli.model_tables import table
from podium.cluster.local.jsonfile import read_json
from podium.manifests.conditions import status_of
from podium.terminal import console, echo, echo_log

if TYPE_CHECKING:
    from rich.table import Table

    from podium.sweeps.local import LocalSweeps

LOOK = 0.2
"""Seconds between two looks."""

_MARKS = {
    "Pending": "[dim]·[/]",
    "Running": "[cyan]▸[/]",
    "Succeeded": "[green]✓[/]",
    "Failed": "[red]✗[/]",
    "Stopped": "[yellow]■[/]",
}

Job = tuple[str, str]
Pods = list[dict[str, Any]]


def read_pods(place: Path) -> Pods:
    """Read the records of a job's replicas."""
    try:
        return read_json(place / "pods.json", list)
    except FileNotFoundError:
        return []


def without_living(pods: Pods) -> Pods:
    """Return the records when the process that wrote them is dead: all that ran ended with it."""
    return [{**one, "phase": "Stopped", "pid": None} if one["phase"] in ("Pending", "Running") else one for one in pods]


def draw_pods(pods: Pods) -> str:
    """Draw replicas as aligned text."""
    rows = [
        [one["replica"], one["phase"], str(one["restarts"]), _text(one["exitCode"]), _text(one["pid"])] for one in pods
    ]
    return table(("REPLICA", "STATE", ">RESTARTS", ">EXIT CODE", ">PID"), rows)


def follow(cluster: "LocalSweeps", jobs: Sequence[Job], logs: bool) -> None:
    """Show jobs until all have ended; log lines go to stdout, all else to stderr."""
    lines: queue.SimpleQueue[tuple[Job, str]] = queue.SimpleQueue()
    threads = [threading.Thread(target=_read, args=(cluster, job, lines), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    view = _Screen(cluster, jobs) if sys.stderr.isatty() else _Lines(cluster, jobs)
    with view:
        while True:
            ended = all(status_of(cluster.get(*job)).finished for job in jobs)
            if ended:
                for thread in threads:
                    thread.join()
            view.look()
            _print(lines, view, logs, many=len(jobs) > 1)
            if ended:
                return
            time.sleep(LOOK)


def _read(cluster: "LocalSweeps", job: Job, lines: "queue.SimpleQueue[tuple[Job, str]]") -> None:
    for line in cluster.logs(*job, follow=True):
        lines.put((job, line))


def _print(lines: "queue.SimpleQueue[tuple[Job, str]]", view: "_Lines", logs: bool, many: bool) -> None:
    while not lines.empty():
        job, line = lines.get()
        view.last[job] = line
        if logs:
            view.print(f"[{job[1]}] {line}" if many else line)


class _Lines:
    """One line on stderr each time a job or one of its replicas changes its state."""

    def __init__(self, cluster: "LocalSweeps", jobs: Sequence[Job]) -> None:
        self.cluster, self.jobs = cluster, jobs
        self.last: dict[Job, str] = {}
        self.began = time.monotonic()
        self._said: dict[Job, str] = {}

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """End."""

    def look(self) -> None:
        for job in self.jobs:
            said = self._words(job)
            if self._said.get(job) != said:
                self._said[job] = said
                echo(f"[{time.monotonic() - self.began:7.1f} s] {job[1]} {said}", err=True)

    def print(self, line: str) -> None:
        echo_log(line)

    def _words(self, job: Job) -> str:
        pods = read_pods(self.cluster.store.place(*job))
        words = []
        for one in pods:
            again = f" (restart {one['restarts']})" if one["restarts"] else ""
            words.append(f"{one['replica']} {one['phase'].lower()}{again}")
        return f"{status_of(self.cluster.get(*job)).phase}: {', '.join(words) or 'starting'}"


class _Screen(_Lines):
    """A table that rich draws anew several times a second, below the log."""

    def __init__(self, cluster: "LocalSweeps", jobs: Sequence[Job]) -> None:
        from rich.live import Live

        super().__init__(cluster, jobs)
        self._live = Live(self._table(), console=console(stderr=True), refresh_per_second=8)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def look(self) -> None:
        self._live.update(self._table())

    def print(self, line: str) -> None:
        if sys.stdout.isatty():
            self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            echo_log(line)

    def _table(self) -> "Table":
        from rich.table import Table
        from rich.text import Text

        title = f"{time.monotonic() - self.began:.0f} s"
        shown = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="dim")
        for head in ("", "JOB", "REPLICA", "STATE"):
            shown.add_column(head, no_wrap=True)
        shown.add_column("RESTARTS", justify="right")
        shown.add_column("LAST LINE", no_wrap=True, overflow="ellipsis", ratio=1)
        for job in self.jobs:
            phase = status_of(self.cluster.get(*job)).phase
            pods = read_pods(self.cluster.store.place(*job))
            for at, one in enumerate(pods):
                name = f"{job[1]} ({phase})" if at == 0 else ""
                line = Text(self.last.get(job, "") if at == 0 else "", style="dim")
                mark = _MARKS[one["phase"]]
                shown.add_row(mark, name, one["replica"], one["phase"], str(one["restarts"] or ""), line)
        return shown


def _text(value: int | None) -> str:
    return "" if value is None else str(value)

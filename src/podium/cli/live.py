"""Following objects to their end: a live table on a terminal, a line at each change everywhere else."""

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from podium.cli.cluster_options import next_command
from podium.cluster.base import Cluster
from podium.errors import Denied, Failed, NotFound, PodiumError, Unavailable
from podium.heartbeat import doing
from podium.interrupts import Background
from podium.manifests.resource import Resource
from podium.terminal import Styled, echo, echo_log, live

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

LOOK = 0.2
"""Seconds between looks at least; a cluster that answers slowly is asked less often."""

LONGEST_PAUSE = 2.0
"""Seconds between looks at most."""

ObjectKey = tuple[str, str]
"""Kind and name."""


class View(ABC):
    """What is shown of objects that run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.began = time.monotonic()

    @abstractmethod
    def look(self) -> None:
        """Read what the table shows."""

    @abstractmethod
    def news(self) -> Iterable[str]:
        """Read what changed since the last time and describe each change in a line."""

    @abstractmethod
    def table(self, width: int) -> Styled:
        """Draw what the last look read."""

    def output(self) -> Iterable[str]:
        """Return the log lines to print that came since the last time."""
        return ()

    def finish(self) -> None:  # noqa: B027  nothing to wait for by default
        """Wait for the last log lines: all objects have ended."""

    @abstractmethod
    def state(self) -> str:
        """Say in some words how far it is, as of the last news."""

    def doing(self) -> str:
        """Say how far it is and since when, for a file in which nothing else was written for long."""
        return f"[{self.seconds:7.1f} s] {self.state()}"

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self.began

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        yield Text.from_ansi(self.table(options.max_width), no_wrap=True)


def follow(cluster: Cluster, objects: Sequence[ObjectKey], view: View) -> None:
    """Show objects until all have ended; log lines go to stdout, all else to stderr.

    Raises:
        Failed: One can never start, or was deleted.
        Unavailable: The cluster does not answer.
    """
    woken = threading.Event()
    watches = [_Watch(cluster, key, woken) for key in objects]
    try:
        with doing(view.doing), live(view) as screen:
            while True:
                ended, started = all(watch.thread.join(0) for watch in watches), time.monotonic()
                if ended:
                    view.finish()
                with suppress(NotFound, Unavailable, Denied):  # the watch decides what that means
                    _show(view, screen)
                if ended:
                    break
                woken.wait(min(LONGEST_PAUSE, max(LOOK, 20 * (time.monotonic() - started))))
                woken.clear()
    except KeyboardInterrupt:
        _say_what_becomes_of(cluster, objects)
        raise
    for watch in watches:
        watch.check()


def _show(view: View, screen: "Console | None") -> None:
    if screen:
        view.look()
    else:
        for line in view.news():
            echo(f"[{view.seconds:7.1f} s] {line}", err=True)
    for line in view.output():
        if screen and sys.stdout.isatty():  # above the table
            screen.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            echo_log(line)


def _say_what_becomes_of(cluster: Cluster, objects: Sequence[ObjectKey]) -> None:
    for kind, name in objects:
        group = "experiment" if kind == "Experiment" else "job"
        if cluster.remote:
            delete = next_command(f"{group} delete {name}", cluster)
            echo(f"{kind} {name} goes on at {cluster.url}; delete it with: {delete}", err=True)
        elif kind == "Experiment":
            resume = next_command(f"experiment resume {name}", cluster)
            echo(f"Experiment {name} is stopped; resume it with: {resume}", err=True)


class _Watch:
    """Waits for the end of an object in a thread: the cluster may have to tell that it can never start."""

    def __init__(self, cluster: Cluster, key: ObjectKey, woken: threading.Event) -> None:
        self._cluster, self._key, self._woken = cluster, key, woken
        self._finished = False
        self._error: PodiumError | None = None
        self.thread = Background(self._run, f"podium-watch-{key[1]}")
        self.thread.start()

    def _run(self) -> None:
        try:
            for manifest in self._cluster.watch(*self._key):
                self._finished = Resource.parse(manifest).state.finished
            if self._key[0] == "Experiment":  # trials may end after it; a job's Workers may never
                self._cluster.join(*self._key)
        except PodiumError as error:
            self._error = error
        self._woken.set()

    def check(self) -> None:
        """Raise what ended the watch before the object ended."""
        if self._error:
            raise self._error
        if not self._finished:
            raise Failed(f"{' '.join(self._key)} was deleted while it ran", "another command or user deleted it")

"""Following objects to their end: a live table on a terminal, a line at each change everywhere
else."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from podium.api import launched
from podium.api.launched import ObjectKey
from podium.cli.options import next_command
from podium.cluster.base import Cluster
from podium.heartbeat import doing
from podium.terminal import Styled, echo, live
from podium.text import cut

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


SILENCE_SECONDS = 5.0
"""Seconds without an answer of the cluster after which that is shown; one repeated request takes
less."""


class View(ABC):
    """What is shown of objects that run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.began = time.monotonic()
        self.height: int | None = None
        """Lines of the terminal, once it is known."""

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
        """Say how far it is and since when, for a file in which nothing else was written for
        long."""
        return f"[{self.seconds:7.1f} s] {self._silent() or self.state()}"

    def _silent(self) -> str:
        silence = self.cluster.silence
        if silence < SILENCE_SECONDS:
            return ""
        return f"the API server has not answered for {silence:.0f} s; before that: {self.state()}"

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self.began

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        self.height = console.height
        drawn = self.table(options.max_width)
        if silent := self._silent():
            drawn = Styled(f"{drawn}\n{cut(silent, options.max_width)}")
        yield Text.from_ansi(drawn, no_wrap=True)


def follow(cluster: Cluster, objects: Sequence[ObjectKey], view: View) -> None:
    """Show objects until all have ended; log lines go to stdout, all else to stderr.

    Raises:
        Failed: One can never start, or was deleted.
        Unavailable: The cluster does not answer.
    """
    try:
        with doing(view.doing), live(view) as screen:
            launched.follow(cluster, objects, lambda: _show(view, screen), view.finish)
    except KeyboardInterrupt:
        _say_what_becomes_of(cluster, objects)
        raise


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
            echo(line)


def _say_what_becomes_of(cluster: Cluster, objects: Sequence[ObjectKey]) -> None:
    for kind, name in objects:
        group = "experiment" if kind == "Experiment" else "job"
        if cluster.outlives_client(kind):
            delete = next_command(f"{group} delete {name}", cluster)
            echo(f"{kind} {name} goes on at {cluster.url}; delete it with: {delete}", err=True)
        elif kind == "Experiment":
            resume = next_command(f"experiment resume {name}", cluster)
            echo(f"Experiment {name} is stopped; resume it with: {resume}", err=True)

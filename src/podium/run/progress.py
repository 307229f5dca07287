"""Progress of a pipeline run: a live table on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from podium.interrupts import Background
from podium.run.outcome import relative
from podium.run.run import Watcher
from podium.run.runs import Run, StepRecord
from podium.steps.base import SAID
from podium.terminal import console, echo

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

SILENCE = 15.0
"""Seconds without a line after which a log file gets one: whoever follows it knows that the run is alive."""

LINES = 8
"""Number of the running step's last lines shown on a terminal."""

MARKS = {
    "pending": "[dim]·[/]", "running": "[cyan]▸[/]", "succeeded": "[green]✓[/]", "cached": "[green]✓[/]",
    "failed": "[red]✗[/]", "stopped": "[yellow]■[/]",
}  # fmt: skip


@contextmanager
def progress() -> Iterator[Watcher]:
    """Provide a watcher that shows a run on stderr."""
    if not sys.stderr.isatty():
        with Lines().ticking() as lines:
            yield lines.update
        return
    from rich.live import Live

    view = View()
    with Live(view, console=console(stderr=True), refresh_per_second=8):
        yield view.update


class Lines:
    """A line at each change of a run, and one for each time that nothing changes for long.

    Args:
        silence: Seconds after which the running step is mentioned again.
    """

    def __init__(self, silence: float = SILENCE) -> None:
        self.silence = silence
        self.running: StepRecord | None = None
        self.last = time.monotonic()

    def update(self, run: Run, name: str, said: str) -> None:
        """Print a change."""
        step = run.steps.get(name)
        if said.startswith(SAID):
            self._print(f"      {said.removeprefix(SAID)}")
        elif step is None:
            self._print(f"run {run.id} of {run.pipeline}, everything under {relative(str(run.directory))}")
        elif not said:
            self.running = step if step.state == "running" else None
            number = f"[{list(run.steps).index(name) + 1}/{len(run.steps)}]"
            state = "" if step.state == "running" else f": {step.state}, {_clock(step)}"
            self._print(f"{number} {step.title}{state}")

    @contextmanager
    def ticking(self) -> Iterator[Self]:
        """Watch for silence as long as the context is open."""
        closed = threading.Event()

        def watch() -> None:
            while not closed.wait(self.silence / 10):
                step = self.running
                if step and time.monotonic() - self.last >= self.silence:
                    self._print(f"      {step.title}: {_clock(step)} so far")

        thread = Background(watch, "podium-progress")
        thread.start()
        try:
            yield self
        finally:
            closed.set()
            thread.join()

    def _print(self, line: str) -> None:
        self.last = time.monotonic()
        echo(line, err=True)


def _clock(step: StepRecord) -> str:
    if step.started is None:
        return "0.0 s" if step.state == "cached" else ""
    seconds = step.seconds if step.seconds is not None else time.time() - step.started
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"


class View:
    """A live table of a run, which rich redraws several times a second."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.said: dict[str, list[str]] = {}

    def update(self, run: Run, name: str, said: str) -> None:
        """Record a change."""
        self.run = run
        if said.startswith(SAID):
            self.said.setdefault(name, []).append(said.removeprefix(SAID))

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        yield self._table(self.run, options.max_width) if self.run else "starting …"

    def _table(self, run: Run, width: int) -> "Table":
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None, show_header=False, pad_edge=False, title_justify="left")
        clocks = max((len(_clock(step)) for step in run.steps.values()), default=0)
        table.add_column(width=1)
        # Rich narrows all columns equally if one does not fit, so the text's width is what mark and time leave.
        table.add_column(overflow="ellipsis", no_wrap=True, max_width=max(1, width - clocks - 5))
        table.add_column(justify="right", no_wrap=True)
        for name, step in run.steps.items():
            table.add_row(MARKS[step.state], step.title, _clock(step))
            lines = self.said.get(name, [])
            shown = lines[-LINES:] if step.state == "running" else lines[-1:]
            for line in shown:
                table.add_row("", f"[dim]  {escape(line)}[/]", "")
        return table

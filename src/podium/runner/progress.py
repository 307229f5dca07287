"""Progress of a pipeline run: a live table on a terminal or in a notebook's cell, plain lines
elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from podium.display import notebook
from podium.display.notebook import LiveCell, in_notebook
from podium.display.tables import Row, table
from podium.display.terminal import Styled, doing, echo, live, styled
from podium.display.text import duration, plural, relative
from podium.errors import InvalidInput, NotFound
from podium.runner.process import Watcher
from podium.runner.record import RunRecord, StepRecord
from podium.training.base import PROGRESS

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

LINES = 8
"""Number of the running step's last lines shown on a terminal."""


@contextmanager
def progress() -> Iterator[Watcher]:
    """Provide a watcher that shows a run in a notebook's cell, or on stderr."""
    if in_notebook():
        with LiveCell() as cell:
            yield _Cell(cell).update
        return
    view, lines = _LiveSteps(), _Lines()
    with doing(lines.state), live(view) as screen:
        yield view.update if screen else lines.update


class _Cell:
    """A table in a notebook's cell."""

    def __init__(self, cell: LiveCell) -> None:
        self.cell = cell
        self.said: dict[str, list[str]] = {}

    def update(self, run: RunRecord, name: str, said: str) -> None:
        if said.startswith(PROGRESS):
            self.said.setdefault(name, []).append(said.removeprefix(PROGRESS))
        self.cell.show(steps_as_html(run, self.said))


def steps_as_html(run: RunRecord, said: Mapping[str, Sequence[str]]) -> str:
    """Return a row for each step, with its last line."""
    rows = [
        (step.title, step.state, duration(step.elapsed), (said.get(name) or [""])[-1])
        for name, step in run.steps.items()
    ]
    title = f"run {run.id} of {run.pipeline}: {run.state}"
    return notebook.table(("STEP", "STATE", ">TOOK", "LAST LINE"), rows, title=title)


class _Lines:
    """A line at each change of a run."""

    def __init__(self) -> None:
        self.running: StepRecord | None = None
        self.started = False

    def state(self) -> str:
        """Say which step is running and for how long, for a file in which nothing else was written
        for long."""
        if self.running:
            return f"      {self.running.title}: {_clock(self.running)} so far"
        return "" if self.started else "starting"

    def update(self, run: RunRecord, name: str, said: str) -> None:
        self.started = True
        step = run.steps.get(name)
        if said.startswith(PROGRESS):
            echo(f"      {said.removeprefix(PROGRESS)}", err=True)
        elif step is None:
            echo(f"{_headline(run)}, everything under {relative(str(run.directory))}", err=True)
        elif not said:
            self.running = next(
                (each for each in run.steps.values() if each.state == "running"), None
            )
            number = f"[{list(run.steps).index(name) + 1}/{len(run.steps)}]"
            took = f", {_clock(step)}" if _clock(step) else ""
            state = "" if step.state == "running" else f": {step.state}{took}"
            echo(f"{number} {step.title}{state}", err=True)


def _headline(run: RunRecord) -> str:
    last = _last_like(run)
    took = f"; the last run like it took {duration(last.seconds)}" if last else ""
    return f"run {run.id} of {run.pipeline}: {plural(len(run.steps), 'step')}{took}"


def _last_like(run: RunRecord) -> RunRecord | None:
    """Return the newest earlier run of the same work, with any seed, without a resume; None if
    there is none."""

    def what(run: RunRecord) -> tuple[str, list[str], dict[str, Any]]:
        own = ("cluster", "storage", "seed")  # of each run its own
        return (
            run.pipeline,
            list(run.steps),
            {name: run.parameters[name] for name in run.parameters if name not in own},
        )

    for path in sorted(run.directory.parent.glob("*/run.json"), reverse=True):
        with suppress(InvalidInput, NotFound, OSError):  # damaged, or another user's
            other = RunRecord.read(path.parent)
            if (
                other.id < run.id
                and other.state == "succeeded"
                and other.attempt == 1
                and what(other) == what(run)
            ):
                return other
    return None


def _clock(step: StepRecord) -> str:
    if step.started is None:
        return "0.0 s" if step.state == "cached" else ""
    return duration(step.elapsed)


class _LiveSteps:
    """A live table of a run, which rich redraws several times a second."""

    def __init__(self) -> None:
        self.run: RunRecord | None = None
        self.headline = ""
        self.said: dict[str, list[str]] = {}

    def update(self, run: RunRecord, name: str, said: str) -> None:
        self.run = run
        self.headline = self.headline or _headline(run)
        if said.startswith(PROGRESS):
            self.said.setdefault(name, []).append(said.removeprefix(PROGRESS))

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        drawn = self.table(self.run, options.max_width) if self.run else styled("starting …")
        yield Text.from_ansi(drawn, no_wrap=True)

    def table(self, run: RunRecord, width: int) -> Styled:
        rows = [
            Row(
                phase=step.state.capitalize(),
                cells=(step.title, _clock(step)),
                below=self._lines(name, step),
            )
            for name, step in run.steps.items()
        ]
        return table(("STEP", ">TOOK"), rows, title=self.headline, width=width, shorten="STEP")

    def _lines(self, name: str, step: StepRecord) -> list[str]:
        lines = self.said.get(name, [])
        return lines[-LINES:] if step.state == "running" else lines[-1:]

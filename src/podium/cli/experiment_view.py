"""How trials are shown: a live table on a terminal, a line at each change everywhere else."""

import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from podium.cli.model_tables import table
from podium.cluster.base import Cluster
from podium.errors import NotFound
from podium.manifests.experiment import Experiment, Trial, best_trial, news
from podium.manifests.experiment.trial import Metrics
from podium.metrics import fold, read_text
from podium.sweeps.resume import has_ended
from podium.terminal import console, echo

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

_MARKS = {
    "Pending": ("·", "dim"),
    "Running": ("▸", "cyan"),
    "Succeeded": ("✓", "green"),
    "EarlyStopped": ("◂", "yellow"),
    "Failed": ("✗", "red"),
    "MetricsUnavailable": ("?", "red"),
    "Killed": ("■", "yellow"),
}
_SHOWN = 24
"""Rows of the live table at most; earlier trials are counted, the best always shown."""


def trials_of(cluster: Cluster, experiment: Experiment) -> list[Trial]:
    """Return the trials, oldest first; a running one has the last metrics it printed."""
    trials = []
    for trial in cluster.trials(experiment.name):
        running = trial.phase == "Running" and not trial.metrics
        trials.append(trial.with_metrics(_printed(cluster, trial, experiment)) if running else trial)
    return trials


def finished(cluster: Cluster, name: str) -> list[Trial]:
    """Return the trials that ended, oldest first."""
    return [trial for trial in cluster.trials(name) if has_ended(trial)]


def _printed(cluster: Cluster, trial: Trial, experiment: Experiment) -> Metrics:
    names, formats = experiment.objective.metrics, experiment.collector.filters or None
    lines: deque[str] = deque(maxlen=200)
    with suppress(NotFound):
        lines.extend(cluster.logs("Trial", trial.name))
    return {name: values for name, values in fold(read_text(lines, names, formats), names).items() if _known(values)}


def draw(trials: Sequence[Trial], experiment: Experiment) -> str:
    """Draw trials as aligned text."""
    names, metrics = _columns(trials), experiment.objective.metrics
    head = ("TRIAL", "STATE", *(f">{name}" for name in names), *(f">{name}" for name in metrics), ">SECONDS")
    return table(head, [_cells(trial, names, experiment) for trial in trials])


def _columns(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(name for trial in trials for name in trial.assignments))


def _cells(trial: Trial, names: Sequence[str], experiment: Experiment) -> list[str]:
    objective, ended = experiment.objective, trial.phase not in ("Running", "Pending")
    shown = [
        trial.metrics.get(name, {}).get(objective.strategies.get(name, "latest") if ended else "latest", "")
        for name in objective.metrics
    ]
    values = [_short(trial.assignments.get(name, "")) for name in names]
    return [trial.name, trial.phase, *values, *shown, "" if trial.seconds is None else f"{trial.seconds:.1f}"]


def _short(value: str) -> str:
    try:
        return value if len(value) <= 8 else f"{float(value):.5g}"
    except ValueError:
        return value if len(value) <= 20 else f"{value[:19]}…"


def _known(values: Mapping[str, str]) -> bool:
    return values["latest"] != "unavailable"


@contextmanager
def progress(cluster: Cluster, name: str, told: Mapping[str, str]) -> Iterator["View"]:
    """Give a view that shows an Experiment on stderr; of trials in ``told`` a log hears only what is new."""
    if not sys.stderr.isatty():
        yield Lines(cluster, name, told)
        return
    from rich.live import Live

    view = Screen(cluster, name)
    with Live(view, console=console(stderr=True), refresh_per_second=4):
        yield view
        view.look()


class View:
    """Looks at an Experiment's trials and shows them."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name = cluster, name
        self._began = time.monotonic()

    def look(self) -> None:
        """Take in what changed."""
        raise NotImplementedError


class Lines(View):
    """One line on stderr each time a trial changes its state."""

    def __init__(self, cluster: Cluster, name: str, told: Mapping[str, str]) -> None:
        super().__init__(cluster, name)
        self._phases = dict(told)

    def look(self) -> None:
        """Print what changed; only trials of which the Experiment says so are read, for there may be thousands."""
        experiment = self._cluster.experiment(self._name)
        changed = [
            name
            for phase, names in experiment.trials.items()
            for name in names
            if phase != "Created" and self._phases.get(name) != phase
        ]
        for name in changed:
            with suppress(NotFound):
                trial = self._cluster.trial(name)
                for phase in news(trial, self._phases.get(name, "Pending")):
                    self._phases[name] = phase
                    echo(self._line(trial, phase, experiment), err=True)

    def _line(self, trial: Trial, phase: str, experiment: Experiment) -> str:
        since = f"[{time.monotonic() - self._began:7.1f} s]"
        words = " ".join(f"{name}={_short(value)}" for name, value in trial.assignments.items())
        if phase == "Running":
            return f"{since} {trial.name} Running {words}"
        cells = zip(experiment.objective.metrics, _cells(trial, [], experiment)[2:-1], strict=True)
        metrics = " ".join(f"{name}={cell}" for name, cell in cells if cell)
        return f"{since} {trial.name} {phase} {metrics if trial.is_good else trial.message} {words}".rstrip()


class Screen(View):
    """A table that rich draws anew several times a second, as wide as the terminal is then."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self._seen: tuple[Experiment, list[Trial]] | None = None

    def look(self) -> None:
        """Take in what there is now."""
        with suppress(NotFound):
            experiment = self._cluster.experiment(self._name)
            self._seen = experiment, trials_of(self._cluster, experiment)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Draw; where the terminal is narrow without the last parameters and the least important numbers."""
        if not self._seen:
            yield "starting …"
            return
        experiment, rows = self._seen
        names, metrics = _columns(rows), experiment.objective.metrics
        heads = ["TRIAL", "STATE", *names, *metrics, "SECONDS"]
        last = len(heads) - 1
        objective = 2 + len(names)
        droppable = [last, *range(last - 1, objective, -1), *range(objective - 1, 0, -1)]  # the mark tells the state
        dropped: set[int] = set()
        table = self._table(experiment, rows, heads, dropped)
        for column in droppable:
            if console.measure(table, options=options.update(width=1000)).maximum <= options.max_width:
                break
            dropped.add(column)
            table = self._table(experiment, rows, heads, dropped)
        yield table

    def _table(self, experiment: Experiment, rows: Sequence[Trial], heads: Sequence[str], dropped: Set[int]) -> "Table":
        from rich.table import Table

        names = _columns(rows)
        leader = best_trial(rows)
        best = leader.name if leader else ""
        hidden = [row for row in rows[:-_SHOWN] if row.name != best]
        shown = Table(box=None, pad_edge=False, title_justify="left", title_style="bold")
        shown.title = f"{self._name}: {len(rows)} trials, {time.monotonic() - self._began:.0f} s"
        if hidden:
            shown.title += f" ({len(hidden)} earlier ones not shown)"
        if dropped:
            shown.title += f" (too narrow for {', '.join(heads[at] for at in sorted(dropped))})"
        shown.add_column("")
        for at, head in enumerate(heads):
            if at not in dropped:
                shown.add_column(head, justify="left" if at < 2 else "right", no_wrap=True)
        for row in rows:
            if row not in hidden:
                mark, style = _MARKS.get(row.phase, ("·", ""))
                cells = [cell for at, cell in enumerate(_cells(row, names, experiment)) if at not in dropped]
                shown.add_row(f"[{style}]{mark}[/]", *cells, style="bold" if row.name == best else "")
        return shown

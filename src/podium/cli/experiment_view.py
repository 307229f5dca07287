"""How trials are shown: a live table on a terminal, a line at each change everywhere else."""

import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from podium.cli.model_tables import table
from podium.cluster.base import Cluster, Manifest
from podium.errors import NotFound
from podium.local.katib.resuming import has_ended
from podium.manifests.experiment import TrialRow, leaderboard, news, objective_of, trial_row
from podium.metrics import fold, read_text
from podium.terminal import console, echo

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

OF = "katib.kubeflow.org/experiment"
"""Label of an Experiment's trials."""

_MARKS = {
    "Pending": ("·", "dim"),
    "Running": ("▸", "cyan"),
    "Succeeded": ("✓", "green"),
    "EarlyStopped": ("◂", "yellow"),
    "Failed": ("✗", "red"),
    "MetricsUnavailable": ("?", "red"),
    "Killed": ("■", "yellow"),
}
_LISTS = {
    "Succeeded": "succeededTrialList",
    "EarlyStopped": "earlyStoppedTrialList",
    "Failed": "failedTrialList",
    "MetricsUnavailable": "metricsUnavailableTrialList",
    "Killed": "killedTrialList",
    "Running": "runningTrialList",
}
"""Where an Experiment's status names its trials in each state; those that ended first."""

_SHOWN = 24
"""Rows of the live table at most; earlier trials are counted, the best always shown."""


def trials_of(cluster: Cluster, experiment: Manifest) -> list[TrialRow]:
    """Return the trials, oldest first; a running one has the last metrics it printed."""
    rows = []
    for trial in cluster.list("Trial", {OF: experiment["metadata"]["name"]}):
        row = trial_row(trial)
        if row.state == "Running" and not row.metrics:
            row.metrics.update(_printed(cluster, trial, experiment))
        rows.append(row)
    return rows


def finished(cluster: Cluster, name: str) -> list[TrialRow]:
    """Return the trials that ended, oldest first."""
    return [trial_row(trial) for trial in cluster.list("Trial", {OF: name}) if has_ended(trial)]


def _printed(cluster: Cluster, trial: Manifest, experiment: Manifest) -> dict[str, dict[str, str]]:
    names = metric_names(experiment)
    source = (experiment["spec"].get("metricsCollectorSpec") or {}).get("source") or {}
    formats = (source.get("filter") or {}).get("metricsFormat")
    lines: deque[str] = deque(maxlen=200)
    with suppress(NotFound):
        lines.extend(cluster.logs("Trial", trial["metadata"]["name"]))
    return {name: values for name, values in fold(read_text(lines, names, formats), names).items() if _known(values)}


def metric_names(experiment: Mapping[str, Any]) -> list[str]:
    """Return the metrics of an Experiment, the objective first."""
    objective = experiment["spec"]["objective"]
    return [objective["objectiveMetricName"], *(objective.get("additionalMetricNames") or [])]


def as_dict(row: TrialRow) -> dict[str, Any]:
    """Return a trial for --json."""
    return {field: getattr(row, field) for field in row.__dataclass_fields__}


def draw(rows: Sequence[TrialRow], experiment: Manifest) -> str:
    """Draw trials as aligned text."""
    names, metrics = _columns(rows), metric_names(experiment)
    head = ("TRIAL", "STATE", *(f">{name}" for name in names), *(f">{name}" for name in metrics), ">SECONDS")
    return table(head, [_cells(row, names, metrics, experiment) for row in rows])


def _columns(rows: Sequence[TrialRow]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.parameters))


def _cells(row: TrialRow, names: Sequence[str], metrics: Sequence[str], experiment: Manifest) -> list[str]:
    strategies = {one["name"]: one["value"] for one in experiment["spec"]["objective"].get("metricStrategies") or []}
    ended = row.state not in ("Running", "Pending")
    shown = [
        row.metrics.get(name, {}).get(strategies.get(name, "latest") if ended else "latest", "") for name in metrics
    ]
    values = [_short(row.parameters.get(name, "")) for name in names]
    return [row.name, row.state, *values, *shown, "" if row.seconds is None else f"{row.seconds:.1f}"]


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
        self._states = dict(told)

    def look(self) -> None:
        """Print what changed; only trials of which the Experiment says so are read, for there may be thousands."""
        experiment = self._cluster.get("Experiment", self._name)
        status = experiment.get("status") or {}
        changed = [
            name
            for state, names in _LISTS.items()
            for name in status.get(names) or []
            if self._states.get(name) != state
        ]
        for name in changed:
            with suppress(NotFound):
                for row in news(self._cluster.get("Trial", name), self._states.get(name, "Pending")):
                    self._states[name] = row.state
                    echo(self._line(row, experiment), err=True)

    def _line(self, row: TrialRow, experiment: Manifest) -> str:
        since = f"[{time.monotonic() - self._began:7.1f} s]"
        words = " ".join(f"{name}={_short(value)}" for name, value in row.parameters.items())
        if row.state == "Running":
            return f"{since} {row.name} Running {words}"
        cells = _cells(row, [], metric_names(experiment), experiment)[2:-1]
        found = " ".join(f"{name}={cell}" for name, cell in zip(metric_names(experiment), cells, strict=True) if cell)
        good = row.state in ("Succeeded", "EarlyStopped")
        return f"{since} {row.name} {row.state} {found if good else row.message} {words}".rstrip()


class Screen(View):
    """A table that rich draws anew several times a second, as wide as the terminal is then."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self._seen: tuple[Manifest, list[TrialRow]] | None = None

    def look(self) -> None:
        """Take in what there is now."""
        with suppress(NotFound):
            experiment = self._cluster.get("Experiment", self._name)
            self._seen = experiment, trials_of(self._cluster, experiment)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Draw; where the terminal is narrow without the last parameters and the least important numbers."""
        if not self._seen:
            yield "starting …"
            return
        experiment, rows = self._seen
        names, metrics = _columns(rows), metric_names(experiment)
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

    def _table(
        self, experiment: Manifest, rows: Sequence[TrialRow], heads: Sequence[str], dropped: Set[int]
    ) -> "Table":
        from rich.table import Table

        names, metrics = _columns(rows), metric_names(experiment)
        best = _best(rows, experiment)
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
                mark, style = _MARKS.get(row.state, ("·", ""))
                cells = [cell for at, cell in enumerate(_cells(row, names, metrics, experiment)) if at not in dropped]
                shown.add_row(f"[{style}]{mark}[/]", *cells, style="bold" if row.name == best else "")
        return shown


def _best(rows: Sequence[TrialRow], experiment: Manifest) -> str:
    """Return the name of the best trial so far, or nothing."""
    _, maximize, _ = objective_of(experiment)
    ended = [row for row in rows if row.value is not None]
    return (max if maximize else min)(ended, key=lambda row: row.value or 0.0).name if ended else ""


def ranked(rows: Sequence[Manifest], experiment: Manifest) -> list[TrialRow]:
    """Return trials, best first."""
    return leaderboard(rows, maximize=objective_of(experiment)[1])

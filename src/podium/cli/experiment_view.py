"""How trials are shown: a live table on a terminal, a line at each change everywhere else."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from podium.cli.live import View
from podium.cluster.base import Cluster
from podium.errors import NotFound
from podium.manifests.experiment import Experiment, Trial, best_trial, news
from podium.manifests.experiment.trial import Metrics
from podium.metrics import fold, read_text
from podium.sweeps.resume import has_ended
from podium.tables import Row, screen_width, table
from podium.terminal import Styled, styled

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
    return _draw(trials, trials, experiment, width=screen_width())


def _draw(
    trials: Sequence[Trial],
    shown: Sequence[Trial],
    experiment: Experiment,
    *,
    width: int | None,
    title: str = "",
    best: Trial | None = None,
) -> Styled:
    """Draw some of the trials; where it is narrow without the last parameters, lesser metrics and the state."""
    names, metrics = _columns(trials), experiment.objective.metrics
    rows = [Row(phase=trial.phase, cells=_cells(trial, names, experiment), bold=trial is best) for trial in shown]
    trial_head, state, *heads, _ = _heads(names, metrics)
    parameters, lesser = heads[: len(names)], heads[len(names) + 1 :]
    drop = [*reversed(lesser), *reversed(parameters), state]  # the mark shows the state
    return table(_heads(names, metrics), rows, title=title, width=width, drop=drop, shorten=trial_head)


def _heads(names: Sequence[str], metrics: Sequence[str]) -> list[str]:
    return ["TRIAL", "STATE", *(f">{name}" for name in (*names, *metrics)), ">SECONDS"]


def _columns(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(name for trial in trials for name in trial.assignments))


def _cells(trial: Trial, names: Sequence[str], experiment: Experiment) -> list[str]:
    objective, ended = experiment.objective, trial.phase not in ("Running", "Waiting", "Pending")
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


class ExperimentView(View):
    """An Experiment's trials.

    Args:
        cluster: Runs it.
        name: Of the Experiment.
        reported: Phases of trials that a log need not hear of again.
    """

    def __init__(self, cluster: Cluster, name: str, reported: Mapping[str, str]) -> None:
        super().__init__(cluster)
        self._name, self._phases = name, dict(reported)
        self._seen: tuple[Experiment, list[Trial]] | None = None
        self._counts = "starting"

    def state(self) -> str:
        """Count the trials by phase."""
        return f"{self._name}: {self._counts}"

    def look(self) -> None:
        """Read all trials."""
        experiment = self.cluster.experiment(self._name)
        self._seen = experiment, trials_of(self.cluster, experiment)

    def news(self) -> Iterator[str]:
        """Describe each change; only trials of which the Experiment says so are read, for there may be thousands."""
        experiment = self.cluster.experiment(self._name)
        counts = [f"{len(names)} {phase.lower()}" for phase, names in experiment.trials.items() if names]
        self._counts = ", ".join(counts) or self._counts
        changed = [
            name
            for phase, names in experiment.trials.items()
            for name in names
            if phase != "Created" and self._phases.get(name) != phase
        ]
        for name in changed:
            with suppress(NotFound):
                trial = self.cluster.trial(name)
                for phase in news(trial, self._phases.get(name, "Pending")):
                    self._phases[name] = phase
                    yield _line(trial, phase, experiment)

    def table(self, width: int) -> Styled:
        """Draw the latest trials and the best."""
        if not self._seen:
            return styled("starting …")
        experiment, trials = self._seen
        best = best_trial(trials)
        hidden = {trial.name for trial in trials[:-_SHOWN]} - {best.name if best else ""}
        title = f"{self._name}: {len(trials)} trials, {self.seconds:.0f} s"
        if hidden:
            title += f" ({len(hidden)} earlier ones not shown)"
        shown = [trial for trial in trials if trial.name not in hidden]
        return _draw(trials, shown, experiment, width=width, title=title, best=best)


def _line(trial: Trial, phase: str, experiment: Experiment) -> str:
    words = " ".join(f"{name}={_short(value)}" for name, value in trial.assignments.items())
    if phase == "Running":
        return f"{trial.name} Running {words}"
    if phase == "Waiting":
        return f"{trial.name} waits. {trial.message}"
    cells = zip(experiment.objective.metrics, _cells(trial, [], experiment)[2:-1], strict=True)
    metrics = " ".join(f"{name}={cell}" for name, cell in cells if cell)
    return f"{trial.name} {phase} {metrics if trial.is_good else trial.message} {words}".rstrip()

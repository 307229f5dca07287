"""Trials as people read them: cells of a table, a line at each change."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from podium.cluster.base import Cluster
from podium.display.text import plural
from podium.doctor.trial import why_unavailable
from podium.errors import Failed, NotFound, PodiumError
from podium.manifests.experiment import Experiment, Trial, best_trial, fronts_of, news
from podium.manifests.experiment.experiment import Metrics
from podium.manifests.options import forecast
from podium.metrics import fold, read_text
from podium.reports.leaderboard import Leaderboard, LeaderboardRow, short
from podium.training.retention import output_of
from podium.training.standing import UNKNOWN, Standing, standing

_MOST_LOG = 8 << 20
"""Characters of a trial's log that are held at once, the last ones."""


def trials_of(cluster: Cluster, experiment: Experiment) -> list[Trial]:
    """Return the trials, oldest first; a running one has the last metrics it printed."""
    return [with_printed(cluster, trial, experiment) for trial in cluster.trials(experiment.name)]


def with_printed(cluster: Cluster, trial: Trial, experiment: Experiment) -> Trial:
    """Return a trial; one that runs with the last metrics it printed."""
    running = trial.phase == "Running" and not trial.metrics
    return trial.with_metrics(_printed(cluster, trial, experiment)) if running else trial


def finished(cluster: Cluster, name: str) -> list[Trial]:
    """Return the trials that ended, oldest first."""
    return [trial for trial in cluster.trials(name) if trial.has_ended]


def failed(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that failed or have no metrics."""
    return [trial for trial in trials if trial.phase in ("Failed", "MetricsUnavailable")]


def lines_of(cluster: Cluster, trial: Trial) -> list[str]:
    """Return the output of a trial, its last 8 Mi characters; empty if its pod is gone."""
    lines, size = deque[str](), 0
    for line in logs_of(cluster, trial):
        lines.append(line)
        size += len(line)
        while size > _MOST_LOG:
            size -= len(lines.popleft())
    return list(lines)


def logs_of(cluster: Cluster, trial: Trial) -> Iterator[str]:
    """Yield all lines that a trial printed; none if its pod is gone."""
    with suppress(PodiumError):
        yield from cluster.logs("Trial", trial.name)


def failure(
    cluster: Cluster,
    name: str,
    *,
    trials: str,
    logs: str,
    objective: str,
    ask: Callable[[str, str], str] | None = None,
) -> Failed:
    """Return the error to raise for an Experiment that failed, with the last lines of a trial that
    did.

    Args:
        trials: Command that shows its trials.
        logs: Command that shows a trial's log, with TRIAL for its name.
        objective: Setting that selects another objective, with NAME for its name.
        ask: Returns how to start a sweep that reads a library's lines, from its key and the metric.
    """
    experiment = cluster.experiment(name)
    text = f"Experiment {name} failed: {experiment.state.message}"
    ended = finished(cluster, name)
    bad, best = next(iter(failed(ended)), None), best_trial(ended)
    if bad is None:
        return Failed(text, trials)
    printed = lines_of(cluster, bad)
    unavailable = bad.phase == "MetricsUnavailable"
    why, hint = why_unavailable(experiment, printed, objective, ask) if unavailable else ([], "")
    said = _account(bad, printed, why)
    whole = f"{logs.replace('TRIAL', bad.name)} prints its whole log"
    if best:
        good = len(ended) - len(failed(ended))
        values = ", ".join(f"{name}={value}" for name, value in best.parameters.items())
        counts = (
            f"{good} of {plural(len(ended), 'trial')} {'has' if good == 1 else 'have'} a result"
        )
        said.append(f"{counts}, the best is {best.name}: {best.value} with {values}")
        whole = f"{whole}; {trials} shows them all"
    return Failed("\n".join([text, *said]), f"{hint}; {whole}" if hint else whole)


def partly_failed(cluster: Cluster, name: str, *, logs: str) -> str:
    """Return a warning about the trials that failed, with the last lines of the first one; empty if
    none did.

    Args:
        logs: Command that shows a trial's log, with TRIAL for its name.
    """
    ended = finished(cluster, name)
    bad = failed(ended)
    if not bad:
        return ""
    state, first = cluster.experiment(name).state, bad[0]
    ends = "" if state.succeeded else f", which ends the sweep: {state.message}"
    said = _account(first, lines_of(cluster, first), [])
    hint = f"  hint: {logs.replace('TRIAL', first.name)} prints its whole log"
    return "\n".join(
        [f"warning: {len(bad)} of {plural(len(ended), 'trial')} failed{ends}", *said, hint]
    )


def _account(bad: Trial, printed: Sequence[str], why: Sequence[str]) -> list[str]:
    lines = [f"  | {line}" for line in printed[-8:]]
    return [
        f"trial {bad.name}: {bad.message}",
        *why,
        *(["its last lines", *lines] if lines else []),
    ]


def _printed(cluster: Cluster, trial: Trial, experiment: Experiment) -> Metrics:
    names, formats = experiment.objective.metrics, experiment.collector.filters or None
    lines: deque[str] = deque(maxlen=200)
    with suppress(NotFound):
        lines.extend(cluster.logs("Trial", trial.name))
    folded = fold(read_text(lines, names, formats), names)
    return {name: values for name, values in folded.items() if values["latest"] != "unavailable"}


def leaderboard_of(
    trials: Sequence[Trial],
    experiment: Experiment,
    among: Sequence[Trial] | None = None,
    sure: Standing = UNKNOWN,
) -> Leaderboard:
    """Return trials as a table, in their order.

    Args:
        among: All trials of the Experiment, where others than the shown ones decide which of them
            are on the front.
        sure: How sure their figures are.
    """
    on, best = fronts_of(among or trials), best_trial(among or trials)
    rows = [row_of(trial, experiment, on, sure=sure) for trial in trials]
    names = list(dict.fromkeys(name for trial in trials for name in trial.assignments))
    return Leaderboard(
        rows=rows,
        parameters=names,
        metrics=experiment.objective.metrics,
        best=best.name if best else "",
        remark=sure.remark,
    )


def standing_of(experiment: Experiment, ranked: Sequence[Trial]) -> Standing:
    """Return how sure the figures of a sweep's trials are, best first, by what they left."""
    return standing(experiment, ranked, output_of)


def row_of(
    trial: Trial,
    experiment: Experiment,
    on: Mapping[str, int],
    number: int | None = None,
    sure: Standing = UNKNOWN,
) -> LeaderboardRow:
    """Return a trial as a row of a table.

    Args:
        on: Number of the Pareto front by trial.
        number: Index in the order of starts.
        sure: How sure the figures of the trials are.
    """
    facts = {"front": on.get(trial.name), "number": number, **sure.to_json(trial.name)}
    return LeaderboardRow.read({**trial.to_json(), **facts}, measured(trial, experiment))


def measured(trial: Trial, experiment: Experiment) -> dict[str, str]:
    """Return a trial's metrics: of one that ended by the Experiment's strategies, else the latest
    values."""
    objective, ended = experiment.objective, trial.phase not in ("Running", "Waiting", "Pending")
    return {
        name: trial.metrics.get(name, {}).get(
            objective.strategies.get(name, "latest") if ended else "latest", ""
        )
        for name in objective.metrics
    }


class TrialProgress:
    """Describes each change of an Experiment's trials once.

    Args:
        reported: Phases of trials that nobody need hear of again.
    """

    def __init__(self, cluster: Cluster, name: str, reported: Mapping[str, str]) -> None:
        self._cluster, self._name, self._phases = cluster, name, dict(reported)
        self._counts = "starting"
        self._ended: list[Trial] | None = []  # for the forecast; None once it was made

    def state(self) -> str:
        """Count the trials by phase, as of the last lines."""
        return f"{self._name}: {self._counts}"

    def lines(self) -> Iterator[str]:
        """Describe the changes; reads only the trials that the Experiment lists as changed, for
        there may be thousands."""
        experiment = self._cluster.experiment(self._name)
        counts = [
            f"{len(names)} {phase.lower()}" for phase, names in experiment.trials.items() if names
        ]
        self._counts = ", ".join(counts) or self._counts
        if experiment.state.phase == "Waiting":
            self._counts = experiment.state.message
        changed = [
            name
            for phase, names in experiment.trials.items()
            for name in names
            if phase != "Created" and self._phases.get(name) != phase
        ]
        for name in changed:
            with suppress(NotFound):
                trial = self._cluster.trial(name)
                self._note(trial)
                for phase in news(trial, self._phases.get(name, "Pending")):
                    self._phases[name] = phase
                    yield _line(trial, phase, experiment)
        if self._ended and (said := forecast(experiment, self._ended)):
            self._ended = None
            yield said

    def _note(self, trial: Trial) -> None:
        if self._ended is not None and trial.has_ended:
            self._ended.append(trial)


def _line(trial: Trial, phase: str, experiment: Experiment) -> str:
    words = " ".join(f"{name}={short(value)}" for name, value in trial.parameters.items())
    if phase == "Running":
        return f"{trial.name} Running {words}"
    if phase == "Waiting":
        return f"{trial.name} waits. {trial.message}"
    metrics = " ".join(
        f"{name}={short(value)}" for name, value in measured(trial, experiment).items() if value
    )
    return f"{trial.name} {phase} {metrics if trial.is_good else trial.message} {words}".rstrip()

"""Trials as people read them: cells of a table, a line at each change."""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from podium.api.space import argument_of, read_value
from podium.cluster.base import Cluster
from podium.display.notebook import table
from podium.display.text import plural, quoted
from podium.doctor.trial import misread_trial, why_unavailable
from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.manifests.experiment import Experiment, Trial, best_trial, fronts_of, news
from podium.manifests.options import forecast
from podium.metrics import fold, read_text
from podium.reports.leaderboard import Leaderboard, LeaderboardRow, short
from podium.storage import connect
from podium.training.follow import epochs_of
from podium.training.retention import output_of
from podium.training.standing import UNKNOWN, Standing

if TYPE_CHECKING:
    from podium.prediction import Predictions

_MOST_LOG = 8 << 20
"""Characters of a trial's log that are held at once, the last ones."""

_MOST_EPOCHS = 10_000
"""Points of a trial's curve."""


_SWITCH = re.compile(
    r"argument (?:-\w/)?--([\w.-]+): ignored explicit argument|'--([\w.-]+)' does not take a value"
)
"""Errors of argparse and click about a flag that has no value."""

_BY_POSITION = re.compile(r"(?:to float|with base 10): '--([\w.-]+)=")
"""Errors of float and int in a program that reads ``sys.argv[1]``."""


class TrialReader:
    """Reads the trials of an Experiment: their metrics, what they printed, and why they failed."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def all(self, experiment: Experiment) -> list[Trial]:
        """Return the trials, oldest first; a running one has the last metrics it printed."""
        return [self.updated(trial, experiment) for trial in self.cluster.trials(self.name)]

    def updated(self, trial: Trial, experiment: Experiment) -> Trial:
        """Return a trial with all that it is judged by; one that runs with the last metrics it
        printed."""
        trial = trial.judged_as(experiment)
        if trial.phase != "Running" or trial.metrics:
            return trial
        names, formats = experiment.objective.metrics, experiment.collector.filters or None
        lines: deque[str] = deque(maxlen=200)
        with suppress(NotFound):
            lines.extend(self.cluster.logs("Trial", trial.name))
        folded = fold(read_text(lines, names, formats), names)
        return trial.with_metrics(
            {name: each for name, each in folded.items() if each["latest"] != "unavailable"}
        )

    def ended(self) -> list[Trial]:
        """Return the trials that ended, oldest first."""
        experiment = self.cluster.experiment(self.name)
        return [trial for trial in self.cluster.judged_trials(experiment) if trial.has_ended]

    def log(self, trial: str) -> Iterator[str]:
        """Yield all lines that a trial printed; none if its pod is gone."""
        with suppress(PodiumError):
            yield from self.cluster.logs("Trial", trial)

    def last_lines(self, trial: str) -> list[str]:
        """Return the output of a trial, its last 8 Mi characters; empty if its pod is gone."""
        lines, size = deque[str](), 0
        for line in self.log(trial):
            lines.append(line)
            size += len(line)
            while size > _MOST_LOG:
                size -= len(lines.popleft())
        return list(lines)

    def epochs(
        self, trial: str, experiment: Experiment, lines: Iterable[str] | None = None
    ) -> list[dict[str, float]]:
        """Return the metrics of each line that has any; nothing for a trial that printed each
        metric once.

        Of more than _MOST_EPOCHS lines some are left out, evenly.

        Args:
            lines: Lines of the trial's log, if known.
        """
        names, formats = experiment.objective.metrics, experiment.collector.filters
        printed = self.log(trial) if lines is None else lines
        read = epochs_of(printed, names, formats, _MOST_EPOCHS)
        counts = Counter(name for values in read for name in values)
        return read if max(counts.values(), default=0) > 1 else []

    def failure(
        self,
        *,
        trials: str,
        logs: str,
        objective: str,
        ask: Callable[[str, str], str] | None = None,
    ) -> Failed:
        """Return the error to raise for an Experiment that failed, with the last lines of a trial
        that did.

        Args:
            trials: Command that shows its trials.
            logs: Command that shows a trial's log, with TRIAL for its name.
            objective: Setting that selects another objective, with NAME for its name.
            ask: Returns how to start a sweep that reads a library's lines, from its key and the
                metric.
        """
        experiment = self.cluster.experiment(self.name)
        text = f"Experiment {self.name} failed: {experiment.state.message}"
        ended = self.ended()
        bad, best = next(iter(failed(ended)), None), best_trial(ended)
        if bad is None:
            return Failed(text, trials)
        printed = self.last_lines(bad.name)
        unavailable = bad.phase == "MetricsUnavailable"
        why, hint = (
            why_unavailable(experiment, printed, objective, ask) if unavailable else ([], "")
        )
        hint = _written_otherwise(bad.message) or hint
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

    def warning(self, *, logs: str) -> str:
        """Return warnings, as lines: about the trials that failed, with the last lines of the first
        one, about trials that all have one result, about a best one that ran shorter than others,
        and about an objective that the best or the worst trial printed of several stages, or that
        was cut short; empty without.

        Args:
            logs: Command that shows a trial's log, with TRIAL for its name.
        """
        ended, experiment = self.ended(), self.cluster.experiment(self.name)
        best, said = best_trial(ended), self._failures(ended, experiment, logs)
        good = [trial for trial in ended if trial.is_good]
        names = [
            name
            for name in (good[0].assignments if good else ())
            if len({trial.assignments.get(name) for trial in good}) > 1
        ]
        if best and len(good) > 2 and names and len({trial.value for trial in good}) == 1:
            listed = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
            metric = experiment.objective.metric
            said += [
                f"warning: all {len(good)} trials have {metric}={best.value}, whatever {listed}",
                f"  hint: does the program read {'it' if len(names) == 1 else 'them'}? "
                f"{logs.replace('TRIAL', best.name)} prints a log",
            ]
        said += _shorter(best, good, experiment) if best else []
        if same := _repeated(good):
            metric = experiment.objective.metric
            said += [
                f"warning: the fresh runs of {', '.join(same)} have its {metric} again, whatever the seed",
                "  hint: let the program take its seed from PODIUM_SEED, or from a flag --seed of its command",
            ]
        if best and (doubt := misread_trial(experiment, best, good, self.log)):
            trial, other = doubt
            said += [
                f"warning: {other.what} ({other.where} of the log of {trial.name})",
                f"  hint: {other.hint}",
            ]
        return "\n".join(said)

    def _failures(self, ended: Sequence[Trial], experiment: Experiment, logs: str) -> list[str]:
        bad = failed(ended)
        if not bad:
            return []
        state, first = experiment.state, bad[0]
        ends = "" if state.succeeded else f", which ends the sweep: {state.message}"
        said = _account(first, self.last_lines(first.name), [])
        whole = f"{logs.replace('TRIAL', first.name)} prints its whole log"
        hint = "; ".join(filter(None, [_written_otherwise(first.message), whole]))
        return [
            f"warning: {len(bad)} of {plural(len(ended), 'trial')} failed{ends}",
            *said,
            f"  hint: {hint}",
        ]


def _written_otherwise(message: str) -> str:
    """Say how the parameter is written that a program does not take as a flag with a value; empty
    where it failed for something else."""
    if flag := _SWITCH.search(message):
        name = flag[1] or flag[2]
        return f"--{name}/ or --{name}/--no-{name} in place of --{name} and its values"
    if argument := _BY_POSITION.search(message):
        return (
            "if the program reads its values by position, name each of them in its command, "
            f"behind --: python train.py '${{{argument[1]}}}'"
        )
    return ""


def failed(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that failed or have no metrics."""
    return [trial for trial in trials if trial.phase in ("Failed", "MetricsUnavailable")]


def _repeated(good: Sequence[Trial]) -> list[str]:
    """Return the trials that were confirmed, if each fresh run had exactly their result."""
    values = {trial.name: trial.value for trial in good}
    fresh = [trial for trial in good if trial.repeats]
    same = len(fresh) > 1 and all(trial.value == values.get(trial.repeats) for trial in fresh)
    return list(dict.fromkeys(trial.repeats for trial in fresh)) if same else []


def _shorter(best: Trial, good: Sequence[Trial], experiment: Experiment) -> list[str]:
    """Return a warning, as lines, if others trained longer than the best trial, as by asha."""
    resource = experiment.search.settings.get("resource_name", "")
    length = {
        trial.name: float(trial.assignments[resource])
        for trial in good
        if trial.is_candidate and resource in trial.assignments
    }
    if best.name not in length or length[best.name] == (most := max(length.values())):
        return []
    longest = [trial for trial in good if length.get(trial.name) == most]
    other = min(longest, key=lambda trial: trial.rank)
    if other.value == best.value:  # a figure that a long trial has too was no luck
        return []
    return [
        f"warning: the best trial, {best.name}, ran with {resource}={length[best.name]:g}; of those with "
        f"{resource}={most:g} {other.name} is the best: {experiment.objective.metric}={other.value}",
        "  hint: short trials vary more, and the best of many is lucky; where a model is to train as "
        f"long as {other.name}, take the values of that one",
    ]


def _account(bad: Trial, printed: Sequence[str], why: Sequence[str]) -> list[str]:
    lines = quoted(printed[-8:])
    return [
        f"trial {bad.name}: {bad.message}",
        *why,
        *(["its last lines", *lines] if lines else []),
    ]


def leaderboard_of(
    trials: Sequence[Trial],
    experiment: Experiment,
    among: Sequence[Trial] | None = None,
    sure: Standing = UNKNOWN,
    numbers: Mapping[str, int] | None = None,
) -> Leaderboard:
    """Return trials as a table, in their order.

    Args:
        among: All trials of the Experiment, where others than the shown ones decide which of them
            are on the front.
        sure: How sure their figures are.
        numbers: Position in the order of starts by trial, where it is shown.
    """
    on, best = fronts_of(among or trials), best_trial(among or trials)
    rows = []
    for trial in trials:
        positions = {"front": on.get(trial.name), "number": (numbers or {}).get(trial.name)}
        facts = {**trial.to_json(), **positions, **sure.to_json(trial.name)}
        rows.append(LeaderboardRow.read(facts, measured(trial, experiment)))
    names = list(dict.fromkeys(name for trial in trials for name in trial.assignments))
    return Leaderboard(
        rows=rows,
        parameters=names,
        metrics=experiment.objective.metrics,
        best=best.name if best else "",
        remark=sure.remark,
    )


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
                if self._ended is not None and trial.has_ended:
                    self._ended.append(trial)
                for phase in news(trial, self._phases.get(name, "Pending")):
                    self._phases[name] = phase
                    yield _line(trial, phase, experiment)
        if self._ended and (said := forecast(experiment, self._ended)):
            self._ended = None
            yield said


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


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best trial of a sweep."""

    name: str
    parameters: dict[str, Any]
    """Value by search parameter, as a function is called with it: numbers, True, False and None too."""

    metrics: dict[str, Any]
    """Value by metric, by the Experiment's strategies: the best or the latest."""

    value: float
    """The objective."""

    model: str | None
    """URI of its model directory; None if the trial left none."""

    def predict(self, items: Any, *, data: str | Path = "") -> "Predictions":
        """Predict new items with its model, as ``Version.predict`` does.

        Raises:
            NotFound: The trial left no model.
        """
        from podium.prediction import open_model

        if self.model is None:
            hint = "a trainer writes it to its parameter output, to --output or to PODIUM_OUTPUT"
            raise NotFound(f"trial {self.name} left no model", hint)
        return open_model(self.model).predict(items, data=data)

    @classmethod
    def of(cls, trial: Trial, experiment: Experiment) -> Self:
        """Return a trial that has a result, with numbers as numbers."""
        assert trial.value is not None
        metrics = measured(trial, experiment).items()
        kinds = {parameter.name: parameter.kind for parameter in experiment.space}
        given = trial.parameters.items()
        return cls(
            name=trial.name,
            parameters={name: argument_of(text, kinds.get(name, "")) for name, text in given},
            metrics={name: read_value(value) for name, value in metrics if value},
            value=trial.value,
            model=model_of(trial),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def _repr_html_(self) -> str:
        rows = [(key, str(value)) for key, value in {**self.parameters, **self.metrics}.items()]
        return table(
            ("NAME", ">VALUE"),
            [*rows, *([("model", self.model)] if self.model else [])],
            title=self.name,
        )


def model_of(trial: Trial) -> str | None:
    """Return the URI of a trial's model; None if it left none."""
    try:
        url = output_of(trial)
    except InvalidInput:
        return None
    with suppress(PodiumError, OSError):
        return url if next(iter(connect(url).list()), None) else None
    return None

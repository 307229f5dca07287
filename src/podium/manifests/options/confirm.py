"""The best trials run again with fresh seeds before a sweep ends: the best mean is chosen.

Among many noisy trials the one with the best figure owes part of it to luck. The fresh runs are
trials of their own, with a label that names the one they repeat; the search does not learn from
them, and they do not count among its trials.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import TYPE_CHECKING, Any, ClassVar

from podium.display.text import figure, plural
from podium.errors import InvalidInput
from podium.manifests.labels import FIGURES, REPEATS, SEED
from podium.manifests.options.base import Follower, Setting, SweepOption, UnderKatib, Values

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment, Metrics
    from podium.manifests.experiment.trial import Trial

_FORM = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,3})", re.ASCII)


class _TopAndSeeds(Setting):
    """``3x3``, or ``{top: 3, seeds: 3}`` in YAML and Python."""

    def read(self, value: Any) -> str:
        if isinstance(value, Mapping) and value.keys() == {"top", "seeds"}:
            value = f"{value['top']}x{value['seeds']}"
        if not isinstance(value, str) or not _FORM.fullmatch(value):
            problem = f"confirm is the number of trials and of seeds, but got {value!r:.60}"
            raise InvalidInput(problem, "3x3, or {top: 3, seeds: 3}")
        return value


@dataclass(frozen=True, kw_only=True)
class Confirm(SweepOption):
    """Number of the best trials that run again, and of their seeds."""

    title: ClassVar[str] = "confirm"
    settings: ClassVar[tuple[Setting, ...]] = (
        _TopAndSeeds(
            name="confirm",
            metavar="TOPxSEEDS",
            help="Rerun the TOP best trials with SEEDS fresh seeds each, such as 3x3; the best mean wins.",
        ),
    )
    katib: ClassVar[UnderKatib | None] = UnderKatib(
        why="Katib runs no trial again: its best trial is the one with the best figure, luck included.",
        what="only podium's own engine runs the best trials again",
        hint="leave --confirm out where Katib runs it",
    )
    is_of_trials: ClassVar[bool] = True

    top: int
    seeds: int

    @classmethod
    def of(cls, values: Values) -> "Confirm | None":
        if "confirm" not in values:
            return None
        top, seeds = map(int, values["confirm"].split("x"))
        if top > 1 and seeds == 1:
            problem = f"confirm={top}x1 would report the one run that each is chosen by"
            raise InvalidInput(problem, f"two or more seeds: {top}x3")
        return cls(top=top, seeds=seeds)

    @property
    def runs(self) -> int:
        return self.top * self.seeds

    def check(self, experiment: "Experiment") -> None:
        """Refuse several objectives, which have no mean, and trials that cannot run alone."""
        if len(experiment.asked.get("objectives", ())) > 0:
            problem = "confirm chooses the best mean of one objective, but there are several"
            raise InvalidInput(problem, "write constraints in place of the further objectives")
        if experiment.search.facts.keeps_files:
            problem = (
                f"a trial of {experiment.search.name} continues from the weights of another: "
                "it cannot run again alone"
            )
            raise InvalidInput(problem, "leave confirm out, or choose another algorithm")
        most = experiment.limits.max_trials
        if most is not None and self.top > most:
            problem = f"confirm={self.top}x{self.seeds} takes the best {self.top} of {plural(most, 'trial')}"
            raise InvalidInput(problem, f"{most}x{self.seeds}")

    def describe(self, experiment: "Experiment") -> str:
        most = experiment.limits.max_trials
        share = f", {self.runs / (self.runs + most):.0%} of all runs" if most else ""
        return (
            f"the best {self.top} run again with {plural(self.seeds, 'fresh seed')} each"
            f"{share}; the best mean wins"
        )

    def follow(self, experiment: "Experiment") -> "Confirming":
        return Confirming(self, self.fresh_seeds(experiment))

    def fresh_seeds(self, experiment: "Experiment") -> list[int]:
        """Return the seeds of the fresh runs, which follow from that of the search; all trials get
        the same ones, so that they are compared on equal terms."""
        draw = random.Random(f"confirm/{experiment.search.settings.get('random_state', 0)}")
        return [draw.randrange(1 << 31) for _ in range(self.seeds)]


class Confirming(Follower):
    """Collects the best trials of the search, and their fresh runs."""

    runs_again: ClassVar[bool] = True

    def __init__(self, option: Confirm, seeds: Sequence[int]) -> None:
        self._option, self._seeds = option, seeds
        self._best: list[Trial] = []
        self._begun: set[tuple[str, str]] = set()
        self._runs: list[Trial] = []
        self._repeated: dict[str, Trial] = {}

    def trial_begins(self, trial: "Trial") -> None:
        if trial.repeats:
            self._begun.add((trial.repeats, trial.labels[SEED]))

    def trial_ended(self, trial: "Trial") -> None:
        """Take in a fresh run, or a trial of the search if it is among the best; of trials with
        equal values of the parameters the best one alone."""
        if trial.repeats:
            self.trial_begins(trial)
            self._runs.append(trial)
        elif trial.is_candidate:
            best: dict[tuple[tuple[str, str], ...], Trial] = {}
            for each in sorted([*self._best, trial], key=lambda each: each.rank):
                best.setdefault(tuple(each.parameters.items()), each)
            self._best = list(best.values())[: self._option.top]
            self._repeated |= {each.name: each for each in self._best}

    def repeats(self) -> "list[tuple[Trial, dict[str, str]]]":
        """Return the fresh runs that have not begun, the first seed of each trial first."""
        return [
            (trial, {REPEATS: trial.name, SEED: str(seed)})
            for seed in self._seeds
            for trial in self._best
            if (trial.name, str(seed)) not in self._begun
        ]

    def corrected(self) -> "list[Trial]":
        """Return the trials all of whose fresh runs succeeded, with the means as their metrics."""
        return [*confirmed([*self._repeated.values(), *self._runs]).values()]

    def choice(self) -> "Trial | None":
        """Return the trial that is the best by its fresh runs, with what they say as its metrics."""
        return next((trial for trial in self.corrected() if trial.is_candidate), None)

    def conclusion(self) -> str:
        if chosen := self.choice():
            name, value = chosen.objective.metric, figure(chosen.value or 0.0)
            return f"; {chosen.name} is the best of {self._option.top} by its fresh runs: {name} {value}, {chosen.note}"
        why = f"none of the best has a result of all {plural(self._option.seeds, 'fresh run')}"
        if refuted := self.corrected():
            why = f"in its fresh runs {refuted[0].name} is infeasible: {refuted[0].infeasible[0]}"
        return f"; the best trial is not confirmed: {why}" if self._best else ""


def confirmed(trials: "Sequence[Trial]") -> "dict[str, Trial]":
    """Return the trials all of whose fresh runs succeeded, by name, that with the best figure
    first.

    Their metrics are the means of their fresh runs, not the figures that they were chosen by. The
    best of several means is lucky too: those of the objective are drawn to their common mean by
    the share of their variance that the seeds explain, as by James and Stein (1961), but no further
    than a trial's own runs lie apart: that of a steady one is known, however others vary.
    """
    runs: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.repeats and trial.phase == "Succeeded" and trial.value is not None:
            runs.setdefault(trial.repeats, []).append(trial)
    whole = {name: found for name, found in runs.items() if _is_whole(found)}
    values = {name: [run.value or 0.0 for run in found] for name, found in whole.items()}
    if not whole:
        return {}
    center, share = fmean(map(fmean, values.values())), _share(list(values.values()))
    originals = {trial.name: trial for trial in trials if trial.name in whole}
    sign = -1 if next(iter(whole.values()))[0].objective.maximize else 1
    drawn = {
        name: fmean(found) + _within((1 - share) * (center - fmean(found)), max(found) - min(found))
        for name, found in values.items()
    }
    figures = {name: _with_mean(originals[name], whole[name], drawn[name]) for name in originals}

    def place(name: str) -> tuple[Any, ...]:  # where all are drawn together, the means decide
        return sign * (figures[name].value or 0), sign * fmean(values[name]), originals[name].rank

    return {name: figures[name] for name in sorted(originals, key=place)}


def _within(step: float, most: float) -> float:
    return max(-most, min(most, step))


def _is_whole(runs: "Sequence[Trial]") -> bool:
    option = Confirm.of(runs[0].asked)
    return option is None or len(runs) >= option.seeds


def _share(groups: Sequence[Sequence[float]]) -> float:
    """Return the share of the variance of the groups' means that is none of their own noise."""
    noise = fmean(variance(group) / len(group) if len(group) > 1 else 0.0 for group in groups)
    between = variance(map(fmean, groups)) if len(groups) > 1 else 0.0
    return max(0.0, 1.0 - noise / between) if between else 1.0


def _with_mean(trial: "Trial", runs: "Sequence[Trial]", value: float) -> "Trial":
    values = [run.value for run in runs if run.value is not None]
    note = (
        f"mean {figure(fmean(values))} of {plural(len(runs), 'fresh run')}, "
        f"{figure(min(values))} to {figure(max(values))}; {figure(trial.value or 0.0)} when found"
    )
    name = trial.objective.metric
    means = {metric: _mean([run.metrics for run in runs], metric) for metric in runs[0].metrics}
    means[name] = dict.fromkeys(means[name], f"{value:.10g}")
    noted = {**trial.metadata, "annotations": {**trial.annotations, FIGURES: note}}
    return trial.with_metadata(noted).with_metrics(means)


def _mean(runs: "Sequence[Metrics]", name: str) -> dict[str, str]:
    means = {}
    for kind in runs[0][name]:
        try:
            means[kind] = f"{fmean(float(run[name][kind]) for run in runs):.10g}"
        except (KeyError, ValueError):
            means[kind] = "unavailable"
    return means

"""Uncertainty of the order of a leaderboard, by the validation predictions that its trials left."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from podium.data.validated import Validated
from podium.display.text import figure, plural
from podium.errors import InvalidInput, NotFound, PodiumError
from podium.manifests.experiment import Experiment, Trial
from podium.scoring.comparison import ALPHA, mcnemar
from podium.scoring.families import FunctionMetric, Metric, only_right
from podium.scoring.intervals import difference, figure_interval
from podium.scoring.metrics import METRICS
from podium.storage import connect
from podium.training.retention import output_of

MOST = 200
"""Best trials whose predictions are read."""

_AGREES = 1e-4
"""Share by which a reported figure may differ from that of the predictions: lines round it."""

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Uncertainty of the figures of a sweep's trials."""

    intervals: dict[str, Interval] = field(default_factory=dict)
    """95 % interval of the objective, by trial that left predictions which give its figure."""

    tied: frozenset[str] = frozenset()
    """Trials that cannot be told from the best one."""

    remark: str = ""
    """What that means, in a line; empty if there is nothing to say."""

    def to_json(self, trial: str) -> dict[str, Any]:
        """Return what is known of a trial; nothing of one without an interval."""
        if trial not in self.intervals:
            return {}
        return {"interval": list(self.intervals[trial]), "tied": trial in self.tied}


UNKNOWN = Standing()


def standing(
    experiment: Experiment,
    ranked: Sequence[Trial],
    output_of: Callable[[Trial], str] = output_of,
    *,
    in_run: bool = False,
) -> Standing:
    """Return the intervals of the trials' figures, and which trials cannot be told from the best.

    Each is compared with the best on the same items: by the exact McNemar test for accuracy, else
    by the test of the interval of the difference. By Bonferroni over all of these comparisons, the
    truly best trial is among those that cannot be told apart in 95 % of sweeps.

    Args:
        ranked: Its trials, best first.
        output_of: Returns the URI where a trial left its model; empty for none. By default the one
            that its command names.
        in_run: Whether it is the sweep of a pipeline, which is asked by parameters, not by flags.
    """
    found = [trial for trial in ranked if trial.is_candidate]
    if len(found) < 2 or found[0].criteria.several:
        return Standing()
    metric = _metric(experiment)
    read = dict(_read(metric, found[:MOST], output_of)) if metric else {}
    intervals = {name: each.interval for name, each in read.items() if each.interval}
    if len({trial.value for trial in found}) == 1:
        items = next((len(each.left.target) for each in read.values()), 0)
        return Standing(intervals=intervals, remark=_alike(experiment, found, items))
    best = read.get(found[0].name)
    others = {name: each for name, each in read.items() if each is not best and each.fits(best)}
    if metric is None or best is None or not others:
        return Standing(intervals=intervals)
    tied = {
        name
        for name, other in others.items()
        if _p_value(metric, best.left, other.left) * len(others) > ALPHA
    }
    remark = _remark(metric, len(tied), len(others), len(best.left.target))
    if tied and "confirm" not in experiment.asked:
        remark += f"; {'confirm=3x3' if in_run else '--confirm 3x3'} runs the best again"
    return Standing(intervals=intervals, tied=frozenset(tied), remark=remark)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Read:
    left: Validated
    interval: Interval | None

    def fits(self, best: "_Read | None") -> bool:
        mine, theirs = self.left.target, best.left.target if best else None
        return theirs is not None and mine.shape == theirs.shape and bool((mine == theirs).all())


def _metric(experiment: Experiment) -> "Metric | None":
    objective = experiment.objective
    metric = METRICS.get(objective.metric)
    if metric is None or isinstance(metric, FunctionMetric):
        return None
    return metric if metric.maximize == objective.maximize else None


def _read(
    metric: "Metric", trials: Sequence[Trial], output_of: Callable[[Trial], str]
) -> "Iterator[tuple[str, _Read]]":
    def read(trial: Trial) -> "_Read | None":
        with suppress(NotFound, InvalidInput, IndexError, ValueError):
            left = Validated.read(connect(url)) if (url := output_of(trial)) else None
            if left is None or left.has_groups:
                return None
            mean = left.mean(metric.defined_value)
            if _agree(mean, trial.value):
                interval = figure_interval(metric, left.target, left.predictions)
                if (
                    interval and left.folds is not None
                ):  # of all items, around the mean of the folds
                    shift = mean - metric.defined_value(left.target, left.predictions)
                    interval = interval[0] + shift, interval[1] + shift
                return _Read(left=left, interval=interval)
        return None

    with suppress(PodiumError, OSError):
        first = read(trials[0])  # alone: a storage that is away is asked, and waited for, once
        with ThreadPoolExecutor(8) as pool:
            for trial, result in zip(
                trials, chain([first], pool.map(read, trials[1:])), strict=True
            ):
                if result:
                    yield trial.name, result


def _agree(value: float, reported: float | None) -> bool:
    return reported is not None and abs(value - reported) <= _AGREES * max(1.0, abs(value))


def _p_value(metric: "Metric", best: Validated, other: Validated) -> float:
    if metric.counts_hits:
        gained, lost = only_right(best.target, best.predictions, other.predictions)
        return mcnemar(int(gained.sum()), int(lost.sum()))
    change = difference(metric, best.target, best.predictions, other.predictions, None)
    return 1.0 if change.interval is None else change.p_value


def _alike(experiment: Experiment, trials: Sequence[Trial], items: int) -> str:
    name, value = experiment.objective.metric, figure(trials[0].value or 0.0)
    why = "none of the parameters changes it, or it is not measured"
    if items:
        why = f"{plural(items, 'validation item')} do not tell them apart"
    return f"all {len(trials)} trials report one {name}, {value}: {why}"


def _remark(metric: "Metric", tied: int, others: int, items: int) -> str:
    test = "McNemar" if metric.counts_hits else "t test of the difference"
    how = f"{test} on {plural(items, 'validation item')}, Bonferroni over {others}"
    if not tied:
        return f"the best trial is better than each other by more than chance ({how})"
    return f"~ {plural(tied, 'trial')} cannot be told from the best ({how})"

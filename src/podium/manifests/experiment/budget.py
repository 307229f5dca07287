"""The budget of an Experiment, in its annotations: how long its trials may take, and what they may cost."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from podium.errors import InvalidInput
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.trial import Trial
from podium.manifests.labels import MAX_COST, MAX_TIME, PRICE
from podium.text import exact, plural

SLACK = 1.05
"""Share of the budget at which trials that still run are stopped."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])\s*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the trials of an Experiment may use."""

    seconds: float | None = None
    """In which trials run, however many at a time."""

    cost: float | None = None
    price: float = 0.0
    """Of a pod for an hour, in the currency of the cost."""

    @classmethod
    def of(cls, experiment: Experiment) -> "Budget | None":
        """Return the budget that an Experiment has, None for none.

        Raises:
            InvalidInput: An annotation is not a duration or a number, or a cost has no price.
        """
        given = {
            name: experiment.annotations[name] for name in (MAX_TIME, MAX_COST, PRICE) if name in experiment.annotations
        }
        if not given:
            return None
        if (MAX_COST in given) != (PRICE in given):
            has, lacks = (MAX_COST, PRICE) if MAX_COST in given else (PRICE, MAX_COST)
            flags = "--max-cost 20 --price 1.5, the price of a pod for an hour"
            raise InvalidInput(f"annotation {has} means nothing without {lacks}", flags)
        return cls(
            seconds=_seconds(given[MAX_TIME]) if MAX_TIME in given else None,
            cost=_number(MAX_COST, given[MAX_COST]) if MAX_COST in given else None,
            price=_number(PRICE, given[PRICE]) if PRICE in given else 0.0,
        )

    def holds(self, seconds: float, pod_seconds: float, share: float = 1.0) -> bool:
        """Tell whether so much time and so many seconds of pods are within the budget, or a share of it."""
        in_time = self.seconds is None or seconds <= share * self.seconds
        return in_time and (self.cost is None or self._cost_of(pod_seconds) <= share * self.cost)

    def is_above(self, other: "Budget") -> bool:
        """Tell whether it has room that the other has not: more time, or more hours of pods for its cost."""
        return (self.seconds or math.inf) > (other.seconds or math.inf) or self._pod_hours > other._pod_hours

    @property
    def _pod_hours(self) -> float:
        return math.inf if self.cost is None else self.cost / self.price

    def used(self, seconds: float, pod_seconds: float) -> str:
        """Say how much of it was used: ``1 h 58 min of 2 h, a cost of 3.94 of 4``."""
        time = [] if self.seconds is None else [f"{spell(seconds)} of {spell(self.seconds)}"]
        cost = [] if self.cost is None else [f"a cost of {self._cost_of(pod_seconds):.3g} of {self.cost:g}"]
        return ", ".join([*time, *cost])

    def trials(self, seconds: float, pods: int, parallel: int) -> int | None:
        """Return how many trials fit that take so long each; None if it does not depend on that."""
        counts = list[float]()
        if self.seconds is not None and seconds:
            counts.append(self.seconds // seconds * parallel)
        if self.cost is not None and (each := self._cost_of(seconds * pods)):
            counts.append(self.cost // each)
        return int(min(counts)) if counts else None

    def _cost_of(self, pod_seconds: float) -> float:
        return pod_seconds / 3600 * self.price

    def __str__(self) -> str:
        time = [] if self.seconds is None else [spell(self.seconds)]
        return " and ".join([*time, *([] if self.cost is None else [f"a cost of {self.cost:g}"])])


def annotations(
    max_time: str | float | None, max_cost: str | float | None, price: str | float | None
) -> dict[str, str]:
    """Return the annotations of a budget; what is None is left out.

    Args:
        max_time: A duration such as ``90m``, or seconds.
        max_cost: In the currency of the price.
        price: Of a pod for an hour.
    """
    time = f"{exact(max_time)}s" if isinstance(max_time, int | float) else max_time
    given = {MAX_TIME: time, MAX_COST: max_cost, PRICE: price}
    return {name: str(value) for name, value in given.items() if value is not None}


def forecast(experiment: Experiment, trials: Iterable[Trial]) -> str:
    """Say how many trials fit into the budget by the median of those that ended; empty without budget or such trials.

    Args:
        trials: Of the Experiment, or of an earlier one like it.
    """
    if (budget := Budget.of(experiment)) is None:
        return ""
    if not (ended := [trial for trial in trials if trial.is_good and trial.seconds]):
        return ""
    limits, each = experiment.limits, median(trial.seconds or 0.0 for trial in ended)
    fit = budget.trials(each, ended[0].workload.pod_count, limits.parallel)
    if fit is None:
        return ""
    most, takes = limits.max_trials, f"a trial takes {spell(each)}, {limits.parallel} at a time"
    if most is None:
        count = f"about {plural(fit, 'trial')}"
    else:
        count = f"all of {plural(most, 'trial')}" if fit >= most else f"about {fit} of {plural(most, 'trial')}"
    return f"forecast: {count} fit into the budget of {budget} ({takes})"


def spell(seconds: float) -> str:
    """Write a duration as people say it: ``1 h 58 min``, ``2 min 5 s``, ``0.5 s``."""
    if seconds < 60:
        return f"{seconds:.2g} s"
    if (whole := round(seconds)) < 3600:
        parts = [(whole // 60, "min"), (whole % 60, "s")]
    else:
        minutes = round(seconds / 60)
        parts = [(minutes // 60, "h"), (minutes % 60, "min")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def _seconds(text: str) -> float:
    if not text or _PART.sub("", text.strip()):
        raise InvalidInput(f"annotation {MAX_TIME} is a duration, not {text!r}", "90m, 2h, 1h30m or 45s")
    total = sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(text))
    if not total:
        raise InvalidInput(f"annotation {MAX_TIME} is longer than nothing, but got {text!r}", "90m, 2h, 1h30m or 45s")
    return total


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InvalidInput(f"annotation {name} is a number above 0, not {text!r}", f'{name}: "1.5"')
    return value

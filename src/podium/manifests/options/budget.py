"""The budget of a sweep: limits on the time and cost of its trials."""

import math
import re
import time
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from podium.display.text import digits, exact, plural
from podium.errors import InvalidInput
from podium.manifests.options.base import Follower, Setting, SweepOption, UnderKatib, Values
from podium.manifests.options.confirm import Confirm

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment
    from podium.manifests.experiment.trial import Trial

_SLACK = 1.05
"""Share of the budget at which trials that still run are stopped."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])\s*", re.ASCII)


def _duration(value: Any) -> str:
    return f"{exact(value)}s" if isinstance(value, int | float) else str(value)


@dataclass(frozen=True, kw_only=True)
class Budget(SweepOption):
    """Limit on the time and the cost of a sweep's trials."""

    title: ClassVar[str] = "budget"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(
            name="max_time",
            kind=_duration,
            metavar="DURATION",
            is_raised=True,
            help="Time budget of all trials together, such as 90m or 2h.",
        ),
        Setting(
            name="max_cost",
            kind=float,
            is_raised=True,
            help="Cost budget of all trials together; needs a price.",
        ),
        Setting(
            name="price",
            kind=float,
            is_raised=True,
            help="Price of a pod per hour, for the cost budget.",
        ),
    )
    katib: ClassVar[UnderKatib | None] = UnderKatib(
        why="Katib has no budgets: it would start trials beyond it.",
        what="only podium's own engine keeps within a budget",
        hint="leave out --max-time and --max-cost where Katib runs it, and set maxTrialCount",
    )

    ended: ClassVar[str] = "ExperimentBudgetReached"
    raised: ClassVar[str] = "a higher --max-time or --max-cost"

    seconds: float | None = None
    """Total time in which trials may run, however many at a time."""

    cost: float | None = None
    price: float = 0.0
    """Price per pod and hour, in the currency of the cost."""

    @classmethod
    def of(cls, values: Values) -> "Budget | None":
        """Read a budget; a time is a duration or seconds."""
        time, cost, price = (values.get(setting.name) for setting in cls.settings)
        if (cost is None) != (price is None):
            has, lacks = ("max_cost", "price") if price is None else ("price", "max_cost")
            flags = "--max-cost 20 --price 1.5, the price of a pod for an hour"
            raise InvalidInput(f"{has} means nothing without {lacks}", flags)
        if time is None and cost is None:
            return None
        return cls(
            seconds=None if time is None else _seconds(time),
            cost=None if cost is None else _positive("max_cost", cost),
            price=0.0 if price is None else _positive("price", price),
        )

    def describe(self, experiment: "Experiment") -> str:
        return str(self)

    def follow(self, experiment: "Experiment") -> "Spending":
        """Return a follower that tracks its use, and leaves room for the runs that confirm the
        best trials."""
        confirm = Confirm.of(experiment.asked)
        runs = confirm.runs if confirm else 0
        return Spending(self, reserved=runs, parallel=experiment.limits.parallel)

    def holds(self, seconds: float, pod_seconds: float, share: float = 1.0) -> bool:
        """Tell whether so much time and so many seconds of pods are within the budget, or a share
        of it."""
        in_time = self.seconds is None or seconds <= share * self.seconds
        return in_time and (self.cost is None or self._cost_of(pod_seconds) <= share * self.cost)

    def more_than(self, before: SweepOption | None) -> bool:
        """Tell whether it has room that the other has not: more time, or more hours of pods for its
        cost."""
        if not isinstance(before, Budget):
            return False
        more_time = (self.seconds or math.inf) > (before.seconds or math.inf)
        return more_time or self._pod_hours > before._pod_hours

    @property
    def _pod_hours(self) -> float:
        return math.inf if self.cost is None else self.cost / self.price

    def used(self, seconds: float, pod_seconds: float) -> str:
        """Say how much of it was used: ``1 h 58 min of 2 h, a cost of 3.94 of 4``."""
        time = [] if self.seconds is None else [f"{_spell(seconds)} of {_spell(self.seconds)}"]
        cost = (
            []
            if self.cost is None
            else [f"a cost of {digits(self._cost_of(pod_seconds), 3)} of {digits(self.cost, 6)}"]
        )
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
        time = [] if self.seconds is None else [_spell(self.seconds)]
        return " and ".join(
            [*time, *([] if self.cost is None else [f"a cost of {digits(self.cost, 6)}"])]
        )

    def forecast(self, experiment: "Experiment", trials: "Sequence[Trial]") -> str:
        """Say how many trials fit into it, by the median of those that ended; empty if none has."""
        ended = [trial for trial in trials if trial.is_good and trial.seconds]
        if not ended:
            return ""
        limits, each = experiment.limits, median(trial.seconds or 0.0 for trial in ended)
        confirm = Confirm.of(experiment.asked)
        fit = self.trials(each, ended[0].workload.pod_count, limits.parallel)
        if fit is None:
            return ""
        fit = max(0, fit - (confirm.runs if confirm else 0))
        most = limits.max_trials
        takes = f"a trial takes {_spell(each)}, {limits.parallel} at a time"
        if most is None:
            count = f"about {plural(fit, 'trial')}"
        else:
            count = (
                f"all of {plural(most, 'trial')}"
                if fit >= most
                else f"about {fit} of {plural(most, 'trial')}"
            )
        count += f" and {plural(confirm.runs, 'run')} of the best again" if confirm else ""
        return f"forecast: {count} fit into the budget of {self} ({takes})"


def _spell(seconds: float) -> str:
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
    total = (
        0.0
        if _PART.sub("", text.strip())
        else sum(float(n) * _SECONDS[unit] for n, unit in _PART.findall(text))
    )
    if not total:
        raise InvalidInput(f"max_time is a duration above 0, not {text!r}", "90m, 2h, 1h30m or 45s")
    return total


def _positive(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise InvalidInput(f"{name} is a number above 0, not {value!r}", f"{name}: 1.5")
    return value


class Spending(Follower):
    """Follows the trials of one sweep, by a clock that never steps.

    Time counts while at least one trial runs, so that a sweep that was stopped does not use its
    budget up meanwhile.

    Args:
        clock: Returns seconds; another one in tests.
        reserved: Number of runs after the search that have to fit as well.
        parallel: How many of them run at a time.
    """

    def __init__(
        self,
        budget: Budget,
        clock: Callable[[], float] = time.monotonic,
        *,
        reserved: int = 0,
        parallel: int = 1,
    ) -> None:
        self.budget, self._now = budget, clock
        self._reserved, self._parallel = reserved, parallel
        self._is_overrun = False
        self._running: dict[str, tuple[float, int]] = {}  # start and pods
        self._since = (
            0.0  # since when trials run without a pause; of those that paused: the last end
        )
        self._busy = self._pod_seconds = 0.0  # up to that pause, and of the trials that ended
        self._durations: list[float] = []  # of the trials that have a result, sorted
        self._pods = 1

    def begin(self, trials: "Sequence[Trial]") -> None:
        """Take in the trials that ended under an earlier engine, by the times in their records."""
        ended = [
            trial
            for trial in trials
            if trial.state.finished and math.isfinite(trial.began + trial.ended)
        ]
        events = [(trial.began, 0, trial) for trial in ended] + [
            (max(trial.began, trial.ended), 1, trial) for trial in ended
        ]
        for at, is_end, trial in sorted(events, key=lambda event: event[:2]):
            self._end(trial, at) if is_end else self._begin(trial, at)
        self._since = self._now() - max(0.0, time.time() - self._since)

    def trial_begins(self, trial: "Trial") -> None:
        age = time.time() - trial.began  # below 0 where an engine was killed before it wrote a time
        self._begin(trial, self._now() - max(0.0, age))

    def _begin(self, trial: "Trial", start: float) -> None:
        if not self._running:
            self._since = max(self._since, start)
        self._reserved -= bool(trial.repeats)
        self._pods = trial.workload.pod_count or 1
        self._running[trial.name] = start, self._pods

    def trial_ended(self, trial: "Trial") -> None:
        """Take in the end of a trial; of one that has ended before, nothing."""
        if trial.name in self._running:
            took = math.inf if trial.seconds is None else trial.seconds
            self._end(trial, min(self._now(), self._running[trial.name][0] + took))

    def _end(self, trial: "Trial", at: float) -> None:
        start, pods = self._running.pop(trial.name)
        self._pod_seconds += max(0.0, at - start) * pods
        if trial.is_good:
            insort(self._durations, max(0.0, at - start))
        if not self._running:
            self._busy, self._since = self._busy + max(0.0, at - self._since), at

    def has_room(self) -> bool:
        """Tell whether a trial that begins now would end within the budget, by the median of those
        that ended.

        The first trials begin anyway, as long as there is something left.
        """
        now = self._now()
        each = self._durations[len(self._durations) // 2] if self._durations else 0.0
        running = sum(max(each, now - start) * pods for start, pods in self._running.values())
        pod_seconds = self._pod_seconds + running + each * self._pods * (1 + self._reserved)
        rounds = 1 + math.ceil(self._reserved / self._parallel)
        return self.budget.holds(self._used(now)[0] + each * rounds, pod_seconds)

    def stops_trials(self) -> str:
        """Return why trials are stopped once they have used more than the budget and its slack."""
        if self._running and not self.budget.holds(*self._used(self._now()), _SLACK):
            self._is_overrun = True
        return f"the budget of {self.budget} is used up" if self._is_overrun else ""

    def end(self, trials: int, most: int | None) -> tuple[str, str]:
        """Report the use and the number of trials: ``1 h 58 min of 2 h; 42 of 60 trials``."""
        count = plural(trials, "trial") if most is None else f"{trials} of {plural(most, 'trial')}"
        used = self.budget.used(*self._used(self._now()))
        return Budget.ended, f"no other trial fits into its budget. Budget used: {used}; {count}"

    def _used(self, now: float) -> tuple[float, float]:
        seconds = self._busy + (now - self._since if self._running else 0.0)
        running = sum((now - start) * pods for start, pods in self._running.values())
        return seconds, self._pod_seconds + running

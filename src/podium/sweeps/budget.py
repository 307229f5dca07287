"""What the trials of a sweep have used of its budget, and whether another one would end within it."""

import math
import time
from bisect import insort
from collections.abc import Iterable

from podium.manifests.experiment.budget import SLACK, Budget
from podium.manifests.experiment.trial import Trial
from podium.text import plural


class Spending:
    """Follows the trials of one Experiment; ``now`` is of a clock that never steps, such as the monotonic one.

    Time counts while at least one trial runs, so that a sweep that was stopped does not use its budget up meanwhile.

    Args:
        budget: None if there is none: then everything fits.
    """

    def __init__(self, budget: Budget | None) -> None:
        self.budget = budget
        self._running: dict[str, tuple[float, int]] = {}  # start and pods
        self._since = 0.0  # since when trials run without a pause; of those that paused: the last end
        self._busy = self._pod_seconds = 0.0  # up to that pause, and of the trials that ended
        self._durations: list[float] = []  # of the trials that have a result, sorted
        self._pods = 1

    def recall(self, trials: Iterable[Trial], now: float) -> None:
        """Take in the trials that ended under an earlier engine, by the times in their records."""
        ended = [trial for trial in trials if trial.state.finished and math.isfinite(trial.began + trial.ended)]
        events = [(trial.began, 0, trial) for trial in ended] + [
            (max(trial.began, trial.ended), 1, trial) for trial in ended
        ]
        for at, is_end, trial in sorted(events, key=lambda event: event[:2]):
            self._end(trial, at) if is_end else self._begin(trial, at)
        self._since = now - max(0.0, time.time() - self._since)

    def begin(self, trial: Trial, now: float) -> None:
        """Take in a trial that begins, or that goes on under this engine: its record knows since when."""
        age = time.time() - trial.began  # below 0 where an engine was killed before it wrote a time
        self._begin(trial, now - max(0.0, age))

    def _begin(self, trial: Trial, start: float) -> None:
        if not self._running:
            self._since = max(self._since, start)
        self._pods = trial.workload.pod_count or 1
        self._running[trial.name] = start, self._pods

    def end(self, trial: Trial, now: float) -> None:
        """Take in the end of a trial; of one that has ended before, nothing."""
        if trial.name in self._running:
            took = math.inf if trial.seconds is None else trial.seconds
            self._end(trial, min(now, self._running[trial.name][0] + took))

    def _end(self, trial: Trial, at: float) -> None:
        start, pods = self._running.pop(trial.name)
        self._pod_seconds += max(0.0, at - start) * pods
        if trial.is_good:
            insort(self._durations, max(0.0, at - start))
        if not self._running:
            self._busy, self._since = self._busy + max(0.0, at - self._since), at

    def has_room(self, now: float) -> bool:
        """Tell whether a trial that begins now would end within the budget, by the median of those that ended.

        The first trials begin anyway, as long as there is something left.
        """
        if self.budget is None:
            return True
        each = self._durations[len(self._durations) // 2] if self._durations else 0.0
        running = sum(max(each, now - start) * pods for start, pods in self._running.values())
        pod_seconds = self._pod_seconds + running + each * self._pods
        return self.budget.holds(self._seconds(now) + each, pod_seconds)

    def is_overrun(self, now: float) -> bool:
        """Tell whether trials run that have used more than the budget and its slack."""
        if self.budget is None or not self._running:
            return False
        return not self.budget.holds(self._seconds(now), self._pod_seconds_until(now), SLACK)

    def text(self, now: float, trials: int, most: int | None) -> str:
        """Say what was used, and by how many trials: ``1 h 58 min of 2 h; 42 of 60 trials``."""
        if self.budget is None:
            return ""
        count = plural(trials, "trial") if most is None else f"{trials} of {plural(most, 'trial')}"
        return f"{self.budget.used(self._seconds(now), self._pod_seconds_until(now))}; {count}"

    def _seconds(self, now: float) -> float:
        return self._busy + (now - self._since if self._running else 0.0)

    def _pod_seconds_until(self, now: float) -> float:
        return self._pod_seconds + sum((now - start) * pods for start, pods in self._running.values())

"""Katib's medianstop: the rule that new trials get, and the eye that watches a trial for it.

The service takes the mean, not the median, of each succeeded trial's first start_step values, and
the mean of those (katib: pkg/earlystopping/v1beta1/medianstop). The collector compares the best
objective so far when the start_step-th value is printed, and only then (katib:
cmd/metricscollector/v1beta1/file-metricscollector).
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from podium.errors import Failed, InvalidInput
from podium.files.documents import load_json
from podium.manifests.experiment.experiment import Experiment
from podium.metrics import RESUMED, Reading, matches, number


class MedianStop:
    """Makes rules from the trials that succeeded.

    Args:
        settings: min_trials_required (3) and start_step (4).
        maximize: Whether more is better.
    """

    def __init__(self, settings: Mapping[str, Any], objective: str, *, maximize: bool) -> None:
        self._required = settings.get("min_trials_required", 3)
        self._start = settings.get("start_step", 4)
        self._objective = objective
        self._maximize = maximize
        self._means: dict[str, float] = {}

    @classmethod
    def of(cls, experiment: Experiment) -> "MedianStop | None":
        stopping, objective = experiment.early_stopping, experiment.objective
        return (
            cls(stopping.settings, objective.metric, maximize=objective.maximize)
            if stopping
            else None
        )

    def needed(self, readings: Sequence[Reading]) -> Sequence[Reading]:
        """Return those of a trial's readings that make its mean, by time as Katib's database has
        them."""
        in_order = sorted(readings, key=lambda reading: reading.time)
        own = [reading for reading in in_order if reading.name == self._objective]
        return own[: self._start]

    def learn(self, trial: str, readings: Sequence[Reading]) -> None:
        """Take in a trial that succeeded; values that are not numbers are left out."""
        values = [number(reading.value) for reading in self.needed(readings)]
        numbers = [value for value in values if value is not None]
        if numbers:
            self._means[trial] = sum(numbers) / len(numbers)

    def rules(self) -> list[dict[str, Any]]:
        """Return ``earlyStoppingRules`` for a trial that starts now; empty until enough trials
        succeeded."""
        if len(self._means) < self._required:
            return []
        mean = sum(self._means.values()) / len(self._means)
        comparison = "less" if self._maximize else "greater"
        return [
            {
                "name": self._objective,
                "value": str(mean),
                "comparison": comparison,
                "startStep": self._start,
            }
        ]


class RuleWatch:
    """Reads a running trial's lines and says when its rules are all met.

    A metric that was printed is judged by its lines alone: who prints and pushes one has each value
    come twice. What was pushed counts while no line has held the metric.

    Args:
        rules: ``earlyStoppingRules`` of the trial.
        objective: Name of the objective, whose best value so far is compared.
        maximize: Whether more is better.
        formats: metricsFormat patterns.
        as_json: Whether a line is a JSON object instead.
    """

    def __init__(
        self,
        rules: Sequence[Mapping[str, Any]],
        objective: str,
        *,
        maximize: bool,
        formats: Sequence[str] | None,
        as_json: bool = False,
    ) -> None:
        self._begin = lambda: _Source(rules, objective, max if maximize else min)
        self._rules = rules
        self._formats = formats
        self._as_json = as_json
        self._lock = threading.Lock()
        self._lines, self._pushes = self._begin(), self._begin()
        self._printed: set[str] = set()

    def sees(self, line: str) -> bool:
        """Take in one line; return whether the trial is to be stopped.

        Raises:
            Failed: A line that holds a rule's metric holds a value that is not a number: Katib's
                collector ends there, and the trial with it.
        """
        if line.startswith(RESUMED):
            self._lines = self._begin()  # the values so far are printed again
        if not any(rule["name"] in line for rule in self._lines.unmet):
            return False
        readings = (
            self._read_object(line)
            if self._as_json
            else [(name, number(value)) for name, value in matches(line, self._formats)]
        )
        for name, value in readings:
            if value is None:
                raise Failed(
                    f"{name}= has no number while an early-stopping rule is in force, in the line {line[:100]!r}",
                    "print other values with a colon, or give a metricsFormat that needs a digit",
                )
        with self._lock:
            self._printed.update(name for name, _ in readings)
            self._lines.take(readings)
            return self._are_met()

    def takes(self, reading: tuple[str, float | None]) -> bool:
        """Take in a metric and its value that were pushed; return whether the trial is to be
        stopped."""
        with self._lock:
            self._pushes.take([reading])
            return self._are_met()

    def _are_met(self) -> bool:
        return not any(
            rule in (self._lines if rule["name"] in self._printed else self._pushes).unmet
            for rule in self._rules
        )

    def _read_object(self, line: str) -> list[tuple[str, float | None]]:
        try:
            row = load_json(line, "line", twice=True)
        except InvalidInput:
            row = None
        if not isinstance(row, dict):
            raise Failed(f"a line of the metrics file is not a JSON object: {line[:80]!r}")
        names = [rule["name"] for rule in self._lines.unmet]
        return [
            (name, number(row[name].strip())) for name in names if isinstance(row.get(name), str)
        ]


class _Source:
    """The rules as the lines of a trial meet them, or what it pushes."""

    def __init__(
        self,
        rules: Sequence[Mapping[str, Any]],
        objective: str,
        better: Callable[[float, float], float],
    ) -> None:
        self.unmet = list(rules)
        self._steps = {rule["name"]: rule.get("startStep") or 0 for rule in rules}
        self._objective, self._better = objective, better
        self._best: float | None = None

    def take(self, readings: Iterable[tuple[str, float | None]]) -> None:
        for name, value in readings:
            if value is not None:
                self.unmet = [
                    rule
                    for rule in self.unmet
                    if rule["name"] != name or not self._met(rule, value)
                ]

    def _met(self, rule: Mapping[str, Any], value: float) -> bool:
        if rule["name"] == self._objective:
            value = self._best = value if self._best is None else self._better(self._best, value)
        self._steps[rule["name"]] -= 1
        if rule.get("startStep") and self._steps[rule["name"]] != 0:
            return False  # Katib compares at this one value only
        limit = float(rule["value"])
        return value > limit if rule["comparison"] == "greater" else value < limit

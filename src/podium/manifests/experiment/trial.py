"""A Trial: its assignments, job, state and metrics."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from podium.manifests.experiment.experiment import (
    Collector,
    Experiment,
    Metrics,
    Objective,
    read_metrics,
)
from podium.manifests.fields import Attribute, mapping, objects, text, true
from podium.manifests.labels import EXPERIMENT, FIGURES, NUMBER, REPEATS, SEED, SWEEP
from podium.manifests.options import annotation, asked, of_trials
from podium.manifests.options.conditions import counting
from podium.manifests.options.confirm import confirmed
from podium.manifests.options.objectives import Criteria
from podium.manifests.resource import Resource
from podium.manifests.workload import Workload
from podium.search.pareto import Value, fronts


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial(Resource):
    """A Katib Trial, Katib's or of podium's own engine."""

    experiment = Attribute("labels", lambda labels: text(labels.get(EXPERIMENT)))
    """Name of its Experiment; empty if no label says so."""

    objective = Attribute("spec.objective", Objective.parse)

    assignments = Attribute(
        "spec.parameterAssignments",
        lambda value: {
            text(each.get("name")): str(each.get("value", "")) for each in objects(value)
        },
    )

    asked = Attribute("annotations", asked)
    """Settings of its Experiment that it carries, by which it is judged."""

    @cached_property
    def parameters(self) -> dict[str, str]:
        """Value by search parameter, of those that count in this trial."""
        return counting(self.assignments, self.asked)

    workload = Attribute("spec.runSpec", lambda job: Workload(manifest=dict(mapping(job))))

    primary_container = Attribute("spec.primaryContainerName", text)
    success_condition = Attribute("spec.successCondition", text)
    failure_condition = Attribute("spec.failureCondition", text)
    """GJSON expression over the job."""

    retain = Attribute("spec.retainRun", true)
    stopping_rules = Attribute("spec.earlyStoppingRules", objects)

    collector = Attribute("spec.metricsCollector", Collector.parse)

    @property
    def phase(self) -> str:
        """``Pending``, ``Waiting`` (for its queue), ``Running``, ``Succeeded``, ``Failed``,
        ``EarlyStopped``, ``MetricsUnavailable`` or ``Killed``."""
        return "Pending" if self.state.phase == "Created" else self.state.phase

    @property
    def is_good(self) -> bool:
        """Whether it ended with metrics: it succeeded, or was stopped early."""
        return self.phase in ("Succeeded", "EarlyStopped")

    @property
    def has_ended(self) -> bool:
        """Whether it ended for good; one whose engine was stopped or killed runs again."""
        return self.state.finished and not self.state.lost

    @property
    def message(self) -> str:
        """Message of the condition that decides the state; of a trial that failed only the cause,
        if it is known."""
        said = self.state.message.removeprefix("Trial has failed: ")
        return said.split(". Job message: ")[0] if said != self.state.message else said

    metrics = Attribute("status.observation", read_metrics)
    """The observed metrics; empty until the trial has ended."""

    @cached_property
    def value(self) -> float | None:
        """The objective by its strategy; None unless it is a finite number."""
        return self.objective.value(self.metrics)

    @cached_property
    def criteria(self) -> Criteria:
        """Objectives and constraints that the trial is ranked by."""
        return Criteria.of(self.objective, self.asked)

    @cached_property
    def reached(self) -> Value | None:
        """All that it is judged by; None if one of these metrics is no number."""
        return self.criteria.value(self.metrics)

    @property
    def infeasible(self) -> list[str]:
        """Reasons why it is never the best despite its objective: violated constraints, missing
        metrics."""
        return self.criteria.flaws(self.metrics) if self.is_good else []

    def judged_as(self, experiment: Experiment) -> "Trial":
        """Return it with its Experiment's further objectives and constraints; Katib's own trials do
        not carry them."""
        added = annotation(of_trials(experiment.asked))
        if not added or self.annotations.get(SWEEP) == added[SWEEP]:
            return self
        return self.with_metadata({**self.metadata, "annotations": {**self.annotations, **added}})

    repeats = Attribute("labels", lambda labels: text(labels.get(REPEATS)))
    """Name of the trial that it runs again with a fresh seed; empty for one of the search."""

    @property
    def note(self) -> str:
        """Remark about its figures; empty if there is none."""
        if self.repeats:
            return f"runs {self.repeats} again with seed {self.labels.get(SEED, '')}"
        return self.annotations.get(FIGURES, "")

    @property
    def is_candidate(self) -> bool:
        """Whether it is of the search, ended with all that it is judged by, and keeps the
        constraints."""
        found = self.is_good and not self.repeats
        return found and self.reached is not None and self.reached.feasible

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sort key among the trials of its Experiment, as Criteria.rank returns it: of equals the
        one that ended first, or began first where time must not matter."""
        number = self.labels.get(NUMBER, "")
        order = float(number) if number.isdigit() else self.ended
        return self.criteria.rank(self.name, self.reached, order)

    started = Attribute("status.startTime", text)
    """Start, RFC3339; empty before."""

    @property
    def completed(self) -> str:
        """End, RFC3339; empty before. An early-stopped trial has no completionTime in Katib."""
        stopped = self.condition("EarlyStopped")
        return text(self.status.get("completionTime")) or (stopped.changed if stopped else "")

    @property
    def began(self) -> float:
        """Creation time in seconds since the epoch; infinity if unknown."""
        return datetime.fromisoformat(self.started).timestamp() if self.started else math.inf

    @property
    def ended(self) -> float:
        """End time in seconds since the epoch; infinity if it has not ended."""
        return datetime.fromisoformat(self.completed).timestamp() if self.completed else math.inf

    @property
    def seconds(self) -> float | None:
        """From start to end, or until now; None before the start."""
        if not self.started:
            return None
        end = self.ended if self.completed else datetime.now(UTC).timestamp()
        return round(max(0.0, end - self.began), 3)

    def with_metrics(self, metrics: Metrics) -> "Trial":
        observed = [{"name": name, **values} for name, values in metrics.items()]
        return self.with_status({**self.status, "observation": {"metrics": observed}})

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what the shell and ``podium mcp`` show of it."""
        return {
            "name": self.name,
            "state": self.phase,
            "parameters": self.parameters,
            "metrics": self.metrics,
            "value": self.value,
            "seconds": self.seconds,
            "message": self.message,
            **({"infeasible": self.infeasible} if self.infeasible else {}),
            **({"repeats": self.repeats} if self.repeats else {}),
            **({"note": self.note} if self.note else {}),
        }


def leaderboard(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials, best first; of equals that of the least order, then by name.

    Where there are several objectives, one Pareto front comes after the other. Those that break a
    constraint come after the others, and those without a number last, in the order given. Trials
    that were confirmed come first, with the mean of their fresh runs, and the fresh runs at the
    end.
    """
    all_trials = list(trials)
    on, means = fronts_of(all_trials), confirmed(all_trials)
    candidates = [name for name, trial in means.items() if trial.is_candidate]
    places = {name: place for place, name in enumerate(candidates)}

    def place(trial: Trial) -> tuple[Any, ...]:
        found = places.get(trial.name, math.inf)
        return bool(trial.repeats), found, on.get(trial.name, math.inf), trial.rank

    return sorted((means.get(trial.name, trial) for trial in all_trials), key=place)


def fronts_of(trials: Iterable[Trial]) -> dict[str, int]:
    """Return of each candidate the number of the Pareto front it is on, 1 the best; nothing for a
    single objective."""
    costs = {
        trial.name: trial.reached.costs(trial.criteria.maximize)
        for trial in trials
        if trial.criteria.several and trial.is_candidate and trial.reached is not None
    }
    return dict(zip(costs, fronts([*costs.values()]), strict=True))


def pareto_front(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials that no other dominates, best in the first objective first; for a single
    one the best."""
    ranked = leaderboard(trials)
    on, best = fronts_of(ranked), best_trial(ranked)
    return [trial for trial in ranked if on.get(trial.name) == 1 or (not on and trial is best)]


def why_none(trials: Iterable[Trial]) -> str:
    """Return why the first of the trials that failed did, after its name; empty if none did."""
    failed = [trial for trial in trials if trial.has_ended and not trial.is_good]
    return f"{failed[0].name}: {failed[0].message}" if failed else ""


def no_best(trials: Iterable[Trial]) -> str:
    """Return the end of the sentence "no trial …" that explains why none is the best."""
    broken = [trial for trial in trials if trial.infeasible]
    if not broken:
        return "has a result"
    return f"is feasible, though {len(broken)} have a result: of {broken[0].name} {broken[0].infeasible[0]}"


def best_trial(trials: Iterable[Trial]) -> Trial | None:
    """Return the best trial that succeeded or was stopped early and is feasible, of equals the one
    that ended first; where trials were confirmed, the one with the best mean, and none whose mean
    breaks a constraint.

    Katib's own currentOptimalTrial may name any of equals, and a trial whose objective was no
    number; this never does.
    """
    all_trials = list(trials)
    means = confirmed(all_trials)
    chosen = [trial for trial in means.values() if trial.is_candidate]
    known = (means.get(trial.name, trial) for trial in all_trials)
    candidates = (trial for trial in known if trial.is_candidate)
    return chosen[0] if chosen else min(candidates, key=lambda trial: trial.rank, default=None)


def news(trial: Trial, before: str) -> list[str]:
    """Return the phases of a trial to report: nothing, its start, its end, or both.

    Args:
        trial: The trial with its current status.
        before: The phase that was reported last; ``Pending`` for a trial not reported yet.
    """
    if trial.phase in (before, "Pending"):
        return []
    if trial.phase == "Waiting":  # Katib calls it running
        return ["Waiting"]
    # A short trial may begin and end between two looks.
    began = any(condition.type == "Running" for condition in trial.conditions)
    missed = before in ("Pending", "Waiting") and trial.phase != "Running" and began
    return [*(["Running"] if missed else []), trial.phase]

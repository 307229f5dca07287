"""What trials are judged by beside Katib's objective, in annotations: further objectives, and constraints."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.errors import InvalidInput, suggestion
from podium.manifests.experiment.experiment import Experiment, Metrics, Objective
from podium.manifests.labels import CONDITIONS, CONSTRAINTS, OBJECTIVES
from podium.metrics import Constraint, less_is_better, objective_value
from podium.search.algorithms import ALGORITHMS
from podium.search.pareto import Value
from podium.text import exact


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What is tuned for."""

    metric: str
    maximize: bool

    @classmethod
    def read(cls, text: str, *, any_name: bool = False) -> "Goal":
        """Read ``accuracy``, ``min:loss`` or ``max:score``; without a direction the name decides.

        Args:
            any_name: Whether it may be a name that some library prints, such as ``valid_0's auc``.

        Raises:
            InvalidInput: The name is empty, or has characters that no metric line can have.
        """
        prefix, colon, rest = text.partition(":")
        name = rest if colon and prefix in ("min", "max") else text
        if not re.fullmatch(r"[\w /@'.-]+" if any_name else r"[\w-]+", name) or not re.search(r"\w", name):
            raise InvalidInput(f"an objective is the name of a metric, but got {text!r}", "accuracy, or min:loss")
        if colon:
            return cls(metric=name, maximize=prefix == "max")
        return cls(metric=name, maximize=not less_is_better(name))

    @property
    def direction(self) -> str:
        """``max`` or ``min``."""
        return "max" if self.maximize else "min"

    def __str__(self) -> str:
        return f"{self.direction}imize {self.metric}"


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """What trials are judged by."""

    objective: Objective
    """Katib's."""

    goals: tuple[Goal, ...]
    """All objectives, Katib's first."""

    constraints: tuple[Constraint, ...]

    @classmethod
    def of(cls, objective: Objective, annotations: Mapping[str, str]) -> "Criteria":
        """Read the annotations of an Experiment, which its trials have too.

        Raises:
            InvalidInput: One is not in the notation of objectives or constraints.
        """
        own = Goal(metric=objective.metric, maximize=objective.maximize)
        further, constraints = (_listed(annotations, name) for name in (OBJECTIVES, CONSTRAINTS))
        return cls(objective=objective, goals=(own, *(Goal.read(text, any_name=True) for text in further)),
                   constraints=tuple(map(Constraint.read, constraints)))  # fmt: skip

    @property
    def maximize(self) -> list[bool]:
        """Whether more is better, by objective."""
        return [goal.maximize for goal in self.goals]

    @property
    def several(self) -> bool:
        """Whether there is more than one objective."""
        return len(self.goals) > 1

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics that count, Katib's objective first."""
        return list(dict.fromkeys([goal.metric for goal in self.goals] + [bound.metric for bound in self.constraints]))

    def measured(self, metrics: Metrics) -> dict[str, float]:
        """Return what counts of a trial's metrics, by the Experiment's strategies; without those that are no number."""
        strategies = {**self.objective.strategies, self.objective.metric: self.objective.strategy}
        values = {name: objective_value(metrics.get(name, {}), strategies.get(name, "latest")) for name in self.metrics}
        return {name: value for name, value in values.items() if value is not None}

    def value(self, metrics: Metrics) -> Value | None:
        """Return what a trial has reached; None if one of the metrics is no number."""
        known = self.measured(metrics)
        if len(known) < len(self.metrics):
            return None
        first, *further = (known[goal.metric] for goal in self.goals)
        return Value(first, further, {str(each): each.broken_by(known[each.metric]) for each in self.constraints})

    def flaws(self, metrics: Metrics) -> list[str]:
        """Say what keeps a trial that has the first objective from being the best, or on the front."""
        known = self.measured(metrics)
        lacking = [f"{name} is no number" for name in self.metrics if name not in known]
        broken = [
            f"{each.metric} {exact(known[each.metric])} breaks {each}"
            for each in self.constraints
            if each.metric in known and each.broken_by(known[each.metric]) > 0
        ]
        return lacking + broken if self.objective.metric in known else []

    def rank(self, name: str, value: Value | None, order: float) -> tuple[Any, ...]:
        """Return a trial's sort key: best first, what breaks a constraint after the rest, no number last.

        The objectives count in their order, so that nothing dominates the first trial. Of equals that of the least
        order is first, then by name.

        Args:
            value: What it reached; trials with None keep their order.
            order: As order_of returns it.
        """
        return (2,) if value is None else (not value.feasible, *value.costs(self.maximize), order, name)

    def __str__(self) -> str:
        """Return ``maximize accuracy, minimize latency_ms, size_mb<=5``."""
        return ", ".join(map(str, (*self.goals, *self.constraints)))


def check_criteria(experiment: Experiment) -> None:
    """Check what the trials of an Experiment are judged by.

    Raises:
        InvalidInput: An annotation cannot be read, names a metric that is not recorded, or asks for what the algorithm
            or early stopping cannot do.
    """
    criteria, recorded = Criteria.of(experiment.objective, experiment.annotations), experiment.objective.metrics
    names = [goal.metric for goal in criteria.goals]
    if again := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput(f"{again} is an objective twice ({OBJECTIVES})", "name each metric once")
    for name in criteria.metrics if criteria.several or criteria.constraints else ():
        if name not in recorded:
            hint = suggestion(name, recorded) or f"additionalMetricNames: [{name}]"
            raise InvalidInput(f"{name} is not among the metrics that are recorded: {', '.join(recorded)}", hint)
        if experiment.search.name in ALGORITHMS and not experiment.search.facts.takes_several:
            able = ", ".join(known.name for known in ALGORITHMS.values() if known.takes_several)
            what = f"{experiment.search.name} searches for one objective without constraints"
            raise InvalidInput(what, f"set the algorithm to one of {able}")
    if criteria.several and experiment.early_stopping:
        what = f"early stopping judges a trial by {names[0]} alone, though {names[1]} may be good"
        raise InvalidInput(what, f"leave spec.earlyStopping out, or write a constraint in place of {OBJECTIVES}")


def judged_by(experiment: Experiment) -> dict[str, str]:
    """Return the annotations of an Experiment that its trials have too."""
    own = (OBJECTIVES, CONSTRAINTS, CONDITIONS)
    return {name: text for name, text in experiment.annotations.items() if name in own}


def annotations(objectives: Sequence[str] | None, constraints: Sequence[str] | None) -> dict[str, str]:
    """Return the annotations of further objectives and of constraints; nothing for none."""
    given = {OBJECTIVES: objectives, CONSTRAINTS: constraints}
    return {
        name: texts if isinstance(texts, str) else ", ".join(texts)  # a str is a sequence of its letters
        for name, texts in given.items()
        if texts
    }


def recorded(spec: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return ``spec.objective`` with all metrics of the annotations recorded, a further objective's at its best value.

    For Katib an additional metric without a strategy has that of the objective, which may be its worst value; one with
    a constraint alone counts as the trial left it.
    """
    goals = [Goal.read(text, any_name=True) for text in _listed(annotations, OBJECTIVES)]
    wanted = {goal.metric: "max" if goal.maximize else "min" for goal in goals}
    for bound in map(Constraint.read, _listed(annotations, CONSTRAINTS)):
        wanted.setdefault(bound.metric, "latest")
    wanted.pop(spec.get("objectiveMetricName", ""), None)
    names, strategies = spec.get("additionalMetricNames") or [], spec.get("metricStrategies") or []
    known = {strategy.get("name") for strategy in strategies}
    added = [{"name": name, "value": value} for name, value in wanted.items() if name not in known]
    more = {"additionalMetricNames": list(dict.fromkeys([*names, *wanted])), "metricStrategies": [*strategies, *added]}
    return {**spec, **(more if wanted else {})}


def _listed(annotations: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in annotations.get(name, "").split(",") if part.strip()]

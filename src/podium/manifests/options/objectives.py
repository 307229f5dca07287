"""Further objectives beside Katib's, and constraints on metrics."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from podium.display.text import exact
from podium.errors import InvalidInput, suggestion
from podium.manifests.options.base import Setting, SweepOption, UnderKatib, Values
from podium.metrics.goals import Constraint, Goal, objective_value
from podium.search.algorithms import ALGORITHMS
from podium.search.pareto import Value

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment, Metrics, Objective


@dataclass(frozen=True, kw_only=True)
class Objectives(SweepOption):
    """Objectives beside Katib's, and constraints."""

    title: ClassVar[str] = "objectives"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(
            name="objectives",
            is_list=True,
            flag="--objective",
            metavar="NAME",
            help="Objective besides spec.objective: NAME, min:NAME or max:NAME; may be repeated.",
        ),
        Setting(
            name="constraints",
            is_list=True,
            flag="--constraint",
            metavar="METRIC<=N",
            help="Bound that the best trial must satisfy: <=, <, >= or >; may be repeated.",
        ),
    )
    katib: ClassVar[UnderKatib | None] = UnderKatib(
        why="Katib optimizes spec.objective alone, and any trial may be its best.",
        what="only podium's own engine heeds further objectives and constraints",
        hint="leave them out where Katib runs it",
    )
    is_of_trials: ClassVar[bool] = True

    goals: tuple[Goal, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, values: Values) -> "Objectives | None":
        goals, constraints = _listed(values, "objectives"), _listed(values, "constraints")
        if not goals and not constraints:
            return None
        return cls(
            goals=tuple(Goal.read(text, any_name=True) for text in goals),
            constraints=tuple(map(Constraint.read, constraints)),
        )

    def check(self, experiment: "Experiment") -> None:
        """Refuse a metric that is not recorded, and combinations that the algorithm or early
        stopping does not support."""
        criteria, metrics = (
            Criteria.of(experiment.objective, experiment.asked),
            experiment.objective.metrics,
        )
        names = [goal.metric for goal in criteria.goals]
        if again := next((name for name in names if names.count(name) > 1), None):
            raise InvalidInput(f"{again} is an objective twice", "name each metric once")
        for name in criteria.metrics:
            if name not in metrics:
                hint = suggestion(name, metrics) or f"additionalMetricNames: [{name}]"
                raise InvalidInput(
                    f"{name} is not among the metrics that are recorded: {', '.join(metrics)}",
                    hint,
                )
        if experiment.search.name in ALGORITHMS and not experiment.search.facts.takes_several:
            able = ", ".join(each.name for each in ALGORITHMS.values() if each.takes_several)
            problem = f"{experiment.search.name} searches for one objective without constraints"
            raise InvalidInput(problem, f"set the algorithm to one of {able}")
        if criteria.several and experiment.early_stopping:
            problem = (
                f"early stopping judges a trial by {names[0]} alone, though {names[1]} may be good"
            )
            raise InvalidInput(
                problem,
                "leave spec.earlyStopping out, or write a constraint in place of the objective",
            )

    def describe(self, experiment: "Experiment") -> str:
        return str(Criteria.of(experiment.objective, experiment.asked))

    @classmethod
    def prepare(cls, spec: dict[str, Any], values: Values) -> Values:
        """Have all of the metrics recorded, a further objective's at its best value.

        For Katib an additional metric without a strategy has that of the objective, which may be
        its worst value; one with a constraint alone counts as the trial left it.
        """
        option = cls.of(values)
        objective = dict(spec.get("objective") or {})
        wanted = {goal.metric: goal.direction for goal in option.goals} if option else {}
        for bound in option.constraints if option else ():
            wanted.setdefault(bound.metric, "latest")
        wanted.pop(objective.get("objectiveMetricName", ""), None)
        names, strategies = (
            objective.get("additionalMetricNames") or [],
            objective.get("metricStrategies") or [],
        )
        named = {strategy.get("name") for strategy in strategies}
        added = [
            {"name": name, "value": value} for name, value in wanted.items() if name not in named
        ]
        if wanted:
            objective["additionalMetricNames"] = list(dict.fromkeys([*names, *wanted]))
            objective["metricStrategies"] = [*strategies, *added]
            spec["objective"] = objective
        return values

    def search(self, experiment: "Experiment") -> Values:
        return {"further": [goal.maximize for goal in self.goals]}


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """Objectives and constraints that trials are ranked by."""

    objective: "Objective"

    goals: tuple[Goal, ...]
    """All objectives, Katib's first."""

    constraints: tuple[Constraint, ...]

    @classmethod
    def of(cls, objective: "Objective", values: Values) -> "Criteria":
        """Combine an Experiment's objective with its options, which its trials carry too.

        Raises:
            InvalidInput: One is not in the notation of objectives or constraints.
        """
        own = Goal(metric=objective.metric, maximize=objective.maximize)
        more = Objectives.of(values) or Objectives()
        return cls(objective=objective, goals=(own, *more.goals), constraints=more.constraints)

    @property
    def maximize(self) -> list[bool]:
        return [goal.maximize for goal in self.goals]

    @property
    def several(self) -> bool:
        return len(self.goals) > 1

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics that count, Katib's objective first."""
        return list(
            dict.fromkeys(
                [goal.metric for goal in self.goals] + [bound.metric for bound in self.constraints]
            )
        )

    def measured(self, metrics: "Metrics") -> dict[str, float]:
        """Return the relevant values of a trial's metrics, by the Experiment's strategies, without
        those that are not numbers."""
        strategies = {**self.objective.strategies, self.objective.metric: self.objective.strategy}
        values = {
            name: objective_value(metrics.get(name, {}), strategies.get(name, "latest"))
            for name in self.metrics
        }
        return {name: value for name, value in values.items() if value is not None}

    def value(self, metrics: "Metrics") -> Value | None:
        """Return the value that a trial has reached; None if one of the metrics is not a number."""
        measured = self.measured(metrics)
        if len(measured) < len(self.metrics):
            return None
        first, *further = (measured[goal.metric] for goal in self.goals)
        return Value(
            first,
            further,
            {str(each): each.broken_by(measured[each.metric]) for each in self.constraints},
        )

    def flaws(self, metrics: "Metrics") -> list[str]:
        """Return the reasons why a trial with the first objective cannot be the best, or on the
        front."""
        measured = self.measured(metrics)
        lacking = [f"{name} is no number" for name in self.metrics if name not in measured]
        broken = [
            f"{each.metric} {exact(measured[each.metric])} breaks {each}"
            for each in self.constraints
            if each.metric in measured and each.broken_by(measured[each.metric]) > 0
        ]
        return lacking + broken if self.objective.metric in measured else []

    def rank(self, name: str, value: Value | None, order: float) -> tuple[Any, ...]:
        """Return a trial's sort key: best first, then trials that break a constraint, then those
        without a number.

        The objectives count in their order, so that nothing dominates the first trial. Of equals
        that of the least order is first, then by name.

        Args:
            value: Value the trial reached; trials with None keep their order.
            order: Least for the best of equals.
        """
        return (
            (2,)
            if value is None
            else (not value.feasible, *value.costs(self.maximize), order, name)
        )

    def __str__(self) -> str:
        return ", ".join(map(str, (*self.goals, *self.constraints)))


def _listed(values: Values, name: str) -> list[str]:
    """Return the items of a setting; each of its texts may hold several, separated by commas."""
    return [
        part.strip() for text in values.get(name, ()) for part in text.split(",") if part.strip()
    ]

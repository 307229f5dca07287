"""The promotion rule: when a challenger replaces the champion, item by item on the same test
part.

A figure is worth what the figures of all models on the same test part make of it (empirical Bayes):
the true figures are normal around their mean with a variance of spread, and each is measured with a
variance of noise, of which only the part counts that two models do not share: shared hard items
move both alike. Models far from the champion say nothing of those that contend with it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from podium.display.text import figure
from podium.errors import InvalidInput, suggestion
from podium.metrics.goals import Constraint
from podium.models.criteria import CRITERIA, LIKELY, measured
from podium.models.decision import Case, Condition, Criterion, Decision, Earlier, are_alike
from podium.models.version import Version

if TYPE_CHECKING:
    import numpy as np

    from podium.scoring import Comparison, Metric


PRIOR_MODELS = 4
"""How many figures the prior of the spread counts as."""

PRIOR_SPREAD = 0.5
"""Its standard deviation, in standard errors of one figure."""


@dataclass(frozen=True, kw_only=True)
class _Shrinkage:
    mean: float
    noise: float
    """Squared standard error of one figure."""

    weight: float
    """The share of a figure's distance from the mean that is kept, 0..1."""

    @classmethod
    def of(
        cls, both: tuple[float, float], others: Sequence[float], noises: Sequence[float]
    ) -> "_Shrinkage":
        """Estimate it.

        Args:
            both: Figures of the challenger and the champion.
            others: Of every other model on the test part.
            noises: The squared standard error of one figure, by each comparison, the one in
                question last; empty if there was none. How far other models differ says less of
                these two the less alike both noises are; and of their figures no more noise is
                taken off than they show: models that hardly differ must not hide the spread.
        """
        usual = fmean(noises) if noises else 0.0
        noise = noises[-1] or usual if noises else 0.0
        near = [value for value in others if are_alike(value, both[1], max(usual, noise))]
        mean, squares = _scatter([*both, *near])
        if not noise:
            return cls(mean=mean, noise=0.0, weight=1.0)
        own = (both[0] - both[1]) ** 2 / 2
        by_chance = min(len(near) * usual, 2 * (_scatter(near)[1] + usual))
        telling = min(noise, usual) / max(noise, usual)
        theirs = telling * noise / usual * (squares - own - by_chance)
        prior = PRIOR_MODELS * noise * PRIOR_SPREAD**2
        spread = max(0.0, (own - noise + theirs + prior) / (len(near) + 1 + PRIOR_MODELS))
        return cls(mean=mean, noise=noise, weight=spread / (spread + noise))

    def shrunk(self, figure: float) -> float:
        """Return the posterior mean of a figure."""
        return self.mean + self.weight * (figure - self.mean)

    def probability(self, lead: float) -> float:
        """Return how likely the truth behind a figure is above that of one which it leads by so
        much."""
        if not self.noise:
            return 0.5 if lead == 0 else float(lead > 0)
        return (1 + math.erf(lead * math.sqrt(self.weight) / math.sqrt(4 * self.noise))) / 2


def _scatter(figures: Sequence[float]) -> tuple[float, float]:
    """Return the mean of figures, and the sum of their squared distances from it."""
    mean = fmean(figures) if figures else 0.0
    return mean, sum((figure - mean) ** 2 for figure in figures)


def _noise_of(compared: "Comparison", units: int) -> float | None:
    """Return the squared standard error of one of two figures that its items do not share; None if
    it is not known."""
    if compared.test == "McNemar":
        assert compared.gained is not None
        assert compared.lost is not None
        return (compared.gained + compared.lost) / units / (2 * units)
    error = compared.standard_error
    return None if error is None else error**2 / 2


TRIAL, SLICE = "trial.", "slice"
NO_CHAMPION = ", and there is no champion yet"


@dataclass(frozen=True, kw_only=True)
class PromotionRule:
    """Conditions that a challenger must meet to become champion."""

    metric: str = ""
    """In the notation of find_metric; empty for the metric that the challenger was chosen by."""

    words: tuple[tuple[str, Any], ...] = (("likely", LIKELY),)
    """Name and value of each criterion; exactly one says how a challenger must compare."""

    def __contains__(self, name: str) -> bool:
        return any(name == word for word, _ in self.words)

    @property
    def bounds(self) -> list[Constraint]:
        """Bounds of what the challenger's trial reported."""
        return [value for name, value in self.words if name == TRIAL]

    @property
    def columns(self) -> list[str]:
        """Columns of the test items that it looks at."""
        return [value for name, value in self.words if name == SLICE]

    @property
    def window(self) -> int | None:
        """Number of test items that count, the newest ones; None for all."""
        return dict(self.words).get("window")

    def check(self, metric: "Metric") -> None:
        """Check that the rule makes sense for a metric.

        Raises:
            InvalidInput: It does not.
        """
        for name, value in self.words:
            CRITERIA[name].check(value, metric)

    def require_ready(self) -> None:
        """Refuse a rule that needs what this machine lacks.

        Raises:
            InvalidInput: It does.
        """
        for name, _ in self.words:
            CRITERIA[name].ready()

    @classmethod
    def parse(cls, text: str) -> "PromotionRule":
        """Parse the notation of pipelines and the command line.

        Args:
            text: ``likely``, ``likely=.97,minimum=.9``, ``better,signed`` or
                ``not-worse,metric=rmse,trial.latency_ms<=20``; empty for the default.

        Raises:
            InvalidInput: A word is unknown, or a value out of range.
        """
        metric, words = "", dict[str, tuple[str, Any]]()
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (part.strip() for part in item.partition("="))
            if name == "metric":
                if not value or metric:
                    problem = "has metric twice" if metric else "needs a name behind metric="
                    raise InvalidInput(f"a promotion rule {problem}", "metric=accuracy, once")
                metric = value
                continue
            criterion = _criterion(item, name)
            key = item if criterion.name in (TRIAL, SLICE) else criterion.name
            if key in words:
                raise InvalidInput(f"a promotion rule has {name} twice", "name it once")
            words[key] = criterion.name, _value(criterion, item, equals, value)
        comparing = [name for name in words if name in CRITERIA and CRITERIA[name].compares]
        if len(comparing) > 1:
            raise InvalidInput(f"{' and '.join(comparing)} exclude each other", "name one of them")
        default = () if comparing else (("likely", LIKELY),)
        return cls(metric=metric, words=(*default, *words.values()))

    def __str__(self) -> str:
        """Return the notation that parse reads."""
        metric = [f"metric={self.metric}"] if self.metric else []
        return ",".join([*(_written(name, value) for name, value in self.words), *metric])

    def of_version(self, decision: Decision, version: Version) -> Decision:
        """Return a decision with what the rule says of the challenger beyond its predictions."""
        for name, value in self.words:
            decision = decision.adding(CRITERIA[name].of_version(value, version))
        return decision


def _criterion(item: str, name: str) -> Criterion:
    if item.startswith(TRIAL):
        return CRITERIA[TRIAL]
    if name in CRITERIA and name != TRIAL:
        return CRITERIA[name]
    choices = [*CRITERIA, "metric"]
    raise InvalidInput(
        f"{name!r} is not a criterion of a promotion rule",
        f"{suggestion(name, choices)}; one of {', '.join(choices)}",
    )


def _value(criterion: Criterion, item: str, equals: str, value: str) -> Any:
    if criterion.name == TRIAL:
        assert criterion.read
        return criterion.read(item.removeprefix(TRIAL))
    if criterion.read is None:
        if equals:
            raise InvalidInput(f"{criterion.name} stands alone, not {item!r}", criterion.name)
        return None
    if not equals:
        if criterion.default is None:
            raise InvalidInput(f"{criterion.name} needs a value", f"{criterion.name}=VALUE")
        return criterion.default
    if not value:
        raise InvalidInput(f"{item} has no value", f"{criterion.name}=VALUE")
    return criterion.read(value)


def _written(name: str, value: Any) -> str:
    if name == TRIAL:
        return f"{TRIAL}{value}"
    return name if value is None else f"{name}={value}"


def decide(
    rule: PromotionRule,
    metric: "Metric",
    target: "np.ndarray",
    challenger: "np.ndarray",
    champion: "np.ndarray | None",
    groups: "np.ndarray | None" = None,
    earlier: Earlier | None = None,
    classes: Sequence[str] = (),
    column: "Callable[[str], np.ndarray] | None" = None,
    *,
    probabilities: "np.ndarray | None" = None,
) -> Decision:
    """Compare two models on the same items.

    Args:
        metric: What is compared; the rule's own has been chosen by the caller.
        target: Class indices ``[n]``, or floats ``[n]`` or ``[n, k]``.
        challenger: Predictions of the same items in the same order: probabilities
            ``[n, classes]`` or class indices ``[n]``, or floats in the target's shape.
        champion: The champion's; None if there is none.
        groups: Which items count together: an integer for each item ``[n]``. None if all count
            alone.
        earlier: What the history knows of this test part.
        classes: Names of the classes; empty for their numbers.
        column: Returns a column of the same items, ``[n]``: texts, or floats. None if they have
            none.
        probabilities: The challenger's, where a threshold made its classes; None where they are
            its predictions.

    Raises:
        InvalidInput: There are no items, the shapes differ, or the rule or the metric does not fit.
    """
    from podium.scoring.constant import constant_guess

    rule.check(metric)
    for role, predictions in (("challenger", challenger), ("champion", champion)):
        if predictions is not None:
            _check(role, predictions, target, metric)
    column = column or _no_column
    case = _compared(metric, target, challenger, champion, groups, earlier or Earlier(), column)
    case = replace(case, probabilities=challenger if probabilities is None else probabilities)
    constant = constant_guess(metric, target, challenger, classes)
    case.figures.update(rule=str(rule), constant=asdict(constant) if constant else None)
    conditions = _conditions(rule, case)
    reasons = tuple(f"{'ok' if holds else 'no'}: {words}" for holds, words in conditions)
    promote = all(holds for holds, _ in conditions)
    return Decision(promote=promote, reasons=reasons, figures=case.figures)


def _no_column(name: str) -> "np.ndarray":
    raise InvalidInput(
        f"slice={name} needs the test items, but only their predictions are stored",
        "name the data: --data URI",
    )


def _compared(
    metric: "Metric",
    target: "np.ndarray",
    challenger: "np.ndarray",
    champion: "np.ndarray | None",
    groups: "np.ndarray | None",
    earlier: Earlier,
    column: "Callable[[str], np.ndarray]",
) -> Case:
    from podium.scoring import compare
    from podium.scoring.comparison import by_class
    from podium.scoring.intervals import figure_interval, numbered

    groups = numbered(groups, len(target))
    value = metric.steady_value(target, challenger)
    units = len(target) if groups is None else int(groups.max()) + 1
    evidence: dict[str, Any] = {
        "metric": metric.to_json(),
        "items": len(target),
        "units": units,
        "value": value,
    }
    before = math.nan if champion is None else metric.steady_value(target, champion)
    compared = None
    if math.isnan(value):
        evidence |= {
            "value": None,
            "value_interval": None,
            **({} if math.isnan(before) else {"champion_value": before}),
        }
    elif champion is None or math.isnan(before):
        interval = figure_interval(metric, target, challenger, groups)
        evidence |= {"value_interval": _listed(interval), "shrunk": value}
    else:
        compared = compare(metric, target, challenger, champion, groups)
        evidence["value_interval"] = _listed(compared.first_interval)
        evidence |= figures(compared) | shrunk_figures(compared, units, earlier)
        if metric.counts_hits:
            evidence["classes"] = by_class(target, challenger, champion)
    return Case(
        metric=metric,
        target=target,
        challenger=challenger,
        champion=champion,
        groups=groups,
        earlier=earlier,
        compared=compared,
        figures=evidence,
        column=column,
    )


def _conditions(rule: PromotionRule, case: Case) -> list[Condition]:
    conditions: list[Condition] = []
    if case.figures["value"] is None:
        items = f"{case.metric.name} of the challenger is not a number on these {len(case.target)} items"
        return [(False, f"{items}, so it loses: {case.metric.undefined}")]
    for name, value in rule.words:
        if case.compared or not CRITERIA[name].compares:
            conditions += CRITERIA[name].judge(value, case)
    if case.compared is None:
        return [*conditions, *_first(rule, case)]
    if case.earlier.challengers > 1 and case.figures["shrunk_by"] is not None:
        words = (
            f"challenger {case.earlier.challengers} on this test part: "
            f"figures are shrunk by {case.figures['shrunk_by']:.0%} of their distance "
            f"to the mean of all models that are alike, {figure(case.figures['shrunk_to'])}"
        )
        conditions.append((True, words))
    if lost := _lost_to_guess(rule, case):
        words = f"though {lost} (minimum=VALUE in the rule asks for more)"
        conditions.append((True, words))
    return conditions


def _lost_to_guess(rule: PromotionRule, case: Case) -> str:
    """Return the guess that the challenger does not beat, in words; empty if it does."""
    constant, value = case.figures["constant"], case.figures["value"]
    if not constant or "baseline" in rule or case.metric.better(value, constant["value"]):
        return ""
    than = f"better than a constant guess, {constant['guess']}: {figure(constant['value'])}"
    return f"{case.metric.name} {figure(value)} is not {than}"


def _first(rule: PromotionRule, case: Case) -> Iterator[Condition]:
    words = f"{case.metric.name} {measured(case.figures)}"
    unknown = ", and that of the champion is not a number on these items"
    yield True, f"{words}{NO_CHAMPION if case.champion is None else unknown}"
    constant = case.figures["constant"]
    low, high = case.figures["value_interval"] or (math.nan, math.nan)
    if lost := _lost_to_guess(rule, case):
        yield False, f"{lost} (baseline=any)"
    elif constant and low <= constant["value"] <= high:
        words = "the interval contains that guess, so the lead over it may be chance"
        yield True, f"{words} (minimum=VALUE in the rule asks for more)"


def shrunk_figures(compared: "Comparison", units: int, earlier: Earlier) -> dict[str, Any]:
    """Return the posterior means of both figures, and how likely the challenger is better."""
    both = compared.first, compared.second
    noise = _noise_of(compared, units)
    noises = [*earlier.noises, *([] if noise is None else [noise])]
    others = list(filter(math.isfinite, earlier.figures))
    if not noises or not all(map(math.isfinite, both)):
        even = 0.5 if compared.difference == 0 else None
        unknown = {"noise": None, "probability": even, "shrunk_to": None, "shrunk_by": None}
        return {"shrunk": both[0], "champion_shrunk": both[1], **unknown}
    shrinkage = _Shrinkage.of(both, others, noises)
    lead = compared.difference if compared.metric.maximize else -compared.difference
    probability = shrinkage.probability(lead)
    tested = compared.test != "McNemar" and not compared.p_is_bound
    if tested and compared.p_value is not None:  # a bound says how many draws there were
        # An item that makes a whole difference has an error of no normal distribution.
        probability = min(probability, max(0.5, 1 - compared.p_value / 2))
    return {
        "shrunk": shrinkage.shrunk(both[0]),
        "champion_shrunk": shrinkage.shrunk(both[1]),
        "noise": noise,
        "probability": probability,
        "shrunk_to": shrinkage.mean,
        "shrunk_by": 1 - shrinkage.weight,
    }


def _check(role: str, predictions: "np.ndarray", target: "np.ndarray", metric: "Metric") -> None:
    if not len(target):
        raise InvalidInput(f"there are no items to measure {metric.name} on")
    from podium.scoring.families import class_count
    from podium.scoring.scores import check_predictions

    check_predictions(
        predictions,
        target,
        classes=class_count(predictions) if target.dtype.kind in "iu" else None,
        name=f"the {role}",
    )
    kinds = {"classification": "iu", "regression": "f", None: "iuf"}[metric.kind]
    if target.dtype.kind not in kinds:
        raise InvalidInput(
            f"{metric.name} is a metric of {metric.kind}, but the target is {target.dtype}"
        )
    classes_only = predictions.ndim == 1 and predictions.dtype.kind in "iu"
    if metric.needs_probabilities and classes_only:
        raise InvalidInput(
            f"{metric.name} needs probabilities, but of the {role} there are only classes",
            "compare by accuracy: metric=accuracy",
        )
    if metric.kind == "classification" and not classes_only:
        if predictions.ndim != 2:
            raise InvalidInput(
                f"predictions of the {role} cannot be {predictions.dtype} {list(predictions.shape)}",
                "probabilities [n, classes] or class indices [n]",
            )
        if target.max() >= predictions.shape[1]:
            raise InvalidInput(
                f"the {role} has {predictions.shape[1]} classes, but the target has a {target.max()}"
            )


def figures(compared: "Comparison") -> dict[str, Any]:
    """Return a comparison as plain JSON values; the first model is the challenger."""
    values = {
        "champion_value": compared.second,
        "difference": compared.difference,
        "champion_interval": _listed(compared.second_interval),
        "interval": _listed(compared.interval),
        "p_value": compared.p_value,
        "doubt": compared.doubt,
        "test": compared.test,
    }
    if compared.gained is not None:
        values |= {"only_challenger_right": compared.gained, "only_champion_right": compared.lost}
    return values


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return list(interval) if interval else None

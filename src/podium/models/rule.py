"""The promotion rule: when a challenger replaces the champion, decided item by item on the same test part."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput, require
from podium.metrics import Constraint
from podium.text import exact, figure, p_words

if TYPE_CHECKING:
    import numpy as np

    from podium.models.version import TrialFacts
    from podium.scoring import Comparison, Metric

SPENT = ("", "nights")

TRIAL = "trial."
"""Begins a bound of what the challenger's trial reported."""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """How a challenger must compare with the champion."""

    name: str
    """As in ``criterion=NAME`` of a promotion rule."""

    wanted: str
    """What the challenger must be, in words before "the champion"; may name ``{step}`` and ``{p}``."""

    holds: "Callable[[Comparison, float], bool]"
    """Whether it is, by the comparison, challenger first, and the largest p value that promotes."""

    takes_p: bool = False
    """Whether the rule's p and spend count."""


def _is_past_a_step(compared: "Comparison", limit: float) -> bool:
    step = compared.standard_error
    return compared.better and step is not None and abs(compared.difference) > step


def _is_significant(compared: "Comparison", limit: float) -> bool:
    return compared.better and compared.p_value is not None and compared.p_value <= limit


_ALL = (
    Criterion(name="better", wanted="better than", holds=lambda compared, limit: compared.better),
    Criterion(name="not-worse", wanted="not worse than", holds=lambda compared, limit: not compared.worse),
    Criterion(name="ladder", wanted="better by {step} than", holds=_is_past_a_step),
    Criterion(
        name="significant", wanted="significantly better (p <= {p:.2g}) than", holds=_is_significant, takes_p=True
    ),
)

CRITERIA = {criterion.name: criterion for criterion in _ALL}
"""By name. A new one is a Criterion in this table."""


@dataclass(frozen=True, kw_only=True)
class PromotionRule:
    """What a challenger must achieve."""

    metric: str = ""
    """In the notation of find_metric; empty for the metric that the challenger was chosen by."""

    minimum: float | None = None
    """The least value of the metric on the test part, or the most where less is better; required even without a
    champion."""

    criterion: str = "better"
    """better: a better value than the champion's; not-worse: as good or better; ladder: better by more than a standard
    error of the difference (the parameter-free Ladder of Blum and Hardt 2015); significant: better, and the paired
    test gives at most p: the exact McNemar test for accuracy, a permutation test otherwise."""

    p: float = 0.05
    """For criterion significant."""

    spend: str = ""
    """For criterion significant: ``nights`` shares p among all challenges on one test part, p / (k (k + 1)) for the
    k-th, so that p bounds the chance of any false promotion, however many there are; empty takes p each time."""

    max_class_drop: float | None = None
    """Accuracy only: refuse if that of any class is lower than the champion's by more than this, 0..1."""

    signed: bool = False
    """Refuse a challenger without a valid signature of the key of PODIUM_PUBLIC_KEY, and every one if that is not set.
    Where it is set, an unsigned challenger is refused under any rule."""

    trial: tuple[Constraint, ...] = ()
    """``trial.latency_ms<=20``: bounds of what the challenger's trial reported; one it did not report is not kept."""

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise InvalidInput(
                f"{self.criterion!r} is not a criterion", f"the criterion is one of {', '.join(CRITERIA)}"
            )
        require(0 < self.p < 1, "0 < p < 1", p=self.p)
        if self.spend not in SPENT:
            raise InvalidInput(f"spend is nights or nothing, not {self.spend!r}", "significant,spend=nights")
        if self.spend and not CRITERIA[self.criterion].takes_p:
            takes_p = " and ".join(name for name, criterion in CRITERIA.items() if criterion.takes_p)
            raise InvalidInput(f"spend goes with the criterion {takes_p}, not {self.criterion}",
                               f"{takes_p},spend={self.spend}")  # fmt: skip
        least = self.minimum
        if least is not None and not math.isfinite(least):
            raise InvalidInput(f"minimum is a finite number, not {least}", "give the least value that is good enough")
        drop = self.max_class_drop
        require(drop is None or 0 <= drop <= 1, "0 <= max_class_drop <= 1", max_class_drop=drop)

    def threshold(self, uses: int) -> float:
        """Return the largest p value that promotes the challenger of a number, from 1, on one test part."""
        return self.p / (uses * (uses + 1)) if self.spend else self.p

    def check(self, metric: "Metric") -> None:
        """Check that the rule makes sense for a metric.

        Raises:
            InvalidInput: It does not.
        """
        least = self.minimum
        if metric.range == (0, 1) and least is not None:
            require(0 <= least <= 1, "0 <= minimum <= 1", f"{metric.name} is a share, not a percentage", minimum=least)
        if self.max_class_drop is not None and not metric.counts_hits:
            raise InvalidInput(f"max_class_drop is about accuracy, but the metric is {metric.name}",
                               "leave it out, or add metric=accuracy to the rule")  # fmt: skip
        if CRITERIA[self.criterion].takes_p and not metric.counts_hits:
            from podium.scoring import least_p

            least_shown, hint = least_p(metric), "only the McNemar test of accuracy is exact"
            require(self.p >= least_shown, f"p >= {least_shown:g} for a permutation test", hint, p=self.p,
                    metric=metric.name)  # fmt: skip

    @classmethod
    def parse(cls, text: str) -> "PromotionRule":
        """Parse the notation of pipelines and the command line.

        Args:
            text: ``better``, ``significant,p=0.01``, ``better,signed`` or
                ``criterion=not-worse,metric=rmse,minimum=12,trial.latency_ms<=20``; empty for the defaults.

        Raises:
            InvalidInput: A word is unknown, or a value out of range.
        """
        given: dict[str, Any] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            if item.startswith(TRIAL):
                given["trial"] = (*given.get("trial", ()), _bound(item))
                continue
            name, equals, value = (part.strip() for part in item.partition("="))
            if name == "signed":
                require(not equals, "signed stands alone", "better,signed", signed=value)
                given[name] = True
                continue
            if not equals:
                name, value = "criterion", name
            given[name] = value if name in ("criterion", "metric", "spend") else _number(name, value)
        return cls(**given)

    def __str__(self) -> str:
        """Return the notation that parse reads."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in named.items() if value not in (None, "", ()) and value is not False}
        bounds = [f"{TRIAL}{bound}" for bound in given.pop("trial", ())]
        return ",".join([*(name if value is True else f"{name}={value}" for name, value in given.items()), *bounds])

    def of_trial(self, decision: "Decision", trial: "TrialFacts") -> "Decision":
        """Return a decision with what the rule says of the challenger's trial."""
        for bound in self.trial:
            value = trial.metrics.get(bound.metric)
            whose = f"its trial {trial.name}" if trial.name else "the version, which is of no trial,"
            if value is None:
                decision = decision.refused(f"{whose} has no {bound.metric} ({TRIAL}{bound})")
            elif bound.broken_by(value) > 0:
                decision = decision.refused(f"{bound.metric} {exact(value)} of {whose} breaks {TRIAL}{bound}")
            else:
                decision = decision.noting(f"{bound.metric} {exact(value)} of {whose} keeps {TRIAL}{bound}")
        return decision


def _bound(item: str) -> Constraint:
    try:
        return Constraint.read(item.removeprefix(TRIAL))
    except InvalidInput as error:
        raise InvalidInput(error.message, f"{TRIAL}{error.hint}") from None


def _number(name: str, value: str) -> float:
    names = [field.name for field in fields(PromotionRule) if field.name != "trial"] + [f"{TRIAL}METRIC<=N"]
    if name not in names:
        raise InvalidInput(f"a promotion rule has no {name!r}, only {', '.join(names)}", "try significant,p=0.01")
    try:
        return float(value)
    except ValueError:
        raise InvalidInput(f"{name} of a promotion rule must be a number, not {value!r}") from None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The outcome of a rule for one challenger."""

    promote: bool
    """Whether it becomes champion."""

    reasons: tuple[str, ...]
    """Every condition of the rule with its figures, in words."""

    figures: Mapping[str, Any]
    """rule, metric, items, units (items, or groups of them, that count) and value; with a champion also champion_value,
    difference, interval, p_value and test; for accuracy also only_challenger_right, only_champion_right and classes.
    value_interval and champion_interval are the 95 % intervals of the figures, None where there are too few items."""

    def noting(self, words: str) -> "Decision":
        """Return it with a reason that changes nothing."""
        return replace(self, reasons=(*self.reasons, f"ok: {words}"))

    def refused(self, why: str) -> "Decision":
        """Return it as a refusal for a reason beyond the rule."""
        return replace(self, promote=False, reasons=(f"no: {why}", *self.reasons))

    def evidence(self) -> dict[str, Any]:
        """Return it as plain JSON values for the history."""
        return {"decision": "promote" if self.promote else "keep", "reasons": list(self.reasons), **self.figures}

    def __str__(self) -> str:
        head = "promote" if self.promote else "keep the champion"
        return "\n".join([head, *(f"  {reason}" for reason in self.reasons)])


def decide(
    rule: PromotionRule,
    metric: "Metric",
    target: "np.ndarray",
    challenger: "np.ndarray",
    champion: "np.ndarray | None",
    groups: "np.ndarray | None" = None,
    uses: int = 1,
) -> Decision:
    """Compare two models on the same items.

    Args:
        metric: What is compared; the rule's own has been chosen by the caller.
        target: Class indices ``[n]``, or floats ``[n]`` or ``[n, k]``.
        challenger: Predictions of the same items in the same order: probabilities ``[n, classes]`` or class indices
            ``[n]``, or floats in the target's shape.
        champion: The champion's; None if there is none: then only the minimum counts.
        groups: Which items count together: an integer for each item ``[n]``. None if all count alone.
        uses: How many challengers this test part has seen, with this one.

    Raises:
        InvalidInput: There are no items, the shapes differ, or the rule or the metric does not fit.
    """
    from podium.scoring import compare
    from podium.scoring.comparison import by_class, figure_interval, numbered

    rule.check(metric)
    for what, predictions in (("challenger", challenger), ("champion", champion)):
        if predictions is not None:
            _check(what, predictions, target, metric)
    value, groups = metric.defined_value(target, challenger), numbered(groups, len(target))
    evidence: dict[str, Any] = {"rule": str(rule), "metric": metric.to_json(), "items": len(target), "value": value,
                                "units": len(target) if groups is None else int(groups.max()) + 1}  # fmt: skip
    conditions = _minimum(rule, metric, value)
    if champion is None:
        evidence["value_interval"] = _listed(figure_interval(metric, target, challenger, groups))
        conditions.append((True, f"{metric.name} {_measured(evidence)}, and there is no champion yet"))
    else:
        compared = compare(metric, target, challenger, champion, groups, rule.threshold(uses))
        evidence |= {"value_interval": _listed(compared.first_interval), **figures(compared)}
        conditions.append(_criterion(rule, compared, evidence, uses))
        conditions += _used(metric, evidence, compared, uses)
        if metric.counts_hits:
            evidence["classes"] = by_class(target, challenger, champion)
            conditions += _drops(rule, evidence["classes"])
    reasons = tuple(f"{'ok' if holds else 'no'}: {words}" for holds, words in conditions)
    return Decision(promote=all(holds for holds, _ in conditions), reasons=reasons, figures=evidence)


def _check(what: str, predictions: "np.ndarray", target: "np.ndarray", metric: "Metric") -> None:
    if not len(target):
        raise InvalidInput(f"there are no items to measure {metric.name} on")
    from podium.scoring.scores import check_predictions

    check_predictions(predictions, target, classes=_classes(predictions) if target.dtype.kind in "iu" else None,
                      name=f"the {what}")  # fmt: skip
    kinds = {"classification": "iu", "regression": "f", None: "iuf"}[metric.kind]
    if target.dtype.kind not in kinds:
        raise InvalidInput(f"{metric.name} is a metric of {metric.kind}, but the target is {target.dtype}")
    classes_only = predictions.ndim == 1 and predictions.dtype.kind in "iu"
    if metric.needs_probabilities and classes_only:
        raise InvalidInput(f"{metric.name} needs probabilities, but of the {what} there are only classes",
                           "compare by accuracy: metric=accuracy")  # fmt: skip
    if metric.kind == "classification" and not classes_only:
        if predictions.ndim != 2:
            raise InvalidInput(f"predictions of the {what} cannot be {predictions.dtype} {list(predictions.shape)}",
                               "probabilities [n, classes] or class indices [n]")  # fmt: skip
        if target.max() >= predictions.shape[1]:
            raise InvalidInput(f"the {what} has {predictions.shape[1]} classes, but the target has a {target.max()}")


def _classes(predictions: "np.ndarray") -> int:
    """Return how many classes predictions speak of."""
    return int(predictions.shape[1] if predictions.ndim == 2 else predictions.max() + 1)


def figures(compared: "Comparison") -> dict[str, Any]:
    """Return a comparison as plain JSON values; the first model is the challenger."""
    values = {
        "champion_value": compared.second,
        "difference": compared.difference,
        "champion_interval": _listed(compared.second_interval),
        "interval": _listed(compared.interval),
        "p_value": compared.p_value,
        "test": compared.test,
    }
    if compared.gained is not None:
        values |= {"only_challenger_right": compared.gained, "only_champion_right": compared.lost}
    return values


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return list(interval) if interval else None


def _minimum(rule: PromotionRule, metric: "Metric", value: float) -> list[tuple[bool, str]]:
    if rule.minimum is None:
        return []
    sign, word = (">=", "minimum") if metric.maximize else ("<=", "maximum")
    words = f"{metric.name} {figure(value)} {sign} {word} {rule.minimum:g}"
    return [(not metric.better(rule.minimum, value), words)]


def _used(metric: "Metric", evidence: Mapping[str, Any], compared: "Comparison", uses: int) -> list[tuple[bool, str]]:
    """Say how optimistic the best of many figures on one test part may be: the expected maximum of k equal models is
    at most sqrt(2 ln k) standard errors above the truth (Boucheron, Lugosi and Massart 2013, theorem 2.5)."""
    if uses < 2 or compared.standard_error is None:
        return []
    error = compared.standard_error / math.sqrt(2)  # of one of two figures that vary alike
    if evidence["value_interval"]:
        low, high = evidence["value_interval"]
        error = (high - low) / (2 * 1.96)
    most = error * math.sqrt(2 * math.log(uses))
    return [(True, f"challenger {uses} on this test part: its best {metric.name} is optimistic by up to about "
                   f"{most:.2g}")]  # fmt: skip


def _measured(evidence: Mapping[str, Any]) -> str:
    """Return the challenger's figure with what is known of its precision."""
    counted = f"n = {evidence['items']:,}"
    if evidence["units"] != evidence["items"]:
        counted += f" in {evidence['units']:,} groups"
    if evidence["value_interval"]:
        counted = f"{_between(evidence['value_interval'])}, {counted}"
    return f"{figure(evidence['value'])} ({counted})"


def _between(interval: Sequence[float]) -> str:
    return f"95 % {figure(interval[0])} to {figure(interval[1])}"


def _criterion(rule: PromotionRule, compared: "Comparison", evidence: Mapping[str, Any], uses: int) -> tuple[bool, str]:
    from podium.scoring import least_p

    limit, step = rule.threshold(uses), compared.standard_error
    least = "a standard error (not known here)" if step is None else f"a step of {figure(step)}"
    criterion = CRITERIA[rule.criterion]
    champion = figure(compared.second)
    if compared.second_interval:
        champion += f" ({_between(compared.second_interval)})"
    words = f"{compared.metric.name} {_measured(evidence)} against {champion}, {_test(compared)}"
    shown = 0 if compared.test == "McNemar" else least_p(compared.metric)
    if limit < shown and compared.p_value is not None and limit < compared.p_value <= rule.p:
        words += f"; draws show no p below {shown:.2g}: challenger {uses} needs another test part (split_seed)"
    wanted = criterion.wanted.format(step=least, p=limit)
    return criterion.holds(compared, limit), f"{wanted} the champion: {words}"


def _test(compared: "Comparison") -> str:
    sides = ""
    if compared.gained is not None:
        sides = f"right where the champion is wrong: {compared.gained}, wrong where it is right: {compared.lost}, "
    if compared.test == "McNemar" and compared.p_value is not None:
        return f"{sides}McNemar {p_words(compared.p_value)}"
    change = f"difference {compared.difference:+.4g}"
    if not math.isfinite(compared.difference):
        return f"{change}: the metric is {figure(compared.first)} here and {figure(compared.second)} there"
    if compared.interval is not None:
        low, high = compared.interval
        change += f", 95 % interval {low:+.4g} to {high:+.4g}"
    if compared.p_value is None:
        return f"{sides}{change}; {compared.why or 'too few items for a test'}"
    return f"{sides}{change}, permutation {p_words(compared.p_value)}"


def _drops(rule: PromotionRule, classes: Mapping[str, Mapping[str, Any]]) -> list[tuple[bool, str]]:
    if rule.max_class_drop is None:
        return []
    name, worst = min(classes.items(), key=lambda item: item[1]["change"])
    words = f"largest loss of a class: {worst['change']:+.4f} (class {name}), -{rule.max_class_drop:g} allowed"
    return [(-worst["change"] <= rule.max_class_drop, words)]

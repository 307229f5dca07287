"""Power of a promotion rule: how much better a model must truly be for the rule to see it.

For accuracy of single items the rule decides by two counts, the items that one model alone has
right, which are multinomial: the probability is exact. For any other metric the difference of two
versions is drawn again and again, with replacement, and moved to the true one in question.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from math import lgamma, log, log1p
from typing import Any

import numpy as np

from podium.data.schema import DatasetInfo
from podium.display.text import figure, plural
from podium.errors import InvalidInput
from podium.models.comparison import chosen_metric
from podium.models.criteria import CRITERIA
from podium.models.decision import Case, Earlier
from podium.models.document import command
from podium.models.model import Model
from podium.models.rule import PromotionRule, figures, shrunk_figures
from podium.models.shared_items import SharedItems, predictions
from podium.scoring.comparison import Comparison
from podium.scoring.families import Array, FunctionMetric, Metric, only_right
from podium.scoring.intervals import difference, resamples
from podium.scoring.metrics import METRICS
from podium.scoring.threshold import split

_ENOUGH = 0.8
"""Power of a difference that counts as one that can be shown."""

MOST = 20_000
"""Test items of data without a model up to which it is said what they can show."""

_USUAL = 0.9
"""Accuracy that is assumed where no model is there yet, unless the most frequent class has a
greater share."""

_DRAWS = 400
"""Draws of the test items, where the power is not exact."""

Power = Callable[[float], float]
"""Returns how often a challenger is promoted that is truly better by so much."""


@dataclass(frozen=True, kw_only=True)
class Detectable:
    """Power of a test part under a rule."""

    items: int
    rule: str
    metric: str
    least: float | None
    """Least true difference that is promoted in _ENOUGH of all cases; None if there is none."""

    power: tuple[tuple[float, float], ...]
    """True differences, 0 the first, and how often the rule promotes them."""

    exact: bool
    """Whether it is not by resampling."""

    given: str
    """What is known or assumed of the models."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {**vars(self), "power": [list(row) for row in self.power]}

    def __str__(self) -> str:
        subject = f"with {plural(self.items, 'test item')} the rule {self.rule}"
        if self.least is None:
            most, share = self.power[-1]
            return (
                f"{subject} cannot be relied on: it promotes even a model that is better by "
                f"{figure(most)} of {self.metric} in {share:.0%} of cases only ({self.given})"
            )
        return (
            f"{subject} can hardly show a gain in {self.metric} below {figure(self.least)}: of models "
            f"that are better by that much it promotes {_ENOUGH:.0%}, by half of it "
            f"{self.power[1][1]:.0%}, of equal ones {self.power[0][1]:.0%} ({self.given})"
        )


def _promotes(
    rule: PromotionRule, compared: Comparison, units: int, earlier: Earlier | None = None
) -> bool:
    """Tell whether a rule promotes the first of two models, as far as their figures decide.

    Args:
        units: Items, or groups of them, that count.
        earlier: What the history knows of the test part.
    """
    evidence = {
        "items": units,
        "units": units,
        "value": compared.first,
        "value_interval": None,
        "constant": None,
        **figures(compared),
        **shrunk_figures(compared, units, earlier or Earlier()),
    }
    nothing = np.empty(0)
    case = Case(
        metric=compared.metric,
        target=nothing,
        challenger=nothing,
        champion=nothing,
        groups=None,
        earlier=earlier or Earlier(),
        compared=compared,
        figures=evidence,
        column=lambda name: nothing,
    )
    words = _judged(rule).words
    return all(holds for name, value in words for holds, _ in CRITERIA[name].judge(value, case))


def _judged(rule: PromotionRule) -> PromotionRule:
    """Return the part of a rule that the figures of two models decide."""
    words = [word for word in rule.words if CRITERIA[word[0]].compares or word[0] == "minimum"]
    return replace(rule, words=tuple(words))


def _check_rule(rule: PromotionRule) -> None:
    """Refuse a rule that does not decide by the test part there is.

    Raises:
        InvalidInput: It does not.
    """
    if "fresh" in rule:
        raise InvalidInput(
            "fresh bets on items that are yet to come: their number is not known",
            "ask for the power of another rule, such as likely",
        )
    if rule.window:
        raise InvalidInput(
            f"window={rule.window} leaves out what is not known yet",
            "ask for the power of the rule without it",
        )


def of_data(info: DatasetInfo, rule: str, metric: str = "") -> Detectable | None:
    """Return what the test part of data can show of a first model by accuracy; None where that is
    not known: by another metric, of items that count in groups, or of more than MOST.

    Args:
        rule: In the notation of PromotionRule.parse.
        metric: In the notation of find_metric; empty for the default.
    """
    parsed, count = PromotionRule.parse(rule), info.parts["test"].count
    constant = max(info.parts["test"].class_counts, default=0) / max(1, count)
    name = split(parsed.metric or metric)[1] or "accuracy"
    supported = info.kind == "classification" and name == "accuracy" and not info.has_groups
    if not supported or not 0 < count <= MOST or "fresh" in parsed or parsed.window:
        return None
    accuracy = constant if _USUAL < constant < 1 else _USUAL
    return _of_accuracy(parsed, METRICS["accuracy"], count, accuracy=accuracy)


def of_model(
    model: Model, rule: str = "", metric: str = "", *, against: str = "", data: str | None = None
) -> Detectable:
    """Return what the test part of a model's champion can show.

    Args:
        rule: In the notation of PromotionRule.parse; empty for the default.
        metric: In the notation of find_metric; empty for the rule's, else the champion's.
        against: Version or alias that shows how much two models differ; the newest one with
            predictions of the same items if empty.
        data: URI of a dataset to run both on; None for their stored predictions.

    Raises:
        NotFound: The model has no champion, or there is no such version.
        InvalidInput: The rule does not decide by this test part, or another version is needed.
    """
    parsed, champion = PromotionRule.parse(rule), model.champion
    _check_rule(parsed)
    others = [model.version(against)] if against else [*reversed(model.versions)]
    if against and others[0].version == champion.version:
        problem = f"{against} of {model.name} is the champion itself, from which it does not differ"
        listed = command(f"models list {model.name}", model.storage)
        raise InvalidInput(problem, f"{listed} shows the other versions")
    seen = predictions([champion], data)
    chosen = chosen_metric(parsed.metric or metric, champion, seen.kind)
    facts = champion.facts.dataset
    records = model.comparisons(facts.test_part or facts.test_digest)
    earlier = Earlier.of(records, chosen.name, "", champion.version)
    for other in others:
        with nullcontext() if against else suppress(InvalidInput):
            if other.version != champion.version:
                both = predictions([champion, other], data)
                found = _of_versions(parsed, chosen, both, earlier)
                assumption = f"as {champion.version} and {other.version} differ"
                return replace(found, given=assumption)
    if not chosen.counts_hits or seen.groups is not None:
        problem = f"how much models differ in {chosen.name} follows from two of them, but {model.name} has one"
        raise InvalidInput(problem, "add a version with podium run or podium models upload --data")
    accuracy = chosen.value(seen.target, seen.of(chosen)[0])
    return _of_accuracy(parsed, chosen, len(seen.target), accuracy=accuracy, earlier=earlier)


def _of_accuracy(
    rule: PromotionRule,
    metric: Metric,
    items: int,
    *,
    accuracy: float = _USUAL,
    disagreement: float | None = None,
    earlier: Earlier | None = None,
) -> Detectable:
    """Return what single items can show by accuracy, exactly.

    Args:
        accuracy: The champion's.
        disagreement: Share of the items that only one of the models has right; None for models
            that err independently, which is the most that is usual.
        earlier: What the history knows of the test part.
    """
    least_gain = _least_gain(rule, metric, items, accuracy, earlier)

    def power(better: float) -> float:
        gain, loss = (1 - accuracy) * (accuracy + better), accuracy * (1 - accuracy - better)
        if disagreement is not None:
            differ = max(disagreement, better)
            gain, loss = (differ + better) / 2, (differ - better) / 2
        return _sum_of_promoted(items, gain, loss, least_gain)

    assumption = f"from an accuracy of {figure(accuracy)}, models that err independently"
    return _detectable(
        rule, metric, items, power, most=1 - accuracy, exact=True, assumption=assumption
    )


def _of_versions(
    rule: PromotionRule, metric: Metric, seen: SharedItems, earlier: Earlier | None = None
) -> Detectable:
    """Return what the test items of two versions can show, the champion first: exactly for
    accuracy of single items, else by drawing the items.

    Raises:
        InvalidInput: The items show no spread of the difference.
    """
    champion, other = seen.of(metric)
    exact, drawn = metric.counts_hits and seen.groups is None, list[tuple[float, float | None]]()
    if exact and (changed := np.logical_or(*only_right(seen.target, other, champion))).any():
        return _of_accuracy(
            rule,
            metric,
            len(seen.target),
            accuracy=metric.value(seen.target, champion),
            disagreement=float(changed.mean()),
            earlier=earlier,
        )
    if not exact:
        drawn = list(_drawn(metric, seen, champion, other))
    if not drawn:
        problem = f"the difference of {metric.name} between the two versions has no known error"
        raise InvalidInput(problem, "more test items, or other versions")
    units = len(seen.target) if seen.groups is None else int(seen.groups.max()) + 1
    value, sign = metric.value(seen.target, champion), 1 if metric.maximize else -1
    mean = float(np.mean([change for change, _ in drawn]))

    spread = float(np.std([change for change, _ in drawn]))

    def power(better: float) -> float:
        cases = (
            _made_up(metric, value, change - mean + sign * better, error or spread)
            for change, error in drawn
        )
        return float(np.mean([_promotes(rule, case, units, earlier) for case in cases]))

    assumption = f"as the two models differ, by {_DRAWS} draws of the test items"
    found = _detectable(
        rule, metric, units, power, most=20 * spread, exact=False, assumption=assumption
    )
    return replace(found, items=len(seen.target))


def _detectable(
    rule: PromotionRule,
    metric: Metric,
    items: int,
    power: Power,
    *,
    most: float,
    exact: bool,
    assumption: str,
) -> Detectable:
    low, high = 0.0, most
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= _ENOUGH else (middle, high)
    least = high if power(most) >= _ENOUGH else None
    shown = [0.0, (least or most) / 2, least or most]
    return Detectable(
        items=items,
        rule=str(_judged(rule)),
        metric=metric.name,
        least=least,
        power=tuple((better, power(better)) for better in shown),
        exact=exact,
        given=assumption,
    )


def _made_up(metric: Metric, value: float, change: float, error: float | None) -> Comparison:
    return Comparison(
        metric=metric,
        first=value + change,
        second=value,
        interval=None,
        standard_error=error,
        first_interval=None,
        second_interval=None,
        p_value=None,
        test="paired permutation",
    )


def _least_gain(
    rule: PromotionRule, metric: Metric, items: int, accuracy: float, earlier: Earlier | None
) -> Callable[[int], int]:
    """Return a function of the items lost: how many must be gained for a promotion."""

    def holds(gained: int, lost: int) -> bool:
        case = _made_up(metric, accuracy, (gained - lost) / items, None)
        case = replace(case, test="McNemar", gained=gained, lost=lost)
        return _promotes(rule, case, items, earlier)

    gains: dict[int, int] = {}

    def least(lost: int) -> int:
        if lost not in gains:
            gained = gains.get(lost - 1, -1)
            if gained < 0:
                gained = bisect_left(range(items + 1), True, key=lambda count: holds(count, lost))
            while gained <= items and not holds(gained, lost):
                gained += 1
            gains[lost] = gained
        return gains[lost]

    return least


def _sum_of_promoted(
    items: int, gain: float, loss: float, least_gain: Callable[[int], int]
) -> float:
    """Return the probability of a promotion; gained and lost items are multinomial."""
    total, rate = 0.0, min(1.0, gain / (1 - loss)) if loss < 1 else 0.0
    for lost, share in zip(*_likely_counts(items, loss), strict=True):
        counts, shares = _likely_counts(items - int(lost), rate)
        total += float(share * shares[counts >= least_gain(int(lost))].sum())
    return total


def _likely_counts(items: int, rate: float) -> tuple[Array, Array]:
    """Return the counts of a binomial distribution that are not rarer than one in a million, and
    how likely each is."""
    if not 0 < rate < 1:
        return np.array([0 if rate <= 0 else items]), np.ones(1)
    spread = 5 * (items * rate * (1 - rate)) ** 0.5 + 5
    first, last = max(0, int(items * rate - spread)), min(items, int(items * rate + spread))
    counts = np.arange(first, last + 1)
    first_log = lgamma(items + 1) - lgamma(first + 1) - lgamma(items - first + 1)
    ratios = (items - counts[:-1]) / counts[1:]
    logs = first_log + np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    return counts, np.exp(logs + counts * log(rate) + (items - counts) * log1p(-rate))


def _drawn(
    metric: Metric, seen: SharedItems, champion: Array, other: Array
) -> Iterator[tuple[float, float | None]]:
    """Yield the difference of a metric, other minus champion, and its standard error, on draws of
    the items, or their groups, with replacement; of a function of one's own without the error,
    which would take 2,000 calls each."""
    for at, numbers in resamples(len(seen.target), seen.groups, _DRAWS):
        groups = None if seen.groups is None else numbers
        error = None
        if not isinstance(metric, FunctionMetric):
            found = difference(metric, seen.target[at], other[at], champion[at], groups)
            if found.standard_error is None:
                continue
            error = found.standard_error
        first, second = (metric.value(seen.target[at], of[at]) for of in (other, champion))
        yield first - second, error

"""The rule of schedules: a model that is really better still wins on a late night."""

import numpy as np
import pytest
from scipy import stats

from podium.models import PromotionRule, Record, decide
from podium.models.decision import Earlier
from podium.scoring import METRICS, find_metric, paired_permutation
from podium.scoring.comparison import mcnemar
from podium.scoring.families import Array, Metric
from podium.scoring.permutation import _tail

pytestmark = pytest.mark.whole

RULE = PromotionRule.parse("likely=.97")


def mean_error(target: Array, predictions: Array) -> float:
    return float(np.abs(target - predictions).mean())


OWN = find_metric(f"min:{__name__}:mean_error")


def models(metric: Metric, items: int) -> tuple[Array, Array, Array]:
    """Return a target, a good model and a poor one."""
    random = np.random.default_rng(3)
    if metric.kind != "classification":
        target = random.normal(size=items)
        return (
            target,
            target + random.normal(size=items) * 0.3,
            target + random.normal(size=items) * 0.8,
        )
    target = np.arange(items) % 3
    sure, unsure = (np.eye(3)[target] * much + random.random((items, 3)) for much in (1.2, 0.3))
    return target, sure / sure.sum(1, keepdims=True), unsure / unsure.sum(1, keepdims=True)


def late(metric: Metric, target: Array, model: Array, nights: int) -> Earlier:
    """Return what is known of a test part after so many nights of models like one."""
    value = metric.value(target, model)
    return Earlier(challengers=nights, figures=(value,) * (nights - 2))


@pytest.mark.parametrize("metric", [*METRICS.values(), OWN], ids=[*METRICS, "own"])
def test_a_much_better_challenger_wins_on_night_25(metric: Metric) -> None:
    target, good, poor = models(metric, 300)
    earlier = late(metric, target, poor, 25)
    won = decide(RULE, metric, target, good, poor, earlier=earlier)
    assert won.promote, won
    assert not decide(RULE, metric, target, good, good.copy(), earlier=earlier).promote


def test_groups_are_judged_on_late_nights_too() -> None:
    metric = METRICS["accuracy"]
    target, good, poor = models(metric, 900)
    earlier = late(metric, target, poor, 200)
    assert decide(RULE, metric, target, good, poor, np.arange(900) // 3, earlier).promote


def accuracies(random: np.random.Generator, models: int) -> Array:
    """Return which of 1,000 items some equal models have wrong, as classes."""
    return (random.random((models, 1000)) < 0.1).astype(int)


@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_sixty_nights_without_a_change_make_nobody_sure(noise: float) -> None:
    random, target, metric = np.random.default_rng(0), np.zeros(1000, int), METRICS["accuracy"]
    champion, *others = accuracies(random, 41)
    value = metric.value(target, champion)
    calm = Earlier(challengers=61, figures=(value,) * 60, noises=(noise,) * 60)
    decisions = [
        decide(PromotionRule(), metric, target, other, champion, earlier=calm) for other in others
    ]
    first = [decide(PromotionRule(), metric, target, other, champion) for other in others]
    assert sum(each.promote for each in decisions) <= sum(each.promote for each in first)


def test_the_champion_once_more_is_no_measurement() -> None:
    again = {
        "metric": {"name": "accuracy"},
        "champion": "a",
        "value": 0.9,
        "champion_value": 0.9,
        "noise": 0.0,
    }
    other = {**again, "value": 0.88, "noise": 1e-4}
    records = [
        Record.new("refusal", "m", name, evidence=it) for name, it in (("b", again), ("c", other))
    ]
    earlier = Earlier.of(records, "accuracy", "d", "a")
    assert (earlier.challengers, earlier.figures, earlier.noises) == (3, (0.88,), (1e-4,))


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_is_never_below_the_exact_p_value(seed: int) -> None:
    parts = np.random.default_rng(seed).exponential(size=14) ** 2
    signs = 1 - 2 * (np.arange(2**14)[:, None] >> np.arange(14) & 1)
    sums = np.sort(np.abs(signs @ parts))
    for distance in sums[[0, 4000, 12000, 16000, -20, -1]]:
        exact = (sums >= distance * (1 - 1e-9)).mean()
        assert exact <= _tail(distance, parts) <= 1


def test_more_draws_are_made_only_where_they_decide() -> None:
    calls = 0

    def counted(target: Array, predictions: Array) -> float:
        nonlocal calls
        calls += 1
        return mean_error(target, predictions)

    metric, (target, good, _) = find_metric("min:own:counted"), models(OWN, 100)
    object.__setattr__(metric, "value", counted)
    other = target + np.random.default_rng(9).normal(size=100) * 0.3
    paired_permutation(metric, target, good, other, limit=1e-5)
    assert calls <= 2 * 2000 + 2


def test_half_a_million_changed_items_have_scipys_p_value() -> None:
    expected = stats.binomtest(250_900, 500_000, 0.5).pvalue
    assert mcnemar(250_900, 249_100) == pytest.approx(expected, rel=1e-6)


def test_equal_predictions_are_no_certainty() -> None:
    target, good, _ = models(METRICS["accuracy"], 300)
    interval = decide(PromotionRule(), METRICS["accuracy"], target, good, good.copy()).figures[
        "interval"
    ]
    assert interval[0] < 0 < interval[1]
    numbers = models(METRICS["mae"], 300)
    assert (
        decide(PromotionRule(), METRICS["mae"], *numbers[:2], numbers[1].copy()).figures["interval"]
        is None
    )

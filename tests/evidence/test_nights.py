"""The rule of schedules: p is shared among all nights, and a model that is really better still wins on a late one."""

import numpy as np
import pytest
from scipy import stats

from podium.models.rule import PromotionRule, decide
from podium.scoring import METRICS, find_metric, paired_permutation
from podium.scoring.comparison import mcnemar
from podium.scoring.families import Array, Metric
from podium.scoring.permutation import _tail

RULE = PromotionRule.parse("significant,spend=nights")


def mean_error(target: Array, predictions: Array) -> float:
    return float(np.abs(target - predictions).mean())


OWN = find_metric(f"min:{__name__}:mean_error")


def models(metric: Metric, items: int) -> tuple[Array, Array, Array]:
    """Return a target, a good model and a poor one."""
    random = np.random.default_rng(3)
    if metric.kind != "classification":
        target = random.normal(size=items)
        return target, target + random.normal(size=items) * 0.3, target + random.normal(size=items) * 0.8
    target = np.arange(items) % 3
    sure, unsure = (np.eye(3)[target] * much + random.random((items, 3)) for much in (1.2, 0.3))
    return target, sure / sure.sum(1, keepdims=True), unsure / unsure.sum(1, keepdims=True)


@pytest.mark.parametrize("metric", [*METRICS.values(), OWN], ids=[*METRICS, "own"])
def test_a_much_better_challenger_wins_on_night_25(metric: Metric) -> None:
    target, good, poor = models(metric, 300)
    won = decide(RULE, metric, target, good, poor, uses=25)
    assert won.promote, won
    assert not decide(RULE, metric, target, good, good.copy(), uses=25).promote


@pytest.mark.parametrize("name", ["rmse", "mae", "r2", "log_loss", "roc_auc"])
def test_sums_of_items_win_on_any_night(name: str) -> None:
    target, good, poor = models(METRICS[name], 1000)
    assert decide(RULE, METRICS[name], target, good, poor, uses=5000).promote


def test_groups_are_judged_on_late_nights_too() -> None:
    target, good, poor = models(METRICS["accuracy"], 900)
    assert decide(RULE, METRICS["accuracy"], target, good, poor, np.arange(900) // 3, uses=1000).promote


def test_what_draws_cannot_show_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.scoring.permutation.MOST_CALLS", 3000)
    target, good, poor = models(OWN, 300)
    refused = decide(RULE, OWN, target, good, poor, uses=500)
    assert not refused.promote
    assert "draws show no p below 0.00033: challenger 500 needs another test part (split_seed)" in refused.reasons[0]


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
    interval = decide(PromotionRule(), METRICS["accuracy"], target, good, good.copy()).figures["interval"]
    assert interval[0] < 0 < interval[1]
    numbers = models(METRICS["mae"], 300)
    assert decide(PromotionRule(), METRICS["mae"], *numbers[:2], numbers[1].copy()).figures["interval"] is None

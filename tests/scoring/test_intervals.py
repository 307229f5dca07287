"""Intervals against the delta method of textbooks, against scipy, and how often they hold the truth."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from podium.models import PromotionRule, decide
from podium.scoring import compare, intervals
from podium.scoring.intervals import difference, figure_interval
from podium.scoring.metrics import METRICS, Metric, find_metric

Array = np.ndarray[Any, Any]


def example(metric: Metric, items: int, seed: int, gain: float = 0.0) -> tuple[Array, Array, Array]:
    """Return a target and the predictions of two models, the first better by a gain."""
    random = np.random.default_rng(seed)
    if metric.kind == "regression":
        target = random.normal(size=items)
        noise = random.normal(size=(2, items)) * [[0.5 - gain], [0.5]]
        return target, target + noise[0], target + noise[1]
    target = random.choice(3, p=[0.5, 0.3, 0.2], size=items)
    logits = random.normal(size=(2, items, 3))
    logits[:, np.arange(items), target] += [[1 + gain], [1]]
    rows = np.exp(logits)
    rows /= rows.sum(2, keepdims=True)
    return target, rows[0], rows[1]


METRIC = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


@METRIC
def test_standard_errors_are_those_of_a_plain_bootstrap(metric: Metric) -> None:
    target, first, second = example(metric, 400, seed=1)
    random, drawn = np.random.default_rng(2), []
    for _ in range(600):
        at = random.integers(len(target), size=len(target))
        drawn.append(metric.value(target[at], first[at]) - metric.value(target[at], second[at]))
    error = difference(metric, target, first, second, None).standard_error
    assert error == pytest.approx(float(np.std(drawn)), rel=0.12)


def test_symmetric_losses_have_the_interval_of_t() -> None:
    errors = np.concatenate([np.linspace(1, 3, 40), [2.0] * 40])
    target = np.zeros(80)
    low, high = figure_interval(METRICS["mae"], target, errors) or (0, 0)
    expected = stats.t.interval(0.95, 79, errors.mean(), stats.sem(errors))
    assert low == pytest.approx(expected[0], abs=2e-3)
    assert expected[1] < high < expected[1] + 0.1  # an item worse than the worst may be missing


@pytest.mark.parametrize("free", [5, 9, 29, 999])
def test_t_limits_are_those_of_scipy(free: int) -> None:
    limit = intervals._t_limit(free)
    assert limit == pytest.approx(stats.t.ppf(0.975, free), rel=4e-3)
    assert intervals._t_tail(limit, free) == pytest.approx(0.05, abs=1e-6)


def heavy(items: int, random: np.random.Generator) -> Array:
    return random.standard_t(3, size=items)


def normal(items: int, random: np.random.Generator) -> Array:
    return random.normal(size=items)


@pytest.mark.parametrize("items", [30, 100])
@pytest.mark.parametrize(("draw", "truth"), [(normal, 1.0), (heavy, 3.0)])
def test_the_interval_of_rmse_holds_the_truth(draw: Any, truth: float, items: int) -> None:
    random, held, experiments = np.random.default_rng(items), 0, 400
    for _ in range(experiments):
        interval = figure_interval(METRICS["rmse"], np.zeros(items), draw(items, random))
        assert interval
        held += interval[0] ** 2 <= truth <= interval[1] ** 2
    assert (
        held / experiments >= 0.91
    )  # binomial(400, .93) is below .91 once in 20 times; the seeds are fixed


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "f1_macro"])
def test_figures_of_ten_groups_hold_the_truth(name: str) -> None:
    random, held, experiments = np.random.default_rng(5), 0, 300
    groups, target = np.arange(200) // 20, np.tile([0, 1], 100)
    metric = METRICS[name]
    for _ in range(experiments):
        right = random.random(200) < (0.8 + 0.15 * random.choice([-1, 1], size=10))[groups]
        interval = figure_interval(metric, target, np.where(right, target, 1 - target), groups)
        assert interval
        held += interval[0] <= 0.8 <= interval[1]
    assert held / experiments >= 0.91


@pytest.mark.parametrize("share", [0.3, 0.5])
@pytest.mark.parametrize("name", ["accuracy", "mae"])
def test_intervals_with_a_large_group_hold_the_truth(name: str, share: float) -> None:
    """One customer has a third or half of the items, and those of a customer err alike."""
    random, held, experiments = np.random.default_rng(8), np.zeros(2), 300
    metric, large = METRICS[name], int(share * 400)
    groups = np.concatenate([np.zeros(large, int), 1 + np.arange(400 - large) // 10])
    for _ in range(experiments):
        level = 0.8 + 0.15 * random.choice([-1, 1], size=(2, int(groups.max()) + 1))[:, groups]
        wrong = random.random((2, 400)) >= level
        target = np.zeros(400, int if name == "accuracy" else float)
        first, second = (of.astype(target.dtype) for of in wrong)
        truth = 0.8 if name == "accuracy" else 0.2
        own = figure_interval(metric, target, first, groups)
        change = difference(metric, target, first, second, groups).interval
        assert own
        assert change
        held += own[0] <= truth <= own[1], change[0] <= 0 <= change[1]
    assert (held / experiments >= 0.91).all()


@METRIC
def test_equal_models_have_no_interval_of_their_difference(metric: Metric) -> None:
    target, first, _ = example(metric, 80, seed=5)
    interval = compare(metric, target, first, first.copy()).interval
    assert interval is None or (metric.counts_hits and interval[0] == -interval[1])


@METRIC
def test_a_clear_difference_excludes_zero_either_way(metric: Metric) -> None:
    target, first, second = example(
        metric, 250, 6, gain=0.4 if metric.kind == "regression" else 3.0
    )
    there = difference(metric, target, first, second, None).interval
    back = difference(metric, target, second, first, None).interval
    assert there
    assert back
    assert there[0] * there[1] > 0
    np.testing.assert_allclose(there, (-back[1], -back[0]), atol=1e-9)


@METRIC
def test_groups_widen_the_interval(metric: Metric) -> None:
    """Twenty copies of each item are no new information: the interval is that of the single items."""
    target, first, second = example(metric, 200, seed=11, gain=0.1)
    alone = difference(metric, target, first, second, None).standard_error
    groups = np.repeat(np.arange(200), 20)
    copies = [np.repeat(array, 20, axis=0) for array in (target, first, second)]
    together = difference(metric, copies[0], copies[1], copies[2], groups).standard_error
    assert alone
    assert together == pytest.approx(alone, rel=0.1)


def test_the_interval_of_hits_mirrors_that_of_misses() -> None:
    """Limits on the logit scale count at both ends, each where it is wider than Hall's."""
    groups = np.repeat(np.arange(12), 10)
    wrong = np.concatenate([np.arange(10) < count for count in (0, 1, 2) * 4]).astype(int)
    hits, misses = (
        figure_interval(METRICS["accuracy"], np.full(120, right), wrong, groups) for right in (0, 1)
    )
    assert hits
    assert misses
    assert misses == pytest.approx((1 - hits[1], 1 - hits[0]))


@pytest.mark.parametrize("items", [20, 30, 100, 1000])
def test_accuracies_near_one_lie_in_their_intervals(items: int) -> None:
    target, wrong = np.zeros(items, int), np.arange(items + 1)
    each = [
        figure_interval(METRICS["accuracy"], target, (np.arange(items) < count).astype(int))
        for count in wrong
    ]
    low, high = np.array(each, float).T
    for truth in 1 - np.logspace(-4, -0.3, 200):
        held = wrong[(low <= truth) & (truth <= high)]
        assert stats.binom.pmf(held, items, 1 - truth).sum() >= 0.925, truth


@pytest.mark.parametrize("name", ["balanced_accuracy", "f1_macro", "roc_auc"])
def test_a_figure_without_a_class_has_no_interval(name: str) -> None:
    target, first, _ = example(METRICS[name], 200, seed=4)
    assert figure_interval(METRICS[name], target, first)
    rest = target != 2
    assert figure_interval(METRICS[name], target[rest], first[rest]) is None
    assert figure_interval(METRICS["accuracy"], target[rest], first[rest])


def test_several_outputs_have_one_interval() -> None:
    random = np.random.default_rng(7)
    target = random.normal(size=(80, 3))
    first = target + random.normal(size=(80, 3)) * 0.3
    for name in ("rmse", "mae", "r2"):
        low, high = figure_interval(METRICS[name], target, first) or (0, 0)
        assert low < METRICS[name].value(target, first) < high


def median_miss(target: Array, given: Array) -> float:
    return float(np.median(np.abs(target - given)))


def test_a_function_of_ones_own_has_expanded_percentiles() -> None:
    metric = find_metric(f"min:{__name__}:median_miss")
    target, first, second = example(METRICS["mae"], 90, seed=8, gain=0.2)
    low, high = figure_interval(metric, target, first) or (0, 0)
    random = np.random.default_rng(1)
    drawn = [median_miss(target[at], first[at]) for at in random.integers(90, size=(2000, 90))]
    np.testing.assert_allclose([low, high], np.quantile(drawn, [0.023, 0.977]), atol=0.03)
    assert difference(metric, target, first, second, None).standard_error


def unequal(items: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Errors of equal mean square; one model has 2 % large ones."""
    scale = np.where(random.random(items) < 0.02, 6.14, 0.5) / np.sqrt(0.98 * 0.25 + 0.02 * 6.14**2)
    return random.normal(size=items), random.normal(size=items) * scale


def test_rare_large_errors_do_not_tell_equal_models_apart() -> None:
    random, rejected = np.random.default_rng(3), 0
    for _ in range(400):
        first, second = unequal(1000, random)
        rejected += difference(METRICS["rmse"], np.zeros(1000), first, second, None).p_value <= 0.05
    assert rejected <= 30  # .06 of 400, and 1.2 standard errors


def test_p_of_few_items_says_what_would_undo_it() -> None:
    first, second = np.random.default_rng(1).normal(size=(2, 100))
    few = compare(METRICS["rmse"], np.zeros(100), first, second * 2)
    size = np.sqrt((np.square(second * 2) - np.square(first)).mean() * 100 / 3)
    assert few.doubt == (
        f"100 items are few, and 3 that may be missing, with rmse {size:.3g}, would undo it"
    )
    assert few.p_value is not None
    change = difference(METRICS["rmse"], np.zeros(100), first, second * 2, None)
    assert few.p_value >= change.p_value


def test_no_p_of_rare_large_errors_is_told_as_reliable() -> None:
    random, told, doubted = np.random.default_rng(4), [], 0
    for _ in range(60):
        for draw in (unequal, lambda items, random: random.normal(size=(2, items))):
            compared = compare(METRICS["rmse"], np.zeros(100), *draw(100, random))
            told += [compared.p_value <= 0.05] if not compared.doubt else []
            doubted += draw is not unequal and compared.doubt.endswith("decide")
    assert not any(told)
    assert doubted == 0, "of normal errors nothing is said unless they tell the models apart"
    first, second = np.random.default_rng(1).normal(size=(2, 100))
    second[7] = 30
    assert compare(METRICS["rmse"], np.zeros(100), first, second).doubt.endswith(
        "a few of them decide"
    )
    assert not compare(METRICS["rmse"], np.zeros(1000), *random.normal(size=(2, 1000))).doubt


def test_a_p_value_below_all_draws_is_a_bound() -> None:
    first, second = np.random.default_rng(1).normal(size=(2, 400))
    clear = compare(
        METRICS["balanced_accuracy"], np.arange(400) % 2, np.arange(400) % 2, np.zeros(400, int)
    )
    assert clear.p_is_bound
    assert not compare(METRICS["mae"], np.zeros(400), first, second).p_is_bound


def test_areas_that_cannot_be_told_from_one_have_no_interval() -> None:
    target = np.repeat([0, 1], 20)
    scores = np.stack([1 - target, target], axis=1).astype(float)
    assert figure_interval(METRICS["roc_auc"], target, scores) is None


def test_a_row_of_one_class_has_no_interval_of_areas() -> None:
    chances = np.linspace(0, 1, 40).reshape(20, 2)
    assert figure_interval(METRICS["roc_auc"], np.repeat([0, 1], [19, 1]), chances) is None


@pytest.mark.parametrize("items", [50, 2000])
def test_one_item_that_makes_a_difference_is_chance(items: int) -> None:
    errors = np.full(items, 0.1)
    first, second = errors.copy(), errors / 2
    first[7], second[7] = 900, 1000  # the first model is worse on all others
    change = difference(METRICS["rmse"], np.zeros(items), first, second, None)
    assert change.interval
    assert change.interval[0] < 0 < change.interval[1]
    assert change.p_value > 0.3
    assert not decide(PromotionRule(), METRICS["rmse"], np.zeros(items), first, second).promote

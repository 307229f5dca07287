"""The bootstrap against scipy's, against a plain loop, and on data whose answer is known."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from podium.scoring import bootstrap
from podium.scoring.bootstrap import differences, paired_bootstrap
from podium.scoring.metrics import METRICS, Metric, find_metric

Array = np.ndarray[Any, Any]


def example(metric: Metric, items: int, seed: int, gain: float = 0.0) -> tuple[Array, Array, Array]:
    """Return a target and the predictions of two models, the first better by a gain."""
    random = np.random.default_rng(seed)
    if metric.kind == "regression":
        target = random.normal(size=items)
        noise = random.normal(size=(2, items)) * [[0.5 - gain], [0.5]]
        return target, target + noise[0], target + noise[1]
    target = random.choice(4, p=[0.4, 0.3, 0.2, 0.1], size=items)
    logits = random.normal(size=(2, items, 4))
    logits[:, np.arange(items), target] += [[1 + gain], [1]]
    rows = np.exp(logits)
    rows /= rows.sum(2, keepdims=True)
    return target, rows[0], rows[1]


def looped(metric: Metric, target: Array, first: Array, second: Array, resamples: int) -> Array:
    """Return what a reader of a textbook would compute."""
    random = np.random.default_rng(99)
    drawn = []
    for _ in range(resamples):
        at = random.integers(len(target), size=len(target))
        drawn.append(metric.value(target[at], first[at]) - metric.value(target[at], second[at]))
    return np.array(drawn)


def assert_same_distribution(drawn: Array, expected: Array) -> None:
    """Compare the shape, and the spread, which the interval follows from."""
    assert stats.ks_2samp(drawn, expected).pvalue > 1e-4
    assert np.isclose(drawn.std(), expected.std(), rtol=0.1)


METRIC = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


@METRIC
def test_draws_are_those_of_a_plain_loop(metric: Metric) -> None:
    data = example(metric, 120, seed=1, gain=0.2)
    drawn = differences(metric, *data, resamples=2000)
    assert np.isfinite(drawn).all()
    assert_same_distribution(drawn, looped(metric, *data, 1500))


@METRIC
def test_shortcuts_for_many_items_keep_the_distribution(metric: Metric, monkeypatch: pytest.MonkeyPatch) -> None:
    data = example(metric, 1200, seed=2, gain=0.05)
    exact = differences(metric, *data, resamples=2000)
    monkeypatch.setattr(bootstrap, "BLOCKS", 600)
    monkeypatch.setattr(bootstrap, "EXACT_RANKS", 0)
    shortened = differences(metric, *data, resamples=2000, seed=1)
    assert_same_distribution(shortened, exact)


@pytest.mark.parametrize("name", ["rmse", "log_loss"])
def test_the_interval_is_that_of_scipy(name: str) -> None:
    metric = METRICS[name]
    target, first, second = example(metric, 150, seed=3, gain=0.1)

    def difference(at: Array) -> float:
        return metric.value(target[at], first[at]) - metric.value(target[at], second[at])

    expected = stats.bootstrap(
        (np.arange(150),), difference, method="percentile", n_resamples=4000, vectorized=False,
        rng=np.random.default_rng(5),
    )  # fmt: skip
    given = paired_bootstrap(metric, target, first, second)
    assert given
    limits = (expected.confidence_interval.low, expected.confidence_interval.high)
    np.testing.assert_allclose(given, limits, atol=0.15 * expected.standard_error)


@METRIC
def test_the_interval_covers_the_truth_as_often_as_stated(metric: Metric) -> None:
    """Two equally good models: the true difference is 0, and 5 % of all intervals may miss it."""
    experiments = 120
    missed = 0
    for seed in range(experiments):
        drawn = paired_bootstrap(metric, *example(metric, 200, seed=1000 + seed), resamples=300)
        assert drawn
        missed += not drawn[0] <= 0 <= drawn[1]
    assert 1 <= missed <= 14  # binomial(120, 0.05) is outside once in 200 times; the seeds are fixed


@METRIC
def test_the_same_input_gives_the_same_result(metric: Metric) -> None:
    data = example(metric, 60, seed=4, gain=0.3)
    assert paired_bootstrap(metric, *data) == paired_bootstrap(metric, *data)


@METRIC
def test_equal_models_have_no_interval_but_zero(metric: Metric) -> None:
    target, first, _ = example(metric, 80, seed=5)
    assert paired_bootstrap(metric, target, first, first.copy()) == (0.0, 0.0)


@METRIC
def test_a_clear_difference_excludes_zero_either_way(metric: Metric) -> None:
    target, first, second = example(metric, 250, seed=6, gain=0.4 if metric.kind == "regression" else 3.0)
    there, back = paired_bootstrap(metric, target, first, second), paired_bootstrap(metric, target, second, first)
    assert there
    assert back
    assert np.sign(there).tolist() == (-np.sign(back)).tolist()
    assert there[0] * there[1] > 0


@METRIC
def test_groups_widen_the_interval(metric: Metric) -> None:
    """Twenty copies of each item are no new information: the interval is that of the single items."""
    target, first, second = example(metric, 60, seed=11, gain=0.1)
    alone = paired_bootstrap(metric, target, first, second)
    groups = np.repeat(np.arange(60), 20)
    copies = [np.repeat(array, 20, axis=0) for array in (target, first, second)]
    together = paired_bootstrap(metric, *copies, groups, resamples=2000)
    apart = paired_bootstrap(metric, *copies, resamples=2000)
    assert alone
    assert together
    assert apart
    np.testing.assert_allclose(np.ptp(together), np.ptp(alone), rtol=0.15)
    assert np.ptp(apart) < np.ptp(alone) / 3


def test_many_outputs_are_resampled_together() -> None:
    random = np.random.default_rng(7)
    target = random.normal(size=(80, 3))
    first, second = target + random.normal(size=(2, 80, 3)) * 0.3
    for name in ("rmse", "mae", "r2"):
        drawn = differences(METRICS[name], target, first, second, resamples=3000)
        assert_same_distribution(drawn, looped(METRICS[name], target, first, second, 1500))


def median_miss(target: Array, given: Array) -> float:
    return float(np.median(np.abs(target - given)))


def test_a_function_of_ones_own_is_called_for_every_draw() -> None:
    metric = find_metric(f"min:{__name__}:median_miss")
    data = example(METRICS["mae"], 90, seed=8, gain=0.2)
    assert_same_distribution(differences(metric, *data, resamples=1000), looped(metric, *data, 1000))


def test_a_metric_defined_for_hardly_any_draw_has_no_interval() -> None:
    target = np.array([0] * 9 + [1])
    given = np.linspace(0, 1, 20).reshape(10, 2)
    assert paired_bootstrap(METRICS["roc_auc"], target[:9], given[:9], given[:9]) is None
    assert paired_bootstrap(METRICS["roc_auc"], target, given, given) == (0.0, 0.0)

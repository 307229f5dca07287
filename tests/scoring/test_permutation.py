"""The permutation test against scipy's, and the rate at which equal models are told apart."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from podium.scoring import METRICS, compare, find_metric, paired_permutation, permutation
from podium.scoring.families import Metric

Array = np.ndarray[Any, Any]

METRIC = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


def equal_models(
    metric: Metric, items: int, random: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Draw a target and two models of equal quality."""
    if metric.kind == "regression":
        target = random.normal(size=items)
        return target, target + random.normal(size=items), target + random.normal(size=items)
    target = np.arange(items) % 2
    chances = 1 / (1 + np.exp(-random.normal(target - 0.5, size=(2, items))))
    first, second = np.stack([1 - chances, chances], axis=2)
    return target, first, second


def rejected(metric: Metric, items: int, experiments: int = 200) -> float:
    random = np.random.default_rng(items)
    values = [
        paired_permutation(metric, *equal_models(metric, items, random), draws=400)[0]
        for _ in range(experiments)
    ]
    return float(np.mean(np.array(values) <= 0.05))


@METRIC
@pytest.mark.parametrize("items", [2, 4, 10, 60])
def test_equal_models_differ_in_one_of_twenty_cases(metric: Metric, items: int) -> None:
    assert (
        rejected(metric, items) <= 0.1
    )  # binomial(200, 0.05) is above 0.1 once in 700 times; the seeds are fixed


@pytest.mark.parametrize("name", ["mae", "rmse", "log_loss"])
@pytest.mark.parametrize("items", [1, 3])
def test_a_handful_of_items_proves_nothing(name: str, items: int) -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        p_value = paired_permutation(METRICS[name], *equal_models(METRICS[name], items, random))[0]
        assert p_value >= 2.0 ** (1 - items)


@pytest.mark.parametrize("items", [9, 40])
def test_p_is_that_of_scipys_permutation_test(items: int) -> None:
    target, first, second = equal_models(METRICS["mae"], items, np.random.default_rng(3))
    errors = np.abs(target - first), np.abs(target - second)
    expected = stats.permutation_test(errors, lambda ours, other: np.mean(ours - other), permutation_type="samples",
                                      n_resamples=20_000, rng=np.random.default_rng(1))  # fmt: skip
    given = paired_permutation(METRICS["mae"], target, first, second)[0]
    assert given == pytest.approx(expected.pvalue, abs=1e-12 if items < 12 else 0.015)


@METRIC
def test_a_clear_difference_is_significant(metric: Metric) -> None:
    target, first, _ = equal_models(metric, 200, np.random.default_rng(5))
    good = (
        target + (first - target) / 9
        if metric.kind == "regression"
        else np.eye(2)[target] * 0.9 + first * 0.1
    )
    assert paired_permutation(metric, target, good, first)[0] <= 0.001
    assert paired_permutation(metric, target, first, first.copy())[0] == 1


@pytest.mark.parametrize("seed", range(8))
def test_a_perfect_model_is_compared_without_a_warning(seed: int) -> None:
    target, second = np.random.default_rng(seed).normal(size=(2, 7))
    first, other = target.copy(), target + second
    assert paired_permutation(METRICS["rmse"], target, first, other)[0] == 2 / 2**7


@pytest.mark.parametrize("name", ["accuracy", "rmse", "log_loss", "f1_macro"])
def test_items_of_a_group_count_together(name: str) -> None:
    """60 groups of 20 items whose errors are alike: counted one by one, most pairs of equal models differ."""
    metric, random, groups = METRICS[name], np.random.default_rng(7), np.repeat(np.arange(60), 20)
    together = apart = 0
    for _ in range(100):
        data = [np.repeat(array, 20, axis=0) for array in equal_models(metric, 60, random)]
        together += paired_permutation(metric, *data, groups, draws=400)[0] <= 0.05
        apart += paired_permutation(metric, *data, draws=400)[0] <= 0.05
    assert together <= 11  # binomial(100, 0.05) is above 11 once in 200 times
    assert apart >= 40


def test_a_class_of_few_items_has_no_p_value() -> None:
    random = np.random.default_rng(1)
    target = (np.arange(200) == 0).astype(int)
    chances = random.random((2, 200))
    first, second = np.stack([1 - chances, chances], axis=2)
    compared = compare(METRICS["roc_auc"], target, first, second)
    assert compared.p_value is None
    assert compared.why == "no p value: roc_auc needs 10 test items of each class, and one has 1"
    assert compare(METRICS["accuracy"], target, first, second).p_value is not None


def clipped_in_place(target: Array, predictions: Array) -> float:
    np.clip(predictions, 0.4, 0.6, out=predictions)
    target += 1
    return float(predictions.mean())


def test_a_metric_that_works_in_place_changes_nothing() -> None:
    target, first, second = equal_models(METRICS["mae"], 30, np.random.default_rng(2))
    before = [array.copy() for array in (target, first, second)]
    metric = find_metric(f"max:{__name__}:clipped_in_place")
    metric.value(target, first)
    paired_permutation(metric, target, first, second, draws=20)
    for array, copy in zip((target, first, second), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(("positives", "negatives"), [(10, 10), (10, 300), (60, 60)])
def test_areas_of_equal_models_differ_as_often_as_stated(positives: int, negatives: int) -> None:
    random, target = np.random.default_rng(4), np.repeat([1, 0], [positives, negatives])
    reported = 0
    for _ in range(300):
        chances = 1 / (1 + np.exp(-random.normal(target, size=(2, len(target)))))
        models = np.stack([1 - chances, chances], axis=2)
        reported += paired_permutation(METRICS["roc_auc"], target, *models, draws=300)[0] <= 0.05
    assert 5 <= reported <= 26  # binomial(300, 0.05) is outside once in 100 times


def test_twenty_items_tell_a_perfect_ranking_from_a_poor_one() -> None:
    random, target = np.random.default_rng(5), np.repeat([1, 0], 10)
    poor, good = random.random(20), target * 0.6 + random.random(20) * 0.3
    first, second = (np.stack([1 - chances, chances], axis=1) for chances in (good, poor))
    assert paired_permutation(METRICS["roc_auc"], target, first, second)[0] <= 0.02


def test_both_ways_to_test_areas_agree_on_many_items(monkeypatch: pytest.MonkeyPatch) -> None:
    target, first, second = equal_models(METRICS["roc_auc"], 900, np.random.default_rng(8))
    exchanged = paired_permutation(METRICS["roc_auc"], target, first, second)[0]
    monkeypatch.setattr(permutation, "EXACT_RANKS", 0)
    assert paired_permutation(METRICS["roc_auc"], target, first, second)[0] == pytest.approx(
        exchanged, abs=0.05
    )

"""What two models' predictions can be compared by, and what is said where they cannot."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from podium.errors import InvalidInput
from podium.models import PromotionRule, decide
from podium.scoring import METRICS, compare, find_metric, paired_permutation
from podium.scoring.changes import Changes
from podium.scoring.comparison import small_test_part
from podium.scoring.intervals import figure_interval

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
LABELS = np.arange(60) % 2
WIDE, WIDER = (RANDOM.random((60, classes)) for classes in (2, 3))


def own_accuracy(target: Array, predictions: Array) -> float:
    return float(
        ((predictions if predictions.ndim == 1 else predictions.argmax(1)) == target).mean()
    )


def often_undefined(target: Array, predictions: Array) -> float:
    return (
        float(predictions[0])
        if abs(predictions[0]) == 1 and predictions[1] == predictions[0]
        else math.nan
    )


@pytest.mark.parametrize(
    ("name", "first", "second", "said"),
    [
        ("roc_auc", WIDE, WIDER, "of 2 classes and the other of 3"),
        ("log_loss", WIDE, WIDER, "of 2 classes and the other of 3"),
        (
            f"max:{__name__}:own_accuracy",
            WIDE,
            WIDE.argmax(1),
            "gives probabilities and the other classes only",
        ),
        ("accuracy", WIDE, WIDE[:-1], "predictions for"),
    ],
)
def test_predictions_of_two_shapes_are_refused(
    name: str, first: Array, second: Array, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        compare(find_metric(name), LABELS, first, second)


def test_a_function_of_ones_own_is_compared_as_accuracy_is() -> None:
    own, random = find_metric(f"max:{__name__}:own_accuracy"), np.random.default_rng(1)
    better = np.where(random.random(60) < 0.9, LABELS, 1 - LABELS)
    first, second = np.eye(2)[better], np.eye(2)[1 - better]
    assert paired_permutation(own, LABELS, first, second)[0] < 0.001
    assert paired_permutation(own, LABELS, first, first)[0] == 1


def test_accuracy_takes_classes_beside_probabilities() -> None:
    compared = compare(METRICS["accuracy"], LABELS, WIDE, WIDE.argmax(1))
    assert (compared.difference, compared.p_value) == (0, 1)


def test_numbers_may_be_a_column_or_a_list() -> None:
    target = RANDOM.normal(size=(30, 1))
    predictions = (target + RANDOM.normal(size=(30, 1)))[:, 0]
    assert compare(METRICS["rmse"], target, target + 0.1, predictions).gained is None
    changes = Changes.of_numbers(target, predictions, target + 0.001)
    assert (len(changes.gained), changes.items_gained) == (20, 30)
    assert not changes.lost


def test_an_item_whose_error_stays_is_neither_gained_nor_lost() -> None:
    target = np.zeros(4)
    changes = Changes.of_numbers(target, np.array([1.0, 1, 1, 1]), np.array([0.5, 1, -1, 2]))
    assert [item.item for item in changes.gained] == [0]
    assert [item.item for item in changes.lost] == [3]


def test_groups_may_have_any_numbers() -> None:
    target = RANDOM.normal(size=60)
    first, second = target + RANDOM.normal(size=(2, 60))
    numbered = np.repeat(np.arange(12), 5)
    named = numbered * 701 + 13
    rule, metric = PromotionRule(), METRICS["mae"]
    one, other = (
        decide(rule, metric, target, first, second, groups) for groups in (numbered, named)
    )
    assert one.evidence() == other.evidence()
    assert one.figures["units"] == 12


def test_groups_of_one_item_change_nothing() -> None:
    given = METRICS["accuracy"], LABELS, WIDE, 1 - WIDE
    assert compare(*given, np.arange(60)[::-1]) == compare(*given)


def test_groups_of_other_items_are_refused() -> None:
    with pytest.raises(InvalidInput, match="groups for"):
        compare(METRICS["accuracy"], LABELS, WIDE, 1 - WIDE, np.arange(59))


@pytest.mark.parametrize("name", ["roc_auc", "f1_macro", "balanced_accuracy"])
def test_a_class_that_few_groups_have_has_no_p_value(name: str) -> None:
    target = np.repeat([0, 1], 200)
    chances = RANDOM.random((2, 400))
    groups = np.concatenate([np.arange(200), np.repeat([900, 901], 100)])
    compared = compare(METRICS[name], target, *np.stack([1 - chances, chances], axis=2), groups)
    assert compared.p_value is None
    assert (
        compared.why
        == f"no p value: {name} needs 10 groups of test items of each class, and one has 2"
    )


@pytest.mark.parametrize("items", [1, 3, 5])
def test_five_items_make_nothing_likely(items: int) -> None:
    target = np.zeros(items)
    decision = decide(PromotionRule(), METRICS["mae"], target, target + 0.1, target + 1)
    assert not decision.promote
    assert decision.figures["interval"] is None
    assert "no: too few items to say how likely" in decision.reasons[0]


def test_draws_without_a_value_are_no_evidence() -> None:
    """Only the predictions as they are have a value: every exchange but none and all gives NaN."""
    first, second = np.ones(10), -np.ones(10)
    metric = find_metric(f"max:{__name__}:often_undefined")
    assert paired_permutation(metric, np.zeros(10), first, second)[0] == 1


@pytest.mark.parametrize("name", sorted(METRICS))
def test_the_interval_of_a_figure_holds_that_of_scipy(name: str) -> None:
    metric, random = METRICS[name], np.random.default_rng(1)
    target: Array = random.normal(size=150) if metric.kind == "regression" else np.arange(150) % 2
    given: Array = target + random.normal(size=150)
    if metric.kind == "classification":
        given = np.stack(
            [1 / (1 + np.exp(2 * given - 1)), 1 - 1 / (1 + np.exp(2 * given - 1))], axis=1
        )
    expected = stats.bootstrap((np.arange(150),), lambda at: metric.value(target[at], given[at]), vectorized=False,
                               method="percentile", n_resamples=3000, rng=np.random.default_rng(5))  # fmt: skip
    interval = figure_interval(metric, target, given)
    assert interval
    limits = (expected.confidence_interval.low, expected.confidence_interval.high)
    slack = 0.2 * expected.standard_error
    assert interval[0] <= limits[0] + slack
    assert interval[1] >= limits[1] - slack
    assert np.ptp(interval) <= 1.6 * np.ptp(limits)  # percentiles alone hold the truth too rarely


def test_a_decision_prints_an_interval_with_every_figure() -> None:
    target = np.random.default_rng(1).normal(size=90)
    first, second = target + np.random.default_rng(2).normal(size=(2, 90))
    alone = decide(PromotionRule(), METRICS["mae"], target, first, None)
    both = decide(
        PromotionRule(), METRICS["mae"], target, first, second, np.repeat(np.arange(30), 3)
    )
    assert len(alone.figures["value_interval"]) == 2
    assert "(95 % 0." in str(alone)
    assert str(both).count("(95 % 0.") == 2
    assert "n = 90, 30 of them independent" in str(both)


def test_a_small_test_part_is_said_with_its_reason() -> None:
    assert small_test_part(1000, (500, 500), "classification") == ""
    assert small_test_part(40, (), "regression").startswith(
        "the test part has only 40 items: figures on it vary"
    )
    assert "an accuracy of .90 on it means 0.76 to 0.97" in small_test_part(
        40, (20, 20), "classification"
    )
    assert "an accuracy of .99 on it means 0.94 to 1.00" in small_test_part(
        100, (99, 1), "classification"
    )
    assert small_test_part(1000, (997, 3), "classification").startswith(
        "a class has only 3 test items: with fewer than 10"
    )
    assert small_test_part(1000, (1000, 0), "classification") == ""
    groups = np.concatenate([np.zeros(500, int), 1 + np.arange(500) // 5])
    assert small_test_part(1000, (), "regression", groups).startswith(
        "the test part has 101 groups, but the largest has 50% of its 1,000 items: where items of a group are "
        "alike, figures on it vary as on 4 groups of one size"
    )
    assert small_test_part(1000, (), "regression", np.arange(1000) // 10) == ""
    assert "only 20 groups" in small_test_part(1000, (), "regression", np.arange(1000) // 50)

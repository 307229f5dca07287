"""Every metric against scikit-learn's, over random data."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as reference

from podium.errors import InvalidInput
from podium.metrics.goals import is_share, less_is_better
from podium.scoring import Metric
from podium.scoring.metrics import METRICS, find_metric

Array = np.ndarray[Any, Any]


def multiclass_auc(target: Array, given: Array) -> float:
    return float(reference.roc_auc_score(target, given, multi_class="ovr", average="macro"))


CLASSIFICATION: dict[str, Callable[[Array, Array], float]] = {
    "accuracy": lambda y, p: reference.accuracy_score(y, p.argmax(1)),
    "balanced_accuracy": lambda y, p: reference.balanced_accuracy_score(y, p.argmax(1)),
    "f1_macro": lambda y, p: reference.f1_score(y, p.argmax(1), average="macro"),
    "roc_auc": multiclass_auc,
    "log_loss": lambda y, p: reference.log_loss(y, p, labels=range(p.shape[1])),
}
REGRESSION: dict[str, Callable[[Array, Array], float]] = {
    "rmse": lambda y, p: reference.root_mean_squared_error(y, p),
    "mae": lambda y, p: reference.mean_absolute_error(y, p),
    "r2": lambda y, p: reference.r2_score(y, p),
}


def probabilities(random: np.random.Generator, items: int, classes: int, digits: int = 17) -> Array:
    """Few digits make many ties."""
    rows = np.round(random.dirichlet(np.ones(classes), size=items), digits) + 10.0**-digits
    return rows / rows.sum(1, keepdims=True)


@pytest.mark.parametrize("name", sorted(CLASSIFICATION))
@pytest.mark.parametrize("classes", [3, 7])
@pytest.mark.parametrize("digits", [17, 1])
def test_classification_metrics_are_those_of_scikit_learn(
    name: str, classes: int, digits: int
) -> None:
    random = np.random.default_rng(classes + digits)
    for items in (40, 333):
        target = np.concatenate([np.arange(classes), random.integers(classes, size=items)]).astype(
            np.uint8
        )
        given = probabilities(random, len(target), classes, digits)
        expected = CLASSIFICATION[name](target, given)
        assert METRICS[name].value(target, given) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", sorted(CLASSIFICATION))
def test_two_classes_are_measured_as_scikit_learn_does(name: str) -> None:
    random = np.random.default_rng(2)
    target = random.integers(2, size=200)
    given = probabilities(random, 200, 2, digits=2)
    measured = (
        reference.roc_auc_score(target, given[:, 1])
        if name == "roc_auc"
        else CLASSIFICATION[name](target, given)
    )
    assert METRICS[name].value(target, given) == pytest.approx(measured, rel=1e-12, abs=1e-12)


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize("name", sorted(set(CLASSIFICATION) - {"roc_auc"}))
@pytest.mark.parametrize("present", [[0, 2], [3]])
def test_missing_classes_count_as_in_scikit_learn(name: str, present: list[int]) -> None:
    random = np.random.default_rng(3)
    target = random.choice(present, size=50)
    given = probabilities(random, 50, 5)
    assert METRICS[name].value(target, given) == pytest.approx(
        CLASSIFICATION[name](target, given), rel=1e-12
    )


@pytest.mark.filterwarnings("ignore:A single label was found")
@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "f1_macro"])
def test_predicted_classes_do_where_probabilities_are_not_needed(name: str) -> None:
    target, given = np.array([0, 0, 2, 1]), np.array([0, 1, 2, 1])
    assert METRICS[name].value(target, given) == METRICS[name].value(target, np.eye(3)[given])
    assert METRICS[name].value(np.zeros(3, int), np.zeros(3, int)) == 1.0


def test_single_precision_is_clipped_as_in_scikit_learn() -> None:
    given = np.array([[1, 0], [0, 1], [0.25, 0.75]], np.float32)
    expected = reference.log_loss([1, 1, 0], given)
    assert METRICS["log_loss"].value(np.array([1, 1, 0]), given) == pytest.approx(
        expected, rel=1e-6
    )


def test_roc_auc_leaves_out_classes_that_do_not_occur() -> None:
    random = np.random.default_rng(4)
    target = random.choice([0, 1, 3], size=60)
    given = probabilities(random, 60, 4)
    each = [reference.roc_auc_score(target == at, given[:, at]) for at in (0, 1, 3)]
    assert METRICS["roc_auc"].value(target, given) == pytest.approx(np.mean(each), rel=1e-12)
    assert math.isnan(METRICS["roc_auc"].value(np.ones(5, int), probabilities(random, 5, 2)))


@pytest.mark.parametrize("name", sorted(REGRESSION))
@pytest.mark.parametrize("shape", [(300,), (300, 1), (300, 3)])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_regression_metrics_are_those_of_scikit_learn(
    name: str, shape: tuple[int, ...], offset: float
) -> None:
    random = np.random.default_rng(5)
    target = random.normal(size=shape) + offset
    given = target + random.normal(size=shape) / 3
    expected = REGRESSION[name](target, given)
    assert METRICS[name].value(target, given) == pytest.approx(
        expected, rel=1e-9 if offset else 1e-12
    )


def test_r2_of_a_constant_target_is_one_or_zero() -> None:
    constant = np.full(4, 0.1)
    assert METRICS["r2"].value(constant, constant) == 1.0
    assert METRICS["r2"].value(constant, np.array([0.1, 0.1, 0.1, 1.1])) == 0.0


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
def test_a_metric_of_no_items_is_undefined(metric: Any) -> None:
    none = np.zeros((0, 3)) if metric.kind == "classification" else np.zeros(0)
    assert math.isnan(
        metric.value(np.zeros(0, int if metric.kind == "classification" else float), none)
    )


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
def test_better_follows_the_direction_of_the_metric(metric: Any) -> None:
    losses = {"log_loss", "rmse", "mae"}
    assert metric.better(1.0, 2.0) == (metric.name in losses)
    assert metric.better(2.0, 1.0) == (metric.name not in losses)
    assert not metric.better(1.0, 1.0)


@pytest.fixture
def own_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the working directory, as a user would have it."""
    (tmp_path / "shop_metrics.py").write_text(
        "def lost_revenue(target, predictions):\n    return abs(target - predictions).sum() / target.sum()\n"
        "def broken(target, predictions):\n    return target['price']\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "shop_metrics:lost_revenue"


def test_a_function_of_ones_own_is_a_metric(own_metric: str) -> None:
    metric = find_metric(f"min:{own_metric}")
    assert (metric.name, metric.maximize) == (own_metric, False)
    assert metric.value(np.array([1.0, 3.0]), np.array([2.0, 3.0])) == 0.25
    assert find_metric(own_metric, maximize=True).maximize
    with pytest.raises(
        InvalidInput, match=f"not known for {own_metric}\nhint: write max:{own_metric}"
    ):
        find_metric(own_metric)


def test_a_function_that_fails_is_named(own_metric: str) -> None:
    metric = find_metric("max:shop_metrics:broken")
    with pytest.raises(InvalidInput, match="the metric shop_metrics:broken failed: IndexError"):
        metric.value(np.array([1.0]), np.array([2.0]))
    with pytest.raises(InvalidInput, match="shop_metrics has no function 'profit'"):
        find_metric("max:shop_metrics:profit").value(np.array([1.0]), np.array([2.0]))
    with pytest.raises(
        InvalidInput, match="nowhere_at_all:profit cannot be imported: ModuleNotFoundError"
    ):
        find_metric("max:nowhere_at_all:profit").value(np.array([1.0]), np.array([2.0]))


def test_a_misspelled_metric_gets_a_suggestion() -> None:
    with pytest.raises(
        InvalidInput, match="there is no metric 'acuracy'\nhint: did you mean accuracy"
    ):
        find_metric("acuracy")
    with pytest.raises(InvalidInput, match="of rmse less is better, so it cannot be maximized"):
        find_metric("max:rmse")
    assert find_metric("min:rmse") is METRICS["rmse"]


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_names_of_printed_metrics_mean_what_scoring_declares(metric: Metric) -> None:
    assert less_is_better(metric.name) != metric.maximize
    assert is_share(metric.name) == (metric.range == (0, 1))
    assert sum(known.is_default for known in METRICS.values() if known.kind == metric.kind) == 1


@pytest.mark.parametrize(
    "name",
    [
        "val_nll",
        "fid",
        "ece",
        "brier_score",
        "kl_divergence",
        "ppl",
        "neg_loss",
        "false_negative_error",
        "val_cross_entropy",
        "eval-poisson-nloglik",
        "valid_0's kullback_leibler",
        "hamming",
        "d2_loss",
        "fpr_at_tpr",
        "valLoss",
        "MSELoss",
        "testRMSE",
        "meanAbsoluteError",
        "val_losses",
        "kl",
        "valloss",
        "nmse",
        "neg_log_likelihood",
        "NegativeLogLikelihood",
        "neg_elbo",
        "loss1",
        "val_rmse2",
        "valid_0's poisson",
        "quantile",
        "test MultiClass",
        "Tweedie",
        "MultiClassOneVsAll",
        "LogCosh",
        "valid_fair",
        "bits_per_character",
        "val_false_positive_rate",
        "falseNegatives",
        "chamfer_distance",
        "abs_rel",
        "mean_rank",
        "minFDE",
        "davies_bouldin_score",
        "failure_rate",
        "val_crash_rate",
        "missRate",
        "violation_rates",
        "median_rank",
        "rmsse",
        "mean_wql",
        "flow_EPE",
        "mmd",
        "gflops",
        "tpot_ms",
        "toxicity",
        "co2_kg",
    ],
)
def test_less_of_an_error_is_better(name: str) -> None:
    assert less_is_better(name)


@pytest.mark.parametrize(
    "name",
    [
        "neg_log_loss",
        "test_neg_root_mean_squared_error",
        "d2_pinball_score",
        "bleu",
        "tpr_at_fpr",
        "recall_at_1_fpr",
        "tpr@fpr=0.01",
        "negLogLoss",
        "neg_rmse",
        "val_neg_mae",
        "negative_mean_squared_error",
        "log_likelihood",
        "recallAtFPR",
        "mAP",
        "valF1",
        "poisson_accuracy",
        "top1",
        "multiclass_f1",
        "quantile_coverage",
        "auc_multiclass",
        "r2",
        "true_positive_rate",
        "mean_reciprocal_rank",
        "success_rate",
        "hit_rate",
        "completion_rate",
        "detection_rate",
    ],
)
def test_more_of_a_negated_error_is_better(name: str) -> None:
    assert not less_is_better(name)

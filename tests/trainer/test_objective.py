"""Loss and metrics of classes and of numbers."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    f1_score,
    mean_absolute_error,
    r2_score,
    root_mean_squared_error,
)
from tasks import pictures, table

from podium.trainer import objective
from podium.trainer.config import parse

CPU = torch.device("cpu")
NUMBERS = {
    "kind": "regression",
    "outputs": 2,
    "target_mean": (1e6, 0.0),
    "target_std": (10.0, 1e-5),
}


def test_sums_of_any_batches_give_scikit_learns_metrics() -> None:
    rng = np.random.default_rng(1)
    target = (rng.normal(0, 1, (101, 2)) * [10, 1e-5] + [1e6, 0]).astype(np.float32)
    values = (target + rng.normal(0, 1, (101, 2)) * [3, 1e-5]).astype(np.float32)
    goal = objective.of(parse([]), table(**NUMBERS), CPU)
    pieces = [
        goal.totals(torch.from_numpy(values[at]), torch.from_numpy(target[at]))
        for at in (slice(40), slice(40, 101))
    ]
    metrics = goal.summarize(sum(pieces, goal.no_totals(CPU)), 101)
    for name, compute in (
        ("rmse", root_mean_squared_error),
        ("mae", mean_absolute_error),
        ("r2", r2_score),
    ):
        assert metrics[name] == pytest.approx(
            compute(target.astype(float), values.astype(float)), rel=1e-6
        ), name


@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("accuracy", accuracy_score),
        ("balanced_accuracy", balanced_accuracy_score),
        ("f1_macro", partial(f1_score, average="macro")),
    ],
)
def test_sums_of_decisions_give_scikit_learns_metrics(
    name: str, compute: Callable[..., float]
) -> None:
    rng = np.random.default_rng(1)
    target, outputs = rng.choice(10, 101, p=[0.55, *[0.05] * 9]), rng.normal(0, 1, (101, 10))
    goal = objective.of(parse(["--metric", name]), pictures(28, 28), CPU)
    pieces = [
        goal.totals(torch.from_numpy(outputs[at]), torch.from_numpy(target[at]))
        for at in (slice(40), slice(40, 101))
    ]
    metrics = goal.summarize(sum(pieces, goal.no_totals(CPU)), 101)
    assert metrics[name] == pytest.approx(compute(target, outputs.argmax(1)), abs=1e-12)
    assert next(iter(metrics)) == goal.shown[0] == name


@pytest.mark.parametrize(("answer", "r2"), [(7.0, 1.0), (8.0, 0.0)])
def test_r2_of_a_constant_target_is_finite(answer: float, r2: float) -> None:
    task = table(kind="regression", outputs=1, target_mean=(7.0,), target_std=(1.0,))
    goal = objective.of(parse([]), task, CPU)
    metrics = goal.summarize(goal.totals(torch.full((5, 1), answer), torch.full((5, 1), 7.0)), 5)
    assert metrics["r2"] == r2 == r2_score([7.0] * 5, [answer] * 5)


def test_the_loss_counts_every_target_in_its_deviations() -> None:
    goal = objective.of(parse([]), table(**NUMBERS), CPU)
    targets = torch.tensor([[1e6, 0.0]])
    assert goal.loss(targets + torch.tensor([[20.0, 0.0]]), targets).item() == pytest.approx(2.0)
    assert goal.loss(targets + torch.tensor([[0.0, 2e-5]]), targets).item() == pytest.approx(2.0)


def test_a_better_epoch_has_more_accuracy_or_less_error() -> None:
    classes = objective.of(parse([]), pictures(28, 28), CPU)
    first = {"accuracy": 0.9, "loss": 0.5}
    assert classes.is_better(first, {})
    assert classes.is_better({"accuracy": 0.9, "loss": 0.4}, first)
    assert not classes.is_better({"accuracy": 0.8, "loss": 0.1}, first)
    balanced = objective.of(parse(["--metric", "f1_macro"]), pictures(28, 28), CPU)
    assert balanced.is_better(
        {"f1_macro": 0.6, "accuracy": 0.8, "loss": 1.0},
        {"f1_macro": 0.5, "accuracy": 0.9, "loss": 0.5},
    )
    numbers = objective.of(parse([]), table(**NUMBERS), CPU)
    assert numbers.is_better({"rmse": 1.0}, {"rmse": 1.1})
    assert not numbers.is_better({"rmse": 1.1}, {"rmse": 1.1})


def test_balanced_classes_weigh_the_same() -> None:
    weights = objective._balanced_weights([90, 10, 0])
    torch.testing.assert_close(weights[:2] * torch.tensor([90.0, 10.0]), torch.full((2,), 100 / 3))
    assert torch.isfinite(weights).all()

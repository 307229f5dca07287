"""Loss and metrics of classes and of numbers."""

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
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
    numbers = objective.of(parse([]), table(**NUMBERS), CPU)
    assert numbers.is_better({"rmse": 1.0}, {"rmse": 1.1})
    assert not numbers.is_better({"rmse": 1.1}, {"rmse": 1.1})


def test_balanced_classes_weigh_the_same() -> None:
    weights = objective.balanced_weights([90, 10, 0])
    torch.testing.assert_close(weights[:2] * torch.tensor([90.0, 10.0]), torch.full((2,), 100 / 3))
    assert torch.isfinite(weights).all()

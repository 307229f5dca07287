"""Objectives of a training: loss and metrics of classes or of numbers, and how they are
measured."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podium.data.validated import MOST
from podium.metrics import format_metrics
from podium.trainer import data
from podium.trainer.config import TrainConfig
from podium.trainer.task import Task
from podium.trainer.world import World

Record = dict[str, float]
"""Metrics by name."""


class _TrainingObjective(ABC):
    """Loss and metrics of one kind of dataset, added up over its items.

    Args:
        device: Where the outputs are; the CPU if None.
    """

    metrics: tuple[str, ...]
    """All metrics of an epoch."""

    longest_gradient: float = 0.0
    """Gradients are scaled down to this norm; 0: never."""

    def __init__(self, config: TrainConfig, task: Task, device: torch.device | None) -> None:
        self.shown = config.shown(task.kind)

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss added up over the items of a batch.

        Args:
            outputs: float32 [n, outputs].
            targets: int64 [n] or float32 [n, outputs].
        """

    @abstractmethod
    def totals(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return float64 sums over the items of a batch; added up over all batches they determine
        the metrics."""

    @abstractmethod
    def no_totals(self, device: torch.device) -> Tensor:
        """Return the sums over no items."""

    @abstractmethod
    def summarize(self, totals: Tensor, count: int) -> Record:
        """Return the metrics of `count` items from their totals."""

    @abstractmethod
    def merit(self, record: Record) -> Any:
        """Return a value that is greater for better metrics."""

    def room(self, items: int, outputs: int, device: torch.device) -> Tensor:
        """Return a tensor for the predictions of a part that are kept: all outputs, only the
        classes if those take too much, or nothing [0]."""
        if 4 * items * outputs <= MOST:
            return torch.zeros(items, outputs, device=device)
        return torch.zeros(0, device=device)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return kept outputs as predictions for people."""
        return outputs

    def evaluate(
        self,
        model: nn.Module,
        part: data.Part,
        batch_size: int,
        world: World,
        kept: Tensor | None = None,
    ) -> Record:
        """Evaluate a model over all ranks; exact for any number of them and any remainder.

        Computed in fp32 whatever the precision of the training, as the exported model will.

        Args:
            model: Equal in all ranks; left in evaluation mode.
            part: On the device of the world.
            kept: From room; gets the predictions of all ranks.
        """
        model.eval()
        totals = self.no_totals(world.device)
        with torch.no_grad():
            for piece in data.in_order(len(part), batch_size, world.rank, world.size):
                outputs = model(part.inputs[piece])
                totals += self.totals(outputs, part.target[piece])
                if kept is not None and len(kept):
                    kept[piece] = outputs if kept.ndim == 2 else outputs.argmax(1)
        if kept is not None:
            world.sum(kept)
        return self.summarize(world.sum(totals), len(part))

    def line(self, record: Mapping[str, float]) -> str:
        """Return the metric line of an epoch."""
        values: dict[str, Any] = {name: record[name] for name in self.shown if name in record}
        return format_metrics(**values)

    def is_better(self, record: Record, other: Record) -> bool:
        """Return whether metrics are better than others; anything is better than none."""
        return not other or self.merit(record) > self.merit(other)


class _Classification(_TrainingObjective):
    """Cross entropy; the best epoch has the highest metric, then the lowest loss."""

    def __init__(self, config: TrainConfig, task: Task, device: torch.device | None) -> None:
        super().__init__(config, task, device)
        self.classes, self.metric = task.outputs, config.metric
        self.metrics = tuple(dict.fromkeys((config.metric, "accuracy", "loss")))
        self.label_smoothing = config.label_smoothing
        weights = _balanced_weights(task.class_counts) if config.balance else None
        self.weights = None if weights is None else weights.to(device)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        smoothing = self.label_smoothing
        return F.cross_entropy(
            outputs, targets, self.weights, reduction="sum", label_smoothing=smoothing
        )

    def totals(self, outputs: Tensor, targets: Tensor) -> Tensor:
        decided = outputs.argmax(1)
        counts = [
            each.bincount(minlength=self.classes).double()
            for each in (targets[decided == targets], targets, decided)
        ]
        loss = F.cross_entropy(outputs, targets, reduction="sum").double()
        return torch.cat([*counts, loss[None]])

    def room(self, items: int, outputs: int, device: torch.device) -> Tensor:
        everything = super().room(items, outputs, device)
        if len(everything) or items > MOST:
            return everything
        return torch.zeros(items, dtype=torch.int64, device=device)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(1) if outputs.ndim == 2 else outputs

    def no_totals(self, device: torch.device) -> Tensor:
        return torch.zeros(3 * self.classes + 1, dtype=torch.float64, device=device)

    def summarize(self, totals: Tensor, count: int) -> Record:
        hits, true, decided = totals[:-1].cpu().numpy().reshape(3, self.classes)
        record = {"accuracy": float(hits.sum()) / count, "loss": float(totals[-1]) / count}
        if self.metric != "accuracy":
            from podium.scoring.metrics import METRICS

            metric: Any = METRICS[self.metric]  # a ConfusionMetric
            record = {self.metric: float(metric.finish(hits, true, decided)), **record}
        return record

    def merit(self, record: Record) -> Any:
        return record[self.metric], -record["loss"]


class _Regression(_TrainingObjective):
    """Squared error of the standardized target; the best epoch has the lowest rmse.

    Several targets count alike: loss, rmse, mae and r2 are means over them, as scikit-learn's.
    """

    metrics = ("rmse", "mae", "r2", "loss")
    longest_gradient = (
        1.0  # unlike that of a cross entropy the gradient grows with the error: SGD would run away
    )

    def __init__(self, config: TrainConfig, task: Task, device: torch.device | None) -> None:
        super().__init__(config, task, device)
        self.mean = torch.tensor(task.target_mean, device=device, dtype=torch.float64)
        self.std = torch.tensor(task.target_std, device=device, dtype=torch.float64)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs - targets) / self.std.float()).square().mean(1).sum()

    def totals(self, outputs: Tensor, targets: Tensor) -> Tensor:
        error, level = outputs.double() - targets.double(), targets.double() - self.mean
        return torch.stack(
            [error.square().sum(0), error.abs().sum(0), level.square().sum(0), level.sum(0)]
        )

    def no_totals(self, device: torch.device) -> Tensor:
        return torch.zeros(4, len(self.mean), dtype=torch.float64, device=device)

    def summarize(self, totals: Tensor, count: int) -> Record:
        squares, absolute, level_squares, levels = totals
        spread = level_squares - levels.square() / count
        constant = spread <= 1e-12 * level_squares
        explained = torch.where(
            constant, (squares == 0).double(), 1 - squares / spread.where(~constant, 1.0)
        )
        loss = (squares / count / self.std.square()).mean()
        values = (
            (squares / count).sqrt().mean(),
            (absolute / count).mean(),
            explained.mean(),
            loss,
        )
        return dict(zip(self.metrics, map(float, values), strict=True))

    def merit(self, record: Record) -> Any:
        return -record["rmse"]


def of(config: TrainConfig, task: Task, device: torch.device | None = None) -> _TrainingObjective:
    """Return the objective of a task, for outputs on a device (the CPU if None)."""
    return (_Regression if task.kind == "regression" else _Classification)(config, task, device)


def _balanced_weights(counts: Sequence[int]) -> Tensor:
    """Return weights of classes [k] that make the items of each weigh the same, with a mean of 1
    over all items."""
    items = torch.tensor(counts, dtype=torch.float32)
    return items.sum() / (len(counts) * items.clamp(min=1))

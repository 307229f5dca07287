"""How weights are changed: the optimizer and the learning rate of every step."""

import copy
import inspect

import torch
from torch import Tensor, nn, optim

from podium.trainer.config import TrainConfig


def make_optimizer(config: TrainConfig, model: nn.Module) -> optim.Optimizer:
    """Return the configured optimizer; biases and normalisations do not decay."""
    _spare_dynamo()
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay},
              {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}]  # fmt: skip
    if config.optimizer == "adadelta":
        return optim.Adadelta(groups, lr=config.lr)
    if config.optimizer == "adamw":
        return optim.AdamW(groups, lr=config.lr, fused=True)
    return optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.momentum > 0, fused=True)


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """Return the learning rate of a step; a pure function, so that a resumed run needs no scheduler state.

    Args:
        config: Names the schedule.
        step: Counted from 0 over the whole training.
        steps: Steps an epoch.
    """
    if config.schedule == "step":
        return config.lr * config.gamma ** (step // steps)
    total = steps * config.epochs
    rise = config.warmup * total
    if step < rise:
        return config.lr * (step + 1) / rise
    return config.lr * (1 - (step - rise) / (total - rise))


class Average:
    """An average over the latest weights: less noise than the last ones alone.

    Worth about 0.3 points of accuracy after an epoch of the tutorial's recipe, at no measurable cost because only
    every eighth step enters.

    Args:
        model: The network to follow.
        horizon: Steps the average reaches back; never more than a fifth of those taken, because the first weights are
            worth nothing. 0: the model itself is returned instead of an average.
    """

    EVERY = 8

    def __init__(self, model: nn.Sequential, horizon: int) -> None:
        self.horizon = horizon
        self.model = copy.deepcopy(model) if horizon else model
        self.pairs = ([], []) if not horizon else (_floats(self.model), _floats(model))

    def update(self, done: int, *, last: bool) -> None:
        """Take in the model's weights if it is their turn.

        Args:
            done: Steps taken in the whole training.
            last: Whether this was the last step of an epoch: then it counts in any case.
        """
        if self.horizon and (done % self.EVERY == 0 or last):
            weight = min(1.0, self.EVERY / max(1.0, min(self.horizon, done / 5)))
            with torch.no_grad():
                torch._foreach_lerp_(*self.pairs, weight)


def _floats(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.is_floating_point())]


def apply(optimizer: optim.Optimizer) -> None:
    """Take the optimizer's step, without the wrapper around it that imports torch._dynamo."""
    with torch.no_grad():
        inspect.unwrap(type(optimizer).step)(optimizer)


def _spare_dynamo() -> None:
    """Keep torch.optim from importing torch._dynamo, about 3 s on 2 cores, to mark functions that nothing compiles.

    `torch._compile._disable_dynamo` does so at the first call of a marked function unless it finds the mark already
    there. If a later torch looks elsewhere this does nothing, and a test of the imports says so.
    """
    for function in vars(optim.Optimizer).values():
        inner = getattr(function, "__wrapped__", None)
        if inner is not None and not hasattr(inner, "__dynamo_disable"):
            setattr(inner, "__dynamo_disable", inner)

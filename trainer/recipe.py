"""How weights are changed: the optimizer and the learning rate of every step."""

from torch import nn, optim

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


def _spare_dynamo() -> None:
    """Keep torch.optim from importing torch._dynamo, about 3 s on 2 cores, to mark functions that nothing compiles.

    `torch._compile._disable_dynamo` does so at the first call of a marked function unless it finds the mark already
    there. If a later torch looks elsewhere for the mark this does nothing, and a test of the imports says so.
    """
    for function in vars(optim.Optimizer).values():
        inner = getattr(function, "__wrapped__", None)
        if inner is not None and not hasattr(inner, "__dynamo_disable"):
            setattr(inner, "__dynamo_disable", inner)

"""The optimizers: the functions behind torch.optim's classes, with the state in plain dicts.

Not the classes themselves: the first call of any of their methods imports torch._dynamo, which takes 3 s on two cores,
longer than a short trial.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adadelta import adadelta
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from podium.trainer.config import TrainConfig

State = dict[str, list[Tensor]]

STATE = {"adadelta": ("square_avg", "acc_delta"), "adamw": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum_buffer",)}
"""Tensors that each optimizer keeps for a parameter, by torch.optim's names."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Parameters with the same weight decay."""

    parameters: list[Tensor]

    weight_decay: float

    state: State
    """Tensors by name, one for each parameter."""


class Optimizer:
    """Adadelta, AdamW or SGD with Nesterov momentum.

    Args:
        config: Names the optimizer and its settings.
        model: Its weights decay; its biases and normalizations do not.
    """

    def __init__(self, config: TrainConfig, model: nn.Module) -> None:
        self.config = config
        weights: list[Tensor] = [parameter for parameter in model.parameters() if parameter.ndim > 1]
        others: list[Tensor] = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
        self.groups = [Group(parameters=parameters, weight_decay=decay, state=self._new_state(parameters))
                       for parameters, decay in ((weights, config.weight_decay), (others, 0.0))]  # fmt: skip

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Change the parameters by their gradients."""
        for group in self.groups:
            gradients = [parameter.grad for parameter in group.parameters if parameter.grad is not None]
            options: dict[str, Any] = {"lr": lr, "weight_decay": group.weight_decay, "maximize": False}
            parameters, state = group.parameters, group.state
            match self.config.optimizer:
                case "adadelta":
                    adadelta(parameters, gradients, state["square_avg"], state["acc_delta"], state["step"],
                             rho=0.9, eps=1e-6, **options)  # fmt: skip
                case "adamw":
                    adamw(parameters, gradients, state["exp_avg"], state["exp_avg_sq"], [], state["step"],
                          amsgrad=False, beta1=0.9, beta2=0.999, eps=1e-8, fused=True, **options)  # fmt: skip
                case "sgd":
                    momentum = self.config.momentum
                    sgd(parameters, gradients, [*state["momentum_buffer"]], momentum=momentum, nesterov=momentum > 0,
                        dampening=0.0, fused=True, **options)  # fmt: skip

    def state_dict(self) -> list[State]:
        """Return the state of each group."""
        return [group.state for group in self.groups]

    def load_state_dict(self, states: list[State]) -> None:
        """Copy what `state_dict` returned in another training of the same network with the same optimizer."""
        for group, state in zip(self.groups, states, strict=True):
            for name, tensors in group.state.items():
                for tensor, loaded in zip(tensors, state[name], strict=True):
                    tensor.copy_(loaded)

    def _new_state(self, parameters: list[Tensor]) -> State:
        names = STATE[self.config.optimizer]
        state = {name: [torch.zeros_like(parameter) for parameter in parameters] for name in names}
        if self.config.optimizer != "sgd":
            state["step"] = [torch.zeros((), device=parameter.device) for parameter in parameters]
        return state

"""Networks of torchvision.models, and weights from a file."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from podium.trainer import networks
from podium.trainer.task import Task

LEAST = 64
"""Least height and width that the networks get: smaller pictures are enlarged, or little of them would be left."""

LEAST_OF_INCEPTION = 128
FIXED = 224


class Color(nn.Module):
    """Turn gray pictures [n, 1, h, w] into [n, 3, h, w]."""

    def forward(self, value: Tensor) -> Tensor:
        return value.expand(-1, 3, -1, -1)


class Resize(nn.Module):
    """Resize pictures, bilinear."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.size = size

    def forward(self, value: Tensor) -> Tensor:
        return F.interpolate(value, size=self.size, mode="bilinear", align_corners=False)


def layers(model: str, task: Task) -> list[nn.Module]:
    """Return a network of torchvision with new weights, after what makes pictures fit it.

    Args:
        model: Its name in torchvision.models.
        task: Pictures of one or three channels.
    """
    import torchvision

    options: dict[str, Any] = {"num_classes": task.outputs}
    if model in ("googlenet", "inception_v3"):  # without the auxiliary classifiers, which have a loss of their own
        options |= {"aux_logits": False, "init_weights": True}
    network = torchvision.models.get_model(model, weights=None, **options)
    size = fitting_size(model, task.size)
    color = [Color()] if task.channels == 1 else []
    return [*color, *([Resize(size)] if size != task.size else []), network]


def fitting_size(model: str, size: tuple[int, int]) -> tuple[int, int]:
    """Return the size that a network gets for pictures of a size; the proportions stay unless the network has one."""
    if networks.FIXED_SIZE.match(model):
        return FIXED, FIXED
    least = LEAST_OF_INCEPTION if model == "inception_v3" else LEAST
    factor = max(1.0, least / min(size))
    return round(size[0] * factor), round(size[1] * factor)

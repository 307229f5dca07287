"""Augment training images: shift, rotate, scale, mirror and erase, on the device for a whole batch at once.

What happens to an image follows from (seed, epoch, image), not from the rank that holds it.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from podium.trainer.config import TrainConfig

DRAWS = 7  # random numbers per image: down, right, angle, scale, mirror, and where to erase


def draw(config: TrainConfig, count: int, generator: torch.Generator) -> Tensor | None:
    """Return the epoch's random numbers, [count, DRAWS] in 0..1, or None without augmentation."""
    wanted = config.shift or config.rotate or config.flip or config.erase
    return torch.rand(count, DRAWS, generator=generator) if wanted else None


def augment(config: TrainConfig, images: Tensor, draws: Tensor) -> Tensor:
    """Augment a batch.

    Args:
        config: Which augmentations, and how strong.
        images: uint8 [n, 28, 28].
        draws: [n, DRAWS] in 0..1, on the same device.

    Returns:
        uint8 [n, 28, 28].
    """
    if config.rotate:
        images = _rotate(config, images, draws)
    if config.shift or config.flip:
        images = _shift(config, images, draws)
    if config.erase:
        images = _erase(config, images, draws)
    return images


def _shift(config: TrainConfig, images: Tensor, draws: Tensor) -> Tensor:
    """Shift by whole pixels and mirror: one gather from the padded image."""
    margin, size = config.shift, images.shape[-1]
    offsets = (draws[:, :2] * (2 * margin + 1)).long()
    line = torch.arange(size, device=images.device)
    rows, columns = offsets[:, :1] + line, offsets[:, 1:] + line
    if config.flip:
        columns = torch.where(draws[:, 4:5] < 0.5, columns, columns.flip(1))
    padded = F.pad(images, (margin, margin, margin, margin))
    which = torch.arange(len(images), device=images.device)[:, None, None]
    return padded[which, rows[:, :, None], columns[:, None, :]]


def _rotate(config: TrainConfig, images: Tensor, draws: Tensor) -> Tensor:
    """Rotate and scale about the center, bilinear."""
    angle = (draws[:, 2] * 2 - 1) * math.radians(config.rotate)
    zoom = 1 + (draws[:, 3] * 2 - 1) * config.rotate / 100
    cosine, sine, zero = angle.cos() * zoom, angle.sin() * zoom, torch.zeros_like(angle)
    matrix = torch.stack([cosine, -sine, zero, sine, cosine, zero], 1).view(-1, 2, 3)
    grid = F.affine_grid(matrix, [len(images), 1, *images.shape[1:]], align_corners=False)
    rotated = F.grid_sample(images.unsqueeze(1).float(), grid, align_corners=False)
    return rotated.squeeze(1).round_().to(torch.uint8)


def _erase(config: TrainConfig, images: Tensor, draws: Tensor) -> Tensor:
    """Set a square to the darkest value; it may hang over the edge."""
    size = images.shape[-1]
    first = (draws[:, 5:7] * (size + config.erase - 1)).long() - config.erase + 1
    line = torch.arange(size, device=images.device)
    inside = (line >= first[:, :, None]) & (line < first[:, :, None] + config.erase)
    return images.masked_fill(inside[:, 0, :, None] & inside[:, 1, None, :], 0)

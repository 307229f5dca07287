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
        images: uint8 (or floats) [n, h, w] or [n, h, w, c].
        draws: [n, DRAWS] in 0..1, on the same device.

    Returns:
        The same dtype and shape.
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
    margin, (height, width) = config.shift, images.shape[1:3]
    offsets = (draws[:, :2] * (2 * margin + 1)).long()
    rows = offsets[:, :1] + torch.arange(height, device=images.device)
    columns = offsets[:, 1:] + torch.arange(width, device=images.device)
    if config.flip:
        columns = torch.where(draws[:, 4:5] < 0.5, columns, columns.flip(1))
    around = (margin, margin, margin, margin)
    padded = F.pad(images, around if images.ndim == 3 else (0, 0, *around))
    which = torch.arange(len(images), device=images.device)[:, None, None]
    return padded[which, rows[:, :, None], columns[:, None, :]]


def _rotate(config: TrainConfig, images: Tensor, draws: Tensor) -> Tensor:
    """Rotate and scale about the center, bilinear."""
    angle = (draws[:, 2] * 2 - 1) * math.radians(config.rotate)
    zoom = 1 + (draws[:, 3] * 2 - 1) * config.rotate / 100
    cosine, sine, zero = angle.cos() * zoom, angle.sin() * zoom, torch.zeros_like(angle)
    aspect = images.shape[1] / images.shape[2]  # coordinates run from -1 to 1 in both directions
    matrix = torch.stack([cosine, -sine * aspect, zero, sine / aspect, cosine, zero], 1).view(-1, 2, 3)
    channels_first = images.permute(0, 3, 1, 2) if images.ndim == 4 else images.unsqueeze(1)
    grid = F.affine_grid(matrix, list(channels_first.shape), align_corners=False)
    rotated = F.grid_sample(channels_first.float(), grid, align_corners=False)
    rotated = rotated.permute(0, 2, 3, 1) if images.ndim == 4 else rotated.squeeze(1)
    return rotated.to(images.dtype) if images.is_floating_point() else rotated.round_().to(images.dtype)


def _erase(config: TrainConfig, images: Tensor, draws: Tensor) -> Tensor:
    """Set a square to the darkest value; it may hang over the edge."""
    inside = []
    for axis in (1, 2):
        size = images.shape[axis]
        first = (draws[:, 4 + axis] * (size + config.erase - 1)).long() - config.erase + 1
        line = torch.arange(size, device=images.device)
        inside.append((line >= first[:, None]) & (line < first[:, None] + config.erase))
    square = inside[0][:, :, None] & inside[1][:, None, :]
    return images.masked_fill(square if images.ndim == 3 else square[..., None], 0)

"""Augment training images, anew in every epoch: what happens to one follows from (seed, epoch,
image) alone.

--shift, --rotate, --flip and --erase change a whole batch at once, on the device. --augment names
transforms of torchvision, which change one image after the other.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from podium.trainer.config import TrainConfig
from podium.trainer.task import Task

DRAWS = 7  # random numbers per image: down, right, angle, scale, mirror, and where to erase

_MOST_ZOOM = 50.0
"""Most per cent by which a picture is scaled: by 100 it would be one pixel."""

_Transform = Callable[[Tensor], Tensor]


class Augmentation:
    """The changes of training images that are configured, if any."""

    def __init__(self, config: TrainConfig, task: Task, device: torch.device) -> None:
        self.config, self.device = config, device
        self.transform = _transforms(config, task.size) if config.augment else None
        self.draws: Tensor | None = None
        self.seeds: Tensor | None = None

    def begin_epoch(self, count: int, generator: torch.Generator) -> None:
        """Draw what will happen to each of the images in this epoch."""
        config = self.config
        if config.shift or config.rotate or config.flip or config.erase:
            self.draws = torch.rand(count, DRAWS, generator=generator).to(self.device)
        if self.transform:
            self.seeds = torch.randint(2**62, (count,), generator=generator)

    def apply(self, images: Tensor, indices: Tensor) -> Tensor:
        """Augment a batch.

        Args:
            images: uint8 (or floats) [n, h, w] or [n, h, w, c].
            indices: Which images of the training part these are, int64 [n].

        Returns:
            The same dtype and shape.
        """
        config = self.config
        if self.transform and self.seeds is not None:
            images = _transform_each(self.transform, images, self.seeds[indices.cpu()])
        if self.draws is None:
            return images
        draws = self.draws[indices]
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
    zoom = 1 + (draws[:, 3] * 2 - 1) * min(config.rotate, _MOST_ZOOM) / 100
    cosine, sine, zero = angle.cos() * zoom, angle.sin() * zoom, torch.zeros_like(angle)
    aspect = images.shape[1] / images.shape[2]  # coordinates run from -1 to 1 in both directions
    matrix = torch.stack([cosine, -sine * aspect, zero, sine / aspect, cosine, zero], 1).view(
        -1, 2, 3
    )
    channels_first = images.permute(0, 3, 1, 2) if images.ndim == 4 else images.unsqueeze(1)
    grid = F.affine_grid(matrix, list(channels_first.shape), align_corners=False)
    rotated = F.grid_sample(channels_first.float(), grid, align_corners=False)
    rotated = rotated.permute(0, 2, 3, 1) if images.ndim == 4 else rotated.squeeze(1)
    return (
        rotated.to(images.dtype)
        if images.is_floating_point()
        else rotated.round_().to(images.dtype)
    )


def _erase(config: TrainConfig, images: Tensor, draws: Tensor) -> Tensor:
    """Set a square to the darkest value; it may hang over the edge."""
    inside = []
    for axis in (1, 2):
        size = images.shape[axis]
        first = (draws[:, 4 + axis] * (size + config.erase - 1)).long() - config.erase + 1
        line = torch.arange(size, device=images.device)
        inside.append((line >= first[:, None]) & (line < first[:, None] + config.erase))
    square = inside[0][:, :, None] & inside[1][:, None, :]
    return torch.where(square if images.ndim == 3 else square[..., None], 0, images)


def _transforms(config: TrainConfig, size: tuple[int, int]) -> _Transform:
    """Return the transforms of --augment as one function of a uint8 image [c, h, w], which keeps
    its size."""
    from torchvision.transforms import v2

    factories: dict[str, Callable[[], _Transform]] = {
        "crop": lambda: v2.RandomResizedCrop(size, scale=(0.5, 1.0), antialias=True),
        "color": lambda: v2.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3),
        "trivial": v2.TrivialAugmentWide,
        "rand": v2.RandAugment,
    }
    return v2.Compose([factories[name]() for name in config.augmentations])


def _transform_each(transform: _Transform, images: Tensor, seeds: Tensor) -> Tensor:
    """Transform uint8 images, each with its own seed: torchvision draws from torch's default
    generator."""
    has_channels, threads = images.ndim == 4, torch.get_num_threads()
    ordered = (images.permute(0, 3, 1, 2) if has_channels else images.unsqueeze(1)).contiguous()
    changed = torch.empty_like(ordered)
    torch.set_num_threads(1)  # an image is too small to share: two threads took five times as long
    for index, seed in enumerate(seeds.tolist()):
        torch.default_generator.manual_seed(seed)
        changed[index] = transform(ordered[index])
    torch.set_num_threads(threads)
    return changed.permute(0, 2, 3, 1) if has_channels else changed.squeeze(1)

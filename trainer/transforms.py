"""Augmentation by torchvision.transforms.v2, one picture at a time.

What happens to a picture follows from (seed, epoch, picture): each is transformed with random numbers of its own seed.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from podium.trainer.config import TrainConfig

Transform = Callable[[Tensor], Tensor]


def draw(config: TrainConfig, count: int, generator: torch.Generator) -> Tensor | None:
    """Return the epoch's seed for each picture, int64 [count], or None without --augment."""
    return torch.randint(2**62, (count,), generator=generator) if config.augment else None


def build(config: TrainConfig, size: tuple[int, int]) -> Transform:
    """Return the configured transforms as one function of a uint8 picture [c, h, w].

    Args:
        config: Names them.
        size: Height and width that pictures keep.
    """
    from torchvision.transforms import v2

    known: dict[str, Callable[[], Transform]] = {
        "crop": lambda: v2.RandomResizedCrop(size, scale=(0.5, 1.0), antialias=True),
        "color": lambda: v2.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3),
        "trivial": v2.TrivialAugmentWide,
        "rand": v2.RandAugment,
    }
    return v2.Compose([known[name]() for name in config.augmentations])


def apply(transform: Transform, pictures: Tensor, seeds: Tensor) -> Tensor:
    """Transform a batch.

    torchvision draws from torch's default generator, which is left in another state.

    Args:
        transform: As `build` returns it.
        pictures: uint8 [n, h, w] or [n, h, w, c].
        seeds: Of each picture.

    Returns:
        uint8 of the same shape.
    """
    has_channels, threads = pictures.ndim == 4, torch.get_num_threads()
    ordered = (pictures.permute(0, 3, 1, 2) if has_channels else pictures.unsqueeze(1)).contiguous()
    changed = torch.empty_like(ordered)
    torch.set_num_threads(1)  # a picture is too small to share: two threads took five times as long
    for index, seed in enumerate(seeds.tolist()):
        torch.default_generator.manual_seed(seed)
        changed[index] = transform(ordered[index])
    torch.set_num_threads(threads)
    return changed.permute(0, 2, 3, 1) if has_channels else changed.squeeze(1)

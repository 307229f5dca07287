"""Data in memory and the order in which it is seen.

A part is one uint8 tensor on the device; a batch is gathered from it. No files, workers or images in between.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from podium.data import artifact
from podium.errors import Damaged, InvalidInput, NotFound, require
from podium.trainer.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a dataset on one device."""

    images: Tensor
    """uint8 [n, 28, 28]."""

    labels: Tensor
    """int64 [n]."""

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Part":
        """Return the part on another device."""
        return Part(images=self.images.to(device), labels=self.labels.to(device))


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The parts a training sees: never the test part."""

    train: Part
    """To learn from."""

    validation: Part
    """To choose by."""

    classes: int
    """Number of classes."""

    mean: float
    """Of the training pixels scaled to 0..1."""

    std: float
    """Of the training pixels scaled to 0..1."""

    digest: str
    """Checksum of the whole dataset."""

    def to(self, device: torch.device) -> "Dataset":
        """Return the dataset on another device."""
        return Dataset(train=self.train.to(device), validation=self.validation.to(device), classes=self.classes,
                       mean=self.mean, std=self.std, digest=self.digest)  # fmt: skip


def load(config: TrainConfig) -> Dataset:
    """Read training and validation part, checksums verified.

    Raises:
        InvalidInput: No dataset, a damaged one, not the one asked for, or one smaller than a batch.
    """
    hint = "podium data prepare --output DIRECTORY makes a dataset"
    require(bool(config.data), "--data names a prepared dataset", hint, data=config.data)
    try:
        info = artifact.describe(config.data)
        train, validation = (_part(config.data, name) for name in ("train", "validation"))
    except (NotFound, Damaged) as error:  # bad input for a trainer: starting it again changes nothing
        raise InvalidInput(error.message, error.hint or hint) from error
    wanted = config.dataset or info.name
    require(info.name == wanted, "--data holds the dataset that --dataset names", f"give --dataset {info.name}",
            dataset=wanted, data=info.name)  # fmt: skip
    require(config.batch_size <= len(train), "--batch-size <= training images", "make the batch smaller",
            batch_size=config.batch_size, images=len(train))  # fmt: skip
    images = info.inputs["images"]
    return Dataset(train=train, validation=validation, classes=len(info.classes), mean=images.mean[0],
                   std=images.std[0], digest=info.digest)  # fmt: skip


def _part(uri: str, name: str) -> Part:
    part = artifact.load(uri, name)
    images = np.array(part.inputs["images"])  # a copy: the part is mapped from disk, read-only
    return Part(images=torch.from_numpy(images), labels=torch.from_numpy(part.target.astype(np.int64)))


def stream(seed: int, epoch: int) -> torch.Generator:
    """Return the random generator of one epoch.

    It follows from seed and epoch alone, so there is no sampler state to save.
    """
    return torch.Generator().manual_seed(seed * 1_000_003 + epoch)


def batches(
    count: int, batch_size: int, generator: torch.Generator, device: torch.device | None = None
) -> tuple[Tensor, ...]:
    """Return the epoch's global batches: a permutation of all images, cut into slices.

    Every rank computes the same ones, then takes its share; the last batch may be smaller.

    Args:
        count: Number of images.
        batch_size: Images per batch over all ranks.
        generator: As `stream` returns it.
        device: Where the indices are wanted; the CPU if None. The order is the same everywhere.

    Returns:
        Tensors of indices, each image exactly once.
    """
    return torch.randperm(count, generator=generator).to(device).split(batch_size)


def share(batch: Tensor, rank: int, size: int) -> tuple[Tensor, float]:
    """Return one rank's part of a global batch and the weight of each image in the global mean.

    Shares differ by at most one image. A rank without any (a last batch smaller than the world) gets one image of
    weight zero, because it has to take part in the sum of gradients.
    """
    mine = batch[rank::size]
    return (mine, 1 / len(batch)) if len(mine) else (batch[:1], 0.0)


def in_order(count: int, batch_size: int, rank: int, size: int) -> Iterator[slice]:
    """Yield one rank's slices of a part, each image in exactly one slice of exactly one rank."""
    start, stop = count * rank // size, count * (rank + 1) // size
    for first in range(start, stop, batch_size):
        yield slice(first, min(first + batch_size, stop))

"""Data in memory or mapped from disk, and the order in which it is seen.

A part that fits is one tensor on the device; a batch is gathered from it. A larger one stays on
disk, and a batch is gathered from there. No workers or images in between.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from podium.data import artifact
from podium.trainer import processor, task
from podium.trainer.config import TrainConfig
from podium.trainer.task import Task

RESIDENT = 256 << 20
"""Bytes that are read through a mapping before it is made anew, so that they do not stay
resident."""


class _Mapped:
    """Items [n, …] on disk: a batch is copied from a memory-mapped array to the device."""

    def __init__(
        self, array: "np.memmap[tuple[int, ...], np.dtype[np.generic]]", device: torch.device
    ) -> None:
        self.array, self.device, self.read = array, device, 0

    def __getitem__(self, items: Tensor | slice) -> Tensor:
        rows = items.cpu().numpy() if isinstance(items, Tensor) else items
        batch = np.array(self.array[rows])
        self.read += batch.nbytes
        if self.read > RESIDENT:
            old, self.read = self.array, 0
            self.array = np.memmap(str(old.filename), old.dtype, "r", old.offset, old.shape)
        return torch.from_numpy(batch).to(self.device)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a dataset."""

    inputs: Tensor | _Mapped
    """[n, …] as it is stored; indexing gives a tensor on the device."""

    target: Tensor
    """int64 [n], or float32 [n, k] of a regression; on the device."""

    def __len__(self) -> int:
        return len(self.target)

    def to(self, device: torch.device, *, mapped: bool = False) -> "Part":
        """Return the part on another device, or its inputs mapped from disk."""
        inputs = self.inputs
        if isinstance(inputs, _Mapped):
            inputs = (
                _Mapped(inputs.array, device)
                if mapped
                else torch.from_numpy(np.array(inputs.array)).to(device)
            )
        else:
            inputs = inputs.to(device)
        return Part(inputs=inputs, target=self.target.to(device))


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The parts a training sees: never the test part."""

    train: Part
    """To learn from."""

    validation: Part
    """To choose by."""

    task: Task

    digest: str
    """Checksum of the whole dataset."""

    has_groups: bool = False
    """Whether items belong to groups, so that they do not count alone."""

    def to(self, device: torch.device) -> "Dataset":
        """Return the dataset on a device, or mapped from disk if it takes too much of the memory
        there."""
        parts = (self.train, self.validation)
        size = sum(part.inputs.array.nbytes for part in parts if isinstance(part.inputs, _Mapped))
        mapped = size > processor.memory_for_data(device)
        train, validation = (part.to(device, mapped=mapped) for part in parts)
        return replace(self, train=train, validation=validation)


def load(config: TrainConfig) -> Dataset:
    """Open training and validation part, checksums verified.

    Raises:
        InvalidInput: No dataset, a damaged one, not the one asked for, or one that the network does
            not take.
    """
    with task.readable(config) as info:
        learned = task.read(config, info)
        train, validation = (_part(config.data, name, learned) for name in ("train", "validation"))
    return Dataset(
        train=train,
        validation=validation,
        task=learned,
        digest=info.digest,
        has_groups=info.has_groups,
    )


def _part(uri: str, name: str, learned: Task) -> Part:
    part = artifact.load(uri, name)
    array, target = part.inputs[learned.input], torch.from_numpy(np.array(part.target))
    target = target.float().view(len(target), -1) if learned.kind == "regression" else target.long()
    if isinstance(array, np.memmap):
        return Part(inputs=_Mapped(array, torch.device("cpu")), target=target)
    return Part(inputs=torch.from_numpy(np.array(array)), target=target)


def stream(seed: int, epoch: int) -> torch.Generator:
    """Return the random generator of one epoch.

    It follows from seed and epoch alone, so there is no sampler state to save.
    """
    return torch.Generator().manual_seed(seed * 1_000_003 + epoch)


def batches(
    count: int, batch_size: int, generator: torch.Generator, device: torch.device | None = None
) -> tuple[Tensor, ...]:
    """Return the epoch's global batches: a permutation of all items, cut into slices.

    Every rank computes the same ones, then takes its share; the last batch may be smaller.

    Args:
        batch_size: Items per batch over all ranks.
        generator: The one that `stream` returns for the epoch.
        device: Where the indices are wanted; the CPU if None. The order is the same everywhere.

    Returns:
        Tensors of indices, each item exactly once.
    """
    return torch.randperm(count, generator=generator).to(device).split(batch_size)


def share(batch: Tensor, rank: int, size: int) -> tuple[Tensor, float]:
    """Return one rank's part of a global batch and the weight of each item in the global mean.

    Shares differ by at most one item. A rank without any (a last batch smaller than the world) gets
    one item of weight zero, because it has to take part in the sum of gradients.
    """
    mine = batch[rank::size]
    return (mine, 1 / len(batch)) if len(mine) else (batch[:1], 0.0)


def in_order(count: int, batch_size: int, rank: int, size: int) -> Iterator[slice]:
    """Yield one rank's slices of a part, each item in exactly one slice of exactly one rank."""
    start, stop = count * rank // size, count * (rank + 1) // size
    for first in range(start, stop, batch_size):
        yield slice(first, min(first + batch_size, stop))

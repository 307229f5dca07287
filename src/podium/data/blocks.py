"""Arrays of any size, a few megabytes at a time: selected by index, checked, and measured."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.schema import Array, Hashes, len_statistics
from podium.data.split import Split

BLOCK = 4 * 2**20
"""Bytes of a block, if an item is not larger: some steps need several times as much."""

_STEP = np.uint64(0x9E37_79B9_7F4A_7C15)

_MOST = np.float64(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Some items of a part, read block by block."""

    part: Split

    index: NDArray[np.int64] | None = None
    """Positions of the items; None for all of them in order."""

    def __len__(self) -> int:
        return len(self.part) if self.index is None else len(self.index)

    def positions(self, chosen: Any) -> Any:
        """Return where in the part chosen items of the selection are: a number, a slice or an array
        of numbers."""
        return chosen if self.index is None else self.index[chosen]

    def array(self, name: str) -> Array:
        """Return the whole array of an input, or of ``target``, of which a block is selected by
        `blocks`."""
        return self.part.target if name == "target" else self.part.inputs[name]

    def blocks(self, name: str) -> Iterator[Array]:
        """Yield the items of an input, or of ``target``, in order."""
        return blocks(self.array(name), self.index)

    def hashes(self) -> Hashes:
        """Return a hash of all inputs of each item, [n]: bytes, names and order of the inputs
        count; see podium.data.hashes."""
        total = np.zeros(len(self), np.uint64)
        for name in sorted(self.part.inputs):
            at = 0
            for block in self.blocks(name):
                size, view = block[:1].nbytes, block.data.cast("B")
                items = (view[start : start + size] for start in range(0, len(view), size))
                total[at : at + len(block)] *= _STEP  # so that inputs cannot be exchanged
                total[at : at + len(block)] += hash_bytes(items)
                at += len(block)
        return total


def hash_bytes(contents: Iterable[bytes | memoryview]) -> Hashes:
    """Return a hash of each content, [n]."""
    digests = b"".join(blake2b(content, digest_size=8).digest() for content in contents)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def blocks(array: Array, index: NDArray[np.int64] | None = None) -> Iterator[Array]:
    """Yield an array's items in blocks: contiguous, of native byte order.

    Args:
        array: [n, …], in memory or mapped from disk.
        index: Which items in which order; None for all.
    """
    count = len(array) if index is None else len(index)
    step = max(1, BLOCK // max(1, array[:1].nbytes))
    for at in range(0, count, step):
        items = array[at : at + step] if index is None else array[index[at : at + step]]
        yield np.ascontiguousarray(items, array.dtype.newbyteorder("="))


def are_numbers(array: Array) -> NDArray[np.bool_]:
    """Return which floats are finite and in the range of float32, in which models compute."""
    return np.asarray(np.abs(array) <= _MOST)


def midranks(numbers: Array) -> NDArray[np.float64]:
    """Return the rank of each number, ``[n]`` from 1; equal ones share the mean of theirs, as in
    scipy.stats.rankdata, which takes a second to import."""
    _, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def mean_and_std(
    items: Iterable[Array], meaning: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Measure an input, exactly whatever the number of items.

    Args:
        items: Blocks [n, …] of the input.
        meaning: The input's: an image is measured by channel (uint8 pixels scaled to 0..1), a table
            by column, anything else as a whole.

    Returns:
        Means and standard deviations; a constant has 0.
    """
    count, mean, square = 0, np.zeros(1), np.zeros(1)
    first, constant = None, np.ones(1, bool)
    levels: NDArray[np.int64] | None = None
    for block in items:
        rows = block.reshape(-1, len_statistics(meaning, block.shape[1:]))
        if meaning == "image" and rows.dtype == np.uint8:
            seen = np.stack([np.bincount(channel, minlength=256) for channel in rows.T])
            levels = seen if levels is None else levels + seen
            continue
        values = rows.astype(np.float64)
        first = values[0] if first is None else first
        constant = constant & (values == first).all(0)
        middle = values.mean(0)
        shift = middle - mean
        total = count + len(values)  # as Chan, Golub and LeVeque combine two samples
        square = (
            square + np.square(values - middle).sum(0) + shift**2 * (count * len(values) / total)
        )
        mean = mean + shift * (len(values) / total)
        count = total
    if levels is not None:
        scale = np.arange(256) / 255
        mean = levels @ scale / levels.sum(1)
        square = np.stack(
            [row @ (scale - middle) ** 2 for row, middle in zip(levels, mean, strict=True)]
        )
        count = levels[0].sum()
    if first is not None:  # rounding errors of a constant are no deviation
        mean, square = np.where(constant, first, mean), np.where(constant, 0, square)
    return tuple(mean.tolist()), tuple(np.sqrt(square / count).tolist())

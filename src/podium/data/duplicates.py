"""Items that occur in two parts: what a model has learned by heart does not measure what it can do."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from podium.data.artifact import PARTS
from podium.data.blocks import Selection

EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Items of a part whose inputs occur in another part as well."""

    part: str
    other: str

    count: int
    """How many items of part there are."""

    examples: tuple[tuple[int, int], ...]
    """Position of an item of part and of its twin in other, among the items of the source that they come from."""

    def __str__(self) -> str:
        pairs = ", ".join(f"{first + 1} and {second + 1}" for first, second in self.examples)
        return f"{self.count:,} of the {self.part} items are {self.other} items too, for example items {pairs}"


def find_overlaps(parts: Mapping[str, Selection]) -> list[Overlap]:
    """Compare the inputs of all items of each two parts, byte by byte; the target may differ.

    It takes 8 bytes of memory an item and a pass over the data.
    """
    hashes = {part: hash_items(parts[part]) for part in PARTS}
    overlaps = []
    for other, part in combinations(PARTS, 2):
        count = int(np.isin(hashes[part], hashes[other]).sum())
        if count:
            _, mine, theirs = np.intersect1d(hashes[part], hashes[other], return_indices=True)
            first = np.argsort(mine)[:EXAMPLES]
            examples = zip(_origin(parts[part], mine[first]), _origin(parts[other], theirs[first]), strict=True)
            overlaps.append(Overlap(part=part, other=other, count=count, examples=tuple(examples)))
    return overlaps


def hash_items(items: Selection) -> NDArray[np.uint64]:
    """Return a 64-bit hash of all inputs of each item: two of a billion items share one with a chance of 3 %."""
    total = np.zeros(len(items), np.uint64)
    for name in sorted(items.part.inputs):
        at = 0
        for block in items.blocks(name):
            size, view = block[:1].nbytes, block.data.cast("B")
            digests = b"".join(
                blake2b(view[start : start + size], digest_size=8).digest() for start in range(0, len(view), size)
            )
            total[at : at + len(block)] *= np.uint64(0x9E3779B97F4A7C15)  # so that inputs cannot be exchanged
            total[at : at + len(block)] += np.frombuffer(digests, np.uint64)
            at += len(block)
    return total


def _origin(items: Selection, positions: NDArray[np.int64]) -> list[int]:
    return [items.origin(position) for position in positions.tolist()]

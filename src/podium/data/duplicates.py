"""Items that occur in two parts: what a model has learned by heart does not measure what it can
do."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from podium.data.artifact import PARTS
from podium.data.blocks import Selection
from podium.data.hashes import Hashes, hash_items
from podium.text import are

EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Items of a part whose inputs occur in another part as well."""

    part: str
    other: str

    count: int
    """How many items of part there are."""

    examples: tuple[tuple[int, int], ...]
    """Position of an item of part and of its twin in other, among the items of the source that they
    come from."""

    def __str__(self) -> str:
        pairs = ", ".join(f"{first + 1} and {second + 1}" for first, second in self.examples)
        count = f"{self.count:,} of the {self.part} items {are(self.count)}"
        return f"{count} among the {self.other} items too, for example items {pairs}"


def hash_parts(parts: Mapping[str, Selection]) -> dict[str, Hashes]:
    """Hash the inputs of all items of each part: 8 bytes of memory an item, and a pass over the
    data."""
    return {part: hash_items(parts[part]) for part in PARTS}


def find_overlaps(parts: Mapping[str, Selection], hashes: Mapping[str, Hashes]) -> list[Overlap]:
    """Compare the inputs of all items of each two parts, byte by byte; the target may differ.

    Args:
        parts: By name.
        hashes: Hashes of their items, as hash_parts returns them.
    """
    overlaps = []
    for other, part in combinations(PARTS, 2):
        count = int(np.isin(hashes[part], hashes[other]).sum())
        if count:
            _, mine, theirs = np.intersect1d(hashes[part], hashes[other], return_indices=True)
            first = np.argsort(mine)[:EXAMPLES]
            examples = zip(
                _origin(parts[part], mine[first]), _origin(parts[other], theirs[first]), strict=True
            )
            overlaps.append(Overlap(part=part, other=other, count=count, examples=tuple(examples)))
    return overlaps


def _origin(items: Selection, positions: NDArray[np.int64]) -> list[int]:
    return [items.origin(position) for position in positions.tolist()]

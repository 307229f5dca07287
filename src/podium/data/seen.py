"""Which items a model was trained on or chosen by: what tells them lies beside its files; they
count in no test of it.

An item counts as seen where it equals such an item, or nearly equals it: see podium.data.near.
"""

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from podium.data.near import NearItems
from podium.data.test_part import LEAST_ITEMS
from podium.errors import Damaged, InvalidInput, NotFound
from podium.files.arrays import read_arrays
from podium.files.documents import foreign
from podium.storage import Storage

if TYPE_CHECKING:
    from podium.data.held_out import TestInputs

SEEN = "seen.npz"
"""File of a dataset, of a version, and of a model directory of podium's trainer: SeenItems of train
and validation, and of what the weights had seen that a training began with."""

_MOST_LAYERS = 8
"""Datasets, the newest, whose items are found by what nearly equals one, where weights went on from
night to night."""


@dataclass(frozen=True, kw_only=True)
class SeenItems:
    """Items that a model has seen in training."""

    hashes: np.ndarray
    """Hashes of items and of their groups, uint64 [n], ascending."""

    near: tuple[NearItems, ...] = ()
    """The same items, found by what nearly equals one."""

    def plus(self, other: "SeenItems | None") -> "SeenItems":
        """Return what is in either."""
        if other is None:
            return self
        more = tuple(layer for layer in other.near if not any(layer.same(own) for own in self.near))
        return SeenItems(
            hashes=np.union1d(self.hashes, other.hashes), near=(self.near + more)[:_MOST_LAYERS]
        )

    def to_bytes(self) -> bytes:
        """Return the content of SEEN."""
        stream, layers = io.BytesIO(), [layer.to_arrays() for layer in self.near]
        named = {
            f"{name}{at}": array for at, layer in enumerate(layers) for name, array in layer.items()
        }
        np.savez(stream, allow_pickle=False, hashes=self.hashes, **named)
        return stream.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> "SeenItems":
        """Read the content of SEEN; never a pickle, which could run any code.

        Raises:
            Damaged: It is something else.
        """
        problem = f"{name} does not tell which items were seen"
        arrays = read_arrays(content, problem)
        with foreign(problem, Damaged):
            hashes = _checked_hashes(arrays.pop("hashes"), name)
            layers: dict[str, dict[str, np.ndarray]] = {}
            for key, array in arrays.items():
                layers.setdefault(key.lstrip("aceflpst"), {})[key.rstrip("0123456789")] = array
            return cls(hashes=hashes, near=tuple(map(NearItems.from_arrays, layers.values())))

    @classmethod
    def read(cls, storage: Storage) -> "SeenItems | None":
        """Return what a model directory says was seen; None if it says nothing.

        Raises:
            Damaged: The file is not one of SeenItems.
        """
        try:
            content = storage.get(SEEN)
        except NotFound:
            return None
        return cls.from_bytes(content, storage.join(SEEN))


OTHER_NAME = "give the model another name (model_name=NAME of a pipeline, or podium models upload NAME DIRECTORY)"
"""Hint where a model's name stands for other data or another task."""


class TooFewItems(InvalidInput):
    """Hardly a test item is new to a model."""

    def __init__(self, fair: int, items: int) -> None:
        super().__init__(
            f"only {fair:,} of the {items:,} test items are new to the models, but {LEAST_ITEMS} are needed",
            "keep the parts as they were (data_options split_seed, split_by), name a test part of its own "
            f"(data_options test=FILE), or {OTHER_NAME}",
        )


def require_items(fair: np.ndarray) -> None:
    """Refuse a test part of which too little is left.

    Args:
        fair: [n], whether an item counts.

    Raises:
        TooFewItems: Items were left out, and fewer than LEAST_ITEMS are left.
    """
    left = int(fair.sum())
    if left < min(LEAST_ITEMS, len(fair)):
        raise TooFewItems(left, len(fair))


def unseen(
    taken: "TestInputs", groups: np.ndarray | None, seen: "SeenItems | None"
) -> tuple[np.ndarray, int]:
    """Return which test items a model has not seen, bool [m], and how many only nearly equal what
    it has seen.

    Args:
        taken: The items as the model takes them.
        groups: Hash of the group of each item of the whole test part, if there are groups.
        seen: What the model has seen; None if it is not known.
    """
    if seen is None:
        return np.ones(len(taken.kept), bool), 0
    matched = np.isin(taken.hashes(), seen.hashes)
    if groups is not None:
        matched |= np.isin(groups[taken.kept], seen.hashes)
    near = np.zeros(len(matched), bool)
    for layer in seen.near:
        near |= layer.holds(taken.inputs)
    return ~(matched | near), int((near & ~matched).sum())


def near_words(near: int) -> str:
    """Return how many test items are left out because they nearly equal others, in words that go on
    a sentence."""
    return f", {near:,} of them since they nearly equal such an item" if near else ""


def parse_hashes(content: bytes, name: str) -> np.ndarray:
    """Read hashes [n] or [n, k]; never a pickle, which could run any code.

    Raises:
        Damaged: It is not an array of hashes.
    """
    with foreign(f"{name} is not an array", Damaged):
        return _checked_hashes(np.load(io.BytesIO(content), allow_pickle=False), name)


def _checked_hashes(array: np.ndarray, name: str) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype != np.uint64 or array.ndim not in (1, 2):
        raise Damaged(f"{name} is not an array of 64-bit hashes")
    return array

"""Which items a model was trained on or chosen by: their hashes lie beside its files, and do not count in its test."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from podium.errors import Damaged, InvalidInput, NotFound
from podium.storage import connect

if TYPE_CHECKING:
    import numpy as np

    from podium.data.held_out import HeldOut, TestInputs

SEEN = "seen.npy"
"""File of a version, and of a model directory of podium's trainer: 64-bit hashes of the items of train and validation,
of their groups, and of what the weights had seen that it began with; uint64, ascending."""

TEST_ITEMS = "test-items.npy"
"""File of a version beside its predictions: of each test item its hash, and that of what it counts together with (its
group, else itself); uint64 [n, 2]."""

LEAST_ITEMS = 10
"""Fewer test items that a model has not seen are no basis for a figure or a comparison."""


class TooFewItems(InvalidInput):
    """Hardly a test item is new to a model."""

    def __init__(self, fair: int, items: int) -> None:
        super().__init__(
            f"only {fair:,} of the {items:,} test items are new to the models, but {LEAST_ITEMS} are needed",
            "keep the parts as they were (data_options split_seed, split_by), name a test part of its own "
            "(data_options test=FILE), or give the model another name (model_name=NAME)",
        )


def require_items(fair: "np.ndarray") -> None:
    """Refuse a test part of which too little is left.

    Args:
        fair: [n], whether an item counts.

    Raises:
        TooFewItems: Items were left out, and fewer than LEAST_ITEMS are left.
    """
    left = int(fair.sum())
    if left < min(LEAST_ITEMS, len(fair)):
        raise TooFewItems(left, len(fair))


def unseen(taken: "TestInputs", groups: "np.ndarray | None", seen: "np.ndarray | None") -> "np.ndarray":
    """Return which test items a model has not seen, bool [m].

    Args:
        taken: The items as the model takes them.
        groups: Hash of the group of each item of the whole test part, if there are groups.
        seen: Hashes of what the model has seen; None if it is not known.
    """
    import numpy as np

    fresh = np.ones(len(taken.kept), bool)
    if seen is not None:
        fresh &= ~np.isin(taken.hashes(), seen)
        if groups is not None:
            fresh &= ~np.isin(groups[taken.kept], seen)
    return fresh


def seen_in_training(data: str | Path, uri: str) -> "np.ndarray | None":
    """Return the hashes of what a model has seen that was trained on a dataset; None if the dataset has none.

    Args:
        data: URI of the dataset.
        uri: The model directory's, which says what the weights had seen that its training began with.

    Raises:
        Damaged: That file is not an array of hashes.
    """
    import numpy as np

    from podium.data.artifact import load_hashes

    of_data, before = load_hashes(data, "seen"), read_seen(uri)
    if of_data is None or before is None:
        return of_data
    return np.union1d(of_data, before)


def read_seen(uri: str) -> "np.ndarray | None":
    """Return the hashes that a model directory holds; None if it holds none.

    Raises:
        Damaged: The file is not an array of hashes.
    """
    try:
        content = connect(uri).get(SEEN)
    except NotFound:
        return None
    return parse_hashes(content, f"{uri}/{SEEN}")


def parse_hashes(content: bytes, name: str) -> "np.ndarray":
    """Read hashes [n] or [n, 2]; never a pickle, which could run any code.

    Raises:
        Damaged: It is not an array of hashes.
    """
    import numpy as np

    try:
        array: np.ndarray = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise Damaged(f"{name} is not an array: {error}") from None
    if not isinstance(array, np.ndarray) or array.dtype != np.uint64 or array.ndim not in (1, 2):
        raise Damaged(f"{name} is not an array of 64-bit hashes")
    return array


def write_test_items(held_out: "HeldOut", directory: Path) -> None:
    """Write TEST_ITEMS to a directory."""
    import numpy as np

    np.save(directory / TEST_ITEMS, np.stack([held_out.hashes(), held_out.units], axis=1))

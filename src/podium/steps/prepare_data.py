"""Prepare a dataset: fetch, verify, split, write one artifact."""

from pathlib import Path
from typing import TYPE_CHECKING

from podium.errors import NotFound, require
from podium.settings import Settings
from podium.steps.base import step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from podium.data.artifact import DatasetInfo


@step
def prepare_data(
    *,
    dataset: str,
    target: str | Path,
    source: str | None = None,
    validation: float = 0.1,
    limit: int | None = None,
    seed: int = 1,
    cache: Path | None = None,
) -> "DatasetInfo":
    """Write the artifact every trainer and the evaluation read.

    The 60,000 training images are split into train and validation, every class in proportion (54,000 and 6,000 by
    default); the 10,000 test images are kept whole, also in a limited run: what is measured stays comparable.

    Args:
        dataset: ``mnist`` or ``fashion-mnist``.
        target: Directory to write, which appears whole or not at all, or an ``s3://`` or ``minio://`` prefix.
        source: Directory or URI with the idx files; None for cache, mirrors and package mirrors in that order. If it
            holds a dataset artifact, for example of data of your own, that is taken as it stands.
        validation: Share of the training images put aside for validation, 0 < share < 1.
        limit: Use only so many of the training images, train and validation together; None for all.
        seed: Decides which images are chosen, nothing else.
        cache: Directory of verified downloads; the machine's own if None.

    Raises:
        InvalidInput: An argument breaks its rule, or target holds something else.
        NotFound: The source lacks a file.
        Damaged: The source has a wrong file.
        Failed: No source has the files; the message names each.
        Conflict: The prefix holds another dataset.
        PodiumError: The artifact cannot be written, for example on a full disk.
    """
    from podium.data import artifact
    from podium.data.known import LEAST_LIMIT, known_dataset
    from podium.data.sources import fetch

    if prepared := _prepared(source):
        require(limit is None, "a dataset artifact is taken as it stands", "leave the limit out", limit=limit)
        assert source is not None
        whole = {part: artifact.load(source, part) for part in artifact.PARTS}
        return artifact.write(target, whole, name=prepared.name, classes=prepared.classes, source=prepared.source,
                              seed=prepared.seed, limit=prepared.limit)  # fmt: skip
    known = known_dataset(dataset)
    require(0 < validation < 1, "0 < validation < 1", "the share of the training images", validation=validation)
    require(0 <= seed < 2**32, "0 <= seed < 2**32", seed=seed)
    law = f"limit >= {LEAST_LIMIT}"
    require(limit is None or limit >= LEAST_LIMIT, law, "train and validation together", limit=limit)
    found = fetch(known, cache=cache or Settings.from_environment().cache, source=source)
    images, labels = found.array("train-images-idx3-ubyte"), found.array("train-labels-idx1-ubyte")
    test_images, test_labels = found.array("t10k-images-idx3-ubyte"), found.array("t10k-labels-idx1-ubyte")
    train, held_out = split(labels, validation=validation, limit=limit, seed=seed)
    parts = {
        "train": artifact.Part(images=images[train], labels=labels[train]),
        "validation": artifact.Part(images=images[held_out], labels=labels[held_out]),
        "test": artifact.Part(images=test_images, labels=test_labels),
    }
    return artifact.write(
        target, parts, name=known.name, classes=known.classes, source=found.source, seed=seed, limit=limit
    )


def _prepared(source: str | None) -> "DatasetInfo | None":
    from podium.data import artifact

    if source is None or source.startswith(("http://", "https://")):
        return None
    try:
        return artifact.describe(source)
    except NotFound:
        return None


def split(
    labels: "NDArray[np.uint8]", *, validation: float, limit: int | None = None, seed: int = 1
) -> tuple["NDArray[np.int64]", "NDArray[np.int64]"]:
    """Choose train and validation images, every class in proportion.

    Args:
        labels: Of all images, [n].
        validation: Share put aside.
        limit: How many images to use in all.
        seed: Equal seeds choose equal images, on every machine and numpy version.

    Returns:
        Indices of the train and of the validation images, ascending.
    """
    import numpy as np

    shuffle = np.random.RandomState(seed).permutation(len(labels))  # its stream is frozen, newer ones are not
    used, _ = _take(labels, shuffle, min(limit or len(labels), len(labels)))
    held_out, train = _take(labels, used, max(1, round(len(used) * validation)))
    return np.sort(train), np.sort(held_out)


def _take(
    labels: "NDArray[np.uint8]", indices: "NDArray[np.int64]", count: int
) -> tuple["NDArray[np.int64]", "NDArray[np.int64]"]:
    """Divide indices into count of them, with the classes in proportion, and the rest."""
    import numpy as np

    classes = labels[indices]
    shares = np.bincount(classes) * count / len(indices)
    quota = np.floor(shares).astype(int)
    quota[np.argsort(quota - shares, kind="stable")[: count - quota.sum()]] += 1  # the largest remainders fill up
    order = np.argsort(classes, kind="stable")
    rank = np.empty(len(indices), int)  # of each index among those of its class
    rank[order] = np.arange(len(indices)) - np.searchsorted(classes[order], classes[order])
    chosen = rank < quota[classes]
    return indices[chosen], indices[~chosen]

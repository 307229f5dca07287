"""Prepare a dataset: fetch, verify, split, write one artifact."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from podium.data.sources.known import LEAST_LIMIT, known_dataset
from podium.errors import NotFound, require
from podium.settings import Settings
from podium.steps.base import require_seed, step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from podium.data.artifact import DatasetInfo


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which dataset to prepare; fields are named as in the pipelines."""

    dataset: str = "mnist"
    """mnist or fashion-mnist."""

    source: str = ""
    """Directory or URI with the idx files; empty for cache, mirrors and package mirrors in that order. A source that
    holds a dataset artifact, for example of your own data, is taken as it is."""

    validation: float = 0.1
    """Share of the training images put aside for validation, 0 < share < 1."""

    limit: int = 0
    """How many of the training images to use, train and validation together; 0 for all."""

    seed: int = 1
    """Decides which images are chosen, nothing else."""

    def __post_init__(self) -> None:
        if not self.source:
            known_dataset(self.dataset)
        require(0 < self.validation < 1, "0 < validation < 1", "the share of the training images",
                validation=self.validation)  # fmt: skip
        require(self.limit == 0 or self.limit >= LEAST_LIMIT, f"limit >= {LEAST_LIMIT}",
                "train and validation together; 0 takes all", limit=self.limit)  # fmt: skip
        require_seed(self.seed)

    def held_out(self, images: int) -> int:
        """Return how many of these images are put aside for validation."""
        return max(1, round(images * self.validation))


@step
def prepare_data(settings: DataSettings, target: str | Path, *, cache: Path | None = None) -> "DatasetInfo":
    """Write the dataset artifact that every trainer and the evaluation read.

    The 60,000 training images are split into train and validation, every class in proportion (54,000 and 6,000 by
    default). The 10,000 test images are always kept whole, so that results stay comparable.

    Args:
        settings: Which dataset.
        target: Directory to write, which appears whole or not at all, or an ``s3://`` or ``minio://`` prefix.
        cache: Directory of verified downloads; the machine's own if None.

    Raises:
        InvalidInput: The dataset is unknown, a limit is given for a dataset artifact, or target holds something else.
        NotFound: The source lacks a file.
        Damaged: The source has a wrong file.
        Failed: No source has the files; the message names each.
        Conflict: The prefix holds another dataset.
        PodiumError: The artifact cannot be written, for example on a full disk.
    """
    from podium.data import artifact
    from podium.data.sources.mnist import fetch

    seed, limit, source = settings.seed, settings.limit or None, settings.source or None
    if prepared := _prepared(source):
        require(limit is None, "a dataset artifact is taken as it stands", "leave the limit out", limit=limit)
        assert source is not None
        whole = {part: artifact.load(source, part) for part in artifact.PARTS}
        descriptions = {
            name: artifact.InputDescription(meaning=described.meaning, columns=described.columns)
            for name, described in prepared.inputs.items()
        }
        return artifact.write(
            target, whole, name=prepared.name, kind=prepared.kind, classes=prepared.classes, inputs=descriptions,
            target_name=prepared.target.name, preprocessing=prepared.preprocessing, source=prepared.source,
            split=prepared.split, seed=prepared.seed, limit=prepared.limit,
        )  # fmt: skip
    known = known_dataset(settings.dataset)
    fetched = fetch(known, cache=cache or Settings.from_environment().cache, source=source)
    images, labels = fetched.array("train-images-idx3-ubyte"), fetched.array("train-labels-idx1-ubyte")
    test_images, test_labels = fetched.array("t10k-images-idx3-ubyte"), fetched.array("t10k-labels-idx1-ubyte")
    train, held_out = split(labels, settings)
    items = artifact.Part(inputs={"images": images}, target=labels)
    parts: dict[str, artifact.Part | artifact.Selection] = {
        "train": artifact.Selection(part=items, index=train),
        "validation": artifact.Selection(part=items, index=held_out),
        "test": artifact.Part(inputs={"images": test_images}, target=test_labels),
    }
    recipe = "garment" if known.name == "fashion-mnist" else "digit"
    return artifact.write(
        target, parts, name=known.name, kind="classification", classes=known.classes,
        inputs={"images": artifact.InputDescription(meaning="image")}, target_name="label",
        preprocessing={"kind": "image", "input": "images", "recipe": recipe, "size": [28, 28], "channels": 1},
        source=fetched.source, split="stratified", seed=seed, limit=limit,
    )  # fmt: skip


def _prepared(source: str | None) -> "DatasetInfo | None":
    from podium.data import artifact

    if source is None or source.startswith(("http://", "https://")):
        return None
    try:
        return artifact.describe(source)
    except NotFound:
        return None


def split(labels: "NDArray[np.uint8]", settings: DataSettings) -> tuple["NDArray[np.int64]", "NDArray[np.int64]"]:
    """Choose train and validation images, every class in proportion.

    Args:
        labels: Of all images, [n].
        settings: Share, limit and seed; equal seeds choose equal images, on every machine and numpy version.

    Returns:
        Indices of the train and of the validation images, ascending.
    """
    import numpy as np

    count = len(labels)
    shuffle = np.random.RandomState(settings.seed).permutation(count)  # its stream is frozen, newer ones are not
    used, _ = _take(labels, shuffle, min(settings.limit or count, count))
    held_out, train = _take(labels, used, settings.held_out(len(used)))
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

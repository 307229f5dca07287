"""What a dataset artifact is: the arrays of a part, and what ``dataset.json`` says of them."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.errors import require

FORMAT = "podium.dataset/1"
PARTS = ("train", "validation", "test")

Images = NDArray[np.uint8]
Labels = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a dataset in memory."""

    images: Images
    """uint8 [n, 28, 28], 0 is background."""

    labels: Labels
    """uint8 [n], indices into the classes."""

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        require(images.dtype == np.uint8, "images are uint8", dtype=str(images.dtype))
        require(labels.dtype == np.uint8, "labels are uint8", dtype=str(labels.dtype))
        require(images.ndim == 3 and images.shape[1:] == (28, 28), "images are [n, 28, 28]", shape=images.shape)
        require(labels.shape == images.shape[:1], "one label an image", images=images.shape, labels=labels.shape)


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """One file of the artifact."""

    file: str
    """Name relative to ``dataset.json``."""

    sha256: str
    """Of all its bytes."""

    bytes: int
    """Its size."""


@dataclass(frozen=True, kw_only=True)
class PartInfo:
    """What is known of a part without reading it."""

    count: int
    """Number of images."""

    class_counts: tuple[int, ...]
    """Images of each class, in the order of the classes."""

    images: FileInfo
    """uint8 [count, 28, 28]."""

    labels: FileInfo
    """uint8 [count]."""


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """Mirrors ``dataset.json``."""

    name: str
    """``mnist``, ``fashion-mnist``, or a name of your own."""

    digest: str
    """sha256 over the sha256 of the six files: equal digests are equal data."""

    classes: tuple[str, ...]
    """Name of each label."""

    mean: float
    """Of the training part's pixels, scaled to 0..1."""

    std: float
    """Of the training part's pixels, scaled to 0..1."""

    source: str
    """Where the bytes came from, for people."""

    seed: int
    """Of the validation split."""

    limit: int | None
    """How many images train and validation were limited to; None for all."""

    parts: dict[str, PartInfo]
    """``train``, ``validation`` and ``test``."""

    def to_json(self) -> dict[str, Any]:
        """Return what ``dataset.json`` holds."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "DatasetInfo":
        """Read what ``to_json`` wrote.

        Raises:
            KeyError, TypeError, ValueError: A field is missing or of the wrong kind.
        """
        parts = {name: _part_from_json(value["parts"][name]) for name in PARTS}
        fields = {key: value[key] for key in ("name", "digest", "source", "seed", "limit")}
        mean, std, classes = float(value["mean"]), float(value["std"]), tuple(value["classes"])
        return cls(**fields, mean=mean, std=std, classes=classes, parts=parts)


def _part_from_json(value: dict[str, Any]) -> PartInfo:
    images, labels = FileInfo(**value["images"]), FileInfo(**value["labels"])
    return PartInfo(count=value["count"], class_counts=tuple(value["class_counts"]), images=images, labels=labels)

"""The dataset artifact: the arrays of a part, and their description in ``dataset.json``."""

import re
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from podium.documents import parse
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
    """A file of the artifact."""

    file: str
    """Name relative to ``dataset.json``."""

    sha256: str
    """Of all its bytes."""

    bytes: int
    """Its size."""

    def __post_init__(self) -> None:
        beside = bool(re.fullmatch(r"\w[\w.-]*", self.file))
        require(beside, "a file of a dataset lies beside dataset.json", file=self.file)


@dataclass(frozen=True, kw_only=True)
class PartInfo:
    """Description of a part."""

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
    """Limit on the images of train and validation together; None for all."""

    parts: dict[str, PartInfo]
    """``train``, ``validation`` and ``test``."""

    def __post_init__(self) -> None:
        require(set(self.parts) == set(PARTS), f"parts are {', '.join(PARTS)}", parts=sorted(self.parts))
        for name, part in self.parts.items():
            counts = len(part.class_counts)
            require(counts == len(self.classes), "one count for each class", part=name, counts=counts,
                    classes=len(self.classes))  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return what ``dataset.json`` holds."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, value: Any, name: str) -> "DatasetInfo":
        """Read what ``to_json`` wrote.

        Args:
            value: Content of the file.
            name: Of the file, for the error.

        Raises:
            InvalidInput: A field is missing or of another type, or contradicts another.
        """
        return cast(DatasetInfo, parse(cls, value, name))

"""The dataset artifact: the arrays of a part, and their description in ``dataset.json``."""

import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.profile import Profile
from podium.errors import InvalidInput, require, suggestion

FORMAT = "podium.dataset/2"
INPUT_NAME = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)
"""Names of inputs, which are those of files too."""

PARTS = ("train", "validation", "test")
PART_NAMES = {
    "train": "train", "training": "train",
    "validation": "validation", "val": "validation", "valid": "validation", "dev": "validation",
    "test": "test", "testing": "test",
}  # fmt: skip
"""Parts by the names that folders may give them; case does not matter in a column."""

KINDS = ("classification", "regression")
_MEANINGS = ("image", "table", "tokens", "array")
MOST_CLASSES = 10_000

DATES = {
    "date": "2026-01-31 or 31.1.2026",
    "day/month/year": "31/1/2026",
    "month/day/year": "1/31/2026",
}
"""Types of columns that hold dates, with an example."""

NUMBERS = ("integer", "number")

Array = NDArray[Any]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """A file of the artifact."""

    file: str
    """Name relative to ``dataset.json``."""

    sha256: str
    bytes: int

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.-]*", self.file):
            raise InvalidInput(f"{self.file!r} is not the name of a file beside dataset.json")
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise InvalidInput(
                f"the sha256 of {self.file} is not 64 hexadecimal digits: {self.sha256!r}"
            )

    @classmethod
    def of(cls, path: Path) -> "FileInfo":
        """Describe a file beside ``dataset.json``."""
        with path.open("rb") as stream:
            digest = file_digest(stream, "sha256").hexdigest()
        return cls(file=path.name, sha256=digest, bytes=path.stat().st_size)

    def matches(self, path: Path) -> bool:
        """Return whether a file's bytes are those described, reading them once.

        Raises:
            OSError: It cannot be read.
        """
        with path.open("rb") as stream:
            return os.fstat(stream.fileno()).st_size == self.bytes and (
                file_digest(stream, "sha256").hexdigest() == self.sha256
            )


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table input."""

    name: str

    kind: str
    """``number``, or ``category``, whose values are indices into the categories."""

    categories: tuple[str, ...] = ()

    missing: int = 0
    """How many values the source did not have."""

    center: float = 0.0
    """Offset subtracted from a number, so that float32 holds it with all digits."""

    def __post_init__(self) -> None:
        if self.kind not in ("number", "category"):
            raise InvalidInput(f"column {self.name} is a {self.kind!r}", "number or category")


@dataclass(frozen=True, kw_only=True)
class InputDescription:
    """Meaning of an input, and the columns of a table: facts that its array does not hold."""

    meaning: str = "array"
    """``image``, ``table``, ``tokens`` or ``array``."""

    columns: tuple[Column, ...] = ()
    """Columns of a table, in the order of the array's."""

    def __post_init__(self) -> None:
        if self.meaning not in _MEANINGS:
            raise InvalidInput(
                f"an input cannot mean {self.meaning!r}", suggestion(self.meaning, _MEANINGS)
            )

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Check that an item of the input has the shape that its meaning asks for.

        Raises:
            InvalidInput: It has not.
        """
        sides, columns = list(shape), len(self.columns)
        if any(side < 1 for side in shape):
            raise InvalidInput(f"an item of shape {sides} is empty")
        if self.meaning == "image" and len(shape) != 2 and (len(shape) != 3 or shape[2] != 3):
            raise InvalidInput(
                f"an image cannot have shape {sides}", "[height, width] or [height, width, 3]"
            )
        if self.meaning == "table" and shape != (columns,):
            raise InvalidInput(
                f"a row of a table of {columns} columns cannot have shape {sides}", "[columns]"
            )
        if self.meaning == "tokens" and len(shape) != 1:
            raise InvalidInput(f"tokens cannot have shape {sides}", "[length]")


@dataclass(frozen=True, kw_only=True)
class InputInfo:
    """Description of an input."""

    meaning: str

    dtype: str

    shape: tuple[int, ...]
    """Shape of one item: [height, width] of a gray picture, [height, width, 3] of a color one,
    [columns] of a table."""

    columns: tuple[Column, ...] = ()
    """Columns of a table, in the order of the array's."""

    mean: tuple[float, ...]
    """Measured on the training part: one for each channel of an image (uint8 pixels scaled to 0..1)
    and each column of a table, else one of all values."""

    std: tuple[float, ...]

    def __post_init__(self) -> None:
        InputDescription(meaning=self.meaning, columns=self.columns).check_shape(self.shape)
        expected = len_statistics(self.meaning, self.shape)
        if not len(self.mean) == len(self.std) == expected:
            raise InvalidInput(
                f"an input has {expected} means and stds, not {len(self.mean)} and {len(self.std)}",
                "one of each for every channel of an image or column of a table",
            )
        _check_dtype(self.dtype, "biuf", "an input holds numbers")


@dataclass(frozen=True, kw_only=True)
class TargetInfo:
    """Description of the target."""

    name: str

    dtype: str

    shape: tuple[int, ...] = ()
    """Shape of one item: () of a class index or a single number, [k] of k numbers."""

    mean: tuple[float, ...] | None = None
    """Regression: of each number in the training part."""

    std: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class PartInfo:
    """Description of a part."""

    count: int

    class_counts: tuple[int, ...] = ()
    """Items of each class, in the order of the classes; empty for regression."""

    inputs: dict[str, FileInfo]

    target: FileInfo

    groups: FileInfo | None = None
    """A 64-bit hash of each item's group, if items were divided by group."""

    keys: FileInfo | None = None
    """A 64-bit hash of each item as it came."""

    times: FileInfo | None = None
    """The time of each item, if items were divided by time."""

    originals: FileInfo | None = None
    """Test part: its rows, or the bytes of its pictures, as they came; Parquet. A model with a
    preprocessing of its own is measured on these."""

    @property
    def arrays(self) -> tuple[FileInfo, ...]:
        """The files of the inputs in order of name, then that of the target."""
        return (*(self.inputs[name] for name in sorted(self.inputs)), self.target)

    @property
    def files(self) -> tuple[FileInfo, ...]:
        """All files of the part."""
        return (*self.arrays, *filter(None, (self.groups, self.keys, self.times, self.originals)))


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """Mirrors ``dataset.json``."""

    name: str

    kind: str
    """``classification`` or ``regression``."""

    digest: str
    """sha256 over the sha256 of all arrays: equal digests are equal data."""

    classes: tuple[str, ...] = ()
    """Name of each class; empty for regression."""

    inputs: dict[str, InputInfo]

    target: TargetInfo

    preprocessing: dict[str, Any]
    """How raw pictures, rows or sentences become inputs, see podium.data.preprocessing; empty if
    unknown."""

    source: str
    """Where the bytes came from, for people."""

    split: str
    """How the items were divided, for people: ``stratified``, ``random``, ``group by patient`` …"""

    seed: int
    limit: int | None
    """Limit on the items of train and validation together; None for all."""

    gap: float = 0.0
    """Time that was left between parts, in days if times are dates; folds leave it, too."""

    warnings: tuple[str, ...] = ()
    """Warnings of the preparation, such as accepted items that are in two parts."""

    seen: FileInfo | None = None
    """File with hashes of the items of train and validation and of their groups, without accepted
    overlaps."""

    test_part: str = ""
    """Identity of the test items in the source, independent of preprocessing: see
    podium.data.test_part."""

    profile: Profile
    """The inputs of the training part in bins."""

    parts: dict[str, PartInfo]
    """``train``, ``validation`` and ``test``; the files of the last lie elsewhere: see
    podium.data.artifact."""

    def __post_init__(self) -> None:
        check_kind(self.kind, self.classes)
        check_part_names(self.parts)
        if not self.inputs:
            raise InvalidInput(f"dataset {self.name} has no inputs")
        integers = self.kind == "classification"
        _check_dtype(
            self.target.dtype,
            "iu" if integers else "f",
            f"the target of a {self.kind} holds {'integers' if integers else 'floats'}",
        )
        for name, part in self.parts.items():
            if len(part.class_counts) != len(self.classes):
                raise InvalidInput(
                    f"{name} counts {len(part.class_counts)} classes of {len(self.classes)}"
                )
            if set(part.inputs) != set(self.inputs):
                raise InvalidInput(
                    f"{name} has inputs {sorted(part.inputs)}, but the dataset {sorted(self.inputs)}"
                )

    @property
    def meaning(self) -> str:
        """Meaning of the first input: image, table, tokens or array."""
        return next(iter(self.inputs.values())).meaning

    @property
    def has_groups(self) -> bool:
        """Whether items belong to groups, so that those of one count together."""
        return self.parts["test"].groups is not None

    @property
    def given(self) -> tuple[FileInfo, ...]:
        """The files that lie beside ``dataset.json``: those of train and validation, and of what
        was seen."""
        kept = (*self.parts["train"].files, *self.parts["validation"].files)
        return (*kept, self.seen) if self.seen else kept

    @property
    def test_digest(self) -> str:
        """Checksum of the test part: versions with equal ones were measured on the same items."""
        return digest_of(self.parts["test"])

    def to_json(self) -> dict[str, Any]:
        """Return what ``dataset.json`` holds."""
        return {"format": FORMAT, **asdict(self)}


def digest_of(*parts: PartInfo) -> str:
    """Return the sha256 over the sha256 of the parts' arrays."""
    return sha256(
        "".join(file.sha256 for part in parts for file in part.arrays).encode()
    ).hexdigest()


def check_kind(kind: str, classes: tuple[str, ...]) -> None:
    """Check that classes fit the kind of a dataset.

    Raises:
        InvalidInput: They do not.
    """
    if kind not in KINDS:
        raise InvalidInput(f"a dataset cannot be a {kind!r}", suggestion(kind, KINDS))
    if kind == "regression" and classes:
        raise InvalidInput(f"a regression has no classes, but there are {len(classes)}")
    if kind != "regression":
        require(
            2 <= len(classes) <= MOST_CLASSES,
            f"2 <= number of classes <= {MOST_CLASSES}",
            classes=len(classes),
        )


def check_part_names(parts: Iterable[str]) -> None:
    """Check that a dataset is divided into the three parts.

    Raises:
        InvalidInput: It is not.
    """
    if set(parts) != set(PARTS):
        raise InvalidInput(
            f"a dataset has the parts {', '.join(PARTS)}, but got {', '.join(sorted(parts)) or 'none'}"
        )


def len_statistics(meaning: str, shape: tuple[int, ...]) -> int:
    """Return how many means an input has: one for each channel of an image and each column of a
    table, else one."""
    if meaning == "table":
        return shape[0]
    return shape[2] if meaning == "image" and len(shape) == 3 else 1


def _check_dtype(dtype: str, kinds: str, rule: str) -> None:
    try:
        parsed = np.dtype(dtype)
    except TypeError:
        parsed = None
    if parsed is None or parsed.kind not in kinds or parsed.str != parsed.newbyteorder("=").str:
        raise InvalidInput(f"{rule}, not {dtype}")

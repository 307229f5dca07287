"""What a source hands over."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from podium.data.schema import Array, InputDescription, Split, check_kind
from podium.errors import require

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass(frozen=True, kw_only=True)
class Raw:
    """The items of a source: all of them to be divided, or with parts that the source has divided itself.

    Every source module has ``read(location: str, options: DataOptions, scratch: Path) -> Raw``. Arrays may be mapped
    from files, for example below scratch, and larger than memory; scratch is removed once the artifact is written.
    """

    items: Split
    """Everything that is to be divided into the parts the source does not have.

    If there is a fit, it has one input ``row``, which only counts the items."""

    validation: Split | None = None
    """The validation part, if the source has one."""

    test: Split | None = None
    """The test part, if the source has one."""

    name: str
    """Name of the dataset, for people."""

    kind: str
    """``classification`` or ``regression``."""

    classes: tuple[str, ...] = ()
    """Name of each class; empty for regression."""

    descriptions: Mapping[str, InputDescription]
    """What each input means."""

    target_name: str
    """Name of the target, for people."""

    preprocessing: dict[str, Any] = field(default_factory=dict)
    """How raw data becomes inputs, see podium.data.preprocessing; empty if unknown."""

    source: str
    """Where the bytes came from, for people."""

    groups: Array | None = None
    """Of each of the items [n], integers or text: items of one group stay in one part."""

    times: Array | None = None
    """Of each of the items [n], anything numpy sorts: the oldest train, the newest test."""

    keys: NDArray[np.uint64] | None = None
    """Of each of the items [n], a 64-bit hash: an item's part follows from it. None hashes the inputs."""

    part_groups: Mapping[str, Array] = field(default_factory=dict)
    """Groups of the items of the parts that the source has divided itself, by part."""

    originals: "Callable[[NDArray[np.int64] | None], Iterator[RecordBatch]] | None" = None
    """Given positions, yields these items as they came: rows, or pictures; given None, those of the source's own test
    part. None if the inputs are all there is."""

    given: NDArray[np.str_] | None = None
    """Of each of the items [n]: ``train``, ``validation`` or ``test``."""

    fit: "Callable[[NDArray[np.int64]], Raw] | None" = None
    """Given the positions of the training items, returns the same items with inputs fitted on those alone: medians,
    categories, a vocabulary. None if nothing is fitted."""

    published: bool = False
    """Whether this is a known dataset, taken with the duplicates it was published with."""

    def __post_init__(self) -> None:
        check_kind(self.kind, self.classes)
        for name in ("groups", "times", "given", "keys"):
            column = getattr(self, name)
            if column is not None:
                require(column.shape == (len(self.items),), f"{name} has one value an item", items=len(self.items),
                        shape=column.shape)  # fmt: skip

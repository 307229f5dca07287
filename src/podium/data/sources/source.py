"""Data sources: what reads a pipeline's ``dataset=NAME:LOCATION``. A new one is a file with its
Source, and a line in SOURCES."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from podium.data.options import DataOptions
from podium.data.schema import Array, InputDescription, check_kind
from podium.data.sources.known import DATASETS
from podium.data.split import Split
from podium.errors import InvalidInput, require, suggestion
from podium.system.plugins import Table

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass(frozen=True, kw_only=True)
class Raw:
    """The items of a source: all of them to be divided, or with parts that the source has divided
    itself.

    Arrays may be mapped from files, for example below the folder that a source is given, and larger
    than memory.
    """

    items: Split
    """Everything that is to be divided into the parts the source does not have.

    If there is a fit, it has one input ``row``, which only counts the items."""

    validation: Split | None = None
    """The validation part, if the source has one."""

    test: Split | None = None
    """The test part, if the source has one."""

    name: str

    kind: str

    classes: tuple[str, ...] = ()
    """Name of each class; empty for regression."""

    descriptions: Mapping[str, InputDescription]

    target_name: str

    preprocessing: dict[str, Any] = field(default_factory=dict)
    """How raw data becomes inputs, see podium.data.preprocessing; empty if unknown."""

    source: str
    """Where the bytes came from, for people."""

    groups: Array | None = None
    """The group of each item [n], integers or text: items of one group stay in one part."""

    times: Array | None = None
    """The time of each item [n], anything numpy sorts: the oldest train, the newest test."""

    clusters: Array | None = None
    """The cluster of each item [n], text: test items of one cluster count together."""

    keys: NDArray[np.uint64] | None = None
    """A 64-bit hash of each item [n]: an item's part follows from it. None hashes the inputs."""

    part_groups: Mapping[str, Array] = field(default_factory=dict)
    """Groups of the items of the parts that the source has divided itself, by part."""

    originals: "Callable[[NDArray[np.int64] | None], Iterator[RecordBatch]] | None" = None
    """Given positions, yields these items as they came: rows, or pictures; given None, those of the
    source's own test part. None if the inputs are all there is."""

    given: NDArray[np.str_] | None = None
    """The part of each item [n]: ``train``, ``validation`` or ``test``."""

    fit: "Callable[[NDArray[np.int64]], Raw] | None" = None
    """Given the positions of the training items, returns the same items with inputs fitted on those
    alone: medians, categories, a vocabulary. None if nothing is fitted."""

    published: bool = False
    """Whether this is a known dataset, taken with the duplicates it was published with."""

    def __post_init__(self) -> None:
        check_kind(self.kind, self.classes)
        for name in ("groups", "times", "clusters", "given", "keys"):
            column = getattr(self, name)
            if column is not None:
                require(
                    column.shape == (len(self.items),),
                    f"{name}.shape == (items,)",
                    items=len(self.items),
                    shape=column.shape,
                )


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data source. Its functions take a location, the options, and a folder for what they fetch
    or unpack."""

    name: str
    """Prefix of a dataset before its colon, or the name of a known dataset."""

    options: tuple[str, ...]
    """The data options that it has."""

    read: Callable[[str, DataOptions, Path], Raw]

    open: Callable[[str, DataOptions, Path], Any] = lambda location, options, folder: None
    """Refuses a large file whose columns are not those that the options name, without reading
    it."""

    kind: str = ""
    """``classification`` or ``regression``, if the data are always of one kind."""

    cached: bool = False
    """Whether its folder is the cache of this machine, not one that is removed once the artifact is
    written."""

    def check(self, options: DataOptions) -> None:
        """Refuse options that it does not have.

        Raises:
            InvalidInput: One that it does not have is given.
        """
        for option in fields(options):
            if option.name not in self.options and getattr(options, option.name) != option.default:
                raise InvalidInput(
                    f"{self.name} has no option {option.name}",
                    suggestion(option.name, self.options),
                )


SOURCES = Table[str | Source](
    "sources",
    {
        "images": "podium.data.sources.images:IMAGES",
        "table": "podium.data.sources.table:TABLE",
        "text": "podium.data.sources.text:TEXT",
        "npz": "podium.data.sources.npz:NPZ",
    },
    Source,
)
"""Where the Source of each name is, which is imported when it is needed; of another distribution
the Source itself."""


def find_source(name: str) -> Source:
    """Return the source of a name of SOURCES, or of a known dataset."""
    if name in DATASETS:
        return import_module("podium.data.sources.mnist").known_source(DATASETS[name])
    found = SOURCES[name]
    if isinstance(found, Source):
        return found
    module, _, declared = found.partition(":")
    source: Source = getattr(import_module(module), declared)
    return source

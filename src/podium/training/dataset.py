"""Which dataset to prepare, and how."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podium.data.options import DataOptions
from podium.data.sources.known import DATASETS, known_dataset
from podium.data.sources.source import SOURCES, Source, find_source
from podium.errors import InvalidInput, require, suggestion

_LEAST_LIMIT = 20
"""Items of a limited dataset at least, train and validation together."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which dataset to prepare; fields are named as in the pipelines."""

    dataset: str = "mnist"
    """mnist or fashion-mnist; images:DIRECTORY, table:FILE, text:FILE or npz:FILE; or the path or
    URI of a prepared dataset, which is taken as it is."""

    source: str = ""
    """Directory or URI with the idx files of mnist or fashion-mnist; empty for cache, mirrors and
    package mirrors in that order."""

    target: str = ""
    """Name of the target: the column of a table or of text, the array of an .npz."""

    limit: int = 0
    """How many items to use, train and validation together; 0 for all."""

    data_options: Mapping[str, Any] = field(default_factory=dict)
    """The other fields of podium.data.options.DataOptions, by name."""

    def __post_init__(self) -> None:
        require(isinstance(self.limit, int), "limit is a whole number", limit=self.limit)
        require(
            self.limit == 0 or self.limit >= _LEAST_LIMIT,
            f"limit >= {_LEAST_LIMIT}",
            "train and validation together; 0 takes all",
            limit=self.limit,
        )
        if self.dataset not in DATASETS:
            if self.source:
                hint = "name your own data itself: dataset=table:FILE, or the path of a prepared dataset"
                raise InvalidInput(
                    f"source is for mnist and fashion-mnist, but dataset is {self.dataset!r}", hint
                )
            if not self.kind:
                self._check_location()
        if self.is_prepared:
            self._require_dataset()
            options = {
                "limit": self.limit,
                "target": self.target,
                "data_options": self.data_options,
            }
            if wrong := ", ".join(f"{name}={value!r}" for name, value in options.items() if value):
                raise InvalidInput(
                    f"a prepared dataset is taken as it is, but got {wrong}",
                    "leave the options out",
                )
        elif self.options and self.dataset in DATASETS:
            allowed = find_source(self.dataset).options
            for name in (*self.data_options, *(["target"] if self.target else [])):
                if name not in allowed:
                    raise InvalidInput(
                        f"{self.dataset} has no option {name}", f"options: {', '.join(allowed)}"
                    )

    @property
    def kind(self) -> str:
        """Prefix before the colon; empty for a known or a prepared dataset."""
        kind, colon, _ = self.dataset.partition(":")
        return kind if colon and kind in SOURCES else ""

    @property
    def reader(self) -> Source:
        """The source that reads the data; a prepared dataset has none."""
        return find_source(self.kind or self.dataset)

    @property
    def location(self) -> str:
        """Where the source finds the data: what stands after the colon; of a known dataset, its
        source."""
        return self.dataset.partition(":")[2] if self.kind else self.source

    @property
    def name(self) -> str:
        """Name of the dataset if the options have none: that of the known dataset, or of the file
        without ending."""
        where = Path(self.location.rstrip("/")).absolute()
        return where.name.partition(".")[0] if self.kind else self.dataset

    @property
    def is_prepared(self) -> bool:
        """Whether the dataset is the path or URI of a prepared one."""
        if self.dataset in DATASETS or self.kind:
            return False
        return (
            "/" in self.dataset
            or ":" in self.dataset
            or os.path.isfile(f"{self.dataset}/dataset.json")
        )

    @property
    def locations(self) -> tuple[str, ...]:
        """Files, folders and URIs that the data are read from; none of a known dataset from its
        mirrors."""
        if self.dataset in DATASETS:
            return (self.source,) if self.source and not self.source.startswith("http") else ()
        if self.is_prepared:
            return (
                f"{self.dataset.rstrip('/')}/dataset.json",
            )  # it holds the checksums of all files
        if not self.location:
            raise InvalidInput(f"{self.dataset} names no file or folder", "as in table:houses.csv")
        return (self.location, *([self.options.test] if isinstance(self.options.test, str) else []))

    def _check_location(self) -> None:
        word, colon, rest = self.dataset.partition(":")
        if not self.is_prepared:
            known_dataset(self.dataset)
        elif (
            colon
            and "/" not in word
            and not rest.startswith("/")
            and not os.path.exists(self.dataset)
        ):
            raise InvalidInput(f"no source is called {word!r}", suggestion(word, SOURCES))

    def _require_dataset(self) -> None:
        """Refuse a file or folder of this machine that no dataset was prepared into."""
        path = Path(self.dataset)
        if path.exists() and not (path / "dataset.json").is_file():
            kind = "images" if path.is_dir() else "npz" if path.suffix == ".npz" else "table"
            raise InvalidInput(
                f"{self.dataset} is not a prepared dataset, which has a dataset.json",
                f"say what it holds: {shlex.quote(f'{kind}:{self.dataset}')}",
            )

    @property
    def options(self) -> "DataOptions":
        """Options of the source, checked."""
        return DataOptions.read(self.target, self.data_options)

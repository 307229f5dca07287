"""Prepare a dataset: read a source, divide it, write one artifact."""

import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from podium.data.sources.known import DATASETS, known_dataset
from podium.errors import InvalidInput, require, suggestion
from podium.settings import Settings
from podium.steps.base import require_seed
from podium.steps.step import step

if TYPE_CHECKING:
    from podium.data.artifact import DatasetInfo, Part, Selection
    from podium.data.options import DataOptions
    from podium.data.sources.raw import Raw

log = logging.getLogger("podium.data")

SOURCES = ("images", "table", "text", "npz")
"""What may stand before the colon of a dataset, each a module of podium.data.sources."""

KNOWN_OPTIONS = ("validation", "split")
"""Options of mnist and fashion-mnist, whose images, classes and test part are given."""

LEAST_LIMIT = 20
"""Items of a limited dataset at least, train and validation together."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which dataset to prepare; fields are named as in the pipelines."""

    dataset: str = "mnist"
    """mnist or fashion-mnist; images:DIRECTORY, table:FILE, text:FILE or npz:FILE; or the path or URI of a prepared
    dataset, which is taken as it is."""

    source: str = ""
    """Directory or URI with the idx files of mnist or fashion-mnist; empty for cache, mirrors and package mirrors in
    that order."""

    target: str = ""
    """Name of the target: the column of a table or of text, the array of an .npz."""

    limit: int = 0
    """How many items to use, train and validation together; 0 for all."""

    seed: int = 1
    """Decides which items are chosen, nothing else."""

    data_options: Mapping[str, Any] = field(default_factory=dict)
    """The other fields of podium.data.options.DataOptions, by name."""

    def __post_init__(self) -> None:
        require(self.limit == 0 or self.limit >= LEAST_LIMIT, f"limit >= {LEAST_LIMIT}",
                "train and validation together; 0 takes all", limit=self.limit)  # fmt: skip
        require_seed(self.seed)
        if self.dataset not in DATASETS:
            require(not self.source, "source holds the idx files of mnist or fashion-mnist",
                    "name your own data itself: dataset=table:FILE, or the path of a prepared dataset",
                    dataset=self.dataset, source=self.source)  # fmt: skip
            if not self.kind:
                self._check_location()
        if self.is_prepared:
            given = {"limit": self.limit, "target": self.target, "data_options": self.data_options}
            require(not any(given.values()), "a prepared dataset is taken as it is", "leave the options out",
                    **{name: value for name, value in given.items() if value})  # fmt: skip
        elif self.options and self.dataset in DATASETS:
            for name in (*self.data_options, *(["target"] if self.target else [])):
                if name not in KNOWN_OPTIONS:
                    raise InvalidInput(f"{self.dataset} has no option {name}", f"options: {', '.join(KNOWN_OPTIONS)}")

    @property
    def kind(self) -> str:
        """What stands before the colon; empty for a known or a prepared dataset."""
        kind, colon, _ = self.dataset.partition(":")
        return kind if colon and kind in SOURCES else ""

    @property
    def name(self) -> str:
        """Name of the dataset if the options have none: that of the known dataset, or of the file without ending."""
        return Path(self.dataset.partition(":")[2].rstrip("/")).name.partition(".")[0] if self.kind else self.dataset

    @property
    def is_prepared(self) -> bool:
        """Whether the dataset is the path or URI of a prepared one."""
        if self.dataset in DATASETS or self.kind:
            return False
        return "/" in self.dataset or ":" in self.dataset or os.path.isfile(f"{self.dataset}/dataset.json")

    @property
    def training_items(self) -> int | None:
        """How many items the limit leaves for training at most; None without a limit."""
        from podium.data.splits import held_out

        return self.limit - held_out(self.limit, self.options.validation) if self.limit else None

    def _check_location(self) -> None:
        """Refuse what is neither the name of a known dataset nor looks like a path or URI."""
        word, colon, rest = self.dataset.partition(":")
        if not self.is_prepared:
            known_dataset(self.dataset)
        elif colon and "/" not in word and not rest.startswith("/") and not os.path.exists(self.dataset):
            raise InvalidInput(f"no source is called {word!r}", suggestion(word, SOURCES))

    @property
    def options(self) -> "DataOptions":
        """Options of the source, checked."""
        from podium.data.options import DataOptions

        return DataOptions.read(self.target, self.data_options)


@step
def prepare_data(
    settings: DataSettings,
    target: str | Path,
    *,
    cache: Path | None = None,
    metric: str = "",
) -> "DatasetInfo":
    """Write the dataset artifact that every trainer and the evaluation read.

    Items are divided as podium.data.splits says. The 60,000 training images of MNIST and Fashion-MNIST are split into
    train and validation, every class in proportion (54,000 and 6,000 by default); their 10,000 test images are always
    kept whole, so that results stay comparable.

    Args:
        settings: Which dataset.
        target: Directory to write, which appears whole or not at all, or an ``s3://`` or ``minio://`` prefix.
        cache: Directory of verified downloads; the machine's own if None.
        metric: What models will be chosen by; refused here if it is of the other kind, before anything is trained.

    Raises:
        InvalidInput: The data, an option or the metric breaks a rule, items occur in two parts, or target holds
            something else.
        NotFound: The source lacks a file.
        Damaged: The source has a wrong file.
        Failed: No source has the files; the message names each.
        Conflict: The prefix holds another dataset.
        PodiumError: The artifact cannot be written, for example on a full disk.
    """
    from podium.data import artifact
    from podium.data.splits import divide

    if settings.is_prepared:
        _check_metric(metric, artifact.describe(settings.dataset).kind)
        return artifact.copy(settings.dataset, target)
    with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
        raw = _read(settings, cache or Settings.from_environment().cache, Path(scratch))
        _check_metric(metric, raw.kind)
        limit = settings.limit or None
        division = divide(raw, settings.options, seed=settings.seed, limit=limit)
        raw = raw if raw.fit is None else raw.fit(division.index["train"])
        own: dict[str, Part | None] = {"validation": raw.validation, "test": raw.test}
        parts = {part: artifact.Selection(part=whole) for part, whole in own.items() if whole is not None}
        parts |= {part: artifact.Selection(part=raw.items, index=index) for part, index in division.index.items()}
        _check_overlaps(parts, allowed=settings.options.allow_duplicates or raw.published)
        info = artifact.write(
            target, parts, name=raw.name, kind=raw.kind, classes=raw.classes, inputs=raw.descriptions,
            target_name=raw.target_name, preprocessing=raw.preprocessing, source=raw.source, split=division.how,
            seed=settings.seed, limit=limit,
        )  # fmt: skip
    _report_classes(info)
    return info


def _check_metric(text: str, kind: str) -> None:
    from podium.scoring import METRICS
    from podium.scoring.metrics import require_kind

    if known := METRICS.get(text.rpartition(":")[2]):
        require_kind(known, kind)


def _read(settings: DataSettings, cache: Path, scratch: Path) -> "Raw":
    if settings.kind:
        location = settings.dataset.partition(":")[2]
        require(location != "", "a source has a location", "as in table:houses.csv", dataset=settings.dataset)
        module = import_module(f"podium.data.sources.{settings.kind}")
        return cast("Raw", module.read(location, settings.options, scratch))
    from podium.data.sources import mnist

    return mnist.read(known_dataset(settings.dataset), cache=cache, source=settings.source or None)


def _check_overlaps(parts: "Mapping[str, Selection]", *, allowed: bool) -> None:
    from podium.data.duplicates import find_overlaps

    overlaps = find_overlaps(parts)
    if overlaps and not allowed:
        raise InvalidInput(
            "; ".join(map(str, overlaps)),
            "remove the duplicates, keep them together by a group, or accept them: data_options.allow_duplicates=true",
        )
    for overlap in overlaps:
        log.warning("%s", overlap)


def _report_classes(info: "DatasetInfo") -> None:
    for part in info.parts:
        missing = [name for name, count in zip(info.classes, info.parts[part].class_counts, strict=False) if not count]
        if missing:
            more = f" and {len(missing) - 5} more classes" if len(missing) > 5 else ""
            log.warning("the %s part has no item of %s%s", part, ", ".join(missing[:5]), more)

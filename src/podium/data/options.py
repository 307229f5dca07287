"""The options of a data source: which column is the target, how items are divided, how pictures and text are read."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from podium.data.schema import KINDS
from podium.documents import parse
from podium.errors import InvalidInput, require, suggestion

SPLITS = ("stratified", "random", "group", "time", "given")


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options of a source; those that a kind of source does not know are refused by it.

    In the pipelines, ``target`` is a parameter and all others are members of ``data_options``.
    """

    target: str = ""
    """Name of the target column of a table or of text; of the target array of an .npz."""

    name: str = ""
    """Name of the dataset; empty takes it from the source."""

    kind: str = ""
    """``classification`` or ``regression``; empty follows from the target."""

    split: str = ""
    """``stratified``, ``random``, ``group``, ``time`` or ``given``; empty follows from group, time, part and kind."""

    group: str = ""
    """Column or array that says which items stay together."""

    time: str = ""
    """Column or array by which the oldest items train and the newest test."""

    part: str = ""
    """Column or array that names the part of each item: train, validation or test."""

    validation: float = 0.1
    """Share of the items put aside for validation, of those that are not the test part."""

    test: float = 0.1
    """Share of all items put aside as the test part, if the source has none."""

    allow_duplicates: bool = False
    """Whether an item may occur in two parts."""

    def __post_init__(self) -> None:
        require(self.kind in ("", *KINDS), f"kind is {' or '.join(KINDS)}", kind=self.kind)
        require(self.split in ("", *SPLITS), f"split is one of {', '.join(SPLITS)}", split=self.split)
        require(0 < self.validation < 1, "0 < validation < 1", "the share of the training items",
                validation=self.validation)  # fmt: skip
        require(0 < self.test < 1, "0 < test < 1", "the share of all items", test=self.test)

    @classmethod
    def read(cls, target: str, options: Mapping[str, Any]) -> "DataOptions":
        """Check and convert what a user wrote.

        Args:
            target: Name of the target.
            options: By name, as in JSON.

        Raises:
            InvalidInput: An option is unknown, of another type, or out of its range.
        """
        known = [field.name for field in fields(cls) if field.name != "target"]
        for name in options:
            if name not in known:
                raise InvalidInput(f"data_options has no {name!r}", suggestion(str(name), known))
        return cast(DataOptions, parse(cls, {**options, "target": target}, "data_options"))

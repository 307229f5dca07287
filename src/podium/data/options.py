"""The options of a data source: which column is the target, how items are divided, how pictures and text are read."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from podium.data.schema import KINDS
from podium.documents import parse
from podium.errors import InvalidInput, require, suggestion

SPLITS = ("stratified", "random")
LISTS = ("drop", "categories", "numbers", "missing_values")
MISSING = ("fill", "indicator", "refuse")
COMMON = ("name", "kind", "split", "validation", "test", "allow_duplicates")


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
    """``stratified`` or ``random``; empty takes the first for classes and the second for numbers."""

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

    drop: tuple[str, ...] = ()
    """Columns of a table to leave out."""

    categories: tuple[str, ...] = ()
    """Columns of a table that are categories, whatever they look like."""

    numbers: tuple[str, ...] = ()
    """Columns of a table that are numbers, whatever they look like."""

    missing: str = ""
    """What becomes of missing values of a table: ``fill`` (the default) takes the median of a number, and a category of
    its own; ``indicator`` also marks filled numbers in a column of their own; ``refuse`` takes none."""

    missing_values: tuple[str, ...] = ()
    """Texts that mean that a value is missing; empty for the usual ones: nothing, NA, null, ? …"""

    max_categories: int = 0
    """Of a column of a table; 0 for 1,000."""

    delimiter: str = ""
    """Of a CSV file; empty follows from its header."""

    encoding: str = "utf-8"
    """Of a CSV file."""

    text: str = ""
    """Column of the sentences; empty for ``text``."""

    length: int = 0
    """Words of a sentence, longer ones are cut; 0 for the longest one, at most 128."""

    max_words: int = 0
    """Words of the vocabulary, the most frequent; 0 for 20,000."""

    resize: tuple[int, ...] = ()
    """Height and width of pictures; empty if all have one size."""

    channels: int = 0
    """Of pictures: 1 for gray, 3 for color; 0 for 1 if all are gray."""

    def __post_init__(self) -> None:
        require(self.kind in ("", *KINDS), f"kind is {' or '.join(KINDS)}", kind=self.kind)
        require(self.split in ("", *SPLITS), f"split is one of {', '.join(SPLITS)}", split=self.split)
        require(0 < self.validation < 1, "0 < validation < 1", "the share of the training items",
                validation=self.validation)  # fmt: skip
        require(self.missing in ("", *MISSING), f"missing is one of {', '.join(MISSING)}", missing=self.missing)
        require(self.channels in (0, 1, 3), "channels is 1 or 3", channels=self.channels)
        for name in ("max_categories", "length", "max_words"):
            require(getattr(self, name) >= 0, f"{name} >= 0", **{name: getattr(self, name)})
        require(0 < self.test < 1, "0 < test < 1", "the share of all items", test=self.test)

    def only(self, source: str, *names: str) -> None:
        """Refuse options that a kind of source does not know.

        Args:
            source: ``table``, for example.
            names: Options it knows besides those that all sources know.

        Raises:
            InvalidInput: One that it does not know is given.
        """
        for option in fields(self):
            if option.name not in (*COMMON, *names) and getattr(self, option.name) != option.default:
                raise InvalidInput(f"{source} has no option {option.name}", f"options: {', '.join((*names, *COMMON))}")

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
        values = {name: _as_list(name, _whole(value)) for name, value in options.items()}
        return parse(cls, {**values, "target": target}, "data_options")


def _as_list(name: str, value: Any) -> Any:
    """Return one text as a list of one where an option lists texts: ``drop=id``."""
    return [value] if isinstance(value, str) and name in LISTS else value


def _whole(value: Any) -> Any:
    """Return 64 for 64.0: the parameters of a pipeline have no whole numbers inside."""
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value

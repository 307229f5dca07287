"""The options of a data source: which column is the target, how items are divided, how pictures and
text are read."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from podium.data.contract import Contract
from podium.data.option_text import as_list
from podium.data.schema import KINDS
from podium.errors import InvalidInput, require, suggestion
from podium.files.documents import parse, with_whole_numbers

_SPLITS = ("stratified", "random")
_MISSING = ("fill", "indicator", "refuse")
COMMON = ("name", "kind", "split", "split_seed", "validation", "test", "allow_duplicates")


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
    """``stratified`` or ``random``; empty takes the first for classes and the second for
    numbers."""

    split_seed: int = 1
    """Decides which items form which part, and nothing else: the seed of a training is another."""

    split_by: tuple[str, ...] = ()
    """Columns of a table that tell one row from another, such as an id: a row stays in its part
    while they are the same. Empty for all columns but the target."""

    group: str = ""
    """Column or array that says which items stay together."""

    cluster: str = ""
    """Column of a table whose rows count together in intervals and comparisons, such as the shop in
    a series of weeks. It stays an input, and divides nothing."""

    time: str = ""
    """Column or array by which the oldest items train and the newest test. With a group, items of
    an older part whose group occurs in a newer one are left out."""

    gap: float = 0.0
    """With time: items so much older than the newer part are left out between the parts; days if
    times are dates."""

    part: str = ""
    """Column or array that names the part of each item: train, validation or test."""

    validation: float = 0.1
    """Share of the items put aside for validation, of those that are not the test part."""

    test: float | str = 0.1
    """Share of all items put aside as the test part, if the source has none; or the location of the
    test part: a file or folder like the source."""

    allow_duplicates: bool = False
    """Whether an item may occur in two parts."""

    drop: tuple[str, ...] = ()
    """Columns of a table to leave out."""

    categories: tuple[str, ...] = ()
    """Columns of a table that are categories, whatever they look like."""

    numbers: tuple[str, ...] = ()
    """Columns of a table that are numbers, whatever they look like."""

    missing: str = ""
    """How to handle missing values of a table: ``fill`` (the default) takes the median of a number,
    and a category of its own; ``indicator`` also marks filled numbers in a column of their own;
    ``refuse`` takes none."""

    missing_values: tuple[str, ...] | None = None
    """Texts that mean that a value is missing; None for the usual ones: nothing, NA, null, ? …"""

    max_categories: int = 0
    """Most categories of a column of a table; 0 for 1,000."""

    contract: Contract | None = None
    """Expected columns of a table, every night; None accepts whatever they hold tonight."""

    delimiter: str = ""
    """Separator of the values of a CSV file; empty detects it in the header."""

    decimal: str = ""
    """``.`` or ``,`` in a CSV file; empty finds decimal commas where a file without commas between
    its values has no decimal point."""

    thousands: str = ""
    """Thousands separator of whole numbers in a CSV file; empty for a point where the decimal is a
    comma."""

    encoding: str = "utf-8"
    """Encoding of a CSV file; UTF-16 is known by its first bytes."""

    text: str = ""
    """Column of the sentences; empty for ``text``, or the only one besides the target."""

    length: int = 0
    """Words of a sentence, longer ones are cut; 0 for the longest one, at most 128."""

    max_words: int = 0
    """Words of the vocabulary, the most frequent; 0 for 20,000."""

    resize: tuple[int, ...] = ()
    """Height and width of pictures; empty if all have one size."""

    channels: int = 0
    """1 makes pictures gray, 3 colored; 0 for 1 if all are gray."""

    def __post_init__(self) -> None:
        choices = {
            "kind": KINDS,
            "split": _SPLITS,
            "missing": _MISSING,
            "decimal": (".", ","),
            "channels": (1, 3),
        }
        for name, allowed in choices.items():
            if getattr(self, name) and getattr(self, name) not in allowed:
                raise InvalidInput(
                    f"{name} cannot be {getattr(self, name)!r}",
                    f"one of {' '.join(map(str, allowed))}",
                )
        require(
            0 < self.validation < 1,
            "0 < validation < 1",
            "the share of the training items",
            validation=self.validation,
        )
        for name in ("max_categories", "length", "max_words"):
            require(getattr(self, name) >= 0, f"{name} >= 0", **{name: getattr(self, name)})
        require(
            isinstance(self.test, str) or 0 < self.test < 1,
            "0 < test < 1",
            "the share of all items, or a file with the test part",
            test=self.test,
        )
        sign = self.thousands
        if len(sign) > 1 or sign.isalnum() or sign == (self.decimal or "."):
            raise InvalidInput(
                f"thousands cannot be {sign!r}",
                "one character, no letter or digit, and not the decimal",
            )
        require(0 <= self.split_seed < 2**32, "0 <= split_seed < 2**32", split_seed=self.split_seed)
        require(self.gap >= 0, "gap >= 0", gap=self.gap)
        if self.cluster and self.group:
            raise InvalidInput(
                f"items of one {self.group} count together already, and so not those of a cluster",
                "leave out group or cluster",
            )
        if self.gap and not self.time:
            raise InvalidInput(f"a gap of {self.gap:g} needs a time", "time=COLUMN")

    @property
    def roles(self) -> dict[str, str]:
        """Names of the columns or arrays that are no input, by their role: target, group, time and
        part, as far as they are given."""
        roles = ("target", "group", "time", "part")
        return {role: getattr(self, role) for role in roles if getattr(self, role)}

    @classmethod
    def read(cls, target: str, options: Mapping[str, Any]) -> "DataOptions":
        """Check and convert what a user wrote.

        Args:
            options: By name, as in JSON.

        Raises:
            InvalidInput: An option is unknown, of another type, or out of its range.
        """
        names = [field.name for field in fields(cls) if field.name != "target"]
        for name in options:
            if name not in names:
                raise InvalidInput(f"data_options has no {name!r}", suggestion(str(name), names))
        Contract.check_names(options.get("contract"))
        values = {name: as_list(name, with_whole_numbers(value)) for name, value in options.items()}
        return parse(cls, {**values, "target": target}, "data_options")

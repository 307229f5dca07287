"""Expected columns of a table: the option ``contract``, which ``podium data contract`` writes and
people edit."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from podium.data.schema import DATES, NUMBERS
from podium.errors import InvalidInput, require, suggestion
from podium.files.documents import with_whole_numbers

_TYPES = (*NUMBERS, *DATES, "boolean", "text", "category")
"""Types of columns; a category may look like anything."""

_ON_VIOLATION = ("refuse", "warn")


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Expected content of a column; a field that is left out is not checked."""

    type: str
    """One of _TYPES; decides how the column is read, whatever a night's values look like."""

    missing: float = 1.0
    """Largest share of missing values."""

    other: float = 0.0
    """Largest share of values of another type, of none of the categories, or outside the range."""

    range: tuple[float, ...] = ()
    """Smallest and largest number."""

    median: tuple[float, ...] = ()
    """Two numbers between which the median lies: it leaves them where a unit changes."""

    categories: tuple[str, ...] = ()
    """All values of a category."""

    def __post_init__(self) -> None:
        if self.type not in _TYPES:
            raise InvalidInput(f"no column holds {self.type!r}", suggestion(self.type, _TYPES))
        for name in ("missing", "other"):
            require(
                0 <= getattr(self, name) <= 1, f"0 <= {name} <= 1", **{name: getattr(self, name)}
            )
        for name in ("range", "median"):
            limits = getattr(self, name)
            if limits and (len(limits) != 2 or limits[0] > limits[1] or self.type not in NUMBERS):
                raise InvalidInput(
                    f"{name} cannot be {list(limits)}", "[smallest, largest] of a column of numbers"
                )
        if self.categories and self.type in (*NUMBERS, *DATES):
            raise InvalidInput(
                f"a column that holds a {self.type} has no categories", "type: category"
            )

    @property
    def is_number(self) -> bool:
        """Whether it becomes a number: dates do too."""
        return self.type in (*NUMBERS, *DATES)


@dataclass(frozen=True, kw_only=True)
class Contract:
    """Expected columns of a table, and how to react to violations."""

    columns: dict[str, Expected]
    """By name: those of the input, and the target."""

    on_violation: str = "refuse"
    """``refuse`` the data, or ``warn`` and take them."""

    def __post_init__(self) -> None:
        if self.on_violation not in _ON_VIOLATION:
            hint = suggestion(self.on_violation, _ON_VIOLATION)
            raise InvalidInput(f"on_violation cannot be {self.on_violation!r}", hint)

    def to_json(self) -> dict[str, Any]:
        """Return it as an option takes it, without what it leaves open."""
        columns = {name: _without_defaults(expected) for name, expected in self.columns.items()}
        document: dict[str, Any] = with_whole_numbers(
            {"on_violation": self.on_violation, "columns": columns}
        )
        return document

    @classmethod
    def check_names(cls, contract: Any) -> None:
        """Refuse what a contract does not know: a limit that is misspelt would never be checked."""
        _check_known("contract", contract, cls)
        columns = contract.get("columns", {}) if isinstance(contract, Mapping) else {}
        for name, expected in columns.items() if isinstance(columns, Mapping) else ():
            _check_known(f"contract.columns.{name}", expected, Expected)


def _without_defaults(expected: Expected) -> dict[str, Any]:
    pairs = {of.name: (getattr(expected, of.name), of.default) for of in fields(expected)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, (value, default) in pairs.items()
        if value != default
    }


def _check_known(where: str, document: Any, kind: Any) -> None:
    names = [field.name for field in fields(kind)]
    for name in document if isinstance(document, Mapping) else ():
        if name not in names:
            raise InvalidInput(f"{where} has no {name!r}", suggestion(str(name), names))

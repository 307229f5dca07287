"""Typed values out of a JSON document: whatever it holds, a reader gets what it asked for or an error that names it."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from reprlib import repr as short
from typing import Any, NoReturn

from podium.errors import Damaged, PodiumError
from podium.registry.document import is_name

_LARGEST = 2**53
"""What every reader of JSON takes for the same integer."""


class Fields:
    """One JSON object.

    Args:
        value: The parsed document, or a part of it.
        where: Named in errors.
        error: Raised for a value of another type.
    """

    def __init__(self, value: Any, where: str, error: type[PodiumError] = Damaged) -> None:
        self._where, self._error = where, error
        if not isinstance(value, Mapping):
            raise self._wrong("", "an object", value)
        self._values = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def text(self, key: str) -> str:
        """Return a string."""
        return self._typed(key, str, "a string")

    def name(self, key: str) -> str:
        """Return a string that is safe as a part of a key."""
        value = self.text(key)
        if not is_name(value):
            raise self._wrong(key, "a name", value)
        return value

    def count(self, key: str) -> int:
        """Return an integer of at least 0."""
        value = self._typed(key, int, "an integer")
        if not 0 <= value < _LARGEST:
            raise self._wrong(key, f"an integer from 0 to {_LARGEST}", value)
        return value

    def moment(self, key: str) -> datetime:
        """Return a time with time zone, in UTC."""
        try:
            value = datetime.fromisoformat(self.text(key))
            if value.tzinfo:
                return value.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        raise self._wrong(key, "a time with time zone", self._values.get(key))

    def optional_text(self, key: str) -> str | None:
        """Return a string, or None for null and for nothing."""
        return None if self._values.get(key) is None else self.text(key)

    def optional_name(self, key: str) -> str | None:
        """Return a string that is safe as a part of a key, or None for null and for nothing."""
        return None if self._values.get(key) is None else self.name(key)

    def optional_number(self, key: str) -> float | None:
        """Return a number, or None for null and for nothing."""
        if self._values.get(key) is None:
            return None
        value = self._typed(key, int | float, "a number")
        if abs(value) > 1e300:
            raise self._wrong(key, "a number", value)
        return float(value)

    def part(self, key: str) -> "Fields":
        """Return the object below a key; an empty one for null and for nothing."""
        value = self._values.get(key)
        return Fields({} if value is None else value, self._at(key), self._error)

    def parts(self, key: str) -> Iterator[tuple[str, "Fields"]]:
        """Yield the objects in the object below a key."""
        inner = self.part(key)
        for name in inner:
            yield name, Fields(inner._values[name], inner._at(name), self._error)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings; an empty one for null and for nothing."""
        return tuple(self._items(key, str, "a list of strings"))

    def matrix(self, key: str) -> tuple[tuple[int, ...], ...]:
        """Return a square matrix of counts; an empty one for null and for nothing."""
        rows = self._items(key, list, "a list of rows")
        for row in rows:
            if len(row) != len(rows) or any(type(cell) is not int or not 0 <= cell < _LARGEST for cell in row):
                raise self._wrong(key, "a square matrix of counts", row)
        return tuple(tuple(row) for row in rows)

    def is_text(self, key: str) -> bool:
        """Return whether a string lies there."""
        return isinstance(self._values.get(key), str)

    def named(self, key: str) -> tuple[str, ...]:
        """Return a list of names, each a string or an object with a ``name``; an empty one for null and for nothing."""
        items = self._items(key, str | dict, "a list of names")
        return tuple(item if isinstance(item, str) else Fields(item, self._at(key), self._error).text("name")
                     for item in items)  # fmt: skip

    def fail(self, key: str, wanted: str) -> NoReturn:
        """Raise the error for a value that is not what it must be."""
        raise self._wrong(key, wanted, self._values.get(key))

    def _items(self, key: str, kind: Any, wanted: str) -> list[Any]:
        value = self._values.get(key)
        items = [] if value is None else self._typed(key, list, wanted)
        if not all(isinstance(item, kind) for item in items):
            raise self._wrong(key, wanted, value)
        return items

    def _typed(self, key: str, kind: Any, wanted: str) -> Any:
        value = self._values.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self._wrong(key, wanted, value)
        return value

    def _at(self, key: str) -> str:
        return f"{self._where}: {key}" if ": " not in self._where else f"{self._where}.{key}"

    def _wrong(self, key: str, wanted: str, value: Any) -> PodiumError:
        return self._error(f"{self._at(key) if key else self._where} must be {wanted}, but is {short(value)}")

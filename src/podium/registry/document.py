"""Small JSON documents sealed with their own checksum, and typed access to their fields."""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from reprlib import repr as short
from typing import Any, NoReturn

from podium.documents import MAX_JSON, MAX_JSON_DEPTH, load_json
from podium.errors import Damaged, InvalidInput, PodiumError

MAX_BYTES = MAX_JSON
"""Largest document. A confusion matrix of 1,000 classes takes half of it."""

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_log = logging.getLogger("podium")


def seal(document: dict[str, Any]) -> bytes:
    """Serialize a document; its last member is ``sha256``, the checksum of its canonical form.

    Raises:
        InvalidInput: It holds values JSON cannot express (NaN, infinity, objects), or exceeds a limit.
    """
    digest = _digest(plain(document))
    content = (json.dumps({**document, "sha256": digest}, indent=1, ensure_ascii=False) + "\n").encode()
    if len(content) > MAX_BYTES:
        raise InvalidInput(
            f"the metadata has {len(content):,} bytes, larger than the limit of {MAX_BYTES:,}", "store it as a file"
        )
    return content


def unseal(content: bytes, where: str) -> dict[str, Any]:
    """Parse a sealed document and check its checksum.

    Args:
        content: The bytes; the first MAX_BYTES + 1 of a larger object are enough.
        where: Key or URL, for the error.

    Raises:
        Damaged: It is not a JSON object, exceeds a limit, or does not match its checksum.
    """
    try:
        document = load_json(content, where, nan=False)
        sound = isinstance(document, dict) and document.pop("sha256", None) == _digest(document)
    except InvalidInput as error:
        raise Damaged(f"{where} is damaged: it {error.message.removeprefix(where).strip()}", _BACKUP) from None
    except ValueError:  # 1e999 is read as infinity
        sound = False
    if not sound:
        raise Damaged(f"{where} is damaged: it does not match its checksum", _BACKUP)
    assert isinstance(document, dict)
    return document


_BACKUP = "try `podium models repair`, which restores what is stored twice; else restore it from a backup"


def plain(value: Any) -> Any:
    """Return a value after a round trip through JSON: keys are strings, tuples are lists.

    Raises:
        InvalidInput: JSON cannot express it, or it exceeds a limit.
    """
    try:
        text = json.dumps(value, allow_nan=False)
    except RecursionError:
        raise InvalidInput(f"metadata is nested more than {MAX_JSON_DEPTH} levels deep", "store it flat") from None
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"metadata must be plain JSON, but {error}", "use numbers, strings, lists and dicts; no NaN"
        ) from None
    return load_json(text, "metadata")


def _digest(document: dict[str, Any]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def sha256_of(source: bytes | Path) -> tuple[str, int]:
    """Return the sha256 and size of bytes or of a file; a file is streamed."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest(), len(source)
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), source.stat().st_size


def is_name(text: str) -> bool:
    """Return whether a text is safe as one segment of a key."""
    return bool(_NAME.fullmatch(text))


def check_name(what: str, name: str) -> str:
    """Return a name that is safe as one segment of a key.

    Raises:
        InvalidInput: It has other characters than letters, digits, dots, dashes and underscores, or more than 100.
    """
    if not isinstance(name, str) or not is_name(name):
        article = "an" if what[0] in "aeiou" else "a"
        raise InvalidInput(
            f"{name!r} is not {article} {what}",
            "use at most 100 letters, digits, '.', '_' and '-', beginning with a letter or digit",
        )
    return name


def now() -> str:
    """Return the current time as RFC3339 with microseconds, UTC."""
    return datetime.now(UTC).strftime(_TIME)


def moment(time: str) -> datetime:
    """Parse a time in the format of now.

    Raises:
        ValueError: It has another format.
    """
    return datetime.strptime(time, _TIME).replace(tzinfo=UTC)


def just_after(time: str) -> str:
    """Return the next microsecond after a time in the format of now."""
    return (moment(time) + timedelta(microseconds=1)).strftime(_TIME)


def stamp(time: str | datetime) -> str:
    """Return a time as the first part of a history object's name; stamps sort like their times."""
    text = time if isinstance(time, str) else time.astimezone(UTC).strftime(_TIME)
    return text.replace(":", "").replace("-", "")


@lru_cache(1000)
def warn_once(message: str) -> None:
    """Log a warning once per process."""
    # Keys may hold anything, even escape sequences for the terminal.
    _log.warning("%s", "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message))


_LARGEST = 2**53
"""Integers below this are exact in every JSON reader."""


class Fields:
    """Typed access to one JSON object: a value of another type raises an error that names it.

    Args:
        value: The parsed document, or an object in it.
        where: Key or URL, for errors.
        error: Type of the errors.
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
        """Return a string that is safe as one segment of a key."""
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
        """Return a string, or None if it is null or missing."""
        return None if self._values.get(key) is None else self.text(key)

    def optional_name(self, key: str) -> str | None:
        """Return a string that is safe as one segment of a key, or None if it is null or missing."""
        return None if self._values.get(key) is None else self.name(key)

    def optional_number(self, key: str) -> float | None:
        """Return a number, or None if it is null or missing."""
        if self._values.get(key) is None:
            return None
        value = self._typed(key, int | float, "a number")
        if abs(value) > 1e300:
            raise self._wrong(key, "a number", value)
        return float(value)

    def optional_flag(self, key: str) -> bool | None:
        """Return true or false, or None if it is null or missing."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def part(self, key: str) -> "Fields":
        """Return a nested object; an empty one if it is null or missing."""
        value = self._values.get(key)
        return Fields({} if value is None else value, self._at(key), self._error)

    def parts(self, key: str) -> Iterator[tuple[str, "Fields"]]:
        """Yield the members of a nested object, all of them objects."""
        inner = self.part(key)
        for name in inner:
            yield name, Fields(inner._values[name], inner._at(name), self._error)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings; an empty one if it is null or missing."""
        return tuple(self._items(key, str, "a list of strings"))

    def matrix(self, key: str) -> tuple[tuple[int, ...], ...]:
        """Return a square matrix of counts; an empty one if it is null or missing."""
        rows = self._items(key, list, "a list of rows")
        for row in rows:
            if len(row) != len(rows) or any(type(cell) is not int or not 0 <= cell < _LARGEST for cell in row):
                raise self._wrong(key, "a square matrix of counts", row)
        return tuple(tuple(row) for row in rows)

    def is_text(self, key: str) -> bool:
        """Return whether the value is a string."""
        return isinstance(self._values.get(key), str)

    def named(self, key: str) -> tuple[str, ...]:
        """Return a list of names, each a string or an object with a ``name``; an empty one if it is null or missing."""
        items = self._items(key, str | dict, "a list of names")
        return tuple(item if isinstance(item, str) else Fields(item, self._at(key), self._error).text("name")
                     for item in items)  # fmt: skip

    def fail(self, key: str, wanted: str) -> NoReturn:
        """Raise the error for a value of the wrong form."""
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
        return self._error(f"{self._at(key) if key else self._where} must be {wanted}, not {short(value)}")

"""Small JSON documents that carry their own checksum, so that every read can tell damage from truth."""

import hashlib
import json
import logging
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from podium.documents import MAX_JSON, MAX_JSON_DEPTH, load_json
from podium.errors import Damaged, InvalidInput

MAX_BYTES = MAX_JSON
"""Of one document. A confusion matrix of 1,000 classes takes half of it."""

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_log = logging.getLogger("podium")


def seal(document: dict[str, Any]) -> bytes:
    """Write a document with ``sha256`` over its canonical form as last member.

    Raises:
        InvalidInput: It holds what JSON cannot say (NaN, infinity, objects), or exceeds a limit.
    """
    digest = _digest(plain(document))
    content = (json.dumps({**document, "sha256": digest}, indent=1, ensure_ascii=False) + "\n").encode()
    if len(content) > MAX_BYTES:
        raise InvalidInput(
            f"metadata must not be larger than {MAX_BYTES:,} bytes, but is {len(content):,}", "store it as a file"
        )
    return content


def unseal(content: bytes, where: str) -> dict[str, Any]:
    """Read a sealed document.

    Args:
        content: The bytes; of a larger object MAX_BYTES + 1 are enough.
        where: Named in the error.

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
        raise Damaged(f"{where} is damaged: it does not match the checksum it carries", _BACKUP)
    assert isinstance(document, dict)
    return document


_BACKUP = "`podium models repair` restores what is stored twice; restore anything else from a backup"


def plain(value: Any) -> Any:
    """Return a value as JSON would give it back: keys are strings, tuples are lists.

    Raises:
        InvalidInput: JSON cannot say it, or it exceeds a limit.
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
    """Return sha256 and size of bytes or of a file, which is streamed."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest(), len(source)
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), source.stat().st_size


def is_name(text: str) -> bool:
    """Return whether a text is safe as one part of a key."""
    return bool(_NAME.fullmatch(text))


def check_name(what: str, name: str) -> str:
    """Return a name that is safe as one part of a key.

    Raises:
        InvalidInput: It is not letters, digits, dots, dashes and underscores, at most 100.
    """
    if not isinstance(name, str) or not is_name(name):
        article = "an" if what[0] in "aeiou" else "a"
        raise InvalidInput(
            f"{article} {what} must be letters, digits, '.', '_' and '-' and begin with a letter or digit, "
            f"but got {name!r}"
        )
    return name


def now() -> str:
    """Return this moment as RFC3339 with microseconds, UTC."""
    return datetime.now(UTC).strftime(_TIME)


def moment(time: str) -> datetime:
    """Read a time that now gave.

    Raises:
        ValueError: It is none.
    """
    return datetime.strptime(time, _TIME).replace(tzinfo=UTC)


def just_after(time: str) -> str:
    """Return the microsecond after a time that now gave."""
    return (moment(time) + timedelta(microseconds=1)).strftime(_TIME)


def stamp(time: str | datetime) -> str:
    """Return a time as it begins the name of an object in the history; sorts like the time."""
    text = time if isinstance(time, str) else time.astimezone(UTC).strftime(_TIME)
    return text.replace(":", "").replace("-", "")


@lru_cache(1000)
def warn_once(message: str) -> None:
    """Log a warning; what every reader comes across is said once in a process."""
    # A key may hold anything, an escape sequence for the terminal among it.
    _log.warning("%s", "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message))

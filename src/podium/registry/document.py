"""Small JSON documents that carry their own checksum, so that every read can tell damage from truth."""

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from podium.errors import Damaged, InvalidInput

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def seal(document: dict[str, Any]) -> bytes:
    """Write a document with ``sha256`` over its canonical form as last member.

    Raises:
        InvalidInput: It holds what JSON cannot say (NaN, infinity, objects).
    """
    return (json.dumps({**document, "sha256": _digest(document)}, indent=1, ensure_ascii=False) + "\n").encode()


def unseal(content: bytes, where: str) -> dict[str, Any]:
    """Read a sealed document.

    Args:
        content: The bytes.
        where: Named in the error.

    Raises:
        Damaged: It is no JSON object or does not match its checksum.
    """
    try:
        document = json.loads(content)
        recorded = document.pop("sha256")
        sound = recorded == _digest(document)
    except (ValueError, KeyError, AttributeError, InvalidInput):
        sound = False
    if not sound:
        raise Damaged(
            f"{where} must match the checksum it carries, but it does not ({len(content)} bytes)",
            "restore it from a backup; `podium models verify` tells what else is damaged",
        )
    assert isinstance(document, dict)
    return document


def _digest(document: dict[str, Any]) -> str:
    try:
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"metadata must be plain JSON, but {error}", "use numbers, strings, lists and dicts; no NaN"
        ) from None
    return hashlib.sha256(canonical.encode()).hexdigest()


def plain(value: Any) -> Any:
    """Return a value as JSON would give it back: keys are strings, tuples are lists."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"metadata must be plain JSON, but {error}", "use numbers, strings, lists and dicts; no NaN"
        ) from None


def sha256_of(source: bytes | Path) -> tuple[str, int]:
    """Return sha256 and size of bytes or of a file, which is streamed."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest(), len(source)
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), source.stat().st_size


def check_name(what: str, name: str) -> str:
    """Return a name that is safe as one part of a key.

    Raises:
        InvalidInput: It is not letters, digits, dots, dashes and underscores, at most 100.
    """
    if not _NAME.fullmatch(name):
        article = "an" if what[0] in "aeiou" else "a"
        raise InvalidInput(
            f"{article} {what} must be letters, digits, '.', '_' and '-' and begin with a letter or digit, "
            f"but got {name!r}"
        )
    return name


def now() -> str:
    """Return this moment as RFC3339 with microseconds, UTC."""
    return datetime.now(UTC).strftime(_TIME)


def just_after(time: str) -> str:
    """Return the microsecond after a time that now gave."""
    return (datetime.strptime(time, _TIME).replace(tzinfo=UTC) + timedelta(microseconds=1)).strftime(_TIME)

"""Small JSON documents sealed with their own checksum, and the names and times in them."""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import Damaged, InvalidInput, PodiumError
from podium.files.documents import MAX_JSON_DEPTH, load_json, parse
from podium.storage import Storage, absolute, local_path
from podium.system.settings import STORAGE, Settings

if TYPE_CHECKING:
    from podium.models.version import Version

CARD = "MODEL_CARD.md"
"""Name of the model card beside the files of an exported version."""

MAX_BYTES = 16 * 2**20
"""Largest document. A confusion matrix of 1,000 classes takes half of it."""

TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def command(words: str, storage: Storage) -> str:
    """Return what to type about a model of this storage."""
    default = os.environ.get(STORAGE) or Settings.from_environment().storage
    place, usual = (str(local_path(url) or url) for url in (storage.url, absolute(default)))
    return f"podium {words}" + ("" if place == usual else f" --storage {shlex.quote(place)}")


def seal(document: dict[str, Any]) -> bytes:
    """Serialize a document; its last member is ``sha256``, the checksum of its canonical form.

    Raises:
        InvalidInput: It holds values JSON cannot express (NaN, infinity, objects), or exceeds a
            limit.
    """
    digest = _digest(plain(document))
    content = (
        json.dumps({**document, "sha256": digest}, indent=1, ensure_ascii=False) + "\n"
    ).encode()
    if len(content) > MAX_BYTES:
        raise InvalidInput(
            f"the metadata has {len(content):,} bytes, larger than the limit of {MAX_BYTES:,}",
            "store it as a file",
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
        document = load_json(content, where, nan=False, limit=MAX_BYTES)
        sound = isinstance(document, dict) and document.pop("sha256", None) == _digest(document)
    except InvalidInput as error:
        raise Damaged(
            f"{where} is damaged: it {error.message.removeprefix(where).strip()}", BACKUP
        ) from None
    except Exception:  # 1e999 is read as infinity, for example
        sound = False
    if not sound:
        raise Damaged(f"{where} is damaged: it does not match its checksum", BACKUP)
    assert isinstance(document, dict)
    return document


BACKUP = "restore it from a backup"


def plain(value: Any) -> Any:
    """Return a value after a round trip through JSON: keys are strings, tuples are lists.

    Raises:
        InvalidInput: JSON cannot express it, or it exceeds a limit.
    """
    try:
        text = json.dumps(value, allow_nan=False)
    except RecursionError:
        raise InvalidInput(
            f"metadata is nested more than {MAX_JSON_DEPTH} levels deep", "store it flat"
        ) from None
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"metadata must be plain JSON, but {error}",
            "use numbers, strings, lists and dicts; no NaN",
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


def check_name(noun: str, name: str) -> str:
    """Return a name that is safe as one segment of a key.

    Raises:
        InvalidInput: It has other characters than letters, digits, dots, dashes and underscores, or
            more than 100.
    """
    if not isinstance(name, str) or not is_name(name):
        article = "an" if noun[0] in "aeiou" else "a"
        raise InvalidInput(
            f"{name!r} is not {article} {noun}",
            "use at most 100 letters, digits, '.', '_' and '-', beginning with a letter or digit",
        )
    return name


_DATE = re.compile(
    r"[-_. ]*(?<!\d)(?:19|20)\d\d(?:([-_.]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])"
    r"(?:[-_.T ]?(?:[01]\d|2[0-3])[-:.]?[0-5]\d(?:[-:.]?[0-5]\d)?)?|[-_.](?:0[1-9]|1[0-2]))(?!\d)[-_. ]*"
)
"""A day or a month, as people write them in names of files."""


def name_for(dataset: str) -> str:
    """Return the name of a model that nobody named: its dataset's, in characters of a name.

    A date is left out: the file of the next day challenges the champion of this one.
    """
    for name in (_DATE.sub("-", dataset), dataset):
        if found := re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-_")[:100]:
            return found
    return "model"


def now() -> str:
    """Return the current time as RFC3339 with microseconds, UTC."""
    return datetime.now(UTC).strftime(TIME)


def moment(time: str) -> datetime:
    """Parse a time in the format of now.

    Raises:
        ValueError: It has another format.
    """
    return datetime.strptime(time, TIME).replace(tzinfo=UTC)


def read_as(
    kind: Any, value: Any, where: str, field: str = "", *, error: type[PodiumError] = Damaged
) -> Any:
    """Convert plain values to a dataclass or another type, see podium.files.documents.parse.

    Args:
        value: The parsed document, or a member of it.
        where: Key or URL, for errors.
        error: What is raised if it does not fit.
    """
    try:
        return parse(kind, value, where, field)
    except InvalidInput as problem:
        raise error(problem.message, problem.hint) from None


def without_nulls(value: Any) -> Any:
    """Return a value whose objects, at any depth, lack the members that are null."""
    if not isinstance(value, dict):
        return value
    return {key: without_nulls(member) for key, member in value.items() if member is not None}


def beside(version: "Version", file: str) -> Any:
    """Return the JSON document in a file of a version; {} where it has no such file.

    Raises:
        InvalidInput: It is not JSON.
        Damaged: It is not what was uploaded.
    """
    if file not in version.files:
        return {}
    return load_json(version.read(file), f"{file} of {version.title}")


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return an object of the metadata as it is, and an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number of at least 0 that is exact in every JSON reader."""
    return type(value) is int and 0 <= value < 2**53

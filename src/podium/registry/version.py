"""A model version as it lies in storage: files, and metadata.json that was written last."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from podium.errors import Damaged, InvalidInput, NotFound
from podium.registry.document import seal, unseal
from podium.storage import Storage

FORMAT = "podium.model/1"
TOMBSTONE = "podium.tombstone/1"
METADATA = "metadata.json"
_OURS = ("format", "name", "version", "created", "files", "sha256")


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """What metadata.json says about one file."""

    sha256: str
    """Of the whole file, hexadecimal."""

    size: int
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One immutable version of a model."""

    name: str
    """The model."""

    version: str
    """Unique within the model."""

    created: datetime
    """When it became visible, with time zone."""

    files: Mapping[str, FileRecord]
    """By file name, relative to the version; metadata.json is not among them."""

    metadata: Mapping[str, Any]
    """What the uploader said: hyperparameters, metrics, report, dataset, code_version, image, run_id, …"""

    @property
    def prefix(self) -> str:
        """Where its files lie, relative to the storage's URL."""
        return prefix_of(self.name, self.version)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(record.size for record in self.files.values())

    def document(self) -> dict[str, Any]:
        """Return metadata.json before it is sealed."""
        return {
            "format": FORMAT,
            "name": self.name,
            "version": self.version,
            "created": self.created.isoformat(),
            "files": {name: {"sha256": file.sha256, "size": file.size} for name, file in sorted(self.files.items())},
            **self.metadata,
        }


def prefix_of(name: str, version: str) -> str:
    """Return the key prefix of a version, without a trailing slash."""
    return f"models/{name}/versions/{version}"


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Refuse metadata that would overwrite what the registry itself records.

    Raises:
        InvalidInput: A key is one of ours.
    """
    if taken := sorted(set(metadata) & set(_OURS)):
        raise InvalidInput(f"metadata must not hold {', '.join(taken)}: the registry writes it", "choose another key")


def parse(content: bytes, where: str) -> Version | None:
    """Read metadata.json; None if it is the tombstone of a version under deletion.

    Raises:
        Damaged: It does not match its checksum, or is of another format.
    """
    document = unseal(content, where)
    if document.get("format") == TOMBSTONE:
        return None
    if document.get("format") != FORMAT:
        raise Damaged(f"{where} must have format {FORMAT}, but has {document.get('format')!r}", "upgrade podium?")
    return Version(
        name=document["name"],
        version=document["version"],
        created=datetime.fromisoformat(document["created"]),
        files={name: FileRecord(sha256=file["sha256"], size=file["size"]) for name, file in document["files"].items()},
        metadata={key: value for key, value in document.items() if key not in _OURS},
    )


def load(storage: Storage, name: str, version: str) -> Version | None:
    """Read a version; None if there is no complete one."""
    key = f"{prefix_of(name, version)}/{METADATA}"
    try:
        return parse(storage.get(key), storage.join(key))
    except NotFound:
        return None


def tombstone(name: str, version: str, time: str, event: Mapping[str, Any] | None = None) -> bytes:
    """Write what stands in for metadata.json while files are deleted: nobody can publish over it.

    Args:
        name: The model.
        version: The version.
        time: When the deletion began.
        event: The record of the deletion of a complete version; whoever finishes it puts it into the history.
    """
    return seal({"format": TOMBSTONE, "name": name, "version": version, "time": time, "event": event})

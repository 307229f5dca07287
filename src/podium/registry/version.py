"""A model version as it lies in storage: files, and metadata.json that was written last."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from podium.errors import Damaged, InvalidInput, NotFound
from podium.registry import record as records
from podium.registry.document import MAX_BYTES, is_name, plain, seal, unseal, warn_once
from podium.registry.fields import Fields
from podium.registry.record import Record
from podium.storage import Entry, Storage

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
class Facts:
    """What podium itself reads of the metadata; all of it may be missing."""

    run_id: str | None
    """The run that uploaded it."""

    accuracy: float | None
    """On the test part."""

    digest: str | None
    """Of the dataset it was trained on."""

    test_digest: str | None
    """Of the test images it was evaluated on."""

    dataset: str | None
    """The dataset's name."""

    dataset_classes: tuple[str, ...]
    """Names of the dataset's classes."""

    classes: tuple[str, ...]
    """Names of the rows of the confusion matrix."""

    confusion: tuple[tuple[int, ...], ...]
    """Rows are the true class, columns the predicted one."""

    @classmethod
    def parse(cls, metadata: Fields) -> "Facts":
        """Read metadata; raises what the fields raise."""
        for key in ("hyperparameters", "origin", "environment"):
            metadata.part(key)
        for key in ("image", "code_version"):
            metadata.optional_text(key)
        metadata.part("origin").optional_text("uri")
        only_digest = metadata.is_text("dataset")
        dataset = metadata.part("dataset") if not only_digest else Fields({}, "dataset")
        report = metadata.part("report")
        facts = cls(
            run_id=metadata.optional_text("run_id"),
            accuracy=metadata.part("metrics").optional_number("accuracy"),
            digest=metadata.text("dataset") if only_digest else dataset.optional_text("digest"),
            test_digest=dataset.optional_text("test_digest"),
            dataset=dataset.optional_text("name"),
            dataset_classes=dataset.texts("classes"),
            classes=report.named("classes"),
            confusion=report.matrix("confusion"),
        )
        if facts.confusion and len(facts.classes) != len(facts.confusion):
            report.fail("classes", f"{len(facts.confusion)} names, as many as the matrix has rows")
        return facts


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

    facts: Facts
    """The metadata as far as podium reads it."""

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


def check_metadata(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], Facts]:
    """Return metadata as JSON will give it back, and what podium reads of it.

    Raises:
        InvalidInput: A key is one that the registry writes itself, or a value is not what its readers can read.
    """
    if taken := sorted(set(metadata) & set(_OURS)):
        raise InvalidInput(f"metadata must not hold {', '.join(taken)}: the registry writes it", "choose another key")
    copied: dict[str, Any] = plain(dict(metadata))
    return copied, Facts.parse(Fields(copied, "metadata", InvalidInput))


@dataclass(frozen=True, kw_only=True)
class Tombstone:
    """What stands in for metadata.json while files are deleted: nobody can publish over it unnoticed."""

    name: str
    """The model."""

    version: str
    """The version."""

    event: Record | None
    """The record of the deletion of a complete version; whoever finishes it puts it into the history."""

    def seal(self) -> bytes:
        """Write it; two are never the same, so that an etag tells whose deletion is going on."""
        event = self.event.document() if self.event else None
        return seal({"format": TOMBSTONE, "name": self.name, "version": self.version, "id": uuid.uuid4().hex,
                     "event": event})  # fmt: skip


def parse(content: bytes, where: str, name: str, version: str) -> Version | Tombstone:
    """Read what lies at a version's metadata.json.

    Raises:
        Damaged: It does not match its checksum, is of another version or format, or holds what no uploader wrote.
    """
    document = unseal(content, where)
    given = Fields(document, where)
    if (given.text("name"), given.text("version")) != (name, version):
        raise Damaged(
            f"{where} belongs to {given.name('name')} {given.name('version')}, not to {name} {version}",
            "it was copied there: restore the version's own metadata.json from a backup",
        )
    if given.text("format") == TOMBSTONE:
        event = document.get("event")
        return Tombstone(
            name=name, version=version, event=records.from_document(event, where, name) if event is not None else None
        )
    if given.text("format") != FORMAT:
        raise Damaged(f"{where} must have format {FORMAT}, but has {given.text('format')!r}", "upgrade podium?")
    metadata = {key: value for key, value in document.items() if key not in _OURS}
    return Version(
        name=name,
        version=version,
        created=given.moment("created"),
        files={
            file: FileRecord(sha256=record.text("sha256"), size=record.count("size"))
            for file, record in given.parts("files")
        },
        metadata=metadata,
        facts=Facts.parse(Fields(metadata, where)),
    )


def look(storage: Storage, name: str, version: str) -> tuple[Version | Tombstone | None, Entry | None]:
    """Read what lies at a version's metadata.json, with its etag.

    Raises:
        Damaged: It is neither a version nor a tombstone.
    """
    key = f"{prefix_of(name, version)}/{METADATA}"
    try:
        content, entry = storage.read(key, limit=MAX_BYTES + 1)
    except NotFound:
        return None, None
    return parse(content, storage.join(key), name, version), entry


def load(storage: Storage, name: str, version: str) -> Version | None:
    """Read a version; None if there is no complete one.

    Raises:
        Damaged: Its metadata.json is.
    """
    found, _ = look(storage, name, version)
    return found if isinstance(found, Version) else None


def exists(storage: Storage, name: str, version: str) -> bool:
    """Return whether a version is there, be it whole or damaged; False if it is gone or under deletion."""
    try:
        return load(storage, name, version) is not None
    except Damaged:
        return True


def names_below(storage: Storage, prefix: str) -> list[str]:
    """Return the models or versions below a prefix; what nobody can have uploaded is named in a warning."""
    found = list(storage.children(prefix))
    for name in found:
        if not is_name(name):
            warn_once(f"{storage.join(prefix)}/{name!r} is not a name that podium gives, and is left out")
    return [name for name in found if is_name(name)]

"""A model version: its files, and the metadata.json that is written last."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from podium.errors import Damaged, InvalidInput
from podium.registry.document import Fields, plain, seal, unseal
from podium.registry.journal import Record

FORMAT = "podium.model/1"
TOMBSTONE = "podium.tombstone/1"
METADATA = "metadata.json"
_OURS = ("format", "name", "version", "created", "files", "sha256")


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """Checksum and size of one file."""

    sha256: str
    size: int
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The part of the metadata that podium reads; all of it may be missing."""

    run_id: str | None

    metric: str | None
    """What it was chosen by."""

    maximize: bool | None
    """Whether more of the metric is better."""

    value: float | None
    """Of the metric, on the test part."""

    kind: str | None
    """classification or regression."""

    digest: str | None
    """Of the dataset it was trained on."""

    test_digest: str | None
    """Of the test part it was evaluated on."""

    dataset: str | None
    dataset_classes: tuple[str, ...]
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
        report, metric = metadata.part("report"), metadata.part("metric")
        name = metric.optional_text("name")
        facts = cls(
            run_id=metadata.optional_text("run_id"),
            metric=name,
            maximize=metric.optional_flag("maximize"),
            value=metadata.part("metrics").optional_number(name) if name else None,
            kind=dataset.optional_text("kind"),
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
    version: str
    created: datetime
    files: Mapping[str, FileRecord]
    """By name relative to the version, without metadata.json."""

    metadata: Mapping[str, Any]
    """From the uploader: hyperparameters, metrics, report, dataset, code_version, image, run_id, …"""

    facts: Facts
    """The part of the metadata that podium reads."""

    @property
    def prefix(self) -> str:
        """Key prefix of its files, without a trailing slash."""
        return f"models/{self.name}/versions/{self.version}"

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


def check_metadata(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], Facts]:
    """Return metadata after a round trip through JSON, and the part of it that podium reads.

    Raises:
        InvalidInput: A key is reserved for the registry, or a value could not be read back.
    """
    if taken := sorted(set(metadata) & set(_OURS)):
        raise InvalidInput(f"the registry itself writes {', '.join(taken)} to the metadata", "choose another key")
    copied: dict[str, Any] = plain(dict(metadata))
    return copied, Facts.parse(Fields(copied, "metadata", InvalidInput))


@dataclass(frozen=True, kw_only=True)
class Tombstone:
    """Replaces metadata.json while a version is deleted, so that no upload can publish over it unnoticed."""

    name: str
    version: str
    event: Record | None
    """Record of the deletion of a complete version; the process that finishes the deletion writes it to the history."""

    def seal(self) -> bytes:
        """Serialize it; no two are equal, so the etag identifies the deletion."""
        event = self.event.document() if self.event else None
        return seal({
            "format": TOMBSTONE, "name": self.name, "version": self.version, "id": uuid.uuid4().hex, "event": event,
        })  # fmt: skip


def parse(content: bytes, where: str, name: str, version: str) -> Version | Tombstone:
    """Parse metadata.json, or the tombstone in its place.

    Raises:
        Damaged: It does not match its checksum, belongs to another version, or has an unknown format or field type.
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
        record = Record.parse(event, where, name) if event is not None else None
        return Tombstone(name=name, version=version, event=record)
    if given.text("format") != FORMAT:
        raise Damaged(f"{where} has the unknown format {given.text('format')!r}", "upgrade podium?")
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

"""A model version: its files, and the metadata.json that is written after them."""

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.display.notebook import table
from podium.display.text import figure, one_line
from podium.errors import Conflict, Damaged, InvalidInput, NotFound, PodiumError
from podium.files.drafts import appearing
from podium.models.document import (
    BACKUP,
    MAX_BYTES,
    beside,
    command,
    is_count,
    plain,
    read_as,
    sha256_of,
    unseal,
    without_nulls,
)
from podium.models.record import ChosenBy, Constant
from podium.models.signature import SIGNATURE, require_trusted, signature_key
from podium.storage import Storage
from podium.storage.base import Progress
from podium.system.arguments import checked

if TYPE_CHECKING:
    from podium.prediction import Predictions, Predictor
    from podium.prediction.command import CommandModel
    from podium.scoring import OnnxModel

_FORMAT = "podium.model/1"
METADATA = "metadata.json"
PREDICTIONS = "predictions.npy"
"""A version's predictions of the test part, as evaluate writes them. Classification: probabilities,
float32 or float64 [n, classes], or class indices [n] of a model that gives nothing else.
Regression: floats [n] or [n, k]."""
TARGET = "target.npy"
"""Beside it: the true classes or numbers, to compare versions without the dataset."""
TEST_ITEMS = "test-items.npy"
"""Beside it: of each test item its hash, that of what it counts together with (its group, else
itself), and that of the item as it came; uint64 [n, 3]."""

_OURS = ("format", "name", "version", "created", "files", "sha256")


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """Checksum and size of one file."""

    sha256: str
    size: int
    """Bytes."""

    def __post_init__(self) -> None:
        if not is_count(self.size):
            raise InvalidInput(f"the size of a file cannot be {self.size!r}")


@dataclass(frozen=True, kw_only=True)
class _DatasetFacts:
    """The dataset a version was trained on."""

    name: str | None = None
    kind: str | None = None

    digest: str | None = None
    test_digest: str | None = None
    """Checksum of the test part the version was evaluated on, as it was prepared."""

    test_part: str | None = None
    """Identity of these items in the source: see podium.data.test_part."""

    classes: tuple[str, ...] = ()
    target: str | None = None


@dataclass(frozen=True, kw_only=True)
class _NamedClass:
    """A class of a report, with whatever else is reported about it."""

    name: str


_MOST_PAIRS = 5
"""Pairs of classes that are listed as confused."""


@dataclass(frozen=True, kw_only=True)
class _ReportFacts:
    """The confusion matrix of a version on the test part."""

    classes: tuple[_NamedClass | str, ...] = ()
    confusion: tuple[Any, ...] = ()
    """[classes, classes] counts: rows are the true class, columns the predicted one."""

    def __post_init__(self) -> None:
        size = len(self.confusion)
        for at, row in enumerate(self.confusion):
            if not isinstance(row, list) or len(row) != size or not all(map(is_count, row)):
                raise InvalidInput(
                    f"confusion is not a square matrix of counts: its row {at} is {row!r:.80}"
                )
        if size not in (0, len(self.classes)):
            raise InvalidInput(
                f"confusion has {size} rows, but there are {len(self.classes)} classes"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return tuple(item if isinstance(item, str) else item.name for item in self.classes)

    def most_confused(self) -> list[dict[str, Any]]:
        """Return the most frequent confusions: label, taken_for, items and their share of the
        label's items."""
        pairs = [
            {
                "label": self.names[row],
                "taken_for": self.names[column],
                "items": count,
                "share": count / sum(counts),
            }
            for row, counts in enumerate(self.confusion)
            for column, count in enumerate(counts)
            if row != column and count
        ]
        return sorted(pairs, key=lambda pair: -pair["items"])[:_MOST_PAIRS]


@dataclass(frozen=True, kw_only=True)
class _OriginFacts:
    """Where the files of a version came from."""

    kind: str | None = None
    """trial, training or upload."""

    name: str | None = None
    experiment: str | None = None

    uri: str | None = None


@dataclass(frozen=True, kw_only=True)
class _TrialFacts:
    """The trial of a sweep that a version is, or that gave its training the hyperparameters."""

    name: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics that the trial reported, measured by its trainer; none is of the test part."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The part of the metadata that podium reads; all of it may be missing."""

    run_id: str | None = None
    metric: ChosenBy = field(default_factory=ChosenBy)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """On the test part."""

    constant: Constant = field(default_factory=Constant)
    dataset: _DatasetFacts = _DatasetFacts()
    report: _ReportFacts = _ReportFacts()
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    origin: _OriginFacts = _OriginFacts()
    trial: _TrialFacts = _TrialFacts()
    image: str | None = None
    code_version: str | None = None

    @property
    def value(self) -> float | None:
        """Value of the metric it was chosen by, on the test part."""
        value = self.metrics.get(self.metric.name) if self.metric.name else None
        return None if value is None else float(value)

    @classmethod
    def parse(
        cls, metadata: Mapping[str, Any], where: str, error: type[PodiumError] = Damaged
    ) -> "Facts":
        """Read metadata.

        Raises:
            PodiumError: A member has another type; the error is of the type given.
        """
        document = without_nulls(metadata)
        if isinstance(document.get("dataset"), str):  # only its digest
            document["dataset"] = {"digest": document["dataset"]}
        facts: Facts = read_as(cls, document, where, error=error)
        if name := facts.metric.name:
            read_as(float | None, facts.metrics.get(name), where, f"metrics.{name}", error=error)
        return facts


@checked
@dataclass(frozen=True, kw_only=True, repr=False)
class Version:
    """An immutable version of a model."""

    storage: Storage = field(compare=False)
    name: str

    version: str
    created: datetime
    """When it was uploaded, UTC."""

    files: Mapping[str, FileRecord]
    """By name relative to the version, without metadata.json."""

    metadata: Mapping[str, Any]
    """From the uploader: hyperparameters, metrics, report, dataset, code_version, image, run_id,
    …"""

    facts: Facts
    """The part of the metadata that podium reads."""

    @property
    def title(self) -> str:
        """The model and the version, for people."""
        return f"{self.name} {self.version}"

    @property
    def prefix(self) -> str:
        """Key prefix of its files, without a trailing slash."""
        return version_prefix(self.name, self.version)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(record.size for record in self.files.values())

    @property
    def metrics(self) -> dict[str, float]:
        """On the test part of its dataset; of the metadata's those that are numbers."""
        return {
            name: value
            for name, value in self.facts.metrics.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Hyperparameters it was trained with."""
        return dict(self.facts.hyperparameters)

    def read(self, file: str) -> bytes:
        """Return the verified bytes of one file.

        Raises:
            InvalidInput: The version has no such file.
            Damaged: It is missing or not what was uploaded.
        """
        self._require(file)
        try:
            content = self.storage.get(f"{self.prefix}/{file}")
        except NotFound as error:
            raise self._lost(file, "is missing") from error
        self._check(file, sha256_of(content))
        return content

    def fetch(
        self,
        directory: str | Path,
        *,
        files: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> Path:
        """Download it and verify every file; only then the directory appears.

        Args:
            directory: One that does not exist yet, or is empty.
            files: Only these; None for all, metadata.json and, if there is one, the signature.
            progress: Called with the size of every chunk.

        Raises:
            Untrusted: PODIUM_PUBLIC_KEY asks for a signature that it does not have.
            InvalidInput: The directory is not empty, or a file is not part of the version.
            Damaged: A file does not match its sha256; the directory is unchanged.
        """
        target = Path(directory)
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise InvalidInput(f"{target} is not an empty directory", "name another directory")
        for file in files or ():
            self._require(file)
        require_trusted(self)
        target.parent.mkdir(parents=True, exist_ok=True)
        with appearing(target) as draft:
            draft.mkdir()
            for file in self.files if files is None else files:
                self._fetch(file, draft / file, progress)
            if files is None:
                self.storage.fetch(f"{self.prefix}/{METADATA}", draft / METADATA)
                with suppress(NotFound):
                    self.storage.fetch(signature_key(self), draft / SIGNATURE)
        return target

    def verify(self, *files: str) -> None:
        """Check the checksums of some files, of all if none is named.

        Raises:
            Damaged: One is missing or not what was uploaded.
        """

        def check(file: str) -> None:
            with tempfile.TemporaryDirectory(prefix="podium-") as directory:
                self._fetch(file, Path(directory) / "file")

        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(check, files or self.files):
                pass

    def _fetch(self, file: str, target: Path, progress: Progress | None = None) -> None:
        try:
            self.storage.fetch(f"{self.prefix}/{file}", target, progress=progress)
        except NotFound as error:
            raise self._lost(file, "is missing") from error
        self._check(file, sha256_of(target))

    def _check(self, file: str, seen: tuple[str, int]) -> None:
        record = self.files[file]
        if seen != (record.sha256, record.size):
            raise self._lost(
                file,
                f"has sha256 {seen[0]} and {seen[1]} bytes, "
                f"but {record.sha256} and {record.size} bytes were uploaded",
            )

    def _lost(self, file: str, problem: str) -> Damaged:
        back = command(f"models rollback {self.name}", self.storage)
        return Damaged(
            f"{self.storage.join(self.prefix)}/{file} {problem}",
            f"restore the file from a backup; if this is the champion, return to the one before: {back}",
        )

    def checksums(self) -> dict[str, str]:
        """Return the sha256 of each file, and of the metadata.json that it was read from.

        Raises:
            Conflict: It was replaced meanwhile.
        """
        content = self.storage.get(metadata_key(self.name, self.version), limit=MAX_BYTES + 1)
        if parse_metadata(content, self.storage, self.name, self.version) != self:
            # Else who can write could show one metadata.json to the reader, another one to a check.
            raise Conflict(f"{METADATA} of {self.title} changed while it was read", "try again")
        files = {name: record.sha256 for name, record in self.files.items()}
        return {METADATA: sha256_of(content)[0]} | files

    def _require(self, file: str) -> None:
        if file not in self.files:
            raise InvalidInput(
                f"version {self.version} of {self.name} has no file {file}",
                f"files: {', '.join(sorted(self.files))}",
            )

    @property
    def is_command(self) -> bool:
        """Whether it predicts by a command that is stored with it, not by an ONNX graph."""
        return "model.json" in self.files and "model.onnx" not in self.files

    @cached_property
    def opened(self) -> "Predictor":
        """The version as a model that predicts, which also streams files larger than memory; raises
        as `open`."""
        return self.open()

    def open(self) -> "Predictor":
        """Open it anew: its memory is free once nobody holds the result.

        Raises:
            Untrusted: PODIUM_PUBLIC_KEY asks for a signature that it does not have.
            InvalidInput: It has no model.
        """
        from podium.prediction.command import MODELS, ONNX, CommandModel
        from podium.prediction.predictor import Predictor
        from podium.scoring import OnnxModel

        require_trusted(self)
        if not set(MODELS) & set(self.files):
            raise InvalidInput(
                f"{self.title} has neither {' nor '.join(MODELS)}, and predicting needs one of them",
                f"its files: {', '.join(self.files)}",
            )

        def model() -> "OnnxModel | CommandModel":
            if self.is_command:
                return CommandModel(name=self.title, fetch=self.fetch)
            return OnnxModel(self.read(ONNX), name=self.title)

        return Predictor(self.title, model, partial(beside, self), self.facts.dataset.classes)

    def predict(self, items: Any, *, data: str | Path = "") -> "Predictions":
        """Predict new items, as the Predictor of ``podium.open_model`` does; a command runs here,
        with your rights."""
        return self.opened.predict(items, data=data)

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what the shell, ``podium mcp`` and the page show of it in a list."""
        return {
            "version": self.version,
            "created": self.created.isoformat(),
            "size": self.size,
            "metric": self.facts.metric.name,
            "value": self.facts.value,
            "dataset": self.facts.dataset.digest,
            "run_id": self.facts.run_id,
        }

    def document(self) -> dict[str, Any]:
        """Return metadata.json before it is sealed."""
        return {
            "format": _FORMAT,
            "name": self.name,
            "version": self.version,
            "created": self.created.isoformat(),
            "files": {
                name: {"sha256": file.sha256, "size": file.size}
                for name, file in sorted(self.files.items())
            },
            **self.metadata,
        }

    def __repr__(self) -> str:
        value = (
            f", {self.facts.metric.name} {figure(self.facts.value)}"
            if self.facts.value is not None
            else ""
        )
        return one_line(f"<{self.title}{value}>")

    def _repr_html_(self) -> str:
        from podium.models.described import described

        return table(("FACT", "VALUE"), described(self).items(), title=self.title)


def check_metadata(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], Facts]:
    """Return metadata after a round trip through JSON, and the part of it that podium reads.

    Raises:
        InvalidInput: A key is reserved for the registry, or a value could not be read back.
    """
    if taken := sorted(set(metadata) & set(_OURS)):
        raise InvalidInput(
            f"the registry itself writes {', '.join(taken)} to the metadata", "choose another key"
        )
    copied: dict[str, Any] = plain(dict(metadata))
    return copied, Facts.parse(copied, "metadata", InvalidInput)


def version_prefix(name: str, version: str) -> str:
    """Return the key prefix of a version's files, without a trailing slash."""
    return f"models/{name}/versions/{version}"


def metadata_key(name: str, version: str) -> str:
    """Return the key of a version's metadata.json."""
    return f"{version_prefix(name, version)}/{METADATA}"


def parse_metadata(content: bytes, storage: Storage, name: str, version: str) -> Version:
    """Parse metadata.json.

    Raises:
        Damaged: It does not match its checksum, belongs to another version, or has an unknown
            format or field type.
    """
    where = storage.join(metadata_key(name, version))
    document = unseal(content, where)
    owner = (document.get("name"), document.get("version"))
    if owner != (name, version):
        raise Damaged(
            f"{where} belongs to {owner[0]} {owner[1]}, not to {name} {version}",
            f"it was copied there: {BACKUP}",
        )
    if document.get("format") != _FORMAT:
        raise Damaged(
            f"{where} has the unknown format {document.get('format')!r}", "upgrade podium?"
        )
    metadata = {key: value for key, value in document.items() if key not in _OURS}
    return Version(
        storage=storage,
        name=name,
        version=version,
        created=read_as(datetime, document.get("created"), where, "created"),
        files=read_as(dict[str, FileRecord], document.get("files"), where, "files"),
        metadata=metadata,
        facts=Facts.parse(metadata, where),
    )

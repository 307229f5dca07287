"""Storing a version so that it is either complete or not there."""

import hashlib
import tempfile
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import Conflict, Damaged, InvalidInput
from podium.files.onnx_files import read_model
from podium.models.document import MAX_BYTES, check_name, command, moment, seal, sha256_of
from podium.models.ledger import CHAMPION, Ledger, State, deletion_token
from podium.models.signature import SIGNATURE
from podium.models.version import (
    METADATA,
    PREDICTIONS,
    TARGET,
    TEST_ITEMS,
    FileRecord,
    Version,
    check_metadata,
    metadata_key,
    parse_metadata,
)
from podium.storage import Entry, Storage, Stored, check_key
from podium.storage.base import Progress, SourceChanged

if TYPE_CHECKING:
    from podium.prediction.directory import ModelDirectory

_RENEWALS = 5
"""Tries to write an equal leftover once more, while others write it too."""

_SETTLED = timedelta(minutes=10)
"""No request takes longer."""

Content = Path | bytes | Stored
"""A file's content: where it is, itself, or an object that was hashed before and is copied."""


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One version on its way into storage."""

    ledger: Ledger
    files: Mapping[str, Content]
    version: Version
    sealed: bytes
    """Its metadata.json."""

    progress: Progress | None
    etags: dict[str, str] = field(default_factory=dict)
    """Etag by file, of those that are written."""

    @classmethod
    def prepare(
        cls,
        ledger: Ledger,
        files: Mapping[str, Content],
        metadata: Mapping[str, Any],
        version: str | None,
        progress: Progress | None,
    ) -> "Upload":
        """Check and hash everything; nothing is written.

        Raises:
            InvalidInput: A file, the version or the metadata breaks a rule.
        """
        copied, facts = check_metadata(metadata)
        _check_files(files)
        records = _hash(files)
        name = check_name("version", version or facts.run_id or _content_id(records))
        if name == CHAMPION:
            raise InvalidInput(
                f"a version cannot be called {CHAMPION}: that is an alias", "choose another version"
            )
        wanted = Version(
            storage=ledger.storage,
            name=ledger.name,
            version=name,
            created=datetime.now(UTC),
            files=records,
            metadata=copied,
            facts=facts,
        )
        return cls(
            ledger=ledger,
            files=files,
            version=wanted,
            sealed=seal(wanted.document()),
            progress=progress,
        )

    def run(self) -> Version:
        """Write the files, then metadata.json, then the version's name into the document; return
        the version, or the equal one that is there already.

        Raises:
            InvalidInput: An alias has its name.
            Conflict: The version exists with other content.
        """
        name = self.version.version
        state, _ = self.ledger.read()
        if name in state.aliases:
            raise InvalidInput(
                f"{name} is an alias of {self.ledger.name}, which points at {state.aliases[name].version}",
                "choose another version",
            )
        if present := self.ledger.load(name, state):
            return self._same(present)
        old = state.deleting.get(name)
        token = old and self._take_over(old)
        for file in self.files:
            self._put(file, self.progress, over_leftovers=token is not None)
        return self._publish(state.versions.get(name), token)

    def _take_over(self, old: str) -> str:
        """Replace the token of a deletion with our own, which stops the collector that is still
        deleting; return ours."""
        name, ledger = self.version.version, self.ledger
        began = old.partition(" ")[0]
        if _is_recent(began, datetime.now(UTC)):
            raise self._busy()
        token = f"{began} {uuid.uuid4().hex}"
        if not ledger.hand_over(name, old, token):
            raise self._busy()
        # By the storage's own clock, as the token's time is: those of two hosts may differ by
        # hours.
        taken = self.ledger.storage.head(ledger.key)
        if taken is None or _is_recent(began, taken.modified):
            raise self._busy()
        keys = {f"{self.version.prefix}/{file}" for file in self.version.files}
        if other := [entry for entry in ledger.entries(name) if entry.key not in keys]:
            held, token = token, deletion_token(taken.modified)
            if not ledger.hand_over(name, held, token):
                raise self._busy()
            try:
                for left in other:
                    self.ledger.storage.delete(left.key, if_match=left.etag)
            except Conflict as error:
                raise self._busy() from error
        return token

    def _put(self, file: str, progress: Progress | None, *, over_leftovers: bool = False) -> None:
        """Write one file; an equal leftover of an upload that died is replaced.

        Args:
            progress: Called with the size of every chunk.
            over_leftovers: Existing files belong to a deleted version.
        """
        key = f"{self.version.prefix}/{file}"
        content, record = self.files[file], self.version.files[file]
        try:
            if over_leftovers and (left := self.ledger.storage.head(key)):
                entry = self._write(key, content, left.etag, progress)
            else:
                entry = self._write(key, content, None, progress)
        except SourceChanged:
            raise
        except Conflict:
            entry = self._renew(key, file, over_leftovers=over_leftovers)
        if entry.size != record.size:
            raise InvalidInput(
                f"{file} changed while it was uploaded", "upload it again once it is finished"
            )
        self.etags[file] = entry.etag

    def _renew(self, key: str, file: str, *, over_leftovers: bool) -> Entry:
        """Write an equal leftover once more, so that it is young: leftovers are collected by their
        age. Over those of a deleted version an equal file is our own, of which the answer was lost.
        """
        for _ in range(_RENEWALS):
            sha256, left = _stored(self.ledger.storage, key)
            if sha256 != self.version.files[file].sha256:
                if over_leftovers:
                    break
                verify = f"models verify {self.version.name} --fix --grace 0"
                raise InvalidInput(
                    f"an unfinished upload left another {file} in version {self.version.version}",
                    f"choose another version, or clear it: {command(verify, self.ledger.storage)} deletes "
                    "whatever is unfinished",
                )
            if over_leftovers:
                return left
            try:
                return self._write(key, self.files[file], left.etag, None)
            except SourceChanged:
                raise
            except Conflict:  # of an equal upload, which wrote it just now
                continue
        raise self._busy()

    def _write(
        self, key: str, content: Content, over: str | None, progress: Progress | None
    ) -> Entry:
        """Write a file over the one with an etag, or where there is none yet: a request that
        arrives twice, the second time late, then changes nothing. A copy within a server is written
        over whatever there is."""
        if not isinstance(content, Stored):
            return self.ledger.storage.put(
                key, content, if_absent=over is None, if_match=over, progress=progress
            )
        source = content.entry
        entry = self.ledger.storage.copy(
            key, content.storage, source.key, if_absent=over is None, source_etag=source.etag
        )
        if progress:
            progress(entry.size)
        return entry

    def _publish(self, before: str | None, token: str | None) -> Version:
        """Make the version visible, by one write of the document.

        Args:
            before: What the document named until now: metadata.json that somebody removed.
            token: Ours, over leftovers.
        """
        name, looked = self.version.version, ""

        def publish(state: State) -> State | None:
            if state.versions.get(name) == digest:
                return None
            if (state.versions.get(name), state.deleting.get(name)) != (before, token):
                raise self._busy()
            if state.collected != looked:
                return None
            named = {**state.versions, name: digest}
            return replace(state.with_token(name, None), versions=named)

        while True:
            # No reader sees half a version: it is named if nobody deletes files while they are
            # looked at.
            there, _ = self.ledger.read()
            if there.deleting.get(name) != token:
                raise self._busy()
            looked = there.collected
            published, content = self._put_metadata()
            digest = sha256_of(content)[0]
            present = {entry.key: entry.etag for entry in self.ledger.entries(name)}
            for file in self.files:  # another may stand there, of an upload after a deletion
                if present.get(f"{self.version.prefix}/{file}") != self.etags[file]:
                    self._put(file, None)
            if self.ledger.change(publish).versions.get(name) == digest:
                return published

    def _put_metadata(self) -> tuple[Version, bytes]:
        """Write metadata.json, or take the one of an equal upload; return its version and its
        bytes."""
        key = metadata_key(self.version.name, self.version.version)
        try:
            self.ledger.storage.put(key, self.sealed, if_absent=True)
        except Conflict:
            content = self.ledger.storage.get(key, limit=MAX_BYTES + 1)
            there = parse_metadata(
                content, self.ledger.storage, self.version.name, self.version.version
            )
            return self._same(there), content
        return self.version, self.sealed

    def _same(self, present: Version) -> Version:
        wanted, stored = dict(self.version.files), dict(present.files)
        if wanted != stored:
            differing = sorted(
                file for file in {*wanted, *stored} if wanted.get(file) != stored.get(file)
            )
            raise Conflict(
                f"version {present.version} of {present.name} exists with other content in {', '.join(differing)}",
                "a version never changes; upload under another version",
            )
        return present

    def _busy(self) -> Conflict:
        return Conflict(
            f"version {self.version.version} of {self.version.name} is being deleted or uploaded",
            "try again in ten minutes",
        )


def _is_recent(began: str, now: datetime) -> bool:
    """Return whether a deletion began so short ago that a request of it may be on its way still: it
    would delete equal bytes that are written meanwhile."""
    try:
        return abs(now - moment(began)) < _SETTLED
    except ValueError:  # written by hand
        return False


def _check_files(files: Mapping[str, Content]) -> None:
    if not files:
        raise InvalidInput("a version without files cannot be uploaded")
    for file, source in files.items():
        if check_key(file) in (METADATA, SIGNATURE):
            hint = (
                "upload without it, then podium models sign NAME VERSION"
                if file == SIGNATURE
                else None
            )
            raise InvalidInput(
                f"a file of a version cannot be called {file}: the registry writes it", hint
            )
        if isinstance(source, Path) and not source.is_file():
            raise InvalidInput(f"there is no file {source}")
    for file, source in files.items():
        if file.endswith(".onnx") and not isinstance(source, Stored):
            with suppress(Damaged):  # what is not a model at all is refused when it is run
                read_model(source, file)


def _hash(files: Mapping[str, Content]) -> dict[str, FileRecord]:
    def hashed_of(content: Content) -> tuple[str, int]:
        return (
            (content.sha256, content.entry.size)
            if isinstance(content, Stored)
            else sha256_of(content)
        )

    with ThreadPoolExecutor(4) as pool:
        hashed = pool.map(hashed_of, files.values())
        return {
            name: FileRecord(sha256=digest, size=size)
            for name, (digest, size) in zip(files, hashed, strict=True)
        }


def _content_id(records: Mapping[str, FileRecord]) -> str:
    """Derive a version's id from its content, so that uploading the same files twice gives one
    version."""
    listing = "".join(f"{record.sha256}  {file}\n" for file, record in sorted(records.items()))
    return f"sha256-{hashlib.sha256(listing.encode()).hexdigest()[:16]}"


def _stored(storage: Storage, key: str) -> tuple[str, Entry]:
    """Return the sha256 of an object, computed through a temporary file, and its entry."""
    with tempfile.TemporaryDirectory(prefix="podium-") as directory:
        target = Path(directory) / "object"
        entry = storage.fetch(key, target)
        return sha256_of(target)[0], entry


def require_no_reserved(directory: "ModelDirectory") -> list[str]:
    """Return the names of the files of a model directory.

    Raises:
        InvalidInput: One is that of a file which podium writes beside a version's own.
    """
    names = list(directory.files)
    for name in names:
        if name in (PREDICTIONS, TARGET, TEST_ITEMS, SIGNATURE):
            raise InvalidInput(
                f"{directory.uri} holds {name}, and podium writes a file of that name beside a model",
                "let the trainer, and its predict command, give it another name",
            )
    return names

"""Storing a version so that it is either complete or not there."""

import hashlib
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from podium.errors import Conflict, Damaged, InvalidInput
from podium.models.catalog import Catalog
from podium.models.document import check_name, seal, sha256_of
from podium.models.journal import Journal
from podium.models.pointers import CHAMPION
from podium.models.version import (
    METADATA,
    SIGNATURE,
    FileRecord,
    Tombstone,
    Version,
    check_metadata,
)
from podium.onnx_files import read_model
from podium.storage import Entry, Storage, Stored, check_key
from podium.storage.base import Progress, SourceChanged

Content = Path | bytes | Stored
"""A file's content: where it is, itself, or an object that was hashed before and is copied."""


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One version on its way into storage."""

    catalog: Catalog
    journal: Journal
    files: Mapping[str, Content]
    version: Version
    sealed: bytes
    """Its metadata.json."""

    progress: Progress | None

    @classmethod
    def prepare(
        cls,
        catalog: Catalog,
        journal: Journal,
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
            catalog=catalog,
            version=name,
            created=datetime.now(UTC),
            files=records,
            metadata=copied,
            facts=facts,
        )
        return cls(
            catalog=catalog,
            journal=journal,
            files=files,
            version=wanted,
            sealed=seal(wanted.document()),
            progress=progress,
        )

    @property
    def storage(self) -> Storage:
        """Where it goes."""
        return self.catalog.storage

    def run(self) -> Version:
        """Write the files, then metadata.json; return the version, or the equal one that is there
        already.

        Raises:
            Conflict: The version exists with other content.
        """
        present, entry = self.catalog.look(self.version.version)
        if isinstance(present, Version):
            return self._same(present)
        etag = self._take_over(present, entry) if present and entry else None
        for file in self.files:
            self._put(file, self.progress, over_leftovers=etag is not None)
        return self._publish(etag)

    def _take_over(self, old: Tombstone, entry: Entry) -> str:
        """Replace the tombstone of an earlier deletion with our own, which stops the collector that
        is still deleting.

        Returns:
            The etag of ours.
        """
        if old.event:
            self.journal.write(old.event)
        key = f"{self.version.prefix}/{METADATA}"
        ours = Tombstone(name=self.version.name, version=self.version.version, event=None)
        try:
            etag = self.storage.put(key, ours.seal(), if_match=entry.etag).etag
            for left in self.catalog.entries(self.version.version):
                if (
                    left.key != key
                    and left.key.removeprefix(f"{self.version.prefix}/") not in self.version.files
                ):
                    self.storage.delete(left.key, if_match=left.etag)
        except Conflict as error:
            raise self._busy() from error
        return etag

    def _put(self, file: str, progress: Progress | None, *, over_leftovers: bool = False) -> None:
        """Write one file; an equal leftover of an upload that died is replaced.

        Args:
            progress: Called with the size of every chunk.
            over_leftovers: Existing files belong to a deleted version.
        """
        key = f"{self.version.prefix}/{file}"
        record = self.version.files[file]
        try:
            entry = self._write(key, self.files[file], not over_leftovers, progress)
        except SourceChanged:
            raise
        except Conflict:
            if _stored_sha256(self.storage, key) != record.sha256:
                raise InvalidInput(
                    f"an unfinished upload left another {file} in version {self.version.version}",
                    "choose another version, or clear it: podium models gc",
                ) from None
            # gc judges leftovers by their age: make it young again.
            entry = self._write(key, self.files[file], False, None)
        if entry.size != record.size:
            raise InvalidInput(
                f"{file} changed while it was uploaded", "upload it again once it is finished"
            )

    def _write(
        self, key: str, content: Content, if_absent: bool, progress: Progress | None
    ) -> Entry:
        if not isinstance(content, Stored):
            return self.storage.put(key, content, if_absent=if_absent, progress=progress)
        source = content.entry
        entry = self.storage.copy(
            key, content.storage, source.key, if_absent=if_absent, source_etag=source.etag
        )
        if progress:
            progress(entry.size)
        return entry

    def _publish(self, etag: str | None) -> Version:
        """Make the version visible, in one write that only one uploader can win; over our own
        tombstone, if any."""
        key = f"{self.version.prefix}/{METADATA}"
        try:
            self.storage.put(key, self.sealed, if_absent=etag is None, if_match=etag)
        except Conflict as error:
            present = self.catalog.load(self.version.version)
            if present is None:
                raise self._busy() from error
            return self._same(present)
        # A collector may have deleted files until now. From here on it misses its own tombstone, and stops.
        present_keys = {entry.key for entry in self.catalog.entries(self.version.version)}
        for file in self.files:
            if f"{self.version.prefix}/{file}" not in present_keys:
                self._put(file, None)
        return self.version

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
            "try again in a minute",
        )


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


def _stored_sha256(storage: Storage, key: str) -> str:
    """Compute the sha256 of an object through a temporary file, not in memory."""
    with tempfile.TemporaryDirectory(prefix="podium-") as directory:
        target = Path(directory) / "object"
        storage.fetch(key, target)
        return sha256_of(target)[0]

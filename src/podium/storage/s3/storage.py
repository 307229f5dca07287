"""A bucket of MinIO or any other S3 server as a storage."""

import hashlib
import io
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import urlsplit

from podium.errors import Conflict, NotFound, PodiumError
from podium.storage.base import Entry, Progress, Storage, check_key, check_prefix
from podium.storage.files import scratch
from podium.storage.s3.bucket import PART, SMALLEST_PART, Bucket, bare
from podium.storage.s3.config import S3Config, read_config
from podium.storage.s3.errors import Interrupted, retried
from podium.storage.s3.lock import honored, locked

_NOTES = ".podium/uploads/"
_ATTEMPTS = 3
_conditions: dict[tuple[str, str, bool], bool] = {}
"""Whether a server honors conditions, by its URL, the bucket and whether the upload is in parts."""

_T = TypeVar("_T")


class S3Storage(Storage):
    """Objects under a prefix of a bucket. Safe to share between threads, not between processes."""

    def __init__(self, url: str, config: S3Config) -> None:
        self.bucket = Bucket(url, config)
        self.url = self.bucket.url

    @classmethod
    def open(cls, url: str, *, create: bool = False) -> "S3Storage":
        """Open a bucket as the environment says.

        Args:
            url: ``s3://bucket/prefix`` or ``minio://bucket/prefix``; nothing in it is percent-encoded.
            create: Make the bucket if it does not exist.
        """
        storage = cls(url, read_config(urlsplit(url).scheme))
        if create:
            storage.bucket.create()
        return storage

    def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        progress: Progress | None = None,
    ) -> Entry:
        check_key(key)
        if not if_absent and if_match is None:
            return self._put(key, source, progress)
        size = len(source) if isinstance(source, bytes) else _size_of(source)
        if self.conditional(in_parts=size > PART):
            with self.bucket.pool.condition(if_absent, if_match):
                return self._put(key, source, progress)
        self._check(key, if_absent, if_match)  # do not queue for the lock if the condition fails already
        with locked(key, self._put_plain, self._times, self.bucket.delete) as renew:
            self._check(key, if_absent, if_match)

            def moved(count: int) -> None:
                renew()
                if progress:
                    progress(count)

            return self._put(key, source, moved)

    def read(self, key: str, *, limit: int | None = None) -> tuple[bytes, Entry]:
        return _again(lambda: self._read(check_key(key), limit), Interrupted)

    def fetch(self, key: str, target: Path, *, progress: Progress | None = None) -> Entry:
        return _again(lambda: self._fetch(check_key(key), target, progress), Conflict)  # it was replaced meanwhile

    def head(self, key: str) -> Entry | None:
        try:
            return self.bucket.stat(check_key(key))
        except NotFound:
            return None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        for entry in self.bucket.objects(check_prefix(prefix)):
            if "/.podium" not in f"/{entry.key}":
                yield entry

    def children(self, prefix: str) -> Iterator[str]:
        for name in self.bucket.folders(f"{check_prefix(prefix)}/" if prefix else ""):
            if not name.startswith(".podium"):
                yield name

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        check_key(key)
        if if_match is None:
            self.bucket.delete(key)
        elif self.head(key) is not None and self.conditional():
            self._check(key, False, if_match)
            # Many servers check If-Match on a DELETE as well, which closes the gap between this check and the deletion.
            with suppress(NotFound), self.bucket.pool.condition(False, if_match):
                self.bucket.delete(key)
        elif self.head(key) is not None:
            with locked(key, self._put_plain, self._times, self.bucket.delete):
                self._check(key, False, if_match)
                self.bucket.delete(key)

    def conditions(self) -> str:
        if not self.conditional():
            return "lock objects: the server ignores conditions"
        large = "" if self.conditional(in_parts=True) else "; lock objects for uploads in parts"
        return f"the server (If-None-Match, If-Match){large}"

    def sweep(self, prefix: str, before: datetime, *, delete: bool) -> Iterator[Entry]:
        notes = [(note, self._noted(note.key)) for note in self.bucket.objects(_NOTES)]
        notes = [(note, key) for note, key in notes if key.startswith(prefix)]
        uploads = self.bucket.unfinished(check_prefix(prefix))
        for key in {key for _, key in notes}:
            uploads |= self.bucket.unfinished(key)  # MinIO lists uploads by the whole key only
        young = {key for note, key in notes if note.modified >= before}
        for upload_id, entry in uploads.items():
            if entry.modified < before and entry.key not in young:
                if delete:
                    self.bucket.abort(entry.key, upload_id)
                yield entry
        for note, key in notes if delete else ():
            if key not in young:
                self.bucket.delete(note.key)
        for entry in self.bucket.objects(".podium/"):
            if entry.modified < before and not entry.key.startswith(_NOTES):
                if delete:
                    self.bucket.delete(entry.key)
                yield entry

    def conditional(self, *, in_parts: bool = False) -> bool:
        """Return whether the server honors conditions on writes, which is tried once.

        Args:
            in_parts: On the completion of uploads in parts, which some servers do not check.
        """
        server = (self.bucket.config.url, self.bucket.name, in_parts)
        if server not in _conditions:
            _conditions[server] = honored(
                partial(self._put, progress=None, part=SMALLEST_PART),
                self.bucket.pool.condition,
                self.bucket.delete,
                bytes(SMALLEST_PART + 1) if in_parts else b"2",
            )
        return _conditions[server]

    def _check(self, key: str, if_absent: bool, if_match: str | None) -> None:
        present = self.head(key)
        if (if_absent and present) or (if_match is not None and (present is None or present.etag != if_match)):
            raise Conflict(f"{key} in {self.url} was written by somebody else meanwhile")

    def _put(self, key: str, source: bytes | Path, progress: Progress | None, part: int = PART) -> Entry:
        from minio.error import S3Error

        size = len(source) if isinstance(source, bytes) else _size_of(source)
        opened = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
        with opened as file, self._announced(key, size), self.bucket.translated("write", key):
            try:
                return self.bucket.send(key, file, size, progress, part)
            except S3Error as error:
                if error.code == "NoSuchKey":  # MinIO's answer to If-Match where there is no object
                    raise Conflict(f"{key} in {self.url} was deleted meanwhile") from error
                present = self._own(key, source) if error.code == "PreconditionFailed" and retried(error) else None
                if present is None:
                    raise
                return present

    @contextmanager
    def _announced(self, key: str, size: int) -> Iterator[None]:
        """Keep a note of an upload in parts while it lasts: if it is killed, sweep knows where to look."""
        if size <= PART:
            yield
            return
        note = f"{_NOTES}{uuid.uuid4().hex}"
        self._put_plain(note, key.encode())
        try:
            yield
        finally:
            self.bucket.delete(note)

    def _noted(self, note: str) -> str:
        try:
            return self._read(note)[0].decode()
        except NotFound:
            return ""  # finished meanwhile

    def _own(self, key: str, source: bytes | Path) -> Entry | None:
        """Return the object if we wrote it: the answer to the first attempt was lost and the second one met it."""
        present = self.head(key)
        if present is None or not isinstance(source, bytes):
            return None
        return present if present.etag == hashlib.md5(source, usedforsecurity=False).hexdigest() else None

    def _put_plain(self, key: str, content: bytes) -> None:
        """Write a helper object without the condition that this thread's writes may have."""
        with self.bucket.pool.condition(False, None):
            self._put(key, content, None)

    def _times(self, prefix: str) -> dict[str, datetime]:
        return {entry.key: entry.modified for entry in self.bucket.objects(prefix)}

    def _read(self, key: str, limit: int | None = None) -> tuple[bytes, Entry]:
        with self.bucket.response(key) as response:
            content = response.read(limit)
        headers = response.headers
        size = len(content) if limit is None else int(headers["content-length"])
        modified = parsedate_to_datetime(headers["last-modified"])
        return content, Entry(key=key, size=size, etag=bare(headers.get("etag")), modified=modified)

    def _fetch(self, key: str, target: Path, progress: Progress | None) -> Entry:
        entry = self.bucket.stat(key)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with scratch(target) as temporary:
                with temporary.open("wb") as sink:
                    self._download(entry, sink, progress)
                os.replace(temporary, target)
        except OSError as error:
            raise PodiumError(f"cannot write {target}: {error.strerror or error}", "is the disk full?") from error
        return entry

    def _download(self, entry: Entry, sink: BinaryIO, progress: Progress | None) -> None:
        """Read an object into a file; resume after broken connections as long as each attempt gets further."""
        failures = 0
        while (start := sink.tell()) < entry.size:
            try:
                self.bucket.download(entry, sink, progress)
            except Interrupted:
                failures = 1 if sink.tell() > start else failures + 1
                if failures == _ATTEMPTS:
                    raise


def _again(work: Callable[[], _T], kind: type[PodiumError]) -> _T:
    """Call work up to three times, again after each error of this kind."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(kind):
            return work()
    return work()


def _size_of(source: Path) -> int:
    try:
        return source.stat().st_size
    except OSError as error:
        raise PodiumError(f"cannot read {source}: {error.strerror}") from error

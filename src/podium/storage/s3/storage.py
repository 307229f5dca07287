"""A bucket of MinIO or any other S3 server as a storage: what minio-py has no call for.

That is conditions on writes (`conditional.py`), downloads that resume, and the parts that killed
uploads left.
"""

import hashlib
import io
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import urlsplit

import urllib3

from podium.errors import Conflict, InvalidInput, NotFound, PodiumError, file_hint
from podium.files.documents import load_json, parse
from podium.files.drafts import appearing
from podium.storage.base import (
    Entry,
    Progress,
    SourceChanged,
    Storage,
    check_key,
    check_prefix,
)
from podium.storage.s3.bucket import Bucket
from podium.storage.s3.conditional import NOTES, ConditionalWrites
from podium.storage.s3.config import S3Config, read_config
from podium.storage.s3.errors import Interrupted, Unsupported, no_s3
from podium.storage.s3.lock import LEASE, LOCKS

PART, MOST_PARTS = 8 << 20, 10_000
"""Bytes in each part of an upload, and S3's most parts, for which those of a very large object are
larger; what is not larger than one is sent in one request."""

COPY_PART = 640 << 20
"""Bytes that the server copies in one request: 10,000 of them hold the largest object of S3."""

LOCKED_COPY = 1 << 30
"""Bytes that are surely copied while a lock holds, which nobody renews meanwhile."""

_ATTEMPTS = 3
_CHUNK = 1 << 20
_UPLOADS = ".podium/uploads/"
"""Notes of uploads in parts while they last; a note of a killed writer tells sweep which parts to
drop."""

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class _Upload:
    """An upload in parts, as it is noted."""

    key: str

    id: str
    """The server's."""

    size: int
    """Bytes of the whole object."""


class S3Storage(Storage):
    """Objects under a prefix of a bucket. Safe to share between threads, not between processes, as
    minio-py is."""

    def __init__(self, url: str, config: S3Config) -> None:
        self.bucket = Bucket(url, config)
        self.url = self.bucket.url
        self._conditional = ConditionalWrites(
            self.bucket, self._put, lambda key: _again(lambda: self._read(key), Interrupted)
        )

    @classmethod
    def open(cls, url: str, *, create: bool = False) -> "S3Storage":
        """Open a bucket as the environment says.

        Args:
            url: ``s3://bucket/prefix`` or ``minio://bucket/prefix``; nothing in it is
                percent-encoded.
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
        def write(moved: Progress | None) -> Entry:
            return self._put(key, source, moved)

        return self._conditional.write(
            key, if_absent, if_match, write, progress, in_parts=_size_of(source) > PART
        )

    def copy(
        self,
        key: str,
        source: Storage,
        source_key: str,
        *,
        if_absent: bool = False,
        source_etag: str | None = None,
    ) -> Entry:
        if isinstance(source, S3Storage) and self.bucket.reaches(source.bucket):
            entry = source.bucket.stat(check_key(source_key))
            entry.require_etag(source_etag)
            locks = if_absent and not self._conditional.support(in_parts=True).atomic
            if entry.size > PART and not (locks and entry.size > LOCKED_COPY):
                with suppress(Unsupported):
                    return self._copy(key, source.bucket, entry, if_absent)
        return super().copy(key, source, source_key, if_absent=if_absent, source_etag=source_etag)

    def _copy(self, key: str, source: Bucket, entry: Entry, if_absent: bool) -> Entry:
        def write(moved: Progress | None) -> Entry:
            def renew() -> None:
                if moved:  # a lock that was lost meanwhile is an error, and no object appears
                    moved(0)

            with self._note_of_parts(key, entry.size), self.bucket.pool.before_writes(renew):
                etag = self.bucket.copy(key, source, entry, COPY_PART)
            return Entry(key=key, size=entry.size, etag=etag, modified=datetime.now(UTC))

        try:
            copied = self._conditional.write(key, if_absent, None, write, None, in_parts=True)
        except PodiumError:
            source.stat(entry.key).require_etag(entry.etag)
            raise
        try:
            # Some servers ignore conditions on the source.
            source.stat(entry.key).require_etag(entry.etag)
        except (NotFound, SourceChanged):
            self.delete(key, if_match=copied.etag)
            raise
        return copied

    def read(self, key: str, *, limit: int | None = None) -> tuple[bytes, Entry]:
        return _again(lambda: self._read(check_key(key), limit), Interrupted)

    def fetch(self, key: str, target: Path, *, progress: Progress | None = None) -> Entry:
        return _again(
            lambda: self._fetch(check_key(key), target, progress), Conflict
        )  # it was replaced meanwhile

    def head(self, key: str) -> Entry | None:
        return self.bucket.head(check_key(key))

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
        elif self.head(key) is not None:
            self._conditional.delete(key, if_match)

    def conditions(self) -> str:
        return self._conditional.describe()

    def sweep(self, prefix: str, before: datetime, *, delete: bool) -> Iterator[Entry]:
        check_prefix(prefix)
        working = datetime.now(UTC) - timedelta(seconds=LEASE)
        for entry in self.bucket.objects(".podium/"):
            is_held = entry.key.startswith(LOCKS) and entry.modified >= working
            if entry.modified >= before or entry.key.startswith(NOTES) or is_held:
                continue
            if entry.key.startswith(_UPLOADS):
                upload = self._noted(entry.key)
                if upload is None or not upload.key.startswith(prefix):
                    continue
                if delete:
                    self.bucket.abort(upload.key, upload.id)
                yield Entry(key=upload.key, size=upload.size, etag="", modified=entry.modified)
            else:
                yield entry
            if delete:
                self.bucket.delete(entry.key)

    def _put(self, key: str, source: bytes | Path, progress: Progress | None = None) -> Entry:
        from minio.error import S3Error

        size = _size_of(source)
        opened = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
        with opened as file, self._note_of_parts(key, size), self.bucket.translated("write", key):
            try:
                etag = self.bucket.put(key, file, size, _part_of(size), progress)
            except S3Error as error:
                if error.code == "NoSuchKey":  # MinIO's answer to If-Match where there is no object
                    raise Conflict(f"{key} in {self.url} was deleted meanwhile") from error
                if error.code != "PreconditionFailed" or not _was_retried(error):
                    raise
                # Perhaps we wrote it: the answer to the first attempt was lost, and the second met
                # it.
                present = self.head(key)
                if present is None or not _holds(present, source):
                    raise
                return present
        return Entry(key=key, size=size, etag=etag, modified=datetime.now(UTC))

    @contextmanager
    def _note_of_parts(self, key: str, size: int) -> Iterator[None]:
        note = f"{_UPLOADS}{uuid.uuid4().hex}"
        written = False

        def started(upload: str) -> None:
            nonlocal written
            self._conditional.put_plain(
                note, json.dumps(asdict(_Upload(key=key, id=upload, size=size))).encode()
            )
            written = True

        with self.bucket.pool.reporting_uploads(started):
            try:
                yield
            finally:
                if written:
                    with self.bucket.pool.condition(False, None):
                        self.bucket.delete(note)

    def _noted(self, note: str) -> _Upload | None:
        try:
            return parse(_Upload, load_json(self._read(note)[0], note), note)
        except (NotFound, InvalidInput):  # finished meanwhile, or not ours
            return None

    def _read(self, key: str, limit: int | None = None) -> tuple[bytes, Entry]:
        with self.bucket.opened(key) as response:
            content = response.read(limit)
        headers = response.headers
        try:
            size = len(content) if limit is None else int(headers["content-length"])
            modified = parsedate_to_datetime(headers["last-modified"])
        except (KeyError, ValueError):
            raise no_s3(
                "with an object without Content-Length or Last-Modified", "read", self.bucket.config
            ) from None
        return content, Entry(
            key=key, size=size, etag=headers.get("etag", "").strip('"'), modified=modified
        )

    def _fetch(self, key: str, target: Path, progress: Progress | None) -> Entry:
        entry = self.bucket.stat(key)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with appearing(target) as draft, draft.open("wb") as sink:
                self._download(entry, sink, progress)
        except OSError as error:
            raise PodiumError(
                f"cannot write {target}: {error.strerror or error}", file_hint(error)
            ) from error
        return entry

    def _download(self, entry: Entry, sink: BinaryIO, progress: Progress | None) -> None:
        """Read exactly this object into a file; resume broken connections as long as each attempt
        gets further."""
        condition, failures = {"If-Match": f'"{entry.etag}"'}, 0
        while (start := sink.tell()) < entry.size:
            try:
                with self.bucket.opened(
                    entry.key, offset=start, request_headers=condition
                ) as response:
                    if response.status == 200:  # some servers know no ranges
                        sink.seek(0)
                    for chunk in response.stream(amt=_CHUNK):
                        sink.write(chunk)
                        if progress:
                            progress(len(chunk))
                if sink.tell() == start:
                    raise Interrupted(f"cannot read {entry.key}: the answer is empty")
            except Interrupted:
                failures = 1 if sink.tell() > start else failures + 1
                if failures == _ATTEMPTS:
                    raise

    def secrets(self) -> Sequence[str]:
        """Return the secret key, and the session token if there is one."""
        try:
            credentials = self.bucket.config.provider.retrieve()
        except ValueError:  # minio's, where a role gives none; any access fails then
            return ()
        return [value for value in (credentials.secret_key, credentials.session_token) if value]


def _part_of(size: int) -> int:
    """Return the bytes in each part of an upload of so many."""
    return max(PART, -(-size // MOST_PARTS))


def _again(work: Callable[[], _T], kind: type[PodiumError]) -> _T:
    for _ in range(_ATTEMPTS - 1):
        with suppress(kind):
            return work()
    return work()


def _holds(entry: Entry, source: bytes | Path) -> bool:
    return (
        isinstance(source, bytes)
        and entry.etag == hashlib.md5(source, usedforsecurity=False).hexdigest()
    )


def _size_of(source: bytes | Path) -> int:
    if isinstance(source, bytes):
        return len(source)
    try:
        return source.stat().st_size
    except OSError as error:
        raise PodiumError(f"cannot read {source}: {error.strerror}") from error


def _was_retried(error: Exception) -> bool:
    response = getattr(error, "response", None)
    retries = getattr(response, "retries", None)
    return isinstance(retries, urllib3.Retry) and bool(retries.history)

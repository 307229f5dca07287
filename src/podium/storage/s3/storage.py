"""A bucket of MinIO or any other S3 server as a storage: what minio-py has no call for.

That is conditions on writes, with locks where a server ignores them; downloads that resume; and the
parts that killed uploads left.
"""

import hashlib
import io
import json
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import urlsplit

from podium.documents import load_json, parse
from podium.drafts import appearing
from podium.errors import Conflict, InvalidInput, NotFound, PodiumError
from podium.storage.base import (
    Entry,
    Progress,
    SourceChanged,
    Storage,
    check_key,
    check_prefix,
    check_unchanged,
)
from podium.storage.s3.bucket import Bucket, bare
from podium.storage.s3.config import S3Config, read_config
from podium.storage.s3.errors import Interrupted, Unsupported, no_s3, retried
from podium.storage.s3.lock import locked
from podium.storage.s3.probe import Conditions, probe

PART = 8 << 20
"""Bytes in each part of an upload; what is not larger is sent in one request. S3 takes up to 10,000
parts."""

COPY_PART = 640 << 20
"""Bytes that the server copies in one request: 10,000 of them hold the largest object of S3."""

LOCKED_COPY = 1 << 30
"""Bytes that are surely copied while a lock holds, which nobody renews meanwhile."""

_ATTEMPTS = 3
_CHUNK = 1 << 20
_UPLOADS = ".podium/uploads/"
"""Notes of uploads in parts while they last; a note of a killed writer tells sweep which parts to
drop."""

_NOTES_OF_CONDITIONS = ".podium/conditions/"
_REMEMBERED = timedelta(days=1)

_seen: dict[tuple[str, str, bool], Conditions] = {}
"""Support for conditional writes, by URL of the server, bucket and whether the upload is in
parts."""

_probing = threading.Lock()

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

        return self._on_condition(
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
            check_unchanged(entry, source_etag)
            locks = if_absent and not self._conditions(in_parts=True).atomic
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
            copied = self._on_condition(key, if_absent, None, write, None, in_parts=True)
        except PodiumError:
            check_unchanged(source.stat(entry.key), entry.etag)
            raise
        try:
            check_unchanged(
                source.stat(entry.key), entry.etag
            )  # some servers ignore conditions on the source
        except (NotFound, SourceChanged):
            self.delete(key, if_match=copied.etag)
            raise
        return copied

    def _on_condition(
        self,
        key: str,
        if_absent: bool,
        if_match: str | None,
        write: Callable[[Progress | None], Entry],
        progress: Progress | None,
        *,
        in_parts: bool,
    ) -> Entry:
        """Write an object on a condition, under a lock if the server does not enforce it."""
        check_key(key)
        if not if_absent and if_match is None:
            return write(progress)
        conditions = self._conditions(in_parts=in_parts)
        if conditions.atomic:
            with self.bucket.pool.condition(if_absent, if_match):
                return write(progress)
        self._check(
            key, if_absent, if_match
        )  # do not queue for the lock if the condition fails already
        with locked(key, self._put_plain, self._times, self.bucket.delete) as renew:
            self._check(key, if_absent, if_match)

            def moved(count: int) -> None:
                renew()
                if progress:
                    progress(count)

            # The condition is sent as well if that helps: another process may have seen nothing wrong with the server.
            honored = conditions.honored
            with self.bucket.pool.condition(if_absent and honored, if_match if honored else None):
                return write(moved)

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
        elif self.head(key) is not None and self._conditions().atomic:
            self._check(key, False, if_match)
            # Many servers check If-Match on a DELETE as well, which closes the gap between this check and the deletion.
            with suppress(NotFound), self.bucket.pool.condition(False, if_match):
                self.bucket.delete(key)
        elif self.head(key) is not None:
            with locked(key, self._put_plain, self._times, self.bucket.delete):
                self._check(key, False, if_match)
                self.bucket.delete(key)

    def conditions(self) -> str:
        small = self._try_conditions(in_parts=False)
        if not small.atomic:
            return f"lock objects: {small.seen}"
        large = self._try_conditions(in_parts=True)
        return (
            small.seen
            if large.atomic
            else f"{small.seen}; lock objects for uploads in parts: {large.seen}"
        )

    def sweep(self, prefix: str, before: datetime, *, delete: bool) -> Iterator[Entry]:
        check_prefix(prefix)
        for entry in self.bucket.objects(".podium/"):
            if entry.modified >= before or entry.key.startswith(_NOTES_OF_CONDITIONS):
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

    def _conditions(self, *, in_parts: bool = False) -> Conditions:
        """Return the server's support for conditional writes: probed at most once a day, remembered
        in the bucket.

        Args:
            in_parts: On the completion of uploads in parts, which some servers do not check.
        """
        server = (self.bucket.config.url, self.bucket.name, in_parts)
        with _probing:
            if server not in _seen:
                _seen[server] = self._remembered(in_parts) or self._try_conditions(in_parts)
        return _seen[server]

    def _try_conditions(self, in_parts: bool) -> Conditions:
        write = self.bucket.put_as_one_part if in_parts else self._put_small
        seen = probe(self.bucket.pool, write, self.bucket.delete)
        self._put_plain(self._note_of_conditions(in_parts), json.dumps(asdict(seen)).encode())
        return seen

    def _remembered(self, in_parts: bool) -> Conditions | None:
        note = self._note_of_conditions(in_parts)
        try:
            content, entry = _again(lambda: self._read(note), Interrupted)
            seen = parse(Conditions, load_json(content, note), note)
        except (NotFound, InvalidInput):
            return None
        return seen if abs(datetime.now(UTC) - entry.modified) < _REMEMBERED else None

    def _note_of_conditions(self, in_parts: bool) -> str:
        # By address, for a copied bucket takes its notes to another server.
        server = hashlib.sha256(self.bucket.config.url.encode()).hexdigest()[:16]
        return f"{_NOTES_OF_CONDITIONS}{server}{'-parts' if in_parts else ''}"

    def _put_small(self, key: str, content: bytes) -> str:
        return self._put(key, content).etag

    def _check(self, key: str, if_absent: bool, if_match: str | None) -> None:
        present = self.head(key)
        if (if_absent and present) or (
            if_match is not None and (present is None or present.etag != if_match)
        ):
            raise Conflict(f"{key} in {self.url} was changed by another writer")

    def _put(self, key: str, source: bytes | Path, progress: Progress | None = None) -> Entry:
        from minio.error import S3Error

        size = _size_of(source)
        opened = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
        with opened as file, self._note_of_parts(key, size), self.bucket.translated("write", key):
            try:
                etag = self.bucket.put(key, file, size, PART, progress)
            except S3Error as error:
                if error.code == "NoSuchKey":  # MinIO's answer to If-Match where there is no object
                    raise Conflict(f"{key} in {self.url} was deleted meanwhile") from error
                present = (
                    self._own(key, source)
                    if error.code == "PreconditionFailed" and retried(error)
                    else None
                )
                if present is None:
                    raise
                return present
        return Entry(key=key, size=size, etag=etag, modified=datetime.now(UTC))

    def _put_plain(self, key: str, content: bytes) -> None:
        """Write a helper object unconditionally, whatever condition this thread's writes have."""
        with self.bucket.pool.condition(False, None):
            self._put(key, content)

    def _own(self, key: str, source: bytes | Path) -> Entry | None:
        """Return the object if we wrote it: the answer to the first attempt was lost and the second
        one met it."""
        present = self.head(key)
        if present is None or not isinstance(source, bytes):
            return None
        return (
            present
            if present.etag == hashlib.md5(source, usedforsecurity=False).hexdigest()
            else None
        )

    @contextmanager
    def _note_of_parts(self, key: str, size: int) -> Iterator[None]:
        """Keep a note of an upload in parts while it lasts."""
        note = f"{_UPLOADS}{uuid.uuid4().hex}"
        written = False

        def started(upload: str) -> None:
            nonlocal written
            self._put_plain(
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

    def _times(self, prefix: str) -> dict[str, datetime]:
        return {entry.key: entry.modified for entry in self.bucket.objects(prefix)}

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
        return content, Entry(key=key, size=size, etag=bare(headers.get("etag")), modified=modified)

    def _fetch(self, key: str, target: Path, progress: Progress | None) -> Entry:
        entry = self.bucket.stat(key)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with appearing(target) as draft, draft.open("wb") as sink:
                self._download(entry, sink, progress)
        except OSError as error:
            raise PodiumError(
                f"cannot write {target}: {error.strerror or error}", "is the disk full?"
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
                    for chunk in response.stream(amt=_CHUNK):
                        sink.write(chunk)
                        if progress:
                            progress(len(chunk))
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


def _again(work: Callable[[], _T], kind: type[PodiumError]) -> _T:
    """Call ``work``, and repeat it after an error of this kind, up to three times in all."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(kind):
            return work()
    return work()


def _size_of(source: bytes | Path) -> int:
    if isinstance(source, bytes):
        return len(source)
    try:
        return source.stat().st_size
    except OSError as error:
        raise PodiumError(f"cannot read {source}: {error.strerror}") from error

"""A bucket of MinIO or any S3 as a storage, over minio-py."""

import hashlib
import io
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from podium.errors import Conflict, NotFound, PodiumError, require
from podium.storage.base import Entry, Progress, Storage, check_key, check_prefix
from podium.storage.files import scratch
from podium.storage.s3config import S3Config, read_config
from podium.storage.s3errors import Interrupted, retried, told
from podium.storage.s3http import Pool
from podium.storage.s3lock import honoured, locked
from podium.storage.s3transfer import PARALLEL, PART, Counted, again, download, size_of

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_conditions: dict[tuple[str, str], bool] = {}


class S3Storage(Storage):
    """Objects under a prefix of a bucket. Safe to share between threads, not between processes."""

    def __init__(self, url: str, config: S3Config) -> None:
        from minio import Minio

        parts = urlsplit(url)
        self.bucket, self.prefix = parts.netloc, parts.path.strip("/")
        require(
            bool(_BUCKET.fullmatch(self.bucket)) and not parts.query,
            "an S3 URL is s3://bucket/prefix",
            "a bucket is 3 to 63 of a-z, 0-9, '-' and '.'; the server is named by AWS_ENDPOINT_URL",
            url=url,
        )
        if self.prefix:
            check_key(self.prefix)
        self.config = config
        self.url = f"{parts.scheme}://{self.bucket}/{self.prefix}".rstrip("/")
        self._pool = Pool(config.ca_file, connections=2 * PARALLEL)
        self.client = Minio(
            endpoint=config.endpoint,
            secure=config.secure,
            region=config.region,
            credentials=config.provider,
            http_client=self._pool,
        )

    @classmethod
    def open(cls, url: str, *, create: bool = False) -> "S3Storage":
        """Open a bucket as the environment says.

        Args:
            url: ``s3://bucket/prefix`` or ``minio://bucket/prefix``; nothing in it is percent-encoded.
            create: Make the bucket if it is not there.
        """
        storage = cls(url, read_config(urlsplit(url).scheme))
        if create:
            storage.create()
        return storage

    def create(self) -> None:
        """Make the bucket if it is not there."""
        from minio.error import S3Error

        with self._told("create", "the bucket"):
            try:
                self.client.make_bucket(bucket_name=self.bucket, location=self.config.region)
            except S3Error as error:
                if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                    raise

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
        conditional = self.conditional()
        condition = self._pool.condition(if_absent and conditional, if_match if conditional else None)
        if conditional and (isinstance(source, bytes) or size_of(source) <= PART):
            with condition:
                return self._put(key, source, progress)
        # Servers that honour a condition on a write may ignore it on the completion of one in parts: lock there too.
        with locked(key, self._put_plain, self._times, self._delete) as renew:
            self._check(key, if_absent, if_match)

            def moved(count: int) -> None:
                renew()
                if progress:
                    progress(count)

            with condition:
                return self._put(key, source, moved)

    def get(self, key: str) -> bytes:
        return self.read(key)[0]

    def read(self, key: str) -> tuple[bytes, Entry]:
        return again(lambda: self._read(check_key(key)), Interrupted)

    def fetch(self, key: str, target: Path, *, progress: Progress | None = None) -> Entry:
        return again(lambda: self._fetch(check_key(key), target, progress), Conflict)  # replaced while we read it

    def head(self, key: str) -> Entry | None:
        check_key(key)
        try:
            with self._told("look at", key):
                found = self.client.stat_object(bucket_name=self.bucket, object_name=self._name(key))
        except NotFound:
            return None
        return self._entry(key, found)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        for found in self._objects(check_prefix(prefix), recursive=True):
            key = self._key(found.object_name)
            if not found.is_dir and not key.startswith(".podium") and not key.endswith("/"):
                yield self._entry(key, found)

    def children(self, prefix: str) -> Iterator[str]:
        for found in self._objects(f"{check_prefix(prefix)}/" if prefix else "", recursive=False):
            name = self._key(found.object_name).removesuffix("/").rpartition("/")[2]
            if found.is_dir and not name.startswith(".podium"):
                yield name

    def delete(self, key: str) -> None:
        self._delete(check_key(key))

    def conditional(self) -> bool:
        """Return whether the server honours conditions on writes; found out once, by trying."""
        place = (self.config.url, self.bucket)
        if place not in _conditions:
            _conditions[place] = honoured(
                lambda key, content: self._put(key, content, None), self._pool.condition, self._delete
            )
        return _conditions[place]

    def _check(self, key: str, if_absent: bool, if_match: str | None) -> None:
        present = self.head(key)
        if (if_absent and present) or (if_match is not None and (present is None or present.etag != if_match)):
            raise Conflict(f"{key} in {self.url} must not have been written by somebody else meanwhile, but it was")

    def _put(self, key: str, source: bytes | Path, progress: Progress | None) -> Entry:
        from minio.error import S3Error

        size = len(source) if isinstance(source, bytes) else size_of(source)
        with self._told("write", key), io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
            try:
                return self._send(key, file, size, progress)
            except S3Error as error:
                if error.code == "NoSuchKey":  # what MinIO says to If-Match when there is nothing
                    raise Conflict(f"{key} in {self.url} must still be there, but is gone") from error
                present = self._own(key, source) if error.code == "PreconditionFailed" and retried(error) else None
                if present is None:
                    raise
                return present

    def _own(self, key: str, source: bytes | Path) -> Entry | None:
        """Return what is there if it is our own: the answer to the first try was lost and the second met it."""
        present = self.head(key)
        if present and isinstance(source, bytes) and present.etag == hashlib.md5(source).hexdigest():
            return present
        return None

    def _send(self, key: str, file: BinaryIO, size: int, progress: Progress | None) -> Entry:
        result = self.client.put_object(
            bucket_name=self.bucket,
            object_name=self._name(key),
            data=Counted(file, progress) if progress else file,  # type: ignore[arg-type]
            length=size,
            part_size=PART,
            num_parallel_uploads=PARALLEL,
        )
        return Entry(key=key, size=size, etag=_bare(result.etag), modified=datetime.now(UTC))

    def _put_plain(self, key: str, content: bytes) -> None:
        """Write one of our own helper objects, whatever condition holds for this thread just now."""
        with self._pool.condition(False, None):
            self._put(key, content, None)

    def _times(self, prefix: str) -> dict[str, datetime]:
        return {self._key(found.object_name): found.last_modified for found in self._objects(prefix, recursive=True)}

    def _delete(self, key: str) -> None:
        with self._told("delete", key):
            self.client.remove_object(bucket_name=self.bucket, object_name=self._name(key))

    def _read(self, key: str) -> tuple[bytes, Entry]:
        with self._response(object_name=self._name(key)) as response:
            content = response.read()
            modified = parsedate_to_datetime(response.headers["last-modified"])
        return content, Entry(key=key, size=len(content), etag=_bare(response.headers.get("etag")), modified=modified)

    def _fetch(self, key: str, target: Path, progress: Progress | None) -> Entry:
        entry = self.head(key)
        if entry is None:
            raise NotFound(f"there is no {key} in {self.url}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with scratch(target) as temporary:
                download(partial(self._part, entry), entry.size, temporary, progress)
                os.replace(temporary, target)
        except OSError as error:
            raise PodiumError(f"cannot write {target}: {error.strerror or error}", "is the disk full?") from error
        return entry

    def _part(self, entry: Entry, start: int, length: int) -> AbstractContextManager["BaseHTTPResponse"]:
        """Open a range of exactly the object that entry describes."""
        return self._response(
            object_name=self._name(entry.key),
            offset=start,
            length=length,
            request_headers={"If-Match": f'"{entry.etag}"'},
        )

    @contextmanager
    def _response(self, **request: Any) -> "Iterator[BaseHTTPResponse]":
        with self._told("read", self._key(request["object_name"])):
            response = self.client.get_object(bucket_name=self.bucket, **request)
            try:
                yield response
            finally:
                response.close()
                response.release_conn()

    def _objects(self, prefix: str, *, recursive: bool) -> Iterator[Any]:
        with self._told("list", prefix or "everything"):
            yield from self.client.list_objects(
                bucket_name=self.bucket, prefix=self._name(prefix) if self.prefix else prefix, recursive=recursive
            )

    def _name(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def _key(self, name: str) -> str:
        return name.removeprefix(f"{self.prefix}/") if self.prefix else name

    def _entry(self, key: str, found: Any) -> Entry:
        return Entry(key=key, size=found.size, etag=_bare(found.etag), modified=found.last_modified)

    def _told(self, what: str, key: str) -> AbstractContextManager[None]:
        return told(what, key, self.url, self.config)


def _bare(etag: str | None) -> str:
    return (etag or "").strip('"')

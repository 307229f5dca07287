"""Requests to one prefix of one bucket, through minio-py, with its errors translated."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from podium.errors import require
from podium.storage.base import Entry, Progress, check_key
from podium.storage.s3.config import S3Config
from podium.storage.s3.errors import translated
from podium.storage.s3.http import Pool

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

PART = 8 << 20
"""Bytes in each part of an upload; what is not larger is sent in one request. S3 takes up to 10,000 parts."""

SMALLEST_PART = 5 << 20

PARALLEL = 4
"""Parts uploaded at once; each is held in memory."""

_CHUNK = 1 << 20
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class Bucket:
    """Safe to share between threads, not between processes, as minio-py's client is."""

    def __init__(self, url: str, config: S3Config) -> None:
        from minio import Minio

        parts = urlsplit(url)
        self.name, self.prefix = parts.netloc, parts.path.strip("/")
        require(
            bool(_BUCKET.fullmatch(self.name)) and not parts.query,
            "an S3 URL is s3://bucket/prefix",
            "a bucket is 3 to 63 of a-z, 0-9, '-' and '.'; the server is named by AWS_ENDPOINT_URL",
            url=url,
        )
        if self.prefix:
            check_key(self.prefix)
        self.config = config
        self.url = f"{parts.scheme}://{self.name}/{self.prefix}".rstrip("/")
        self.pool = Pool(config.ca_file, connections=2 * PARALLEL)
        self.client = Minio(
            endpoint=config.endpoint,
            secure=config.secure,
            region=config.region,
            credentials=config.provider,
            http_client=self.pool,
        )

    def create(self) -> None:
        """Make the bucket if it does not exist."""
        from minio.error import S3Error

        with self.translated("create", "the bucket"):
            try:
                self.client.make_bucket(bucket_name=self.name, location=self.config.region)
            except S3Error as error:
                if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                    raise

    def send(self, key: str, file: BinaryIO, size: int, progress: Progress | None, part: int) -> Entry:
        """Write an object, in parts if it is larger than one; errors are not translated yet."""
        result = self.client.put_object(
            bucket_name=self.name,
            object_name=self.full(key),
            data=file,
            length=size,
            part_size=part,
            num_parallel_uploads=PARALLEL,
            progress=_Reporter(progress) if progress else None,
        )
        return Entry(key=key, size=size, etag=bare(result.etag), modified=datetime.now(UTC))

    def stat(self, key: str) -> Entry:
        """Describe an object."""
        with self.translated("look at", key):
            return self._entry(self.client.stat_object(bucket_name=self.name, object_name=self.full(key)))

    @contextmanager
    def response(self, key: str, **options: Any) -> "Iterator[BaseHTTPResponse]":
        """Open an object, or the end of it, for reading."""
        with self.translated("read", key):
            response = self.client.get_object(bucket_name=self.name, object_name=self.full(key), **options)
            try:
                yield response
            finally:
                response.close()
                response.release_conn()

    def download(self, entry: Entry, sink: BinaryIO, progress: Progress | None) -> None:
        """Append to a file what it lacks of exactly the object that entry describes."""
        condition = {"If-Match": f'"{entry.etag}"'}
        with self.response(entry.key, offset=sink.tell(), request_headers=condition) as response:
            for chunk in response.stream(amt=_CHUNK):
                sink.write(chunk)
                if progress:
                    progress(len(chunk))

    def objects(self, prefix: str) -> Iterator[Entry]:
        """Yield all objects whose key starts with prefix."""
        for item in self._list(prefix, recursive=True):
            if not item.is_dir and not item.object_name.endswith("/"):
                yield self._entry(item)

    def folders(self, prefix: str) -> Iterator[str]:
        """Yield the names between prefix and the next slash."""
        for item in self._list(prefix, recursive=False):
            if item.is_dir:
                yield self._key(item.object_name).removesuffix("/").rpartition("/")[2]

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""
        with self.translated("delete", key):
            self.client.remove_object(bucket_name=self.name, object_name=self.full(key))

    def unfinished(self, prefix: str) -> dict[str, Entry]:
        """Return the unfinished uploads by id; the size is that of the parts that have arrived.

        MinIO lists them only by the whole name of the object, and drops them itself after a day.
        """
        with self.translated("list unfinished uploads of", prefix):
            listed = self.client._list_multipart_uploads(bucket_name=self.name, prefix=self.full(prefix))
        return {
            upload.upload_id: Entry(
                key=self._key(upload.object_name),
                size=self._arrived(upload.object_name, upload.upload_id),
                etag="",
                modified=upload.initiated_time,
            )
            for upload in listed.uploads
            if upload.initiated_time and upload.upload_id
        }

    def _arrived(self, name: str, upload_id: str) -> int:
        with self.translated("list parts of", name):
            listed = self.client._list_parts(bucket_name=self.name, object_name=name, upload_id=upload_id)
        return sum(part.size or 0 for part in listed.parts)

    def abort(self, key: str, upload_id: str) -> None:
        """Drop an unfinished upload."""
        with self.translated("abort the upload of", key):
            self.client._abort_multipart_upload(bucket_name=self.name, object_name=self.full(key), upload_id=upload_id)

    def translated(self, what: str, key: str) -> AbstractContextManager[None]:
        """Translate the errors of a request."""
        return translated(what, key, self.url, self.config)

    def full(self, key: str) -> str:
        """Return the object's name in the bucket."""
        return f"{self.prefix}/{key}" if self.prefix else key

    def _key(self, name: str) -> str:
        return name.removeprefix(f"{self.prefix}/") if self.prefix else name

    def _list(self, prefix: str, *, recursive: bool) -> Iterator[Any]:
        with self.translated("list", prefix or "everything"):
            yield from self.client.list_objects(bucket_name=self.name, prefix=self.full(prefix), recursive=recursive)

    def _entry(self, item: Any) -> Entry:
        return Entry(key=self._key(item.object_name), size=item.size, etag=bare(item.etag), modified=item.last_modified)


class _Reporter:
    """Passes minio-py's progress on."""

    def __init__(self, progress: Progress) -> None:
        self.update = progress

    def set_meta(self, object_name: str, total_length: int) -> None:
        """Ignore what the caller knows."""


def bare(etag: str | None) -> str:
    """Return an etag without quotes."""
    return (etag or "").strip('"')

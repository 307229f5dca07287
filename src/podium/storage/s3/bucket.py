"""One prefix of one bucket: the requests, with errors translated. What they add up to is in s3.py."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from podium.errors import require
from podium.storage.base import Entry, Progress, check_key
from podium.storage.s3.config import S3Config
from podium.storage.s3.errors import told
from podium.storage.s3.http import Pool
from podium.storage.s3.transfer import PARALLEL, PART, Counted

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class Bucket:
    """Safe to share between threads, not between processes (minio-py says so of its client)."""

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
        """Make the bucket if it is not there."""
        from minio.error import S3Error

        with self.told("create", "the bucket"):
            try:
                self.client.make_bucket(bucket_name=self.name, location=self.config.region)
            except S3Error as error:
                if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                    raise

    def send(self, key: str, file: BinaryIO, size: int, progress: Progress | None) -> Entry:
        """Write an object; errors are not translated yet. A small one is one request, a large one goes in parts."""
        result = self.client.put_object(
            bucket_name=self.name,
            object_name=self.full(key),
            data=Counted(file, progress) if progress else file,  # type: ignore[arg-type]
            length=size,
            part_size=PART,
            num_parallel_uploads=PARALLEL,
        )
        return Entry(key=key, size=size, etag=bare(result.etag), modified=datetime.now(UTC))

    def send_as_part(self, key: str, content: bytes) -> None:
        """Write a small object as the only part of an upload in parts, to see how a server completes one."""
        from minio.datatypes import Part

        full = self.full(key)
        with self.told("write", key):
            upload_id = self.client._create_multipart_upload(bucket_name=self.name, object_name=full, headers={})
            try:
                etag = self.client._upload_part(
                    bucket_name=self.name,
                    object_name=full,
                    data=content,
                    headers=None,
                    upload_id=upload_id,
                    part_number=1,
                )
                self.client._complete_multipart_upload(
                    bucket_name=self.name, object_name=full, upload_id=upload_id, parts=[Part(1, etag)]
                )
            except BaseException:
                self.client._abort_multipart_upload(bucket_name=self.name, object_name=full, upload_id=upload_id)
                raise

    def stat(self, key: str) -> Entry:
        """Describe an object."""
        with self.told("look at", key):
            return self._entry(self.client.stat_object(bucket_name=self.name, object_name=self.full(key)))

    @contextmanager
    def response(self, key: str, **options: Any) -> "Iterator[BaseHTTPResponse]":
        """Open an object or a range of it for reading."""
        with self.told("read", key):
            response = self.client.get_object(bucket_name=self.name, object_name=self.full(key), **options)
            try:
                yield response
            finally:
                response.close()
                response.release_conn()

    def part(self, entry: Entry, start: int, length: int) -> "AbstractContextManager[BaseHTTPResponse]":
        """Open a range of exactly the object that entry describes."""
        headers = {"If-Match": f'"{entry.etag}"'}
        return self.response(entry.key, offset=start, length=length, request_headers=headers)

    def objects(self, prefix: str) -> Iterator[Entry]:
        """Yield all objects whose key starts with prefix."""
        for found in self._list(prefix, recursive=True):
            if not found.is_dir and not found.object_name.endswith("/"):
                yield self._entry(found)

    def folders(self, prefix: str) -> Iterator[str]:
        """Yield the names between prefix and the next slash."""
        for found in self._list(prefix, recursive=False):
            if found.is_dir:
                yield self._key(found.object_name).removesuffix("/").rpartition("/")[2]

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""
        with self.told("delete", key):
            self.client.remove_object(bucket_name=self.name, object_name=self.full(key))

    def unfinished(self, prefix: str) -> "dict[str, Entry]":
        """Return uploads in parts that were begun and not completed, by id; the size is that of the parts there.

        MinIO lists them only by the whole name of the object, and drops them by itself after a day.
        """
        with self.told("list unfinished uploads of", prefix):
            found = self.client._list_multipart_uploads(bucket_name=self.name, prefix=self.full(prefix))
        return {
            one.upload_id: Entry(
                key=self._key(one.object_name),
                size=self._arrived(one.object_name, one.upload_id),
                etag="",
                modified=one.initiated_time,
            )
            for one in found.uploads
            if one.initiated_time and one.upload_id
        }

    def _arrived(self, name: str, upload_id: str) -> int:
        with self.told("list parts of", name):
            found = self.client._list_parts(bucket_name=self.name, object_name=name, upload_id=upload_id)
        return sum(part.size or 0 for part in found.parts)

    def abort(self, key: str, upload_id: str) -> None:
        """Drop an unfinished upload."""
        with self.told("abort the upload of", key):
            self.client._abort_multipart_upload(bucket_name=self.name, object_name=self.full(key), upload_id=upload_id)

    def told(self, what: str, key: str) -> AbstractContextManager[None]:
        """Translate the errors of a request."""
        return told(what, key, self.url, self.config)

    def full(self, key: str) -> str:
        """Return the object's name in the bucket."""
        return f"{self.prefix}/{key}" if self.prefix else key

    def _key(self, name: str) -> str:
        return name.removeprefix(f"{self.prefix}/") if self.prefix else name

    def _list(self, prefix: str, *, recursive: bool) -> Iterator[Any]:
        with self.told("list", prefix or "everything"):
            yield from self.client.list_objects(bucket_name=self.name, prefix=self.full(prefix), recursive=recursive)

    def _entry(self, found: Any) -> Entry:
        return Entry(
            key=self._key(found.object_name), size=found.size, etag=bare(found.etag), modified=found.last_modified
        )


def bare(etag: str | None) -> str:
    """Return an etag without quotes."""
    return (etag or "").strip('"')

"""The objects below a prefix of a bucket, through minio-py: keys relative to the prefix, errors as
sentences."""

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, BinaryIO
from urllib.parse import urlsplit
from xml.etree import ElementTree

import certifi
import urllib3

from podium.errors import InvalidInput, NotFound, PodiumError
from podium.storage.base import Entry, Progress, check_key
from podium.storage.s3.config import S3Config
from podium.storage.s3.errors import no_s3, translated

# urllib3 logs each retry as a warning, which Python prints on stderr; only the final result matters
# to users.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

CONNECT_SECONDS, READ_SECONDS = 5, 60
# A person at a terminal wants to know at once that no server answers. A pod waits: its server may
# be moving to another node, and hours of training must not be lost for that. Pauses of 0, 1, 2, 4
# and then 8 seconds: 71 in all.
ATTEMPTS, ATTEMPTS_IN_A_POD = 1, 12


class Pool(urllib3.PoolManager):
    """Adds what minio-py has no argument for: conditions on writes, and the ids of uploads in
    parts.

    If-Match and If-None-Match are not signed: SigV4 requires Host and x-amz-* only. The condition
    goes on the request that creates the object: the PUT of a small one, the completion of an upload
    in parts.
    """

    def __init__(self, ca_file: str | None, connections: int) -> None:
        super().__init__(
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            maxsize=connections,
            cert_reqs="CERT_REQUIRED",
            ca_certs=ca_file or certifi.where(),
            retries=_retries("KUBERNETES_SERVICE_HOST" in os.environ),  # set in every pod
        )
        self._local = threading.local()

    @contextmanager
    def condition(
        self, if_absent: bool, if_match: str | None, ready: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """Put a condition on the writes of this thread; ready is called just before each is
        sent."""
        headers = {"If-None-Match": "*"} if if_absent else {}
        if if_match is not None:
            headers["If-Match"] = f'"{if_match}"'
        with self._setting("headers", headers), self._setting("ready", ready):
            yield

    def before_writes(self, ready: Callable[[], None]) -> AbstractContextManager[None]:
        """Call a function just before each write of this thread is sent."""
        return self._setting("ready", ready)

    def reporting_uploads(self, started: Callable[[str], None]) -> AbstractContextManager[None]:
        """Call a function with the id of each upload in parts that this thread starts."""
        return self._setting("started", started)

    def urlopen(  # type: ignore[override]
        self, method: str, url: str, redirect: bool = True, **options: Any
    ) -> urllib3.BaseHTTPResponse:
        """Send a request, with the condition if it creates or deletes an object."""
        extra, started = getattr(self._local, "headers", {}), getattr(self._local, "started", None)
        creates = (method == "PUT" and "partNumber=" not in url) or (
            method == "POST" and "uploadId=" in url
        )
        deletes = method == "DELETE" and "uploadId=" not in url
        if extra and (creates or deletes):
            options["headers"] = urllib3.HTTPHeaderDict(options.get("headers") or {})
            options["headers"].update(extra)
        if creates and (ready := getattr(self._local, "ready", None)):
            ready()
        response = super().urlopen(method, url, redirect=redirect, **options)
        if started and method == "POST" and url.endswith("?uploads=") and response.status == 200:
            started(ElementTree.fromstring(response.data).findtext("{*}UploadId") or "")
        return response

    @contextmanager
    def _setting(self, name: str, value: object) -> Iterator[None]:
        before = getattr(self._local, name, None)
        setattr(self._local, name, value)
        try:
            yield
        finally:
            setattr(self._local, name, before)


def _retries(in_a_pod: bool) -> urllib3.Retry:
    return urllib3.Retry(
        total=None,
        connect=ATTEMPTS_IN_A_POD if in_a_pod else ATTEMPTS,
        read=3,
        redirect=3,
        status=ATTEMPTS_IN_A_POD if in_a_pod else 3,
        other=0,  # TLS: a certificate stays untrusted, however often one asks
        backoff_factor=0.5 if in_a_pod else 0.3,
        backoff_max=8,
        status_forcelist=(500, 502, 503, 504),
        raise_on_status=False,
    )


_PARALLEL = 4
"""Parts of an object uploaded at once; each is held in memory."""

WRITERS = 16
"""Writers that race for a key where a server is probed."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class Bucket:
    """A bucket, or the objects below a prefix of it.

    Args:
        url: ``s3://bucket/prefix`` or ``minio://bucket/prefix``; nothing in it is percent-encoded.

    Raises:
        InvalidInput: The URL names no bucket.
    """

    def __init__(self, url: str, config: S3Config) -> None:
        from minio import Minio

        parts = urlsplit(url)
        self.name, self.prefix = parts.netloc, parts.path.strip("/")
        if not _BUCKET.fullmatch(self.name) or set(url) & set("?#\t\r\n"):
            hint = (
                "a bucket is 3 to 63 of a-z, 0-9, '-' and '.', a prefix has no '?' and no '#'; "
                "the server is named by AWS_ENDPOINT_URL"
            )
            raise InvalidInput(f"not the URL of a bucket, s3://bucket/prefix: {url!r}", hint)
        if self.prefix:
            check_key(self.prefix)
        self.config = config
        self.url = f"{parts.scheme}://{self.name}/{self.prefix}".rstrip("/")
        self.pool = Pool(config.ca_file, connections=WRITERS)
        self.client = Minio(
            endpoint=config.endpoint,
            secure=config.secure,
            region=config.region,
            credentials=config.provider,
            http_client=self.pool,
        )

    def create(self) -> None:
        from minio.error import S3Error

        with self.translated("create", "the bucket"):
            try:
                self.client.make_bucket(bucket_name=self.name, location=self.config.region)
            except S3Error as error:
                if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                    raise

    def put(self, key: str, data: BinaryIO, size: int, part: int, progress: Progress | None) -> str:
        """Write an object, in parts of so many bytes if it is larger, and return its etag; raises
        what minio does."""
        result = self.client.put_object(
            bucket_name=self.name,
            object_name=self._full(key),
            data=data,
            length=size,
            part_size=part,
            num_parallel_uploads=_PARALLEL,
            progress=_Reporter(progress) if progress else None,
        )
        if not _bare(result.etag):  # a login page answers 200 to anything
            raise no_s3("that an object was written, without an ETag", "write", self.config)
        return _bare(result.etag)

    def reaches(self, other: "Bucket") -> bool:
        """Return whether the other bucket is on the same server, for the same user."""
        return (self.config.url, self.config.source) == (other.config.url, other.config.source)

    def copy(self, key: str, source: "Bucket", entry: Entry, part: int) -> str:
        """Let the server copy an object, in parts of so many bytes, as long as it is unchanged;
        return the copy's etag.

        Even a single part makes an upload in parts: unlike those of CopyObject, servers check
        conditions on its end.
        """
        from minio.commonconfig import ComposeSource

        parts = [
            ComposeSource(
                source.name,
                source._full(entry.key),
                offset=start,
                length=min(part, entry.size - start),
                match_etag=entry.etag,
            )
            for start in range(0, entry.size, part)
        ]
        with self.translated("copy", key):
            return _bare(self.client.compose_object(self.name, self._full(key), parts).etag)

    def head(self, key: str) -> Entry | None:
        """Describe an object, or return None if there is none."""
        try:
            return self.stat(key)
        except NotFound:
            return None

    def stat(self, key: str) -> Entry:
        """Describe an object.

        Raises:
            NotFound: There is none.
        """
        with self.translated("look at", key):
            return self._entry(
                self.client.stat_object(bucket_name=self.name, object_name=self._full(key))
            )

    @contextmanager
    def opened(self, key: str, **options: Any) -> Iterator[urllib3.BaseHTTPResponse]:
        """Open an object, or the end of it, for reading."""
        with self.translated("read", key):
            response = self.client.get_object(
                bucket_name=self.name, object_name=self._full(key), **options
            )
            try:
                yield response
            finally:
                response.close()
                response.release_conn()

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is not an error."""
        with self.translated("delete", key):
            self.client.remove_object(bucket_name=self.name, object_name=self._full(key))

    def objects(self, prefix: str) -> Iterator[Entry]:
        """Yield all objects whose key starts with prefix."""
        for item in self._items(prefix, recursive=True):
            if not item.is_dir:  # the empty object "folder/" that consoles make
                yield self._entry(item)

    def folders(self, prefix: str) -> Iterator[str]:
        """Yield the names directly below prefix that keys continue with a slash."""
        for item in self._items(prefix, recursive=False):
            if item.is_dir:
                yield item.object_name.removesuffix("/").rpartition("/")[2]

    def abort(self, key: str, upload: str) -> None:
        """Drop the parts of an unfinished upload."""
        with self.translated("abort the upload of", key):
            status = self._ask("DELETE", key, {"uploadId": upload}).status
        if status not in (200, 204, 404):
            raise PodiumError(
                f"cannot abort the upload of {key} in {self.url}: {self.config.url} answered {status}"
            )

    def put_as_one_part(self, key: str, content: bytes) -> str:
        """Write a small object by an upload in parts, which minio-py makes of large ones only, and
        return its etag."""
        with self.translated("write", key):
            upload = _field(self._asked("POST", key, {"uploads": ""}), "UploadId")
            etag = self._asked(
                "PUT", key, {"partNumber": "1", "uploadId": upload}, content
            ).headers.get("etag")
            part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
            body = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
            try:
                return _bare(_field(self._asked("POST", key, {"uploadId": upload}, body), "ETag"))
            except Exception:
                self.abort(key, upload)
                raise

    def _asked(
        self, method: str, key: str, query: Mapping[str, str], body: bytes = b""
    ) -> urllib3.BaseHTTPResponse:
        from minio.error import S3Error

        response = self._ask(method, key, query, body)
        if response.status != 200:
            raise S3Error.fromxml(response)
        return response

    def _ask(
        self, method: str, key: str, query: Mapping[str, str], body: bytes = b""
    ) -> urllib3.BaseHTTPResponse:
        """Send a request that minio-py has no call for."""
        url = self.client.get_presigned_url(
            method=method,
            bucket_name=self.name,
            object_name=self._full(key),
            expires=timedelta(minutes=10),
            extra_query_params={**query},
        )
        return self.pool.request(method, url, body=body)

    def translated(self, action: str, key: str) -> AbstractContextManager[None]:
        """Turn the errors of minio-py into podium's."""
        return translated(action, key, self.url, self.config)

    def _items(self, prefix: str, *, recursive: bool) -> Iterator[Any]:
        with self.translated("list", prefix or "everything"):
            yield from self.client.list_objects(
                bucket_name=self.name, prefix=self._full(prefix), recursive=recursive
            )

    def _full(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def _entry(self, item: Any) -> Entry:
        if not item.last_modified:
            raise no_s3("with an object without Last-Modified", "read", self.config)
        key = item.object_name.removeprefix(f"{self.prefix}/" if self.prefix else "")
        return Entry(key=key, size=item.size, etag=_bare(item.etag), modified=item.last_modified)


class _Reporter:
    """Passes minio-py's progress on."""

    def __init__(self, progress: Progress) -> None:
        self.update = progress

    def set_meta(self, object_name: str, total_length: int) -> None:
        """Ignore what the caller knows."""


def _bare(etag: str | None) -> str:
    return (etag or "").strip('"')


def _field(response: urllib3.BaseHTTPResponse, name: str) -> str:
    return ElementTree.fromstring(response.data).findtext(f"{{*}}{name}") or ""

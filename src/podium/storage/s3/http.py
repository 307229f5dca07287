"""HTTP for the S3 client: timeouts, retries, and conditions on writes."""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from xml.etree import ElementTree

import certifi
import urllib3

# urllib3 logs each retry as a warning, which Python prints on stderr; only the final result matters to users.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

CONNECT_SECONDS, READ_SECONDS = 5, 60
# A person at a terminal wants to know at once that no server answers. A pod waits: its server may be moving to another
# node, and hours of training must not be lost for that. Pauses of 0, 1, 2, 4 and then 8 seconds: 71 in all.
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

    @contextmanager
    def reporting_uploads(self, started: Callable[[str], None]) -> Iterator[None]:
        """Call a function with the id of each upload in parts that this thread starts."""
        with self._setting("started", started):
            yield

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

"""The HTTP side of an S3 client: time limits, few retries, and conditions on writes."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import certifi
import urllib3

# Each retry is announced at level warning, which Python prints on stderr; what counts is how it ends.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

CONNECT_SECONDS, READ_SECONDS = 5, 60
# A person at a terminal is told at once that nobody listens; a pod's store may be moving to another node, and hours of
# training are not to be lost for that. Pauses of 0, 1, 2, 4 and then 8 seconds: 71 in all.
ATTEMPTS, ATTEMPTS_IN_A_POD = 1, 12


class Pool(urllib3.PoolManager):
    """Adds If-Match and If-None-Match to writes and deletions, which minio-py has no argument for.

    The headers go out unsigned: SigV4 asks for Host and x-amz-* only. The condition belongs on the request that
    makes the object appear: the PUT of a small one, the completion of one in parts.
    """

    def __init__(self, ca_file: str | None, connections: int) -> None:
        super().__init__(
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            maxsize=connections,
            cert_reqs="CERT_REQUIRED",
            ca_certs=ca_file or certifi.where(),
            retries=_retries("KUBERNETES_SERVICE_HOST" in os.environ),  # the kubelet tells every pod
        )
        self._local = threading.local()

    @contextmanager
    def condition(self, if_absent: bool, if_match: str | None) -> Iterator[None]:
        """Put a condition on the writes of this thread."""
        headers = {"If-None-Match": "*"} if if_absent else {}
        if if_match is not None:
            headers["If-Match"] = f'"{if_match}"'
        before = getattr(self._local, "headers", {})
        self._local.headers = headers
        try:
            yield
        finally:
            self._local.headers = before

    def urlopen(  # type: ignore[override]
        self, method: str, url: str, redirect: bool = True, **options: Any
    ) -> urllib3.BaseHTTPResponse:
        """Send a request, with the condition where it belongs."""
        extra = getattr(self._local, "headers", {})
        appears = (method == "PUT" and "partNumber=" not in url) or (method == "POST" and "uploadId=" in url)
        vanishes = method == "DELETE" and "uploadId=" not in url
        if extra and (appears or vanishes):
            options["headers"] = urllib3.HTTPHeaderDict(options.get("headers") or {})
            options["headers"].update(extra)
        return super().urlopen(method, url, redirect=redirect, **options)


def _retries(in_a_pod: bool) -> urllib3.Retry:
    return urllib3.Retry(
        total=None,
        connect=ATTEMPTS_IN_A_POD if in_a_pod else ATTEMPTS,
        read=3,
        redirect=3,
        status=ATTEMPTS_IN_A_POD if in_a_pod else 3,
        other=0,  # TLS: a certificate does not become trusted by asking again
        backoff_factor=0.5 if in_a_pod else 0.3,
        backoff_max=8,
        status_forcelist=(500, 502, 503, 504),
        raise_on_status=False,
    )

"""HTTP for the S3 client: timeouts, retries, and conditions on writes."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import certifi
import urllib3

# urllib3 logs each retry as a warning, which Python prints on stderr; only the final result matters to users.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

CONNECT_SECONDS, READ_SECONDS = 5, 60
# A person at a terminal wants to know at once that no server answers. A pod waits: its server may be moving to another
# node, and hours of training must not be lost for that. Pauses of 0, 1, 2, 4 and then 8 seconds: 71 in all.
ATTEMPTS, ATTEMPTS_IN_A_POD = 1, 12


class Pool(urllib3.PoolManager):
    """Adds If-Match and If-None-Match to writes and deletions, which minio-py has no argument for.

    The headers are not signed: SigV4 requires Host and x-amz-* only. The condition goes on the request that creates
    the object: the PUT of a small one, the completion of an upload in parts.
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
        """Send a request, with the condition if it creates or deletes an object."""
        extra = getattr(self._local, "headers", {})
        creates = (method == "PUT" and "partNumber=" not in url) or (method == "POST" and "uploadId=" in url)
        deletes = method == "DELETE" and "uploadId=" not in url
        if extra and (creates or deletes):
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
        other=0,  # TLS: a certificate stays untrusted, however often one asks
        backoff_factor=0.5 if in_a_pod else 0.3,
        backoff_max=8,
        status_forcelist=(500, 502, 503, 504),
        raise_on_status=False,
    )

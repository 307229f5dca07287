"""Ask an object store for its bucket: through the API server where it is inside the cluster, else
from here."""

import re
from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlencode, urlsplit
from urllib.request import Request, urlopen

from podium.cluster.kubernetes.api import Api

_EXPIRES = 60
"""Seconds for which the signature of the one request holds."""


PATIENCE = 5.0
"""Seconds to wait for an answer."""


class Answer(NamedTuple):
    """A store's answer to the question for its bucket."""

    well: bool | None
    """Whether it has the bucket and accepts the key; None if it could not be asked."""

    what: str


class _Service(NamedTuple):
    """A Service of the cluster, as the host of an address names it."""

    name: str
    namespace: str
    port: int
    secure: bool

    @property
    def proxy(self) -> str:
        """Path of the API server that leads to it."""
        scheme = "https:" if self.secure else ""
        return f"/api/v1/namespaces/{self.namespace}/services/{scheme}{self.name}:{self.port}/proxy"


def service_of(address: str, namespace: str) -> _Service | None:
    """Return the Service that an address names; None if it is outside of the cluster, or no
    address.

    Args:
        address: ``http://minio-service:9000``, ``minio.store.svc:9000``; TLS unless it says http.
        namespace: Namespace of a host without one.
    """
    try:
        url = urlsplit(address if "://" in address else f"//{address}")
        port = url.port
    except ValueError:  # an unclosed bracket, or a port that is no number
        return None
    service, _, rest = (url.hostname or "").partition(".")
    if not service or (rest and not re.fullmatch(r"[a-z0-9-]+(\.svc(\..*)?)?", rest)):
        return None
    secure = url.scheme != "http"
    return _Service(
        service, rest.partition(".")[0] or namespace, port or (443 if secure else 80), secure
    )


def ask_for_bucket(
    api: Api, storage: Mapping[str, str], secret: Mapping[str, str]
) -> Answer | None:
    """Ask a store whether it has the bucket and lets the key list it; None without a bucket or key.

    Args:
        secret: Data of its Secret, in base64.
    """
    bucket, address = storage.get("bucket"), storage.get("endpoint") or ""
    names = (storage.get("access-key", "accesskey"), storage.get("secret-key", "secretkey"))
    if not bucket or not address or not all(secret.get(name) for name in names):
        return None
    access, key = (b64decode(secret[name]).decode(errors="replace").strip() for name in names)
    service = service_of(address, api.namespace)
    # The API server hands on its own host name, which the signature covers; it removes no query.
    address = address if "://" in address else f"https://{address}"
    try:
        base = urlsplit(api.host if service else address)
    except ValueError:
        return Answer(None, f"bucket {bucket} could not be asked for ({address} is not a URL)")
    # A list, which podium needs, of the folder that the key may be confined to.
    folder = urlsplit(storage.get("storage") or "").path.strip("/")
    asked = urlencode({"list-type": 2, "max-keys": 1, "prefix": f"{folder}/" if folder else ""})
    url = urlsplit(f"{base.scheme}://{base.netloc}/{bucket}?{asked}")
    query = _sign(url, storage.get("region") or "us-east-1", access, key)
    if service:
        return _verdict(bucket, *_through_server(api, f"{service.proxy}/{bucket}", query))
    return _verdict(bucket, *_from_here(f"{url.scheme}://{url.netloc}/{bucket}?{query}"))


def _sign(url: Any, region: str, access: str, key: str) -> str:
    from minio.credentials import Credentials
    from minio.signer import presign_v4

    credentials, now = Credentials(access, key), datetime.now(UTC)
    return str(
        presign_v4(
            method="GET",
            url=url,
            region=region,
            credentials=credentials,
            date=now,
            expires=_EXPIRES,
        ).query
    )


def _through_server(api: Api, path: str, query: str) -> tuple[int, str]:
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError as Unanswered

    try:
        api.client.call_api(
            path,
            "GET",
            query_params=parse_qsl(query, keep_blank_values=True),
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=PATIENCE,
        )
    except ApiException as error:
        body = error.body or b""
        return error.status or 0, body.decode(errors="replace") if isinstance(body, bytes) else body
    except Unanswered:
        return 0, ""
    return 200, ""


def _from_here(url: str, method: str = "GET") -> tuple[int, str]:
    """Return status and body of an answer; 0 and the reason where there is none."""
    try:
        with urlopen(Request(url, method=method), timeout=PATIENCE) as answer:
            return answer.status, ""
    except HTTPError as error:
        return error.code, error.read(2000).decode(errors="replace")
    except (OSError, ValueError, HTTPException) as error:
        return 0, str(getattr(error, "reason", error))


_REASONS = {
    "NoSuchBucket": "the store has no bucket {}",
    "InvalidAccessKeyId": "the store does not know the access key",
    "AccessDenied": "the store denies access to bucket {}",
}


def _verdict(bucket: str, status: int, body: str) -> Answer:
    code = re.search(r"<Code>(\w+)</Code>", body)
    reason = code[1] if code else ""
    if status == 200:
        return Answer(True, f"the store has bucket {bucket} and knows the key")
    if reason in _REASONS:
        return Answer(False, _REASONS[reason].format(bucket))
    why = f" ({reason or status})" if reason or status else ""
    return Answer(None, f"bucket {bucket} could not be asked for{why}")


def answers(url: str) -> tuple[bool, str]:
    """Ask an address outside the cluster; any HTTP answer will do."""
    status, why = _from_here(url, "HEAD")
    if status:
        return True, f"{url} answers {status}"
    return False, f"{url} does not answer from here: {why}"

"""What went wrong with an S3 server, in words that say what to mend."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import urllib3
from urllib3 import exceptions as http

from podium.errors import Conflict, NotFound, PodiumError
from podium.storage.s3.config import S3Config

_HINTS = {
    "InvalidAccessKeyId": ("the access key from {source} must be known to the server", "check {source}"),
    "SignatureDoesNotMatch": (
        "the secret key must belong to the access key from {source}",
        "check the secret key; a proxy that rewrites requests, or a wrong AWS_REGION, has the same effect",
    ),
    "AccessDenied": (
        "the user from {source} must be allowed to {what} {key}",
        "its policy needs s3:ListBucket, GetObject, PutObject, DeleteObject, and for clearing up"
        " ListBucketMultipartUploads, ListMultipartUploadParts, AbortMultipartUpload; wrong keys may look the same",
    ),
    "RequestTimeTooSkewed": (
        "the clocks of this machine and the server must agree within 15 minutes",
        "set the clock (NTP); `podium storage check` shows the difference",
    ),
    "ExpiredToken": ("the session token must not be expired", "get a new AWS_SESSION_TOKEN"),
    "InvalidToken": ("the session token must be valid", "unset AWS_SESSION_TOKEN or get a new one"),
    "InvalidTokenId": ("the session token must be valid", "unset AWS_SESSION_TOKEN or get a new one"),
    "AuthorizationHeaderMalformed": ("the region must be the bucket's", "set AWS_REGION"),
    "PermanentRedirect": ("the region must be the bucket's", "set AWS_REGION"),
    "XMinioStorageFull": ("the server must have room", "its disks are full"),
    "QuotaExceeded": ("the bucket must have room", "its quota is used up"),
    "SlowDown": ("the server must keep up", "it is overloaded: try again later"),
    "ServiceUnavailable": ("the server must be ready", "try again later"),
}
_CODE = re.compile(r" *\(_ssl\.c.*")
_SAID = {
    http.NameResolutionError: "its name is unknown",
    http.NewConnectionError: "nobody listens there",
    http.ConnectTimeoutError: "it does not answer",
    http.ReadTimeoutError: "it stopped answering",
}


class Interrupted(PodiumError):
    """The connection broke in the middle of an answer: worth another try."""


@contextmanager
def told(what: str, key: str, url: str, config: S3Config) -> Iterator[None]:
    """Translate what minio and urllib3 raise.

    Raises:
        NotFound: The key is not there.
        Conflict: A condition did not hold.
        PodiumError: Anything else, with a hint.
    """
    from minio.error import InvalidResponseError, MinioException, S3Error

    try:
        yield
    except S3Error as error:
        raise _from_code(error.code or "", error.message or "", what, key, url, config) from error
    except InvalidResponseError as error:
        raise _no_s3(str(error), what, config) from error
    except http.HTTPError as error:
        raise _unreachable(error, what, config) from error
    except (MinioException, ValueError) as error:
        raise PodiumError(f"cannot {what} {key} in {url}: {error}", "see the server's log") from error


def _from_code(code: str, message: str, what: str, key: str, url: str, config: S3Config) -> PodiumError:
    if code in ("NoSuchKey", "NoSuchVersion"):
        return NotFound(f"there is no {key} in {url}")
    if code in ("PreconditionFailed", "ConditionalRequestConflict"):
        return Conflict(f"{key} in {url} must not have been written by somebody else meanwhile, but it was")
    if code == "NoSuchBucket":
        bucket = url.split("/")[2]
        return PodiumError(
            f"the bucket {bucket} must exist on {config.url}, but does not", f"podium storage check {url} --create"
        )
    law, hint = _HINTS.get(code, ("", "see the server's log"))
    given = f"{config.url} answered {code}: {message}".rstrip(": ")
    if law:
        must = law.format(source=config.source, what=what, key=key)
        return PodiumError(f"{must}, but {given}", hint.format(source=config.source))
    return PodiumError(f"cannot {what} {key} in {url}: {given}", hint)


def _no_s3(text: str, what: str, config: S3Config) -> PodiumError:
    if "HTTP request to an HTTPS server" in text:
        return PodiumError(
            f"the endpoint must be spoken to in its own scheme, but {config.url} wants TLS",
            f"write https://{config.endpoint}",
        )
    return PodiumError(
        f"{config.url} must speak S3, but its answer to {what} is none ({text[:120]})",
        "is this the port of a console or of another service? MinIO's API listens on 9000",
    )


def _unreachable(error: http.HTTPError, what: str, config: S3Config) -> PodiumError:
    reason = getattr(error, "reason", None) or error
    text = str(reason)
    if isinstance(reason, http.SSLError):
        if "WRONG_VERSION_NUMBER" in text or "record layer" in text.lower() or "packet length" in text.lower():
            return PodiumError(
                f"{config.url} must speak TLS, but does not", f"write http://{config.endpoint} if that is meant"
            )
        return PodiumError(
            f"the certificate of {config.url} must be trusted, but {_CODE.sub('', text.rpartition('] ')[2])}",
            "put its CA into a PEM file and set AWS_CA_BUNDLE",
        )
    said = next(
        (words for kind, words in _SAID.items() if isinstance(reason, kind)), f"{type(reason).__name__}: {text}"
    )
    broken = isinstance(error, (http.ProtocolError, http.ReadTimeoutError))
    return (Interrupted if broken else PodiumError)(
        f"{config.url} must be reachable to {what}, but {said}",
        "is the server up, and AWS_ENDPOINT_URL or MINIO_ENDPOINT right?",
    )


def retried(error: Exception) -> bool:
    """Return whether a failed request had been sent more than once."""
    response = getattr(error, "response", None)
    retries = getattr(response, "retries", None)
    return isinstance(retries, urllib3.Retry) and bool(retries.history)

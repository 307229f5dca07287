"""Errors of an S3 server as sentences with hints."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree

from urllib3 import exceptions as http

from podium.errors import Conflict, NotFound, PodiumError
from podium.storage.s3.config import S3Config

_HINTS = {
    "InvalidAccessKeyId": (
        "the server does not know the access key from {source}",
        "check {source}",
    ),
    "SignatureDoesNotMatch": (
        "the secret key does not belong to the access key from {source}",
        "check the secret key; a proxy that rewrites requests, or a wrong AWS_REGION, has the same effect",
    ),
    "AccessDenied": (
        "the user from {source} is not allowed to {what} {key}",
        "its policy needs s3:ListBucket, GetObject, PutObject, DeleteObject, and for cleaning up AbortMultipartUpload;"
        " wrong keys may look the same",
    ),
    "RequestTimeTooSkewed": (
        "the clocks of this machine and the server differ by more than 15 minutes",
        "set the clock (NTP); `podium storage check` shows the difference",
    ),
    "ExpiredToken": ("the session token has expired", "get a new AWS_SESSION_TOKEN"),
    "InvalidToken": ("the session token is not valid", "unset AWS_SESSION_TOKEN or get a new one"),
    "InvalidTokenId": (
        "the session token is not valid",
        "unset AWS_SESSION_TOKEN or get a new one",
    ),
    "AuthorizationHeaderMalformed": ("the bucket is in another region", "set AWS_REGION"),
    "PermanentRedirect": ("the bucket is in another region", "set AWS_REGION"),
    "XMinioStorageFull": ("the server's disks are full", "make room on them"),
    "QuotaExceeded": ("the bucket's quota is used up", "delete something, or raise the quota"),
    "SlowDown": ("the server is overloaded", "try again later"),
    "ServiceUnavailable": ("the server is not ready", "try again later"),
}
_POSITION = re.compile(r" *\(_ssl\.c.*")
_REASONS = {
    http.NameResolutionError: "its name is unknown",
    http.NewConnectionError: "nothing listens there",
    http.ConnectTimeoutError: "it does not answer",
    http.ReadTimeoutError: "it stopped answering",
}


class Unsupported(PodiumError):
    """The server does not implement the request."""


class Interrupted(PodiumError):
    """The connection broke in the middle of an answer; another attempt may succeed."""


@contextmanager
def translated(action: str, key: str, url: str, config: S3Config) -> Iterator[None]:
    """Translate the errors of minio and urllib3.

    Raises:
        NotFound: The key does not exist.
        Conflict: A condition did not hold.
        PodiumError: Anything else, with a hint.
    """
    from minio.error import InvalidResponseError, MinioException, S3Error

    try:
        yield
    except S3Error as error:
        raise _from_code(error.code or "", error.message or "", action, key, url, config) from error
    except InvalidResponseError as error:
        raise no_s3(str(error), action, config) from error
    except (
        ElementTree.ParseError
    ) as error:  # a SyntaxError: a proxy cut the answer, or gave an empty one
        raise PodiumError(
            f"cannot {action} {key} in {url}: {config.url} gave half an answer or an empty one ({error})",
            "try again; if it stays, look at the proxy before the server",
        ) from error
    except http.HTTPError as error:
        raise _unreachable(error, action, config) from error
    except (MinioException, ValueError) as error:
        raise PodiumError(
            f"cannot {action} {key} in {url}: {error}", "see the server's log"
        ) from error


def _from_code(
    code: str, message: str, action: str, key: str, url: str, config: S3Config
) -> PodiumError:
    if code in ("NoSuchKey", "NoSuchVersion"):
        return NotFound(f"there is no {key} in {url}")
    if code in ("PreconditionFailed", "ConditionalRequestConflict"):
        return Conflict(f"{key} in {url} was changed by another writer")
    if code == "NoSuchBucket":
        bucket = url.split("/")[2]
        return PodiumError(
            f"the bucket {bucket} does not exist on {config.url}",
            f"podium storage check {url} --create",
        )
    if code in ("NotImplemented", "MethodNotAllowed"):
        return Unsupported(
            f"{config.url} cannot {action} {key}: it answered {code}: {message}".rstrip(": ")
        )
    reason, hint = _HINTS.get(code, (f"cannot {action} {key} in {url}", "see the server's log"))
    if code in _HINTS:
        reason, hint = (
            reason.format(source=config.source, what=action, key=key),
            hint.format(source=config.source),
        )
    return PodiumError(f"{reason}: {config.url} answered {code}: {message}".rstrip(": "), hint)


def no_s3(text: str, action: str, config: S3Config) -> PodiumError:
    if "HTTP request to an HTTPS server" in text:
        return PodiumError(
            f"{config.url} expects TLS, but the endpoint is given as http://",
            f"write https://{config.endpoint}",
        )
    return PodiumError(
        f"{config.url} is not an S3 server: cannot {action}, it answered {text[:120]}",
        "is this the port of a console or of another service? MinIO's API listens on 9000",
    )


def _unreachable(error: http.HTTPError, action: str, config: S3Config) -> PodiumError:
    reason = getattr(error, "reason", None) or error
    text = str(reason)
    if isinstance(reason, http.SSLError):
        if (
            "WRONG_VERSION_NUMBER" in text
            or "record layer" in text.lower()
            or "packet length" in text.lower()
        ):
            return PodiumError(
                f"{config.url} does not speak TLS",
                f"write http://{config.endpoint} if that is meant",
            )
        return PodiumError(
            f"the certificate of {config.url} is not trusted: {_POSITION.sub('', text.rpartition('] ')[2])}",
            "put its CA into a PEM file and set AWS_CA_BUNDLE",
        )
    why = next(
        (words for kind, words in _REASONS.items() if isinstance(reason, kind)),
        f"{type(reason).__name__}: {text}",
    )
    broken = isinstance(error, (http.ProtocolError, http.ReadTimeoutError))
    return (Interrupted if broken else PodiumError)(
        f"cannot reach {config.url} to {action}: {why}",
        "is the server up, and AWS_ENDPOINT_URL or MINIO_ENDPOINT right?",
    )

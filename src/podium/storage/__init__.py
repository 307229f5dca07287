"""Bytes under keys: ``file://`` directories and ``s3://`` or ``minio://`` buckets behind one
interface.

A URL chooses the implementation; callers never ask which one they hold. Nothing heavy is imported
before the first S3 URL is opened.
"""

import os
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from podium.errors import InvalidInput
from podium.files.documents import foreign
from podium.storage.base import Entry, Storage, Stored, check_key

__all__ = [
    "Entry",
    "Storage",
    "Stored",
    "absolute",
    "check_key",
    "connect",
    "is_slip",
    "local_path",
    "path_of",
]


def connect(url: str | Path, *, create: bool = False) -> Storage:
    """Open a storage.

    Args:
        url: ``file:///dir``, a bare path, ``s3://bucket/prefix`` or ``minio://bucket/prefix``. The
            server's address and credentials come from the environment
            (``podium.storage.s3.config``).
        create: Make the bucket if it does not exist; directories appear with their first object
            anyway.

    Raises:
        InvalidInput: The scheme is unknown or the URL names no bucket.
        PodiumError: The server refused to create the bucket.
    """
    text = str(url)
    if "://" not in text:
        if is_slip(text):
            scheme, _, rest = text.partition(":")
            hint = (
                f"did you mean {scheme}://{rest.lstrip('/')}? A directory of that name is ./{text}"
            )
            raise InvalidInput(f"not a URL: {text!r}", hint)
        return _files(text)
    with foreign(f"not a URL: {text!r}"):
        parts = urlsplit(text)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidInput(
                f"a file URL names no host, but got {text!r}", f"write file:///{parts.netloc}…"
            )
        return _files(path_of(text))
    if parts.scheme in ("s3", "minio"):
        from podium.storage.s3.storage import S3Storage

        return S3Storage.open(text, create=create)
    raise InvalidInput(
        f"a storage URL starts with file://, s3:// or minio://, not {text!r}",
        "a plain path is fine too",
    )


def path_of(url: str) -> str:
    """Return the path in a ``file://`` URL, byte for byte, whatever the locale's encoding."""
    return os.fsdecode(
        unquote_to_bytes(os.fsencode(url.removeprefix("file://").removeprefix("localhost")))
    )


def local_path(url: str | Path) -> Path | None:
    """Return the path a URL names on this machine, or None if it is remote."""
    if str(url).startswith("file://"):
        return Path(path_of(str(url)))
    return None if "://" in str(url) or is_slip(str(url)) else Path(url)


def absolute(location: str | Path) -> str:
    """Return a URI, or the absolute path of a directory, without a slash at its end."""
    text = str(location)
    return text.rstrip("/") if "://" in text else str(Path(text).absolute())


def is_slip(text: str) -> bool:
    """Return whether the text looks like a mistyped URL: ``s3:/bucket``, ``minio:bucket``."""
    scheme, colon, rest = text.partition(":")
    return scheme in ("file", "s3", "minio") and bool(colon) and not rest.startswith("//")


def _files(path: str) -> Storage:
    from podium.storage.files import FileStorage

    if not path:
        raise InvalidInput(
            "the path of a storage is empty", "for example ./store or s3://bucket/prefix"
        )
    if os.path.isfile(os.path.expanduser(path)):
        raise InvalidInput(f"a storage is a directory, but {path} is a file", "name the directory")
    return FileStorage(Path(path))

"""Bytes under keys: ``file://`` directories and ``s3://`` or ``minio://`` buckets behind one interface.

A URL chooses the implementation; callers never ask which one they hold.
"""

from podium.storage.base import Entry, Storage

__all__ = ["Entry", "Storage", "connect"]


def connect(url: str) -> Storage:
    """Open a storage.

    Args:
        url: ``file:///dir``, a bare path, ``s3://bucket/prefix`` or ``minio://bucket/prefix``.

    Raises:
        InvalidInput: The scheme is unknown or the URL names no bucket.
    """
    raise NotImplementedError

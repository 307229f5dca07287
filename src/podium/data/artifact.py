"""The dataset artifact: ``dataset.json`` and a ``.npy`` file for each input and target, each with its sha256.

Trainers import this module, so it costs numpy and nothing else. Reading verifies every byte and maps the arrays from
disk; writing streams, and makes the whole directory appear at once or not at all. Neither needs memory for the data.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from podium.data.artifact_files import appearing, check_parts, check_target, write_directory, write_info
from podium.data.blocks import Selection
from podium.data.cache import ObjectCache, matches
from podium.data.schema import (
    FORMAT,
    PARTS,
    Array,
    DatasetInfo,
    FileInfo,
    InputDescription,
    Part,
    digest_of,
)
from podium.documents import MAX_JSON, load_json
from podium.errors import Conflict, Damaged, InvalidInput, NotFound, PodiumError, require
from podium.settings import Settings
from podium.storage import connect, local_path

__all__ = ["PARTS", "DatasetInfo", "InputDescription", "Part", "Selection", "copy", "describe", "load", "write"]

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
        raise Damaged(error.message, PREPARE_HINT) from error
    if info.digest != digest_of(*(info.parts[name] for name in PARTS)):
        raise Damaged(f"{where}: its digest does not follow from the checksums in it", PREPARE_HINT)
    return info


def load(uri: str | Path, part: str) -> Part:
    """Map one part into memory, every byte verified.

    Nothing is copied: the arrays are read-only and take memory only where they are read, which the system takes back
    when it needs it. Copy what must stay. A remote dataset is fetched once into the cache of this machine.

    Args:
        uri: A directory, ``file://``, ``s3://`` or ``minio://``.
        part: ``train``, ``validation`` or ``test``.

    Returns:
        The arrays that ``dataset.json`` describes: inputs [n, *shape] and target [n, *shape].

    Raises:
        NotFound: There is no dataset, or a file of it is missing.
        InvalidInput: No such part, or a dataset of another format.
        Damaged: A file does not match its checksum.
    """
    require(part in PARTS, f"part is one of {', '.join(PARTS)}", part=part)
    whole = describe(uri)
    info = whole.parts[part]
    inputs = {
        name: _map(uri, info.inputs[name], described.dtype, (info.count, *described.shape))
        for name, described in whole.inputs.items()
    }
    return Part(inputs=inputs, target=_map(uri, info.target, whole.target.dtype, (info.count, *whole.target.shape)))


def write(
    target: str | Path,
    parts: Mapping[str, Part | Selection],
    *,
    name: str,
    kind: str,
    classes: tuple[str, ...] = (),
    inputs: Mapping[str, InputDescription],
    target_name: str,
    preprocessing: dict[str, Any],
    source: str,
    split: str,
    seed: int = 1,
    limit: int | None = None,
) -> DatasetInfo:
    """Write an artifact, a few megabytes at a time; it appears complete or not at all.

    Args:
        target: A directory that is absent, empty, or holds an older dataset (which is replaced); or an ``s3://`` or
            ``minio://`` prefix (where nothing is replaced).
        parts: ``train``, ``validation`` and ``test``, all with the same inputs; the arrays may be larger than memory.
        name: Name of the dataset.
        kind: ``classification`` or ``regression``.
        classes: Name of each class.
        inputs: What each input means, in the order that ``dataset.json`` lists them.
        target_name: Name of the target, for people.
        preprocessing: How raw data becomes inputs; empty if unknown.
        source: Where the data came from.
        split: How it was divided.
        seed: Seed of the split.
        limit: What train and validation were limited to.

    Raises:
        InvalidInput: A part is missing, empty, unlike the others, has a class without a name or a value that is not
            finite, or target holds something else.
        Conflict: The prefix holds another dataset.
        PodiumError: The disk is full or the directory cannot be written; nothing is left behind.
    """
    chosen = {name: part if isinstance(part, Selection) else Selection(part=part) for name, part in parts.items()}
    check_parts(chosen, kind, tuple(classes), inputs)
    facts = {
        "name": name, "kind": kind, "classes": tuple(classes), "source": source,
        "split": split, "seed": seed, "limit": limit,
        "preprocessing": json.loads(json.dumps(preprocessing, allow_nan=False)),  # as it will be read again
    }  # fmt: skip
    directory = local_path(target)
    if directory is not None:
        return write_directory(directory.absolute(), chosen, inputs, target_name, facts)
    with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
        info = write_directory(Path(scratch, "dataset"), chosen, inputs, target_name, facts)
        upload(Path(scratch, "dataset"), info, str(target))
        return info


def copy(source: str | Path, target: str | Path) -> DatasetInfo:
    """Copy an artifact file by file, every byte verified; it appears complete or not at all.

    Args:
        source: A directory or URI that holds a dataset.
        target: As in `write`; source itself is verified and stays where it is.

    Raises:
        NotFound, InvalidInput, Damaged: As load.
        Conflict, PodiumError: As write.
    """
    info = describe(source)
    files = {file.file: _verified(source, file) for part in info.parts.values() for file in part.files}
    directory = local_path(target)
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            upload(_copy(Path(scratch, "dataset"), files, info), info, str(target))
    elif not (directory.exists() and (home := local_path(source)) and directory.samefile(home)):
        check_target(directory.absolute())
        _copy(directory.absolute(), files, info)
    return info


def upload(directory: Path, info: DatasetInfo, uri: str) -> None:
    """Copy a dataset from a directory to a prefix; it appears complete or not at all.

    Raises:
        Conflict: The prefix holds another dataset.
    """
    storage = connect(uri)
    if storage.head("dataset.json"):
        if describe(uri).digest == info.digest:
            return
        raise Conflict(f"{uri} holds another dataset already", "name another prefix: running trials may read that one")
    for part in info.parts.values():
        for file in part.files:
            storage.put(file.file, directory / file.file)
    storage.put("dataset.json", directory / "dataset.json")  # last: a dataset without it does not exist


def _read(uri: str | Path, file: str) -> bytes:
    directory = local_path(uri)
    try:
        if directory is None:
            return connect(str(uri)).get(file)
        with (directory / file).open("rb") as stream:
            return stream.read(MAX_JSON + 1)
    except (FileNotFoundError, NotADirectoryError, NotFound):
        raise NotFound(f"there is no {file} in {uri}", PREPARE_HINT) from None
    except OSError as error:
        raise PodiumError(f"{uri}/{file} cannot be read: {error.strerror or error}") from error


def _map(uri: str | Path, file: FileInfo, dtype: str, shape: tuple[int, ...]) -> Array:
    path = _verified(uri, file)
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError) as error:
        raise Damaged(f"{uri}/{file.file} cannot be mapped: {error}", PREPARE_HINT) from error
    if (array.shape, array.dtype, array.flags.c_contiguous) != (shape, np.dtype(dtype), True):
        raise Damaged(f"{uri}/{file.file} holds {array.dtype} {array.shape}, but dataset.json says {dtype} {shape}",
                      PREPARE_HINT)  # fmt: skip
    return array


def _verified(uri: str | Path, file: FileInfo) -> Path:
    """Return where a file lies on this machine, verified."""
    directory = local_path(uri)
    if directory is None:
        return ObjectCache.of(Settings.from_environment()).fetch(str(uri), file)
    path = directory / file.file
    try:
        if not matches(path, file):
            raise Damaged(f"{uri}/{file.file} does not match its checksum ({path.stat().st_size} of {file.bytes} "
                          "bytes)", "copy it again, or " + PREPARE_HINT)  # fmt: skip
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no {file.file} in {uri}", PREPARE_HINT) from None
    except OSError as error:
        raise PodiumError(f"{uri}/{file.file} cannot be read: {error.strerror or error}") from error
    return path


def _copy(target: Path, files: Mapping[str, Path], info: DatasetInfo) -> Path:
    with appearing(target) as draft:
        for name, path in files.items():
            shutil.copyfile(path, draft / name)
        write_info(draft, info)
    return target

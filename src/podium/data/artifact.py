"""The dataset artifact: ``dataset.json`` and a ``.npy`` file for each input and target, each with its sha256.

Trainers import this module, so it costs numpy and nothing else. Reading verifies every byte and maps the arrays from
disk; writing streams, and makes the whole directory appear at once or not at all. Neither needs memory for the data.
"""

import hashlib
import json
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from podium.data.blocks import Selection, first_not_finite, mean_and_std
from podium.data.cache import ObjectCache, matches
from podium.data.schema import (
    FORMAT,
    PARTS,
    Array,
    DatasetInfo,
    FileInfo,
    InputDescription,
    InputInfo,
    Part,
    PartInfo,
    TargetInfo,
    check_kind,
    check_shape,
    digest_of,
)
from podium.documents import MAX_JSON, load_json
from podium.errors import Conflict, Damaged, InvalidInput, NotFound, PodiumError, require
from podium.settings import Settings

__all__ = ["PARTS", "DatasetInfo", "InputDescription", "Part", "Selection", "copy", "describe", "load", "write"]

PREPARE_HINT = "make it again: podium data prepare --output DIRECTORY"
INPUT_NAME = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)


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
    if info.digest != _digest(info.parts):
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
    _check(chosen, kind, tuple(classes), inputs)
    facts = {
        "name": name, "kind": kind, "classes": tuple(classes), "source": source,
        "split": split, "seed": seed, "limit": limit,
        "preprocessing": json.loads(json.dumps(preprocessing, allow_nan=False)),  # as it will be read again
    }  # fmt: skip
    directory = local_path(target)
    if directory is not None:
        return _write_directory(directory.absolute(), chosen, inputs, target_name, facts)
    with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
        info = _write_directory(Path(scratch, "dataset"), chosen, inputs, target_name, facts)
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
        _check_target(directory.absolute())
        _copy(directory.absolute(), files, info)
    return info


def local_path(uri: str | Path) -> Path | None:
    """Return the path a URI names on this machine, or None if it is remote."""
    from podium.storage import is_slip, path_of

    if str(uri).startswith("file://"):
        return Path(path_of(str(uri)))
    return None if "://" in str(uri) or is_slip(str(uri)) else Path(uri)


def upload(directory: Path, info: DatasetInfo, uri: str) -> None:
    """Copy a dataset from a directory to a prefix; it appears complete or not at all.

    Raises:
        Conflict: The prefix holds another dataset.
    """
    from podium.storage import connect

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
            from podium.storage import connect

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
    with _appearing(target) as draft:
        for name, path in files.items():
            shutil.copyfile(path, draft / name)
        _write_info(draft, info)
    return target


@contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """Yield a directory beside target that becomes target in the end, or is removed."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        draft.mkdir(parents=True)
        yield draft
        _replace(draft, target)
    except OSError as error:
        hint = "free some space, or choose another directory"
        raise PodiumError(f"the dataset could not be written to {target}: {error.strerror or error}", hint) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_info(directory: Path, info: DatasetInfo) -> None:
    (directory / "dataset.json").write_text(json.dumps(info.to_json(), indent=1, allow_nan=False) + "\n")


def _write_directory(
    target: Path,
    parts: Mapping[str, Selection],
    descriptions: Mapping[str, InputDescription],
    target_name: str,
    facts: dict[str, Any],
) -> DatasetInfo:
    _check_target(target)
    with _appearing(target) as draft:
        infos = {part: _write_part(draft, part, parts[part], len(facts["classes"])) for part in PARTS}
        inputs = {name: _input_info(name, description, parts["train"]) for name, description in descriptions.items()}
        info = DatasetInfo(digest=_digest(infos), inputs=inputs, parts=infos, **facts,
                           target=_target_info(target_name, parts["train"], facts["kind"]))  # fmt: skip
        _write_info(draft, info)
    return info


def _input_info(name: str, description: InputDescription, train: Selection) -> InputInfo:
    array = train.array(name)
    mean, std = mean_and_std(train.blocks(name), description.meaning)
    return InputInfo(meaning=description.meaning, dtype=array.dtype.name, shape=array.shape[1:], mean=mean, std=std,
                     columns=description.columns)  # fmt: skip


def _target_info(name: str, train: Selection, kind: str) -> TargetInfo:
    array = train.array("target")
    mean = std = None
    if kind == "regression":
        rows = (block.reshape(len(block), -1) for block in train.blocks("target"))
        mean, std = mean_and_std(rows, "table")
    return TargetInfo(name=name, dtype=array.dtype.name, shape=array.shape[1:], mean=mean, std=std)


def _write_part(directory: Path, name: str, part: Selection, classes: int) -> PartInfo:
    counts = _count(name, part, classes) if classes else ()
    inputs = {of: _write_array(directory / f"{name}-{of}.npy", part, of) for of in part.part.inputs}
    target = _write_array(directory / f"{name}-target.npy", part, "target")
    return PartInfo(count=len(part), class_counts=counts, inputs=inputs, target=target)


def _count(name: str, part: Selection, classes: int) -> tuple[int, ...]:
    counts = np.zeros(classes, np.int64)
    for block in part.blocks("target"):
        for label in (int(block.min()), int(block.max())):
            require(0 <= label < classes, "every target has a class", part=name, target=label, classes=classes)
        counts += np.bincount(block, minlength=classes)
    return tuple(counts.tolist())


def _write_array(path: Path, part: Selection, name: str) -> FileInfo:
    """Write an array as ``numpy.save`` would, in blocks."""
    array, digest, start = part.array(name), hashlib.sha256(), 0
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype.newbyteorder("=")),
        "fortran_order": False,
        "shape": (len(part), *array.shape[1:]),
    }
    with path.open("w+b") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        stream.seek(0)
        digest.update(stream.read())
        for block in part.blocks(name):
            if bad := first_not_finite(block):
                item, column = part.origin(start + bad[0]) + 1, f", column {bad[1] + 1}" if len(bad) == 2 else ""
                raise InvalidInput(
                    f"{name} holds {block[bad]} in item {item}{column}", "fill in or drop what is missing"
                )
            stream.write(block.data)
            digest.update(block.data)
            start += len(block)
        size = stream.tell()
    return FileInfo(file=path.name, sha256=digest.hexdigest(), bytes=size)


def _digest(parts: Mapping[str, PartInfo]) -> str:
    return digest_of(*(parts[name] for name in PARTS))


def _check(
    parts: Mapping[str, Selection], kind: str, classes: tuple[str, ...], inputs: Mapping[str, InputDescription]
) -> None:
    """Check everything that shows without reading the data."""
    check_kind(kind, classes)
    require(set(parts) == set(PARTS), f"parts are {', '.join(PARTS)}", parts=sorted(parts))
    for name, part in parts.items():
        require(len(part) > 0, "every part has an item", part=name, items=0)
        require(set(part.part.inputs) == set(inputs), "every part has the inputs described", part=name,
                inputs=sorted(part.part.inputs), described=sorted(inputs))  # fmt: skip
        for of in (*inputs, "target"):
            array, first = part.array(of), parts["train"].array(of)
            same = (array.dtype, array.shape[1:]) == (first.dtype, first.shape[1:])
            require(same, "all parts have arrays of one type and shape", part=name, array=of, dtype=array.dtype.name,
                    shape=list(array.shape[1:]))  # fmt: skip
    for of, description in inputs.items():
        require(of != "target" and bool(INPUT_NAME.fullmatch(of)), "an input has a name of letters, digits and _",
                "`target` is the name of the target", input=of)  # fmt: skip
        check_shape(description.meaning, parts["train"].array(of).shape[1:], len(description.columns))
    array = parts["train"].array("target")
    if kind == "classification":
        fits = array.ndim == 1 and array.dtype.kind in "iu"
        require(fits, "the target of a classification is integers [n]", dtype=array.dtype.name, shape=array.shape)
    else:
        fits = array.ndim <= 2 and array.dtype.name in ("float32", "float64")
        require(fits, "the target of a regression is float32 or float64, [n] or [n, k]", dtype=array.dtype.name,
                shape=array.shape)  # fmt: skip


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

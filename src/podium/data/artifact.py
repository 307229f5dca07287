"""The dataset artifact: ``dataset.json`` and a ``.npy`` file for each input and target, each with
its sha256.

The test part is an artifact of its own, by default beside the other with ``_test`` behind its name:
what is given to trials and trainings holds train and validation only. Where a pipeline runs on this
machine, it is encrypted (podium.data.sealed).

Trainers import this module, so it costs numpy and nothing else. Reading verifies every byte and
maps the arrays from disk, so it needs no memory for the data; podium.data.artifact_files writes.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from podium.data.cache import ObjectCache
from podium.data.folds import SMALL, USUAL, Fold, Items, each_fold
from podium.data.schema import (
    FORMAT,
    PARTS,
    Array,
    DatasetInfo,
    FileInfo,
    InputDescription,
    digest_of,
)
from podium.data.sealed import is_sealed, unsealed
from podium.data.seen import SeenItems
from podium.data.split import Split
from podium.errors import Damaged, InvalidInput, NotFound, PodiumError
from podium.files.documents import MAX_JSON, load_json, parse
from podium.storage import connect, local_path
from podium.system.settings import Settings

__all__ = [
    "PARTS",
    "DatasetInfo",
    "InputDescription",
    "Split",
    "describe",
    "load",
    "test_uri",
]  # fmt: skip

LEARNED = ("train", "validation")
"""Parts that folds divide."""

_PREPARE_HINT = "make it again: podium data prepare SOURCE --output DIRECTORY"


def test_uri(uri: str | Path) -> str:
    """Return where the test part of a dataset lies, unless it was written elsewhere."""
    return f"{str(uri).rstrip('/')}_test"


def describe(uri: str | Path) -> DatasetInfo:
    """Read and check ``dataset.json``; opens no part, unless the URI names a fold
    (podium.data.folds).

    Args:
        uri: A directory, ``file://``, ``s3://`` or ``minio://``.

    Raises:
        NotFound: There is no dataset.
        InvalidInput: It is a dataset of another format.
        Damaged: ``dataset.json`` cannot be read or contradicts itself.
    """
    uri, fold = Fold.split(uri)
    if fold:
        targets = {name: target for name, (_, target) in _picked(uri, fold).items()}
        return _as_fold(describe(uri), targets)
    return _parse(_read(uri, "dataset.json"), f"{uri}/dataset.json")


@lru_cache(maxsize=4)  # of a wide table it takes seconds, and a step asks many times
def _parse(text: bytes, where: str) -> DatasetInfo:
    try:
        value = load_json(text, where)
        file_format = value.get("format") if isinstance(value, dict) else None
        info = parse(DatasetInfo, value, where) if file_format == FORMAT else None
    except InvalidInput as error:
        raise Damaged(error.message, _PREPARE_HINT) from error
    if info is None:
        raise InvalidInput(
            f"{where} has the format {file_format!r}, but this podium reads {FORMAT!r}",
            _PREPARE_HINT,
        )
    if info.digest != digest_of(*(info.parts[name] for name in PARTS)):
        raise Damaged(
            f"{where}: its digest does not follow from the checksums in it", _PREPARE_HINT
        )
    return info


def load(uri: str | Path, part: str) -> Split:
    """Map one part into memory, every byte verified.

    Nothing is copied: the arrays are read-only and take memory only where they are read, which the
    system takes back when it needs it. Copy what must stay. A remote dataset is fetched once into
    the cache of this machine. Of a fold the rows are read into memory.

    Args:
        uri: A directory, ``file://``, ``s3://`` or ``minio://``, or a fold of one.
        part: ``train``, ``validation`` or ``test``.

    Returns:
        The arrays that ``dataset.json`` describes: inputs [n, *shape] and target [n, *shape].

    Raises:
        NotFound: There is no dataset, or a file of it is missing.
        InvalidInput: No such part, or a dataset of another format.
        Damaged: A file does not match its checksum.
    """
    if part not in PARTS:
        raise InvalidInput(f"a dataset has no part {part!r}", f"its parts are {', '.join(PARTS)}")
    uri, fold = Fold.split(uri)
    if fold and part != "test":
        return _load_fold(uri, fold, part)
    whole = describe(uri)
    info = whole.parts[part]
    home = _home(uri, whole, part)
    inputs = {
        name: _map(home, info.inputs[name], described.dtype, (info.count, *described.shape))
        for name, described in whole.inputs.items()
    }
    return Split(inputs=inputs, target=load_target(uri, part), name=part, info=whole)


def load_target(uri: str | Path, part: str) -> Array:
    """Map the target of one part, [n, …], without its inputs.

    Raises:
        NotFound, InvalidInput, Damaged: As load.
    """
    uri, fold = Fold.split(uri)
    if fold and part != "test":
        return _picked(uri, fold)[part][1]
    whole = describe(uri)
    info = whole.parts[part]
    return _map(
        _home(uri, whole, part), info.target, whole.target.dtype, (info.count, *whole.target.shape)
    )


def check_folds(uri: str | Path, count: int) -> None:
    """Refuse folds that a dataset cannot be divided into.

    Raises:
        InvalidInput: It says why.
    """
    for fold in each_fold(str(uri), count, seed=1):
        load_target(fold, "validation")


def usual_folds(uri: str | Path) -> int:
    """Return how many folds suit a table or text: 5 where its validation part is small, unless it
    cannot be divided so or goes by time; else 0."""
    info = describe(uri)
    if info.parts["validation"].count >= SMALL or info.parts["train"].times:
        return 0
    with suppress(InvalidInput):
        check_folds(uri, USUAL)
        return USUAL
    return 0


def _load_fold(uri: str, fold: Fold, part: str) -> Split:
    picked, whole = _picked(uri, fold), describe(uri)
    rows, target = picked[part]
    halves = [load(uri, name) for name in LEARNED]
    first = len(halves[0])
    inputs = {
        name: np.concatenate(
            [
                halves[0].inputs[name][rows[rows < first]],
                halves[1].inputs[name][rows[rows >= first] - first],
            ]
        )
        for name in whole.inputs
    }
    targets = {name: chosen for name, (_, chosen) in picked.items()}
    return Split(inputs=inputs, target=target, name=part, info=_as_fold(whole, targets))


def _picked(uri: str, fold: Fold) -> dict[str, tuple[Array, Array]]:
    """Return the rows of each part of a fold, ascending, and their target."""
    info = describe(uri)

    def fact(name: str) -> Array | None:
        found = [load_facts(uri, name, part) for part in LEARNED]
        arrays = [array for array in found if array is not None]
        return np.concatenate(arrays) if len(arrays) == len(LEARNED) else None

    target = np.concatenate([load_target(uri, part) for part in LEARNED])
    groups = fact("groups")
    units = fact("keys") if groups is None else groups
    items = Items(
        target=target,
        units=np.arange(len(target), dtype=np.uint64) if units is None else units,
        times=fact("times"),
        has_groups=groups is not None,
    )
    rows = items.rows(fold, info)
    return {part: (at, target[at]) for part, at in zip(LEARNED, rows, strict=True)}


def _as_fold(info: DatasetInfo, targets: Mapping[str, Array]) -> DatasetInfo:
    """Return the description of a fold: statistics stay those of the whole training part."""
    classes = len(info.classes)
    parts = {
        name: replace(
            info.parts[name],
            count=len(target),
            class_counts=tuple(np.bincount(target, minlength=classes).tolist()) if classes else (),
        )
        for name, target in targets.items()
    }
    return replace(info, parts={**info.parts, **parts})


def load_seen(uri: str | Path) -> SeenItems | None:
    """Read which items are in train and validation; None if the dataset does not tell.

    Raises:
        NotFound, InvalidInput, Damaged: As load.
    """
    uri, _ = Fold.split(uri)
    file = describe(uri).seen
    return (
        None
        if file is None
        else SeenItems.from_bytes(_verified(uri, file).read_bytes(), f"{uri}/{file.file}")
    )


def load_facts(uri: str | Path, name: str, part: str = "test") -> Array | None:
    """Map what is known of each item of a part, [n]; None if the dataset does not tell.

    Args:
        uri: The dataset's, or that of its test part.
        name: ``groups`` or ``keys``, 64-bit hashes of the group of each item, or of the item as it
            came; or ``times``.

    Raises:
        NotFound, InvalidInput, Damaged: As load.
    """
    uri, _ = Fold.split(uri)
    info = describe(uri)
    file: FileInfo | None = getattr(info.parts[part], name)
    return (
        None
        if file is None
        else np.lib.format.open_memmap(_verified(_home(uri, info, part), file), mode="r")
    )


def originals(uri: str | Path) -> Path | None:
    """Return the Parquet file of the test items as they came, on this machine; None if the dataset
    has none."""
    info = describe(uri)
    file = info.parts["test"].originals
    return None if file is None else _verified(_home(uri, info, "test"), file)


def files(uri: str | Path, *, held_out: bool) -> dict[str, Path]:
    """Return the files of the test part, or those beside ``dataset.json``, on this machine, every
    byte verified."""
    info = describe(uri)
    home = _home(uri, info, "test") if held_out else uri
    held = info.parts["test"].files if held_out else info.given
    return {file.file: _verified(home, file) for file in held}


def _home(uri: str | Path, info: DatasetInfo, part: str) -> str | Path:
    """Return where the files of a part lie: in the dataset itself, or beside it."""
    if part != "test":
        return uri
    directory, file = local_path(uri), info.parts[part].target.file
    if directory is None:
        is_inside = connect(str(uri)).head(file) is not None
    else:
        is_inside = (directory / file).is_file() or is_sealed(directory / file)
    if is_inside:
        return uri
    beside = test_uri(uri)
    try:
        describe(beside)
    except NotFound:
        raise NotFound(
            f"the test part of {uri} is not there: it lies beside it, at {beside}",
            "copy or upload both; or " + _PREPARE_HINT,
        ) from None
    return beside


def _read(uri: str | Path, file: str) -> bytes:
    directory = local_path(uri)
    try:
        if directory is None:
            return connect(str(uri)).get(file)
        with (directory / file).open("rb") as stream:
            return stream.read(MAX_JSON + 1)
    except (FileNotFoundError, NotADirectoryError, NotFound):
        raise NotFound(f"there is no {file} in {uri}", _PREPARE_HINT) from None
    except OSError as error:
        raise PodiumError(f"{uri}/{file} cannot be read: {error.strerror or error}") from error


def _map(uri: str | Path, file: FileInfo, dtype: str, shape: tuple[int, ...]) -> Array:
    path = _verified(uri, file)
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError) as error:
        raise Damaged(f"{uri}/{file.file} cannot be mapped: {error}", _PREPARE_HINT) from error
    if (array.shape, array.dtype, array.flags.c_contiguous) != (shape, np.dtype(dtype), True):
        raise Damaged(
            f"{uri}/{file.file} holds {array.dtype} {array.shape}, but dataset.json says {dtype} {shape}",
            _PREPARE_HINT,
        )
    return array


def _verified(uri: str | Path, file: FileInfo) -> Path:
    directory = local_path(uri)
    if directory is None:
        return ObjectCache.of(Settings.from_environment()).fetch(str(uri), file)
    path = directory / file.file
    try:
        path = unsealed(path) if is_sealed(path) else path
        if not file.matches(path):
            raise Damaged(
                f"{uri}/{file.file} does not match its checksum ({path.stat().st_size} of {file.bytes} "
                "bytes)",
                "copy it again, or " + _PREPARE_HINT,
            )
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no {file.file} in {uri}", _PREPARE_HINT) from None
    except OSError as error:
        raise PodiumError(f"{uri}/{file.file} cannot be read: {error.strerror or error}") from error
    return path

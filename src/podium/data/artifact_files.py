"""Writing a dataset artifact: it streams, needs no memory for the data, and the whole directory
appears at once or not at all."""

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from podium.data import artifact
from podium.data.artifact import describe, test_uri
from podium.data.blocks import Selection, are_numbers, blocks, mean_and_std
from podium.data.option_text import written
from podium.data.profile import Profile
from podium.data.schema import (
    INPUT_NAME,
    PARTS,
    Array,
    DatasetInfo,
    FileInfo,
    InputDescription,
    InputInfo,
    PartInfo,
    TargetInfo,
    check_kind,
    check_part_names,
    digest_of,
)
from podium.data.seen import SEEN, SeenItems
from podium.data.split import Split
from podium.data.test_part import sketch
from podium.errors import Conflict, InvalidInput, PodiumError, file_hint
from podium.files.documents import MAX_JSON
from podium.files.drafts import appearing
from podium.storage import connect, local_path

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_log = logging.getLogger(__name__)

_MOST_INDENTED = 1000
"""Columns that dataset.json has a line of its own for each member of."""

_MOST_ITEMS, _MOST_BYTES = 100_000, 256 << 20
"""Limits on the items of the training part that are measured in bins, in items and bytes; a larger
part is sampled."""


@dataclass(frozen=True, kw_only=True)
class Extras:
    """Data that an artifact stores about its items, besides their arrays."""

    seen: SeenItems | None = None
    """All items of train and validation and their groups."""

    groups: Mapping[str, NDArray[np.uint64]] = field(default_factory=dict)
    """A hash of the group of each item, [n], by part."""

    keys: Mapping[str, NDArray[np.uint64]] = field(default_factory=dict)
    """A hash of each item as it came, [n], by part."""

    times: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """The time of each item, [n], by part."""

    gap: float = 0.0
    """Time left between parts."""

    originals: "Iterable[RecordBatch] | None" = None
    """The test items in order as they came: rows, or pictures."""


def write(
    target: str | Path,
    parts: Mapping[str, Split | Selection],
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
    test: str | Path | None = None,
    extras: Extras | None = None,
    warnings: Iterable[str] = (),
) -> DatasetInfo:
    """Write an artifact, a few megabytes at a time; it appears complete or not at all.

    Args:
        target: A directory that is absent, empty, or holds an older dataset (which is replaced); or
            an ``s3://`` or ``minio://`` prefix (where nothing is replaced).
        parts: ``train``, ``validation`` and ``test``, all with the same inputs; the arrays may be
            larger than memory.
        kind: ``classification`` or ``regression``.
        inputs: What each input means, in the order that ``dataset.json`` lists them.
        target_name: Name of the target, for people.
        preprocessing: How raw data becomes inputs; empty if unknown.
        source: Where the data came from.
        split: How it was divided.
        limit: What train and validation were limited to.
        test: As target, for the test part; `test_uri` of the target if None.
        extras: What else is kept of the items.
        warnings: What whoever uses it should know.

    Raises:
        InvalidInput: A part is missing, empty, unlike the others, has a class without a name or a
            value that is not finite, or target holds something else.
        Conflict: The prefix holds another dataset.
        PodiumError: The disk is full or the directory cannot be written; nothing is left behind.
    """
    chosen = {
        name: part if isinstance(part, Selection) else Selection(part=part)
        for name, part in parts.items()
    }
    _check_parts(chosen, kind, tuple(classes), inputs)
    facts = {
        "name": name,
        "kind": kind,
        "classes": tuple(classes),
        "source": source,
        "split": split,
        "seed": seed,
        "limit": limit,
        "warnings": tuple(warnings),
        "preprocessing": json.loads(
            json.dumps(preprocessing, allow_nan=False)
        ),  # as it will be read again
    }
    extras, target, test = extras or Extras(), str(target), str(test or test_uri(target))
    directory, beside = local_path(target), local_path(test)
    if directory is not None and beside is not None:
        return _write_directory(
            directory.absolute(), beside.absolute(), chosen, inputs, target_name, facts, extras
        )
    with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
        draft = Path(scratch, "dataset")
        info = _write_directory(
            draft, Path(test_uri(draft)), chosen, inputs, target_name, facts, extras
        )
        _upload(draft, info, target, test)
        return info


def copy(
    source: str | Path, target: str | Path, test: str | Path | None = None, *, held_out: bool = True
) -> DatasetInfo:
    """Copy an artifact file by file, every byte verified; it appears complete or not at all.

    Args:
        source: A directory or URI that holds a dataset.
        target: As in `write`; source itself is verified and stays where it is.
        test: As in `write`.
        held_out: Whether the test part is copied too: who trains does not need it.

    Raises:
        NotFound, InvalidInput, Damaged: As load.
        Conflict, PodiumError: As write.
    """
    info, target, test = describe(source), str(target), str(test or test_uri(target))
    homes = [test, target] if held_out else [target]  # the test part first
    files = {home: artifact.files(source, held_out=home == test) for home in homes}
    directory, beside = local_path(target), local_path(test)
    if directory is None or beside is None:
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            draft = Path(scratch, "dataset")
            for home in homes:
                _copy(Path(test_uri(draft)) if home == test else draft, files[home], info)
            _upload(draft, info, target, test)
    elif not (directory.exists() and (own := local_path(source)) and directory.samefile(own)):
        places = {home: Path(local_path(home) or "").absolute() for home in homes}
        for place in places.values():
            _check_target(place)
        _name_replaced(places[target], info)
        for home, place in places.items():
            _copy(place, files[home], info)
    return info


def _upload(directory: Path, info: DatasetInfo, uri: str, test: str) -> None:
    """Copy a dataset from a directory, and its test part from beside it, if it is there, to
    prefixes.

    Each appears complete or not at all, the test part first.

    Raises:
        Conflict: The prefix holds another dataset.
    """
    # The test part first, so that a dataset never appears without it.
    for home, files in ((test, info.parts["test"].files), (uri, info.given)):
        source = Path(test_uri(directory)) if home == test else directory
        if not source.exists():
            continue
        storage = connect(home)
        if storage.head("dataset.json"):
            there = describe(home)
            if there.digest == info.digest and _groups(there) == _groups(info):
                continue
            raise Conflict(
                f"{home} holds another dataset already",
                "name another prefix: running trials may read that one",
            )
        for file in files:
            storage.put(file.file, source / file.file)
        storage.put(
            "dataset.json", source / "dataset.json"
        )  # last: a dataset without it does not exist


def _groups(info: DatasetInfo) -> dict[str, FileInfo | None]:
    """Return which items count together, by part: options say so of the same data."""
    return {name: part.groups for name, part in info.parts.items()}


def _copy(target: Path, files: Mapping[str, Path], info: DatasetInfo) -> None:
    with _dataset_directory(target) as draft:
        for name, path in files.items():
            shutil.copyfile(path, draft / name)
        _write_info(info, draft)


@contextmanager
def _dataset_directory(target: Path) -> Iterator[Path]:
    """Yield a directory beside target that becomes target in the end, its files read-only, or is
    removed."""
    try:
        with appearing(target) as draft:
            draft.mkdir(parents=True)
            yield draft
            for file in sorted(draft.iterdir(), key=lambda file: file.name == "dataset.json"):
                file.chmod(0o444)  # dataset.json last: see podium.data.given
    except OSError as error:
        hint = file_hint(error) or "choose another directory"
        raise PodiumError(
            f"the dataset could not be written to {target}: {error.strerror or error}", hint
        ) from error


def _write_info(info: DatasetInfo, *directories: Path) -> None:
    columns = [column for each in info.inputs.values() for column in each.columns]
    indent = 1 if len(columns) <= _MOST_INDENTED else None
    text = json.dumps(info.to_json(), indent=indent, allow_nan=False) + "\n"
    if len(text) > MAX_JSON:
        largest = max(columns, key=lambda column: len(column.categories), default=None)
        raise InvalidInput(
            f"the description of {info.name} has {len(text):,} bytes, but {MAX_JSON:,} are allowed",
            f"leave out columns, first those of many categories: {written('drop', largest.name)}"
            if largest
            else None,
        )
    for directory in directories:
        (directory / "dataset.json").write_text(text)


def _write_directory(
    target: Path,
    test: Path,
    parts: Mapping[str, Selection],
    descriptions: Mapping[str, InputDescription],
    target_name: str,
    facts: dict[str, Any],
    extras: Extras,
) -> DatasetInfo:
    _check_target(target)
    _check_target(test)
    with (
        _dataset_directory(target) as draft,
        _dataset_directory(test) as held_out,
    ):  # the test part appears first
        infos = {
            part: _write_part(home, part, parts[part], len(facts["classes"]), extras)
            for part, home in zip(PARTS, (draft, draft, held_out), strict=True)
        }
        inputs = {
            name: _input_info(name, description, parts["train"])
            for name, description in descriptions.items()
        }
        seen = None
        if extras.seen:
            (draft / SEEN).write_bytes(extras.seen.to_bytes())
            seen = FileInfo.of(draft / SEEN)
        info = DatasetInfo(
            digest=digest_of(*infos.values()),
            inputs=inputs,
            parts=infos,
            **facts,
            gap=extras.gap,
            seen=seen,
            test_part=sketch(extras.keys["test"]) if extras.keys else digest_of(infos["test"]),
            profile=_profile(descriptions, parts["train"]),
            target=_target_info(target_name, parts["train"], facts["kind"]),
        )
        _write_info(info, draft, held_out)
        _name_replaced(target, info)
    return info


def _write_facts(path: Path, array: NDArray[Any] | None) -> FileInfo | None:
    if array is None:
        return None
    np.save(path, array)
    return FileInfo.of(path)


def _write_originals(path: Path, batches: "Iterable[RecordBatch] | None") -> FileInfo | None:
    if batches is None:
        return None
    from pyarrow.parquet import (
        ParquetWriter,
    )  # not at the top: trainers import this module, and have numpy only

    writer = None
    for batch in batches:
        writer = writer or ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    if writer is None:
        return None
    writer.close()
    return FileInfo.of(path)


def _input_info(name: str, description: InputDescription, train: Selection) -> InputInfo:
    array = train.array(name)
    mean, std = mean_and_std(train.blocks(name), description.meaning)
    return InputInfo(
        meaning=description.meaning,
        dtype=array.dtype.name,
        shape=array.shape[1:],
        mean=mean,
        std=std,
        columns=description.columns,
    )


def _profile(descriptions: Mapping[str, InputDescription], train: Selection) -> Profile:
    size = max(1, *(train.array(name)[:1].nbytes for name in descriptions))
    most = min(_MOST_ITEMS, max(1000, _MOST_BYTES // size))
    index = train.index
    if len(train) > most:
        chosen = np.random.default_rng(0).choice(len(train), most, replace=False)
        index = train.positions(np.sort(chosen))
    return Profile.of(
        (name, described.meaning, described.columns, blocks(train.array(name), index))
        for name, described in descriptions.items()
    )


def _target_info(name: str, train: Selection, kind: str) -> TargetInfo:
    array = train.array("target")
    mean = std = None
    if kind == "regression":
        rows = (block.reshape(len(block), -1) for block in train.blocks("target"))
        mean, std = mean_and_std(rows, "table")
    return TargetInfo(name=name, dtype=array.dtype.name, shape=array.shape[1:], mean=mean, std=std)


def _write_part(
    directory: Path, name: str, part: Selection, classes: int, extras: Extras
) -> PartInfo:
    return PartInfo(
        count=len(part),
        class_counts=count_classes(name, part, classes),
        inputs={
            of: _write_array(directory / f"{name}-{of}.npy", part, of) for of in part.part.inputs
        },
        target=_write_array(directory / f"{name}-target.npy", part, "target"),
        groups=_write_facts(directory / f"{name}-groups.npy", extras.groups.get(name)),
        keys=_write_facts(directory / f"{name}-keys.npy", extras.keys.get(name)),
        times=_write_facts(directory / f"{name}-times.npy", extras.times.get(name)),
        originals=_write_originals(
            directory / "test-originals.parquet", extras.originals if name == "test" else None
        ),
    )


def count_classes(name: str, part: Selection, classes: int) -> tuple[int, ...]:
    """Count the items of each class; nothing for regression.

    Raises:
        InvalidInput: An item is of a class that there is not.
    """
    counts = np.zeros(classes, np.int64)
    for block in part.blocks("target") if classes else ():
        for label in (int(block.min()), int(block.max())):
            if not 0 <= label < classes:
                raise InvalidInput(
                    f"{name} has a target {label}, but there are {classes} classes",
                    "0 is the first",
                )
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
            if bad := _first_bad(block):
                item, column = (
                    int(part.positions(start + bad[0])) + 1,
                    f", column {bad[1] + 1}" if len(bad) == 2 else "",
                )
                raise InvalidInput(
                    f"{name} holds {block[bad]} in item {item}{column}",
                    "scale it: float32 holds no such number"
                    if np.isfinite(block[bad])
                    else "fill in or drop what is missing",
                )
            stream.write(block.data)
            digest.update(block.data)
            start += len(block)
        size = stream.tell()
    return FileInfo(file=path.name, sha256=digest.hexdigest(), bytes=size)


def _check_parts(
    parts: Mapping[str, Selection],
    kind: str,
    classes: tuple[str, ...],
    inputs: Mapping[str, InputDescription],
) -> None:
    check_kind(kind, classes)
    check_part_names(parts)
    for name, part in parts.items():
        if not len(part):
            raise InvalidInput(f"{name} has no items")
        if set(part.part.inputs) != set(inputs):
            raise InvalidInput(
                f"{name} has inputs {sorted(part.part.inputs)}, but described are {sorted(inputs)}"
            )
        for of in (*inputs, "target"):
            array, first = part.array(of), parts["train"].array(of)
            if (array.dtype, array.shape[1:]) != (first.dtype, first.shape[1:]):
                raise InvalidInput(
                    f"{of} is {array.dtype} {list(array.shape[1:])} in {name}, "
                    f"but {first.dtype} {list(first.shape[1:])} in train"
                )
    for of, description in inputs.items():
        if of == "target" or not INPUT_NAME.fullmatch(of):
            raise InvalidInput(
                f"an input cannot be named {of!r}",
                "letters, digits and _; target is the target's name",
            )
        description.check_shape(parts["train"].array(of).shape[1:])
    array = parts["train"].array("target")
    if kind == "classification":
        fits, expected = array.ndim == 1 and array.dtype.kind in "iu", "integers [n]"
    else:
        fits = array.ndim <= 2 and array.dtype.name in ("float32", "float64")
        expected = "float32 or float64, [n] or [n, k]"
    if not fits:
        raise InvalidInput(
            f"the target of a {kind} cannot be {array.dtype} {list(array.shape)}", expected
        )


def _check_target(target: Path) -> None:
    if target.is_dir() and any(target.iterdir()) and not (target / "dataset.json").is_file():
        raise InvalidInput(
            f"{target} is not a dataset and was left alone", "name another directory"
        )
    if target.exists() and not target.is_dir():
        raise InvalidInput(
            f"{target} is a file; a dataset is a directory", "name another directory"
        )


def _name_replaced(target: Path, info: DatasetInfo) -> None:
    with suppress(PodiumError):  # there is none that could be read
        old = describe(target)
        if old.digest != info.digest:
            _log.warning(
                "%s held another dataset, of %s with digest %s, which is replaced",
                target,
                old.source,
                old.digest[:12],
            )


def _first_bad(block: Array) -> tuple[int, ...] | None:
    if block.dtype.kind != "f" or (good := are_numbers(block)).all():
        return None
    return tuple(int(at) for at in np.argwhere(~good)[0])

"""Writing the files of a dataset artifact into a directory, which appears complete or not at
all."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from podium.data.blocks import Selection, blocks, first_not_finite, mean_and_std
from podium.data.profile import Profile, drawn
from podium.data.schema import (
    PARTS,
    DatasetInfo,
    FileInfo,
    InputDescription,
    InputInfo,
    PartInfo,
    TargetInfo,
    check_kind,
    check_part_names,
    check_shape,
    digest_of,
)
from podium.data.seen import SEEN, SeenItems
from podium.data.test_part import sketch
from podium.errors import InvalidInput, PodiumError
from podium.files.drafts import appearing

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_INPUT_NAME = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)


@contextmanager
def dataset_directory(target: Path) -> Iterator[Path]:
    """Yield a directory beside target that becomes target in the end, its files read-only, or is
    removed."""
    try:
        with appearing(target) as draft:
            draft.mkdir(parents=True)
            yield draft
            for file in sorted(draft.iterdir(), key=lambda file: file.name == "dataset.json"):
                file.chmod(0o444)  # dataset.json last: see podium.data.given
    except OSError as error:
        hint = "free some space, or choose another directory"
        raise PodiumError(
            f"the dataset could not be written to {target}: {error.strerror or error}", hint
        ) from error


def write_info(directory: Path, info: DatasetInfo) -> None:
    (directory / "dataset.json").write_text(
        json.dumps(info.to_json(), indent=1, allow_nan=False) + "\n"
    )


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


def write_directory(
    target: Path,
    test: Path,
    parts: Mapping[str, Selection],
    descriptions: Mapping[str, InputDescription],
    target_name: str,
    facts: dict[str, Any],
    extras: Extras,
) -> DatasetInfo:
    """Write the test part to a directory of its own, and all else to the target."""
    check_target(target)
    check_target(test)
    with (
        dataset_directory(target) as draft,
        dataset_directory(test) as held_out,
    ):  # the test part appears first
        infos = {
            part: _write_part(
                held_out if part == "test" else draft, part, parts[part], len(facts["classes"])
            )
            for part in PARTS
        }
        for part, home in zip(PARTS, (draft, draft, held_out), strict=True):
            infos[part] = _write_extras(home, part, infos[part], extras)
        inputs = {
            name: _input_info(name, description, parts["train"])
            for name, description in descriptions.items()
        }
        info = DatasetInfo(
            digest=digest_of(*infos.values()),
            inputs=inputs,
            parts=infos,
            **facts,
            gap=extras.gap,
            seen=_write_seen(draft / SEEN, extras.seen),
            test_part=sketch(extras.keys["test"]) if extras.keys else digest_of(infos["test"]),
            profile=_profile(descriptions, parts["train"]),
            target=_target_info(target_name, parts["train"], facts["kind"]),
        )
        write_info(draft, info)
        write_info(held_out, info)
    return info


def _write_extras(directory: Path, name: str, part: PartInfo, extras: Extras) -> PartInfo:
    originals = extras.originals if name == "test" else None
    return replace(
        part,
        groups=_write_facts(directory / f"{name}-groups.npy", extras.groups.get(name)),
        keys=_write_facts(directory / f"{name}-keys.npy", extras.keys.get(name)),
        times=_write_facts(directory / f"{name}-times.npy", extras.times.get(name)),
        originals=_write_originals(directory / "test-originals.parquet", originals),
    )


def _write_facts(path: Path, array: NDArray[Any] | None) -> FileInfo | None:
    if array is None:
        return None
    np.save(path, array)
    return _file_info(path)


def _write_seen(path: Path, seen: SeenItems | None) -> FileInfo | None:
    if seen is None:
        return None
    path.write_bytes(seen.to_bytes())
    return _file_info(path)


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
    return _file_info(path)


def _file_info(path: Path) -> FileInfo:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return FileInfo(file=path.name, sha256=digest, bytes=path.stat().st_size)


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
    chosen = drawn(len(train), max(train.array(name)[:1].nbytes for name in descriptions))
    if chosen is None or train.index is None:
        index = train.index if chosen is None else chosen
    else:
        index = train.index[chosen]
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


def _write_part(directory: Path, name: str, part: Selection, classes: int) -> PartInfo:
    counts = count_classes(name, part, classes)
    inputs = {of: _write_array(directory / f"{name}-{of}.npy", part, of) for of in part.part.inputs}
    target = _write_array(directory / f"{name}-target.npy", part, "target")
    return PartInfo(count=len(part), class_counts=counts, inputs=inputs, target=target)


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
            if bad := first_not_finite(block):
                item, column = (
                    part.origin(start + bad[0]) + 1,
                    f", column {bad[1] + 1}" if len(bad) == 2 else "",
                )
                raise InvalidInput(
                    f"{name} holds {block[bad]} in item {item}{column}",
                    "fill in or drop what is missing",
                )
            stream.write(block.data)
            digest.update(block.data)
            start += len(block)
        size = stream.tell()
    return FileInfo(file=path.name, sha256=digest.hexdigest(), bytes=size)


def check_parts(
    parts: Mapping[str, Selection],
    kind: str,
    classes: tuple[str, ...],
    inputs: Mapping[str, InputDescription],
) -> None:
    """Check everything that shows without reading the data."""
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
        if of == "target" or not _INPUT_NAME.fullmatch(of):
            raise InvalidInput(
                f"an input cannot be named {of!r}",
                "letters, digits and _; target is the target's name",
            )
        check_shape(
            description.meaning, parts["train"].array(of).shape[1:], len(description.columns)
        )
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


def check_target(target: Path) -> None:
    if target.is_dir() and any(target.iterdir()) and not (target / "dataset.json").is_file():
        raise InvalidInput(
            f"{target} is not a dataset and was left alone", "name another directory"
        )
    if target.exists() and not target.is_dir():
        raise InvalidInput(
            f"{target} is a file; a dataset is a directory", "name another directory"
        )

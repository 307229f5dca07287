"""Arrays of one's own: an ``.npz``, or a folder of ``.npy`` files, which may be larger than
memory."""

import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from podium.data.option_text import written
from podium.data.options import COMMON, DataOptions
from podium.data.schema import MOST_CLASSES, PART_NAMES, Array, InputDescription
from podium.data.sources.fetching import fetch_file, fetch_folder
from podium.data.sources.source import Raw, Source
from podium.data.sources.tabular import FEW_CLASSES, are_quantities, times_of
from podium.data.split import Split
from podium.data.values import to_days
from podium.errors import Damaged, InvalidInput, NotFound, suggestion

_TARGETS = ("target", "label", "labels", "y")
"""Names a target has if none is given."""

Arrays = dict[str, Array]


def _read(location: str, options: DataOptions, scratch: Path) -> Raw:
    """Map arrays into memory; each is an input, but for the target, groups, times and the name of
    the part.

    Args:
        location: Path or URI of an ``.npz`` file, or of a folder of ``.npy`` files. Arrays
            ``classes`` [k] of text name the classes; arrays called ``x_train``, ``x_test`` and so
            on are the parts of an input ``x``.
        options: ``target``, ``group``, ``time`` and ``part`` name arrays.
        scratch: Directory for what is unpacked.

    Raises:
        NotFound: There is no such file.
        Damaged: It cannot be unpacked.
        InvalidInput: An array is missing, holds no numbers, or has another length.
    """
    named = _open(location, scratch)
    names = named.pop("classes", None)
    parts = _divide(named, location)
    if isinstance(options.test, str):
        if "test" in parts:
            raise InvalidInput(
                f"{location} has a test part, but {options.test} is given too",
                "leave out the option test",
            )
        parts["test"] = {
            name: array
            for name, array in _open(options.test, scratch / "test").items()
            if name != "classes"
        }
        _check_same(parts, location)
    first = parts["train"]
    target = options.target or next((name for name in _TARGETS if name in first), "")
    roles = {"target": target or "target", **options.roles}
    for array in roles.values():
        if array not in first:
            raise InvalidInput(f"{location} has no array {array!r}", suggestion(array, first))
    kind, classes, values = _read_target(
        target, {part: arrays[target] for part, arrays in parts.items()}, names, options.kind
    )
    made = {
        part: Split(
            inputs={
                name: _flat(array) for name, array in arrays.items() if name not in roles.values()
            },
            target=values[part],
        )
        for part, arrays in parts.items()
    }
    columns = {
        role: np.asarray(first[name]).reshape(-1)
        for role, name in roles.items()
        if role != "target"
    }
    return Raw(
        items=made["train"],
        validation=made.get("validation"),
        test=made.get("test"),
        name=options.name or Path(location.rstrip("/")).absolute().name.partition(".")[0],
        kind=kind,
        classes=classes,
        descriptions={
            name: InputDescription(meaning=_meaning(array))
            for name, array in made["train"].inputs.items()
        },
        target_name=target,
        source=location,
        groups=columns.get("group"),
        part_groups={
            part: np.asarray(arrays[roles["group"]]).reshape(-1)
            for part, arrays in parts.items()
            if "group" in roles and part != "train"
        },
        times=_times(columns["time"], location, options.time) if "time" in columns else None,
        given=columns["part"].astype(str) if "part" in columns else None,
    )


def _times(times: Array, location: str, name: str) -> Array:
    if times.dtype.kind in "US" and np.char.isdigit(times).all():
        times = times.astype(np.int64)
    if len(times) and times.dtype.kind in "iuf" and np.isfinite(times).all():
        dated = times_of(times.astype(np.float64), location, name, first=str(times[0]))
        return dated if dated.dtype.kind == "M" else times
    if times.dtype.kind not in "US":
        return times
    days, others = to_days(pa.array(times.astype(str).tolist()), ())
    if words := others.drop_null().to_pylist():
        with suppress(ValueError):  # 2026-01 is a month
            return times.astype("datetime64[us]")
        raise InvalidInput(
            f"{location}: the time {name} holds texts that are no dates, such as {words[0]!r}",
            "write dates as 2026-01-31",
        )
    return (days * 86_400_000_000).astype("datetime64[us]")


def _open(location: str, scratch: Path) -> Arrays:
    if location.endswith(".npz"):
        files = _unpack(fetch_file(location, scratch), location, scratch / "arrays")
    else:
        files = sorted(fetch_folder(location, scratch).glob("*.npy"))
    if not files:
        raise NotFound(f"there is no .npy in {location}")
    arrays: Arrays = {}
    for file in files:
        try:
            array = np.asarray(np.lib.format.open_memmap(file, mode="r"))
            arrays[file.stem] = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
        except (ValueError, OSError) as error:
            if "Python objects" in str(error):  # what pandas has for a column of texts
                problem = f"{location}: the array {file.stem} holds Python objects"
                kinds = f"{file.stem}.astype(str), or {file.stem}.astype(float)"
                raise InvalidInput(problem, f"save texts or numbers: {kinds}") from None
            raise InvalidInput(
                f"{location}: {file.name} is not an array of numbers or text: {error}"
            ) from error
    return arrays


def _unpack(archive: Path, location: str, target: Path) -> list[Path]:
    """Unpack the arrays of an .npz, checking its checksums: what is packed cannot be mapped."""
    try:
        with zipfile.ZipFile(archive) as packed:
            names = [name for name in packed.namelist() if name.endswith(".npy")]
            for name in names:
                if "/" in name:
                    raise InvalidInput(
                        f"{location}: an array cannot be called {name.removesuffix('.npy')!r}",
                        "letters, digits and _",
                    )
            return [Path(packed.extract(name, target)) for name in names]
    except (InvalidInput, MemoryError):
        raise
    except Exception as error:  # each packing has its own
        if isinstance(error, OSError) and error.errno:  # a full disk
            raise
        raise Damaged(
            f"{location} is not an .npz file, or damaged: {error}", "write it again: numpy.savez"
        ) from error


def _divide(arrays: Arrays, location: str) -> dict[str, Arrays]:
    """Sort ``x_train`` and ``x_test`` into parts; without such names all is to be divided."""
    parts: dict[str, Arrays] = {}
    for name, array in arrays.items():
        stem, _, ending = name.rpartition("_")
        if stem and ending in PART_NAMES:
            parts.setdefault(PART_NAMES[ending], {})[stem] = array
    if "train" not in parts:
        return {"train": arrays}
    inside = sum(map(len, parts.values()))
    if inside < len(arrays):
        raise InvalidInput(
            f"{location} has divided arrays beside others: {', '.join(sorted(arrays))}",
            "end all names in _train, _validation or _test, or none",
        )
    _check_same(parts, location)
    return parts


def _check_same(parts: Mapping[str, Arrays], location: str) -> None:
    for part, members in parts.items():
        if members.keys() != parts["train"].keys():
            raise InvalidInput(
                f"{location}: the {part} part has other arrays than train: {', '.join(sorted(members))}"
            )


def _read_target(
    name: str, parts: Mapping[str, Array], names: Array | None, kind: str
) -> tuple[str, tuple[str, ...], dict[str, Array]]:
    """Return the kind, the classes, and the target of each part."""
    flat = {
        part: array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        for part, array in parts.items()
    }
    floats = flat["train"].dtype.kind == "f"
    if not kind and floats:
        every = np.concatenate(list(flat.values()))
        may_be_classes = every.ndim == 1 or (every.sum(1) == 1).all()  # one-hot rows are refused
        if may_be_classes and not are_quantities(name, every):
            flat = {part: array.astype(np.int64) for part, array in flat.items()}
            floats = False
    if kind == "regression" or (not kind and floats):
        return "regression", (), _as_numbers(flat)
    for part, array in flat.items():
        if array.dtype.kind in "mM":
            raise InvalidInput(
                f"the target {name} holds dates or durations", "make it a number, or a class"
            )
        if array.ndim != 1:
            raise InvalidInput(
                f"the target of a classification must be [n], but in {part} it is {list(array.shape)}",
                f"of one-hot rows {name}.argmax(1); numbers to predict: {written('kind', 'regression')}",
            )
    if len({array.dtype.kind for array in flat.values()}) > 1:  # numpy joins them as floats
        flat = {part: _as_integers(array) for part, array in flat.items()}
    values = np.unique(np.concatenate([np.unique(array) for array in flat.values()]))
    items = sum(map(len, flat.values()))
    if not kind and FEW_CLASSES < len(values) > items / 2:
        whole = values.dtype.kind in "iu"
        quantity = f"if it is a quantity: {written('kind', 'regression')}; " if whole else ""
        raise InvalidInput(
            f"the target {name} has {len(values):,} different {'whole numbers' if whole else 'values'} "
            f"in {items:,} items",
            f"{quantity}if they are classes: {written('kind', 'classification')}",
        )
    if len(values) > MOST_CLASSES:
        raise InvalidInput(
            f"the target has {len(values):,} classes, but at most {MOST_CLASSES:,} are possible",
            f"is it a number to predict? {written('kind', 'regression')}",
        )
    if names is not None:
        if not (values.dtype.kind in "iu" and values.min() >= 0 and values.max() < len(names)):
            raise InvalidInput(
                f"targets must be indices into the {len(names)} classes, but they are {values[0]} to {values[-1]}"
            )
        classes = tuple(map(str, names.tolist()))
        indices = flat
    else:
        classes = tuple(map(str, values.tolist()))
        indices = {part: np.searchsorted(values, array) for part, array in flat.items()}
    smallest = np.min_scalar_type(len(classes) - 1)
    return (
        "classification",
        classes,
        {part: array.astype(smallest) for part, array in indices.items()},
    )


def _as_numbers(parts: Mapping[str, Array]) -> dict[str, Array]:
    """Return the target of each part as float32, if that of train is, else as float64."""
    for array in parts.values():
        if array.dtype.kind not in "biuf":
            raise InvalidInput(f"the target of a regression must be numbers, but is {array.dtype}")
    wanted = np.float32 if parts["train"].dtype.name == "float32" else np.float64
    return {part: array.astype(wanted, copy=False) for part, array in parts.items()}


def _as_integers(array: Array) -> Array:
    whole = array.dtype.kind in "uf" and np.array_equal(array, np.trunc(array))
    return array.astype(np.int64) if whole else array


def _flat(array: Array) -> Array:
    return (
        array[..., 0]
        if array.ndim == 4 and array.shape[3] == 1 and array.dtype == np.uint8
        else array
    )


def _meaning(array: Array) -> str:
    picture = array.ndim == 3 or (array.ndim == 4 and array.shape[3] == 3)
    return "image" if picture and array.dtype == np.uint8 else "array"


NPZ = Source(name="npz", options=("target", "group", "time", "gap", "part", *COMMON), read=_read)

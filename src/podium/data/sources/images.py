"""Pictures in a folder for each class: one input ``images``, uint8 [n, height, width] or [n,
height, width, 3]."""

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from podium.data.blocks import Selection, hash_bytes
from podium.data.hashes import key_pictures
from podium.data.hidden_groups import find_beginning
from podium.data.option_text import changed, typed, written
from podium.data.options import COMMON, DataOptions
from podium.data.pictures import ENDINGS, INSTALL_HEIF, Look, is_hidden, is_picture
from podium.data.preprocessing.image import FOLDER, PICTURE, ImagePreprocessing
from podium.data.schema import PART_NAMES, InputDescription
from podium.data.sources.fetching import fetch_folder
from podium.data.sources.source import Raw, Source
from podium.data.split import Split
from podium.data.suspects import tells_class, told_class
from podium.display.text import are, plural
from podium.errors import InvalidInput, PodiumError
from podium.files.arrays import new_map
from podium.system.machine import cores

_log = logging.getLogger(__name__)

_GROUP = r"(patient\d+)"
"""A pattern that finds a group in a name, as an example."""

_BATCH = 256
"""Pictures decoded at a time."""

_KEY_SIZE = (32, 32)
"""Height and width that the keys of pictures are computed at where these are resized."""

_MOST_NAMED = 5
"""Files that an error names."""


@dataclass(frozen=True, kw_only=True)
class _Pictures:
    """The picture files of one part."""

    files: tuple[Path, ...]

    labels: tuple[str, ...]
    """Class of each."""

    root: Path
    """Holds the folders of the classes."""

    def places(self) -> list[tuple[str, ...]]:
        """Return for each picture its class, the folders below that, and its name."""
        return [tuple(map(_text, file.relative_to(self.root).parts)) for file in self.files]


def _read(location: str, options: DataOptions, scratch: Path) -> Raw:
    """Decode all pictures of a folder into arrays below scratch.

    Args:
        location: Path or URI of a folder with a folder of pictures for each class; or with folders
            ``train``, ``test`` and perhaps ``validation``, each with one for each class.
        options: ``resize`` and ``channels``.

    Raises:
        InvalidInput: There are no classes, a picture cannot be read, or sizes differ and ``resize``
            is not given. The message names the files.
    """
    root = fetch_folder(location, scratch)
    parts = _find_parts(root, location)
    if isinstance(options.test, str):
        parts = _with_test(parts, options.test, location, scratch)
    everything = [file for pictures in parts.values() for file in pictures.files]
    looks = _look_at_all(everything, root)
    preprocessing = _fit(everything, looks, root, options.resize, options.channels)
    labels = [label for pictures in parts.values() for label in pictures.labels]
    _warn_of_files(looks, labels)
    if not options.group:
        _warn_of_names(everything, labels)
    classes = tuple(sorted(set(parts["train"].labels)))
    _log.info(
        "%s: %s pictures in %d classes, read as %s",
        location,
        f"{len(everything):,}",
        len(classes),
        "x".join(map(str, preprocessing.shape)),
    )
    arrays = {
        part: Split(
            inputs={
                preprocessing.input: _decode(
                    pictures.files, root, preprocessing, scratch / f"{part}.npy"
                )
            },
            target=np.array([classes.index(label) for label in pictures.labels], np.int64),
        )
        for part, pictures in parts.items()
    }
    _warn_of_twins(parts, arrays, root)
    return Raw(
        items=arrays["train"],
        validation=arrays.get("validation"),
        test=arrays.get("test"),
        name=options.name or Path(location.rstrip("/")).absolute().name,
        kind="classification",
        classes=classes,
        descriptions={preprocessing.input: InputDescription(meaning="image")},
        target_name="class",
        preprocessing=preprocessing.to_json(),
        source=location,
        keys=_keys(parts["train"], arrays["train"], preprocessing, bool(options.resize), scratch),
        groups=_groups(parts["train"], options.group) if options.group else None,
        part_groups={
            part: _groups(pictures, options.group)
            for part, pictures in parts.items()
            if options.group and part != "train"
        },
        originals=lambda positions: _originals(parts, positions),
    )


def _groups(pictures: _Pictures, group: str) -> NDArray[np.str_]:
    """Return the group of each picture, [n], wherever the whole folder lies: its folder below that
    of its class (a picture without one is a group), or what the parentheses of a pattern find in
    its path from the class on.

    Raises:
        InvalidInput: The pattern is none or finds nothing in a path, or no picture has such a
            folder.
    """
    places = pictures.places()
    if group == "folder":
        if all(len(place) == 2 for place in places):
            hint = f"take a group from the names: {written('group', _GROUP)}"
            raise InvalidInput(
                f"no picture lies in a folder below that of its class, but {places[0][-1]} in "
                f"{places[0][0]}",
                hint,
            )
        return np.array(["/".join(place[1:-1]) or "/".join(place) for place in places])
    try:
        pattern = re.compile(group)
    except re.error as error:
        raise InvalidInput(
            f"group {group!r} is not a regular expression: {error}", written("group", "folder")
        ) from None
    found = [pattern.search("/".join(place)) for place in places]
    for place, match in zip(places, found, strict=True):
        if pattern.groups != 1 or match is None or not match[1]:
            raise InvalidInput(
                f"group {group!r} finds no group in {'/'.join(place)}",
                f"put the part that names it into parentheses, as in {written('group', _GROUP)}",
            )
    return np.array([match[1] for match in found if match])


def _keys(
    pictures: _Pictures,
    items: Split,
    preprocessing: ImagePreprocessing,
    resized: bool,
    scratch: Path,
) -> NDArray[np.uint64]:
    """Return a key of each picture, [n], independent of the input size."""
    if resized:
        gray = ImagePreprocessing(size=_KEY_SIZE, channels=1, bits=preprocessing.bits)
        array = _decode(pictures.files, pictures.root, gray, scratch / "keys.npy")
        items = Split(inputs={gray.input: array}, target=items.target)
    return key_pictures(Selection(part=items), hash_bytes(map(Path.read_bytes, pictures.files)))


def _originals(
    parts: Mapping[str, _Pictures], positions: NDArray[np.int64] | None
) -> Iterator[pa.RecordBatch]:
    """Yield the bytes of pictures of the training folder at some positions, or of all of the test
    folder."""
    pictures = parts["test" if positions is None else "train"]
    places = pictures.places()
    chosen = range(len(places)) if positions is None else positions.tolist()
    for start in range(0, len(chosen), _BATCH):
        batch = chosen[start : start + _BATCH]
        yield pa.record_batch(
            {
                "name": [places[at][-1] for at in batch],
                FOLDER: pa.array(
                    [places[at][1] if len(places[at]) > 2 else None for at in batch], pa.string()
                ),
                PICTURE: [pictures.files[at].read_bytes() for at in batch],
            }
        )


def _with_test(
    parts: dict[str, _Pictures], test: str, location: str, scratch: Path
) -> dict[str, _Pictures]:
    if "test" in parts:
        raise InvalidInput(
            f"{location} has a test part, but {test} is given too", "leave out the option test"
        )
    parts = {**parts, "test": _find_classes(fetch_folder(test, scratch / "test"), test)}
    _check_classes(parts, test)
    return parts


def _find_parts(root: Path, location: str) -> dict[str, _Pictures]:
    """Return the pictures of each part; all are ``train`` if the folder does not divide them.

    Raises:
        InvalidInput: A class has no picture, or occurs in one part only.
    """
    folders = {folder.name: PART_NAMES.get(folder.name.lower()) for folder in _folders(root)}
    parts = {part: name for name, part in folders.items() if part}
    if not parts:
        return {"train": _find_classes(root, location)}
    if others := [name for name, part in folders.items() if name != parts.get(part or "")]:
        named = parts.get("train") or next(iter(parts.values()))
        raise InvalidInput(
            f"{location}/{named} looks like a part of the data, but {location}/{others[0]} is not another part",
            "either all folders are parts (train, validation, test) or all are classes: "
            f"move one elsewhere, or rename it, for example {named}-class",
        )
    _warn_of_loose(root, location)
    _warn_of_links(root.iterdir(), root, location)
    if "train" not in parts:
        raise InvalidInput(
            f"{location} has the parts {', '.join(folders)}, but none to train with",
            "add a folder train",
        )
    _log.info("%s: folders are parts: %s", location, ", ".join(parts.values()))
    divided = {
        part: _find_classes(root / name, f"{location}/{name}") for part, name in parts.items()
    }
    _check_classes(divided, location)
    return divided


def _check_classes(parts: Mapping[str, _Pictures], location: str) -> None:
    classes = set(parts["train"].labels)
    for part, pictures in parts.items():
        if strange := sorted(set(pictures.labels) - classes):
            raise InvalidInput(
                f"{location} has the class {strange[0]!r} in {part}, but not in train",
                f"classes of train: {', '.join(sorted(classes))}",
            )


def _find_classes(folder: Path, location: str) -> _Pictures:
    files: list[Path] = []
    labels: list[str] = []
    others: Counter[str] = Counter()
    _warn_of_loose(folder, location)
    below = {
        inner: sorted(path for path in inner.rglob("*") if not is_hidden(path.relative_to(folder)))
        for inner in _folders(folder)
    }
    _warn_of_links([*folder.iterdir(), *chain.from_iterable(below.values())], folder, location)
    for inner, paths in below.items():
        within = [path for path in paths if path.is_file()]
        pictures = [path for path in within if is_picture(path)]
        others.update(path.suffix.lower() or path.name for path in within if not is_picture(path))
        if not pictures:
            raise InvalidInput(
                f"{location}/{inner.name} has no picture", f"pictures end in {', '.join(ENDINGS)}"
            )
        files += pictures
        labels += [_text(inner.name)] * len(pictures)
    if others:
        counts = ", ".join(
            f"{count:,} {ending}" for ending, count in others.most_common(_MOST_NAMED)
        )
        _log.warning(
            "%s: %s left out, since pictures end in %s: %s",
            location,
            plural(others.total(), "file"),
            ", ".join(ENDINGS),
            counts,
        )
    if len(set(labels)) < 2:
        raise InvalidInput(
            f"{location} has {len(set(labels))} folders of pictures, but a class is a folder",
            _how_to_divide(folder, location.rstrip("/")),
        )
    return _Pictures(files=tuple(files), labels=tuple(labels), root=folder)


def _how_to_divide(folder: Path, location: str) -> str:
    """Say how pictures come into folders of their classes, by a list of them if there is one."""
    only = _folders(folder)
    if len(only) == 1 and len(_folders(only[0])) > 1:
        return f"name the folder of these: images:{location}/{only[0].name}"
    how = "put the pictures of each class into a folder with its name"
    if not (lists := sorted(folder.glob("*.csv"))):
        return how
    copy = (
        "if the first columns of PART are file and class: tail -n +2 FILE/PART "
        "| tr -d '\\r' | while IFS=, read -r file class _; do "
        'mkdir -p NEW/"$class"; cp FILE/"$file" NEW/"$class"/; done'
    )
    return f"{how}; {typed(copy, location, f'{location}-classes', lists[0].name)}"


def _warn_of_loose(folder: Path, location: str) -> None:
    loose = [
        path
        for path in folder.iterdir()
        if is_picture(path) and path.is_file() and not is_hidden(path.relative_to(folder))
    ]
    if loose:
        _log.warning(
            "%s: %s left out, since the folder of a class holds none of them, for example %s",
            location,
            plural(len(loose), "picture"),
            min(loose).name,
        )


def _text(name: str) -> str:
    r"""Return the name of a file as text: bytes that are not UTF-8 as ``\xe9``."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _warn_of_links(paths: Iterable[Path], folder: Path, location: str) -> None:
    """Warn of links that lead nowhere, and of those to folders inside the folder of a class."""
    left_out = [
        path
        for path in paths
        if path.is_symlink()
        and not path.is_file()
        and not is_hidden(path.relative_to(folder))
        and not (path.parent == folder and path.is_dir())
    ]
    if left_out:
        _log.warning(
            "%s: %s left out, since links to folders are not followed, nor those that lead nowhere, for "
            "example %s: copy what they point at: cp -rL",
            location,
            plural(len(left_out), "link"),
            min(left_out).relative_to(folder),
        )


def _folders(root: Path) -> list[Path]:
    return sorted(
        path for path in root.iterdir() if path.is_dir() and not is_hidden(path.relative_to(root))
    )


def _look_at_all(files: Sequence[Path], root: Path) -> list[Look]:
    with ThreadPoolExecutor(cores()) as pool:
        looks = list(pool.map(_look, files))
    problems = [
        (file, look)
        for file, look in zip(files, looks, strict=True)
        if isinstance(look, PodiumError)
    ]
    _refuse(
        [f"{_shown(file, root)}: {problem.message}" for file, problem in problems],
        next((problem.hint for _, problem in problems if problem.hint == INSTALL_HEIF), None),
    )
    return [look for look in looks if isinstance(look, Look)]


def _warn_of_files(looks: Sequence[Look], labels: Sequence[str]) -> None:
    """Warn of frames that nobody reads, and of a kind of file that gives the class away."""
    if animated := sum(look.frames > 1 for look in looks):
        _log.warning(
            "%s more than one frame or page: only the first is read",
            "1 picture has" if animated == 1 else f"{animated:,} pictures have",
        )
    facts = {
        "format": [look.format for look in looks],
        "size": ["x".join(map(str, look.size)) for look in looks],
        "color": [look.color for look in looks],
    }
    found = {fact: told_class(values, labels) for fact, values in facts.items()}
    sides = [float(min(look.size)) for look in looks]
    if not found["size"][0] and tells_class(sides, labels):
        found["size"] = "its class", [f"{min(sides):g} to {max(sides):g} pixels"]
    for fact, (told, values) in found.items():
        if told:
            _log.warning(
                "the %s of a file alone tells %s (%s): where pictures of a class come from a "
                "source of their own, a model may learn the source; save all in one way",
                fact,
                told,
                ", ".join(values[:_MOST_NAMED]),
            )


def _warn_of_twins(parts: Mapping[str, _Pictures], arrays: Mapping[str, Split], root: Path) -> None:
    """Warn of a picture that is in the folders of two classes."""
    first: dict[int, tuple[Path, str]] = {}
    twins = []
    for part, pictures in parts.items():
        hashes = Selection(part=arrays[part]).hashes().tolist()
        for key, file, label in zip(hashes, pictures.files, pictures.labels, strict=True):
            earlier_file, own = first.setdefault(key, (file, label))
            if own != label:
                twins.append((earlier_file, file))
    if twins:
        _log.warning(
            "%s %s in two classes: %s show the same",
            plural(len(twins), "picture"),
            are(len(twins)),
            " and ".join(_shown(file, root) for file in twins[0]),
        )


def _warn_of_names(files: Sequence[Path], labels: Sequence[str]) -> None:
    if found := find_beginning([_text(file.stem) for file in files], np.array(labels)):
        after, name = found
        _log.warning(
            "pictures whose names begin alike, such as %s, mostly have the same class: if they show one "
            "patient or scene, keep them together: %s",
            name,
            written("group", rf"([^/]+?){after}\.\w+$"),
        )


def _fit(
    files: Sequence[Path], looks: Sequence[Look], root: Path, resize: Sequence[int], channels: int
) -> ImagePreprocessing:
    """Choose size and channels from the headers of all pictures.

    Args:
        looks: Facts of each file.
        root: What errors name files relative to.
        resize: Height and width; empty if all pictures have the same size.
        channels: 1 or 3; 0 takes 1 if all pictures are gray.

    Raises:
        InvalidInput: Sizes differ.
    """
    channels = channels or max(look.channels for look in looks)
    bits = max(look.bits for look in looks) or ImagePreprocessing.bits
    if resize:
        return ImagePreprocessing(size=tuple(resize), channels=channels, bits=bits)
    sizes = [look.size for look in looks]
    (common, _), *_ = Counter(sizes).most_common(1)
    odd = [file for file, size in zip(files, sizes, strict=True) if size != common]
    if odd:
        width, height = sizes[files.index(odd[0])]
        raise InvalidInput(
            f"{_shown(odd[0], root)} has {width}x{height} pixels, but most pictures have {common[0]}x{common[1]} "
            f"({len(odd):,} of {len(files):,} differ)",
            f"make them all of one size: {written('resize', [common[1], common[0]])} (height, width)",
            changed("resize", [common[1], common[0]]),
        )
    return ImagePreprocessing(size=(common[1], common[0]), channels=channels, bits=bits)


def _decode(
    files: Sequence[Path], root: Path, preprocessing: ImagePreprocessing, target: Path
) -> NDArray[np.uint8]:
    """Decode pictures into an array mapped from a file, some at a time.

    Raises:
        InvalidInput: Some cannot be decoded; the message names them.
    """
    shape = (len(files), *preprocessing.shape)
    array = new_map(target, np.uint8, shape)
    bad: list[str] = []
    for start in range(0, len(files), _BATCH):
        batch = files[start : start + _BATCH]
        applied = preprocessing.apply(batch, [_shown(file, root) for file in batch])
        array[start + applied.kept] = applied.inputs[preprocessing.input]
        bad += map(str, applied.problems)
    _refuse(bad)
    return array


def _shown(file: Path, root: Path) -> str:
    return str(file.relative_to(root) if file.is_relative_to(root) else file)


def _look(file: Path) -> Look | PodiumError:
    try:
        return Look.of(file)
    except PodiumError as error:
        return error


def _refuse(bad: Sequence[str], hint: str | None = None) -> None:
    if bad:
        more = f"\n… and {len(bad) - _MOST_NAMED:,} more" if len(bad) > _MOST_NAMED else ""
        raise InvalidInput(
            "\n".join(bad[:_MOST_NAMED]) + more, hint or "remove these files, or save them again"
        )


IMAGES = Source(
    name="images",
    options=("resize", "channels", "group", *COMMON),
    read=_read,
    kind="classification",
)

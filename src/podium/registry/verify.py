"""A look at everything a registry holds: is it what was written, and does it fit together?"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from podium.errors import Damaged, NotFound, PodiumError
from podium.registry import content, index, pointer
from podium.registry.version import METADATA, Version, parse, prefix_of
from podium.storage import Storage


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    where: str
    """Key or URL."""

    what: str
    """In words."""


def verify(storage: Storage, name: str, checked: Callable[[int], None] = lambda size: None) -> Iterator[Finding]:
    """Read everything of a model and yield what is wrong.

    Args:
        storage: Where.
        name: The model.
        checked: Told the size of each file that was read.
    """
    versions: dict[str, Version] = {}
    for one, finding in _metadata(storage, name):
        if finding:
            yield finding
        elif one:
            versions[one.version] = one
    files = [(version, file) for version in versions.values() for file in version.files]
    with ThreadPoolExecutor(4) as pool:
        for (version, file), finding in zip(files, pool.map(lambda pair: _file(storage, *pair), files), strict=True):
            checked(version.files[file].size)
            if finding:
                yield finding
    yield from _strangers(storage, versions)
    yield from _pointers(storage, name, set(versions))
    yield from _history(storage, name)
    yield from _index(storage, name, versions)


def _metadata(storage: Storage, name: str) -> Iterator[tuple[Version | None, Finding | None]]:
    """Yield complete versions and damaged ones; what has no metadata.json is not there yet: that is gc's business."""
    names = list(storage.children(f"models/{name}/versions"))
    keys = [f"{prefix_of(name, version)}/{METADATA}" for version in names]
    for expected, (key, stored) in zip(names, storage.get_many(keys), strict=True):
        try:
            version = parse(stored, key) if stored is not None else None
        except Damaged as error:
            yield None, _damage(storage, key, error)
            continue
        if version and (version.name, version.version) != (name, expected):
            yield None, Finding(where=key, what=f"belongs to {version.name} {version.version}")
        else:
            yield version, None


def _damage(storage: Storage, key: str, error: PodiumError) -> Finding:
    """Say what is wrong without saying twice where."""
    return Finding(where=key, what=error.message.removeprefix(storage.join(key)).removeprefix(key).strip())


def _file(storage: Storage, version: Version, file: str) -> Finding | None:
    try:
        content.verify(storage, version, file)
    except Damaged as error:
        return _damage(storage, f"{version.prefix}/{file}", error)
    return None


def _strangers(storage: Storage, versions: dict[str, Version]) -> Iterator[Finding]:
    for version in versions.values():
        for entry in storage.list(f"{version.prefix}/"):
            file = entry.key.removeprefix(f"{version.prefix}/")
            if file not in version.files and file != METADATA:
                yield Finding(where=entry.key, what="is not part of the version's metadata")


def _pointers(storage: Storage, name: str, versions: set[str]) -> Iterator[Finding]:
    for entry in storage.list(f"models/{name}/aliases/"):
        try:
            held = pointer.parse(storage.get(entry.key), entry.key)
        except (Damaged, NotFound) as error:
            yield _damage(storage, entry.key, error)
            continue
        if held.version not in versions:
            yield Finding(where=entry.key, what=f"points at {held.version}, which is missing or damaged")


def _history(storage: Storage, name: str) -> Iterator[Finding]:
    moves = []
    for key, stored in storage.get_many(entry.key for entry in storage.list(f"models/{name}/history/")):
        try:
            event = pointer.parse(stored or b"", key)
        except Damaged as error:
            yield _damage(storage, key, error)
            continue
        if event.key != key:
            yield Finding(where=key, what=f"is the record of {event.key}")
        moves.append(event)
    held: list[pointer.Record] = []
    with suppress(Damaged):  # told by _pointers
        held = list(pointer.aliases(storage, name).values())
    unique = {event.id: event for event in [*moves, *held] if event.alias}
    ordered = sorted(unique.values(), key=lambda event: (event.alias or "", event.sequence))
    for alias, events in groupby(ordered, key=lambda event: event.alias):
        seen = [event.sequence for event in events]
        if seen != list(range(1, len(seen) + 1)):
            missing = sorted(set(range(1, seen[-1] + 1)) - set(seen))
            yield Finding(where=f"models/{name}/history", what=f"moves of {alias} are missing: {missing}")


def _index(storage: Storage, name: str, versions: dict[str, Version]) -> Iterator[Finding]:
    for known in index.known(storage, name):
        version = versions.get(known.version)
        if version and index.summarise(version) != known:
            yield Finding(where=index.key_of(name), what=f"tells of {known.version} what is not so; delete the index")

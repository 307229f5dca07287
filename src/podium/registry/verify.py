"""A look at everything a registry holds: is it what was written, and does it fit together?"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

from podium.errors import Damaged, PodiumError
from podium.registry import content, history, index, pointer
from podium.registry.document import MAX_BYTES
from podium.registry.record import Record
from podium.registry.version import METADATA, Version, exists, names_below, parse, prefix_of
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
    for key in storage.links(f"models/{name}/"):
        yield Finding(where=key, what="is a symbolic link or a special file; it is never followed")
    stored = history.load(storage, name)
    yield from _pointers(storage, name, stored)
    yield from _history(storage, name, stored)
    yield from _index(storage, name, versions)


def _metadata(storage: Storage, name: str) -> Iterator[tuple[Version | None, Finding | None]]:
    """Yield complete versions and damaged ones; what has no metadata.json is not there yet: that is gc's business."""
    names = names_below(storage, f"models/{name}/versions")
    keys = [f"{prefix_of(name, version)}/{METADATA}" for version in names]
    for version, (key, stored) in zip(names, storage.get_many(keys, limit=MAX_BYTES + 1), strict=True):
        try:
            if isinstance(stored, Damaged):
                raise stored
            found = parse(stored, key, name, version) if isinstance(stored, bytes) else None
        except Damaged as error:
            yield None, _damage(storage, key, error)
            continue
        yield found if isinstance(found, Version) else None, None


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


def _pointers(storage: Storage, name: str, stored: history.Stored) -> Iterator[Finding]:
    names = pointer.alias_names(storage, name)
    for key, content_ in storage.get_many([pointer.alias_key(name, alias) for alias in names], limit=MAX_BYTES + 1):
        alias = key.rpartition("/")[2].removesuffix(".json")
        try:
            if isinstance(content_, Damaged):
                raise content_
            held = pointer.parse(content_, key, name, alias) if isinstance(content_, bytes) else None
        except Damaged as error:
            yield _damage(storage, key, error)
            continue
        if held and held.points_at and not exists(storage, name, held.points_at):
            yield Finding(where=key, what=f"points at {held.points_at}, which is missing")
    for alias in sorted({event.alias for event in stored.records if event.alias} - set(names)):
        last = stored.last_move(alias)
        assert last is not None
        what = f"is missing; the history says it points at {last.points_at or 'nothing'}: podium models repair {name}"
        yield Finding(where=pointer.alias_key(name, alias), what=what)


def _history(storage: Storage, name: str, stored: history.Stored) -> Iterator[Finding]:
    for key, error in stored.damaged.items():
        yield _damage(storage, key, error)
    held = pointer.held(storage, name, strict=False).values()
    unique = {event.id: event for event in [*stored.records, *held] if event.alias}
    ordered = sorted(unique.values(), key=lambda event: (event.alias or "", event.sequence))
    for alias, events in groupby(ordered, key=lambda event: event.alias):
        yield from _numbered(f"models/{name}/history", alias or "", list(events))


def _numbered(where: str, alias: str, events: list[Record]) -> Iterator[Finding]:
    """Find moves of an alias that are missing, and those that bear the same number."""
    by_number = {number: list(same) for number, same in groupby(events, key=lambda event: event.sequence)}
    missing = sorted(set(range(1, max(by_number) + 1)) - set(by_number))
    if missing:
        yield Finding(where=where, what=f"moves of {alias} are missing: {missing}")
    for number, same in by_number.items():
        if len(same) > 1:
            what = f"{len(same)} moves of {alias} bear the number {number}: {', '.join(one.key for one in same)}"
            yield Finding(where=where, what=what)


def _index(storage: Storage, name: str, versions: dict[str, Version]) -> Iterator[Finding]:
    for known in index.known(storage, name):
        version = versions.get(known.version)
        if version and index.summarise(version) != known:
            yield Finding(where=index.key_of(name), what=f"tells of {known.version} what is not so; delete the index")

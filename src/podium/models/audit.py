"""Verification of everything a model consists of, and repair of what is stored twice.

The last move of each alias is stored in the alias and in the history; either can be restored from
the other.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

from podium.errors import Conflict, Damaged, PodiumError, Untrusted
from podium.models.document import MAX_BYTES
from podium.models.journal import Entries, Record
from podium.models.pointers import Pointers
from podium.models.signature import PublicKey
from podium.models.signature import check as check_signature
from podium.models.version import METADATA, SIGNATURE, Version


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    where: str
    """Key or URL."""

    what: str
    """In words."""


@dataclass(frozen=True, kw_only=True)
class Repair:
    """The outcome for one damaged object."""

    where: str
    restored: bool
    what: str
    """In words."""


def verify(
    pointers: Pointers,
    checked: Callable[[int], None],
    *,
    contents: bool = True,
    key: PublicKey | None = None,
) -> Iterator[Finding]:
    """Read everything of a model and yield what is wrong.

    Args:
        pointers: The aliases of the pointers, with its versions and its history.
        checked: Called with the size of each file that was read.
        contents: Whether the files of versions are read, or only what describes them.
        key: Check signatures with it: every one there is, and that the targets of aliases have one.
    """
    versions: dict[str, Version] = {}
    # A version without metadata.json is not published yet: it is left to gc.
    for name, metadata in pointers.catalog.look_many(pointers.catalog.names()):
        if isinstance(metadata, Damaged):
            yield _damage(pointers, pointers.catalog.metadata_key(name), metadata)
        elif isinstance(metadata, Version):
            versions[name] = metadata
    yield from _check_files(pointers, list(versions.values()) if contents else [], checked)
    if key:
        yield from _check_signatures(pointers, versions, key)
    yield from _check_strangers(pointers, versions)
    for link in pointers.storage.links(f"models/{pointers.name}/"):
        yield Finding(where=link, what="is a symbolic link or a special file; it is never followed")
    entries = pointers.journal.load()
    yield from _check_aliases(pointers, entries)
    yield from _check_history(pointers, entries)


def verify_version(
    pointers: Pointers, version: Version, checked: Callable[[int], None], key: PublicKey | None
) -> Iterator[Finding]:
    """Read the files of one version, and with a key its signature; yield what is wrong."""
    yield from _check_files(pointers, [version], checked)
    if key:
        yield from _check_signature(version, key)
    yield from _check_strangers(pointers, {version.version: version})


def _check_files(
    pointers: Pointers, versions: Sequence[Version], checked: Callable[[int], None]
) -> Iterator[Finding]:
    files = [(version, file) for version in versions for file in version.files]
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda pair: _check_file(pointers, *pair), files)
        for (version, file), finding in zip(files, results, strict=True):
            checked(version.files[file].size)
            if finding:
                yield finding


def _check_signatures(
    pointers: Pointers, versions: dict[str, Version], key: PublicKey
) -> Iterator[Finding]:
    needed = {record.points_at for record in pointers.held(strict=False).values()}
    for name, version in versions.items():
        if name in needed or pointers.storage.head(version.signature_key):
            yield from _check_signature(version, key)


def _check_signature(version: Version, key: PublicKey) -> Iterator[Finding]:
    try:
        check_signature(version, key)
    except (Conflict, Damaged, Untrusted) as error:
        yield Finding(where=version.signature_key, what=error.message)


def _damage(pointers: Pointers, key: str, error: PodiumError) -> Finding:
    """Drop the location from the message: the finding names it."""
    return Finding(
        where=key,
        what=error.message.removeprefix(pointers.storage.join(key)).removeprefix(key).strip(),
    )


def _check_file(pointers: Pointers, version: Version, file: str) -> Finding | None:
    try:
        pointers.catalog.verify(version, file)
    except Damaged as error:
        return _damage(pointers, f"{version.prefix}/{file}", error)
    return None


def _check_strangers(pointers: Pointers, versions: dict[str, Version]) -> Iterator[Finding]:
    for version in versions.values():
        for entry in pointers.catalog.entries(version.version):
            file = entry.key.removeprefix(f"{version.prefix}/")
            if file not in version.files and file not in (METADATA, SIGNATURE):
                yield Finding(where=entry.key, what="is not part of the version's metadata")


def _check_aliases(pointers: Pointers, entries: Entries) -> Iterator[Finding]:
    names = pointers.names()
    keys = [pointers.key(alias) for alias in names]
    for alias, (key, content) in zip(
        names, pointers.storage.get_many(keys, limit=MAX_BYTES + 1), strict=True
    ):
        try:
            if isinstance(content, Damaged):
                raise content
            record = pointers.parse(content, alias) if isinstance(content, bytes) else None
        except Damaged as error:
            yield _damage(pointers, key, error)
            continue
        if record and record.points_at and not pointers.catalog.exists(record.points_at):
            yield Finding(where=key, what=f"points at {record.points_at}, which is missing")
        last, _ = entries.last_move(alias)
        if record and last and last.sequence > record.sequence:
            what = f"is of move {record.sequence}, but the history knows move {last.sequence}, to {last.points_at}"
            yield Finding(
                where=key,
                what=f"{what}: an older copy was put back; podium models repair {pointers.name}",
            )
    for alias in sorted({record.alias for record in entries.records if record.alias} - set(names)):
        last, _ = entries.last_move(alias)
        assert last is not None
        target = last.points_at or "nothing"
        what = f"is missing; by the history it points at {target}: podium models repair {pointers.name}"
        yield Finding(where=pointers.key(alias), what=what)


def _check_history(pointers: Pointers, entries: Entries) -> Iterator[Finding]:
    for key, error in entries.damaged.items():
        yield _damage(pointers, key, error)
    held = pointers.held(strict=False).values()
    unique = {record.id: record for record in [*entries.records, *held] if record.alias}
    ordered = sorted(unique.values(), key=lambda record: (record.alias or "", record.sequence))
    for alias, moves in groupby(ordered, key=lambda record: record.alias):
        yield from _check_numbers(pointers.journal.prefix, alias or "", list(moves))


def _check_numbers(where: str, alias: str, moves: list[Record]) -> Iterator[Finding]:
    """Find missing moves of an alias, and moves that have the same number."""
    by_number = {
        number: list(same) for number, same in groupby(moves, key=lambda record: record.sequence)
    }
    missing = sorted(set(range(1, max(by_number) + 1)) - set(by_number))
    if missing:
        yield Finding(where=where, what=f"moves of {alias} are missing: {missing}")
    for number, same in by_number.items():
        if len(same) > 1:
            keys = ", ".join(record.key for record in same)
            yield Finding(
                where=where, what=f"{len(same)} moves of {alias} have the number {number}: {keys}"
            )


def repair(pointers: Pointers) -> Iterator[Repair]:
    """Restore damaged, missing and outdated aliases from the history, and the history from the
    aliases.

    An alias is never behind its history, which is written after it, unless an older copy was put
    back. Nothing else that can be read is changed, and nothing is deleted.
    """
    entries = pointers.journal.load()
    moved = {record.alias for record in entries.records if record.alias}
    for alias in sorted(moved | set(pointers.names())):
        yield from _repair_alias(pointers, alias, entries)
    held = pointers.held(strict=False)
    readable = {record.key for record in entries.records}
    for alias, record in held.items():
        if record.key not in readable and pointers.journal.write(record):
            yield Repair(where=record.key, restored=True, what=f"restored from the alias {alias}")
    known = {record.key for record in held.values()}
    for key, error in entries.damaged.items():
        if key not in known:
            yield Repair(
                where=key,
                restored=False,
                what=f"cannot be restored, no alias holds it: {error.message}",
            )


def _repair_alias(pointers: Pointers, alias: str, entries: Entries) -> Iterator[Repair]:
    key = pointers.key(alias)
    content, entry = b"", None
    last, lost = entries.last_move(alias)
    try:
        if pointers.storage.head(key):
            content, entry = pointers.storage.read(key, limit=MAX_BYTES + 1)
        record = pointers.parse(content, alias)
        if last is None or record.sequence >= last.sequence:
            return
    except Damaged:
        pass
    if last is None or lost:
        also = (
            f"its record is damaged, too: {', '.join(lost)}" if lost else "there is no move of it"
        )
        yield Repair(where=key, restored=False, what=f"cannot be restored from the history: {also}")
        return
    try:
        pointers.storage.put(
            key, last.seal(), if_absent=entry is None, if_match=entry.etag if entry else None
        )
    except Conflict:
        yield Repair(where=key, restored=False, what="was moved by another process meanwhile")
        return
    target = last.points_at or "nothing"
    yield Repair(
        where=key,
        restored=True,
        what=f"restored from {last.key}: points at {target} since {last.time}",
    )

"""Keeping a model in order: verifying everything it consists of, mending its document, deleting.

A version is deleted by taking its name out of the document, which is where its record goes into the
history; from then on readers see no version. Its files are deleted after that, metadata.json first.
What a killed deletion or upload leaves is garbage: files of a version that the document does not
name and that have no metadata.json, or whose deletion began.

Who deletes files, or uploads over them, first puts a token of its own into the document. The
collector looks for its token before each object, and deletes an object only as it was listed: one
that slept while others finished the deletion and the version was uploaded again stops.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from podium.display.terminal import warn_once
from podium.errors import Conflict, Damaged, NotFound, Untrusted, require
from podium.models.approval import waiting
from podium.models.document import MAX_BYTES, command, moment, seal, sha256_of, unseal
from podium.models.ledger import Ledger, State, deletion_token, names_below
from podium.models.record import Record
from podium.models.signature import SIGNATURE, PublicKey, signature_key
from podium.models.version import (
    METADATA,
    Version,
    metadata_key,
    parse_metadata,
    version_prefix,
)
from podium.storage import Entry

GRACE = timedelta(hours=24)
_SEGMENT = re.compile(r"([0-9a-f]{64})\.json")
_SKEW = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong, or was mended."""

    where: str
    """Key or URL."""

    what: str


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """Objects that can be deleted."""

    where: str
    """Prefix or key."""

    why: str
    """unfinished upload, unfinished deletion, interrupted write, or retired version."""

    size: int
    """Bytes."""

    modified: datetime
    version: str | None


def verify(
    ledger: Ledger,
    checked: Callable[[int], None],
    *,
    contents: bool = True,
    key: PublicKey | None = None,
) -> Iterator[Finding]:
    """Read everything of a model and yield what is wrong.

    Args:
        checked: Called with the size of each file that was read.
        contents: Whether the files of versions are read, or only what describes them.
        key: Check signatures with it: every one there is, and that the targets of aliases have one.
    """
    try:
        state, _ = ledger.read()
    except Damaged as error:
        yield _damage(ledger, ledger.key, error)
        return
    unnamed, lost = _unnamed(ledger, state), _lost_segments(ledger, state)
    versions: dict[str, Version] = {}
    for name, metadata in ledger.look_many(state):
        if isinstance(metadata, Version):
            versions[name] = metadata
        elif name in ledger.read()[0].versions:  # else it was deleted meanwhile
            yield _damage(ledger, metadata_key(ledger.name, name), metadata)
    yield from _check_files(ledger, list(versions.values()) if contents else [], checked)
    if key:
        needed = {held.version for held in state.aliases.values()}
        for name, version in versions.items():
            if name in needed or ledger.storage.head(signature_key(version)):
                yield from _check_signature(version, key)
    for version in versions.values():
        yield from _check_strangers(ledger, version)
    for link in ledger.storage.links(f"models/{ledger.name}/"):
        yield Finding(where=link, what="is a symbolic link or a special file; it is never followed")
    yield from _check_document(ledger, unnamed, lost)


def _check_document(
    ledger: Ledger, unnamed: Sequence[str], lost: Sequence[str]
) -> Iterator[Finding]:
    """Yield what the document names and is not there, and what is still there without its name.

    Args:
        unnamed: Versions that it did not name a while ago: an upload that is about to end has its
            metadata.json before.
        lost: Segments of the history that it did not name.
    """
    state, etag = ledger.read()
    for alias, held in state.aliases.items():
        if not ledger.exists(held.version, state):
            problem = f"its alias {alias} points at {held.version}, which is missing"
            yield Finding(where=ledger.key, what=problem)
    for name in state.segments:
        try:
            ledger.segment(name)
        except Damaged as error:
            yield _damage(ledger, ledger.segment_key(name), error)
    for name in unnamed:
        if name in state.versions:
            continue
        mend = f"{_fix(ledger)} adds it"
        if not _whole(ledger, name):
            mend = "a part of it is missing or damaged"
        problem = f"is of a version that model.json does not name: {mend}"
        yield Finding(where=metadata_key(ledger.name, name), what=problem)
    for name in lost if etag else []:
        if name in state.segments:
            continue
        problem = f"is a part of the history that model.json does not name: {_fix(ledger)} adds it"
        yield Finding(where=ledger.segment_key(name), what=problem)
    if etag is None and (unnamed or _segments(ledger)):
        problem = f"is missing: restore it from a backup, or {_fix(ledger)} makes it anew"
        yield Finding(where=ledger.key, what=problem)


def verify_version(
    version: Version, ledger: Ledger, checked: Callable[[int], None], key: PublicKey | None
) -> Iterator[Finding]:
    """Read the files of one version, and with a key its signature; yield what is wrong."""
    yield from _check_files(ledger, [version], checked)
    if key:
        yield from _check_signature(version, key)
    yield from _check_strangers(ledger, version)


def repair(ledger: Ledger) -> Iterator[Finding]:
    """Make a document that is damaged or missing anew, and add what it does not name: complete
    versions, and segments with history that it lacks; yield what was done.

    A new document has the versions, by their own metadata.json, and what the segments hold of the
    history. Aliases are not made anew, as the last moves are lost.
    """
    with suppress(Conflict):  # somebody else does it
        yield from _made_anew(ledger)
    try:
        state, _ = ledger.read()
    except Damaged:  # that cannot be mended: verify says what it is
        return
    collected = state.collected  # by whoever deletes files that are looked at here
    found = [_whole(ledger, name) for name in _unnamed(ledger, state)]
    whole = [version for version in found if version]
    for version in sorted(whole, key=lambda version: version.created):
        digest = sha256_of(ledger.storage.get(metadata_key(ledger.name, version.version)))[0]

        def add(state: State, name: str = version.version, digest: str = digest) -> State | None:
            if name in {**state.versions, **state.deleting} or state.collected != collected:
                return None
            return replace(state, versions={**state.versions, name: digest})

        if ledger.change(add).versions.get(version.version) == digest:
            message = f"names the version {version.version} now"
            yield Finding(where=ledger.key, what=message)
    for segment in _lost_segments(ledger, ledger.read()[0]):
        ledger.change(partial(_with_segment, segment))
        key = ledger.segment_key(segment)
        yield Finding(where=ledger.key, what=f"names a part of the history again: {key}")


def _with_segment(name: str, state: State) -> State | None:
    if name in state.segments:
        return None
    return replace(state, segments=(*state.segments, name))


def _made_anew(ledger: Ledger) -> Iterator[Finding]:
    etag, why = None, "was missing"
    with suppress(NotFound):
        try:
            content, entry = ledger.storage.read(ledger.key, limit=MAX_BYTES + 1)
        except Damaged:  # a link, which is never replaced
            return
        try:
            unseal(content, ledger.key)
            return
        except Damaged:
            etag, why = entry.etag, "was damaged"
    segments = []
    for name in _segments(ledger):
        with suppress(Damaged, IndexError):
            segments.append((ledger.segment(name)[0].time, name))
    if etag is None and not segments and not _unnamed(ledger, State()):
        return
    state = State(segments=tuple(name for _, name in sorted(segments)))
    content = seal(state.document(ledger.name))
    ledger.storage.put(ledger.key, content, if_absent=etag is None, if_match=etag)
    last = [record for record in ledger.records() if record.alias]
    moved = f", the last move in it: {last[-1].alias} to {last[-1].version}" if last else ""
    yield Finding(
        where=ledger.key,
        what=f"{why} and was rebuilt: its aliases are gone (podium models promote "
        f"{ledger.name} VERSION), of its history {len(ledger.records())} records are left{moved}",
    )


def _whole(ledger: Ledger, name: str) -> Version | None:
    version = _described(ledger, name)
    return version if version and not _lacks(version, ledger.entries(name)) else None


def _described(ledger: Ledger, name: str) -> Version | None:
    """Return a version as its metadata.json says, named in the document or not."""
    try:
        content = ledger.storage.get(metadata_key(ledger.name, name), limit=MAX_BYTES + 1)
        return parse_metadata(content, ledger.storage, ledger.name, name)
    except (Damaged, NotFound):
        return None


def _lacks(version: Version, entries: Sequence[Entry]) -> bool:
    sizes = {entry.key: entry.size for entry in entries}
    files = version.files.items()
    return any(sizes.get(f"{version.prefix}/{file}") != record.size for file, record in files)


def collect(ledger: Ledger, *, grace: timedelta, delete: bool) -> Iterator[Garbage]:
    """Yield what killed uploads, deletions and writes left of a model.

    Args:
        grace: Younger objects may still be in the making and are left alone.
        delete: Delete it as well.
    """
    require(grace >= timedelta(0), "grace >= 0", grace=str(grace))
    before = datetime.now(UTC) - grace
    for entry in ledger.storage.sweep(f"models/{ledger.name}", before, delete=delete):
        yield _garbage("interrupted write", [entry], where=entry.key)
    try:
        state, etag = ledger.read()
    except Damaged as error:
        warn_once(f"nothing else of {ledger.name} is collected: {error.message}")
        return
    kept = {*state.segments, *_lost_segments(ledger, state)}
    old = [
        entry
        for name, entry in _segments(ledger).items()
        if etag and name not in kept and entry.modified < before
    ]
    versions = {
        name: (why, entries)
        for name in names_below(ledger.storage, f"models/{ledger.name}/versions")
        if (entries := ledger.entries(name)) and max(each.modified for each in entries) < before
        if (why := _reason(ledger, state, name, entries))
    }
    # Of a deletion that was killed after its last file only the token is left.
    done = {each for each in state.deleting.items() if not ledger.entries(each[0])}
    token = deletion_token(datetime.now(UTC))
    if delete and (old or versions or done):
        # A writer that read the document before this cannot name what is collected here any more.
        def claim(state: State) -> State | None:
            mine = {name: token for name in versions if name not in state.versions}
            left = {name: held for name, held in state.deleting.items() if (name, held) not in done}
            return replace(state, deleting={**left, **mine}, collected=token)

        state = ledger.change(claim)
    for entry in old:
        if entry.key not in {ledger.segment_key(name) for name in state.segments}:
            if delete:
                ledger.storage.delete(entry.key)
            yield _garbage("interrupted write", [entry], where=entry.key)
    for name, (why, entries) in versions.items():
        if not delete or _collect(ledger, name, token, grace):
            yield _garbage(why, entries, name, where=version_prefix(ledger.name, name))


def retire(ledger: Ledger, *, keep: int, grace: timedelta, delete: bool) -> Iterator[Garbage]:
    """Yield versions that need not be kept.

    Never among them: the newest, the target of an alias or of the champion's rollback, versions
    that wait for a person's word, and those that were uploaded, or left an alias, within the grace
    period.

    Args:
        keep: How many of the newest stay.
        delete: Delete them as well, with a record in the history.
    """
    require(keep >= 1, "keep >= 1", keep=keep)
    before = datetime.now(UTC) - grace
    try:
        state, _ = ledger.read()
        records = ledger.records(state, strict=True)
    except Damaged as error:
        warn_once(
            f"no version of {ledger.name} is retired, because its history is lost: {error.message}"
        )
        return
    moves = [record for record in records if record.alias and moment(record.time) >= before]
    kept = _protected(state) | {record.version for record in waiting(ledger)}
    kept |= {version for record in moves for version in (record.version, record.replaced)}
    for stored in ledger.versions(state)[:-keep]:
        if stored.version not in kept and stored.created < before:
            entries = ledger.entries(stored.version)
            if delete:
                try:
                    delete_version(ledger, stored.version, f"not among the newest {keep}")
                except (NotFound, Conflict):  # deleted, or promoted, meanwhile
                    continue
            yield _garbage("retired version", entries, stored.version, where=stored.prefix)


def delete_version(ledger: Ledger, version: str, reason: str) -> Record:
    """Delete a version that no alias needs.

    Raises:
        NotFound: There is no such version.
        Conflict: An alias, or the champion's rollback, needs it.
        Damaged: The document cannot be read.
    """
    event = Record.new("deletion", ledger.name, version, evidence={"reason": reason})
    token = deletion_token(datetime.now(UTC))

    def without(state: State) -> State | None:
        if state.has(event):
            return None
        if version not in state.versions:
            where = ledger.storage.url
            raise NotFound(f"model {ledger.name} has no complete version {version} in {where}")
        if version in _protected(state):
            raise Conflict(
                f"version {version} of {ledger.name} is needed by an alias or by its rollback",
                f"{command(f'models history {ledger.name}', ledger.storage)} shows by which",
            )
        return replace(
            state.with_token(version, token),
            versions={name: held for name, held in state.versions.items() if name != version},
            collected=token,
            history=(*state.history, event),
        )

    ledger.change(without)
    _clear(ledger, version, token)
    return event


def _protected(state: State) -> set[str | None]:
    held = state.aliases.values()
    return {version for record in held for version in (record.version, record.previous)}


def _reason(ledger: Ledger, state: State, name: str, entries: Sequence[Entry]) -> str | None:
    """Return why the files of a version are garbage; None if they are not."""
    if name in state.versions:
        return None
    if name in state.deleting:
        return "unfinished deletion"
    if all(entry.key != metadata_key(ledger.name, name) for entry in entries):
        return "unfinished upload"
    # An upload that ends as its version is deleted may write some files again.
    version = _described(ledger, name) if state != State() else None  # else the document is lost
    return "unfinished deletion" if version and _lacks(version, entries) else None


def _collect(ledger: Ledger, name: str, token: str, grace: timedelta) -> bool:
    """Delete the files of a version with this token; return False if another process works on
    it."""
    newest = max((entry.modified for entry in ledger.entries(name)), default=None)
    if newest and newest > datetime.now(UTC) - grace:
        ledger.hand_over(name, token, None)
        return False
    return _clear(ledger, name, token)


def _clear(ledger: Ledger, name: str, token: str) -> bool:
    """Delete all files of a version, metadata.json first; return False if the token was
    replaced."""
    metadata, claimed = metadata_key(ledger.name, name), ledger.storage.head(ledger.key)
    if claimed and abs(claimed.modified - moment(token.partition(" ")[0])) > _SKEW:
        # An upload judges by this time whether a request of ours may be on its way still.
        held, token = token, deletion_token(claimed.modified)
        if not ledger.hand_over(name, held, token):
            return False
    try:
        for entry in sorted(ledger.entries(name), key=lambda entry: entry.key != metadata):
            if ledger.read()[0].deleting.get(name) != token:
                return False
            ledger.storage.delete(entry.key, if_match=entry.etag)
    except Conflict:
        return False
    ledger.hand_over(name, token, None)
    return True


def _unnamed(ledger: Ledger, state: State) -> list[str]:
    """Return the versions that have a metadata.json, but are not named in the document."""
    names = names_below(ledger.storage, f"models/{ledger.name}/versions")
    return [
        name
        for name in names
        if name not in state.versions
        and name not in state.deleting
        and ledger.storage.head(metadata_key(ledger.name, name))
    ]


def _segments(ledger: Ledger) -> dict[str, Entry]:
    entries = ledger.storage.list(f"models/{ledger.name}/history/")
    found = {entry: _SEGMENT.fullmatch(entry.key.rpartition("/")[2]) for entry in entries}
    return {match[1]: entry for entry, match in found.items() if match}


def _lost_segments(ledger: Ledger, state: State) -> list[str]:
    """Return the segments that the document does not name and that hold history which it lacks, as
    of one that is older than they are. What a killed write left holds nothing of its own."""
    unnamed = _segments(ledger).keys() - set(state.segments)
    record_ids = {record.id for record in ledger.records(state)} if unnamed else set()
    lost: list[tuple[str, str]] = []
    for name in unnamed:
        with suppress(Damaged):
            records = ledger.segment(name)
            lost += [(record.time, name) for record in records if record.id not in record_ids][:1]
    return [name for _, name in sorted(lost)]


def _fix(ledger: Ledger) -> str:
    return command(f"models verify {ledger.name} --fix", ledger.storage)


def _garbage(
    why: str, entries: Sequence[Entry], version: str | None = None, *, where: str
) -> Garbage:
    return Garbage(
        where=where,
        why=why,
        size=sum(entry.size for entry in entries),
        modified=max(entry.modified for entry in entries),
        version=version,
    )


def _damage(ledger: Ledger, key: str, error: Damaged | Untrusted) -> Finding:
    message = error.message.removeprefix(ledger.storage.join(key)).removeprefix(key)
    return Finding(where=key, what=message.strip())


def _check_files(
    ledger: Ledger, versions: Sequence[Version], checked: Callable[[int], None]
) -> Iterator[Finding]:
    def check(pair: tuple[Version, str]) -> Finding | None:
        version, file = pair
        try:
            version.verify(file)
        except Damaged as error:
            if version.version in ledger.read()[0].versions:  # else it was deleted meanwhile
                return _damage(ledger, f"{version.prefix}/{file}", error)
        return None

    files = [(version, file) for version in versions for file in version.files]
    with ThreadPoolExecutor(4) as pool:
        for (version, file), finding in zip(files, pool.map(check, files), strict=True):
            checked(version.files[file].size)
            if finding:
                yield finding


def _check_signature(version: Version, key: PublicKey) -> Iterator[Finding]:
    try:
        key.check(version)
    except NotFound:  # it was deleted meanwhile
        return
    except (Conflict, Damaged, Untrusted) as error:
        yield Finding(where=signature_key(version), what=error.message)


def _check_strangers(ledger: Ledger, version: Version) -> Iterator[Finding]:
    for entry in ledger.entries(version.version):
        file = entry.key.removeprefix(f"{version.prefix}/")
        if file not in version.files and file not in (METADATA, SIGNATURE):
            yield Finding(where=entry.key, what="is not part of the version's metadata")

"""Checks that a storage does everything podium needs."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from podium.errors import Conflict, Failed, PodiumError
from podium.storage.base import Storage

_SKEW = timedelta(seconds=30)
_LARGE = 17 << 20


@dataclass(frozen=True, kw_only=True)
class _Check:
    name: str
    ok: bool
    detail: str
    """The observation, or the reason for the failure."""

    hint: str | None = None


def check(storage: Storage) -> Iterator[_Check]:
    """Try everything under a key of its own, and clean up.

    If the first requests fail, the other checks are skipped: they would fail for the same reason.
    """
    key = f"podium-check/{uuid.uuid4().hex}"
    checks: list[tuple[str, Callable[[Storage, str], str]]] = [
        ("reach and list", _list),
        ("write and read", _write),
        ("conditional writes", _conditions),
        ("large object in parts", _large),
        ("clock", _clock),
        ("unfinished uploads", _unfinished),
        ("delete", _delete),
    ]
    try:
        for name, attempt in checks:
            try:
                yield _Check(name=name, ok=True, detail=attempt(storage, key))
            except PodiumError as error:
                yield _Check(name=name, ok=False, detail=error.message, hint=error.hint)
                if name in ("reach and list", "write and read"):
                    return
    finally:
        with suppress(PodiumError):  # reported already
            _clear(storage, key)


def _list(storage: Storage, key: str) -> str:
    first = next(storage.list(), None)
    return f"{storage.url} answers" + ("" if first else ", and is empty")


def _write(storage: Storage, key: str) -> str:
    content = uuid.uuid4().bytes
    storage.put(key, content)
    if storage.get(key) != content:
        raise Failed(
            "reading returned other bytes than were written", "is there a cache in between?"
        )
    return "put, get"


def _conditions(storage: Storage, key: str) -> str:
    for condition in ({"if_absent": True}, {"if_match": "0" * 32}):
        try:
            storage.put(key, b"must not be", **condition)
        except Conflict:
            continue
        raise Failed(f"a write on condition {condition} was not refused", "use another server")
    entry = storage.head(key)
    storage.put(key, b"2", if_match=entry.etag if entry else None)
    return f"enforced by {storage.conditions()}"


def _large(storage: Storage, key: str) -> str:
    with TemporaryDirectory(prefix="podium-") as directory:
        source, target = Path(directory) / "source", Path(directory) / "target"
        with source.open("wb") as file:
            file.write(b"start")
            file.truncate(_LARGE)
        started = time.monotonic()
        storage.put(f"{key}-large", source)
        storage.fetch(f"{key}-large", target)
        seconds = time.monotonic() - started
        if target.stat().st_size != _LARGE:
            raise Failed(
                f"{_LARGE} bytes were written, but {target.stat().st_size} came back",
                "does a proxy limit bodies?",
            )
    return f"{2 * _LARGE / seconds / 1e6:.0f} MB/s there and back"


def _clock(storage: Storage, key: str) -> str:
    storage.put(f"{key}-clock", b"")
    entry, now = storage.head(f"{key}-clock"), datetime.now(UTC)
    skew = abs(now - entry.modified) if entry else timedelta(0)
    if skew > _SKEW:
        raise Failed(
            f"the clocks differ by {skew.total_seconds():.0f} s, more than {_SKEW.seconds} s",
            "set the clock of this machine or of the server (NTP): servers refuse every request beyond 15 minutes",
        )
    return f"differs by less than {skew.total_seconds() + 1:.0f} s"


def _unfinished(storage: Storage, key: str) -> str:
    left = list(storage.sweep(key, datetime.now(UTC), delete=False))
    return "can be listed" + (f": {len(left)}" if left else "")


def _delete(storage: Storage, key: str) -> str:
    _clear(storage, key)
    if list(storage.list(key)):
        raise Failed("a deleted key is still listed", "does the bucket have an object lock?")
    return "gone"


def _clear(storage: Storage, key: str) -> None:
    for entry in list(storage.list(key)):
        storage.delete(entry.key)

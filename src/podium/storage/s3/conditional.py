"""Writes on a condition: by the server where it enforces conditions, else under a lock.

Whether it does is tried: writers race for a key, and exactly one may win. Some servers check a
condition and then store, as SeaweedFS before 4.18 does: they refuse every second writer that comes
after the first, and take several that come at once.
"""

import hashlib
import json
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from podium.errors import Conflict, InvalidInput, NotFound, PodiumError
from podium.files.documents import load_json, parse
from podium.storage.base import Entry, Progress, check_key
from podium.storage.s3.bucket import WRITERS, Bucket, Pool
from podium.storage.s3.errors import Unsupported
from podium.storage.s3.lock import locked

NOTES = ".podium/conditions/"
"""Where it is remembered what a server enforces."""

_REMEMBERED = timedelta(days=1)

_ROUNDS = 3
_PATIENCE = 5.0

_Write = Callable[[str, bytes], str]


@dataclass(frozen=True, kw_only=True)
class _Conditions:
    honored: bool
    """It refuses a write whose condition does not hold; they may be sent."""

    atomic: bool
    """It lets one of many writers at once win."""

    seen: str


def _probe(pool: Pool, write: _Write, delete: Callable[[str], None]) -> _Conditions:
    """Try conditions, first one writer after another, then many at once.

    Args:
        write: Writes an object and returns its etag.

    Raises:
        PodiumError: The server cannot be asked.
    """
    key = f".podium/probe-{uuid.uuid4().hex}"
    try:
        write(key, b"1")
        if not (
            _refuses(pool, write, key, True, None) and _refuses(pool, write, key, False, "0" * 32)
        ):
            return _Conditions(honored=False, atomic=False, seen="the server ignores conditions")
        for _ in range(_ROUNDS):
            delete(key)
            winners = _race(pool, write, key, True, None)
            if len(winners) == 1:
                winners = _race(pool, write, key, False, winners[0])
            if len(winners) != 1:
                how = f"{len(winners)} of {WRITERS} writers at once won"
                seen = f"the server checks conditions before it stores, not as it stores: {how}"
                return _Conditions(honored=bool(winners), atomic=False, seen=seen)
        seen = f"the server (If-None-Match, If-Match): of {WRITERS} writers at once one won, {2 * _ROUNDS} times"
        return _Conditions(honored=True, atomic=True, seen=seen)
    finally:
        delete(key)


def _refuses(pool: Pool, write: _Write, key: str, if_absent: bool, if_match: str | None) -> bool:
    try:
        with pool.condition(if_absent, if_match):
            write(key, b"2")
    except Conflict:
        return True
    except Unsupported:
        return False
    return False


def _race(pool: Pool, write: _Write, key: str, if_absent: bool, if_match: str | None) -> list[str]:
    """Let writers write on the same condition at the same moment and return the etags of those that
    won."""
    start = threading.Barrier(WRITERS)

    def ready() -> None:
        with suppress(threading.BrokenBarrierError):
            start.wait(_PATIENCE)

    def attempt(number: int) -> str | PodiumError:
        try:
            with pool.condition(if_absent, if_match, ready):
                return write(
                    key, uuid.uuid4().bytes
                )  # the same bytes again would have the same etag
        except PodiumError as error:
            start.abort()  # nobody waits for one that failed before the start
            return error

    with ThreadPoolExecutor(WRITERS) as threads:
        results = list(threads.map(attempt, range(WRITERS)))
    winners = [result for result in results if isinstance(result, str)]
    broken = [
        error
        for error in results
        if isinstance(error, PodiumError) and not isinstance(error, Conflict)
    ]
    if broken and len(winners) < 2:  # one that failed may have won as well
        raise broken[0]
    return winners


_seen: dict[tuple[str, str, bool], _Conditions] = {}
"""Support for conditional writes, by URL of the server, bucket and whether the upload is in
parts."""

_probing = threading.Lock()


class ConditionalWrites:
    """Writes to a bucket and deletions on a condition."""

    def __init__(
        self,
        bucket: Bucket,
        put: Callable[[str, bytes], Entry],
        read: Callable[[str], tuple[bytes, Entry]],
    ) -> None:
        self._bucket, self._put, self._read = bucket, put, read

    def write(
        self,
        key: str,
        if_absent: bool,
        if_match: str | None,
        write: Callable[[Progress | None], Entry],
        progress: Progress | None,
        *,
        in_parts: bool,
    ) -> Entry:
        """Write an object on a condition, under a lock if the server does not enforce it.

        Args:
            write: Writes it, and tells the progress it is given of every chunk.
            in_parts: Whether it is an upload in parts.

        Raises:
            Conflict: The condition does not hold.
        """
        check_key(key)
        if not if_absent and if_match is None:
            return write(progress)
        conditions = self.support(in_parts=in_parts)
        if conditions.atomic:
            with self._bucket.pool.condition(if_absent, if_match):
                return write(progress)
        # Do not queue for the lock if the condition fails already.
        self._check(key, if_absent, if_match)
        with locked(key, self.put_plain, self._times, self._bucket.delete) as renew:
            self._check(key, if_absent, if_match)

            def moved(count: int) -> None:
                renew()
                if progress:
                    progress(count)

            # The condition is sent as well if that helps: another process may have seen nothing
            # wrong with the server.
            honored = conditions.honored
            with self._bucket.pool.condition(if_absent and honored, if_match if honored else None):
                return write(moved)

    def delete(self, key: str, if_match: str) -> None:
        """Delete an object if it has this etag.

        Raises:
            Conflict: It has another one.
        """
        if self.support().atomic:
            self._check(key, False, if_match)
            # Many servers check If-Match on a DELETE as well, which closes the gap between this
            # check and the deletion.
            with suppress(NotFound), self._bucket.pool.condition(False, if_match):
                self._bucket.delete(key)
        else:
            with locked(key, self.put_plain, self._times, self._bucket.delete):
                self._check(key, False, if_match)
                self._bucket.delete(key)

    def describe(self) -> str:
        """Try anew how conditions are enforced, and say it."""
        small = self._try(in_parts=False)
        if not small.atomic:
            return f"lock objects: {small.seen}"
        large = self._try(in_parts=True)
        return (
            small.seen
            if large.atomic
            else f"{small.seen}; lock objects for uploads in parts: {large.seen}"
        )

    def support(self, *, in_parts: bool = False) -> _Conditions:
        """Return the server's support for conditional writes: probed at most once a day, remembered
        in the bucket.

        Args:
            in_parts: On the completion of uploads in parts, which some servers do not check.
        """
        server = (self._bucket.config.url, self._bucket.name, in_parts)
        with _probing:
            if server not in _seen:
                _seen[server] = self._remembered(in_parts) or self._try(in_parts)
        return _seen[server]

    def _try(self, in_parts: bool) -> _Conditions:
        write = (
            self._bucket.put_as_one_part
            if in_parts
            else lambda key, content: self._put(key, content).etag
        )
        seen = _probe(self._bucket.pool, write, self._bucket.delete)
        self.put_plain(self._note(in_parts), json.dumps(asdict(seen)).encode())
        return seen

    def _remembered(self, in_parts: bool) -> _Conditions | None:
        note = self._note(in_parts)
        try:
            content, entry = self._read(note)
            seen = parse(_Conditions, load_json(content, note), note)
        except (NotFound, InvalidInput):
            return None
        return seen if abs(datetime.now(UTC) - entry.modified) < _REMEMBERED else None

    def _note(self, in_parts: bool) -> str:
        # By address, for a copied bucket takes its notes to another server.
        server = hashlib.sha256(self._bucket.config.url.encode()).hexdigest()[:16]
        return f"{NOTES}{server}{'-parts' if in_parts else ''}"

    def put_plain(self, key: str, content: bytes) -> None:
        """Write a helper object unconditionally, whatever condition this thread's writes have."""
        with self._bucket.pool.condition(False, None):
            self._put(key, content)

    def _check(self, key: str, if_absent: bool, if_match: str | None) -> None:
        present = self._bucket.head(key)
        if (if_absent and present) or (
            if_match is not None and (present is None or present.etag != if_match)
        ):
            raise Conflict(f"{key} in {self._bucket.url} was changed by another writer")

    def _times(self, prefix: str) -> dict[str, datetime]:
        return {entry.key: entry.modified for entry in self._bucket.objects(prefix)}

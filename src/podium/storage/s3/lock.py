"""Whether a server enforces conditions on writes, and locks where it does not.

Writers race for a key, and exactly one may win. Some servers check a condition and then store, as
SeaweedFS before 4.18 does: they refuse every second writer that comes after the first, and take
several that come at once. Locks are made of put, list and delete.

A writer puts a ticket under ``.podium/locks/<hash of the key>/`` and then lists the tickets. It
holds the lock if its ticket is the only one; otherwise, if there is a ticket with a smaller name,
it removes its own and waits. Two writers never hold the lock at once: each wrote its ticket before
it listed, so the one that listed later saw both. This needs a server whose listings are strongly
consistent, as S3's and MinIO's are.

The owner renews its ticket while it works; a ticket older than LEASE seconds was left by a writer
that died.
"""

import hashlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from podium.errors import Conflict, PodiumError
from podium.storage.s3.bucket import WRITERS, Pool
from podium.storage.s3.errors import Unsupported

ROUNDS = 3
_PATIENCE = 5.0

_Write = Callable[[str, bytes], str]


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Support of a server for conditional writes."""

    honored: bool
    """It refuses a write whose condition does not hold; they may be sent."""

    atomic: bool
    """It lets one of many writers at once win."""

    seen: str


def probe(pool: Pool, write: _Write, delete: Callable[[str], None]) -> Conditions:
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
            return Conditions(honored=False, atomic=False, seen="the server ignores conditions")
        for _ in range(ROUNDS):
            delete(key)
            winners = _race(pool, write, key, True, None)
            if len(winners) == 1:
                winners = _race(pool, write, key, False, winners[0])
            if len(winners) != 1:
                how = f"{len(winners)} of {WRITERS} writers at once won"
                seen = f"the server checks conditions before it stores, not as it stores: {how}"
                return Conditions(honored=bool(winners), atomic=False, seen=seen)
        seen = f"the server (If-None-Match, If-Match): of {WRITERS} writers at once one won, {2 * ROUNDS} times"
        return Conditions(honored=True, atomic=True, seen=seen)
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


LEASE = 120.0
PATIENCE = 300.0

_Put = Callable[[str, bytes], object]
_Times = Callable[[str], dict[str, datetime]]
_Delete = Callable[[str], object]


@contextmanager
def locked(key: str, put: _Put, listed: _Times, delete: _Delete) -> Iterator[Callable[[], None]]:
    """Hold the lock of a key.

    Args:
        key: What is to be changed.
        listed: Returns the keys under a prefix and when, by the server's clock, each was written.

    Yields:
        A function to call during long work: it renews the lease when necessary.

    Raises:
        PodiumError: The lock was not free within PATIENCE seconds, or was lost during the work.
    """
    folder = f".podium/locks/{hashlib.sha256(key.encode()).hexdigest()[:24]}/"
    ticket = f"{folder}{uuid.uuid4().hex}"
    try:
        _acquire(folder, ticket, put, listed, delete)
        renewed = [time.monotonic()]

        def renew() -> None:
            age = time.monotonic() - renewed[0]
            if age > LEASE / 2:
                raise PodiumError(
                    f"the lock of {key} was lost: it was not renewed for {age:.0f} s", "try again"
                )
            if age > LEASE / 10:
                put(ticket, b"")
                renewed[0] = time.monotonic()

        yield renew
    finally:
        delete(ticket)


def _acquire(folder: str, ticket: str, put: _Put, listed: _Times, delete: _Delete) -> None:
    started = time.monotonic()
    next_look, pause = started + LEASE, 0.02
    while time.monotonic() < started + PATIENCE:
        times = listed(folder)
        others = times.keys() - {ticket}
        if ticket in times and others and min(others) < ticket:
            delete(ticket)
        elif not others or time.monotonic() > next_look:
            # Latecomers wait without a ticket, or the first writer would never be alone. Sometimes they write one
            # anyway: its time of writing shows the server's clock, and so which tickets have expired.
            next_look = time.monotonic() + LEASE / 4
            if _alone(folder, ticket, put, listed, delete):
                return
        time.sleep(random.uniform(pause / 2, pause))
        pause = min(2 * pause, 1.0 if ticket not in times else 0.1)
    raise PodiumError(
        f"the lock {folder} did not become free within {PATIENCE:.0f} s", "see who holds it"
    )


def _alone(folder: str, ticket: str, put: _Put, listed: _Times, delete: _Delete) -> bool:
    """Write or renew a ticket and return whether it is the only one that has not expired."""
    put(ticket, b"")
    times = listed(folder)
    now = times.get(ticket)
    if now is None:
        return False
    expired = [
        other for other, written in times.items() if now - written > timedelta(seconds=LEASE)
    ]
    for other in expired:
        delete(other)
    return not times.keys() - {ticket, *expired}

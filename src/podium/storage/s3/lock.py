"""Locks of put, list and delete, for servers that do not enforce conditions on writes.

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
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from podium.errors import PodiumError

LOCKS = ".podium/locks/"
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
    folder = f"{LOCKS}{hashlib.sha256(key.encode()).hexdigest()[:24]}/"
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
            # Latecomers wait without a ticket, or the first writer would never be alone. Sometimes
            # they write one anyway: its time of writing shows the server's clock, and so which
            # tickets have expired.
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

"""Mutual exclusion for S3 servers that ignore conditions on writes, from nothing but put, list and delete.

Whoever wants to change a key puts a ticket under ``.podium/locks/<hash of the key>/`` and then lists the tickets.
It holds the lock if its own is the only one; otherwise, if an earlier name is among them, it takes its ticket back
and waits until there is none. Two can never hold it at once: the ticket of each was there before it looked, so the
one that looked later saw the other's. This needs a server whose listings are current, as S3's and MinIO's are.

A ticket is renewed while its owner works; one that the server has not seen for LEASE seconds belongs to the dead.
"""

import hashlib
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta

from podium.errors import Conflict, PodiumError

LEASE = 120.0
PATIENCE = 300.0

Put = Callable[[str, bytes], object]
Times = Callable[[str], dict[str, datetime]]
Delete = Callable[[str], object]


def honoured(put: Put, condition: Callable[[bool, str | None], AbstractContextManager[None]], delete: Delete) -> bool:
    """Find out, by trying, whether a server honours If-None-Match and If-Match on writes.

    Args:
        put: Writes an object.
        condition: Puts if_absent or if_match on the writes made within it.
        delete: Removes an object.
    """
    key = f".podium/probe-{uuid.uuid4().hex}"
    try:
        for if_absent, if_match in ((True, None), (False, "0" * 32)):
            put(key, b"1")
            try:
                with condition(if_absent, if_match):
                    put(key, b"2")
                return False  # the condition was ignored
            except Conflict:
                continue
            except PodiumError as error:
                if "NotImplemented" in error.message or "MethodNotAllowed" in error.message:
                    return False
                raise
        return True
    finally:
        delete(key)


@contextmanager
def locked(key: str, put: Put, listed: Times, delete: Delete) -> Iterator[Callable[[], None]]:
    """Hold the lock of a key.

    Args:
        key: What is to be changed.
        put: Writes an object.
        listed: Gives the keys under a prefix and when, by the server's clock, each was written.
        delete: Removes an object.

    Yields:
        A function to call now and then during long work: it renews the lease.

    Raises:
        PodiumError: The lock was not to be had in PATIENCE seconds, or was lost during the work.
    """
    folder = f".podium/locks/{hashlib.sha256(key.encode()).hexdigest()[:24]}/"
    ticket = f"{folder}{uuid.uuid4().hex}"
    try:
        _acquire(folder, ticket, put, listed, delete)
        renewed = [time.monotonic()]

        def renew() -> None:
            age = time.monotonic() - renewed[0]
            if age > LEASE / 2:
                raise PodiumError(f"the lock of {key} must be renewed in time, but {age:.0f} s passed", "try again")
            if age > LEASE / 10:
                put(ticket, b"")
                renewed[0] = time.monotonic()

        yield renew
    finally:
        delete(ticket)


def _acquire(folder: str, ticket: str, put: Put, listed: Times, delete: Delete) -> None:
    begun = time.monotonic()
    inquire, pause = begun + LEASE, 0.02
    while time.monotonic() < begun + PATIENCE:
        times = listed(folder)
        others = times.keys() - {ticket}
        if ticket in times and others and min(others) < ticket:
            delete(ticket)
        elif not others or time.monotonic() > inquire:
            # Who comes late waits without a ticket, or the first would never be alone. Now and then it draws one all
            # the same: its own time of writing tells the server's clock, and so which tickets are of the dead.
            inquire = time.monotonic() + LEASE / 4
            if _alone(folder, ticket, put, listed, delete):
                return
        time.sleep(random.uniform(pause / 2, pause))
        pause = min(2 * pause, 1.0 if ticket not in times else 0.1)
    raise PodiumError(f"the lock {folder} must become free in {PATIENCE:.0f} s, but did not", "see who holds it")


def _alone(folder: str, ticket: str, put: Put, listed: Times, delete: Delete) -> bool:
    """Draw or renew a ticket and return whether it is the only one of the living."""
    put(ticket, b"")
    times = listed(folder)
    now = times.get(ticket)
    if now is None:
        return False
    dead = [other for other, seen in times.items() if now - seen > timedelta(seconds=LEASE)]
    for other in dead:
        delete(other)
    return not times.keys() - {ticket, *dead}

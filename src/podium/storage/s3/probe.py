"""Whether a server enforces conditions on writes: writers race for a key, and exactly one may win.

Some servers check a condition and then store, as SeaweedFS before 4.18 does: they refuse every
second writer that comes after the first, and take several that come at once.
"""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from podium.errors import Conflict, PodiumError
from podium.storage.s3.errors import Unsupported
from podium.storage.s3.http import Pool

WRITERS, ROUNDS = 16, 3
_PATIENCE = 5.0

Write = Callable[[str, bytes], str]


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Support of a server for conditional writes."""

    honored: bool
    """It refuses a write whose condition does not hold; they may be sent."""

    atomic: bool
    """It lets one of many writers at once win."""

    seen: str
    """In words."""


def probe(pool: Pool, write: Write, delete: Callable[[str], None]) -> Conditions:
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


def _refuses(pool: Pool, write: Write, key: str, if_absent: bool, if_match: str | None) -> bool:
    try:
        with pool.condition(if_absent, if_match):
            write(key, b"2")
    except Conflict:
        return True
    except Unsupported:
        return False
    return False


def _race(pool: Pool, write: Write, key: str, if_absent: bool, if_match: str | None) -> list[str]:
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
    if broken and not winners:
        raise broken[0]
    return winners

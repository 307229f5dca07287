"""Watch one object: changes arrive at once, and lost connections, expired versions and restarts are
survived."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from podium.cluster.kubernetes.api import Api, is_passing
from podium.errors import Denied, Failed, PodiumError, Unavailable, UnknownKind
from podium.manifests.conditions import Manifest
from podium.manifests.kueue import only_waits
from podium.manifests.resource import Resource


def _changes(
    api: Api, kind: str, name: str, remaining: Callable[[], float]
) -> Iterator[Manifest | None]:
    """Yield the object, then each version of it; None after every quiet window; end when it is
    gone.

    Where lists are answered but watches are not, the lists alone show the changes, a few seconds
    late.

    Args:
        remaining: Seconds left to the caller; a window is never longer.

    Raises:
        Unavailable: Nothing was heard of the object for the outage of its waits.
    """
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    lost_at, pause = None, 0.2
    while True:
        try:
            current, version = api.snapshot(kind, name)
            lost_at = None
            if current is None:
                return
            yield current
            while True:
                for event in api.events(
                    kind, name, version, max(1, min(api.waits.window, int(remaining())))
                ):
                    version = Resource.parse(event["object"]).version
                    if event["type"] == "DELETED":
                        return
                    if event["type"] != "BOOKMARK":
                        yield event["object"]
                lost_at, pause = None, 0.2
                yield None
        except (Unavailable, UnknownKind, Denied) as error:
            lost: PodiumError = error
        except (ApiException, HTTPError) as error:
            # 410: the server no longer has the version; the next snapshot brings a newer one.
            lost = api.error(error, f"watch {kind} {name}", kind)
            api.note(error)
            if not is_passing(error) and getattr(error, "status", None) not in (401, 403, 410):
                raise lost from error
        lost_at = lost_at or time.monotonic()
        # A server that has just started knows neither roles (observed: 403 for 0.3 s) nor, perhaps, its CRDs.
        if time.monotonic() - lost_at > (
            api.waits.outage if isinstance(lost, Unavailable) else api.waits.patience
        ):
            raise lost
        if remaining() <= 0:
            yield None
        time.sleep(min(pause * random.uniform(0.5, 1.0), max(remaining(), 0.0)))
        pause = min(pause * 2, 5.0)


def watch(
    api: Api,
    kind: str,
    name: str,
    timeout: float | None,
    look: Callable[[Resource], None],
    read: Callable[[Manifest], Resource],
    explain: Callable[[Resource], Resource],
) -> Iterator[Resource]:
    """Yield an object now and on every change of its status, until its last state or its end.

    Args:
        timeout: Seconds, None for as long as it takes.
        look: Called with the object after each change and each quiet window; may raise.
        read: Returns the typed object of a manifest.
        explain: Adds to the object why it waits for its queue; called with it as often.

    Raises:
        NotFound: There is none at the start.
        Failed: The timeout passed.
        Unavailable: Nothing was heard of the object for the outage of its waits.
    """
    clock = _Clock(timeout)
    uid: str | None = None
    seen: Any = None
    stored = api.get(kind, name)
    for change in _changes(api, kind, name, lambda: min(clock.left(), api.waits.window)):
        stored = change or stored
        current = read(stored)
        with suppress(
            Unavailable, Denied
        ):  # how long to wait is decided in one place: the next change, or none, tells
            current = explain(current)
        if uid not in (None, current.uid):
            return  # deleted and made again by somebody else: not ours
        clock.stop(only_waits(current))
        if uid is None or current.status != seen:
            uid, seen = current.uid, current.status
            yield current
        if current.state.finished:
            return
        if clock.left() <= 0:
            raise Failed(
                f"{kind} {name} did not end within {timeout:g} s",
                "raise the timeout, or look at its pods",
            )
        with suppress(Unavailable, Denied):
            look(current)


class _Clock:
    """Remaining time of a timeout.

    Args:
        timeout: Seconds, None for as long as it takes.
    """

    def __init__(self, timeout: float | None) -> None:
        self._left = float("inf") if timeout is None else timeout
        self._at = time.monotonic()
        self._stopped = False

    def left(self) -> float:
        now = time.monotonic()
        self._left -= 0 if self._stopped else now - self._at
        self._at = now
        return self._left

    def stop(self, stopped: bool) -> None:
        """Stop the clock, or let it run again from now."""
        self.left()
        self._stopped = stopped

"""Leadership by a Lease (coordination.k8s.io/v1): one process at a time runs what only one may run.

The rules are those of Kubernetes' own controllers (client-go, tools/leaderelection): a Lease that
has not changed for its duration, by the observer's own clock, is free; it is taken with the
resourceVersion that was read, so that of two who try only one succeeds; who cannot renew it in time
stops before anybody else may begin.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from podium.cluster.kubernetes.api import Api
from podium.errors import Conflict, NotFound, PodiumError
from podium.system.background import Tries

ENGINE_LEASE = "podium-engine"
"""Lease of the engine that runs the Experiments of a namespace."""

DURATION_SECONDS = 15
"""A Lease that was not renewed for so long is free."""

RENEW_SECONDS = 2.0
"""Interval between renewals, and between checks of a Lease that another process holds."""

_STOP_SECONDS = 10.0
"""A leader that has not renewed for so long gives up its leadership: well before others may take
it."""


_MOST_SKEW_SECONDS = 30.0
"""Clock skew that is tolerated between the leader and a process that only reads."""


class Leadership:
    """The leadership that a Lease stands for; renewed in a thread while it is held.

    Args:
        api: The namespace of the Lease.
        holder: Name of this process, different from every other's.
        seconds: Seconds without renewal after which others may take it; renewals and giving up
            scale with it.
        owners: Owner references of the Lease, which goes with them.
    """

    def __init__(
        self,
        api: Api,
        name: str,
        holder: str,
        seconds: float = DURATION_SECONDS,
        owners: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._api, self._name, self.holder, self._seconds = api, name, holder, seconds
        self._owners = [*owners]
        self.lost = threading.Event()
        self._closed = threading.Event()
        self._tries = Tries(f"renewing Lease {name}")
        self._renewed = 0.0  # time.monotonic() before the last request that renewed it
        self._seen: tuple[str, float] = ("", 0.0)  # resourceVersion and when it was first read
        self._thread: threading.Thread | None = None

    def acquire(self, timeout: float = float("inf")) -> bool:
        """Wait until this process leads; return False if it does not within some seconds.

        Raises:
            Denied: The account may not read or write Leases.
        """
        end = time.monotonic() + timeout
        while not self._take():
            if time.monotonic() >= end or self._closed.wait(
                min(self._pause, max(0.0, end - time.monotonic()))
            ):
                return False
        self._thread = threading.Thread(
            target=self._keep, name=f"podium-lease-{self._name}", daemon=True
        )
        self._thread.start()
        return True

    def left(self) -> float:
        """Return for how many seconds this process leads, for certain.

        What has run out does not come back with a renewal that was late: somebody was told
        meanwhile that it was lost.
        """
        left = self._renewed + self._seconds * _STOP_SECONDS / DURATION_SECONDS - time.monotonic()
        if self._renewed and left <= 0:
            self.lost.set()
        return 0.0 if self.lost.is_set() else max(0.0, left)

    def within(self, seconds: float) -> Callable[[], float]:
        """Return what tells how long a request may still be repeated, from now on: so many seconds,
        and only while this process leads."""
        end = time.monotonic() + seconds
        return lambda: min(self.left(), end - time.monotonic())

    @property
    def is_held(self) -> bool:
        """Whether this process leads, for certain."""
        return self.left() > 0

    def check(self) -> None:
        """Refuse to continue without it.

        Raises:
            Conflict: It is lost.
        """
        if not self.is_held:
            raise Conflict(f"{self.holder} does not lead any more (Lease {self._name})")

    def release(self) -> str:
        """Give the leadership up, so that the next one need not wait.

        Returns:
            resourceVersion of the Lease that nobody holds now; empty if that is not known.
        """
        self._closed.set()
        version = ""
        if self._thread:
            self._thread.join()
        if self.is_held:
            with suppress(PodiumError):
                released = self._write(self._read(), holder="")
                version = str(released.metadata.resource_version)
        self.lost.set()
        return version

    def delete(self) -> None:
        """Give the leadership up for good: its purpose has ended."""
        if version := self.release():
            delete = self._api.coordination.delete_namespaced_lease
            with suppress(PodiumError):  # another process has taken it meanwhile
                self._api.call(
                    f"delete Lease {self._name}",
                    delete,
                    self._name,
                    self._api.namespace,
                    body={"preconditions": {"resourceVersion": version}},
                    patience=0,
                )

    @property
    def _pause(self) -> float:
        return self._seconds * RENEW_SECONDS / DURATION_SECONDS

    def _keep(self) -> None:
        while not self._closed.wait(self._pause):
            try:
                if not self._take():
                    break
            except PodiumError:
                pass  # it is tried again while there is time
            except Exception as error:  # an answer that is none
                self._tries.failed(error)
            if not self.is_held:
                break
        if not self._closed.is_set():
            self.lost.set()

    def _take(self) -> bool:
        """Renew the Lease, or take it if it is free; return whether this process holds it now."""
        started = time.monotonic()
        try:
            lease = self._read()
            if not self._is_free(lease):
                return False
            self._write(lease, holder=self.holder)
        except Conflict:  # somebody else was faster
            return False
        except NotFound:
            return False if self._renewed else self._create(started)
        self._renewed = started
        return True

    def _create(self, started: float) -> bool:
        now = _micro_time(datetime.now(UTC))
        spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self._whole_seconds,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        body = {"metadata": {"name": self._name, "ownerReferences": self._owners}, "spec": spec}
        create = self._api.coordination.create_namespaced_lease
        try:
            self._api.call(
                f"create Lease {self._name}",
                create,
                self._api.namespace,
                body,
                patience=self._seconds,
            )
        except Conflict:
            return False
        self._renewed = started
        return True

    def _is_free(self, lease: Any) -> bool:
        version, holder = lease.metadata.resource_version, lease.spec.holder_identity
        if version != self._seen[0]:
            self._seen = version, time.monotonic()
        patience = float(lease.spec.lease_duration_seconds or DURATION_SECONDS)
        return holder in (None, "", self.holder) or time.monotonic() - self._seen[1] > patience

    def _read(self) -> Any:
        return _read(self._api, self._name, patience=self._pause)

    def _write(self, lease: Any, holder: str) -> Any:
        spec, now = lease.spec, _micro_time(datetime.now(UTC))
        if spec.holder_identity != holder:
            spec.acquire_time, spec.lease_transitions = now, (spec.lease_transitions or 0) + 1
        elif spec.acquire_time:
            spec.acquire_time = _micro_time(spec.acquire_time)
        spec.holder_identity, spec.renew_time, spec.lease_duration_seconds = (
            holder,
            now,
            self._whole_seconds,
        )
        write = self._api.coordination.replace_namespaced_lease
        doing = f"write Lease {self._name}"
        return self._api.call(
            doing, write, self._name, self._api.namespace, lease, patience=self._pause
        )

    @property
    def _whole_seconds(self) -> int:
        return max(1, math.ceil(self._seconds))


def is_led(api: Api, name: str, wait: float = 0.0) -> bool:
    """Return whether a process holds a Lease, as far as clocks that differ by less than
    _MOST_SKEW_SECONDS tell.

    Args:
        wait: Seconds after which a Lease that looks old is read again: who leads has renewed it,
            whatever clocks say.
    """
    try:
        spec = _read(api, name).spec
    except NotFound:
        return False
    if not spec.holder_identity or not spec.renew_time:
        return False
    age = abs((datetime.now(UTC) - spec.renew_time).total_seconds())
    if age < float(spec.lease_duration_seconds or DURATION_SECONDS) + _MOST_SKEW_SECONDS:
        return True
    time.sleep(wait)
    if not wait:
        return False
    try:
        again = _read(api, name).spec
    except NotFound:
        return False
    return bool(again.holder_identity) and again.renew_time != spec.renew_time


def _read(api: Api, name: str, **how: Any) -> Any:
    read = api.coordination.read_namespaced_lease
    return api.call(f"read Lease {name}", read, name, api.namespace, **how)


def _micro_time(moment: datetime) -> str:
    # The API server requires microseconds in a Lease.
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

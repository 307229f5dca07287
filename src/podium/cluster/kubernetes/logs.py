"""The log of one replica, live: through restarts of the container, the pod and the API server."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from podium.cluster.base import divided, goes_on
from podium.cluster.kubernetes.api import Api, is_passing
from podium.cluster.kubernetes.pods import JobPods, Trouble, by_replica, statuses_of
from podium.errors import Denied, NotFound, Unavailable
from podium.manifests.conditions import SteadyTime

_COLLECTORS = ("metrics-logger-and-collector", "metrics-collector")
"""Katib's sidecar: a trial's main container writes to a file, and the sidecar copies it to its own
log."""

_TRIES = 5
"""Reads of an ended replica's log before giving up."""

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


def _moment(stamp: re.Match[str]) -> tuple[datetime, str]:
    # Lines are ordered by nanoseconds, in whatever zone their nodes are.
    return datetime.fromisoformat(stamp[1] + stamp[3]), (stamp[2] or "").ljust(9, "0")


def _reporting(pods: list[Any]) -> list[Any]:
    """Return the pods of the replica that reports metrics: the collected one's, the leader's, else
    all."""
    if collected := [
        pod for pod in pods if any(name in _COLLECTORS for name in _container_names(pod))
    ]:
        return collected
    for leader in ("master-0", "launcher-0", "worker-0", "node-0"):
        if chosen := [pod for name, pod in by_replica(pods) if name == leader]:
            return chosen
    return pods


def _container_of(pod: Any) -> str:
    names = _container_names(pod)
    return next(
        (name for name in (*_COLLECTORS, "pytorch", "node") if name in names), str(names[0])
    )


def _container_names(pod: Any) -> list[str]:
    # The engine's collector is an init container that keeps running (a sidecar).
    return [
        container.name for container in (*pod.spec.containers, *(pod.spec.init_containers or []))
    ]


def _find(api: Api, kind: str, name: str, replica: str | None) -> Any | None:
    pods = JobPods(api, kind, name).read()
    chosen = (
        _reporting(pods)
        if replica is None
        else [pod for name, pod in by_replica(pods) if name == replica]
    )
    return chosen[-1] if chosen else None


def _start_of(pod: Any) -> tuple[str, int] | None:
    # None before its container has begun.
    for status in statuses_of(pod):
        if status.name == _container_of(pod) and (state := status.state):
            begun = state.running or state.terminated or status.restart_count
            return (str(pod.metadata.uid), int(status.restart_count or 0)) if begun else None
    return None


def _is_coming(pod: Any | None) -> bool:
    # A job is over with its master, when a worker may not even have started.
    return pod is not None and pod.status.phase == "Pending" and Trouble.of_start(pod) is None


def _split(chunks: Iterator[bytes]) -> Iterator[str]:
    """Join chunks and cut them into lines, which are divided where they are too long; the last one
    needs no line end."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        *states, rest = divided(rest, stamped=True)
        whole = (line.removesuffix(b"\r") for line in lines)
        parts = [part for line in whole for part in divided(line, stamped=True)]
        yield from (part.decode(errors="replace") for part in [*parts, *states])
    if rest:
        yield rest.decode(errors="replace")


class _Tail:
    """Reads each line of one replica once, even across reconnects."""

    def __init__(self, api: Api) -> None:
        self.api, self._time = api, SteadyTime()
        # _moment of the newest line given out, and which part of it that was
        self.last: tuple[datetime, str, int] | None = None
        self._heard = time.monotonic()  # when that was
        self._why = ""  # the kubelet's last words about why it cannot read a log

    def read(self, pod: Any, follow: bool) -> Iterator[str]:
        """Yield the lines after the newest one given out.

        Raises:
            urllib3.exceptions.HTTPError: The connection was lost, or a minute was quiet; read
                again.
            kubernetes.client.ApiException: The server refused.
        """
        previous, at = self.last, None
        response = self.api.core.read_namespaced_pod_log(
            pod.metadata.name,
            self.api.namespace,
            container=_container_of(pod),
            follow=follow,
            timestamps=True,
            _preload_content=False,
            _request_timeout=(5, 60),
            **({"since_seconds": self._age(previous[0]) + 60} if previous else {}),
        )
        try:
            for stamped in _split(response.stream(amt=None, decode_content=False)):
                first, _, line = stamped.partition(" ")
                stamp = _STAMP.fullmatch(first)
                if stamp is None:
                    if stamped != self._why:  # it says so at each look
                        yield stamped
                    self._why = stamped
                    continue
                moment = _moment(stamp)
                at = (*moment, at[2] + 1 if at and at[:2] == moment else 0)
                if previous is None or at > previous:
                    self.last, self._heard = at, time.monotonic()
                    yield line if goes_on(line) else line.rstrip("\r")
        finally:
            response.close()
            response.release_conn()

    def _age(self, written: datetime) -> int:
        """Return for how many seconds a line has been there: as the clocks say, which may differ,
        and since it was read."""
        age = (self._time.now() - written).total_seconds()
        return int(max(age, time.monotonic() - self._heard))


def logs(
    api: Api,
    kind: str,
    name: str,
    replica: str | None,
    follow: bool,
    is_over: Callable[[], bool],
    restarted: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Yield a replica's log lines.

    Args:
        kind: PyTorchJob, Job or Trial.
        replica: ``master-0`` …, or None for the one that reports metrics.
        follow: Go on until the replica has ended for good.
        is_over: Tells whether the object has reached its last state or is gone.
        restarted: Called before the first line of a restarted container, or of a replacement pod.

    Raises:
        NotFound: There is no such replica (when following: and the object is over).
        Unavailable: The server does not answer; when following, for the outage of its waits.
    """
    from urllib3.exceptions import ReadTimeoutError

    tail, read, tries, lost_at = _Tail(api), False, 0, None
    start: tuple[str, int] | None = None
    while True:
        try:
            over = not follow or is_over()
            pod = _find(api, kind, name, replica)
            lost_at = None
        except (Unavailable, Denied) as error:  # a server that has just started denies for a moment
            lost_at = lost_at or time.monotonic()
            limit = api.waits.outage if isinstance(error, Unavailable) else api.waits.patience
            if not follow or time.monotonic() - lost_at > limit:
                raise
            time.sleep(api.waits.pause)
            continue
        if pod is None and over and not read:
            raise NotFound(
                f"{kind} {name} has no pod of replica {replica or 'master-0'}",
                "a trial's pods stay where its trialTemplate says `retain: true`, which podium experiment render writes"
                if kind == "Trial"
                else "its pods may be gone",
            )
        complete = True
        if pod is not None and (latest := _start_of(pod)):
            read = True
            if start is not None and start != latest:
                restarted()
                tail = (
                    tail if start[0] == latest[0] else _Tail(api)
                )  # each pod has a log of its own
            start = latest
            try:
                yield from tail.read(pod, follow)
            except api.failures as error:
                if not isinstance(error, ReadTimeoutError):  # which a quiet log is
                    api.note(error)
                complete, tries = False, tries + over
                again = is_passing(error) or getattr(error, "status", None) in (400, 404)
                if not again or (over and tries > _TRIES):
                    raise api.error(error, f"read the log of pod {pod.metadata.name}") from error
        if complete and (
            (over and not (follow and _is_coming(pod))) or (pod and pod.status.phase == "Succeeded")
        ):
            return
        time.sleep(api.waits.pause)

"""Base of sweeps, trainings and jobs: they run on a cluster, and can be awaited, stopped and
deleted."""

import atexit
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from podium.api.cluster_spec import ClusterSpec
from podium.cluster.base import Cluster
from podium.display.notebook import LiveCell
from podium.display.terminal import doing
from podium.errors import Denied, Failed, NotFound, PodiumError, Unavailable
from podium.system.background import Background
from podium.system.interrupts import signals_interrupt

_SHORTEST_PAUSE = 0.2
"""Minimum seconds between checks; a cluster that answers slowly is asked less often."""

_LONGEST_PAUSE = 2.0
"""Maximum seconds between checks."""

ObjectKey = tuple[str, str]


class Session:
    """A cluster that this process opens when it is needed, and keeps open while something it began
    runs there.

    Args:
        cluster: The cluster, if it is open already.
    """

    def __init__(self, spec: ClusterSpec, cluster: Cluster | None = None) -> None:
        self.spec = spec
        self._cluster = cluster
        self._background: Background | None = None
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> Self:
        """Keep the cluster open up to the block's end, also after what ran there has ended."""
        with self._lock:
            self._users += 1
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            used = self._users
        if not used:
            self.close()

    @property
    def cluster(self) -> Cluster:
        """The cluster, open."""
        if self._cluster is None:
            self._cluster = self.spec.open()
        return self._cluster

    def keep_open(self, kind: str, name: str) -> None:
        """Let an object run in the background; jobs on this machine are stopped when Python
        exits."""
        cluster = self.cluster
        if cluster.outlives_client(kind):
            return

        def release() -> None:
            cluster.join(kind, name)
            with self._lock:
                own = self._cluster is cluster and not self._users
                if own:
                    self._cluster = None
            if own:
                atexit.unregister(cluster.close)
                cluster.close()

        atexit.register(cluster.close)
        self._background = Background(release, f"podium-{kind}-{name}")
        self._background.start()

    def join(self) -> None:
        """Wait until nothing that runs in the background of this process is left."""
        if self._background:
            self._background.join()

    def close(self) -> None:
        """Stop the jobs of this process and release the cluster, which can be opened again."""
        with self._lock:
            cluster, self._cluster = self._cluster, None
        if cluster:
            atexit.unregister(cluster.close)
            cluster.close()
        self.join()


class Launched(ABC):
    """An object of a cluster that is running or has ended; a with block of it ends with close().

    Args:
        session: The cluster, and how long this process keeps it open.
        kind: ``Experiment`` or a kind of job.
    """

    def __init__(self, session: Session, kind: str, name: str) -> None:
        self.session = session
        self.kind, self.name = kind, name

    def __enter__(self) -> Self:
        self.session.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.session.__exit__(*error)

    @property
    def cluster(self) -> Cluster:
        """The cluster, open."""
        return self.session.cluster

    def wait(self) -> Self:
        """Show its progress until it has ended: a table in a notebook's cell, lines anywhere else.

        Ctrl-C, or the stop button of a notebook, stops it on this machine; on Kubernetes it goes on
        by itself.

        Raises:
            Failed: It failed.
        """
        with self:
            try:
                with signals_interrupt(), LiveCell() as cell, doing(self._sign_of_life):
                    follow(self.cluster, [(self.kind, self.name)], lambda: self._show(cell))
            except KeyboardInterrupt:
                if not self.cluster.outlives_client(self.kind):
                    with suppress(PodiumError):
                        self.stop()
                    self._say_stopped()
                raise
        self.check()
        return self

    @abstractmethod
    def check(self) -> None:
        """Raise Failed if it failed."""

    @abstractmethod
    def _show(self, cell: LiveCell) -> None:
        """Show its progress, several times a second."""

    @abstractmethod
    def _sign_of_life(self) -> str:
        """Say how far it is, where nothing was shown for long; empty for nothing."""

    def _say_stopped(self) -> None:  # noqa: B027  nothing to say by default
        """Print how to continue after Ctrl-C."""

    def stop(self) -> Self:
        """Stop it; its record and output stay."""
        self.cluster.stop(self.kind, self.name)
        self.session.join()
        return self

    def delete(self) -> None:
        """Stop it and delete it with its output; its models stay."""
        self.cluster.delete(self.kind, self.name)
        self.close()

    def close(self) -> None:
        """Stop the jobs of this process and release the cluster; the object stays usable."""
        self.session.close()


def follow(
    cluster: Cluster,
    objects: Sequence[ObjectKey],
    look: Callable[[], None],
    finish: Callable[[], None] = lambda: None,
) -> None:
    """Wait until all objects have ended.

    Args:
        objects: Objects to wait for.
        look: Called at the start, several times a second, and at the end.
        finish: Called before the last call of look.

    Raises:
        Failed: One can never start, or was deleted.
        Unavailable: The cluster does not answer.
    """
    woken = threading.Event()
    watches = [_Watch(cluster, key, woken) for key in objects]
    while True:
        ended, started = all(watch.thread.join(0) for watch in watches), time.monotonic()
        if ended:
            finish()
        with suppress(NotFound, Unavailable, Denied):  # the watch decides what that means
            look()
        if ended:
            break
        woken.wait(min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, 20 * (time.monotonic() - started))))
        woken.clear()
    for watch in watches:
        watch.check()


class _Watch:
    """Waits for the end of an object in a thread: only the cluster may know that it can never
    start."""

    def __init__(self, cluster: Cluster, key: ObjectKey, woken: threading.Event) -> None:
        self._cluster, self._key, self._woken = cluster, key, woken
        self._finished = False
        self._error: Exception | None = None
        self.thread = Background(self._run, f"podium-watch-{key[1]}")
        self.thread.start()

    def _run(self) -> None:
        try:
            for resource in self._cluster.watch(*self._key):
                self._finished = resource.state.finished
            if self._key[0] == "Experiment":  # trials may end after it; a job's Workers may never
                self._cluster.join(*self._key)
        except Exception as error:
            self._error = error
        finally:
            self._woken.set()

    def check(self) -> None:
        if self._error:
            raise self._error
        if not self._finished:
            raise Failed(
                f"{' '.join(self._key)} was deleted while it ran",
                "another command or user deleted it",
            )

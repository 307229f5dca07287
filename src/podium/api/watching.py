"""Waiting for objects to end, and looking at them meanwhile."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from podium.cluster.base import Cluster
from podium.errors import Denied, Failed, NotFound, PodiumError, Unavailable
from podium.interrupts import Background
from podium.manifests.resource import Resource

LOOK = 0.2
"""Seconds between looks at least; a cluster that answers slowly is asked less often."""

LONGEST_PAUSE = 2.0
"""Seconds between looks at most."""

ObjectKey = tuple[str, str]
"""Kind and name."""


def follow(
    cluster: Cluster, objects: Sequence[ObjectKey], look: Callable[[], None], finish: Callable[[], None] = lambda: None
) -> None:
    """Wait until all objects have ended.

    Args:
        cluster: Runs them.
        objects: What to wait for.
        look: Called at the start, several times a second, and at the end.
        finish: Called before the last look.

    Raises:
        Failed: One can never start, or was deleted.
        Unavailable: The cluster does not answer.
    """
    woken = threading.Event()
    watches = [Watch(cluster, key, woken) for key in objects]
    while True:
        ended, started = all(watch.thread.join(0) for watch in watches), time.monotonic()
        if ended:
            finish()
        with suppress(NotFound, Unavailable, Denied):  # the watch decides what that means
            look()
        if ended:
            break
        woken.wait(min(LONGEST_PAUSE, max(LOOK, 20 * (time.monotonic() - started))))
        woken.clear()
    for watch in watches:
        watch.check()


class Watch:
    """Waits for the end of an object in a thread: the cluster may have to tell that it can never start."""

    def __init__(self, cluster: Cluster, key: ObjectKey, woken: threading.Event) -> None:
        self._cluster, self._key, self._woken = cluster, key, woken
        self._finished = False
        self._error: PodiumError | None = None
        self.thread = Background(self._run, f"podium-watch-{key[1]}")
        self.thread.start()

    def _run(self) -> None:
        try:
            for manifest in self._cluster.watch(*self._key):
                self._finished = Resource.parse(manifest).state.finished
            if self._key[0] == "Experiment":  # trials may end after it; a job's Workers may never
                self._cluster.join(*self._key)
        except PodiumError as error:
            self._error = error
        self._woken.set()

    def check(self) -> None:
        """Raise what ended the watch before the object ended."""
        if self._error:
            raise self._error
        if not self._finished:
            raise Failed(f"{' '.join(self._key)} was deleted while it ran", "another command or user deleted it")

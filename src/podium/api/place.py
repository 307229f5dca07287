"""Where a sweep or a training runs, and its cluster as long as this process has it open."""

import atexit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from podium.cluster import traits_of
from podium.cluster.base import Cluster
from podium.interrupts import Background
from podium.settings import Settings
from podium.sweeps import connect


@dataclass(frozen=True, kw_only=True)
class Place:
    """A cluster, and what only processes on this machine need."""

    url: str
    images: Mapping[str, str | Path] | None = None
    entrypoints: Mapping[str, Sequence[str]] | None = None
    fork_server: bool = True

    def __post_init__(self) -> None:
        traits_of(self.url)

    @classmethod
    def of(cls, cluster: "str | Path | Place | None", **processes: Any) -> "Place":
        """Return the place that a user names: a URL, a directory, or None for the local cluster of PODIUM_HOME."""
        if isinstance(cluster, Place):
            return cluster
        text = str(cluster or Settings.from_environment().cluster)
        url = text if "://" in text or text.startswith("local:") else f"local://{Path(text).absolute()}"
        return cls(url=url, **processes)

    def open(self) -> Cluster:
        """Open the cluster.

        Raises:
            InvalidInput: There is no such kind of cluster, or one that pulls its images is given directories for them.
        """
        return connect(self.url, self.images, self.entrypoints, self.fork_server)


class Session:
    """A cluster that this process opens when it is needed, and keeps open while something it began runs there.

    Args:
        place: Where it is.
        cluster: It, if it is open already.
    """

    def __init__(self, place: Place, cluster: Cluster | None = None) -> None:
        self.place = place
        self._cluster = cluster
        self._background: Background | None = None
        self._lock = Lock()

    @property
    def cluster(self) -> Cluster:
        """The cluster, open."""
        if self._cluster is None:
            self._cluster = self.place.open()
        return self._cluster

    def keep_open(self, kind: str, name: str) -> None:
        """Let an object run in the background; what runs on this machine is stopped when Python exits."""
        cluster = self.cluster
        if cluster.traits.outlives_client:
            return

        def release() -> None:
            cluster.join(kind, name)
            with self._lock:
                own, self._cluster = self._cluster is cluster, None if self._cluster is cluster else self._cluster
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
        """Stop what still runs in this process and release the cluster, which can be opened again."""
        with self._lock:
            cluster, self._cluster = self._cluster, None
        if cluster:
            atexit.unregister(cluster.close)
            cluster.close()
        self.join()

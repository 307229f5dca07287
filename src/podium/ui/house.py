"""Sources of the pages: the runs of this machine, a cluster, a registry, and a server of Kubeflow
Pipelines."""

import threading
from collections.abc import Callable
from functools import lru_cache

import podium
from podium.api.cluster_spec import ClusterSpec
from podium.cluster.base import Cluster
from podium.cluster.traits import traits_of
from podium.kfp.client import Server
from podium.models import open_registry
from podium.ui.dashboard import Dashboards
from podium.ui.models import FollowedRegistry
from podium.ui.sweeps import FollowedSweep

MOST_OPEN = 32
"""Clusters of runs, and sweeps, that are kept open."""


class House:
    """Sources of the pages. Safe to use from several threads.

    Args:
        spec: The cluster whose Experiments and jobs are shown; each run on this machine has its own
            besides.
        storage: URL of the registry; that of PODIUM_HOME if None.
        server: Opens the server whose runs are shown too; None shows none.
    """

    def __init__(
        self, spec: ClusterSpec, storage: str | None, server: Callable[[], Server] | None
    ) -> None:
        self.spec = spec
        self.registry = FollowedRegistry(open_registry(storage))
        self.dashboards = Dashboards()
        self._server, self._lock = server, threading.RLock()
        self._cluster_at = lru_cache(MOST_OPEN)(lambda url: ClusterSpec.of(url).open())
        self._sweep_at = lru_cache(MOST_OPEN)(
            lambda url, name: FollowedSweep(self._cluster_at(url), name)
        )

    @property
    def is_here(self) -> bool:
        """Whether everything is read from files of this machine, which is cheap for everybody."""
        return traits_of(self.spec.url).shares_files and self._server is None

    @property
    def server(self) -> Server | None:
        """The server, open."""
        return self._server() if self._server else None

    def url(self, run: str = "") -> str:
        """Return the URL of a run's own cluster, or of the one whose Experiments are shown."""
        return f"local://{podium.runs()[run].record.cluster.absolute()}" if run else self.spec.url

    def cluster(self, run: str = "") -> Cluster:
        """Return a cluster, open."""
        with self._lock:
            return self._cluster_at(self.url(run))

    def sweep(self, name: str, run: str = "") -> FollowedSweep:
        """Return a sweep of a cluster, whether it exists or not."""
        with self._lock:
            return self._sweep_at(self.url(run), name)

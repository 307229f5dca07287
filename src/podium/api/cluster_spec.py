"""Which cluster runs a sweep, a training or a job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.cluster.base import Cluster
from podium.cluster.local.supplies import Supplies
from podium.cluster.traits import traits_of
from podium.sweeps import connect
from podium.system.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """URL of a cluster, and options for processes on this machine."""

    url: str
    images: Mapping[str, str | Path] | None = None
    entrypoints: Mapping[str, Sequence[str]] | None = None
    fork_server: bool = True
    supplies: Supplies | None = None

    def __post_init__(self) -> None:
        traits_of(self.url)

    @classmethod
    def of(cls, cluster: "str | Path | ClusterSpec | None", **processes: Any) -> "ClusterSpec":
        """Return the cluster that a user names: a URL, a directory, or None for the local cluster
        of PODIUM_HOME."""
        if isinstance(cluster, ClusterSpec):
            return cluster
        text = str(cluster or Settings.from_environment().cluster)
        url = (
            text
            if "://" in text or text.startswith("local:")
            else f"local://{Path(text).absolute()}"
        )
        return cls(url=url, **processes)

    def open(self) -> Cluster:
        """Open the cluster.

        Raises:
            InvalidInput: There is no such kind of cluster, or one that pulls its images is given
                directories for them.
        """
        return connect(
            self.url, self.images, self.entrypoints, self.fork_server, supplies=self.supplies
        )

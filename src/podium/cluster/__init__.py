"""Clusters that run jobs and Experiments: a Kubernetes namespace or this machine, behind one
interface."""

from typing import TYPE_CHECKING

from podium.cluster.traits import traits_of

# The launcher of processes is in this package, and starts without what a cluster needs.
if TYPE_CHECKING:
    from podium.cluster.base import Cluster


def connect(url: str) -> "Cluster":
    """Open a cluster.

    Args:
        url: ``kubernetes://namespace`` (``kubernetes://`` for the current one) or ``local:///dir``.

    Raises:
        InvalidInput: No cluster has the scheme.
    """
    if not traits_of(url).shares_files:
        from podium.cluster.kubernetes.cluster import KubernetesCluster

        return KubernetesCluster(url)
    from podium.cluster.local.cluster import LocalCluster, directory_of

    return LocalCluster(directory_of(url))

"""Where jobs and experiments run: a Kubernetes namespace or this machine, behind one interface."""

from podium.cluster.base import Cluster
from podium.errors import InvalidInput

__all__ = ["Cluster", "connect"]


def connect(url: str) -> Cluster:
    """Open a cluster.

    Args:
        url: ``kubernetes://namespace`` (``kubernetes://`` for the current one) or ``local:///dir``.

    Raises:
        InvalidInput: The scheme is unknown.
    """
    scheme = url.partition("://")[0]
    if scheme == "kubernetes":
        from podium.cluster.kubernetes import KubernetesCluster

        return KubernetesCluster(url)
    raise InvalidInput(f"no cluster has the scheme {scheme!r}: {url}", "use kubernetes://namespace or local:///dir")

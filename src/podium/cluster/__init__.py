"""Where jobs and experiments run: a Kubernetes namespace or this machine, behind one interface."""

from podium.cluster.base import Cluster

__all__ = ["Cluster", "connect"]


def connect(url: str) -> Cluster:
    """Open a cluster.

    Args:
        url: ``kubernetes://namespace`` (``kubernetes://`` for the current one) or ``local:///dir``.

    Raises:
        InvalidInput: The scheme is unknown.
    """
    raise NotImplementedError

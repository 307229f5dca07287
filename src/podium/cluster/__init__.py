"""Where jobs and experiments run: a Kubernetes namespace or this machine, behind one interface."""

from collections.abc import Mapping
from pathlib import Path

from podium.cluster.base import Cluster
from podium.errors import InvalidInput

__all__ = ["Cluster", "check_url", "connect"]

SCHEMES = ("kubernetes", "local")


def check_url(url: str) -> None:
    """Refuse a URL that cannot be a cluster's, without looking for the cluster.

    Raises:
        InvalidInput: The scheme is unknown.
    """
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in SCHEMES:
        raise InvalidInput(f"no cluster has the scheme {scheme!r}: {url}", "use kubernetes://namespace or local:///dir")


def connect(url: str, images: Mapping[str, str | Path] | None = None) -> Cluster:
    """Open a cluster.

    Args:
        url: ``kubernetes://namespace`` (``kubernetes://`` for the current one) or ``local:///dir``.
        images: Directories that stand for container images on this machine; any other image is this Python. A
            Kubernetes cluster has no use for it.

    Raises:
        InvalidInput: The scheme is unknown.
    """
    check_url(url)
    if url.startswith("kubernetes:"):
        from podium.cluster.kubernetes import KubernetesCluster

        return KubernetesCluster(url)
    from podium.local.cluster import open_local

    return open_local(url, images=images)

"""Where jobs and experiments run: a Kubernetes namespace or this machine, behind one interface."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from podium.errors import InvalidInput

if TYPE_CHECKING:  # the launcher of processes is in this package, and starts without what a cluster needs
    from podium.cluster.base import Cluster


SCHEMES = ("kubernetes", "local")


def check_url(url: str) -> None:
    """Refuse a URL that cannot be a cluster's, without looking for the cluster.

    Raises:
        InvalidInput: The scheme is unknown.
    """
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in SCHEMES:
        raise InvalidInput(f"no cluster has the scheme {scheme!r}: {url}", "use kubernetes://namespace or local:///dir")


def connect(
    url: str,
    images: Mapping[str, str | Path] | None = None,
    entrypoints: Mapping[str, Sequence[str]] | None = None,
) -> "Cluster":
    """Open a cluster.

    Args:
        url: ``kubernetes://namespace`` (``kubernetes://`` for the current one) or ``local:///dir``.
        images: Directories that stand for container images on this machine; any other image is this Python.
        entrypoints: Entrypoints of images on this machine, for containers without a command.

    Raises:
        InvalidInput: The scheme is unknown, or a Kubernetes cluster, which pulls its images, is given any of them.
    """
    check_url(url)
    if url.startswith("kubernetes:"):
        given = [*(images or {}), *(entrypoints or {})]
        if given:
            message = f"{url} pulls its images: no directory and no entrypoint can stand for {given[0]}"
            raise InvalidInput(message, "build the image and push it where the cluster pulls from")
        from podium.cluster.kubernetes.cluster import KubernetesCluster

        return KubernetesCluster(url)
    from podium.cluster.local.cluster import LocalCluster, directory_of

    return LocalCluster(directory_of(url), images=images, entrypoints=entrypoints)

"""Clusters that run jobs and Experiments: a Kubernetes namespace or this machine, behind one
interface."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from podium.cluster.traits import traits_of
from podium.errors import InvalidInput

# The launcher of processes is in this package, and starts without what a cluster needs.
if TYPE_CHECKING:
    from podium.cluster.base import Cluster


def refuse_images(
    url: str, images: Mapping[str, object] | None, entrypoints: Mapping[str, object] | None
) -> None:
    """Refuse replacements of images where a cluster pulls its own.

    Raises:
        InvalidInput: Something is given.
    """
    if given := [*(images or {}), *(entrypoints or {})]:
        message = f"{url} pulls its images: no directory and no entrypoint can stand for {given[0]}"
        raise InvalidInput(message, "build the image and push it where the cluster pulls from")


def connect(
    url: str,
    images: Mapping[str, str | Path] | None = None,
    entrypoints: Mapping[str, Sequence[str]] | None = None,
) -> "Cluster":
    """Open a cluster.

    Args:
        url: ``kubernetes://namespace`` (``kubernetes://`` for the current one) or ``local:///dir``.
        images: Directories that stand for container images on this machine; any other image is this
            Python.
        entrypoints: Entrypoints of images on this machine, for containers without a command.

    Raises:
        InvalidInput: No cluster has the scheme, or a Kubernetes cluster, which pulls its images, is
            given any of them.
    """
    if not traits_of(url).shares_files:
        refuse_images(url, images, entrypoints)
        from podium.cluster.kubernetes.cluster import KubernetesCluster

        return KubernetesCluster(url)
    from podium.cluster.local.cluster import LocalCluster, directory_of

    return LocalCluster(directory_of(url), images=images, entrypoints=entrypoints)

"""Clusters that run jobs and Experiments: a Kubernetes namespace or this machine, behind one
interface."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from podium.errors import InvalidInput

if (
    TYPE_CHECKING
):  # the launcher of processes is in this package, and starts without what a cluster needs
    from podium.cluster.base import Cluster


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Properties of a cluster that callers may rely on without asking which kind they hold."""

    shares_files: bool
    """Whether its jobs see the files of this machine, and its Python replaces images."""

    outlives_client: bool
    """Whether objects survive close() and the process that created them."""

    keeps_logs: bool
    """Logs stay when a job has ended, and when its pods are gone."""

    collects_garbage: bool
    """An object goes with its owner."""


TRAITS = {
    "kubernetes": Traits(
        shares_files=False, outlives_client=True, keeps_logs=False, collects_garbage=True
    ),
    "local": Traits(
        shares_files=True, outlives_client=False, keeps_logs=True, collects_garbage=False
    ),
}
"""By scheme of the URL."""


def traits_of(url: str) -> Traits:
    """Return the traits of the cluster at a URL, without looking for it.

    Raises:
        InvalidInput: No cluster has the URL's scheme.
    """
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in TRAITS:
        raise InvalidInput(
            f"no cluster has the scheme {scheme!r}: {url}",
            "use kubernetes://namespace or local:///dir",
        )
    return TRAITS[scheme]


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

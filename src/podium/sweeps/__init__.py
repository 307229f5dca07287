"""The trial loop: runs an Experiment's trials by Katib's rules."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from podium import cluster
from podium.cluster.base import Cluster


def connect(
    url: str,
    images: Mapping[str, str | Path] | None = None,
    entrypoints: Mapping[str, Sequence[str]] | None = None,
    fork_server: bool = True,
) -> Cluster:
    """Open a cluster that runs Experiments: a namespace with Katib, or this machine with podium's own engine.

    Args:
        url: ``kubernetes://namespace`` or ``local:///dir``.
        images: As ``podium.cluster.connect`` takes them.
        entrypoints: As ``podium.cluster.connect`` takes them.
        fork_server: Whether ``python -m`` may start from a warm process on this machine.

    Raises:
        InvalidInput: As for ``podium.cluster.connect``.
    """
    if cluster.traits_of(url).runs_experiments:
        return cluster.connect(url, images, entrypoints)
    from podium.cluster.local.cluster import directory_of
    from podium.sweeps.local import LocalSweeps

    return LocalSweeps(directory_of(url), images=images, entrypoints=entrypoints, fork_server=fork_server)

"""The trial loop: runs an Experiment's trials by Katib's rules."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from podium import cluster
from podium.cluster.base import Cluster
from podium.cluster.local.supplies import Supplies
from podium.errors import InvalidInput


def connect(
    url: str,
    images: Mapping[str, str | Path] | None = None,
    entrypoints: Mapping[str, Sequence[str]] | None = None,
    fork_server: bool = True,
    state: str = "",
    supplies: Supplies | None = None,
) -> Cluster:
    """Open a cluster that runs Experiments: by itself, or by this process.

    Args:
        url: ``kubernetes://namespace``, with ``?engine=here`` if this process is to run them even
            though the cluster would, or ``local:///dir``.
        images: See ``podium.cluster.connect``.
        entrypoints: See ``podium.cluster.connect``.
        fork_server: Whether ``python -m`` may start from a warm process on this machine.
        state: URL of a copy of what this process keeps of Experiments on a cluster; empty for none.
        supplies: What stands in for volumes, Secrets and ConfigMaps on this machine.

    Raises:
        InvalidInput: As for ``podium.cluster.connect``.
    """
    if not cluster.traits_of(url).shares_files:
        cluster.refuse_images(url, images, entrypoints)
        if supplies and (given := supplies.named):
            problem = f"{url} has volumes, Secrets and ConfigMaps of its own, not {given[0]}"
            raise InvalidInput(problem, "create it in the namespace with kubectl")
        from podium.sweeps.namespace import NamespaceSweeps

        return NamespaceSweeps(url, state)
    from podium.cluster.local.cluster import directory_of
    from podium.sweeps.local import LocalSweeps

    return LocalSweeps(
        directory_of(url),
        images=images,
        entrypoints=entrypoints,
        fork_server=fork_server,
        supplies=supplies,
    )

"""The trial loop: runs an Experiment's trials by Katib's rules."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from podium.cluster.base import Cluster
from podium.cluster.local.supplies import Supplies
from podium.cluster.traits import traits_of
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
        images: Directories that stand for container images on this machine; any other image is this
            Python.
        entrypoints: Entrypoints of images on this machine, for containers without a command.
        fork_server: Whether ``python -m`` may start from a warm process on this machine.
        state: URL of a copy of what this process keeps of Experiments on a cluster; empty for none.
        supplies: What stands in for volumes, Secrets and ConfigMaps on this machine.

    Raises:
        InvalidInput: No cluster has the scheme, or a Kubernetes cluster, which has images and
            volumes of its own, is given any.
    """
    if not traits_of(url).shares_files:
        if named := [*(images or {}), *(entrypoints or {})]:
            problem = (
                f"{url} pulls its images: no directory and no entrypoint can stand for {named[0]}"
            )
            raise InvalidInput(problem, "build the image and push it where the cluster pulls from")
        if supplies and (supplied := supplies.named):
            problem = f"{url} has volumes, Secrets and ConfigMaps of its own, not {supplied[0]}"
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

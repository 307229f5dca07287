"""What `podium job` and `podium experiment` share: which cluster, a free name on it, and what to type next."""

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from podium.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from podium.cluster.base import Cluster

F = TypeVar("F", bound=Callable[..., Any])

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def cluster_options(command: F) -> F:
    """Add --cluster and --dir; the command gets the URL as ``url``."""

    @click.option("--cluster", metavar="URL", help="kubernetes://NAMESPACE or local:///DIR; --dir if missing.")
    @click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path),
        help="Directory of the local cluster; $PODIUM_HOME/cluster if missing.",
    )
    @functools.wraps(command)
    def with_url(*args: Any, cluster: str | None, directory: Path | None, **options: Any) -> Any:
        if cluster is not None and directory is not None:
            raise InvalidInput("--cluster and --dir name two clusters", "give one of them")
        local = _default_url() if directory is None else f"local://{directory.absolute()}"
        return command(*args, url=local if cluster is None else cluster, **options)

    return with_url  # type: ignore[return-value]


def process_options(*aliases: str) -> Callable[[F], F]:
    """Add what only processes on this machine need: --image-dir, also under other names, and --fork-server."""
    images = click.option(
        "--image-dir",
        *aliases,
        "images",
        metavar="IMAGE=DIR",
        multiple=True,
        help="Directory that stands for an image here (its bin/ first on PATH); any other image is this Python.",
    )
    fork_server = click.option(
        "--fork-server/--no-fork-server", default=True, help="Start python -m from a warm process, on this machine."
    )
    return lambda command: images(fork_server(command))


def open_cluster(url: str, images: tuple[str, ...] = (), fork_server: bool = True) -> "Cluster":
    """Open the cluster the options name.

    Raises:
        InvalidInput: There is no such kind of cluster, or an image is not written IMAGE=DIR.
    """
    from podium.sweeps import connect

    for text in images:
        if not all(text.partition("=")[::2]):
            rule = f"`--image-dir IMAGE=DIR` must hold, but got {text!r}"
            raise InvalidInput(rule, "for example --image-dir trainer:1=.")
    mapped: dict[str, str | Path] = dict(text.partition("=")[::2] for text in images)
    return connect(url, mapped, fork_server)


def free_name(cluster: "Cluster", kind: str, name: str) -> str:
    """Return the name, with a number behind it if an object of the cluster has it."""
    free, count = name, 1
    while _exists(cluster, kind, free):
        count += 1
        free = f"{name[: 40 - len(str(count)) - 1]}-{count}"
    return free


def next_command(words: str, cluster: "Cluster") -> str:
    """Return what to type about an object of this cluster."""
    return f"podium {words}" + ("" if cluster.url == _default_url() else f" --cluster {shlex.quote(cluster.url)}")


def _default_url() -> str:
    from podium.settings import Settings

    return f"local://{Settings.from_environment().cluster}"


def _exists(cluster: "Cluster", kind: str, name: str) -> bool:
    try:
        cluster.get(kind, name)
    except NotFound:
        return False
    return True

"""`podium mcp`."""

from typing import TYPE_CHECKING

import click

from podium.cli.options import STORAGE, cluster_options
from podium.errors import PodiumError
from podium.heartbeat import paused

if TYPE_CHECKING:
    from podium.api.cluster_spec import ClusterSpec


@click.command()
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Offer the tools that run, tune, promote, roll back and stop too.",
)
@click.option("--storage", envvar=STORAGE, show_envvar=True, metavar="URL", help="Of the registry.")
@cluster_options
def mcp(spec: "ClusterSpec", storage: str | None, allow_changes: bool) -> None:
    """Offer runs, sweeps and models to a language model's program: a server of the Model Context
    Protocol on stdio.

    A program such as an editor or an agent starts it, and speaks to it over stdin and stdout. It
    can look at the runs of this machine, the sweeps of a cluster and a registry: those of
    PODIUM_HOME unless others are named. Only with --allow-changes it can begin runs and sweeps,
    stop them, promote and roll back.

    \b
    Examples:
      podium mcp
      podium mcp --allow-changes --storage s3://models/podium
    """
    try:
        from podium.mcp.server import make_server
    except ImportError as error:
        raise PodiumError(
            f"podium mcp needs {str(error.name).partition('.')[0]}", "pip install 'podium-ml[mcp]'"
        ) from None
    with paused():
        make_server(spec, storage, allow_changes=allow_changes).run("stdio")

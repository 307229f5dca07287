"""`podium ui`."""

import secrets
import webbrowser
from typing import TYPE_CHECKING

import click

from podium.cli.options import (
    ServerOptions,
    authority,
    cluster_options,
    listen,
    log_no_cancelled,
    storage_option,
)
from podium.display.terminal import echo, paused
from podium.errors import PodiumError
from podium.system.background import Background
from podium.system.interrupts import hangup_terminates

if TYPE_CHECKING:
    from podium.api.cluster_spec import ClusterSpec


@click.command()
@cluster_options
@storage_option
@click.option(
    "--server",
    "host",
    metavar="URL",
    help="Kubeflow Pipelines server whose runs are shown as well.",
)
@click.option("--namespace", help="Namespace on a multi-user server.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option("--open/--no-open", "browse", default=False, help="Open it in a browser.")
def ui(
    spec: "ClusterSpec",
    storage: str | None,
    host: str | None,
    namespace: str | None,
    address: str,
    port: int,
    browse: bool,
) -> None:
    """Show runs, sweeps, jobs and models in a browser, as they change, until stopped.

    It shows the runs of this machine, the Experiments and jobs of a cluster, and a registry: those
    of PODIUM_HOME unless others are named. The address it prints holds a token, without which
    nobody sees or changes anything.

    \b
    Examples:
      podium ui
      podium ui --open
      podium ui --cluster kubernetes://team --storage s3://models --server http://127.0.0.1:8888
    """
    try:
        import uvicorn

        from podium.serving.headers import LimitedProtocol
        from podium.ui.app import Pages
    except ImportError as error:
        raise PodiumError(f"podium ui needs {error.name}", "pip install 'podium-ml[ui]'") from None
    from podium.ui.sources import Sources
    from podium.ui.sweeps import load_figures

    server = ServerOptions(host=host, namespace=namespace)
    token = secrets.token_urlsafe(24)
    sources = Sources(spec, storage, server.open if host else None)
    app = Pages(sources, token).app
    config = uvicorn.Config(
        app, log_level="warning", http=LimitedProtocol, timeout_graceful_shutdown=1
    )
    listening = listen(address, port)  # who reads the next line may connect at once
    url = f"http://{authority(address, listening.getsockname()[1])}/?token={token}"
    echo(f"look at {url}", err=True)
    if browse:
        webbrowser.open(url)
    Background(load_figures, "podium-figures").start()
    log_no_cancelled()
    try:
        with paused(), hangup_terminates():
            uvicorn.Server(config).run(sockets=[listening])
    finally:
        sources.dashboards.close()

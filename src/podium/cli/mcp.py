"""`podium mcp`."""

import json
import secrets
from typing import TYPE_CHECKING

import click

from podium.cli.options import (
    cluster_options,
    listen,
    log_no_cancelled,
    storage_option,
    token_option,
)
from podium.display.terminal import echo, paused
from podium.errors import InvalidInput, PodiumError
from podium.system.interrupts import hangup_terminates

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from podium.api.cluster_spec import ClusterSpec

_LOOPBACK = "127.0.0.1"


@click.command()
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Also offer the tools that run, tune, promote, roll back and stop.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Serve HTTP on this port of 127.0.0.1 instead of stdin; 0 picks a free one.",
)
@token_option("File with the bearer token that HTTP clients send; by default a new one is printed.")
@storage_option
@cluster_options
def mcp(
    spec: "ClusterSpec",
    storage: str | None,
    allow_changes: bool,
    port: int | None,
    token: str | None,
) -> None:
    """Offer runs, sweeps and models to a language model, as a server of the Model Context Protocol.

    An editor or an agent starts it and talks to it over stdin and stdout. With --port it serves
    HTTP clients, with a token that it prints. It reads the runs of this machine, the sweeps of a
    cluster and a registry, by default those of PODIUM_HOME. Only with --allow-changes can it start
    runs and sweeps, stop them, promote and roll back, each also as a dry run.

    \b
    Examples:
      podium mcp
      podium mcp --allow-changes --storage s3://models/podium
      podium mcp --port 8765
    """
    try:
        from podium.mcp.server import make_server
    except ImportError as error:
        raise PodiumError(
            f"podium mcp needs {str(error.name).partition('.')[0]}", "pip install 'podium-ml[mcp]'"
        ) from None
    if token and port is None:
        raise InvalidInput("--token-file is for HTTP clients", "--port 8765")
    server = make_server(spec, storage, allow_changes=allow_changes)
    with paused():
        if port is None:
            server.run("stdio")
        else:
            _serve(server, port, token)


def _serve(server: "MCPServer", port: int, given: str | None) -> None:
    import uvicorn

    from podium.mcp.server import Guarded

    token = given or secrets.token_urlsafe(24)
    listening = listen(_LOOPBACK, port)  # who reads the next line may connect at once
    url = f"http://{_LOOPBACK}:{listening.getsockname()[1]}/mcp"
    headers = {"Authorization": f"Bearer {'...' if given else token}"}
    echo(json.dumps({"mcpServers": {"podium": {"url": url, "headers": headers}}}), err=True)
    app = Guarded(server.streamable_http_app(host=_LOOPBACK), token)
    # Unlike httptools, which it would take where podium serve is installed, h11 limits headers.
    config = uvicorn.Config(app, log_level="warning", http="h11", timeout_graceful_shutdown=1)
    log_no_cancelled()
    with hangup_terminates():
        uvicorn.Server(config).run(sockets=[listening])

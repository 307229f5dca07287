"""`podium mcp`."""

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.options import STORAGE, cluster_options, listen, read_token
from podium.display.terminal import echo, paused
from podium.errors import InvalidInput, PodiumError

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
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the bearer token that HTTP clients send; by default a new one is printed.",
)
@click.option(
    "--storage", envvar=STORAGE, show_envvar=True, metavar="URL", help="URL of the registry."
)
@cluster_options
def mcp(
    spec: "ClusterSpec",
    storage: str | None,
    allow_changes: bool,
    port: int | None,
    token_file: Path | None,
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
    if token_file and port is None:
        raise InvalidInput("--token-file is for HTTP clients", "--port 8765")
    server = make_server(spec, storage, allow_changes=allow_changes)
    with paused():
        if port is None:
            server.run("stdio")
        else:
            _serve(server, port, token_file)


def _serve(server: "MCPServer", port: int, token_file: Path | None) -> None:
    import uvicorn

    from podium.mcp.server import Guarded

    token = read_token(token_file) if token_file else secrets.token_urlsafe(24)
    listening = listen(_LOOPBACK, port)  # who reads the next line may connect at once
    url = f"http://{_LOOPBACK}:{listening.getsockname()[1]}/mcp"
    headers = {"Authorization": f"Bearer {'...' if token_file else token}"}
    echo(json.dumps({"mcpServers": {"podium": {"url": url, "headers": headers}}}), err=True)
    app = Guarded(server.streamable_http_app(host=_LOOPBACK), token)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])

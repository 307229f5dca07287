"""Options of the commands that talk to a Kubeflow Pipelines server."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from podium.documents import read_text
from podium.errors import require

if TYPE_CHECKING:
    from podium.kfp.client import Server

Command = Callable[..., Any]
GROUP = "podium"
"""KFP experiment that runs are listed under unless told otherwise."""


def server_options(command: Command) -> Command:
    """Add --host, --namespace and --token-file."""
    for option in (
        click.option(
            "--token-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="File with a bearer token; else what the kfp client finds.",
        ),
        click.option("--namespace", help="Namespace on a multi-user server."),
        click.option("--host", envvar="KF_PIPELINES_ENDPOINT", show_envvar=True, help="Address of the server."),
    ):
        command = option(command)
    return command


def open_server(host: str | None, namespace: str | None, token_file: Path | None) -> "Server":
    """Connect as the options say."""
    from podium.kfp.client import Server

    token = read_text(token_file).strip() if token_file else None
    require(token is None or (token.isascii() and token.isprintable()), "a token is one line of ASCII",
            token_file=str(token_file))  # fmt: skip
    return Server(host, namespace, token)

"""`podium models metrics`."""

import threading
from typing import TYPE_CHECKING

import click

from podium.cli.options import open_registry
from podium.display.terminal import echo, paused
from podium.system.settings import STORAGE

if TYPE_CHECKING:
    from podium.models import Registry


@click.command()
@click.option(
    "--storage", envvar=STORAGE, show_envvar=True, help="As for the other commands of models."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Serve /metrics and /healthz on this port.",
)
def metrics(storage: str | None, port: int | None) -> None:
    """Show when each model's champion was promoted, for Prometheus: once, or on a port.

    \b
    Examples:
      podium models metrics
      podium models metrics --storage s3://models/podium --port 8080
    """
    from podium.system.exposition import serve

    registry = open_registry(storage)
    if port is None:
        echo(champions(registry), nl=False)
        return
    server = serve(port, lambda: champions(registry))
    echo(f"listening on port {server.server_address[1]}")
    with paused():
        threading.Event().wait()


def champions(registry: "Registry") -> str:
    """Return since when each model of a registry has its champion, 0 where it has none, in
    Prometheus' text format."""
    from podium.models import CHAMPION
    from podium.models.document import moment
    from podium.system.exposition import metric

    since = {}
    for model in registry.select():
        held = model.aliases().get(CHAMPION)
        there = held is not None and model.ledger.exists(held.version)
        since[model.name] = moment(held.time).timestamp() if held and there else 0
    description = (
        "When the champion became it, by promotion or rollback; 0 for a model without one."
    )
    return metric("podium_champion_since_timestamp_seconds", description, since, "model")

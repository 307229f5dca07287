"""`podium reap`."""

from dataclasses import asdict

import click

from podium.cli.options import json_option
from podium.display.terminal import echo, echo_error, output, paused
from podium.errors import InvalidInput


@click.command()
@click.option(
    "--cluster",
    default="kubernetes://",
    show_default=True,
    help="Where to look: kubernetes://NAMESPACE.",
)
@click.option(
    "--delete", is_flag=True, help="Delete them; without this option they are only listed."
)
@click.option(
    "--every",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Repeat at this interval and delete at once, for the reaper in deploy/.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="With --every: answer /healthz and /metrics (Prometheus).",
)
@json_option
def reap(cluster: str, delete: bool, every: float | None, port: int | None, as_json: bool) -> None:
    """List jobs and experiments that are still running after their pipeline run has ended, and
    delete them.

    \b
    Examples:
      podium reap --cluster kubernetes://kubeflow
      podium reap --cluster kubernetes://kubeflow --delete
      podium reap --cluster kubernetes://kubeflow --delete --every 10 --port 8080
    """
    from podium.cluster.kubernetes.cluster import KubernetesCluster
    from podium.cluster.kubernetes.reap import Reaper, look, reap as delete_all
    from podium.cluster.traits import traits_of

    if not traits_of(cluster).outlives_client:
        raise InvalidInput(f"only a Kubernetes cluster has orphans, not {cluster}")
    if every is not None and (as_json or not delete):
        raise InvalidInput("--every needs --delete, and takes no --json")
    if port is not None and every is None:
        raise InvalidInput("--port needs --every")
    with KubernetesCluster(cluster) as namespace:
        if every is not None:
            reaper = Reaper(namespace, every, echo)
            if port is not None:
                echo(f"listening on port {reaper.serve(port).server_address[1]}")
            with paused():
                reaper.run()
        found = look(namespace)
        orphaned = found.orphans
        lines = [
            f"{orphan.kind:<11} {orphan.name:<42} {orphan.phase:<10} since {orphan.created}  {orphan.why}"
            for orphan in orphaned
        ]
        output(
            as_json,
            [asdict(orphan) for orphan in orphaned],
            lambda: "\n".join(lines),
        )
        if delete:
            delete_all(namespace, orphaned)
    for about, error in found.errors.items():
        echo_error(f"{about} is left alone: {error.message}", error.hint)
    outcome = "deleted" if delete else "found"
    echo(
        f"{len(orphaned)} {outcome}"
        + ("" if delete or not orphaned else "; --delete deletes them"),
        err=True,
    )
    if found.errors:
        raise SystemExit(1)

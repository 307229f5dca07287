"""`podium engine`."""

import os
import socket
import uuid

import click

from podium.display.terminal import echo, paused
from podium.system.settings import STEPS_IMAGE, STORAGE

_IMAGE = "PODIUM_IMAGE"


@click.command()
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="URL",
    help="kubernetes://NAMESPACE; may be repeated. By default the namespace of the kubeconfig or pod.",
)
@click.option(
    "--image",
    envvar=_IMAGE,
    default=STEPS_IMAGE,
    show_default=True,
    help="Image with podium, for trials that write their metrics to files (PODIUM_IMAGE).",
)
@click.option(
    "--storage",
    envvar=STORAGE,
    default="",
    metavar="URL",
    help="Storage through which pools of workers get trials and return results (PODIUM_STORAGE).",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Answer /healthz and /metrics (Prometheus)."
)
def engine(clusters: tuple[str, ...], image: str, storage: str, port: int | None) -> None:
    """Run the Experiments of a cluster that has no Katib, until it is stopped; for deploy/engine.

    If several processes serve a namespace, one leads and the others wait. Trials continue while no
    engine runs.

    \b
    Examples:
      podium engine --cluster kubernetes://team
      podium engine --cluster kubernetes://team --cluster kubernetes://research --port 8080
    """
    from contextlib import ExitStack

    from podium.cluster.kubernetes.cluster import KubernetesCluster
    from podium.sweeps.engine import Engine, run_all, serve_health

    if "$(" in storage:  # what Kubernetes leaves of a reference to a ConfigMap that is not there
        storage = ""
    holder = f"{os.environ.get('HOSTNAME') or socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    with ExitStack() as opened, paused():
        namespaces = [
            opened.enter_context(KubernetesCluster(url)) for url in clusters or ("kubernetes://",)
        ]
        engines = [
            Engine(namespace, holder=holder, image=image, storage=storage, report=echo)
            for namespace in namespaces
        ]
        if port is not None:
            echo(f"listening on port {serve_health(engines, port).server_address[1]}")
        run_all(engines)

"""`podium engine`."""

import os
import socket
import uuid

import click

from podium.heartbeat import paused
from podium.settings import STORAGE
from podium.terminal import echo

IMAGE = "PODIUM_IMAGE"


@click.command()
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="URL",
    help="kubernetes://NAMESPACE, also several; the kubeconfig's or pod's own if missing.",
)
@click.option(
    "--image",
    envvar=IMAGE,
    default="podium-steps:0.1.0",
    show_default=True,
    help="With podium: prints the metrics files of trials that write them (PODIUM_IMAGE).",
)
@click.option(
    "--storage",
    envvar=STORAGE,
    default="",
    metavar="URL",
    help="Where pools of workers get their trials and leave what came of them (PODIUM_STORAGE).",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Answer /healthz and /metrics (Prometheus)."
)
def engine(clusters: tuple[str, ...], image: str, storage: str, port: int | None) -> None:
    """Run the Experiments of a cluster that has no Katib, until it is stopped; for deploy/engine.

    Of several processes for a namespace one leads; the others wait. Trials go on while no engine
    runs.

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

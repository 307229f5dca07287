"""`podium models deploy`."""

from pathlib import Path
from typing import Any

import click

from podium.cli.options import registry_options
from podium.display.terminal import echo, output
from podium.system.settings import PUBLIC_KEY


@click.command()
@click.argument("name")
@click.argument("ref", metavar="[VERSION]", default="champion")
@click.option(
    "--to",
    required=True,
    type=click.Choice(["kubernetes", "kserve"]),
    help="Kind of deployment.",
)
@click.option(
    "--apply",
    "applied",
    is_flag=True,
    help="Create or update it on the cluster of the kubeconfig, and wait.",
)
@click.option(
    "--namespace",
    default="",
    help="Namespace of the objects; by default the current one when they are applied.",
)
@click.option(
    "--name",
    "called",
    metavar="NAME",
    default="",
    help="Name of the objects; by default the model's.",
)
@click.option(
    "--replicas",
    default="2",
    show_default=True,
    metavar="COUNT",
    help="Number of pods, or 1..5 for an autoscaler by CPU.",
)
@click.option(
    "--image", default="podium-serve:0.1.0", show_default=True, help="Image with podium serve."
)
@click.option(
    "--cpu", default="500m", show_default=True, metavar="AMOUNT", help="CPU request of each pod."
)
@click.option(
    "--memory",
    default="1Gi",
    show_default=True,
    metavar="AMOUNT",
    help="Memory request and limit of each pod.",
)
@click.option(
    "--secret",
    default="mlpipeline-minio-artifact",
    metavar="NAME",
    show_default=True,
    help="Secret with accesskey and secretkey of the bucket; '' for workload identity.",
)
@click.option(
    "--token-secret",
    default="",
    metavar="NAME",
    help="Secret whose key token holds the bearer token that clients send.",
)
@click.option(
    "--watch", is_flag=True, help="Count inputs and predictions, for podium models drift."
)
@click.option(
    "--canary",
    default="",
    metavar="VERSION=SHARE%",
    help="Let this version answer a share of the requests.",
)
@click.option("--shadow", default="", metavar="VERSION", help="Ask this version too.")
@click.option(
    "--record",
    default="",
    metavar="URI",
    help="URI in a bucket to record the answers of both versions in.",
)
@click.option(
    "--service-account",
    default="",
    metavar="NAME",
    help="Service account of the pods, for workload identity.",
)
@click.option(
    "--key",
    envvar=PUBLIC_KEY,
    show_envvar=True,
    type=click.Path(path_type=Path),
    help="PEM of the public key that versions must be signed with.",
)
@registry_options
def deploy(
    name: str,
    ref: str,
    to: str,
    applied: bool,
    called: str,
    key: Path | None,
    storage: str | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Print the manifests that serve a model on a cluster, for kubectl apply -f -, or apply them.

    The pods run podium serve and follow the champion by themselves: a promotion or a rollback needs
    no new deployment. VERSION is another alias to follow, or a fixed version. kubernetes is a
    Deployment with its Service, its PodDisruptionBudget and with --replicas 1..5 its
    HorizontalPodAutoscaler, kserve an InferenceService. The pods fit
    Pod Security restricted; they read the bucket's address from the ConfigMap podium-storage, its
    keys and the token from Secrets.

    \b
    Examples:
      podium models deploy mnist --to kubernetes --storage s3://models | kubectl -n team apply -f -
      podium models deploy mnist --to kubernetes --namespace team --replicas 3 --apply
      podium models deploy churn --to kubernetes --replicas 2..8 --canary v4=5% --record s3://answers
      podium models deploy churn staging --to kserve --name churn-staging --token-secret churn-token
    """
    from podium.api.deploy import deploy as deployed

    deployment = deployed(name, ref, to=to, storage=storage, name=called, key=key, **settings)
    if deployment.version.is_command:
        echo(
            f"{deployment.version.title} is a command: --image must contain the programs it runs",
            err=True,
        )
    if not applied:
        output(as_json, deployment.manifests, lambda: deployment.yaml.rstrip())
        return
    address = deployment.apply()
    output(as_json, {"address": address, "objects": deployment.manifests}, lambda: address)

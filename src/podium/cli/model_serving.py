"""`podium models deploy`, `drift` and `metrics`: models in use."""

import json
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import podium
from podium.cli.options import registry_options, storage_option, token_option
from podium.display.tables import Row, screen_width, table
from podium.display.terminal import Styled, doing, echo, output, paused
from podium.display.text import cut
from podium.errors import InvalidInput, Unavailable
from podium.system.settings import PUBLIC_KEY

if TYPE_CHECKING:
    from podium.models import Registry
    from podium.models.drift import Seen, Shift
    from podium.models.version import Version


def _checked_replicas(ctx: click.Context, param: click.Parameter, replicas: str) -> str:
    from podium.manifests.serving import pod_range

    pod_range(replicas)
    return replicas


@click.command("deploy")
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
    callback=_checked_replicas,
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
def _deploy(
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
    deployment = podium.deploy(name, ref, to=to, storage=storage, name=called, key=key, **settings)
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


_DRIFTED = 3
"""Exit code."""

_USUAL = 0.2
"""PSI that is called drift where nobody says otherwise."""


@click.command("drift")
@click.argument("name", metavar="NAME[@VERSION]")
@click.option(
    "--metrics",
    "urls",
    multiple=True,
    metavar="URL",
    help="Metrics of a server that runs with --watch; may be repeated, and is added up.",
)
@click.option(
    "--data",
    metavar="PATH|URI",
    help="File or folder of recent items, on which the version is run.",
)
@click.option(
    "--fail-over",
    type=click.FloatRange(0, min_open=True),
    metavar="PSI",
    help="Exit with 3 if a PSI is above this, and above chance.",
)
@click.option(
    "--least",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="Minimum number of items to judge.",
)
@click.option(
    "--since",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Judge only the items since the last call; the file keeps the counts.",
)
@token_option("File with the server's bearer token.")
@registry_options
def _drift(
    name: str,
    urls: tuple[str, ...],
    data: str | None,
    fail_over: float | None,
    least: int,
    since: Path | None,
    token: str | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Compare a version's current inputs and predictions with its training part: PSI and KS of each
    column.

    Without VERSION it is the champion. Current inputs come from running servers, or from a file or
    folder of recent items. Predictions are compared with those of the test part. With --fail-over
    the exit code is 3 if something drifted, so that a schedule can train anew; too few items, and
    dates that are only later, never count as drift.

    \b
    Examples:
      podium models drift churn --metrics http://127.0.0.1:8080/metrics
      podium models drift churn --data customers-of-may.csv --fail-over 0.2
      podium models drift churn --metrics http://churn:8080/metrics --since last-look.json
    """
    from podium.files.documents import load_json, parse, write_file
    from podium.models.drift import Seen, dates_of, shifts

    if bool(urls) == bool(data):
        raise InvalidInput(
            "drift needs either a server or recent data", "--metrics URL, or --data FILE"
        )
    if since and not urls:
        raise InvalidInput(f"--since {since} is about servers", "--metrics URL")
    model, _, ref = name.partition("@")
    version = podium.registry(storage)[model].version(ref or "champion")
    pages = {url: _fetch(url, token) for url in urls}
    with doing(f"counting {data}" if data else f"reading {len(pages)} pages"):
        before = None
        if since and since.exists():
            before = parse(dict[str, str], load_json(since.read_bytes(), str(since)), str(since))
        seen = Seen.in_data(version, data) if data else Seen.by_servers(version, pages, before)
        found = shifts(version.opened.profile, seen.counts, dates_of(version))  # type: ignore[arg-type]
    limit = fail_over or _USUAL
    if since and seen.items >= least:
        write_file(since, json.dumps(pages))
    told = [{**asdict(shift), "verdict": shift.verdict(limit, least)} for shift in found]
    value = {
        "name": model,
        "version": version.version,
        "items": seen.items,
        "limit": limit,
        "notes": seen.notes,
        "shifts": told,
    }
    output(as_json, value, lambda: _view(version, seen, found, limit, least))
    for note in seen.notes:
        echo(note, err=True)
    if seen.items < least:
        echo(f"{seen.items:,} items are too few to judge: at least {least:,} (--least)", err=True)
    if fail_over and any(shift["verdict"] == "drift" for shift in told):
        sys.exit(_DRIFTED)


def _fetch(url: str, token: str | None) -> str:
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    if not url.startswith(("http://", "https://")):
        raise InvalidInput(
            f"--metrics takes the URL of a server's metrics, not {url!r}",
            "http://127.0.0.1:8080/metrics",
        )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(url, headers=headers), timeout=30) as answer:
            return str(answer.read().decode())
    except (OSError, ValueError, HTTPException) as error:
        raise Unavailable(
            f"{url} cannot be read: {getattr(error, 'reason', error)}", f"curl {url}"
        ) from None


def _view(
    version: "Version", seen: "Seen", found: "list[Shift]", limit: float, least: int
) -> Styled:
    marks = {"drift": "Failed", "later": "Running", "same": "Succeeded", "too few": "Waiting"}
    rows = [
        Row(
            phase=marks[verdict := shift.verdict(limit, least)],
            cells=(
                f"predicted {shift.name}" if shift.of == "prediction" else shift.name,
                verdict,
                f"{shift.psi:.3f}",
                f"{shift.chance:.3f}",
                "" if shift.ks is None else f"{shift.ks:.3f}",
                f"{cut(shift.bin, 14)}: {shift.share[0]:.0%} to {shift.share[1]:.0%}",
            ),
        )
        for shift in found
    ]
    heads = ("WHAT", "VERDICT", ">PSI", ">CHANCE", ">KS", "MOST CHANGED")
    text = table(
        heads,
        rows,
        title=f"{version.title}, {seen.items:,} items seen",
        width=screen_width(),
        drop=("MOST CHANGED", ">KS"),
        shorten="WHAT",
    )
    return Styled(
        f"{text}\nPSI: 0 is no change, above {limit:g} is drift, unless CHANCE is above it."
    )


@click.command("metrics")
@storage_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Serve /metrics and /healthz on this port.",
)
def _metrics(storage: str | None, port: int | None) -> None:
    """Show when each model's champion was promoted, for Prometheus: once, or on a port.

    \b
    Examples:
      podium models metrics
      podium models metrics --storage s3://models/podium --port 8080
    """
    from podium.system.exposition import serve

    registry = podium.registry(storage)
    if port is None:
        echo(_champions(registry), nl=False)
        return
    server = serve(port, lambda: _champions(registry))
    echo(f"listening on port {server.server_address[1]}")
    with paused():
        threading.Event().wait()


def _champions(registry: "Registry") -> str:
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


COMMANDS = (_deploy, _drift, _metrics)

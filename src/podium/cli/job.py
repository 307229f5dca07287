"""`podium job`: run PyTorchJob and Job YAML on this machine."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from podium.cli.experiment_options import as_json_option, directory_option, open_cluster
from podium.documents import MAX_YAML, load_yaml
from podium.errors import Failed, InvalidInput, NotFound
from podium.manifests.labels import IGNORED_FIELDS
from podium.terminal import echo, echo_log

if TYPE_CHECKING:
    from podium.cluster.base import Cluster, Manifest
    from podium.sweeps.local import LocalSweeps

KINDS = ("PyTorchJob", "Job")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def job() -> None:
    """Run a PyTorchJob or a Job YAML on this machine."""


@job.command()
@click.argument("file", type=click.File("rb"))
@click.option("--name", help="metadata.name instead of the file's; for a file with one job.")
@click.option(
    "--image-dir",
    "--image",
    "images",
    metavar="IMAGE=DIR",
    multiple=True,
    help="Directory that stands for an image (its bin/ first on PATH); any other image is this Python.",
)
@click.option("--logs/--no-logs", default=True, help="Print what the rank that reports metrics prints.")
@click.option("--fork-server/--no-fork-server", default=True, help="Start python -m from a warm process.")
@directory_option
@as_json_option
def run(
    file: Any,
    name: str | None,
    images: tuple[str, ...],
    logs: bool,
    fork_server: bool,
    directory: Path | None,
    as_json: bool,
) -> None:
    """Run each PyTorchJob and Job of a YAML file here; exit 0 if all succeed.

    Replicas are processes with the operator's environment. Logs lie under the cluster's directory; those of rank 0 are
    printed. Ctrl-C stops everything.

    \b
    Examples:
      podium job run examples/spirals-pytorchjob.yaml
      podium job run train.yaml --image-dir example/trainer=. --no-logs --json
    """
    from podium.cli.job_view import follow

    manifests = _read(file, name)
    with open_cluster(directory, images, fork_server) as cluster:
        started = [cluster.create(_with_free_name(cluster, one)) for one in manifests]
        for one in started:
            _say_where(cluster, one)
        names = [(one["kind"], one["metadata"]["name"]) for one in started]
        follow(cluster, names, logs=logs and not as_json)
        cluster.close()  # Workers may outlive a Master that succeeded, but not this command
        ended = [cluster.get(*one) for one in names]
        if as_json:
            echo(json.dumps([_summary(cluster, one) for one in ended], indent=1))
        _raise_for(cluster, ended, shown=logs and not as_json)


@job.command()
@click.argument("name")
@click.option("--replica", help="master-0, worker-1 …; the one that reports metrics if missing.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the replica has ended.")
@directory_option
def logs(name: str, replica: str | None, follow: bool, directory: Path | None) -> None:
    """Print the log of a job's replica.

    NAME is a job or a trial of an Experiment.

    \b
    Example:
      podium job logs spirals --replica worker-0
    """
    with open_cluster(directory) as cluster:
        for line in cluster.logs(_kind_of(cluster, name, (*KINDS, "Trial")), name, replica, follow):
            echo_log(line)


@job.command()
@click.argument("name")
@directory_option
@as_json_option
def status(name: str, directory: Path | None, as_json: bool) -> None:
    """Show the state of a job and its replicas.

    \b
    Example:
      podium job status spirals --json
    """
    from podium.cli.job_view import draw_pods

    with open_cluster(directory) as cluster:
        found = cluster.get(_kind_of(cluster, name), name)
        summary = _summary(cluster, found)
    if as_json:
        echo(json.dumps({**summary, "status": found.get("status", {})}, indent=1))
        return
    echo(f"{summary['kind']} {name}: {summary['state']}. {summary['message']}".rstrip())
    echo(draw_pods(summary["replicas"]))


@job.command("list")
@directory_option
@as_json_option
def list_(directory: Path | None, as_json: bool) -> None:
    """List the PyTorchJobs and Jobs on this machine.

    \b
    Example:
      podium job list
    """
    from podium.cli.model_tables import table

    with open_cluster(directory) as cluster:
        rows = [_summary(cluster, one) for kind in KINDS for one in cluster.list(kind)]
    if as_json:
        echo(json.dumps(rows, indent=1))
        return
    cells = [[row["name"], row["kind"], row["state"], row["created"]] for row in rows]
    echo(table(("NAME", "KIND", "STATE", "CREATED"), cells))


@job.command()
@click.argument("name")
@directory_option
@as_json_option
def delete(name: str, directory: Path | None, as_json: bool) -> None:
    """Stop a job, whichever process runs it, and remove its files.

    \b
    Example:
      podium job delete spirals
    """
    with open_cluster(directory) as cluster:
        kind = _kind_of(cluster, name)
        cluster.delete(kind, name)
    if as_json:
        echo(json.dumps({"kind": kind, "name": name, "deleted": True}))


def _read(file: Any, name: str | None) -> "list[Manifest]":
    documents = load_yaml(file.read(MAX_YAML + 1), file.name)
    for at, one in enumerate(documents):
        _check_document(one, at + 1, file.name)
    if not documents:
        raise InvalidInput(f"{file.name} has no object in it", "it must hold a PyTorchJob or a Job")
    if name is not None:
        if len(documents) > 1:
            raise InvalidInput(f"`one job for --name` must hold, but {file.name} has {len(documents)}")
        documents = [{**one, "metadata": {**(one.get("metadata") or {}), "name": name}} for one in documents]
    return documents


def _check_document(document: Any, number: int, file: str) -> None:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind not in KINDS:
        place = "FILE" if file.startswith("<") else file
        hint = f"podium experiment run {place}" if kind == "Experiment" else "put other objects into another file"
        raise InvalidInput(f"`kind is PyTorchJob or Job` must hold, but document {number} has kind={kind!r}", hint)
    spec = document.get("spec")
    parts = [spec, spec.get("runPolicy")] if isinstance(spec, dict) else []
    if any(isinstance(part, dict) and part.get("suspend") for part in parts):
        raise InvalidInput(f"document {number} is suspended: it would wait for ever", "remove suspend: true")


def _with_free_name(cluster: "LocalSweeps", manifest: "Manifest") -> "Manifest":
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or "/" in name:
        return manifest
    free, count = name, 1
    while cluster.store.exists(manifest["kind"], free):
        count += 1
        free = f"{name}-{count}"
    return {**manifest, "metadata": {**metadata, "name": free}}


def _say_where(cluster: "LocalSweeps", manifest: "Manifest") -> None:
    kind, metadata = manifest["kind"], manifest["metadata"]
    echo(f"{kind} {metadata['name']}, everything under {cluster.store.place(kind, metadata['name'])}", err=True)
    if ignored := (metadata.get("annotations") or {}).get(IGNORED_FIELDS):
        echo(f"without meaning on this machine, ignored: {ignored}", err=True)


def _raise_for(cluster: "Cluster", ended: "list[Manifest]", shown: bool) -> None:
    from podium.manifests.conditions import status_of

    bad = [one for one in ended if not status_of(one).succeeded]
    if not bad:
        return
    kind, name = bad[0]["kind"], bad[0]["metadata"]["name"]
    if not shown:
        raise cluster.failure(kind, name)
    raise Failed(f"{kind} {name} failed: {status_of(bad[0]).message}", f"podium job status {name} shows its replicas")


def _summary(cluster: "LocalSweeps", manifest: "Manifest") -> dict[str, Any]:
    from podium.cli.job_view import read_pods, without_living
    from podium.manifests.conditions import status_of

    kind, metadata, state = manifest["kind"], manifest["metadata"], status_of(manifest)
    place = cluster.store.place(kind, metadata["name"])
    pods = read_pods(place)
    return {
        "kind": kind,
        "name": metadata["name"],
        "state": state.phase,
        "message": state.message,
        "created": metadata["creationTimestamp"],
        "directory": str(place),
        "replicas": pods if cluster.store.is_supervised(kind, metadata["name"]) else without_living(pods),
    }


def _kind_of(cluster: "LocalSweeps", name: str, kinds: tuple[str, ...] = KINDS) -> str:
    for kind in kinds:
        if cluster.store.exists(kind, name):
            return kind
    raise NotFound(f"no PyTorchJob or Job {name} in {cluster.store.directory}", "podium job list shows what there is")

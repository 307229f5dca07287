"""`podium job`: run the YAML of PyTorchJobs, TrainJobs and Jobs on this machine or on a cluster."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import click

from podium.cli.options import (
    Commands,
    Notifier,
    cluster_options,
    json_option,
    named_object,
    next_command,
    notify_option,
    process_options,
    queue_options,
)
from podium.documents import MAX_YAML, load_yaml
from podium.errors import Failed, InvalidInput, NotFound, PodiumError, UnknownKind
from podium.heartbeat import paused
from podium.manifests.kinds import JOB_KINDS, or_list
from podium.manifests.labels import IGNORED_FIELDS
from podium.terminal import echo, echo_json, output

if TYPE_CHECKING:
    from podium.api.place import Place
    from podium.api.watching import ObjectKey
    from podium.cluster.base import Cluster
    from podium.manifests.workload import Workload


@click.group(cls=Commands)
def job() -> None:
    """Run the YAML of a job, on this machine or on a cluster: Job, PyTorchJob, TrainJob, TFJob, XGBoostJob, JAXJob."""


@job.command()
@click.argument("file", type=click.File("rb"))
@click.option("--name", help="metadata.name instead of the file's; for a file with one job.")
@click.option("--logs/--no-logs", default=True, help="Print what the rank that reports metrics prints.")
@queue_options
@cluster_options
@process_options("--image")
@notify_option
@json_option
def run(
    file: Any,
    name: str | None,
    logs: bool,
    queue: str,
    queue_priority: str,
    place: "Place",
    notifier: Notifier,
    as_json: bool,
) -> None:
    """Run each job of a YAML file to its end; exit 0 if all succeed.

    Replicas are processes with the operator's environment. Logs lie under the cluster's directory; those of rank 0 are
    printed. Ctrl-C stops everything. With --cluster kubernetes://NAMESPACE they run there; Ctrl-C leaves them running.

    \b
    Examples:
      podium job run examples/spirals-pytorchjob.yaml
      podium job run train.yaml --image-dir example/trainer=. --no-logs --json
      podium job run train.yaml --cluster kubernetes://team
      podium job run train.yaml --cluster kubernetes://team --queue vision --queue-priority urgent
    """
    from podium.api.experiments import with_store
    from podium.cli.job_view import JobView
    from podium.cli.live import follow
    from podium.manifests.placement import Pods
    from podium.manifests.placement import place as placed

    pods = Pods(queue=queue, queue_priority=queue_priority)
    jobs = [placed(job, pods) for job in _read(file, name)]
    shown = logs and not as_json
    known = ", ".join(job.name for job in jobs)
    with notifier.about("job", run=known), place.open() as cluster:
        for job in jobs:
            _check_suspended(job, cluster)
        if not cluster.traits.shares_files:
            jobs = [with_store(job, cluster.url, lambda line: echo(line, err=True)) for job in jobs]
        started = [job.parse(cluster.create(_with_free_name(cluster, job).manifest)) for job in jobs]
        for job in started:
            _say_where(cluster, job)
        names = [(job.kind, job.name) for job in started]
        with _naming_what_stays(cluster, names):
            follow(cluster, names, JobView(cluster, names, shown))
        cluster.close()  # Workers may outlive a Master that succeeded, but not this command
        ended = [cluster.workload(*key) for key in names]
        if as_json:
            echo_json([_summary(cluster, job) for job in ended])
        _raise_for(cluster, ended, shown)


@job.command()
@click.argument("name")
@click.option("--replica", help="master-0, worker-1, node-0 …; the one that reports metrics if missing.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the replica has ended.")
@cluster_options
def logs(name: str, replica: str | None, follow: bool, place: "Place") -> None:
    """Print the log of a job's replica.

    NAME is a job or a trial of an Experiment.

    \b
    Example:
      podium job logs spirals --replica worker-0
    """
    with place.open() as cluster, paused() if follow else nullcontext():
        for line in cluster.logs(_kind_of(cluster, name, (*JOB_KINDS, "Trial")), name, replica, follow):
            echo(line)


@job.command()
@named_object
def status(name: str, place: "Place", as_json: bool) -> None:
    """Show the state of a job and its replicas.

    \b
    Example:
      podium job status spirals --json
    """
    from podium.cli.job_view import draw_replicas

    with place.open() as cluster:
        job = cluster.workload(_kind_of(cluster, name), name)
        summary, replicas = _summary(cluster, job), cluster.replicas(job.kind, name)
    title = f"{job.kind} {name}: {summary['state']}. {summary['message']}".rstrip()
    output(as_json, {**summary, "status": dict(job.status)}, lambda: f"{title}\n{draw_replicas(replicas)}")


@job.command("list")
@cluster_options
@json_option
def list_(place: "Place", as_json: bool) -> None:
    """List the jobs of a cluster, this machine's by default.

    \b
    Examples:
      podium job list
      podium job list --cluster kubernetes://team --json
    """
    from podium.tables import Row, screen_width, table

    with place.open() as cluster:
        rows = [_summary(cluster, job) for job in _all(cluster)]
    listed = [
        Row(phase=row["state"], cells=[row["name"], row["kind"], row["state"], row["created"]],
            below=[row["message"]] if row["state"] == "Pending" else [])
        for row in rows
    ]  # fmt: skip
    drop = ("CREATED", "KIND", "STATE")
    heads = ("NAME", "KIND", "STATE", "CREATED")
    output(as_json, rows, lambda: table(heads, listed, width=screen_width(), drop=drop, shorten="NAME"))


@job.command()
@named_object
def stop(name: str, place: "Place", as_json: bool) -> None:
    """Stop a job and keep it: on this machine it has failed then, on Kubernetes it is suspended.

    \b
    Examples:
      podium job stop spirals
      podium job stop spirals --cluster kubernetes://team
    """
    _act("stop", name, place, "stopping" if as_json else None)


@job.command()
@named_object
def resume(name: str, place: "Place", as_json: bool) -> None:
    """Let a job that was stopped on Kubernetes go on with new pods.

    \b
    Example:
      podium job resume spirals --cluster kubernetes://team
    """
    _act("resume", name, place, "resumed" if as_json else None)


@job.command()
@named_object
def delete(name: str, place: "Place", as_json: bool) -> None:
    """Stop a job, whichever process runs it, and remove it with its logs.

    \b
    Example:
      podium job delete spirals
    """
    _act("delete", name, place, "deleted" if as_json else None)


def _act(verb: str, name: str, place: "Place", reported: str | None) -> None:
    """Call a verb of the cluster for a job; print JSON that says what was done, if a word for it is given."""
    with place.open() as cluster:
        kind = _kind_of(cluster, name)
        getattr(cluster, verb)(kind, name)
    if reported:
        echo_json({"kind": kind, "name": name, reported: True})


def _read(file: Any, name: str | None) -> "list[Workload]":
    documents = load_yaml(file.read(MAX_YAML + 1), file.name)
    jobs = [_check_document(document, number, file.name) for number, document in enumerate(documents, 1)]
    if not jobs:
        raise InvalidInput(f"{file.name} has no object in it", "it must hold a job")
    if name is not None:
        if len(jobs) > 1:
            raise InvalidInput(f"`one job for --name` must hold, but {file.name} has {len(jobs)}")
        jobs = [job.with_metadata({**job.metadata, "name": name}) for job in jobs]
    return jobs


def _check_document(document: Any, number: int, file: str) -> "Workload":
    from podium.manifests.workload import Workload

    kind = document.get("kind") if isinstance(document, dict) else None
    if kind not in JOB_KINDS:
        source = "FILE" if file.startswith("<") else file
        hint = f"podium experiment run {source}" if kind == "Experiment" else "put other objects into another file"
        raise InvalidInput(
            f"`kind is {or_list([*JOB_KINDS])}` must hold, but document {number} has kind={kind!r}", hint
        )
    return Workload.parse(document)


def _check_suspended(job: "Workload", cluster: "Cluster") -> None:
    """Refuse a job that nobody would start; Kueue starts those in its queues."""
    if job.suspended and not (cluster.traits.outlives_client and job.queue):
        raise InvalidInput(f"{job.kind} {job.name} is suspended: it would wait forever", "remove suspend: true")


def _with_free_name(cluster: "Cluster", job: "Workload") -> "Workload":
    from podium.api.experiments import free_name

    if not job.name or "/" in job.name:
        return job  # for create to refuse
    return job.with_metadata({**job.metadata, "name": free_name(cluster, job.kind, job.name)})


def _say_where(cluster: "Cluster", job: "Workload") -> None:
    directory = cluster.directory(job.kind, job.name)
    where = f"everything under {directory}" if directory else f"at {cluster.url}"
    echo(f"{job.kind} {job.name}, {where}", err=True)
    if ignored := job.annotations.get(IGNORED_FIELDS):
        echo(f"without meaning on this machine, ignored: {ignored}", err=True)


@contextmanager
def _naming_what_stays(cluster: "Cluster", names: "Sequence[ObjectKey]") -> "Iterator[None]":
    """Add to an error how to delete the jobs that would go on without this command, or start days later."""
    try:
        yield
    except PodiumError as error:
        staying = [name for _, name in names if cluster.traits.outlives_client]
        with suppress(PodiumError):
            staying = [
                name for kind, name in names if name in staying and not cluster.resource(kind, name).state.finished
            ]
        if staying:
            commands = "; ".join(next_command(f"job delete {name}", cluster) for name in staying)
            stays = f"what is left at {cluster.url} may start later, and goes by: {commands}"
            error.hint = f"{error.hint}; {stays}" if error.hint else stays
        raise


def _raise_for(cluster: "Cluster", ended: "list[Workload]", shown: bool) -> None:
    failed = next((job for job in ended if not job.state.succeeded), None)
    if failed is None:
        return
    if not shown:
        raise cluster.failure(failed.kind, failed.name)
    hint = f"{next_command(f'job status {failed.name}', cluster)} shows its replicas"
    raise Failed(f"{failed.kind} {failed.name} failed: {failed.state.message}", hint)


def _summary(cluster: "Cluster", job: "Workload") -> dict[str, Any]:
    from podium.cli.job_view import document

    directory, replicas = cluster.directory(job.kind, job.name), cluster.replicas(job.kind, job.name)
    state, message = job.state.phase, job.state.message
    waits = not job.state.finished and all(replica.phase == "Pending" for replica in replicas)
    if waits and (why := cluster.waits_for(job)):  # the operator calls it Running, or Created
        state, message = "Pending", why
    return {
        "kind": job.kind,
        "name": job.name,
        "state": state,
        "message": message,
        "created": job.created,
        "directory": None if directory is None else str(directory),
        "replicas": [document(replica) for replica in replicas],
    }


def _all(cluster: "Cluster") -> "Iterator[Workload]":
    from podium.manifests.workload import Workload

    for kind in JOB_KINDS:
        with suppress(UnknownKind):  # a cluster without the training operator has Jobs all the same
            yield from map(Workload.parse, cluster.list(kind))


def _kind_of(cluster: "Cluster", name: str, kinds: tuple[str, ...] = tuple(JOB_KINDS)) -> str:
    for kind in kinds:
        with suppress(NotFound, UnknownKind):
            cluster.get(kind, name)
            return kind
    raise NotFound(f"no job {name} in {cluster.url}", f"{next_command('job list', cluster)} lists them")

"""`podium job`: run the YAML of PyTorchJobs, TrainJobs and Jobs on this machine or on a cluster."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import click

from podium.cli.notify import Notifier
from podium.cli.options import (
    Commands,
    cluster_options,
    json_option,
    named_object,
    next_command,
    notify_option,
    process_options,
    queue_options,
)
from podium.display.terminal import echo, echo_json, output, paused
from podium.errors import Failed, NotFound, PodiumError
from podium.files.documents import MAX_YAML, load_yaml
from podium.manifests.kinds import JOB_KINDS

if TYPE_CHECKING:
    from podium.api.cluster_spec import ClusterSpec
    from podium.api.jobs import Job
    from podium.cluster.base import ReplicaStatus


@click.group(cls=Commands)
def job() -> None:
    """Run jobs from YAML, on this machine or on a cluster: Job, PyTorchJob, TrainJob, TFJob,
    XGBoostJob, JAXJob."""


@job.command("run")
@click.argument("file", type=click.File("rb"))
@click.option("--name", help="metadata.name instead of the file's; for a file with one job.")
@click.option(
    "--logs/--no-logs", default=True, help="Print the log of the rank that reports metrics."
)
@queue_options
@cluster_options
@process_options("--image")
@notify_option
@json_option
def _run(
    file: Any,
    name: str | None,
    logs: bool,
    queue: str,
    queue_priority: str,
    spec: "ClusterSpec",
    notifier: Notifier,
    as_json: bool,
) -> None:
    """Run each job of a YAML file to its end; exit 0 if all succeed.

    Replicas are processes with the operator's environment. Logs are stored under the cluster's
    directory; those of rank 0 are printed. Ctrl-C stops everything. With --cluster
    kubernetes://NAMESPACE they run there; Ctrl-C leaves them running.

    \b
    Examples:
      podium job run examples/spirals-pytorchjob.yaml
      podium job run train.yaml --image-dir example/trainer=. --no-logs --json
      podium job run train.yaml --cluster kubernetes://team
      podium job run train.yaml --cluster kubernetes://team --queue vision --queue-priority urgent
    """
    from podium.api.jobs import begin_jobs, read_jobs
    from podium.api.launched import Session
    from podium.cli.live import JobView, follow
    from podium.manifests.placement import Pods, place

    pods = Pods(queue=queue, queue_priority=queue_priority)
    jobs = [
        place(job, pods)
        for job in read_jobs(
            load_yaml(file.read(MAX_YAML + 1), file.name, kubectl=True), file.name, name or ""
        )
    ]
    shown = logs and not as_json
    with (
        notifier.about("job", run=", ".join(job.name for job in jobs)),
        Session(spec) as session,
    ):
        begun = begin_jobs(jobs, session)
        with _naming_what_stays(begun):
            follow(
                session.cluster,
                [(job.kind, job.name) for job in begun],
                JobView(session.cluster, begun, shown),
            )
        session.cluster.close()  # Workers may outlive a Master that succeeded, but not this command
        if as_json:
            echo_json([job.to_json() for job in begun])
        for job in begun:
            _check(job, shown)


@job.command("logs")
@click.argument("name")
@click.option(
    "--replica", help="master-0, worker-1, node-0 …; the one that reports metrics by default."
)
@click.option("--follow", "-f", is_flag=True, help="Follow the log until the replica has ended.")
@cluster_options
def _logs(name: str, replica: str | None, follow: bool, spec: "ClusterSpec") -> None:
    """Print the log of a job's replica.

    NAME is a job or a trial of an Experiment.

    \b
    Example:
      podium job logs spirals --replica worker-0
    """
    with _opened(name, spec, "Trial") as job, paused() if follow else nullcontext():
        for line in job.cluster.logs(job.kind, name, replica, follow):
            echo(line)


@job.command("status")
@named_object
def _status(name: str, spec: "ClusterSpec", as_json: bool) -> None:
    """Show the state of a job and its replicas.

    \b
    Example:
      podium job status spirals --json
    """
    with _opened(name, spec) as job:
        shown, replicas, status = job.to_json(), job.replicas, dict(job.workload.status)
    title = f"{job.kind} {name}: {shown['state']}. {shown['message']}".rstrip()
    output(as_json, {**shown, "status": status}, lambda: f"{title}\n{_drawn(replicas)}")


@job.command("list")
@cluster_options
@json_option
def _list(spec: "ClusterSpec", as_json: bool) -> None:
    """List the jobs of a cluster, this machine's by default.

    \b
    Examples:
      podium job list
      podium job list --cluster kubernetes://team --json
    """
    from podium.api.jobs import Job, all_jobs, job_rows
    from podium.api.launched import Session
    from podium.display.tables import Row, screen_width, table

    with Session(spec) as session:
        rows = job_rows(all_jobs(session))
    listed = [
        Row(
            phase=row["state"],
            cells=Job.cells(row),
            below=[row["message"]] if row["state"] == "Pending" else [],
        )
        for row in rows
    ]
    drop = ("CREATED", "KIND", "STATE")
    output(
        as_json,
        rows,
        lambda: table(Job.HEADS, listed, width=screen_width(), drop=drop, shorten="NAME"),
    )


@job.command("stop")
@named_object
def _stop(name: str, spec: "ClusterSpec", as_json: bool) -> None:
    """Stop a job and keep it: on this machine it counts as failed, on Kubernetes it is suspended.

    \b
    Examples:
      podium job stop spirals
      podium job stop spirals --cluster kubernetes://team
    """
    with _opened(name, spec) as job:
        job.stop()
    output(as_json, {"kind": job.kind, "name": name, "stopping": True})


@job.command("resume")
@named_object
def _resume(name: str, spec: "ClusterSpec", as_json: bool) -> None:
    """Resume a job that was stopped on Kubernetes, with new pods.

    \b
    Example:
      podium job resume spirals --cluster kubernetes://team
    """
    with _opened(name, spec) as job:
        job.resume()
    output(as_json, {"kind": job.kind, "name": name, "resumed": True})


@job.command("delete")
@named_object
def _delete(name: str, spec: "ClusterSpec", as_json: bool) -> None:
    """Stop a job, whichever process runs it, and remove it with its logs.

    \b
    Example:
      podium job delete spirals
    """
    with _opened(name, spec) as job:
        job.delete()
    output(as_json, {"kind": job.kind, "name": name, "deleted": True})


def _drawn(replicas: "Sequence[ReplicaStatus]") -> str:
    from podium.api.jobs import replica_columns
    from podium.display.tables import Row, screen_width, table

    heads, cells = replica_columns(replicas)
    rows = [
        Row(phase=replica.phase, cells=row) for replica, row in zip(replicas, cells, strict=True)
    ]
    drop = (">PID", "NODE", "STARTED", ">RESTARTS", "STATE")  # the mark shows the state
    return table(heads, rows, width=screen_width(), drop=drop, shorten="REASON")


@contextmanager
def _opened(name: str, spec: "ClusterSpec", *kinds: str) -> "Iterator[Job]":
    from podium.api.jobs import find_job
    from podium.api.launched import Session

    with Session(spec) as session:
        try:
            job = find_job(session, name, (*JOB_KINDS, *kinds))
        except NotFound as error:
            raise NotFound(
                error.message, f"{next_command('job list', session.cluster)} lists them"
            ) from None
        yield job


@contextmanager
def _naming_what_stays(jobs: "Sequence[Job]") -> "Iterator[None]":
    """Add to an error how to delete the jobs that would go on without this command, or start days
    later."""
    try:
        yield
    except PodiumError as error:
        cluster = jobs[0].cluster
        staying = [job for job in jobs if cluster.outlives_client(job.kind)]
        with suppress(PodiumError):
            staying = [job for job in staying if not job.workload.state.finished]
        if staying:
            commands = "; ".join(next_command(f"job delete {job.name}", cluster) for job in staying)
            stays = f"what is left at {cluster.url} may start later; delete it with: {commands}"
            error.hint = f"{error.hint}; {stays}" if error.hint else stays
        raise


def _check(job: "Job", shown: bool) -> None:
    """Raise Failed if a job has not succeeded, without its last lines where they were shown."""
    state = job.workload.state
    if state.succeeded:
        return
    if not shown:
        raise job.cluster.failure(job.kind, job.name)
    hint = f"{next_command(f'job status {job.name}', job.cluster)} shows its replicas"
    raise Failed(f"{job.kind} {job.name} failed: {state.message}", hint)

"""Jobs of a cluster: ``podium.run_job("train.yaml")``, ``podium.open_job("train").logs()``."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from podium.api.cluster_spec import ClusterSpec
from podium.api.experiments import free_name, with_store
from podium.api.launched import Launched, Session
from podium.cluster.base import Cluster, ReplicaStatus
from podium.display.notebook import LiveCell, Log, in_notebook, say, table
from podium.display.terminal import readable
from podium.display.text import one_line
from podium.errors import InvalidInput, NotFound, UnknownKind
from podium.files.documents import load_yaml, read_text
from podium.manifests.kinds import JOB_KINDS, or_list
from podium.manifests.labels import IGNORED_FIELDS
from podium.manifests.placement import Pods, place
from podium.manifests.workload import Workload
from podium.system.arguments import checked

_MANIFEST = "the manifest"
"""Stands for the path of a job that comes from no file."""


@checked
class Job(Launched):
    """A Job, PyTorchJob, TrainJob … that is running or has ended."""

    _said = ""

    @property
    def workload(self) -> Workload:
        """The job with its present status, typed."""
        return self.cluster.workload(self.kind, self.name)

    @property
    def replicas(self) -> Sequence[ReplicaStatus]:
        """Its replicas: name, phase, restarts, exit code, reason …"""
        return self.cluster.replicas(self.kind, self.name)

    @property
    def status(self) -> str:
        """``Created``, ``Pending``, ``Running``, ``Waiting``, ``Succeeded`` or ``Failed``."""
        return str(self.to_json()["state"])

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what the shell and the page show of it."""
        job, replicas = self.workload, self.replicas
        directory = self.cluster.directory(self.kind, self.name)
        state, message = job.state.phase, job.state.message
        waits = not job.state.finished and all(replica.phase == "Pending" for replica in replicas)
        if waits and (why := self.cluster.waits_for(job)):  # Running, or Created, to the operator
            state, message = "Pending", why
        return {
            "kind": self.kind,
            "name": self.name,
            "state": state,
            "message": message,
            "created": job.created,
            "progress": progress_of(job, replicas),
            "directory": None if directory is None else str(directory),
            "replicas": [replica.to_json() for replica in replicas],
        }

    HEADS = ("NAME", "KIND", "STATE", "CREATED")

    @staticmethod
    def cells(job: Mapping[str, Any]) -> list[str]:
        """Return a cell for each of HEADS, from what to_json returned."""
        return [job["name"], job["kind"], job["state"], job["created"]]

    def logs(self, replica: str | None = None) -> Log:
        """Return the output of a replica: ``master-0``, ``worker-1`` …; of the one that reports
        metrics if None."""
        return Log("\n".join(self.cluster.logs(self.kind, self.name, replica)))

    def check(self) -> None:
        """Raise Failed, with the last lines of the replica that did, if the job failed."""
        if self.status == "Failed":
            raise self.cluster.failure(self.kind, self.name)

    def resume(self) -> None:
        """Resume a stopped job on Kubernetes with new pods."""
        self.cluster.resume(self.kind, self.name)

    def progress(self) -> str:
        """Describe the state of its replicas in a line."""
        return progress_of(self.workload, self.replicas)

    def _show(self, cell: LiveCell) -> None:
        if in_notebook():
            cell.show(self._repr_html_())
        elif (line := self.progress()) != self._said:
            self._said = line
            say(f"{self.name} {line}")

    def _sign_of_life(self) -> str:
        return f"{self.name} {self._said or 'starting'}"

    def __repr__(self) -> str:
        return one_line(f"<{self.kind} {self.name}: {self.progress()}>")

    def _repr_html_(self) -> str:
        heads, rows = replica_columns(self.replicas)
        return table(heads, rows, title=f"{self.kind} {self.name}: {self.status}")


def replica_columns(replicas: Sequence[ReplicaStatus]) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of a table of replicas, without columns in which nothing is known."""
    heads, rows = list(ReplicaStatus.HEADS.values()), [replica.cells() for replica in replicas]
    always = ("REPLICA", "STATE", ">RESTARTS")
    at = [at for at, head in enumerate(heads) if head in always or any(row[at] for row in rows)]
    return [heads[column] for column in at], [[row[column] for column in at] for row in rows]


def progress_of(job: Workload, replicas: Sequence[ReplicaStatus]) -> str:
    """Describe the state of a job's replicas in a line."""
    if job.state.phase == "Waiting":
        return f"waits. {job.state.message}"
    words = (
        f"{replica.name} {replica.phase.lower()}"
        + (f" ({replica.reason})" if replica.reason else "")
        + (f" (restart {replica.restarts})" if replica.restarts else "")
        for replica in replicas
    )
    return f"{job.state.phase}: {', '.join(words) or 'starting'}"


@checked
def run_job(
    job: str | Path | Mapping[str, Any],
    *,
    name: str | None = None,
    cluster: str | Path | ClusterSpec | None = None,
    queue: str = "",
    queue_priority: str = "",
    images: Mapping[str, str | Path] | None = None,
    wait: bool = True,
) -> Job:
    """Run a Job, PyTorchJob, TrainJob, TFJob, XGBoostJob or JAXJob, here or on a cluster.

    Args:
        job: A YAML file, or a manifest as a dict.
        name: metadata.name; the manifest's own if None, with a number appended if that is taken.
        cluster: ``kubernetes://NAMESPACE`` or a directory of this machine; the local cluster of
            PODIUM_HOME if None.
        queue: Kueue's local queue, in which the job waits for its turn on a cluster.
        queue_priority: Kueue's WorkloadPriorityClass, with a queue.
        images: Directories that stand for images on this machine.
        wait: Whether to return at the end, or at once while it runs in the background of this
            process.

    Raises:
        InvalidInput: It is not one job, or it breaks a rule; nothing was started.
        Failed: The job failed.

    Example:
        >>> import podium
        >>> job = podium.run_job(manifest)
        >>> job.status, job.logs()
        ('Succeeded', hello)
    """
    workload = read_job(job, name or "")
    session = Session(ClusterSpec.of(cluster, images=images))
    try:
        (begun,) = begin_jobs(
            [place(workload, Pods(queue=queue, queue_priority=queue_priority))], session
        )
    except BaseException:
        session.close()
        raise
    session.keep_open(begun.kind, begun.name)
    return begun.wait() if wait else begun


def read_job(job: str | Path | Mapping[str, Any], name: str = "") -> Workload:
    """Return the only job of a YAML file, or that a manifest is.

    Raises:
        InvalidInput: There is no such file, or it is not one job.
    """
    if isinstance(job, Mapping):
        documents, source = [dict(job)], _MANIFEST
    elif not os.path.isfile(job):
        raise InvalidInput(f"there is no file {job}", "the YAML of a job, or a manifest as a dict")
    else:
        documents, source = load_yaml(read_text(Path(job)), str(job), kubectl=True), str(job)
    jobs = read_jobs(documents, source, name if len(documents) == 1 else "")
    if len(jobs) > 1:
        raise InvalidInput(
            f"{source} holds {len(jobs)} jobs, but one is run", "podium job run runs all of a file"
        )
    return jobs[0]


def read_jobs(documents: Sequence[Any], source: str, name: str) -> list[Workload]:
    """Return the jobs of a file.

    Args:
        source: Name of the source, for errors.
        name: metadata.name instead of its own, of one job.

    Raises:
        InvalidInput: It holds none, or something else.
    """
    for number, document in enumerate(documents, 1):
        kind = document.get("kind") if isinstance(document, dict) else None
        if not isinstance(kind, str) or kind not in JOB_KINDS:
            file = "FILE" if source.startswith("<") else source
            run = (
                "podium.sweep(MANIFEST)" if source == _MANIFEST else f"podium experiment run {file}"
            )
            hint = run if kind == "Experiment" else "put other objects into another file"
            problem = f"document {number} has kind={kind!r}, but {source} must hold a {or_list([*JOB_KINDS])}"
            raise InvalidInput(problem, hint)
    if not documents:
        raise InvalidInput(f"{source} has no object in it", "it must hold a job")
    jobs = [Workload.parse(document) for document in documents]
    if name and len(jobs) > 1:
        raise InvalidInput(f"--name is for one job, but {source} holds {len(jobs)}")
    return [job.with_metadata({**job.metadata, "name": name}) for job in jobs] if name else jobs


def begin_jobs(jobs: Sequence[Workload], session: Session) -> list[Job]:
    """Create jobs on a cluster, say where, and return at once.

    Raises:
        InvalidInput: One breaks a rule, or nobody would start it; none was created.
    """
    cluster = session.cluster
    for job in jobs:
        if job.suspended and not (
            cluster.outlives_client(job.kind) and job.queue
        ):  # Kueue starts those in its queues
            raise InvalidInput(
                f"{job.kind} {job.name} is suspended: it would wait forever", "remove suspend: true"
            )
    if not cluster.traits.shares_files:
        jobs = [with_store(job, cluster.url, say) for job in jobs]
    created = [cluster.create(_with_free_name(cluster, job)) for job in jobs]
    for job in created:
        directory = cluster.directory(job.kind, job.name)
        say(
            f"{job.kind} {job.name}, {f'everything under {directory}' if directory else f'at {cluster.url}'}"
        )
        if ignored := job.annotations.get(IGNORED_FIELDS):
            say(f"without meaning on this machine, ignored: {ignored}")
    return [Job(session, job.kind, job.name) for job in created]


def _with_free_name(cluster: Cluster, job: Workload) -> Workload:
    if not job.name or "/" in job.name:
        return job  # for create to refuse
    return job.with_metadata({**job.metadata, "name": free_name(cluster, job.kind, job.name)})


@checked
def open_job(name: str, *, cluster: str | Path | ClusterSpec | None = None) -> Job:
    """Return a job that is running or has ended, also one of another process.

    Args:
        cluster: Cluster of the job, as podium.run_job takes it.

    Raises:
        NotFound: There is none.

    Example:
        >>> import podium
        >>> job = podium.run_job(manifest)
        >>> podium.open_job(job.name).status
        'Succeeded'
    """
    return find_job(Session(ClusterSpec.of(cluster)), name)


def find_job(session: Session, name: str, kinds: Sequence[str] = tuple(JOB_KINDS)) -> Job:
    """Return the job of a cluster that has this name, of the first of these kinds that has one.

    Raises:
        NotFound: There is none.
    """
    for kind in kinds:
        with suppress(
            NotFound, UnknownKind
        ):  # a cluster without the training operator has Jobs all the same
            session.cluster.get(kind, name)
            return Job(session, kind, name)
    raise NotFound(f"no job {name} in {session.cluster.url}", "podium.jobs() lists them")


@checked
def jobs(*, cluster: str | Path | ClusterSpec | None = None) -> list[Job]:
    """Return the jobs of a cluster, including those of sweeps and trainings.

    Args:
        cluster: As podium.run_job takes it.

    Example:
        >>> import podium
        >>> job = podium.run_job(manifest)
        >>> [job.name for job in podium.jobs()]
        ['hello']
    """
    return all_jobs(Session(ClusterSpec.of(cluster)))


def all_jobs(session: Session) -> list[Job]:
    """Return the jobs of an open cluster."""
    found = list[Job]()
    for kind in JOB_KINDS:
        with suppress(UnknownKind):
            found += [Job(session, kind, job.name) for job in session.cluster.list(kind)]
    return found


def job_rows(jobs: Iterable[Job]) -> list[dict[str, Any]]:
    """Return a row for each job that can be read."""
    return list(readable(jobs, Job.to_json, lambda job: f"{job.kind} {job.name}"))

"""Jobs as processes of this machine."""

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from podium.cluster.base import Cluster, R, ReplicaStatus
from podium.cluster.local.controller import Runtime
from podium.cluster.local.environment import (
    PodIdentity,
    container_environment,
    expand,
    threads_per_process,
)
from podium.cluster.local.logs import Logs
from podium.cluster.local.operator_job import controller_of
from podium.cluster.local.pods import PodPlan, plan_pod
from podium.cluster.local.processes.client import Command, LauncherPool
from podium.cluster.local.pushed import PushServer
from podium.cluster.local.store import POLL_SECONDS, Store, read_json
from podium.cluster.local.supplies import Images, Supplies
from podium.display.text import as_note
from podium.errors import Failed, InvalidInput
from podium.files.drafts import appearing
from podium.manifests.admission import admit
from podium.manifests.kinds import JOB_KINDS, TRAINJOB, or_list
from podium.manifests.labels import IGNORED_FIELDS
from podium.manifests.names import named
from podium.manifests.resource import Resource
from podium.manifests.trainjob import MPI_RUNTIMES, TORCH
from podium.manifests.typed import Reader
from podium.manifests.workload import Workload


class Supervisor(Protocol):
    """Runs one object in the background."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Ask for the end of everything it runs, without waiting; safe to call twice."""

    def wake(self) -> None:
        """Ask for a check of the object: it may have to be deleted."""

    def join(self, timeout: float | None = None) -> bool:
        """Wait until nothing is running; return whether that is so."""


_NOBODY = PodIdentity(name="pod", namespace="default", uid="")

DELETE_TIMEOUT = 30.0
"""Seconds that delete waits for the last process."""


NOTE_FILE = "note.txt"
"""A person's note, in the directory of an object."""


class LocalCluster(Cluster):
    """Jobs under a directory, supervised by this process; any other process may look and delete.

    All that runs ends with this process, however it ends.

    Args:
        directory: Parent of ``{pytorchjobs,jobs,…}/<name>/``; created when needed.
        images: Directories that stand for container images; any other image is this Python.
        entrypoints: Entrypoints of images, for containers without a command.
        fork_server: Whether ``python -m`` may run in a fork of a process that has done its imports
            (PODIUM_FORK_SERVER=0 switches it off too).
        supplies: Directories and files that stand for volumes, Secrets and ConfigMaps.
    """

    creates: tuple[str, ...] = tuple(JOB_KINDS)
    """Kinds of objects that it runs."""

    def __init__(
        self,
        directory: Path,
        images: Mapping[str, str | Path] | None = None,
        entrypoints: Mapping[str, Sequence[str]] | None = None,
        fork_server: bool = True,
        supplies: Supplies | None = None,
    ) -> None:
        self.url = f"local://{directory}"
        self.store = Store(directory)
        self.runtime = Runtime(
            store=self.store,
            launchers=LauncherPool(fork_server),
            images=Images.read(images, entrypoints, supplies),
            pushes=PushServer(self.store),
        )
        self._lock = threading.Lock()
        self._supervisors: dict[tuple[str, str], Supervisor] = {}
        self._closed = False
        self._reader = Reader()

    def create(self, resource: R) -> R:
        """Start an object; fields that mean nothing here are named in the annotation
        podium.dev/ignored-fields."""
        if (kind := resource.kind) not in self.creates:
            problem = f"kind must be {or_list(self.creates)}, but got {kind or 'none'}"
            raise InvalidInput(problem, "write kind: and one of these")
        stored, supervisor = self._store(named(resource))
        self._reader.remember(stored)
        self.supervise(stored.kind, stored.name, supervisor)
        return stored

    def supervise(self, kind: str, name: str, supervisor: Supervisor) -> None:
        """Start the supervisor of a stored object, and end it with this cluster.

        Raises:
            Failed: The cluster was closed.
        """
        with self._lock:
            if self._closed:
                raise Failed(f"{self.url} was closed", "connect again")
            ended = [key for key, running in self._supervisors.items() if running.join(0)]
            for key in ended:
                del self._supervisors[key]
            self._supervisors[kind, name] = supervisor
            supervisor.start()

    def join(self, kind: str, name: str, timeout: float | None = None) -> bool:
        with self._lock:
            supervisor = self._supervisors.get((kind, name))
        return supervisor is None or supervisor.join(timeout)

    def get(self, kind: str, name: str) -> Resource:
        return self._reader.read(self.store.read(kind, name))

    def list(self, kind: str, labels: dict[str, str] | None = None) -> Sequence[Resource]:
        found = self.store.list(kind, labels)
        if kind == "Trial":  # a sweep has all its trials, or none
            return [self._reader.read(each) for each in found]
        return list(self._reader.read_all(found))

    def watch(self, kind: str, name: str, timeout: float | None = None) -> Iterator[Resource]:
        for manifest in self.store.changes(kind, name, timeout):
            resource = self._reader.read(manifest)
            yield resource
            if resource.state.finished:
                return

    def logs(
        self, kind: str, name: str, replica: str | None = None, follow: bool = False
    ) -> Iterator[str]:
        """Yield the log lines of one replica; a restart appends to the same log."""
        return Logs(self.store, kind, name).lines(replica, follow)

    def replicas(self, kind: str, name: str) -> Sequence[ReplicaStatus]:
        """Return the replicas as their supervisor recorded them; where it is dead, all that ran
        ended with it."""
        self.store.read(kind, name)
        alive = self.store.supervision.is_supervised(
            kind, name
        )  # asked first: its last records are written before it gives up
        try:
            records = read_json(self.store.path(kind, name) / "pods.json", list)
        except FileNotFoundError:
            return []
        return [_replica_status(record, alive) for record in records]

    def directory(self, kind: str, name: str) -> Path | None:
        return self.store.path(kind, name)

    def stop(self, kind: str, name: str) -> None:
        """Ask the process that supervises an object, whichever it is, to stop it; a job becomes
        Failed."""
        self.refuse_ended(kind, name)
        self.store.ask("stop", kind, name)

    def resume(self, kind: str, name: str, changes: Mapping[str, int | str] | None = None) -> None:
        """Refuse: the processes of a stopped job are gone, and their state with them."""
        self.get(kind, name)
        raise InvalidInput(f"{kind} {name} cannot be resumed on this machine", "run its YAML again")

    def note(self, resource: Resource) -> str:
        with suppress(FileNotFoundError):
            return (self.store.path(resource.kind, resource.name) / NOTE_FILE).read_text()
        return ""

    def write_note(self, kind: str, name: str, text: str) -> None:
        """As the interface says: into a file of its own, since another process writes the object."""
        self.get(kind, name)
        with appearing(self.store.path(kind, name) / NOTE_FILE) as draft:
            draft.write_text(as_note(text))

    def delete(self, kind: str, name: str) -> None:
        """Stop the object, whichever process supervises it, and remove its files, logs too."""
        self.store.ask("delete", kind, name)
        deadline = time.monotonic() + DELETE_TIMEOUT
        with self._lock:
            supervisor = self._supervisors.get((kind, name))
        if supervisor:
            supervisor.wake()
        ended = supervisor is None or supervisor.join(DELETE_TIMEOUT)
        while self.store.exists(kind, name) and time.monotonic() < deadline:
            if ended and not self.store.supervision.is_supervised_elsewhere(kind, name):
                self.remove(kind, name)
            else:
                time.sleep(POLL_SECONDS / 4)

    def remove(self, kind: str, name: str) -> None:
        """Remove an object that no process runs."""
        self.store.remove(kind, name)

    def abandon(self, kind: str, name: str) -> None:
        """Ask for the end of its processes; the object stays, as Failed or as an Experiment that
        can be resumed."""
        with self._lock:
            supervisor = self._supervisors.get((kind, name))
        if supervisor:
            supervisor.stop()

    def close(self) -> None:
        """Stop everything that this process supervises; returns when no process is left."""
        with self._lock:
            supervisors, self._supervisors = self._supervisors, {}
            for supervisor in (
                supervisors.values()
            ):  # an Experiment before its trials: it would count them as failed
                supervisor.stop()
            self._closed = True
        self.runtime.launchers.give_up()
        for supervisor in supervisors.values():
            supervisor.join(DELETE_TIMEOUT)
        self.runtime.launchers.close()
        self.runtime.pushes.close()
        self.store.supervision.close()

    def plan(self, resource: Resource) -> tuple[Workload, dict[str, PodPlan]]:
        """Return a job with its defaults, and how the pods of each role would run here.

        Raises:
            InvalidInput: It breaks a rule, or a field cannot be honored on this machine.
        """
        job = self.with_entrypoints(admit(resource.manifest))
        controller_of(job).check(job)
        plans = {
            replica.role: plan_pod(replica.pod, self.runtime.images) for replica in job.replicas
        }
        threads_per_process(job)
        for plan in plans.values():  # the errors of an environment before anything is stored
            for container in (*plan.init, plan.main):
                container_environment(container, _NOBODY, {}, 1, str)
        return job, plans

    def with_entrypoints(self, job: Workload) -> Workload:
        """Return a job whose containers without a command have the entrypoint of their image, where
        known."""
        return job.changed_job(
            lambda editor: editor.default_commands(self.runtime.images.entrypoint)
        )

    def warm(self, workload: Workload) -> None:
        """Start the imports of the fork servers for the processes of a job like this one, without
        waiting.

        Raises:
            InvalidInput: As for plan.
        """
        for command in self.commands(workload):
            self.runtime.launchers.warm(command)

    def commands(self, workload: Workload) -> Sequence[Command]:
        """Return the commands of a job's containers, without volumes and a log.

        Raises:
            InvalidInput: As for plan.
        """
        job, plans = self.plan(workload)
        threads = threads_per_process(job)
        pod = PodIdentity(name=f"{job.name}-pod-0", namespace=job.namespace, uid=job.uid)
        commands = []
        for container in (plan.main for plan in plans.values()):
            env = container_environment(container, pod, {}, threads, str)
            argv = tuple(container.image.resolve(expand(word, env)) for word in container.argv)
            folder, own = (
                container.working_dir or container.image.workdir,
                container.image.root is None,
            )
            commands.append(
                Command(argv=argv, env=env, cwd=folder, log=Path(os.devnull), own_python=own)
            )
        return commands

    def take_reports(self) -> None:
        """Stand for Katib's database, too, for the jobs that start from now on.

        Raises:
            InvalidInput: The package grpcio is not installed.
        """
        self.runtime.pushes.serve_database()

    def _store(self, resource: R) -> tuple[R, Supervisor]:
        job, plans = self.plan(resource)
        written = _with_status(Workload(manifest=resource.manifest), _ignored(job, plans))
        stored = replace(resource, manifest=self.store.create(written.manifest))
        job = job.with_metadata(stored.metadata).with_status(stored.status)
        return stored, controller_of(job)(self.runtime, job, plans)


def directory_of(url: str) -> Path:
    """Return the directory that a ``local:///dir`` URL names.

    Raises:
        InvalidInput: It names no absolute directory.
    """
    directory = Path(url.removeprefix("local://"))
    if not directory.is_absolute():
        raise InvalidInput(
            f"a local cluster's URL is local:///absolute/dir, not {url!r}",
            f"say local://{directory.absolute()}",
        )
    if directory.exists() and not directory.is_dir():
        raise InvalidInput(f"a local cluster's URL names a directory, but {directory} is a file")
    return directory


def _replica_status(record: Mapping[str, Any], alive: bool) -> ReplicaStatus:
    ended = record["phase"] not in ("Pending", "Running")
    return ReplicaStatus(
        name=record["replica"],
        phase=record["phase"] if alive or ended else "Stopped",
        restarts=record["restarts"],
        exit_code=record["exitCode"],
        started=record.get("started", ""),
        pid=record["pid"] if alive else None,
    )


def _ignored(job: Workload, plans: Mapping[str, PodPlan]) -> list[str]:
    ignored = {
        *(field for plan in plans.values() for field in plan.ignored),
        *(["runPolicy.schedulingPolicy"] if job.run_policy.get("schedulingPolicy") else []),
        *(["elasticPolicy.metrics"] if job.elastic and job.elastic.scales else []),
    }
    if job.kind == TRAINJOB and job.runtime not in (TORCH, *MPI_RUNTIMES):
        ignored.add(f"runtimeRef.name (run as {MPI_RUNTIMES[0] if job.uses_mpi else TORCH})")
    return sorted(ignored)


def _with_status(job: Workload, ignored: list[str]) -> Workload:
    job = job.with_status({})
    if ignored:
        job = job.changed_job(lambda editor: editor.annotate({IGNORED_FIELDS: ", ".join(ignored)}))
    if job.operator:
        return job.with_condition(
            "Created", f"{job.kind}Created", f"{job.kind} {job.name} is created."
        )
    return job

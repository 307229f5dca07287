"""PyTorchJobs and Jobs as processes of this machine."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from podium.cluster.base import Cluster, Manifest
from podium.cluster.local import batch_job as batch
from podium.cluster.local import pytorchjob as training
from podium.cluster.local.controller import Runtime
from podium.cluster.local.environment import PodIdentity, container_environment, expand
from podium.cluster.local.images import check_images
from podium.cluster.local.logs import read_log
from podium.cluster.local.metadata import timestamp
from podium.cluster.local.pods import PodPlan
from podium.cluster.local.processes.client import Command
from podium.cluster.local.processes.launcher_pool import LauncherPool
from podium.cluster.local.store import POLL, Store
from podium.cluster.local.supervisor import Supervisor
from podium.errors import Failed, InvalidInput, require
from podium.manifests.admission import admit
from podium.manifests.conditions import set_condition, status_of
from podium.manifests.labels import IGNORED_FIELDS
from podium.manifests.names import random_suffix

_NOBODY = PodIdentity(name="pod", namespace="default", uid="")

DELETE_TIMEOUT = 30.0
"""Seconds that delete waits for the last process."""


class LocalCluster(Cluster):
    """Jobs under a directory, supervised by this process; any other process may look and delete.

    All that runs ends with this process, however it ends.

    Args:
        directory: Holds ``{pytorchjobs,jobs}/<name>/``; made when needed.
        images: Directories that stand for container images; any other image is this Python.
        fork_server: Whether ``python -m`` may run in a fork of a process that has done its imports
            (PODIUM_FORK_SERVER=0 switches it off too).
    """

    creates: tuple[str, ...] = ("PyTorchJob", "Job")
    """Kinds of objects that it runs."""

    def __init__(
        self, directory: Path, images: Mapping[str, str | Path] | None = None, fork_server: bool = True
    ) -> None:
        self.url = f"local://{directory}"
        self.store = Store(directory)
        self._runtime = Runtime(
            store=self.store, launchers=LauncherPool(fork_server), images=check_images(images or {})
        )
        self._lock = threading.Lock()
        self._supervisors: dict[tuple[str, str], Supervisor] = {}
        self._closed = False

    def create(self, manifest: Manifest) -> Manifest:
        """Start an object; fields that mean nothing here are named in the annotation podium.dev/ignored-fields."""
        kind = manifest.get("kind") if isinstance(manifest, dict) else None
        law = f"kind is {', '.join(self.creates[:-1])} or {self.creates[-1]}"
        require(kind in self.creates, law, "write kind: and one of these", kind=kind)
        stored, supervisor = self._store(_named(manifest))
        self.supervise(stored["kind"], stored["metadata"]["name"], supervisor)
        return stored

    def supervise(self, kind: str, name: str, supervisor: Supervisor) -> None:
        """Start what runs a stored object, and end it with this cluster.

        Raises:
            Failed: The cluster was closed.
        """
        with self._lock:
            if self._closed:
                raise Failed(f"{self.url} was closed", "connect again")
            ended = [key for key, one in self._supervisors.items() if one.join(0)]
            for key in ended:
                del self._supervisors[key]
            self._supervisors[kind, name] = supervisor
            supervisor.start()

    def join(self, kind: str, name: str, timeout: float | None = None) -> bool:
        """Wait until nothing of an object runs in this process any more; return whether that is so."""
        with self._lock:
            supervisor = self._supervisors.get((kind, name))
        return supervisor is None or supervisor.join(timeout)

    def halt(self, kind: str, name: str) -> None:
        """Ask for the end of an object's processes without waiting; it stays, and becomes Failed if unfinished."""
        with self._lock:
            supervisor = self._supervisors.get((kind, name))
        if supervisor:
            supervisor.stop()

    def get(self, kind: str, name: str) -> Manifest:
        """Return the object with its present status."""
        return self.store.read(kind, name)

    def list(self, kind: str, labels: dict[str, str] | None = None) -> list[Manifest]:
        """Return the objects of a kind that carry all given labels, oldest first."""
        return self.store.list(kind, labels)

    def watch(self, kind: str, name: str, timeout: float | None = None) -> Iterator[Manifest]:
        """Yield the object now and on every change until its last state."""
        for manifest in self.store.changes(kind, name, timeout):
            yield manifest
            if status_of(manifest).finished:
                return

    def logs(self, kind: str, name: str, replica: str | None = None, follow: bool = False) -> Iterator[str]:
        """Yield the log lines of one replica; a restart appends to the same log."""
        return read_log(self.store, kind, name, replica, follow)

    def delete(self, kind: str, name: str) -> None:
        """Stop the object, whichever process supervises it, and remove its files, logs too."""
        self.store.ask_to_delete(kind, name)
        deadline = time.monotonic() + DELETE_TIMEOUT
        with self._lock:
            supervisor = self._supervisors.get((kind, name))
        if supervisor:
            supervisor.wake()
        ended = supervisor is None or supervisor.join(DELETE_TIMEOUT)
        while self.store.exists(kind, name) and time.monotonic() < deadline:
            if ended and not self.store.is_supervised_elsewhere(kind, name):
                self._remove(kind, name)
            else:
                time.sleep(POLL / 4)

    def abandon(self, kind: str, name: str) -> None:
        """Ask for the end of its processes; the object stays, so that an Experiment can be resumed."""
        self.halt(kind, name)

    def close(self) -> None:
        """Stop everything that this process supervises; returns when no process is left."""
        with self._lock:
            supervisors, self._supervisors = self._supervisors, {}
            self._before_closing(supervisors)
            self._closed = True
        for supervisor in supervisors.values():
            supervisor.stop()
        self._runtime.launchers.give_up()
        for supervisor in supervisors.values():
            supervisor.join(DELETE_TIMEOUT)
        self._runtime.launchers.close()
        self.store.close()

    def plan(self, manifest: Manifest) -> tuple[Manifest, tuple[PodPlan, ...]]:
        """Return a PyTorchJob or Job with its defaults and how its pods would run here; nothing is started.

        Raises:
            InvalidInput: It breaks a rule, or a field cannot be honoured on this machine.
        """
        admitted = admit(manifest)
        kind = admitted["kind"]
        if kind == "PyTorchJob":
            plans = tuple(training.plan_pytorchjob(admitted, self._runtime).values())
            training.threads_of(admitted)
        else:
            plans = (batch.plan_job(admitted, self._runtime),)
            batch.threads_of(admitted)
        _check_environment(plans)
        return admitted, plans

    def warm(self, manifest: Manifest) -> None:
        """Let the fork servers for the processes of a job like this one begin with their imports, without waiting.

        Raises:
            InvalidInput: As for plan.
        """
        admitted, plans = self.plan(manifest)
        threads = training.threads_of(admitted) if admitted["kind"] == "PyTorchJob" else batch.threads_of(admitted)
        for one in (plan.main for plan in plans):
            env = container_environment(one, _NOBODY, {}, threads, str)
            argv = tuple(one.image.resolve(expand(word, env)) for word in one.argv)
            place, own = one.working_dir or one.image.workdir, one.image.root is None
            self._runtime.launchers.warm(Command(argv=argv, env=env, cwd=place, log=Path(os.devnull), own_python=own))

    def _store(self, manifest: Manifest) -> tuple[Manifest, Supervisor]:
        """Store a new object and return what will run it."""
        admitted, plans = self.plan(manifest)
        kind = admitted["kind"]
        stored = self.store.create(_with_status(manifest, _ignored(admitted, plans)))
        whole = admitted | {"metadata": stored["metadata"], "status": stored["status"]}
        controller = training.PyTorchJobController if kind == "PyTorchJob" else batch.JobController
        return stored, controller(self._runtime, whole)

    def _remove(self, kind: str, name: str) -> None:
        """Remove an object that nothing runs any more."""
        self.store.remove(kind, name)

    def _before_closing(self, supervisors: Mapping[tuple[str, str], Supervisor]) -> None:
        """Stop what would start more, while it still may."""


def directory_of(url: str) -> Path:
    """Return the directory that a ``local:///dir`` URL names.

    Raises:
        InvalidInput: It names no absolute directory.
    """
    directory = Path(url.removeprefix("local://"))
    if not directory.is_absolute():
        raise InvalidInput(
            f"a local cluster's URL is local:///absolute/dir, not {url!r}", f"say local://{directory.absolute()}"
        )
    if directory.exists() and not directory.is_dir():
        raise InvalidInput(f"a local cluster's URL names a directory, but {directory} is a file")
    return directory


def _named(manifest: Manifest) -> Manifest:
    metadata = manifest.get("metadata")
    require(isinstance(metadata, dict), "metadata is an object", "metadata: {name: …}", metadata=metadata)
    assert isinstance(metadata, dict)
    if not metadata.get("name") and isinstance(metadata.get("generateName"), str):
        return manifest | {"metadata": metadata | {"name": metadata["generateName"] + random_suffix()}}
    # The name becomes a folder: checked before the rules of each kind are.
    name = metadata.get("name")
    fits = isinstance(name, str) and bool(name) and "/" not in name and name[0] != "."
    require(fits, "metadata.name is a name", "lower case letters, digits and dashes", name=name)
    return manifest


def _check_environment(plans: tuple[PodPlan, ...]) -> None:
    """Find what an environment lacks before anything is stored."""
    for plan in plans:
        for container in (*plan.init, plan.main):
            container_environment(container, _NOBODY, {}, 1, str)


def _ignored(job: Manifest, plans: tuple[PodPlan, ...]) -> list[str]:
    found = [field for plan in plans for field in plan.ignored]
    spec = job["spec"]
    found += ["runPolicy.schedulingPolicy"] if (spec.get("runPolicy") or {}).get("schedulingPolicy") else []
    found += ["elasticPolicy.metrics"] if (spec.get("elasticPolicy") or {}).get("metrics") else []
    return sorted(set(found))


def _with_status(manifest: Manifest, ignored: list[str]) -> Manifest:
    metadata = manifest["metadata"]
    status: dict[str, Any] = {}
    if ignored:
        annotations = (metadata.get("annotations") or {}) | {IGNORED_FIELDS: ", ".join(ignored)}
        metadata = metadata | {"annotations": annotations}
    if manifest["kind"] == "PyTorchJob":
        message = f"PyTorchJob {metadata['name']} is created."
        set_condition(status, "Created", True, "PyTorchJobCreated", message, timestamp())
    return manifest | {"metadata": metadata, "status": status}

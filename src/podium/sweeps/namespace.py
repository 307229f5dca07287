"""Experiments of a namespace that serves none: this process runs the loop, and trials are plain
jobs there.

Experiments and trials are kept in files, as those of this machine are; a step keeps a copy in the
run's storage, from which its retry goes on. Of several processes one runs an Experiment: who holds
its Lease.
"""

import logging
import os
import shlex
import shutil
import socket
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import cast
from urllib.parse import quote

from podium.cluster.base import Cluster, R, ReplicaStatus
from podium.cluster.kubernetes import logs as kubernetes_logs
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.leadership import DURATION_SECONDS, Leadership, is_led
from podium.cluster.kubernetes.pods import JobPods, not_run
from podium.cluster.kubernetes.store_access import Access, grant_access
from podium.cluster.local.cluster import Supervisor
from podium.errors import Conflict, Denied, Failed, InvalidInput, NotFound, PodiumError, Unavailable
from podium.manifests.experiment import Experiment, check
from podium.manifests.experiment.pool import refuse_what_pools_lack
from podium.manifests.job_kinds import job_manifest
from podium.manifests.kinds import or_list
from podium.manifests.labels import EXPERIMENT, POOL_STATE
from podium.manifests.options.pool import pool_size
from podium.manifests.placement import Pods, place
from podium.manifests.pod_security import with_pod_deadlines, with_pod_defaults
from podium.manifests.resource import Resource
from podium.manifests.workload import Workload
from podium.storage import Storage, connect, local_path
from podium.sweeps.base import Executor
from podium.sweeps.controller import ExperimentController
from podium.sweeps.file_documents import OBJECT, FileDocuments, StateCopy
from podium.sweeps.local import LocalSweeps
from podium.sweeps.pod_trial import JobExecutor, jobs_of_trials, refuse_what_pods_lack
from podium.sweeps.pool import Pool
from podium.sweeps.pool_store import PoolStore
from podium.sweeps.records import Records
from podium.system.background import Background
from podium.system.pod import POD_NAME, pod_namespace
from podium.system.settings import STEPS_IMAGE, STORAGE, Settings

_log = logging.getLogger("podium")

_OWN = ("Experiment", "Trial")
"""Kinds that this process keeps where the API server does not."""

_IMAGE = "PODIUM_IMAGE"
"""Variable with the image of the container that prints a trial's metrics file."""

_COPY_SECONDS = 2.0
"""Age up to which the copy of a sweep that another process runs is not read again."""

_LEASE = "podium-sweep-"
"""Begins the name of an Experiment's Lease."""


class NamespaceSweeps(KubernetesCluster):
    """A namespace; where it serves no Experiments, this process runs those it is given.

    Args:
        url: URL of a KubernetesCluster, with ``?engine=cluster`` or ``?engine=here`` to decide that
            in advance, and with ``state=`` for the next argument.
        state: URL of a copy of Experiments and trials, from which a process on another machine goes
            on; empty for none.
        lease_seconds: Seconds without a renewal after which another process takes an Experiment
            over.
    """

    def __init__(self, url: str, state: str = "", lease_seconds: float = DURATION_SECONDS) -> None:
        super().__init__(url)
        self._state, self._lease_seconds = state or self.state, lease_seconds
        if self.state:
            self.url += _kept_in(self.state, self.engine)
        self._pools: dict[str, PoolStore] = {}

    @cached_property
    def loops(self) -> "_Loops | None":
        """The Experiments that this process runs; None where the cluster does that."""
        if self.engine == "cluster" or (self.engine == "auto" and self.runs_experiments):
            return None
        if self._state:
            return _Loops(
                self,
                Path(tempfile.mkdtemp(prefix="podium-")),
                connect(self._state),
                self._lease_seconds,
            )
        server = quote(self.api.client.configuration.host.partition("://")[2], safe="")
        home = Settings.from_environment().home / "namespaces" / server / self.api.namespace
        return _Loops(self, home, None, self._lease_seconds)

    def _own(self, kind: str, name: str = "") -> "_Loops | None":
        """Return the store of an object's kind; None for the API server, which may have some
        although no engine leads."""
        loops = self.loops if kind in _OWN else None
        elsewhere = (
            loops and name and not loops.store.exists(kind, name) and self._is_served(kind, name)
        )
        return None if elsewhere else loops

    def _home(self, kind: str, name: str) -> Cluster:
        return self._own(kind, name) or cast(Cluster, super())

    def _is_served(self, kind: str, name: str) -> bool:
        if not self._knows_kinds:
            return False
        with suppress(NotFound, Denied):
            return bool(super().get(kind, name))
        return False

    @cached_property
    def _knows_kinds(self) -> bool:
        """Whether the API server may have Experiments of its own beside those of this process."""
        return self.engine == "auto" and self.api.serves("Experiment")

    def outlives_client(self, kind: str) -> bool:
        return not self._own(kind)

    def create(self, resource: R) -> R:
        own = self._own(resource.kind)
        problem, hint = not_run(self.api.namespace)
        if own and self._knows_kinds:
            if self._is_served(resource.kind, resource.name):
                raise Conflict(
                    f"{resource.kind} {resource.name} exists in {self.url}", "choose another name"
                )
            _log.warning("%s: this process runs the sweep", problem)
        elif (
            resource.kind == "Experiment"
            and not own
            and self.api.serves("Experiment")
            and not self.runs_experiments
        ):
            raise InvalidInput(problem, hint)
        return own.create(resource) if own else super().create(resource)

    def get(self, kind: str, name: str) -> Resource:
        if own := self._own(kind, name):
            return own.get(kind, name)
        try:
            return super().get(kind, name)
        except NotFound:
            if kind == "Trial" and (store := self._pool_of(name.rpartition("-")[0])):
                return store.trial(name)
            raise

    def list(self, kind: str, labels: dict[str, str] | None = None) -> Sequence[Resource]:
        if own := self._own(kind):
            served = super().list(kind, labels) if self._knows_kinds else ()
            return [*own.list(kind, labels), *served]
        found = super().list(kind, labels)
        if (
            kind == "Trial"
            and not found
            and (store := self._pool_of((labels or {}).get(EXPERIMENT, "")))
        ):
            return store.trials()
        return found

    def _pool_of(self, experiment: str) -> PoolStore | None:
        """Return where the trials of an Experiment lie that a pool runs; None if the API server has
        them."""
        url = None
        with suppress(NotFound):  # asked each time: one that is begun anew has another place
            try:
                stored = super().get("Experiment", experiment) if experiment else None
            except Unavailable:
                if experiment in self._pools:  # what is in the storage can be read all the same
                    return self._pools[experiment]
                raise
            url = stored and stored.annotations.get(POOL_STATE)
        if not url:
            self._pools.pop(experiment, None)
            return None
        cached = self._pools.get(experiment)
        store = self._pools[experiment] = cached if cached and cached.url == url else PoolStore(url)
        return store

    def watch(self, kind: str, name: str, timeout: float | None = None) -> Iterator[Resource]:
        return self._home(kind, name).watch(kind, name, timeout)

    def logs(
        self, kind: str, name: str, replica: str | None = None, follow: bool = False
    ) -> Iterator[str]:
        if own := self._own(kind, name):
            return own.logs(kind, name, replica, follow)
        store = self._pool_of(name.rpartition("-")[0]) if kind == "Trial" else None
        return iter(store.log(name)) if store else super().logs(kind, name, replica, follow)

    def replicas(self, kind: str, name: str) -> Sequence[ReplicaStatus]:
        return self._home(kind, name).replicas(kind, name)

    def failure(self, kind: str, name: str) -> Failed:
        if own := self._own(kind, name):
            return own.failure(kind, name)
        store = self._pool_of(name.rpartition("-")[0]) if kind == "Trial" else None
        return Cluster.failure(self, kind, name) if store else super().failure(kind, name)

    def stop(self, kind: str, name: str) -> None:
        self._home(kind, name).stop(kind, name)

    def add_trial(self, experiment: str, values: Mapping[str, object]) -> str:
        return self._home("Experiment", experiment).add_trial(experiment, values)

    def resume(self, kind: str, name: str, changes: Mapping[str, int | str] | None = None) -> None:
        self._home(kind, name).resume(kind, name, changes)

    def note(self, resource: Resource) -> str:
        return self._home(resource.kind, resource.name).note(resource)

    def write_note(self, kind: str, name: str, text: str) -> None:
        self._home(kind, name).write_note(kind, name, text)

    def delete(self, kind: str, name: str) -> None:
        self._home(kind, name).delete(kind, name)

    def abandon(self, kind: str, name: str) -> None:
        self._home(kind, name).abandon(kind, name)

    def join(self, kind: str, name: str, timeout: float | None = None) -> bool:
        own = self._own(kind, name)
        return own.join(kind, name, timeout) if own else True

    def close(self) -> None:
        if self.__dict__.get("loops"):
            self.__dict__["loops"].close()
        super().close()


def _loop_job(experiment: str) -> str:
    return f"{experiment}-loop"


class _Loops(LocalSweeps):
    """Experiments and trials in files, whose trials' jobs are a namespace's.

    Args:
        directory: Directory of the files.
        state: Copy of the files, which is read first; the directory is deleted with this object.
        lease_seconds: Seconds without a renewal after which another process takes an Experiment
            over.
    """

    def __init__(
        self,
        namespace: KubernetesCluster,
        directory: Path,
        state: Storage | None,
        lease_seconds: float,
    ) -> None:
        super().__init__(directory, fork_server=False)
        self.url, self.namespace, self.lease_seconds = namespace.url, namespace, lease_seconds
        self.store.option, self.store.trials_go_on = f"--cluster {shlex.quote(namespace.url)}", True
        if namespace.state:  # of a Job, which this process may only look at
            self.store.runs_elsewhere = self._runs_elsewhere
        self.copy = StateCopy(state, directory)
        self._state = state
        if state:  # the directory is this object's own
            self._scratch = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self._holder = (
            f"{os.environ.get('HOSTNAME') or socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        )
        self._leads: dict[str, Leadership] = {}
        self.copy.read()

    def _runs_elsewhere(self, name: str) -> bool:
        if name in self._leads:
            return False
        if is_led(self.namespace.api, _LEASE + name) or self._is_to_be_run(name):
            self.copy.read(_COPY_SECONDS)
            return True
        self.copy.read()  # the end is written before the Lease goes: maybe since this copy was read
        return False

    def _is_to_be_run(self, name: str) -> bool:
        try:
            return not self.namespace.workload("Job", _loop_job(name)).state.finished
        except (NotFound, Denied):
            return False

    def lead(self, experiment: Resource, timeout: float) -> Leadership:
        """Return the leadership of an Experiment, once this process has it.

        Raises:
            Conflict: Another process has it.
            Denied: The account may not read or write Leases.
        """
        api, name = self.namespace.api, experiment.name
        leadership = Leadership(
            api, _LEASE + name, self._holder, self.lease_seconds, experiment.owners
        )
        try:
            if leadership.acquire(timeout):
                return leadership
        except Denied as error:
            hint = "the account needs create, get, update and delete of leases (coordination.k8s.io): deploy/ has them"
            raise Denied(
                f"who runs Experiment {name} is decided by a Lease: {error.message}", hint
            ) from error
        raise Conflict(
            f"another process runs Experiment {name} in namespace {self.namespace.api.namespace}",
            "wait for it, stop it, or choose another name",
        )

    @cached_property
    def image(self) -> str:
        """Image with podium: PODIUM_IMAGE's, else that of the pod this runs in."""
        if configured := os.environ.get(_IMAGE):
            return configured
        api, name, namespace = self.namespace.api, os.environ.get(POD_NAME), pod_namespace()
        if not name or not namespace:
            return STEPS_IMAGE
        pod = api.call(f"read pod {name}", api.core.read_namespaced_pod, name, namespace)
        return str(
            next(container.image for container in pod.spec.containers if container.name == "main")
        )

    def close(self) -> None:
        super().close()
        if self._state:
            self._scratch()

    def resume(self, kind: str, name: str, changes: Mapping[str, int | str] | None = None) -> None:
        try:
            if kind == "Experiment" and not self.store.supervision.is_supervised(kind, name):
                self._leads[name] = self.lead(self.experiment(name), self._patience)
                self.copy.read()  # what another process wrote since this one looked
            super().resume(kind, name, changes)
        except BaseException:
            self._give_up(name)
            raise

    def stop(self, kind: str, name: str) -> None:
        if not self._state or self.store.supervision.is_supervised(kind, name):
            return super().stop(kind, name)
        if kind != "Experiment":
            raise InvalidInput(
                f"trial {name} runs in a Job, which can only be stopped as a whole",
                "stop the sweep",
            )
        self.namespace.stop("Job", _loop_job(name))

    def add_trial(self, experiment: str, values: Mapping[str, object]) -> str:
        if self._state and not self.store.supervision.is_supervised("Experiment", experiment):
            problem = f"Experiment {experiment} runs in a Job, which accepts no trials by hand"
            raise InvalidInput(problem, "run the sweep without --detach")
        return super().add_trial(experiment, values)

    def supervisor(self, experiment: Experiment) -> Supervisor:
        name = experiment.name
        if name not in self._leads:
            self._leads[name] = self.lead(experiment, self._patience)
        try:
            return _Loop(self, experiment, self._leads[name])
        except BaseException:  # its trials cannot run here
            self._leads.pop(name).delete()
            raise

    def controller(self, experiment: Experiment, leadership: Leadership) -> ExperimentController:
        """Return the controller of an Experiment for as long as a leadership lasts."""
        executor: Executor
        if pool_size(experiment):
            executor = Pool(self.namespace, experiment, self.pool_store, leadership, served=False)
        else:
            refuse_what_pods_lack(experiment)
            executor = JobExecutor(self.namespace, leadership, self.image, served=False)
        copy = partial(self.copy.write, leadership=leadership) if self._state else None
        documents = FileDocuments(self, experiment.name, copy)
        records = Records(self, experiment, documents, executor, leadership=leadership)
        return ExperimentController(records, experiment)

    def keep(self, experiment: Experiment) -> None:
        """Store an Experiment that another process is to run.

        Raises:
            InvalidInput: It breaks a rule.
            Conflict: There is one of this name.
        """
        assert self._state
        name, checked = experiment.name, self._checked(experiment)
        file = self.store.path("Experiment", name) / OBJECT
        key = str(file.relative_to(self.store.directory))
        try:
            self.store.create(checked.manifest)
            self.store.supervision.disown("Experiment", name)
            self._state.put(key, file.read_bytes(), if_absent=True)
        except Conflict:
            # Ours is there already if the answer to a first request was lost.
            if file.exists() and self._state.get(key) == file.read_bytes():
                return
            raise Conflict(
                f"Experiment {name} exists in {self._state.url}", "choose another name: --name"
            ) from None

    def _checked(self, resource: Experiment) -> Experiment:
        """Return an Experiment as its trials run here, if they can."""
        namespace = self.namespace.api.namespace
        named = resource.metadata.get("namespace") or namespace
        if named != namespace:
            raise InvalidInput(
                f"the manifest's namespace is {named}, but the cluster's is {namespace}",
                "remove it",
            )
        refuse_what_pods_lack(check(resource))
        if pool_size(resource):
            refuse_what_pools_lack(resource)
            self.pool_store(resource)
        return with_pod_deadlines(
            with_pod_defaults(resource.with_metadata({**resource.metadata, "namespace": namespace}))
        )

    def create(self, resource: R) -> R:
        if not isinstance(resource, Experiment):
            raise InvalidInput(
                f"kind is {or_list(self.creates)}, not {resource.kind}",
                "a Trial belongs to its Experiment",
            )
        checked = self._checked(resource)
        self._refuse_another(resource.name)
        try:
            self._leads[resource.name] = self.lead(checked, self._patience)
            self.copy.read()  # what another process wrote since this one looked
            self._refuse_another(resource.name)
            created = super().create(checked)
        except BaseException:
            self._give_up(resource.name)
            raise
        return replace(resource, manifest=created.manifest)

    def _store(self, resource: R) -> tuple[R, Supervisor]:
        stored, supervisor = super()._store(resource)
        file = self.store.path(stored.kind, stored.name) / OBJECT
        try:  # before the loop begins, or a storage that is away would fail what runs
            self.copy.write(file, file.read_bytes(), None)
        except BaseException:
            self.store.remove(stored.kind, stored.name)
            raise
        return stored, supervisor

    def _refuse_another(self, name: str) -> None:
        if self.store.exists("Experiment", name):
            raise Conflict(
                f"Experiment {name} exists in {self.url}", "choose another name, or delete it first"
            )

    def pool_store(self, experiment: Experiment) -> PoolStore:
        """Return where the trials of an Experiment wait for the workers of its pool.

        Raises:
            InvalidInput: No pod could read it.
        """
        if self._state:
            return PoolStore(f"{self._state.url}-pool/{experiment.uid}")
        storage = (os.environ.get(STORAGE) or Settings.from_environment().storage).rstrip("/")
        if local_path(storage) is not None:
            raise InvalidInput(
                f"the pods of a pool cannot read {storage} on this machine",
                "PODIUM_STORAGE=s3://BUCKET",
            )
        return PoolStore(f"{storage}/pools/{self.namespace.api.namespace}/{experiment.uid}")

    def _pool_of(self, kind: str, name: str) -> PoolStore | None:
        """Return the store with the log of a trial that a pool ran; None if it had pods of its
        own."""
        experiment = self.experiment(self.trial(name).experiment) if kind == "Trial" else None
        return self.pool_store(experiment) if experiment and pool_size(experiment) else None

    def logs(
        self, kind: str, name: str, replica: str | None = None, follow: bool = False
    ) -> Iterator[str]:
        self.get(kind, name)
        if pool := self._pool_of(kind, name):
            return iter(pool.log(name))
        return kubernetes_logs.logs(
            self.namespace.api, kind, name, replica, follow, lambda: self.is_over(kind, name)
        )

    def replicas(self, kind: str, name: str) -> Sequence[ReplicaStatus]:
        return JobPods(self.namespace.api, kind, name).statuses()

    def failure(self, kind: str, name: str) -> Failed:
        found = self.get(kind, name)
        own = kind == "Experiment" or self._pool_of(kind, name)
        if own:
            return Cluster.failure(self, kind, name)
        return JobPods(self.namespace.api, kind, name).explain(found)

    def abandon(self, kind: str, name: str) -> None:
        """Ask for the end of an Experiment and of its trials' jobs: for a process that is about to
        be killed."""
        with suppress(PodiumError):
            self.stop(kind, name)
        super().abandon(kind, name)

    def remove(self, kind: str, name: str) -> None:
        trials = self.trials(name) if kind == "Experiment" else ()
        experiment = self.experiment(name) if kind == "Experiment" else None
        if experiment and pool_size(experiment):
            self.pool_store(experiment).clear(whole=True)

        def is_own() -> bool:
            """Another process may have deleted it too, and begun its next one, while this one
            waited."""
            path = self.store.path(kind, name)
            return experiment is None or self.copy.holds(path, experiment.uid)

        jobs, names = jobs_of_trials(self.namespace, name, trials), {each.name for each in trials}
        for job in jobs if is_own() else {job for job in jobs if job[1] in names}:
            self.namespace.api.delete(*job)
        for trial in trials:
            self.store.remove("Trial", trial.name)
        super().remove(kind, name)
        self.copy.drop([self.store.path("Trial", trial.name) for trial in trials])
        if is_own():
            self.copy.drop([self.store.path(kind, name)])

    @property
    def _patience(self) -> float:
        """Seconds to wait for a Lease: the one of a killed process must expire first."""
        return self.lease_seconds + 5.0

    def let_run(self, name: str) -> None:
        """Leave the leadership of an Experiment to the loop that has begun."""
        self._leads.pop(name, None)

    def _give_up(self, name: str) -> None:
        if leadership := self._leads.pop(name, None):
            leadership.release()


class _Loop(Supervisor):
    """Runs one Experiment in a thread while this process leads it; continues after an outage of the
    API server.

    Args:
        loops: Store of the Experiment.
        experiment: The stored Experiment.
        leadership: Held.
    """

    def __init__(self, loops: _Loops, experiment: Experiment, leadership: Leadership) -> None:
        self._loops, self._name, self._leadership = loops, experiment.name, leadership
        self._controller = loops.controller(experiment, leadership)
        self._stopping = threading.Event()
        self._thread = Background(self._run, f"podium-loop-{experiment.name}")

    def start(self) -> None:
        self._thread.start()
        self._loops.let_run(self._name)

    def stop(self) -> None:
        self._stopping.set()
        self._controller.stop()

    def wake(self) -> None:
        self._controller.wake()

    def join(self, timeout: float | None = None) -> bool:
        return self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self._controller.start()
            self._controller.join()
            while (
                self._leadership.lost.is_set()
                and not self._stopping.is_set()
                and self._lead_again()
            ):
                self._controller = self._loops.controller(
                    self._loops.experiment(self._name), self._leadership
                )
                if self._stopping.is_set():  # maybe asked of the one before
                    self._controller.stop()
                self._controller.start()
                self._controller.join()
        except NotFound:
            pass  # it was deleted meanwhile
        finally:
            self._loops.store.supervision.disown("Experiment", self._name)
            self._leadership.delete()

    def _lead_again(self) -> bool:
        end = time.monotonic() + self._loops.namespace.api.waits.outage
        while time.monotonic() < end and not self._stopping.is_set():
            try:
                self._leadership = self._loops.lead(self._loops.experiment(self._name), 1.0)
                return self._has_more()
            except Conflict:  # another process goes on with it
                continue
            except (Unavailable, Denied):  # a server that has just started denies for a moment
                self._stopping.wait(1.0)
        return False

    def _has_more(self) -> bool:
        """Return whether another process that led meanwhile has left something to do."""
        while True:
            try:
                self._loops.copy.read()
                state = self._loops.experiment(self._name).state
                return state.lost or not state.finished
            except NotFound:
                raise
            except PodiumError:
                if self._leadership.lost.wait(1.0) or self._stopping.is_set():
                    return not self._stopping.is_set()  # it leads once more, if it may


_ACCOUNT = "podium-steps"
"""Service account with the rights that a sweep needs: deploy/base/steps.yaml."""

_DEADLINE, _KEPT = 30 * 24 * 3600, 7 * 24 * 3600
"""Seconds after which the Job is ended, and for which it is kept after its end."""

_TRIES = 6
"""Pods in place of one that failed or was evicted."""


def _kept_in(state: str, engine: str = "here") -> str:
    return f"?engine={engine}&state={quote(state, safe=':/')}"


def detach(namespace: Cluster, experiment: Experiment) -> str:
    """Begin a sweep in a Job; return the URL of the cluster at which commands find it.

    Args:
        namespace: Serves no Experiments; a cluster of another kind is refused.
        experiment: Named.

    Raises:
        InvalidInput: It breaks a rule, or no pod reaches the storage.
        Conflict: There is one of this name.
    """
    if not isinstance(namespace, NamespaceSweeps):
        raise InvalidInput(
            "a sweep on this machine ends with its command", "--cluster kubernetes://NAMESPACE"
        )
    storage = (os.environ.get(STORAGE) or Settings.from_environment().storage).rstrip("/")
    if local_path(storage) is not None:
        problem = f"a sweep that outlives this command cannot keep its trials in {storage} on this machine"
        raise InvalidInput(problem, "PODIUM_STORAGE=s3://BUCKET/PREFIX")
    name = experiment.name
    url = f"kubernetes://{namespace.api.namespace}{_kept_in(f'{storage}/sweeps/{name}')}"
    with NamespaceSweeps(url) as kept:
        assert kept.loops is not None
        manifest = job_manifest(
            _loop_job(name),
            image=kept.loops.image,
            command=["podium", "experiment", "resume", name, "--cluster", url],
            labels={},
            owner=None,
            active_deadline_seconds=_DEADLINE,
            ttl_seconds_after_finished=_KEPT,
        )
        job = Workload(manifest=manifest).changed_job(
            lambda editor: editor.run_policy.update(backoffLimit=_TRIES)
        )
        env = {_IMAGE: kept.loops.image, STORAGE: storage, "HOME": "/tmp"}
        job = place(job, Pods(service_account=_ACCOUNT, env=env))
        kept.loops.keep(experiment)
        try:
            namespace.create(grant_access(job, Access.find(namespace.url)))
        except BaseException:
            kept.loops.delete("Experiment", name)
            raise
    return url

"""The engine of a namespace: runs the Experiments that people create there, as Katib's controller
does."""

import queue
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http.server import ThreadingHTTPServer
from itertools import chain
from pathlib import Path

from podium.cluster.kubernetes.api import Api
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.leadership import DURATION_SECONDS, ENGINE_LEASE, Leadership
from podium.errors import (
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    PodiumError,
    Unavailable,
    UnknownKind,
)
from podium.manifests.conditions import Conditions, timestamp
from podium.manifests.experiment import Trial, check
from podium.manifests.experiment.experiment import TRIAL_LISTS, Experiment
from podium.manifests.experiment.optimization_job import KIND, experiment_of, status_of_job
from podium.manifests.experiment.pool import refuse_what_pools_lack
from podium.manifests.experiment.status import Status, restarted
from podium.manifests.labels import KATIB_FINALIZERS, POOL_STATE, READINGS
from podium.manifests.options.pool import pool_size
from podium.manifests.resource import Resource
from podium.metrics import Reading
from podium.sweeps.base import Documents, Executor
from podium.sweeps.controller import ExperimentController
from podium.sweeps.pod_trial import JobExecutor, refuse_what_pods_lack
from podium.sweeps.pool import Pool
from podium.sweeps.pool_store import PoolStore
from podium.sweeps.records import Records
from podium.system.background import Background
from podium.system.exposition import metric, serve


class _OptimizationJobs:
    """Makes their Experiments, and hands back what becomes of these.

    One that has a status and no Experiment is left alone: a controller of Trainer runs it, or
    somebody has deleted the Experiment.

    Args:
        api: The namespace.
        report: Called with each line about them.
    """

    def __init__(self, api: Api, report: Callable[[str], None]) -> None:
        self._api, self._report = api, report
        self._said: dict[str, str] = {}  # what keeps one from being run, by name; "" for all

    def look(self, experiments: Mapping[str, Resource]) -> None:
        """Take up what is new, and write each status that has changed.

        Args:
            experiments: The Experiments of the namespace by name, as they were seen last.

        Raises:
            Unavailable: The API server did not answer.
        """
        jobs: list[Resource] = []
        with self._reporting():
            jobs = self._unfinished()
        for job in jobs:
            with self._reporting(job.name):
                if experiment := experiments.get(job.name):
                    self._follow(job, experiment)
                elif not job.conditions:
                    self._begin(job)

    @contextmanager
    def _reporting(self, name: str = "") -> Iterator[None]:
        """Say once what keeps one of them, or all, from being run; the next look tries it again."""
        try:
            yield
            self._said.pop(name, None)
        except Unavailable:
            raise
        except PodiumError as error:
            if self._said.get(name) != error.message:
                self._report(f"{KIND} {name}: {error.message}" if name else error.message)
            self._said[name] = error.message

    def _unfinished(self) -> list[Resource]:
        with suppress(UnknownKind):
            jobs = map(Resource.parse, self._api.all_of(KIND)[0])
            ended = ("Complete", "Failed")
            return [job for job in jobs if not (job.is_leaving or any(map(job.condition, ended)))]
        return []

    def _begin(self, job: Resource) -> None:
        try:
            self._api.create("Experiment", experiment_of(job).manifest)
        except Conflict:
            return None  # perhaps it was made by the engine before: the next look sees whose it is
        except InvalidInput as error:
            return self._refuse(job, error)
        self._report(f"{KIND} {job.name}: begun as an Experiment")

    def _follow(self, job: Resource, experiment: Resource) -> None:
        owners = [owner.get("uid") for owner in experiment.owners if owner.get("kind") == KIND]
        if not owners:
            problem = f"an Experiment {job.name} is there that was not made for it"
            return self._refuse(job, Conflict(problem, "give one of the two another name"))
        if job.uid in owners:  # else it is going away, with an earlier one of the name
            status = status_of_job(experiment.manifest)
            if status != job.status:
                self._api.patch_status(KIND, job.name, status)

    def _refuse(self, job: Resource, error: PodiumError) -> None:
        hint = f" (hint: {error.hint})" if error.hint else ""
        self._report(f"{KIND} {job.name}: refused: {error.message}")
        condition = {
            "type": "Failed",
            "status": "True",
            "reason": f"{KIND}Failed",
            "message": f"{KIND} has failed: {error.message}{hint}",
            "lastTransitionTime": timestamp(),
        }
        self._api.patch_status(KIND, job.name, {"conditions": [condition]})


class _ApiDocuments(Documents):
    """Experiments and trials of a namespace.

    Args:
        cluster: The namespace, which serves Experiments.
        leadership: A request is tried again for as long as it is held.
    """

    def __init__(self, cluster: KubernetesCluster, leadership: Leadership) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="podium-engine-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        self._cluster, self._patience = cluster, leadership.left
        # By kind and name: a field that is gone is written as null.
        self._written: dict[tuple[str, str], Status] = {}

    def trials(self, experiment: str) -> Sequence[Trial]:
        trials = [trial for trial in self._cluster.trials(experiment) if not trial.is_leaving]
        self._written |= {("Trial", trial.name): dict(trial.status) for trial in trials}
        return trials

    def create(self, trial: Trial) -> Trial:
        bare = trial.with_status({}).manifest
        stored = self._cluster.api.create("Trial", bare, patience=self._patience)
        self.write(trial)
        return Trial.parse(stored).with_status(trial.status)

    def write(self, resource: Experiment | Trial, readings: Sequence[Reading] = ()) -> None:
        kind, name, status = resource.kind, resource.name, dict(resource.status)
        if readings:
            change = {"metadata": {"annotations": {READINGS: self.written(readings)}}}
            self._cluster.api.patch(kind, name, change, patience=self._patience)
        fields = {*self._written.get((kind, name), {})}
        if kind == "Experiment":  # also what an engine that no longer leads has written late
            fields |= {*chain.from_iterable(TRIAL_LISTS.values())}
        gone = dict.fromkeys(sorted(fields - status.keys()))
        self._cluster.api.patch_status(kind, name, {**status, **gone}, patience=self._patience)
        self._written[kind, name] = status

    def close(self, experiment: str, asked: str) -> None:
        self._remove()


_WINDOW_SECONDS = 5
"""Length of a watch; after it the engine looks whether it still leads."""

_SILENT_SECONDS = 60.0
"""Without an answer of the API server for so long the engine counts as not alive."""


class Engine:
    """Runs the Experiments of a namespace while it leads.

    Args:
        cluster: The namespace.
        holder: Name of this process, different from every other engine's.
        image: Image of the container that prints a trial's metrics file: one with podium.
        storage: URL of the storage through which pools get their trials; empty for none, and no
            pools.
        report: Called with each line about its work.
        lease_seconds: Seconds without a renewal after which another engine takes over.
    """

    def __init__(
        self,
        cluster: KubernetesCluster,
        *,
        holder: str,
        image: str,
        storage: str = "",
        report: Callable[[str], None],
        lease_seconds: float = DURATION_SECONDS,
    ) -> None:
        self._cluster, self._image, self._storage, self._report = cluster, image, storage, report
        self._holder, self._lease_seconds = holder, lease_seconds
        self._optimization_jobs = _OptimizationJobs(cluster.api, report)
        self._leadership: Leadership | None = None
        self._running: dict[str, ExperimentController] = {}
        self._unread: dict[str, str] = {}  # why the last edit of one that runs cannot be read
        self._failed = set[str]()  # uids of failed ones that were taken up while this leads
        self._stopping = threading.Event()
        self._heard = time.monotonic()
        self.namespace = cluster.api.namespace
        self.begun = self.ended = self.refused = 0

    def run(self) -> None:
        """Lead and run Experiments, or wait to lead, until stop.

        Raises:
            Conflict: Katib is installed here.
            UnknownKind: The cluster serves no Experiments.
            Denied: A right is missing.
        """
        self._refuse_katib()
        self._report(f"namespace {self.namespace}: waiting to lead (Lease {ENGINE_LEASE})")
        while not self._stopping.is_set():
            leadership = Leadership(
                self._cluster.api, ENGINE_LEASE, self._holder, self._lease_seconds
            )
            try:
                if self._acquire(leadership):
                    self._leadership = leadership
                    self._report(f"namespace {self.namespace}: {self._holder} leads")
                    self._lead(leadership)
            except Denied as error:
                hint = "bind the Role podium-engine of this namespace to its account: kubectl apply -k deploy/engine"
                raise Denied(error.message, hint) from error
            finally:
                self._leave()
                leadership.release()

    def _acquire(self, leadership: Leadership) -> bool:
        """Wait until this process leads; return False if it is asked to stop."""
        while not self._stopping.is_set():
            with suppress(Unavailable):  # whoever leads cannot renew either
                self._heard = time.monotonic()
                if leadership.acquire(timeout=_WINDOW_SECONDS):
                    return True
        return False

    def stop(self) -> None:
        """Ask for its end; trials keep running, and the next engine takes them over."""
        self._stopping.set()

    @property
    def alive(self) -> bool:
        """Whether the API server was heard of lately."""
        return time.monotonic() - self._heard < _SILENT_SECONDS

    @property
    def figures(self) -> dict[str, float]:
        """Values of the engine's Prometheus metrics by name."""
        return {
            "leads": float(self._leads()),
            "experiments": len(self._running),
            "begun_total": self.begun,
            "ended_total": self.ended,
            "refused_total": self.refused,
        }

    def _refuse_katib(self) -> None:
        katib = False
        with suppress(
            Unavailable, Denied
        ):  # a server that has just started knows no roles for a moment
            katib = self._cluster.has_katib
        if katib:
            raise Conflict(
                "Katib is installed on this cluster: two engines would run the same Experiments",
                "docs/cluster-sweeps.md says how podium takes over from Katib, with the Experiments that run",
            )

    def _leads(self) -> bool:
        return self._leadership is not None and self._leadership.is_held

    def _lead(self, leadership: Leadership) -> None:
        api = self._cluster.api
        self._failed.clear()
        self._release_from_katib()
        while not self._stopping.is_set() and not leadership.lost.is_set():
            self._refuse_katib()
            try:
                items, version = api.all_of("Experiment")
                present = [Resource.parse(item) for item in items]
                made = {seen.name: seen for seen in present}
                self._sweep_out({seen.uid for seen in present})
                for seen in present:
                    self._see(seen)
                while not self._stopping.is_set() and not leadership.lost.is_set():
                    self._heard = time.monotonic()
                    self._look_after_ended()
                    self._refuse_katib()  # it may have been installed since; ends in the one above
                    self._optimization_jobs.look(made)
                    for event in api.events("Experiment", "", version, _WINDOW_SECONDS):
                        seen = Resource.parse(event["object"])
                        version = seen.version
                        if event["type"] == "DELETED":
                            made.pop(seen.name, None)
                            self._clear(seen, self._forget(seen.name, seen.uid))
                        elif event["type"] != "BOOKMARK":
                            made[seen.name] = seen
                            self._see(seen)
                        if self._stopping.is_set() or leadership.lost.is_set():
                            break
            except api.failures as error:
                api.broken_watch(error, "watch Experiments", "Experiment")
                leadership.lost.wait(1.0)
            except PodiumError as error:
                self._report(f"error: {error.message}")
                leadership.lost.wait(1.0)

    def _release_from_katib(self) -> None:
        """Remove the finalizers that Katib left, so that people can delete its objects."""
        for kind in ("Experiment", "Trial"):
            for left in map(Resource.parse, self._cluster.api.objects(kind)):
                kept = [name for name in left.finalizers if name not in KATIB_FINALIZERS]
                if len(kept) < len(left.finalizers):
                    self._cluster.api.patch(kind, left.name, {"metadata": {"finalizers": kept}})

    def _look_after_ended(self) -> None:
        """Drop the controllers of Experiments that ended; restart those that broke off."""
        for name, controller in list(self._running.items()):
            if self._leads() and controller.join(0):
                del self._running[name]
                with suppress(NotFound):
                    stored = self._cluster.get("Experiment", name)
                    self.ended += stored.state.finished
                    self._report(f"Experiment {name}: {stored.state.phase}")
                    self._see(stored)

    def _see(self, seen: Resource) -> None:
        """Take up an Experiment that is new, or changes of one that runs or ended."""
        self._look_after_ended()
        controller = self._running.get(seen.name)
        if controller and controller.experiment.uid != seen.uid:
            self._forget(seen.name, controller.experiment.uid)
            controller = None
        if seen.is_leaving:
            self._forget(seen.name, seen.uid)
            return None
        try:
            experiment = Experiment.parse(seen.manifest)
            self._unread.pop(seen.name, None)
            if controller:
                controller.edit(experiment)
            elif self._is_to_run(experiment) and (stored := self._stored(seen)):
                if stored.state.finished and not stored.state.succeeded:
                    self._failed.add(stored.uid)
                self._begin(restarted(stored) if _has_more_trials(stored) else stored)
        except (InvalidInput, NotFound) as error:  # NotFound: of a sweep it is to learn from
            self._refuse(seen, error)

    def _stored(self, seen: Resource) -> Experiment | None:
        """Return an Experiment as it is now, if it is to run: a late event shows it as it was
        before it ended here."""
        with suppress(NotFound):
            stored = self._cluster.experiment(seen.name)
            if stored.uid == seen.uid and not stored.is_leaving and self._is_to_run(stored):
                return stored
        return None

    def _is_to_run(self, experiment: Experiment) -> bool:
        state = experiment.state
        if not state.finished or _has_more_trials(experiment):
            return True
        # Trials may still run, when its engine ended before them; once, if it breaks off again.
        left = experiment.status.get("trialsRunning") or experiment.status.get("trialsPending")
        return bool(left) and experiment.uid not in self._failed

    def _begin(self, experiment: Experiment) -> None:
        assert self._leadership is not None
        self._refuse_katib()
        refuse_what_pods_lack(check(experiment))
        records = self._records_of(experiment, self._leadership)
        controller = ExperimentController(records, experiment)
        self._running[experiment.name] = controller
        self.begun += 1
        self._report(f"Experiment {experiment.name}: begun")
        controller.start()

    def _records_of(self, experiment: Experiment, leadership: Leadership) -> Records:
        executor: Executor
        store = self._pool_store(experiment, leadership) if pool_size(experiment) else None
        if store:
            executor = Pool(self._cluster, experiment, lambda _: store, leadership)
        else:
            executor = JobExecutor(self._cluster, leadership, self._image)
        return Records(
            self._cluster,
            experiment,
            _ApiDocuments(self._cluster, leadership),
            executor,
            trials=store,
            leadership=leadership,
            served=True,
        )

    def _pool_store(self, experiment: Experiment, leadership: Leadership) -> PoolStore:
        """Return where the trials of a pool are kept, which everybody finds by an annotation."""
        refuse_what_pools_lack(experiment)
        if not self._storage:
            raise InvalidInput(
                "a pool needs a storage, but podium-engine has none",
                "set its variable PODIUM_STORAGE",
            )
        url = self._pool_url(experiment.uid)
        if experiment.annotations.get(POOL_STATE) != url:
            leadership.check()
            change = {"metadata": {"annotations": {POOL_STATE: url}}}
            patience = leadership.left
            self._cluster.api.patch("Experiment", experiment.name, change, patience=patience)
        return PoolStore(url)

    def _refuse(self, seen: Resource, error: PodiumError) -> None:
        """Fail an Experiment that cannot run. One that runs goes on as it was before an edit that
        cannot be read, and one that has ended stays as it is."""
        name = seen.name
        if name in self._running or seen.state.finished:
            if self._unread.get(name) != error.message:
                self._report(f"Experiment {name}: an edit is passed over: {error.message}")
                self._unread[name] = error.message
            return
        self.refused += 1
        self._report(f"Experiment {name}: refused: {error.message}")
        status: Status = {}
        hint = f" (hint: {error.hint})" if error.hint else ""
        Conditions(status, "katib").add(
            "Failed", "ExperimentFailed", f"Experiment has failed: {error.message}{hint}"
        )
        self._cluster.api.patch_status("Experiment", name, status)

    def _forget(self, name: str, uid: str) -> ExperimentController | None:
        """Return the controller of an Experiment that was deleted, which ends now."""
        controller = self._running.get(name)
        if not controller or controller.experiment.uid != uid:
            return None
        controller.forget()
        del self._running[name]
        self._unread.pop(name, None)
        self._report(f"Experiment {name}: deleted")
        return controller

    def _pool_url(self, uid: str) -> str:
        return f"{self._storage.rstrip('/')}/pools/{self.namespace}/{uid}"

    def _clear(self, deleted: Resource, controller: ExperimentController | None) -> None:
        """Remove what the pool of a deleted Experiment left in the storage, which may be slow."""
        url = self._pool_url(deleted.uid)

        def clear() -> None:
            if controller:
                controller.join()  # what it is writing would stay
            with suppress(PodiumError):
                PoolStore(url).clear(whole=True)

        # Anybody may write an annotation.
        if self._storage and deleted.annotations.get(POOL_STATE) == url:
            Background(clear, f"podium-clear-{deleted.name}").start()

    def _sweep_out(self, present: set[str]) -> None:
        """Forget the Experiments that were deleted while no engine watched."""
        for name, controller in list(self._running.items()):
            if controller.experiment.uid not in present:
                self._forget(name, controller.experiment.uid)

    def _leave(self) -> None:
        for controller in self._running.values():
            controller.stop()
        for controller in self._running.values():
            controller.join(self._lease_seconds)
        self._running.clear()


_FIGURES = {
    "leads": "Whether this process runs the namespace's Experiments.",
    "experiments": "Experiments that run.",
    "begun_total": "Experiments taken up since the start.",
    "ended_total": "Experiments ended since the start.",
    "refused_total": "Experiments refused since the start.",
}


def serve_health(engines: Sequence[Engine], port: int) -> ThreadingHTTPServer:
    """Answer /healthz and /metrics for the engines of several namespaces, until the process ends.

    Raises:
        PodiumError: The port is taken.
    """

    def page() -> str:
        figures = {engine.namespace: engine.figures for engine in engines}
        return "".join(
            metric(
                f"podium_engine_{name}",
                text,
                {where: own[name] for where, own in figures.items()},
                "namespace",
            )
            for name, text in _FIGURES.items()
        )

    return serve(port, page, lambda: all(engine.alive for engine in engines))


def run_all(engines: Sequence[Engine]) -> None:
    """Run the engines of several namespaces until one fails or the process is asked to end.

    Raises:
        PodiumError: As Engine.run, of the first that failed.
    """
    failures: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run(engine: Engine) -> None:
        try:
            engine.run()
            failures.put(None)
        except BaseException as error:
            failures.put(error)

    threads = [
        Background(partial(run, engine), f"podium-engine-{engine.namespace}") for engine in engines
    ]
    for thread in threads:
        thread.start()
    try:
        if failure := failures.get():
            raise failure
    finally:
        for engine in engines:
            engine.stop()
        for thread in threads:
            thread.join(DURATION_SECONDS)


def _has_more_trials(experiment: Experiment) -> bool:
    """Return whether somebody raised the maxTrialCount of an Experiment that ended by reaching
    it."""
    most = experiment.limits.max_trials
    ended = experiment.state.finished and experiment.is_restartable
    return ended and (most is None or most > experiment.trial_count)

"""A pool: one Indexed Job whose pods run an Experiment's trials one after another, in place of a
pod a trial.

Kubernetes keeps the pods: it starts each index again that fails, with another uid. The engine gives
each pod one trial at a time through the storage, and takes in what the pod leaves there; see
podium.sweeps.pool_store. What comes from a pod that does not have the trial is left alone: a trial
counts once, however many pods began it.
"""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.leadership import Leadership
from podium.cluster.kubernetes.store_access import Access
from podium.errors import Conflict, Failed, NotFound, PodiumError
from podium.manifests.experiment import Experiment, Trial
from podium.manifests.experiment.pool import as_workers_run, pool_job, pool_name
from podium.manifests.labels import EXPERIMENT
from podium.storage import local_path
from podium.sweeps.base import Executor, RunningTrial, Save, TrialResult
from podium.sweeps.pool_store import PoolStore, TrialEnd
from podium.system.background import Background

_LOOK_SECONDS = 0.1
"""Interval between checks for results of workers, while trials run."""

_PODS_SECONDS = 2.0
"""Interval between checks of the pods."""


_MOST_LOSSES = 3
"""Workers that a trial may take along, by using up the memory or the like; then it has failed."""


class _PooledRun(RunningTrial):
    """One trial that a worker of a pool runs; the worker decides how it ended.

    Args:
        pool: The workers.
        trial: The created trial.
        save: Called at each change of the trial's status.
        stopping: Set when the engine stops.
    """

    def __init__(self, pool: "Pool", trial: Trial, save: Save, stopping: threading.Event) -> None:
        self._pool, self.trial, self._save = pool, trial, save
        self._stopping, self._given_up = stopping, threading.Event()

    def run(self) -> TrialResult:
        try:
            end = self._pool.wait_for(
                self.trial, self._begun, lambda: self._given_up.is_set() or self._stopping.is_set()
            )
        except PodiumError as error:
            self._mark("Failed", "TrialFailed", f"Trial has failed: {error.message}")
            return TrialResult(refused=str(error))
        if end is None:
            return TrialResult()
        if end.refused:
            self._mark(
                "Failed", "TrialFailed", f"Trial has failed. Its job was refused: {end.refused}"
            )
            return TrialResult(refused=end.refused)
        self.trial = self.trial.with_status(end.status)
        self._save(self.trial, end.reported)
        return TrialResult(readings=end.reported)

    def stop(self) -> None:
        self._given_up.set()

    def end_early(self, message: str) -> None:
        """Do nothing: a worker of a pool runs a trial to its end, and nobody can ask for this
        (Sweep.stop_trial)."""

    def _begun(self) -> None:
        if self.trial.phase != "Running":
            self._mark("Running", "TrialRunning", "Trial is running")

    def _mark(self, kind: str, reason: str, message: str) -> None:
        self.trial = self.trial.with_condition(kind, reason, message)
        self._save(self.trial)


class Pool(Executor):
    """The workers of one Experiment.

    Args:
        experiment: Checked.
        open_store: Returns the storage through which the engine and the workers of a stored
            Experiment exchange files.
        leadership: Only while it is held is anything given to workers.
        served: Whether the API server has the Experiment, which then owns the Job; else the job
            belongs to the run that the Experiment belongs to.
    """

    def __init__(
        self,
        cluster: KubernetesCluster,
        experiment: Experiment,
        open_store: Callable[[Experiment], PoolStore],
        leadership: Leadership,
        *,
        served: bool = True,
    ) -> None:
        self._cluster, self._open_store, self._experiment = cluster, open_store, experiment
        self._leadership, self._is_served = leadership, served
        self._workers_run = as_workers_run(experiment)
        self._name = pool_name(experiment)
        self._changed = threading.Condition()
        self._runs: dict[str, tuple[Trial, Callable[[], None]]] = {}  # what is waited for, by trial
        self._waiting: list[str] = []
        self._has: dict[str, str] = {}  # uid of the worker, by trial
        self._free: set[str] = set()
        self._slots: dict[str, Trial] = {}  # what is to be in them, by uid of the worker
        self._written: dict[str, str] = {}  # etag of a slot that is as it is to be, by uid
        self._ends: dict[str, TrialEnd] = {}
        self._taken: set[str] = set()  # trials whose end was taken in, but is not stored yet
        self._losses: Counter[str] = Counter()
        self._error: PodiumError | None = None
        self._closed = threading.Event()
        self._server: Background | None = None
        self._writers = ThreadPoolExecutor(8, "podium-pool-writer")
        self._looked, self._served = 0.0, time.monotonic()

    def begin(self, experiment: Experiment, trials: Sequence[Trial]) -> Sequence[Trial]:
        """Create the Job, or adopt an earlier engine's with the trials that its workers have."""
        self._experiment, self._store = experiment, self._open_store(experiment)
        unfinished = {trial.name for trial in trials if not trial.has_ended}
        assigned = {trial: uid for uid, trial in self._store.all_given().items()}
        assigned = {**dict(self._store.inbox()), **assigned}
        self._has = {trial: uid for trial, uid in assigned.items() if trial in unfinished}
        self._store.write_experiment(self._workers_run)
        self._create()
        self._server = Background(self._serve, "podium-pool")
        for thread in (self._server, Background(self._watch, "podium-pool-pods")):
            thread.start()
        return trials

    def run(
        self, experiment: Experiment, trial: Trial, save: Save, stopping: threading.Event
    ) -> _PooledRun:
        return _PooledRun(self, trial, save, stopping)

    def _create(self) -> None:
        access = None if local_path(self._store.url) else Access.find(self._cluster.url)
        experiment = self._experiment
        owners = [experiment.as_owner] if self._is_served else experiment.owners
        job = pool_job(experiment, self._store.url, access.env() if access else (), owners).manifest
        end = time.monotonic() + self._cluster.api.waits.outage
        while True:
            self._leadership.check()
            try:
                self._cluster.api.create("Job", job, patience=self._leadership.left)
                return
            except Conflict:
                with suppress(
                    NotFound
                ):  # that of an engine before, or of the time before more trials were asked for
                    existing = self._cluster.workload("Job", self._name)
                    if (
                        existing.labels.get(EXPERIMENT) != self._experiment.name
                        or time.monotonic() > end
                    ):
                        raise
                    if not existing.is_leaving and not existing.state.finished:
                        return
                    self._cluster.api.delete("Job", self._name, patience=self._leadership.left)
                self._closed.wait(0.5)

    def wait_for(
        self, trial: Trial, begun: Callable[[], None], given_up: Callable[[], bool]
    ) -> TrialEnd | None:
        """Have a worker run a trial, and wait for its end; None if it was given up first.

        Args:
            trial: The stored trial; one that a worker got from an earlier engine is not started
                again.
            begun: Called before a worker gets it; again if another gets it.
            given_up: Whether nobody waits for it any more.

        Raises:
            PodiumError: The pool has no pods, or its storage stays away.
        """
        name = trial.name
        with self._changed:
            self._runs[name] = trial, begun
            if name not in self._has:
                self._waiting.append(name)
            while name not in self._ends:
                if self._closed.is_set() or given_up():
                    del self._runs[name]
                    return None
                if self._error:
                    raise self._error
                self._changed.wait(1.0)
            del self._runs[name]
            return self._ends.pop(name)

    def settle(self, trial: Trial) -> None:
        with self._changed:
            uid = self._has.pop(trial.name, None)
            self._taken.discard(trial.name)
            self._losses.pop(trial.name, None)
        if uid:
            with suppress(PodiumError):  # else it goes with the pool
                self._store.drop(trial.name, uid)

    def close(self, *, remove: bool) -> None:
        """Stop giving trials to workers."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        if self._server:
            self._server.join(self._cluster.api.waits.outage)
        self._writers.shutdown()
        if remove and self._leadership.is_held:  # else whoever leads now does
            self._cluster.api.delete("Job", self._name, patience=self._leadership.left)
            if self._server:
                self._store.clear(whole=False)

    def _watch(self) -> None:
        """Wait for the end of the Job: it has none before the pool is closed, unless its pods
        cannot run."""
        try:
            for _ in self._cluster.watch("Job", self._name):
                if self._closed.is_set():
                    return
            self._cluster.api.get("Job", self._name)  # a watch ends with what was deleted, too
            error = self._cluster.failure("Job", self._name)
            why = "an image that holds podium is needed: the command of its pods is python -m podium.sweeps.worker"
            self._fail(Failed(f"the pods of the pool ended: {error.message}", why))
        except NotFound:
            self._fail(
                Failed(
                    f"somebody deleted Job {self._name}, the pool of the trials",
                    "start the sweep again",
                )
            )
        except Exception as error:
            self._fail(
                error
                if isinstance(error, PodiumError)
                else Failed(f"the pool's watch failed: {error!r}")
            )

    def _fail(self, error: PodiumError) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _serve(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS) and self._leadership.is_held:
            try:
                self._look_at_pods()
                self._take_in()
                self._give()
                self._served = time.monotonic()
            except PodiumError as error:
                if time.monotonic() - self._served > self._cluster.api.waits.outage:
                    return self._fail(error)
                self._closed.wait(1.0)
            except Exception as error:  # else all trials would wait for ever
                return self._fail(Failed(f"the pool failed: {error!r}", "start the sweep again"))

    def _look_at_pods(self) -> None:
        """Update the set of workers; the trial of a worker that is gone waits for another."""
        if time.monotonic() - self._looked < _PODS_SECONDS:
            return
        self._looked = time.monotonic()
        pods = self._cluster.api.pods(f"job-name={self._name}")
        running = [
            pod
            for pod in pods
            if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
        ]
        alive = {pod.metadata.uid for pod in running}
        workers = self._free | set(self._has.values())
        self._take_in()  # a worker may have left an end and gone
        with self._changed:
            self._free = (self._free & alive) | (alive - workers)
            lost = [
                trial
                for trial, uid in self._has.items()
                if uid not in alive and trial not in self._taken
            ]
            for trial in lost:
                del self._has[trial]
            lost = [trial for trial in lost if trial in self._runs]
            self._losses.update(lost)
            harmful = [trial for trial in lost if self._losses[trial] >= _MOST_LOSSES]
            self._ends |= {trial: _took_workers_along(self._runs[trial][0]) for trial in harmful}
            self._waiting = [*(trial for trial in lost if trial not in harmful), *self._waiting]
            for uid in workers - alive:
                self._slots.pop(uid, None)
                self._written.pop(uid, None)
        for uid in workers - alive:
            self._store.dismiss(uid)
        slots = self._store.slots()  # an engine that no longer leads may have written late
        self._written = {uid: etag for uid, etag in self._written.items() if slots.get(uid) == etag}

    def _take_in(self) -> None:
        """Handle the results of workers.

        A result from a worker that does not have the trial stays where it is: an engine that leads
        since may have given it the trial.
        """
        left = self._store.inbox()
        with self._changed:
            ours = [
                (trial, uid)
                for trial, uid in left
                if self._has.get(trial) == uid and trial not in self._taken
            ]
        for trial, uid, end in self._store.ends(ours):
            with self._changed:
                self._ends[trial] = end
                self._taken.add(trial)
                self._free.add(uid)
                self._changed.notify_all()

    def _give(self) -> None:
        with self._changed:
            self._waiting = [trial for trial in self._waiting if trial in self._runs]
            pairs = list(zip(sorted(self._free), self._waiting, strict=False))
            runs = {trial: self._runs[trial] for _, trial in pairs}

        def choose(pair: tuple[str, str]) -> None:
            uid, name = pair
            trial, begun = runs[name]
            begun()  # first: of what a worker has, the next engine must know
            job = self._workers_run.render(name, trial.assignments)
            # By its version the worker tells it from the same trial that it had before.
            metadata = {**trial.metadata, "resourceVersion": uuid.uuid4().hex}
            spec = {**trial.spec, "runSpec": job.manifest}
            with self._changed:
                self._free.discard(uid)
                self._waiting.remove(name)
                self._has[name] = uid
                self._slots[uid] = Trial(
                    manifest={**trial.manifest, "metadata": metadata, "spec": spec}
                )
                self._written.pop(uid, None)

        list(self._writers.map(choose, pairs))
        # If the answer to a write is lost, the worker may have the trial: it is written again.
        unwritten = [uid for uid in self._slots if uid not in self._written]
        list(self._writers.map(self._write_slot, unwritten))

    def _write_slot(self, uid: str) -> None:
        self._leadership.check()
        self._written[uid] = self._store.give(uid, self._slots[uid])


def _took_workers_along(trial: Trial) -> TrialEnd:
    message = f"Trial has failed: {_MOST_LOSSES} pods ended while they ran it, as when the memory is used up"
    return TrialEnd.of(trial.with_condition("Failed", "TrialFailed", message), [])

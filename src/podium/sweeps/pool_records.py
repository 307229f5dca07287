"""Trials of an Experiment that a pool runs: they are kept in the storage, the Experiment by the API
server."""

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from threading import Event

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.leadership import Leadership
from podium.errors import PodiumError
from podium.manifests.experiment.experiment import TRIAL_LISTS, Experiment
from podium.manifests.experiment.status import Status
from podium.manifests.experiment.trial import Trial
from podium.manifests.labels import POOL_STATE, READINGS
from podium.metrics import Reading
from podium.sweeps.api_records import ApiRecords, readings_text
from podium.sweeps.base import Records
from podium.sweeps.pool import Pool
from podium.sweeps.pool_store import PoolStore
from podium.sweeps.trials import Run, TrialResult

MOST_NAMES = 100
"""Names that a list of an Experiment's status has at most: it is one object of etcd, and is written
again and again."""


class PooledRun(Run):
    """One trial that a worker of a pool runs; the worker decides how it ended.

    Args:
        pool: The workers.
        records: Storage of the trial.
        trial: The created trial.
        save: Writes the trial's status.
        stopping: Set when the engine stops.
    """

    def __init__(
        self,
        pool: Pool,
        records: Records,
        trial: Trial,
        save: Callable[[Trial], None],
        stopping: Event,
    ) -> None:
        self._pool, self._records, self.trial = pool, records, trial
        self._save, self._stopping, self._given_up = save, stopping, Event()

    def run(self) -> TrialResult:
        try:
            end = self._pool.run(
                self.trial, self._begun, lambda: self._given_up.is_set() or self._stopping.is_set()
            )
        except PodiumError as error:
            self._mark("Failed", "TrialFailed", f"Trial has failed: {error.message}")
            return TrialResult(readings=[], refused=str(error))
        if end is None:
            return TrialResult(readings=[])
        if end.refused:
            self._mark(
                "Failed", "TrialFailed", f"Trial has failed. Its job was refused: {end.refused}"
            )
            return TrialResult(readings=[], refused=end.refused)
        self.trial = self.trial.with_status(end.status)
        self._records.keep_readings(self.trial, end.reported)
        self._save(self.trial)
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


class PoolRecords(ApiRecords):
    """An Experiment of a namespace whose trials a pool runs.

    Args:
        cluster: The namespace.
        experiment: The stored Experiment.
        leadership: Only while it is held may this write.
    """

    def __init__(
        self,
        cluster: KubernetesCluster,
        experiment: Experiment,
        *,
        storage: str,
        leadership: Leadership,
    ) -> None:
        super().__init__(cluster, experiment, leadership=leadership, image="")
        self._store = PoolStore(
            f"{storage.rstrip('/')}/pools/{cluster.api.namespace}/{experiment.uid}"
        )
        owner = {
            "apiVersion": experiment.api_version,
            "kind": "Experiment",
            "name": experiment.name,
        }
        owners = [{**owner, "uid": experiment.uid, "controller": True, "blockOwnerDeletion": True}]
        self._pool = Pool(cluster, self._store, experiment, leadership, owners)
        self._kept: dict[
            str, str
        ] = {}  # readings that are stored with the end of a trial, by its name

    def trials(self) -> Sequence[Trial]:
        """Return the trials, once the pool knows which of them its workers have."""
        self.leadership.check()
        change = {"metadata": {"annotations": {POOL_STATE: self._store.url}}}
        self.cluster.api.patch("Experiment", self.name, change, patience=self.leadership.left)
        trials = self._store.trials()
        self._pool.start({trial.name for trial in trials if not trial.state.finished})
        return trials

    def write(self, experiment: Experiment, status: Status) -> None:
        lists = {names for names, _ in TRIAL_LISTS.values()}
        few = {
            name: value
            for name, value in status.items()
            if name not in lists or len(value) <= MOST_NAMES
        }
        super().write(experiment, few)

    def add(self, trial: Trial) -> Trial:
        """Return a new trial; it is stored when a worker gets it."""
        made = {"uid": str(uuid.uuid4()), "creationTimestamp": datetime.now(UTC).isoformat()}
        return trial.with_metadata({**trial.metadata, **made})

    def save(self, trial: Trial) -> None:
        self.leadership.check()
        if text := self._kept.pop(trial.name, None):
            annotations = {**trial.annotations, READINGS: text}
            trial = trial.with_metadata({**trial.metadata, "annotations": annotations})
        self._store.write(trial)
        if trial.state.finished:
            self._pool.settle(trial.name)

    def keep_readings(self, trial: Trial, readings: Sequence[Reading]) -> None:
        """Keep the readings that a stopping rule needs, to be stored with the trial's end."""
        if self.stops_early:
            self._kept[trial.name] = readings_text(trial, readings)

    def claim(self, trial: Trial) -> Trial:
        return trial

    def hand_over(
        self, experiment: Experiment, trial: Trial, save: Callable[[Trial], None], stopping: Event
    ) -> Run:
        return PooledRun(self._pool, self, trial, save, stopping)

    def close(self, experiment: Experiment, status: Status) -> None:
        left = self.asked == "leave" or not experiment.with_status(status).state.finished
        with suppress(PodiumError):  # the Job goes with the Experiment at the latest
            self._pool.close(remove=not left or self.asked == "delete")
        super().close(experiment, status)
        with suppress(PodiumError):
            if self.asked == "delete":
                self._store.clear(whole=True)
            elif not left:
                self._store.clear(whole=False)

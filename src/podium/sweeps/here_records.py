"""Experiments and trials that this process keeps in files while their jobs are a namespace's."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from podium.cluster.kubernetes.leadership import Leadership
from podium.errors import NotFound, PodiumError
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.status import Status
from podium.manifests.experiment.trial import Trial
from podium.manifests.options.pool import pool_size
from podium.metrics import Reading
from podium.storage import Storage
from podium.sweeps.base import TrialIO
from podium.sweeps.local_records import READINGS, LocalRecords
from podium.sweeps.pod_trial import PodTrial, jobs_of_trials, refuse_what_pods_lack, remove_jobs
from podium.sweeps.pool import Pool
from podium.sweeps.pool_records import PooledRun
from podium.sweeps.trials import Run

if TYPE_CHECKING:
    from podium.sweeps.here import Loops


COPY_SECONDS = 2.0
"""Age up to which the copy of a sweep that another process runs is not read again."""

AWAY_SECONDS = 900.0
"""Outage of the storage after which a sweep fails."""


class HereRecords(LocalRecords):
    """An Experiment in files, whose trials are jobs of a namespace.

    Args:
        loops: Store of the Experiment.
        experiment: Checked.
        leadership: Only while it is held may this write; it does not come back.
    """

    removes_failed = False

    def __init__(self, loops: "Loops", experiment: Experiment, leadership: Leadership) -> None:
        self._loops, self._leadership = loops, leadership
        self._jobs: set[tuple[str, str]] = (
            set()
        )  # kind and name of those that an earlier process left
        self._pool: Pool | None = None
        super().__init__(loops, experiment)

    def _check(self, experiment: Experiment) -> None:
        refuse_what_pods_lack(experiment)

    def begin(self) -> None:
        """Do nothing: the pods start by themselves."""

    def trials(self) -> Sequence[Trial]:
        trials = super().trials()
        experiment = self.experiment()
        if pool_size(experiment):
            store, namespace = self._loops.pool_store(experiment), self._loops.namespace
            self._pool = Pool(namespace, store, experiment, self._leadership, experiment.owners)
            self._pool.start({trial.name for trial in trials if not trial.has_ended})
        else:
            self._jobs = jobs_of_trials(self._loops.namespace, self.name, trials)
        return trials

    def write(self, experiment: Experiment, status: Status) -> None:
        self._leadership.check()
        super().write(experiment, status)
        self._copy("Experiment", self.name)

    def add(self, trial: Trial) -> Trial:
        self._leadership.check()
        stored = super().add(trial)
        self._copy(
            "Trial", trial.name
        )  # before its job begins: else a retry would not know whose that is
        return stored

    def save(self, trial: Trial) -> None:
        self._leadership.check()
        super().save(trial)
        self._copy("Trial", trial.name)
        if self._pool and trial.state.finished:
            self._pool.settle(trial.name)

    def hand_over(
        self, experiment: Experiment, trial: Trial, save: Callable[[Trial], None], stopping: Event
    ) -> Run | None:
        return PooledRun(self._pool, self, trial, save, stopping) if self._pool else None

    def keep_readings(self, trial: Trial, readings: Sequence[Reading]) -> None:
        self._leadership.check()
        super().keep_readings(trial, readings)
        self._copy("Trial", trial.name, READINGS)

    def claim(self, trial: Trial) -> Trial:
        """Return the trial as it is: its job runs on without this process; a job that was to be
        removed is removed."""
        self._loops.store.claim("Trial", trial.name)
        job = trial.workload.kind, trial.name
        if not trial.has_ended:
            return self._loops.trial(
                trial.name
            )  # without the end that the store gives one that was stopped
        if trial.is_good and not trial.retain and job in self._jobs:
            self._loops.namespace.abandon(*job)
        return trial

    def open(self, experiment: Experiment, trial: Trial) -> TrialIO:
        image = self._loops.image
        return PodTrial(
            self._loops.namespace,
            experiment,
            trial,
            leadership=self._leadership,
            image=image,
            served=False,
        )

    @property
    def outlives_engine(self) -> bool:
        """Whether trials outlive this process: not if it ends normally, but if another one leads
        now."""
        return self.asked == "leave"

    @property
    def asked(self) -> str:
        return super().asked or ("" if self._leadership.is_held else "leave")

    def close(self, experiment: Experiment, status: Status) -> None:
        left = self.asked == "leave"
        if self._pool:
            with suppress(PodiumError):  # the Job goes with the run at the latest
                self._pool.close(remove=not left)
        if left:
            return  # who leads now goes on from what is stored
        with suppress(PodiumError):  # they have a deadline
            remove_jobs(self._loops.namespace, self.name, self._loops.trials(self.name))
        super().close(experiment, status)
        with suppress(NotFound, PodiumError):
            self._copy("Experiment", self.name)

    def _copy(self, kind: str, name: str, file: str = "object.json") -> None:
        self._loops.copy.write(self._loops.store.path(kind, name) / file, self._leadership)


class StateCopy:
    """A copy of Experiments and trials in a storage, for a process that does not have their files.

    Args:
        storage: Storage of the copy; None for no copy.
        directory: Directory of the store of objects.
    """

    def __init__(self, storage: Storage | None, directory: Path) -> None:
        self._storage, self._directory = storage, directory
        self._known: dict[str, object] = {}
        self._read = -math.inf

    def read(self, age: float = 0.0) -> None:
        """Copy new objects from the storage into the directory.

        Args:
            age: Nothing is read if it was read within so many seconds.
        """
        if self._storage is None or time.monotonic() - self._read < age:
            return
        self._read = time.monotonic()
        for entry in self._storage.list():
            if self._known.get(entry.key) == entry:
                continue
            self._known[entry.key] = entry
            file = self._directory / entry.key
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._storage.fetch(entry.key, file)

    def write(self, file: Path, leadership: Leadership | None) -> None:
        """Write a file to the storage; while it is away, wait for it as long as this process leads.

        Raises:
            PodiumError: The storage stays away, or refuses.
        """
        if self._storage is None or not file.is_file():
            return
        end = time.monotonic() + AWAY_SECONDS
        while True:
            if leadership:
                leadership.check()
            try:
                self._storage.put(str(file.relative_to(self._directory)), file.read_bytes())
                return
            except PodiumError:
                if time.monotonic() > end or leadership is None:
                    raise
                leadership.lost.wait(1.0)

    def drop(self, directories: Sequence[Path]) -> None:
        """Remove these objects from the storage."""
        if self._storage is None:
            return
        for directory in directories:
            for entry in list(self._storage.list(f"{directory.relative_to(self._directory)}/")):
                self._storage.delete(entry.key)

"""Experiments and trials of this machine: objects in the local cluster's store."""

import copy
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from podium.cluster.local.cluster import LocalCluster
from podium.errors import NotFound
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.status import Status, created
from podium.manifests.experiment.trial import Trial
from podium.metrics import Reading
from podium.search.warm_start import Earlier
from podium.sweeps.base import Records, TrialIO
from podium.sweeps.by_hand import asked_trials, file_of_asked
from podium.sweeps.local_trial import LocalTrial
from podium.sweeps.warm_start import earlier_trials
from podium.sweeps.wrapping import check_trials

READINGS = "readings.json"
"""Every value a trial reported, as [name, value, time]; in the trial's directory."""


class LocalRecords(Records):
    """An Experiment of the local cluster.

    One class, because each of the trial loop's questions is one line over the same files.

    Args:
        cluster: Cluster with the Experiment and its trials' jobs.
        experiment: Checked.

    Raises:
        InvalidInput: The cluster would refuse the trials' jobs.
    """

    def __init__(self, cluster: LocalCluster, experiment: Experiment) -> None:
        super().__init__(experiment.name, cluster.store.path("Experiment", experiment.name))
        self._cluster, self._store = cluster, cluster.store
        self._check(experiment)

    def _check(self, experiment: Experiment) -> None:
        self._likely_job = check_trials(self._cluster, experiment, self.directory)

    def experiment(self) -> Experiment:
        return self._cluster.experiment(self.name)

    def trials(self) -> Sequence[Trial]:
        return self._cluster.trials(self.name)

    def write(self, experiment: Experiment, status: Status) -> None:
        written, spec = copy.deepcopy(status), dict(experiment.spec)
        self._store.update(
            "Experiment", self.name, lambda manifest: manifest.update(status=written, spec=spec)
        )

    def add(self, trial: Trial) -> Trial:
        return Trial(manifest=self._store.create(trial.manifest))

    def save(self, trial: Trial) -> None:
        status = dict(trial.status)
        self._store.update("Trial", trial.name, lambda stored: stored.update(status=status))

    def is_stop_asked(self, trial: str) -> bool:
        return self._store.is_stop_asked("Trial", trial)

    def asked_trials(self) -> Mapping[str, Mapping[str, str]]:
        return asked_trials(self.directory)

    def forget_asked(self, trial: str) -> None:
        file_of_asked(self.directory, trial).unlink(missing_ok=True)

    def readings(self, trial: Trial) -> list[Reading]:
        try:
            rows = json.loads((self._directory_of(trial) / READINGS).read_text())
        except FileNotFoundError:
            return []
        return [Reading(name, value, datetime.fromisoformat(time)) for name, value, time in rows]

    def keep_readings(self, trial: Trial, readings: Sequence[Reading]) -> None:
        rows = [[reading.name, reading.value, reading.time.isoformat()] for reading in readings]
        (self._directory_of(trial) / READINGS).write_text(json.dumps(rows))

    def claim(self, trial: Trial) -> Trial:
        """Take over a trial; one that had not ended lost its processes, and starts again."""
        self._store.claim("Trial", trial.name)
        if trial.has_ended:
            return trial
        self._cluster.delete(trial.workload.kind, trial.name)
        return created(trial)

    def open(self, experiment: Experiment, trial: Trial) -> TrialIO:
        return LocalTrial(self._cluster, experiment, trial)

    def earlier(self, experiment: Experiment) -> Sequence[Earlier]:
        return earlier_trials(self._cluster, experiment)

    def begin(self) -> None:
        self._cluster.warm(self._likely_job)

    @property
    def asked(self) -> str:
        if self._store.is_deletion_asked("Experiment", self.name):
            return "delete"
        return "stop" if self._store.is_stop_asked("Experiment", self.name) else ""

    @property
    def resume_command(self) -> str:
        return self._store.resume_command(self.name)

    def close(self, experiment: Experiment, status: Status) -> None:
        if self.asked == "delete":
            self._cluster.remove("Experiment", self.name)
            return
        with suppress(
            NotFound, OSError
        ):  # where there is no room, the Experiment reads as one left behind
            self.write(experiment, status)
        self._store.disown("Experiment", self.name)

    def _directory_of(self, trial: Trial) -> Path:
        return self._store.path("Trial", trial.name)

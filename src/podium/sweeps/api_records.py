"""Experiments and trials of a cluster: objects of the API server, as Katib keeps them."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.leadership import Leadership
from podium.errors import NotFound, PodiumError
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.status import Status
from podium.manifests.experiment.trial import Trial
from podium.manifests.labels import READINGS
from podium.metrics import Reading, in_order
from podium.sweeps.base import Records, TrialIO
from podium.sweeps.pod_trial import PodTrial, jobs_of_trials, remove_jobs

KEPT_READINGS = 100
"""Readings of the objective that a trial's annotation keeps: a stopping rule needs only the first
ones."""


class ApiRecords(Records):
    """An Experiment of a namespace.

    Args:
        cluster: The namespace; it serves Experiments and runs the trials' jobs.
        experiment: The stored Experiment.
        leadership: Only while it is held may this write; it does not come back.
        image: Image of the container that prints a metrics file.
    """

    removes_failed = False

    def __init__(
        self,
        cluster: KubernetesCluster,
        experiment: Experiment,
        *,
        leadership: Leadership,
        image: str,
    ) -> None:
        super().__init__(experiment.name, Path(tempfile.mkdtemp(prefix="podium-engine-")))
        self.cluster, self._uid, self.leadership, self._image = (
            cluster,
            experiment.uid,
            leadership,
            image,
        )
        self._asked, self.stops_early = "", experiment.early_stopping is not None
        self._jobs: set[tuple[str, str]] = (
            set()
        )  # kind and name of those that an earlier engine left
        self._written: dict[
            tuple[str, str], Status
        ] = {}  # by kind and name: a field that is gone is written as null

    def experiment(self) -> Experiment:
        stored = self.cluster.experiment(self.name)
        if stored.uid != self._uid or stored.is_leaving:
            raise NotFound(f"Experiment {self.name} is deleted")
        return stored

    def trials(self) -> Sequence[Trial]:
        trials = self.cluster.trials(self.name)
        staying = [trial for trial in trials if not trial.is_leaving]
        own = [
            trial
            for trial in staying
            if any(owner.get("uid") == self._uid for owner in trial.owners)
        ]
        self._jobs = jobs_of_trials(self.cluster, self.name, own)
        return own

    def write(self, experiment: Experiment, status: Status) -> None:
        self._write("Experiment", self.name, status)

    def add(self, trial: Trial) -> Trial:
        self.leadership.check()
        stored = self.cluster.api.create(
            "Trial", {**trial.manifest, "status": {}}, patience=self.leadership.left
        )
        self._write("Trial", trial.name, trial.status)
        return Trial.parse(stored).with_status(trial.status)

    def save(self, trial: Trial) -> None:
        self._write("Trial", trial.name, trial.status)

    def readings(self, trial: Trial) -> list[Reading]:
        rows = json.loads(trial.annotations.get(READINGS) or "[]")
        return [
            Reading(trial.objective.metric, value, datetime.fromisoformat(time))
            for value, time in rows
        ]

    def keep_readings(self, trial: Trial, readings: Sequence[Reading]) -> None:
        """Keep the readings that a stopping rule needs, if the Experiment has one: etcd is no place
        for every reading."""
        if not self.stops_early:
            return
        self.leadership.check()
        change = {"metadata": {"annotations": {READINGS: readings_text(trial, readings)}}}
        self.cluster.api.patch("Trial", trial.name, change, patience=self.leadership.left)

    def claim(self, trial: Trial) -> Trial:
        """Return the trial as it is: its job runs on without an engine; a job that an engine was
        about to remove is removed."""
        self._written["Trial", trial.name] = dict(trial.status)
        job = trial.workload.kind, trial.name
        if trial.is_good and not trial.retain and job in self._jobs:
            self.cluster.abandon(*job)
        return trial

    def open(self, experiment: Experiment, trial: Trial) -> TrialIO:
        return PodTrial(
            self.cluster, experiment, trial, leadership=self.leadership, image=self._image
        )

    @property
    def outlives_engine(self) -> bool:
        return True

    @property
    def asked(self) -> str:
        return self._asked or ("" if self.leadership.is_held else "leave")

    def forget(self) -> None:
        """Take note that the Experiment was deleted: its trials and their jobs go with it."""
        self._asked = "delete"

    @property
    def resume_command(self) -> str:
        return f"kubectl -n {self.cluster.api.namespace} get experiment {self.name}"

    def close(self, experiment: Experiment, status: Status) -> None:
        if not self._asked:
            with suppress(PodiumError):  # the next leader goes on from what is stored
                self.write(experiment, status)
        if self.leadership.is_held and experiment.with_status(status).state.finished:
            with suppress(PodiumError):  # they go with the Experiment at the latest
                remove_jobs(self.cluster, self.name, self.cluster.trials(self.name))
        shutil.rmtree(self.directory, ignore_errors=True)

    def _write(self, kind: str, name: str, status: Any) -> None:
        self.leadership.check()
        before = self._written.get((kind, name), {})
        gone = {field: None for field in before if field not in status}
        self.cluster.api.patch_status(kind, name, {**status, **gone}, patience=self.leadership.left)
        self._written[kind, name] = dict(status)


def readings_text(trial: Trial, readings: Sequence[Reading]) -> str:
    """Write the first readings of a trial's objective for its annotation."""
    own = [reading for reading in in_order(readings) if reading.name == trial.objective.metric][
        :KEPT_READINGS
    ]
    return json.dumps([[reading.value, reading.time.isoformat()] for reading in own])

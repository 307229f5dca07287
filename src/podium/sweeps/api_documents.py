"""Experiments and trials as objects of the API server, as Katib keeps them."""

import json
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.leadership import Leadership
from podium.manifests.experiment.experiment import TRIAL_LISTS, Experiment
from podium.manifests.experiment.status import Status
from podium.manifests.experiment.trial import Trial
from podium.manifests.labels import READINGS
from podium.metrics import Reading
from podium.sweeps.base import Documents


class ApiDocuments(Documents):
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
            rows = json.dumps([reading.row for reading in readings])
            change = {"metadata": {"annotations": {READINGS: rows}}}
            self._cluster.api.patch(kind, name, change, patience=self._patience)
        known = {*self._written.get((kind, name), {})}
        if kind == "Experiment":  # also what an engine that no longer leads has written late
            known |= {*chain.from_iterable(TRIAL_LISTS.values())}
        gone = dict.fromkeys(sorted(known - status.keys()))
        self._cluster.api.patch_status(kind, name, {**status, **gone}, patience=self._patience)
        self._written[kind, name] = status

    def readings(self, trial: Trial) -> Sequence[Reading]:
        return [*map(Reading.of, json.loads(trial.annotations.get(READINGS) or "[]"))]

    def close(self, experiment: str, asked: str) -> None:
        self._remove()

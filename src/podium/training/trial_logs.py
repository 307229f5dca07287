"""The logs of a sweep's trials, kept as each ends.

Katib deletes a trial's job with its pods as soon as the trial has ended, unless it is told to
retain them. So the sweep lets it retain them, keeps their logs, and deletes the job itself: of a
good trial at once, of a failed one when the sweep is over, for until then its pod says why.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from podium.cluster.base import Cluster
from podium.errors import PodiumError
from podium.manifests.experiment import Experiment, Trial
from podium.training.kept_logs import KeptLogs, keep_replicas, only_warned

COMPLETE = ("Succeeded", "EarlyStopped", "Failed")
"""Phases in which Katib does not start a deleted job again (katib: trial_controller.go,
reconcileJob)."""


class TrialLogs:
    """Keeps the logs of trials that ended on a remote cluster.

    Args:
        delete_jobs: Whether a trial's job goes once its logs are kept.
    """

    def __init__(self, cluster: Cluster, kept: KeptLogs, *, delete_jobs: bool) -> None:
        self.cluster, self.kept, self.delete_jobs = cluster, kept, delete_jobs
        self._done: set[str] = set()
        self._failed: list[Trial] = []

    def update(self, trials: Iterable[Trial]) -> None:
        """Keep the logs of those trials that ended since the last call."""
        for trial in trials:
            if trial.state.finished and trial.name not in self._done:
                self._done.add(trial.name)
                job = trial.workload
                keep_replicas(self.cluster, job.kind, trial.name, self.kept, f"trials/{trial.name}")
                if trial.phase == "Failed":
                    self._failed.append(trial)
                elif trial.phase in COMPLETE:
                    self._delete(trial)

    def close(self) -> None:
        """Delete the jobs of failed trials."""
        for trial in self._failed:
            self._delete(trial)

    def _delete(self, trial: Trial) -> None:
        if not self.delete_jobs:
            return
        try:
            self.cluster.abandon(trial.workload.kind, trial.name)
        except PodiumError as error:  # it goes with the Experiment
            print(
                f"warning: the job of trial {trial.name} stays: {error.message}",
                file=sys.stderr,
                flush=True,
            )


@contextmanager
def trial_logs(
    cluster: Cluster, storage: str, run: str, experiment: Experiment
) -> Iterator[TrialLogs | None]:
    """Keep the logs of an Experiment's trials as they end; None where they stay on this machine
    anyway.

    Args:
        storage: URL of the storage that keeps the run's models.
        experiment: As its author wrote it; the jobs of one that retains them are not deleted.
    """
    logs: TrialLogs | None = None
    if not cluster.traits.keeps_logs:
        with only_warned("what the trials print"):
            logs = TrialLogs(
                cluster, KeptLogs(storage, run), delete_jobs=not experiment.template.retain
            )
    try:
        yield logs
    finally:
        if logs:
            logs.close()

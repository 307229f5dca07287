"""A trial on this machine: its job is a process, and its output is a file."""

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from podium.cluster.local import pushed
from podium.cluster.local.cluster import LocalCluster
from podium.cluster.local.logs import GrowingFile, last_line, read_last_run
from podium.errors import NotFound
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.status import created
from podium.manifests.experiment.trial import Trial
from podium.manifests.kinds import TRAINJOB
from podium.manifests.labels import PUSHES
from podium.manifests.workload import Workload
from podium.metrics import UNAVAILABLE, Reading, kept_readings
from podium.sweeps.base import Executor, NoMetricsFile, Save, TrialIO
from podium.sweeps.metrics_collector import collect
from podium.sweeps.trials import TrialRun
from podium.sweeps.wrapping import (
    Wrapped,
    check_trials,
    cores_of_a_trial,
    prepare,
    trial_directory,
    wrap,
)

_TAIL = 0.05
"""Seconds between checks of a metrics file while an early-stopping rule is in force."""


class _LocalTrial(TrialIO):
    """Runs a trial's job as processes of the local cluster.

    Args:
        experiment: The one it belongs to.
        trial: The stored trial.
    """

    def __init__(self, cluster: LocalCluster, experiment: Experiment, trial: Trial) -> None:
        self._cluster, self._experiment = cluster, experiment
        self._name, self._kind = trial.name, trial.workload.kind
        self._directory = cluster.store.path("Trial", trial.name)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._over = threading.Event()
        # Trainer has TrainJobs post, and Katib reads what is pushed with this collector alone.
        self._takes_pushes = (
            self._kind == TRAINJOB
            or experiment.collector.kind == "Push"
            or PUSHES in experiment.annotations
        )
        root = cluster.store.path("Experiment", experiment.name) / "checkpoints"
        checkpoints = prepare(root, trial) if trial_directory(experiment) else None
        job, share = cluster.with_entrypoints(trial.workload), cores_of_a_trial(experiment.limits)
        self._wrapped: Wrapped = wrap(experiment, job, self._directory, share, checkpoints)

    def start(self) -> None:
        self._cluster.create(self._wrapped.job)

    def changes(self) -> Iterator[Workload]:
        with suppress(NotFound):
            for job in self._cluster.watch(self._kind, self._name):
                assert isinstance(job, Workload)
                yield job

    def lines(self) -> Iterator[str]:
        if self._experiment.collector.kind == "Push":
            return iter(())
        if self._wrapped.metrics:
            return self._tail(self._wrapped.metrics[0])
        replica = next(iter(self._wrapped.replicas), None)
        return self._cluster.logs(self._kind, self._name, replica, follow=True)

    def pushed(self) -> Iterator[Reading]:
        return self._posted() if self._takes_pushes else iter(())

    def _posted(self) -> Iterator[Reading]:
        names = self._experiment.objective.metrics
        return kept_readings(self._tail(self._pushes), names)

    def stop(self) -> None:
        self._cluster.abandon(self._kind, self._name)

    def settle(self) -> None:
        """Append a wrapped command's output to the replica's log, where users look for it."""
        self._over.set()
        if self._experiment.collector.kind != "StdOut":
            return
        logs = self._logs
        names = (
            self._wrapped.replicas
            or [path.stem for path in sorted(logs.glob("pod-*.log"), reverse=True)][:1]
        )
        for name, file in zip(names, self._wrapped.metrics, strict=False):
            if (logs / f"{name}.log").exists() and file.is_file():
                with (logs / f"{name}.log").open("ab") as log, file.open("rb") as printed:
                    shutil.copyfileobj(printed, log)

    def last_words(self) -> str:
        return last_line(self._cluster.store, self._kind, self._name)

    def collect(self) -> tuple[dict[str, Any], list[Reading]]:
        def log() -> Iterator[str]:
            names = self._experiment.objective.metrics
            return read_last_run(
                self._cluster.store, self._kind, self._name, self._wrapped.replicas, names
            )

        found = collect(self._experiment, self._wrapped.metrics, log, self.pushed())
        first, *_ = found[1]
        if first.value == UNAVAILABLE and any(first.name == name for name, *_ in self._posted()):
            raise NoMetricsFile(
                "The program posted it, which this collector does not read",
                "use the collector Push, or TrainJobs",
            )
        return found

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            shutil.copytree(self._logs, self._directory / "logs", dirs_exist_ok=True)
        self._cluster.delete(self._kind, self._name)

    @property
    def _pushes(self) -> Path:
        return self._cluster.store.path(self._kind, self._name) / pushed.FILE

    @property
    def _logs(self) -> Path:
        return self._cluster.store.path(self._kind, self._name) / "logs"

    def _tail(self, path: Path) -> Iterator[str]:
        file, over = GrowingFile(path), False
        while not over:
            over = self._over.wait(_TAIL)
            yield from file.lines()


class ProcessExecutor(Executor):
    """Runs trials as processes of the local cluster.

    Args:
        experiment: Checked.

    Raises:
        InvalidInput: The cluster would refuse the trials' jobs.
    """

    def __init__(self, cluster: LocalCluster, experiment: Experiment) -> None:
        directory = cluster.store.path("Experiment", experiment.name)
        if experiment.collector.kind == "Push":
            cluster.take_reports()
        self._cluster, self._likely_job = cluster, check_trials(cluster, experiment, directory)

    def begin(self, experiment: Experiment, trials: Sequence[Trial]) -> Sequence[Trial]:
        """Start imports for the first trial; trials that lost their processes start again."""
        self._cluster.warm(self._likely_job)
        return [trial if trial.has_ended else self._again(trial) for trial in trials]

    def _again(self, trial: Trial) -> Trial:
        self._cluster.delete(trial.workload.kind, trial.name)
        return created(trial)

    def run(
        self, experiment: Experiment, trial: Trial, save: Save, stopping: threading.Event
    ) -> TrialRun:
        return TrialRun(
            lambda: _LocalTrial(self._cluster, experiment, trial),
            experiment,
            trial,
            save=save,
            stopping=stopping,
            removes_failed=True,
        )

"""One trial on this machine: its job is created, watched, perhaps stopped early, and its metrics collected."""

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from podium.cluster.local.cluster import LocalCluster
from podium.cluster.local.logs import read_last_run
from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.expression import matches
from podium.manifests.experiment.status import marked
from podium.manifests.experiment.trial import Trial
from podium.manifests.workload import Workload
from podium.metrics import Reading
from podium.sweeps.checkpoints import prepare, trial_directory
from podium.sweeps.early_stopping import RuleWatch
from podium.sweeps.metrics_collector import collect, observe
from podium.sweeps.wrapping import Wrapped, wrap

READINGS = "readings.json"
"""Every value a trial reported, as [name, value, time]; in the trial's directory."""


TAIL = 0.05
"""Seconds between looks at a metrics file while an early-stopping rule is in force."""


@dataclass(kw_only=True)
class Ended:
    """What a trial left."""

    readings: list[Reading]
    """Every value it reported."""

    refused: str | None = None
    """Why its job could not even be created."""

    unsaved: Exception | None = None
    """Why its end could not be written."""


class TrialRun:
    """Runs one trial in the calling thread.

    Args:
        cluster: Creates and watches the job.
        experiment: The one it belongs to.
        trial: As created.
        cores: How many cores the job may use.
        save: Writes the trial's status; called at each change.
        stopping: Set when the engine stops: the trial stays as it is then, and runs again when it is resumed.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        experiment: Experiment,
        trial: Trial,
        *,
        cores: float,
        save: Callable[[Trial], None],
        stopping: threading.Event,
    ) -> None:
        self._cluster = cluster
        self._experiment = experiment
        self.trial = trial
        self._cores = cores
        self._save = save
        self._stopping = stopping
        self._name, self._kind = trial.name, trial.workload.kind
        self._directory = cluster.store.path("Trial", self._name)
        self._stopped_early, self._over = threading.Event(), threading.Event()
        self._broken: Failed | None = None

    def run(self) -> Ended:
        """Run the trial to its end; its status says how it went."""
        self._directory.mkdir(parents=True, exist_ok=True)
        root = self._cluster.store.path("Experiment", self._experiment.name) / "checkpoints"
        checkpoints = prepare(root, self.trial) if trial_directory(self._experiment) else None
        job = self._cluster.with_entrypoints(self.trial.workload)
        wrapped = wrap(self._experiment, job, self._directory, self._cores, checkpoints)
        try:
            self._cluster.create(wrapped.job.manifest)
        except PodiumError as error:
            if self._stopping.is_set():
                return Ended(readings=[])
            self._mark("Failed", "TrialFailed", f"Trial has failed. Its job was refused: {error.message}")
            return Ended(readings=[], refused=str(error) if isinstance(error, InvalidInput) else None)
        self._mark("Running", "TrialRunning", "Trial is running")
        watcher = self._watch_rules(wrapped)
        ended = self._wait()
        self._over.set()
        self._keep_output(wrapped)
        if watcher:
            watcher.join()
        if self._stopping.is_set() and (ended is None or not ended.state.succeeded):
            return Ended(readings=[])
        readings = self._finish(ended, wrapped)
        self._clean_up()
        return Ended(readings=readings)

    def _wait(self) -> Workload | None:
        job: Workload | None = None
        conditions = (self.trial.failure_condition, self.trial.success_condition)
        with suppress(NotFound):
            for manifest in self._cluster.watch(self._kind, self._name):
                job = Workload.parse(manifest)
                if any(matches(condition, manifest) for condition in conditions):
                    break
        return job

    def _keep_output(self, wrapped: Wrapped) -> None:
        """Put what a wrapped command printed into the replica's log: that is where people look."""
        if self._experiment.collector.kind != "StdOut":
            return
        logs = self._cluster.store.path(self._kind, self._name) / "logs"
        names = wrapped.replicas or [path.stem for path in sorted(logs.glob("pod-*.log"), reverse=True)][:1]
        for name, file in zip(names, wrapped.metrics, strict=False):
            if (logs / f"{name}.log").exists() and file.is_file():
                with (logs / f"{name}.log").open("ab") as log, file.open("rb") as printed:
                    shutil.copyfileobj(printed, log)

    def _finish(self, job: Workload | None, wrapped: Wrapped) -> list[Reading]:
        manifest = job.manifest if job else {}
        failure = matches(self.trial.failure_condition, manifest)
        success = matches(self.trial.success_condition, manifest)
        if self._broken:
            self._mark("Failed", "TrialFailed", f"Trial has failed: {self._broken.message}")
        elif self._stopped_early.is_set():
            return self._collect("EarlyStopped", "TrialEarlyStopped", "Trial is early stopped", wrapped)
        elif failure:
            self._mark("Failed", *_words("TrialFailed", "Trial has failed", failure))
        elif success:
            return self._collect("Succeeded", *_words("TrialSucceeded", "Trial has succeeded", success), wrapped)
        else:
            phase = job.state.phase if job else "deleted"
            message = f"Trial has failed: its job ended ({phase}), but neither success nor failure condition holds"
            self._mark("Failed", "TrialFailed", message)
        return []

    def _collect(self, kind: str, reason: str, message: str, wrapped: Wrapped) -> list[Reading]:
        broken = ""
        try:
            observation, readings = collect(self._experiment, wrapped.metrics, lambda: self._log(wrapped))
        except Failed as error:
            if all(path.exists() for path in wrapped.metrics):
                self._mark("Failed", "TrialFailed", f"Trial has failed: {error.message}")
                return []
            observation, readings = observe([], self._experiment.objective.metrics), []
            broken = f". {error}"
        self.trial = self.trial.with_status({**self.trial.status, "observation": observation})
        (self._directory / READINGS).write_text(
            json.dumps([[reading.name, reading.value, reading.time.isoformat()] for reading in readings])
        )
        if self.trial.value is None:
            name, strategy = self.trial.objective.metric, self.trial.objective.strategy
            said = f"was not found as {name}=NUMBER" if self._experiment.collector.reads_text else "was not found"
            if any(reading.name == name and reading.value != "unavailable" for reading in readings):
                said = f"was printed, but its {strategy} is not a finite number"
            reason = reason.replace("TrialSucceeded", "MetricsUnavailable").replace(
                "TrialEarlyStopped", "MetricsUnavailable"
            )
            ended = "Metrics are not available" if kind == "Succeeded" else message
            self._mark("MetricsUnavailable", reason, f"{ended}{broken}. The objective {name} {said}")
        else:
            self._mark(kind, reason, message)
        return readings

    def _log(self, wrapped: Wrapped) -> Iterator[str]:
        return read_last_run(self._cluster.store, self._kind, self._name, wrapped.replicas)

    def _watch_rules(self, wrapped: Wrapped) -> threading.Thread | None:
        rules = self.trial.stopping_rules
        if not rules:
            return None
        objective, collector = self.trial.objective, self._experiment.collector
        watch = RuleWatch(
            rules,
            objective.metric,
            maximize=objective.maximize,
            formats=collector.filters or None,
            as_json=collector.reads_json,
        )
        if wrapped.metrics:
            source = self._tail(wrapped.metrics[0])
        else:
            replica = next(iter(wrapped.replicas), None)
            source = self._cluster.logs(self._kind, self._name, replica, follow=True)
        thread = threading.Thread(target=self._follow, args=(watch, source), name=f"rules-{self._name}", daemon=True)
        thread.start()
        return thread

    def _follow(self, watch: RuleWatch, lines: Iterable[str]) -> None:
        try:
            if not any(watch.sees(line) for line in lines):
                return
            self._stopped_early.set()
        except Failed as error:
            self._broken = error
        except NotFound:
            return
        self._cluster.abandon(self._kind, self._name)

    def _tail(self, path: Path) -> Iterator[str]:
        """Yield a metrics file's lines as it grows, until the job has ended."""
        at, rest = 0, ""
        while True:
            over = self._over.wait(TAIL)
            if path.is_file():
                with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
                    file.seek(at)
                    *lines, rest = (rest + file.read()).split("\n")
                    at = file.tell()
                yield from lines
            if over:
                return

    def _clean_up(self) -> None:
        """Keep the logs with the trial; without retain the job goes, as in Katib."""
        if self.trial.retain:
            return
        logs = self._cluster.store.path(self._kind, self._name) / "logs"
        with suppress(FileNotFoundError):
            shutil.copytree(logs, self._directory / "logs", dirs_exist_ok=True)
        self._cluster.delete(self._kind, self._name)

    def _mark(self, kind: str, reason: str, message: str) -> None:
        self.trial = marked(self.trial, kind, reason, message)
        self._save(self.trial)


def _words(reason: str, message: str, condition: Mapping[str, Any]) -> tuple[str, str]:
    said, why = condition.get("message"), condition.get("reason")
    return (f"{reason}. Job reason: {why}" if why else reason, f"{message}. Job message: {said}" if said else message)


def read_readings(directory: Path) -> list[Reading]:
    """Return the values a finished trial reported; none if it failed."""
    try:
        rows = json.loads((directory / READINGS).read_text())
    except FileNotFoundError:
        return []
    return [Reading(name, value, datetime.fromisoformat(time)) for name, value, time in rows]

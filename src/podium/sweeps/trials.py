"""One trial: its job is started, watched, perhaps stopped early, and its metrics collected."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.manifests.conditions import SteadyTime
from podium.manifests.experiment import Experiment, Trial
from podium.manifests.experiment.template import matches
from podium.manifests.workload import Workload
from podium.metrics import Reading, number
from podium.sweeps.base import NoMetricsFile, RunningTrial, Save, TrialIO, TrialResult
from podium.sweeps.early_stopping import RuleWatch
from podium.sweeps.metrics_collector import observe


class TrialRun(RunningTrial):
    """Runs one trial in the calling thread.

    Args:
        open: Returns the object that runs and reads the trial's job.
        experiment: The one it belongs to.
        trial: The created trial.
        save: Called at each change of the trial's status.
        stopping: Set when the engine stops: the trial stays as it is then, and runs again when it
            is resumed.
        removes_failed: Whether the job of a trial that failed is removed at once.
    """

    def __init__(
        self,
        open: Callable[[], TrialIO],
        experiment: Experiment,
        trial: Trial,
        *,
        save: Save,
        stopping: threading.Event,
        removes_failed: bool,
    ) -> None:
        self._open, self._experiment, self.trial = open, experiment, trial
        self._removes_failed = removes_failed
        self._io: TrialIO | None = None
        self._save, self._stopping = save, stopping
        self._stopped_early, self._why_early = threading.Event(), "Trial is early stopped"
        self._stopped = threading.Event()
        self._broken: Failed | None = None
        self._time = SteadyTime()

    def run(self) -> TrialResult:
        self._io = io = self._open()
        try:
            io.start()
        except PodiumError as error:
            if self._stopping.is_set():
                return TrialResult()
            self._mark(
                "Failed", "TrialFailed", f"Trial has failed. Its job was refused: {error.message}"
            )
            return TrialResult(refused=str(error) if isinstance(error, InvalidInput) else None)
        if self._stopped.is_set() or self._stopped_early.is_set():
            with suppress(PodiumError):  # asked before there was a job
                io.stop()
        if self.trial.phase != "Running":
            self._mark("Running", "TrialRunning", "Trial is running")
        watchers = self._watch_rules(io)
        ended = self._wait(io)
        io.settle()
        for watcher in watchers:
            watcher.join()
        if self._stopping.is_set() and (ended is None or not ended.state.succeeded):
            return TrialResult()
        readings = self._finish(io, ended)
        if not self.trial.retain and (self.trial.is_good or self._removes_failed):  # as in Katib
            # The trial has its end, whatever becomes of its job.
            with suppress(PodiumError, OSError):
                io.remove()
        return TrialResult(readings=readings)

    def stop(self) -> None:
        self._stopped.set()
        if self._io:
            self._io.stop()

    def end_early(self, message: str) -> None:
        if self._io and not self._stopped_early.is_set():
            self._why_early = message
            self._stopped_early.set()
            try:
                self._io.stop()
            except PodiumError:  # it is asked again
                self._stopped_early.clear()

    def _wait(self, io: TrialIO) -> Workload | None:
        job: Workload | None = None
        conditions = (self.trial.failure_condition, self.trial.success_condition)
        try:
            for job in io.changes():
                if any(matches(condition, job.manifest) for condition in conditions):
                    break
        except Failed as error:
            self._broken = self._broken or error
        return job

    def _finish(self, io: TrialIO, job: Workload | None) -> list[Reading]:
        manifest = job.manifest if job else {}
        failure = matches(self.trial.failure_condition, manifest)
        success = matches(self.trial.success_condition, manifest)
        if self._broken:
            self._mark("Failed", "TrialFailed", f"Trial has failed: {self._broken.message}")
        elif self._stopped_early.is_set():
            return self._collect(io, "EarlyStopped", "TrialEarlyStopped", self._why_early)
        elif failure:
            said = io.last_words()
            message = f"Trial has failed: {said}" if said else "Trial has failed"
            self._mark("Failed", *_words("TrialFailed", message, failure))
        elif success:
            return self._collect(
                io, "Succeeded", *_words("TrialSucceeded", "Trial has succeeded", success)
            )
        else:
            phase = job.state.phase if job and job.state.finished else "deleted"
            message = f"Trial has failed: its job ended ({phase}), but neither success nor failure condition holds"
            self._mark("Failed", "TrialFailed", message)
        return []

    def _collect(self, io: TrialIO, kind: str, reason: str, message: str) -> list[Reading]:
        broken = ""
        try:
            observation, readings = io.collect()
        except NoMetricsFile as error:
            observation, readings = observe([], self._experiment.objective.metrics)
            broken = f". {error}"
        except Failed as error:
            self._mark("Failed", "TrialFailed", f"Trial has failed: {error.message}")
            return []
        self.trial = self.trial.with_status({**self.trial.status, "observation": observation})
        if self.trial.value is None:
            name, strategy = self.trial.objective.metric, self.trial.objective.strategy
            said = (
                f"was not found as {name}=NUMBER"
                if self._experiment.collector.reads_text
                else "was not found"
            )
            if any(reading.name == name and reading.value != "unavailable" for reading in readings):
                said = f"was printed, but its {strategy} is not a finite number"
            reason = reason.replace("TrialSucceeded", "MetricsUnavailable").replace(
                "TrialEarlyStopped", "MetricsUnavailable"
            )
            ended = "Metrics are not available" if kind == "Succeeded" else message
            self._mark(
                "MetricsUnavailable",
                reason,
                f"{ended}{broken}. The objective {name} {said}",
                readings,
            )
        else:
            self._mark(kind, reason, message, readings)
        return readings

    def _watch_rules(self, io: TrialIO) -> Sequence[threading.Thread]:
        rules = self.trial.stopping_rules
        if not rules:
            return ()
        objective, collector = self.trial.objective, self._experiment.collector
        watch = RuleWatch(
            rules,
            objective.metric,
            maximize=objective.maximize,
            formats=collector.filters or None,
            as_json=collector.reads_json,
        )
        printed = map(watch.sees, io.lines())
        pushed = (watch.takes((name, number(value))) for name, value, _ in io.pushed())
        threads = [
            threading.Thread(target=self._follow, args=(met, io), name="podium-rules", daemon=True)
            for met in (printed, pushed)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _follow(self, met: Iterable[bool], io: TrialIO) -> None:
        try:
            if not any(met):
                return
            self._stopped_early.set()
        except Failed as error:
            self._broken = error
        except NotFound:
            return
        except Exception as error:  # else nothing would stop it any more, in silence
            self._broken = Failed(f"its stopping rules cannot be followed: {error!r}")
        with suppress(PodiumError):  # it ends by itself, and counts the same
            io.stop()

    def _mark(self, kind: str, reason: str, message: str, readings: Sequence[Reading] = ()) -> None:
        self.trial = self.trial.with_condition(kind, reason, message, self._time.timestamp())
        self._save(self.trial, readings)


def _words(reason: str, message: str, condition: Mapping[str, Any]) -> tuple[str, str]:
    said, why = condition.get("message"), condition.get("reason")
    return (
        f"{reason}. Job reason: {why}" if why else reason,
        f"{message}. Job message: {said}" if said else message,
    )

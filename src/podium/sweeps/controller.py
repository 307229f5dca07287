"""An Experiment on this machine: a loop over trials with Katib's rules.

Sources: katib 0.19, pkg/controller.v1beta1/experiment; checked against Experiments run by a real Katib
(tests/golden/katib). Where Katib waits forever or names a nonsensical best trial, this ends with a plain
message instead: docs/katib-differences.md.
"""

import copy
import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from podium.cluster.local.cluster import LocalCluster
from podium.cluster.local.store import POLL, has_ended
from podium.errors import NotFound, PodiumError
from podium.interrupts import Background
from podium.manifests.conditions import State, status_of
from podium.manifests.experiment.checks import check
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.status import (
    Standing,
    Status,
    created,
    mark,
    marked,
    new_trial,
    now,
    summarize,
    verdict,
    wanted,
)
from podium.manifests.experiment.trial import Trial
from podium.manifests.labels import PBT_GENERATION, PBT_PARENT
from podium.manifests.names import random_suffix
from podium.search.population import GENERATION, PARENT
from podium.search.search import Search
from podium.sweeps.early_stopping import MedianStop
from podium.sweeps.status_file import StatusFile
from podium.sweeps.trials import Ended, TrialRun, read_readings
from podium.sweeps.warm_start import earlier_trials
from podium.sweeps.wrapping import check_trials, cores_of_a_trial

_LABELS = {GENERATION: PBT_GENERATION, PARENT: PBT_PARENT}
"""Label by which a trial tells what a population remembers of it."""


class ExperimentController:
    """Runs one Experiment in a thread until its last trial has ended.

    Args:
        cluster: Runs the trials' jobs.
        experiment: One with trials in the cluster continues where it was.
        directory: The Experiment's own; holds the Optuna study.

    Raises:
        InvalidInput: Katib would refuse it, or could never end it.
    """

    def __init__(self, cluster: LocalCluster, experiment: Experiment, directory: Path) -> None:
        self.experiment = check(experiment)
        self._cluster = cluster
        self._directory = directory
        self.name = self.experiment.name
        self._status: Status = copy.deepcopy(dict(experiment.status))
        self._file = StatusFile(cluster.store, self.experiment)
        self._standings: dict[str, Standing] = {}
        self._trials: dict[str, Trial] = {}  # those that have not ended
        self._active: dict[str, threading.Thread] = {}
        self._events: queue.SimpleQueue[tuple[str, Ended] | None] = queue.SimpleQueue()
        self._stopping, self._why = threading.Event(), ""
        self._search: Search | None = None
        self._median: MedianStop | None = None
        self._likely_job = check_trials(cluster, self.experiment, directory)
        # One that is resumed has them in its study, and can be resumed after they were deleted.
        self._earlier = [] if "startTime" in self._status else earlier_trials(cluster.store, self.experiment)
        self._thread = Background(self._run, f"podium-Experiment-{self.name}")

    def start(self) -> None:
        """Start or resume."""
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end of all trials, without waiting; the Experiment can be resumed later."""
        self._stopping.set()
        self._events.put(None)

    def wake(self) -> None:
        """Ask for a look at the Experiment: it may have to be deleted."""
        self._events.put(None)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until no trial is running; return whether that is so."""
        return self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self._begin()
            while not self._is_stopping():
                self._reconcile()
                if self._completed and not self._active:
                    return self._file.write(self._status)
                self._take_events()
        except NotFound:
            pass  # Somebody removed the files: there is nobody to report to.
        except OSError as error:  # a full disk: nothing that the Experiment did
            self._why = f": {error}"
            self._stopping.set()
        except Exception as error:
            message = str(error) if isinstance(error, PodiumError) else f"{type(error).__name__}: {error}"
            if not self._is_ending():
                mark(self._status, "Failed", "ExperimentFailed", f"Experiment has failed: {message}")
            elif not self._why:
                self._why = f" (meanwhile: {message})"
        finally:
            for step in (self._stop_trials, self._close_study):
                with suppress(Exception):  # the status below has to be written, whatever ends around this thread
                    step()
            if self._stopping.is_set():
                self._count()
                if not self._completed:
                    command = self._cluster.store.resume_command(self.name)
                    message = f"Experiment was stopped{self._why}; resume it with: {command}"
                    mark(self._status, "Stopped", "ExperimentStopped", message)
            if self._cluster.store.is_deletion_asked("Experiment", self.name):
                self._cluster.remove("Experiment", self.name)
            else:
                self._file.close(self._status)

    def _is_stopping(self) -> bool:
        """Look whether somebody, maybe another process, wants the Experiment stopped or deleted."""
        store = self._cluster.store
        if store.is_stop_asked("Experiment", self.name) or store.is_deletion_asked("Experiment", self.name):
            self._stopping.set()
        return self._stopping.is_set()

    def _is_ending(self) -> bool:
        """Look whether a stop is under way, or Python itself ends: what fails then fails for that, and can be resumed.

        As the main thread ends, thread pools refuse work, and soon no thread starts; whoever stops the Experiment then
        comes later.
        """
        if not threading.main_thread().is_alive():
            self._stopping.set()
        return self._is_stopping()

    def _begin(self) -> None:
        stored = self._cluster.experiment(self.name)  # uid and labels of the stored object go into its trials
        self.experiment = self.experiment.with_metadata(stored.metadata)
        self._cluster.warm(self._likely_job.manifest)
        trials = self._cluster.trials(self.name)
        self._search = Search(
            self.experiment.space,
            self.experiment.algorithm.name,
            self.experiment.algorithm.settings,
            maximize=self.experiment.objective.maximize,
            directory=self._directory,
            name=self.name,
            earlier=self._earlier,
            begun=[trial.name for trial in trials],
        )
        self._median = MedianStop.of(self.experiment)
        if "startTime" not in self._status:
            self._status["startTime"] = now()
            warm = f"; it starts warm from {len(self._earlier)} trials" if self._earlier else ""
            mark(self._status, "Created", "ExperimentCreated", f"Experiment is created{warm}")
            self._status["currentOptimalTrial"] = {"observation": {}}
            self._file.write(self._status)
        self._recall(trials)

    def _recall(self, trials: Sequence[Trial]) -> None:
        """Take up the trials of an engine that was stopped or killed; those that had not ended run again."""
        for trial in trials:
            self._take_up(trial)
            self._cluster.store.claim("Trial", trial.name)
            if has_ended(trial):
                readings = read_readings(self._cluster.store.path("Trial", trial.name))
                self._learn(trial.name, Ended(readings=readings))
                continue
            self._cluster.delete(trial.workload.kind, trial.name)
            self._begin_trial(created(trial))

    def _reconcile(self) -> None:
        """Go once through Katib's loop: count, see whether it is over, begin trials."""
        self._count()
        if not self._completed:
            self._check_end(exhausted=False)
        if not self._completed:
            begun = self._add_trials()
            self._count()
            if begun and self._state.phase == "Created":
                mark(self._status, "Running", "ExperimentRunning", "Experiment is running")
            if not begun and not self._active:
                self._check_end(exhausted=True)
        self._file.follow(self._status)

    def _count(self) -> None:
        self._standings.update((name, Standing.of(trial)) for name, trial in self._trials.items())
        summarize(self._status, self._standings.values(), self.experiment.objective)

    def _take_up(self, trial: Trial) -> None:
        self._trials[trial.name], self._standings[trial.name] = trial, Standing.of(trial)

    def _check_end(self, *, exhausted: bool) -> None:
        end = verdict(self.experiment, self._status, self._standings.values(), exhausted=exhausted)
        if end:
            mark(self._status, *end)

    @property
    def _state(self) -> State:
        return status_of({"kind": "Experiment", "status": self._status})

    @property
    def _completed(self) -> bool:
        return self._state.finished

    def _add_trials(self) -> int:
        begun = 0
        while len(self._active) < wanted(self.experiment.limits, self._status):
            if not self._suggest():
                break
            begun += 1
        return begun

    def _suggest(self) -> bool:
        assert self._search is not None
        name = f"{self.name}-{random_suffix(8)}"
        assignments = self._search.ask(name)
        if assignments is None:
            return False
        job = self.experiment.render(name, assignments)
        rules = self._median.rules() if self._median else []
        labels = {_LABELS[tag]: value for tag, value in self._search.tags(name).items()}
        trial = new_trial(self.experiment, name, assignments, job, rules, labels)
        self._take_up(Trial(manifest=self._cluster.store.create(trial.manifest)))
        self._begin_trial(self._trials[name])
        return True

    def _begin_trial(self, trial: Trial) -> None:
        name = trial.name
        self._trials[name] = trial
        share = cores_of_a_trial(self.experiment.limits)
        run = TrialRun(
            self._cluster, self.experiment, trial, cores=share, save=self._save_trial, stopping=self._stopping
        )
        thread = threading.Thread(target=self._run_trial, args=(name, run), name=f"podium-Trial-{name}", daemon=True)
        self._active[name] = thread
        thread.start()

    def _run_trial(self, name: str, run: TrialRun) -> None:
        try:
            ended = run.run()
        except Exception as error:
            ended = Ended(readings=[])
            if not self._is_ending():
                message = f"Trial has failed: {error if isinstance(error, PodiumError) else repr(error)}"
                try:
                    self._save_trial(marked(run.trial, "Failed", "TrialFailed", message))
                except (NotFound, OSError) as unsaved:
                    ended.unsaved = unsaved
        self._events.put((name, ended))

    def _save_trial(self, trial: Trial) -> None:
        status = dict(trial.status)
        self._cluster.store.update("Trial", trial.name, lambda stored: stored.update(status=status))
        # Only now: whoever sees the Experiment's end reads its trials next, and they have to have ended there too.
        self._trials[trial.name] = trial
        self._events.put(None)  # the counts follow

    def _take_events(self) -> None:
        """Wait until something happened or is due, and take in all that did."""
        due = self._file.pause(self._status)
        with suppress(queue.Empty):
            self._take(self._events.get(timeout=POLL if due is None else min(POLL, due)))
            while True:
                self._take(self._events.get_nowait())

    def _take(self, event: tuple[str, Ended] | None) -> None:
        if event is None:
            return
        name, ended = event
        self._active.pop(name).join()
        if ended.unsaved:
            raise ended.unsaved
        if not self._trials[name].state.finished:
            return  # it was stopped with the Experiment: it runs again, and its result counts then
        self._learn(name, ended)
        if ended.refused:
            message = f"Experiment has failed: its trials cannot run here. {ended.refused}"
            mark(self._status, "Failed", "ExperimentFailed", message)

    def _learn(self, name: str, ended: Ended) -> None:
        assert self._search is not None
        stands = self._standings[name] = Standing.of(self._trials.pop(name))
        self._search.tell(name, stands.value if stands.phase in ("Succeeded", "EarlyStopped") else None)
        if self._median and stands.phase == "Succeeded":
            self._median.learn(name, ended.readings)

    def _stop_trials(self) -> None:
        for name in list(self._active):
            with suppress(PodiumError):
                self._cluster.abandon(self._trials[name].workload.kind, name)
        for thread in list(self._active.values()):
            thread.join(timeout=60)

    def _close_study(self) -> None:
        """Tell the study of the trials that ended since the last look, and of those that an end leaves without one.

        Whoever watches the Experiment sees its end as soon as the last trial has one, and may close the cluster before
        the loop comes round to that trial.
        """
        with suppress(OSError):  # a full disk; a resumed study learns them from their files
            while not self._events.empty():
                with suppress(NotFound):
                    self._take(self._events.get())
            if self._search and self._completed:
                for name in self._trials:
                    self._search.tell(name, None)

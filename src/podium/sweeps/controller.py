"""The trial loop: runs one Experiment by Katib's rules, here or on a cluster.

Sources: katib 0.19, pkg/controller.v1beta1/experiment; checked against Experiments run by a real
Katib (tests/golden/katib). Where Katib waits forever or names a nonsensical best trial, this ends
with a plain message instead: docs/katib-differences.md.
"""

import errno
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from podium.cluster.base import Cluster
from podium.errors import InvalidInput, NotFound, PodiumError, of_this_machine
from podium.manifests.conditions import Conditions, State, status_of, timestamp
from podium.manifests.experiment import Experiment, Trial, check
from podium.manifests.experiment.status import (
    Status,
    TrialSummary,
    completion_condition,
    new_trial,
    same_conditions,
    summarize,
    trials_to_start,
)
from podium.manifests.experiment.trainer import set_seed
from podium.manifests.fields import unshared
from podium.manifests.job_editor import JobEditor
from podium.manifests.labels import (
    BY_HAND,
    NUMBER as NUMBER_LABEL,
    PBT_GENERATION,
    PBT_PARENT,
    REPEATS,
    SAMPLER as SAMPLER_LABEL,
    SEED,
)
from podium.manifests.names import random_suffix
from podium.manifests.options import options_of
from podium.manifests.options.base import Follower
from podium.manifests.options.objectives import Criteria
from podium.manifests.options.warm_start import WarmStart
from podium.manifests.workload import Workload
from podium.metrics import Reading
from podium.search.algorithm import PastTrial
from podium.search.algorithms import ALGORITHMS
from podium.search.distributions import Columns
from podium.search.in_order import NUMBER, SAMPLER, OtherLibrary
from podium.search.population import GENERATION, PARENT
from podium.search.search import Search
from podium.sweeps.base import RunningTrial, TrialResult
from podium.sweeps.early_stopping import MedianStop
from podium.sweeps.records import Records, Requests
from podium.system.background import Background

_PAUSE_SECONDS = 0.2
"""Interval between writes of mere counts: they grow with the number of trials."""


class _StatusWriter:
    """Writes the status of one Experiment.

    Args:
        write: Puts a status where the Experiment is kept.
    """

    def __init__(self, write: Callable[[Status], None]) -> None:
        self._write = write
        self._written: Status = {}
        self._at = 0.0

    def pause(self, status: Status) -> float | None:
        """Return the seconds until the status is due to be written; None if that has been done."""
        return (
            None
            if status == self._written
            else max(0.0, self._at + _PAUSE_SECONDS - time.monotonic())
        )

    def follow(self, status: Status) -> None:
        """Write the status if it is due, or if a condition changed."""
        if self.pause(status) == 0 or not same_conditions(status, self._written):
            self.write(status)

    def write(self, status: Status) -> None:
        """Write the status if it changed.

        Raises:
            NotFound: Somebody removed the Experiment.
        """
        if status != self._written:
            self._at, written = time.monotonic(), unshared(status)
            self._write(written)
            self._written = written


_LOOK_SECONDS = 0.2
"""Interval between checks for requests of other processes."""

_HELD_SECONDS = 10.0
"""Interval between checks whether what holds an Experiment back is over."""

_LABELS = {
    GENERATION: PBT_GENERATION,
    PARENT: PBT_PARENT,
    NUMBER: NUMBER_LABEL,
    SAMPLER: SAMPLER_LABEL,
}
"""Labels of a trial with the data that a search stores with it."""


class ExperimentController:
    """Runs one Experiment in a thread until its last trial has ended.

    Args:
        records: Storage of the Experiment; one with trials is continued.

    Raises:
        InvalidInput: Katib would refuse it, or could never end it.
    """

    def __init__(self, records: Records, experiment: Experiment) -> None:
        self.experiment = check(experiment)
        self._records = records
        self.name = self.experiment.name
        self._status: Status = unshared(experiment.status)
        self._conditions = Conditions(self._status, "katib")
        self._writer = _StatusWriter(lambda status: records.write(self.experiment, status))
        self._summaries: dict[str, TrialSummary] = {}
        self._is_counted = False  # whether the status has what the summaries say
        self._trials: dict[str, Trial] = {}  # those that have not ended
        self._active: dict[str, tuple[RunningTrial, threading.Thread]] = {}
        self._events: queue.SimpleQueue[tuple[str, TrialResult] | None] = queue.SimpleQueue()
        self._stopping, self._why = threading.Event(), ""
        self._search: Search | None = None
        self._median: MedianStop | None = None
        followers = (option.follow(self.experiment) for option in options_of(self.experiment))
        self._followers: list[Follower] = [follower for follower in followers if follower]
        self._have_stopped, self._has_begun = False, False
        self._end: tuple[str, str, str] | None = None  # of the search, while trials run again
        # One that is resumed has them in its study, and can be resumed after they were deleted.
        begun = "startTime" in self._status
        self._earlier = [] if begun else _earlier_trials(records.cluster, self.experiment)
        self._thread = Background(self._run, f"podium-Experiment-{self.name}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end of all trials, without waiting; the Experiment can be resumed later."""
        self._stopping.set()
        self._events.put(None)

    def wake(self) -> None:
        """Ask for a check of the Experiment: it may have to be deleted."""
        self._events.put(None)

    def forget(self) -> None:
        """Take note that the Experiment was deleted: its trials and their jobs go with it."""
        self._records.forget()
        self.wake()

    def edit(self, experiment: Experiment) -> None:
        if experiment.limits != self.experiment.limits:
            limits = experiment.limits
            counts = {
                "maxTrialCount": limits.max_trials,
                "parallelTrialCount": limits.parallel,
                "maxFailedTrialCount": limits.max_failed,
            }
            self.experiment = self.experiment.with_counts(counts)
            self._end = None
            self.wake()

    def join(self, timeout: float | None = None) -> bool:
        return self._thread.join(timeout)

    def _run(self) -> None:
        stop_trials = self._stop_trials
        try:
            if not self._may_begin():
                return None
            self._begin()
            while not self._is_stopping():
                self._reconcile()
                if self._completed and not self._active:
                    return None  # it is written once all that ran for it is gone
                self._take_events()
        except NotFound:  # somebody removed it: there is nobody to report to, or to go on
            stop_trials = self._end_trials
        except OSError as error:  # a full disk: nothing that the Experiment did
            self._why = f": {error.strerror or error}"
            self._stopping.set()
        except Exception as error:
            message = (
                str(error) if isinstance(error, PodiumError) else f"{type(error).__name__}: {error}"
            )
            if not self._is_ending():
                self._conditions.add(
                    "Failed", "ExperimentFailed", f"Experiment has failed: {message}"
                )
            elif not self._why:
                self._why = f" (meanwhile: {message})"
        finally:
            for step in (stop_trials, self._close_study):
                with suppress(
                    Exception
                ):  # the status below has to be written, whatever ends around this thread
                    step()
            if self._stopping.is_set():
                if self._has_begun:  # else the counts are those of the engine before
                    self._count()
                if not self._completed and not self._records.leaves_trials:
                    message = f"Experiment was stopped{self._why}; resume it with: {self._records.resume_command}"
                    self._conditions.add("Stopped", "ExperimentStopped", message)
            self._records.close(self.experiment, self._status)

    def _may_begin(self) -> bool:
        """Wait, and say why in the status, while the trials that there are cannot be read, or are
        those of another Optuna; return False if a stop comes first."""
        said = ""
        while not self._is_stopping():
            try:
                self._records.check_library()
                return True
            except PodiumError as error:
                hint = f" (hint: {error.hint})" if error.hint else ""
                message = f"Experiment waits: {error.message}{hint}"
                reason = "OtherLibrary" if isinstance(error, OtherLibrary) else "TrialsUnreadable"
            if message != said:
                self._conditions.add("Waiting", reason, said := message)
            with suppress(PodiumError):
                self._records.write(self.experiment, self._status)
            with suppress(queue.Empty):
                self._events.get(timeout=_HELD_SECONDS)
        return False

    def _is_stopping(self) -> bool:
        if self._records.asked:
            self._stopping.set()
        return self._stopping.is_set()

    def _is_ending(self) -> bool:
        """Return whether a stop is under way, or Python itself exits: failures then have that
        cause, and can be resumed.

        As the main thread ends, thread pools refuse work, and soon no thread starts; whoever stops
        the Experiment then comes later.
        """
        if not threading.main_thread().is_alive():
            self._stopping.set()
        return self._is_stopping()

    def _begin(self) -> None:
        # Uid and labels of the stored object go into its trials.
        self.experiment = self.experiment.with_metadata(self._records.experiment().metadata)
        trials = self._records.begin(self.experiment)
        asked = dict(
            chain.from_iterable(
                option.search(self.experiment).items() for option in options_of(self.experiment)
            )
        )
        self._search = Search(
            self.experiment.space,
            self.experiment.search.name,
            self.experiment.search.settings,
            maximize=self.experiment.objective.maximize,
            directory=self._records.directory,
            name=self.name,
            earlier=self._earlier,
            begun=[_past(trial) for trial in trials if not trial.repeats],
            **asked,
        )
        self._median = MedianStop.of(self.experiment)
        self._conditions.remove("Waiting")
        if "startTime" not in self._status:
            self._status["startTime"] = timestamp("milliseconds")
            warm = f"; it starts warm from {len(self._earlier)} trials" if self._earlier else ""
            self._conditions.add("Created", "ExperimentCreated", f"Experiment is created{warm}")
            self._status["currentOptimalTrial"] = {"observation": {}}
            self._writer.write(self._status)
        self._recall(trials)
        self._has_begun = True

    def _recall(self, trials: Sequence[Trial]) -> None:
        """Recover the trials of a stopped or killed engine; unfinished ones continue or run
        again."""
        for follower in self._followers:
            follower.begin(trials)
        for trial in trials:
            self._take_up(trial)
            if trial.state.finished:
                self._learn(trial.name, TrialResult(readings=self._records.readings(trial)))
            else:
                self._begin_trial(trial)

    def _reconcile(self) -> None:
        """Run one round of Katib's loop: obey requests, count, check for the end, begin trials."""
        self._do_what_is_asked()
        self._stop_early()
        self._count()
        if not self._completed:
            self._check_end(exhausted=False)
        if not self._completed:
            begun = self._add_trials()
            self._count()
            if begun and self._state.phase == "Created":
                self._conditions.add("Running", "ExperimentRunning", "Experiment is running")
            if not begun and not self._active:
                self._check_end(exhausted=True)
        if not self._is_clearing:
            self._writer.follow(self._status)

    def _do_what_is_asked(self) -> None:
        for name, (run, _) in self._active.items():
            if self._records.is_stop_asked(name):
                run.end_early("Trial was stopped by hand")
        requests = Requests(self._records.directory)
        for name, assignments in requests.all().items():
            # An engine that was killed may have begun it and left the request.
            if name not in self._summaries:
                self._add_trial(name, assignments, {BY_HAND: "true"})
            requests.drop(name)

    def _stop_early(self) -> None:
        if why := next(filter(None, (follower.stops_trials() for follower in self._followers)), ""):
            self._have_stopped = True
            for run, _ in self._active.values():
                run.end_early(f"Trial was stopped early: {why}")

    def _count(self) -> None:
        for name, trial in self._trials.items():
            summary = TrialSummary.of(trial)
            if self._summaries.get(name) != summary:
                self._summaries[name], self._is_counted = summary, False
        if self._is_counted:  # all trials are gone through for each of them otherwise
            return
        corrected = chain.from_iterable(follower.corrected() for follower in self._followers)
        again = {trial.name: TrialSummary.of(trial) for trial in corrected}
        summarize(self._status, {**self._summaries, **again}.values())
        for chosen in filter(None, (follower.choice() for follower in self._followers)):
            self._status["currentOptimalTrial"] = dict(TrialSummary.of(chosen).optimal)
        self._is_counted = True

    def _take_up(self, trial: Trial) -> None:
        self._trials[trial.name], self._summaries[trial.name] = trial, TrialSummary.of(trial)
        self._is_counted = False

    def _check_end(self, *, exhausted: bool) -> None:
        if self._have_stopped and self._active:
            return  # those that were stopped before they had a result would count as failed
        most, count = self.experiment.limits.max_trials, self._status.get("trials", 0)
        full = next(
            (follower.end(count, most) for follower in self._followers if not follower.has_room()),
            None,
        )
        end = self._end or completion_condition(
            self.experiment,
            self._status,
            self._summaries.values(),
            exhausted=exhausted,
            full=full,
            stopped=self._have_stopped,
        )
        if end and not (end[0] == "Succeeded" and self._run_again(end)):
            kind, reason, message = end
            if kind == "Succeeded":
                message += "".join(follower.conclusion() for follower in self._followers)
            self._conditions.add(kind, reason, message)

    def _run_again(self, end: tuple[str, str, str]) -> bool:
        """Begin the runs that options ask for after the search, once its own trials have ended;
        return whether the end has to wait for them."""
        repeating = [follower for follower in self._followers if follower.runs_again]
        if self._have_stopped or not repeating:
            return False
        self._end = end
        if all(trial.repeats for trial in self._trials.values()):
            due = [run for follower in repeating for run in follower.repeats()]
            room = max(0, self.experiment.limits.parallel - len(self._active))
            for trial, labels in due[:room]:
                name = f"{self.name}-{random_suffix(8)}"
                self._add_trial(name, trial.assignments, labels)
            self._count()
        return bool(self._trials)

    @property
    def _state(self) -> State:
        return status_of({"kind": "Experiment", "status": self._status})

    @property
    def _completed(self) -> bool:
        return self._state.finished

    @property
    def _is_clearing(self) -> bool:
        """Whether only jobs of trials are left to be removed: the end is written after that, since
        nobody looks for them later."""
        return self._completed and all(trial.has_ended for trial in self._trials.values())

    def _add_trials(self) -> int:
        begun = 0
        if self._end:
            return begun
        while len(self._active) < trials_to_start(self.experiment.limits, self._status):
            if not all(follower.has_room() for follower in self._followers) or not self._suggest():
                break
            begun += 1
        return begun

    def _suggest(self) -> bool:
        assert self._search is not None
        name = f"{self.name}-{random_suffix(8)}"
        if self._search.first:
            self._add_trial(name, self._search.first, {BY_HAND: "true"})
            return True
        assignments = self._search.ask(name)
        if assignments is None:
            return False
        self._add_trial(
            name,
            assignments,
            {_LABELS[tag]: value for tag, value in self._search.tags(name).items()},
        )
        return True

    def _add_trial(
        self, name: str, assignments: Mapping[str, str], labels: Mapping[str, str]
    ) -> None:
        assert self._search is not None
        job = self.experiment.render(name, assignments)
        if seed := labels.get(SEED):
            job = _seeded(self.experiment, job, seed)
        rules = self._median.rules() if self._median and REPEATS not in labels else []
        trial = self._records.add(new_trial(self.experiment, name, assignments, job, rules, labels))
        if BY_HAND in labels:
            self._search.give(name, assignments)
        self._take_up(trial)
        self._begin_trial(trial)

    def _begin_trial(self, trial: Trial) -> None:
        name = trial.name
        self._trials[name] = trial
        for follower in self._followers:
            follower.trial_begins(trial)
        run = self._records.run(self.experiment, trial, self._save_trial, self._stopping)
        thread = threading.Thread(
            target=self._run_trial, args=(name, run), name=f"podium-Trial-{name}", daemon=True
        )
        self._active[name] = run, thread
        thread.start()

    def _run_trial(self, name: str, run: RunningTrial) -> None:
        try:
            ended = run.run()
        except Exception as error:
            ended = TrialResult()
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            if full and not run.trial.state.finished:  # it runs again once there is room
                ended.unsaved = error
            elif not self._is_ending():
                said = error if isinstance(error, PodiumError) else of_this_machine(error)
                message = f"Trial has failed: {said or repr(error)}"
                try:
                    # One that has its end, which could not be written, has no other.
                    failed = run.trial.with_condition("Failed", "TrialFailed", message)
                    self._save_trial(run.trial if run.trial.state.finished else failed)
                except (PodiumError, OSError) as unsaved:
                    ended.unsaved = unsaved
        self._events.put((name, ended))

    def _save_trial(self, trial: Trial, readings: Sequence[Reading] = ()) -> None:
        self._records.save(trial, readings)
        # Only now: whoever sees the Experiment's end reads its trials next, and they have to have
        # ended there too.
        self._trials[trial.name] = trial
        self._events.put(None)  # the counts follow

    def _take_events(self) -> None:
        """Wait until something happened or is due, and handle all events."""
        due = None if self._is_clearing else self._writer.pause(self._status)
        with suppress(queue.Empty):
            self._take(
                self._events.get(timeout=_LOOK_SECONDS if due is None else min(_LOOK_SECONDS, due))
            )
            while True:
                self._take(self._events.get_nowait())

    def _take(self, event: tuple[str, TrialResult] | None) -> None:
        if event is None:
            return
        name, ended = event
        self._active.pop(name)[1].join()
        if ended.unsaved:
            raise ended.unsaved
        if not self._trials[name].state.finished:
            return  # it was stopped with the Experiment: it runs again, and its result counts then
        self._learn(name, ended)
        if ended.refused:
            message = f"Experiment has failed: its trials cannot run here. {ended.refused}"
            self._conditions.add("Failed", "ExperimentFailed", message)

    def _learn(self, name: str, ended: TrialResult) -> None:
        assert self._search is not None
        trial = self._trials.pop(name)
        summary = self._summaries[name] = TrialSummary.of(trial)
        self._is_counted = False
        for follower in self._followers:
            follower.trial_ended(trial)
        self._search.tell(
            name, summary.value if summary.phase in ("Succeeded", "EarlyStopped") else None
        )
        if self._median and summary.phase == "Succeeded" and not trial.repeats:
            self._median.learn(name, ended.readings)

    def _stop_trials(self) -> None:
        if not self._records.leaves_trials:
            self._end_trials()

    def _end_trials(self) -> None:
        for run, _ in list(self._active.values()):
            with suppress(PodiumError):
                run.stop()
        for _, thread in list(self._active.values()):
            thread.join(timeout=60)

    def _close_study(self) -> None:
        """Tell the study about the trials that ended since the last round, and about those that
        have no result at the end.

        Whoever watches the Experiment sees its end as soon as the last trial has one, and may close
        the cluster before the loop comes round to that trial.
        """
        with suppress(OSError):  # a full disk; a resumed study learns them from their files
            while not self._events.empty():
                with suppress(NotFound):
                    self._take(self._events.get())
            if self._search and self._completed:
                for name in self._trials:
                    self._search.tell(name, None)


def _seeded(experiment: Experiment, job: Workload, seed: str) -> Workload:
    wrapped, editor = experiment.wrapped_roles(), JobEditor.of(job.manifest)
    for role, container in editor.containers(experiment.template.primary_container):
        set_seed(container, seed, quoted=role in wrapped)
    return Workload(manifest=editor.manifest)


def _past(trial: Trial) -> PastTrial:
    value = trial.reached if trial.is_good else None
    tags = {tag: trial.labels[label] for tag, label in _LABELS.items() if label in trial.labels}
    return PastTrial(
        trial=trial.name,
        point=trial.assignments,
        value=value,
        running=not trial.has_ended,
        tags=tags,
        by_hand=BY_HAND in trial.labels,
    )


def _earlier_trials(cluster: Cluster, experiment: Experiment) -> list[PastTrial]:
    """Return the earlier trials that an Experiment learns from before it begins; empty without a
    warm start.

    Args:
        cluster: Cluster with the earlier Experiments and their trials.
        experiment: Checked.

    Raises:
        NotFound: There is no such earlier Experiment.
        InvalidInput: Its algorithm does not learn, the objectives differ, or no trial lies in its
            space.
    """
    option = WarmStart.of(experiment.asked)
    if option is None:
        return []
    names = option.names
    algorithm, least = experiment.algorithm.name, experiment.algorithm.facts.warm_trials
    if not least:
        learning = ", ".join(each.name for each in ALGORITHMS.values() if each.warm_trials)
        hint = f"choose one of {learning}, or leave warm_start out"
        raise InvalidInput(
            f"{algorithm} does not learn from earlier trials, which warm_start asks for", hint
        )
    strategy = experiment.algorithm.settings.get("restart_strategy", "none")
    if strategy != "none":
        hint = "remove the setting restart_strategy, or warm_start"
        raise InvalidInput(
            f"{algorithm} with warm_start has no restarts, not restart_strategy={strategy}", hint
        )
    usable: list[PastTrial] = []
    count = 0
    for name in names:
        _check_objective(experiment, cluster.experiment(name))
        trials = cluster.trials(name)
        count += len(trials)
        usable += [past for trial in trials if (past := _usable(trial, experiment))]
    if len(usable) < least:
        raise InvalidInput(
            f"{algorithm} needs at least {least} finished trials of {', '.join(names)} within the search space, but of "
            f"{count} trials {len(usable)} are",
            "a trial counts if it has a result and values for exactly the parameters searched here, all within bounds",
        )
    return usable


def _check_objective(experiment: Experiment, other: Experiment) -> None:
    mine, theirs = experiment.objective, other.objective
    if (mine.metric, mine.maximize, mine.strategy) != (
        theirs.metric,
        theirs.maximize,
        theirs.strategy,
    ):
        raise InvalidInput(
            f"warm_start names Experiments of the same objective, but {other.name} has to {theirs} and this one to "
            f"{mine}",
            "name another one",
        )


def _usable(trial: Trial, experiment: Experiment) -> PastTrial | None:
    value = Criteria.of(experiment.objective, experiment.asked).value(trial.metrics)
    if not trial.is_good or value is None or not Columns(experiment.space).has(trial.assignments):
        return None
    return PastTrial(trial=trial.name, point=trial.assignments, value=value)

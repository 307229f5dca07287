"""A trial on this machine: its job is a process, and its output is a file."""

import logging
import os
import shlex
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from podium.cluster.local import pushed
from podium.cluster.local.cluster import LocalCluster
from podium.cluster.local.environment import MOST_PROCESSES
from podium.cluster.local.logs import GrowingFile, Logs
from podium.errors import Failed, InvalidInput, NotFound, require
from podium.manifests.experiment.experiment import Collector, Experiment
from podium.manifests.experiment.status import created
from podium.manifests.experiment.trial import Trial
from podium.manifests.job_editor import JobEditor, set_env
from podium.manifests.kinds import TRAINJOB
from podium.manifests.labels import CPU_SHARE, EXPERIMENT, PBT_PARENT, PUSHES, TRIAL
from podium.manifests.shell import named_folder, needs_shell, redirect, words_of, wrap_command
from podium.manifests.workload import Workload, role_of
from podium.metrics import (
    UNAVAILABLE,
    Reading,
    json_readings,
    kept_readings,
    parse_line,
    read_events,
    text_readings,
)
from podium.sweeps.base import Executor, NoMetricsFile, Save, TrialIO, not_handed_on
from podium.sweeps.metrics_collector import observe
from podium.sweeps.trials import TrialRun
from podium.system.machine import cores
from podium.system.processes import DEADLY, killed_by

_log = logging.getLogger(__name__)


def trial_directory(experiment: Experiment) -> str | None:
    """Return the path at which the trials of an Experiment find their own and their parent's files,
    if they do."""
    directory = experiment.algorithm.settings.get("suggestion_trial_dir")
    return str(PurePosixPath(directory)) if directory else None


def _prepare(root: Path, trial: Trial) -> Path:
    """Return a trial's directory below root with its parent's files; files from before a restart
    are deleted.

    Raises:
        OSError: The disk is full, the parent's files are gone, or the like.
    """
    own, parent = root / trial.name, trial.labels.get(PBT_PARENT)
    shutil.rmtree(own, ignore_errors=True)
    refused: list[OSError] = []

    def copy(source: str, target: str) -> None:
        try:
            shutil.copy2(source, target)
        except OSError as error:
            refused.append(error)
            raise

    if parent:
        try:
            shutil.copytree(root / parent, own, ignore=not_handed_on, copy_function=copy)
        except shutil.Error as error:  # it does not say which, as that a disk is full
            raise (refused or [error])[0] from error
    else:
        own.mkdir(parents=True)
    return own


@dataclass(frozen=True, kw_only=True)
class Wrapped:
    """A trial's job as it runs here."""

    job: Workload
    metrics: tuple[Path, ...]
    """Files, or one directory, that hold the metrics; empty for the replicas' output. Behind a
    shell the directory has a file for each pod of a Job."""

    replicas: tuple[str, ...]
    """Replicas whose output is collected; none: a Job's pods that did not fail."""


def _wrap(
    experiment: Experiment, job: Workload, directory: Path, checkpoints: Path | None
) -> Wrapped:
    """Return a trial's job with the primary container wrapped.

    Args:
        experiment: Checked.
        job: Rendered, named after the trial.
        directory: The trial's own; files that the collector reads are put there.
        checkpoints: The directory of population based training for this trial.
    """
    shutil.rmtree(directory / "metrics", ignore_errors=True)  # of a run that was stopped
    (directory / "metrics.log").unlink(missing_ok=True)
    editor = JobEditor.of(job.manifest)
    labels = {EXPERIMENT: experiment.name, TRIAL: job.name}
    editor.label(labels)
    editor.label_pods(labels)
    editor.annotate({CPU_SHARE: f"{cores() / experiment.limits.parallel:g}"})
    editor.run_policy.pop(
        "ttlSecondsAfterFinished", None
    )  # the engine removes the job, but has to read it first
    replicas = experiment.template.primary_pods(job) if job.has_roles else ()
    reporting = experiment.wrapped_roles(job)
    metrics: tuple[Path, ...] = ()
    primary = list(editor.containers(experiment.template.primary_container))
    shell = any(
        needs_shell(container)
        for role, container in primary
        if role_of(role, job.operator) in reporting
    )
    for role, container in primary:
        set_env(container, [{"name": "KATIB_TRIAL_NAME", "value": job.name}])
        if role_of(role, job.operator) not in reporting:
            _mount_metrics(editor, role, container, experiment.collector, directory / "unread")
            continue
        if checkpoints and (folder := trial_directory(experiment)):
            _mount(editor, role, container, "suggestion-volume", folder, checkpoints)
        if shell and experiment.collector.kind == "StdOut":
            metrics = _redirect(container, job, directory, replicas)
        else:
            metrics = _mount_metrics(
                editor, role, container, experiment.collector, directory / "metrics"
            )
            wrap_command(container)
    return Wrapped(job=Workload(manifest=editor.manifest), metrics=metrics, replicas=replicas)


def _redirect(
    container: dict[str, Any], job: Workload, directory: Path, replicas: Sequence[str]
) -> tuple[Path, ...]:
    """Have a shell write a command's output to a file, one per replica; return those files, or
    their directory for the pods of a Job."""
    if job.pod_count == 1 and (job.has_roles or (job.completions or 1) == 1):
        file = directory / "metrics.log"
        redirect(container, shlex.quote(str(file)))
        return (file,)
    folder = directory / "metrics"
    folder.mkdir(parents=True, exist_ok=True)
    redirect(container, f'{shlex.quote(str(folder))}/"$HOSTNAME".log')
    return tuple(folder / f"{job.name}-{replica}.log" for replica in replicas) or (folder,)


def _mount_metrics(
    editor: JobEditor, role: str, container: dict[str, Any], collector: Collector, local: Path
) -> tuple[Path, ...]:
    """Mount a directory at the collector's file or directory; return the files that will be
    there."""
    if collector.kind not in ("File", "TensorFlowEvent") or not container.get("command"):
        return ()
    path = PurePosixPath(collector.path)
    folder = path.parent if collector.kind == "File" else path
    values = [str(entry.get("value")) for entry in container.get("env") or []]
    named = named_folder(folder, [*words_of(container), *values])
    _mount(editor, role, container, "metrics-volume", str(named), local)
    (local / folder.relative_to(named)).mkdir(parents=True, exist_ok=True)
    return (local / path.relative_to(named),)


def _mount(
    editor: JobEditor, role: str, container: dict[str, Any], name: str, folder: str, local: Path
) -> None:
    local.mkdir(parents=True, exist_ok=True)
    editor.mount_host_path(role, container, name, folder, str(local))


def _check_trials(cluster: LocalCluster, experiment: Experiment, directory: Path) -> Workload:
    """Refuse Experiments whose trials cannot run here, before anything is stored; return the job of
    a sample trial.

    Raises:
        InvalidInput: The cluster would refuse the trials' jobs.
    """
    parallel = experiment.limits.parallel
    rule = f"parallelTrialCount <= {MOST_PROCESSES} on one machine"
    require(
        parallel <= MOST_PROCESSES, rule, "set spec.parallelTrialCount", parallelTrialCount=parallel
    )
    job = cluster.with_entrypoints(experiment.sample_job(f"{experiment.name}-trial"))
    wrapped = _wrap(experiment, job, directory, directory / "checkpoints").job
    if wrapped.suspended:
        raise InvalidInput(
            "the job of a trial is suspended", "remove suspend: nobody starts it here"
        )
    cluster.plan(wrapped)
    return wrapped


_TAIL = 0.05
"""Seconds between checks of a metrics file while an early-stopping rule is in force."""


class LocalTrial(TrialIO):
    """Runs a trial's job as processes of the local cluster.

    Args:
        experiment: The one it belongs to.
        trial: The stored trial.
    """

    def __init__(self, cluster: LocalCluster, experiment: Experiment, trial: Trial) -> None:
        self.cluster, self._experiment = cluster, experiment
        self.name, self._kind = trial.name, trial.workload.kind
        self._logs = Logs(cluster.store, self._kind, self.name)
        self.directory = cluster.store.path("Trial", trial.name)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.over = threading.Event()
        # Trainer has TrainJobs post, and Katib reads what is pushed with this collector alone.
        self._takes_pushes = (
            self._kind == TRAINJOB
            or experiment.collector.kind == "Push"
            or PUSHES in experiment.annotations
        )
        self.wrapped = self._wrap(trial)

    def _wrap(self, trial: Trial) -> Wrapped:
        cluster, experiment = self.cluster, self._experiment
        root = cluster.store.path("Experiment", experiment.name) / "checkpoints"
        checkpoints = _prepare(root, trial) if trial_directory(experiment) else None
        job = cluster.with_entrypoints(trial.workload)
        return _wrap(experiment, job, self.directory, checkpoints)

    def start(self) -> None:
        self.cluster.create(self.wrapped.job)

    def changes(self) -> Iterator[Workload]:
        with suppress(NotFound):
            for job in self.cluster.watch(self._kind, self.name):
                assert isinstance(job, Workload)
                yield job

    def lines(self) -> Iterator[str]:
        if self._experiment.collector.kind == "Push":
            return iter(())
        if self.wrapped.metrics:
            return self._tail(self.wrapped.metrics[0])
        replica = next(iter(self.wrapped.replicas), None)
        return self.cluster.logs(self._kind, self.name, replica, follow=True)

    def pushed(self) -> Iterator[Reading]:
        return self._posted() if self._takes_pushes else iter(())

    def _posted(self) -> Iterator[Reading]:
        names = self._experiment.objective.metrics
        folder = self.cluster.store.path(self._kind, self.name)
        return kept_readings(self._tail(folder / pushed.FILE), names)

    def stop(self) -> None:
        self.cluster.abandon(self._kind, self.name)

    def settle(self) -> None:
        """Append a wrapped command's output to the replica's log, where users look for it."""
        self.over.set()
        if self._experiment.collector.kind != "StdOut" or not self.wrapped.metrics:
            return
        logs, names = self._logs.folder, list(self.wrapped.replicas)
        if not names:
            with suppress(NotFound):  # somebody deleted the job
                names = self._logs.replicas()
        files = self.wrapped.metrics
        if files[0].is_dir():
            files = tuple(files[0] / f"{self.name}-{name}.log" for name in names)
        for name, file in zip(names, files, strict=False):
            if (logs / f"{name}.log").exists() and file.is_file():
                _append(file, logs / f"{name}.log")

    def last_words(self) -> str:
        said, code = self._logs.last_line(), self._logs.exit_code()
        if code in DEADLY:
            killed = f"killed by {killed_by(code)}"
            return f"{killed}; its last line: {said}" if said else killed
        objective, formats = self._experiment.objective, self._experiment.collector.filters
        if code and said and parse_line(said, objective.metrics, formats):
            return f"exit code {code}; its last line: {said}"  # metrics are no reason
        return said or (f"exit code {code}" if code else "")

    def collect(self) -> tuple[dict[str, Any], list[Reading]]:
        def log() -> Iterator[str]:
            names = self._experiment.objective.metrics
            return self._logs.last_run(self._reporting(), names)

        files = self.wrapped.metrics
        if files and files[0].is_dir() and self._experiment.collector.kind == "StdOut":
            named = (files[0] / f"{self.name}-{name}.log" for name in self._reporting())
            files = tuple(filter(Path.is_file, named))
        readings = _collected(self._experiment, files, log)
        found = observe(readings, self._experiment.objective.metrics, self.pushed())
        first, *_ = found[1]
        if first.value == UNAVAILABLE and any(first.name == name for name, *_ in self._posted()):
            raise NoMetricsFile(
                "The program posted it, which this collector does not read",
                "use the collector Push, or TrainJobs",
            )
        return found

    def _reporting(self) -> Sequence[str]:
        """Return the replicas that report; as with Katib, a pod of a Job that failed does not."""
        pods = [] if self.wrapped.replicas else self.cluster.replicas(self._kind, self.name)
        return self.wrapped.replicas or [pod.name for pod in pods if pod.phase != "Failed"]

    def remove(self) -> None:
        # Whole at once: who reads the trial's log meanwhile reads the job's until then.
        shutil.rmtree(self.directory / "logs", ignore_errors=True)
        with suppress(FileNotFoundError):
            self._logs.folder.rename(self.directory / "logs")
        self.cluster.delete(self._kind, self.name)

    def _tail(self, path: Path) -> Iterator[str]:
        files, over = dict[Path, GrowingFile](), False
        while not over:
            over = self.over.wait(_TAIL)
            for each in sorted(path.glob("*.log")) if path.is_dir() else (path,):
                yield from files.setdefault(each, GrowingFile(each)).lines()


def _append(printed: Path, log: Path) -> None:
    """Append a file to another; where there is no room, the other stays as it is, and its trial has
    its result."""
    size = log.stat().st_size
    try:
        with log.open("ab") as whole, printed.open("rb") as source:
            shutil.copyfileobj(source, whole)
    except OSError as error:
        os.truncate(log, size)
        _log.warning("what a trial printed stays in %s: %s", printed, error.strerror or error)


def _collected(
    experiment: Experiment, metrics: Sequence[Path], log: Callable[[], Iterable[str]]
) -> Iterable[Reading]:
    names, collector = experiment.objective.metrics, experiment.collector
    if collector.kind == "Push":
        return ()
    if collector.kind != "StdOut" and not metrics:
        labels = dict(experiment.template.primary_pod_labels)
        raise Failed(
            f"no pod of the trial has the labels {labels}",
            "leave primaryPodLabels out, or give a pod these labels",
        )
    if collector.kind == "TensorFlowEvent":
        return read_events(metrics[0], names)
    if collector.reads_json:
        return json_readings(_lines(metrics[0]), names)
    lines = (line for path in metrics for line in _lines(path, names)) if metrics else log()
    return text_readings(lines, names, collector.filters or None)


def _lines(path: Path, holding: Sequence[str] = ()) -> Iterator[str]:
    if not path.is_file():
        raise NoMetricsFile(
            f"the program wrote no metrics file {path.name}",
            "its path must stand in the container's command, args or env: that is where it is made a local one",
        )
    file = GrowingFile(path, holding=holding)
    yield from file.lines()  # a carriage return ends none
    yield file.last()


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
        self.cluster, self.likely_job = cluster, _check_trials(cluster, experiment, directory)

    def begin(self, experiment: Experiment, trials: Sequence[Trial]) -> Sequence[Trial]:
        """Start imports for the first trial; trials that lost their processes start again."""
        self.cluster.warm(self.likely_job)
        return [trial if trial.has_ended else self._again(trial) for trial in trials]

    def _again(self, trial: Trial) -> Trial:
        self.cluster.delete(trial.workload.kind, trial.name)
        return created(trial)

    def open(self, experiment: Experiment, trial: Trial) -> TrialIO:
        return LocalTrial(self.cluster, experiment, trial)

    def run(
        self, experiment: Experiment, trial: Trial, save: Save, stopping: threading.Event
    ) -> TrialRun:
        return TrialRun(
            lambda: self.open(experiment, trial),
            experiment,
            trial,
            save=save,
            stopping=stopping,
            removes_failed=True,
        )

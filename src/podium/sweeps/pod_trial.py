"""A trial on a cluster: its job is the API server's, and its metrics are lines of its pods' logs as
they grow."""

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import PurePosixPath
from queue import SimpleQueue
from typing import Any

from podium.cluster.kubernetes import logs as kubernetes_logs
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.leadership import Leadership
from podium.cluster.kubernetes.pods import TAIL, JobPods
from podium.cluster.local.pushed import changed
from podium.errors import Conflict, Failed, InvalidInput, NotFound, PodiumError
from podium.manifests.experiment import Experiment, Trial
from podium.manifests.fields import items, present
from podium.manifests.job_editor import JobEditor, merge, set_env
from podium.manifests.labels import EXPERIMENT, MANAGED_BY, RUN, RUN_NAMESPACE, TRIAL, TRIAL_UID
from podium.manifests.options.pool import pool_size
from podium.manifests.shell import (
    METRICS_FILE,
    named_folder,
    needs_shell,
    redirect,
    words_of,
    wrap_command,
)
from podium.manifests.workload import Workload, role_of
from podium.metrics import RESUMED, Reading, json_readings, kept_readings, parse_line
from podium.sweeps.base import Executor, Save, TrialIO
from podium.sweeps.metrics_collector import MOST_READINGS, observe, shortened
from podium.sweeps.print_file import KATIB_DATABASE, PUSHED
from podium.sweeps.trials import TrialRun
from podium.system.background import Background

_MOST_WORDS = 1000
"""Characters of a failed replica's last words that its trial's condition keeps."""

MOST_LINES = 10_000
"""Lines that wait for a stopping rule, and readings that are held before they are shortened."""

_STOP_SECONDS = 5.0
"""Time for which the removal of a job is tried again: who stops all of them has many."""

_SETTLE_SECONDS = 60.0
"""Time that a log may continue after its job has ended."""

_SIDECAR = "metrics-logger-and-collector"
"""The container that prints a metrics file, named as Katib's, whose log holds the same lines."""

_VOLUME = "metrics-volume"

_READY = ".podium-reads"
"""File on that volume: the sidecar reads, so the trial may begin."""


class _PodTrial(TrialIO):
    """Runs a trial's job in a namespace.

    Args:
        executor: Has the namespace, and the leadership by which the job begins or ends.
        experiment: The one it belongs to.
        trial: The stored trial.
    """

    def __init__(self, executor: "JobExecutor", experiment: Experiment, trial: Trial) -> None:
        self._cluster, self._leadership = executor.cluster, executor.leadership
        self._experiment, self._trial = experiment, trial
        self._name, self._kind = trial.name, trial.workload.kind
        self._job = _job_of(experiment, trial, executor.image, served=executor.served)
        pods = experiment.template.primary_pods(self._job) if self._job.has_roles else ()
        self._from_sidecar = experiment.collector.kind in ("TensorFlowEvent", "Push")
        self._readers = [_LogReader(self, replica) for replica in pods or (None,)]
        self._readers[0].followed = bool(trial.stopping_rules)
        self._posted: Mapping[str, Any] = {}
        self._pushed = list[Reading]()
        self._pushes = SimpleQueue[Reading | None]()

    def start(self) -> None:
        """Create the job as it is written, or take up the one that an earlier engine created for
        this trial.

        Nothing is added to its pods: whoever wrote the Experiment decided what they may do.
        """
        self._leadership.check()
        try:
            self._cluster.api.create(self._kind, self._job.manifest, patience=self._leadership.left)
        except Conflict:
            present = self._cluster.workload(self._kind, self._name)
            uids = {
                present.annotations.get(TRIAL_UID),
                *(owner.get("uid") for owner in present.owners),
            }
            if self._trial.uid not in uids:
                raise
        for reader in self._readers:
            reader.thread.start()

    def changes(self) -> Iterator[Workload]:
        with suppress(NotFound):
            for job in self._cluster.watch(self._kind, self._name):
                assert isinstance(job, Workload)
                self._take(job.trainer_status)
                yield job

    def _take(self, status: Mapping[str, Any]) -> None:
        """Take what the program has posted to Trainer since the last change of the job."""
        names = self._experiment.objective.metrics
        for name, value in changed(self._posted, status).items():
            if name in names:
                reading = Reading(name, value, datetime.fromisoformat(status["lastUpdatedTime"]))
                self._pushed.append(reading)
                self._pushes.put(reading)
        self._posted = status

    def lines(self) -> Iterator[str]:
        return self._readers[0].follow()

    def pushed(self) -> Iterator[Reading]:
        return iter(self._pushes.get, None)

    def stop(self) -> None:
        if self._leadership.is_held:
            patience = self._leadership.within(_STOP_SECONDS)
            self._cluster.api.delete(self._kind, self._name, patience=patience)

    def settle(self) -> None:
        self._pushes.put(None)
        for reader in self._readers:
            reader.thread.join(_SETTLE_SECONDS)

    def last_words(self) -> str:
        end, lines = "", list[str]()
        with suppress(PodiumError):
            end, lines = JobPods(self._cluster.api, self._kind, self._name).last_words()
        lines = lines or [line for reader in self._readers for line in reader.tail]
        said = " | ".join(filter(None, map(str.strip, lines)))[-_MOST_WORDS:]
        return "; ".join(filter(None, (end, f"said last: {said}" if said else "")))

    def collect(self) -> tuple[dict[str, Any], list[Reading]]:
        names = self._experiment.objective.metrics
        for reader in self._readers:
            if reader.error:
                raise Failed(f"its log cannot be read: {reader.error.message}", reader.error.hint)
            if reader.refused:
                raise reader.refused
        found = chain.from_iterable(reader.readings for reader in self._readers)
        return observe(found, names, self._pushed)

    def remove(self) -> None:
        self.stop()

    def keeps(self, line: str) -> bool:
        """Tell whether a line of the log may hold a metric, or is of use to stopping rules."""
        if self._experiment.collector.kind == "Push":
            return line.startswith("[")  # grpcio may have something to say, too
        if self._from_sidecar or self._experiment.collector.reads_json:
            return bool(line)
        return line.startswith(RESUMED) or any(
            name in line for name in self._experiment.objective.metrics
        )

    def readings(self, line: str, number: int) -> list[Reading]:
        """Return the readings of a line.

        Args:
            number: Number of the line.

        Raises:
            Failed: The collector cannot read it.
        """
        names, collector = self._experiment.objective.metrics, self._experiment.collector
        if self._from_sidecar:
            return list(kept_readings([line], names))
        if collector.reads_json:
            return list(json_readings([line], names, number))
        return parse_line(line, names, collector.filters)

    def read(self, replica: str | None, restarted: Any) -> Iterator[str]:
        job = self._kind, self._name
        is_over = partial(self._cluster.is_over, *job)
        return kubernetes_logs.logs(self._cluster.api, *job, replica, True, is_over, restarted)


class _LogReader:
    """Follows the log of one replica from its first line: pods are evicted, and a kubelet rotates
    logs away.

    What it holds is bounded, whatever is printed.
    """

    def __init__(self, trial: _PodTrial, replica: str | None) -> None:
        self._trial, self._replica = trial, replica
        self.readings: list[Reading] = []
        self.refused: Failed | None = None
        """Error for the first line that the collector rejects."""

        self.tail: deque[str] = deque(maxlen=TAIL)
        self.error: PodiumError | None = None
        self.followed = False
        """Whether the lines are consumed by follow; the reader then waits for it."""

        self._lines: deque[str] = deque()
        self._number, self._most = 0, MOST_LINES
        self._changed = threading.Condition()
        self._over = False
        self.thread = Background(self._read, "podium-trial-log")

    def follow(self) -> Iterator[str]:
        """Yield the lines so far and those to come."""
        try:
            over = False
            while not over:
                with self._changed:
                    self._changed.wait_for(lambda: self._lines or self._over)
                    new, over = list(self._lines), self._over
                    self._lines.clear()
                    self._changed.notify_all()
                yield from new
        finally:
            with self._changed:
                self.followed = False
                self._changed.notify_all()

    def _read(self) -> None:
        try:
            for line in self._trial.read(self._replica, self._restarted):
                self.tail.append(line[-_MOST_WORDS:])
                if self._trial.keeps(line):
                    self._take(line)
        except NotFound:
            pass  # it ended without a pod; why, its job says
        except Exception as error:
            self.error = (
                error
                if isinstance(error, PodiumError)
                else Failed(f"its log cannot be read: {error!r}")
            )
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _take(self, line: str) -> None:
        self._number += 1
        if not self.refused:
            try:
                self.readings += self._trial.readings(line, self._number)
            except Failed as error:
                self.refused = error
        if len(self.readings) > self._most:
            self.readings = shortened(self.readings)
            self._most = len(self.readings) + MOST_READINGS
        with self._changed:
            self._changed.wait_for(lambda: len(self._lines) < MOST_LINES or not self.followed)
            if self.followed:
                self._lines.append(line)
                self._changed.notify_all()

    def _restarted(self) -> None:
        """Start over, as Katib's collector does: the program starts over, too."""
        with self._changed:
            self.readings, self.refused, self._number = [], None, 0
            self._lines.clear()


class JobExecutor(Executor):
    """Runs trials as jobs of a namespace, which run on without an engine.

    The jobs of trials that failed stay until the Experiment's end, so that their pods can be read.

    Args:
        cluster: The namespace.
        leadership: Only while it is held do jobs begin or end by this.
        image: Image of the container that prints a metrics file.
        served: Whether the API server has the trials.
    """

    def __init__(
        self,
        cluster: KubernetesCluster,
        leadership: Leadership,
        image: str,
        *,
        served: bool = True,
    ) -> None:
        self.cluster, self.leadership = cluster, leadership
        self.image, self.served = image, served
        self._failed: set[tuple[str, str]] = set()  # kind and name of the jobs that stay

    def begin(self, experiment: Experiment, trials: Sequence[Trial]) -> Sequence[Trial]:
        """Remove the jobs that an earlier engine was about to remove."""
        jobs = jobs_of_trials(self.cluster, experiment.name, trials)
        for trial in trials:
            job = trial.workload.kind, trial.name
            if trial.has_ended and job in jobs:
                self.settle(trial)
                if trial.is_good and not trial.retain:
                    self._remove(*job)
        return trials

    def run(
        self, experiment: Experiment, trial: Trial, save: Save, stopping: threading.Event
    ) -> TrialRun:
        return TrialRun(
            lambda: _PodTrial(self, experiment, trial),
            experiment,
            trial,
            save=save,
            stopping=stopping,
            removes_failed=False,
        )

    def settle(self, trial: Trial) -> None:
        if not trial.is_good and not trial.retain:
            self._failed.add((trial.workload.kind, trial.name))

    def tidy(self) -> None:
        for job in self._failed if self.leadership.is_held else ():
            self._remove(*job)

    def _remove(self, kind: str, name: str) -> None:
        with suppress(PodiumError):  # it goes with its owner
            patience = self.leadership.within(_STOP_SECONDS)
            self.cluster.api.delete(kind, name, patience=patience)


def _job_of(experiment: Experiment, trial: Trial, image: str, *, served: bool) -> Workload:
    """Return a trial's job as it is created on a cluster.

    Args:
        experiment: Checked.
        trial: The stored trial.
        image: Image of the container that prints a metrics file.
        served: Whether the API server has the trial: then it owns the job, which goes with it; else
            the job belongs to the run that the Experiment belongs to.
    """
    job = trial.workload
    editor = JobEditor.of(job.manifest)
    labels = {EXPERIMENT: experiment.name, TRIAL: trial.name}
    editor.label(labels if served else {**_of_run(experiment.labels), **labels})
    editor.label_pods(labels)
    editor.annotate({TRIAL_UID: trial.uid, **({} if served else _of_run(experiment.annotations))})
    owners = [trial.as_owner] if served else [*experiment.owners]
    merge(editor.body, ("metadata",), present(ownerReferences=owners))
    editor.replace_disrupted()
    editor.run_policy.pop(
        "ttlSecondsAfterFinished", None
    )  # the engine removes the job, but has to read it first
    if (
        job.operator
    ):  # of a failed job what still runs goes, and the pods that failed stay to be read
        editor.run_policy.setdefault("cleanPodPolicy", "Running")
    reporting, kind = experiment.wrapped_roles(job), experiment.collector.kind
    for role, container in editor.containers(experiment.template.primary_container):
        set_env(container, [{"name": "KATIB_TRIAL_NAME", "value": trial.name}])
        if kind == "Push":
            _print_file(editor, role, container, METRICS_FILE, image, [PUSHED])
        if role_of(role, job.operator) not in reporting:
            continue
        if kind in ("File", "TensorFlowEvent"):
            wrap_command(container)
            events = experiment.objective.metrics if kind == "TensorFlowEvent" else ()
            _print_file(editor, role, container, experiment.collector.path, image, events)
        elif needs_shell(
            container
        ):  # which decides what of the output counts: Katib's redirects the last command's
            redirect(container, METRICS_FILE)
            _print_file(editor, role, container, METRICS_FILE, image)
        else:
            wrap_command(container)
    return Workload(manifest=editor.manifest)


def _of_run(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name in (RUN, RUN_NAMESPACE, MANAGED_BY)}


def _print_file(
    editor: JobEditor,
    role: str,
    container: dict[str, Any],
    path: str,
    image: str,
    events: Sequence[str] = (),
) -> None:
    """Let a container beside the trial's print the lines of its metrics file, metrics of its
    directory of events, or those that it pushes."""
    values = [str(entry.get("value")) for entry in items(container.get("env"))]
    pushed = [*events] == [PUSHED]
    where = PurePosixPath(path) if events and not pushed else PurePosixPath(path).parent
    folder = named_folder(where, [*words_of(container), *values])
    ready = str(folder / _READY)
    sidecar = {
        **present(securityContext=container.get("securityContext")),
        "name": _SIDECAR,
        "image": image,
        "command": ["python", "-m", "podium.sweeps.print_file", path, ready, *events],
        "startupProbe": {
            "exec": {"command": ["test", "-e", ready]},
            "periodSeconds": 1,
            "failureThreshold": 120,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
    }
    host = KATIB_DATABASE if pushed else ""
    editor.add_sidecar(role, container, sidecar, volume=_VOLUME, folder=str(folder), host=host)


def jobs_of_trials(
    cluster: KubernetesCluster, experiment: str, trials: Sequence[Trial]
) -> set[tuple[str, str]]:
    """Return kind and name of the existing jobs of an Experiment's trials."""
    kinds = {trial.workload.kind for trial in trials}
    return {
        (kind, job.name) for kind in kinds for job in cluster.list(kind, {EXPERIMENT: experiment})
    }


def refuse_what_pods_lack(experiment: Experiment) -> None:
    """Refuse features that run on one machine, but not yet under the engine of a cluster.

    Raises:
        InvalidInput: It says what, and what to do.
    """
    if experiment.algorithm.name == "pbt" and not pool_size(experiment):
        raise InvalidInput(
            "podium-engine does not run pbt but in a pool: its trials hand files to one another",
            "give it a pool, --pool 8, or run it on one machine with `podium experiment run`",
        )

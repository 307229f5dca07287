"""Following trials and jobs to their end: a live table on a terminal, a line at each change
everywhere else."""

import queue
import re
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from podium.api import launched
from podium.api.jobs import Job, progress_of
from podium.api.launched import ObjectKey
from podium.api.trials import TrialProgress, TrialReader, leaderboard_of
from podium.cli.options import next_command
from podium.cluster.base import Cluster, ReplicaStatus
from podium.display.tables import Row, table
from podium.display.terminal import Styled, doing, echo, live, styled
from podium.display.text import cut, plural
from podium.errors import InvalidInput, PodiumError
from podium.manifests.experiment import Experiment, Trial, best_trial
from podium.manifests.options import forecast
from podium.manifests.workload import Workload

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


_SILENCE_SECONDS = 5.0
"""Seconds without an answer of the cluster after which that is shown; one repeated request takes
less."""


class _View(ABC):
    """View of running objects."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.began = time.monotonic()
        self.height: int | None = None
        """Lines of the terminal, once it is known."""

    @abstractmethod
    def look(self) -> None:
        """Read what the table shows."""

    @abstractmethod
    def news(self) -> Iterable[str]:
        """Read what changed since the last time and describe each change in a line."""

    @abstractmethod
    def table(self, width: int) -> Styled:
        """Draw what the last look read."""

    def output(self) -> Iterable[str]:
        """Return the log lines to print that came since the last time."""
        return ()

    def finish(self) -> None:  # noqa: B027  nothing to wait for by default
        """Wait for the last log lines: all objects have ended."""

    @abstractmethod
    def state(self) -> str:
        """Say in some words how far it is, as of the last news."""

    def doing(self) -> str:
        """Say how far it is and since when, for a file in which nothing else was written for
        long."""
        return f"[{self.seconds:7.1f} s] {self._silent() or self.state()}"

    def _silent(self) -> str:
        silence = self.cluster.silence
        if silence < _SILENCE_SECONDS:
            return ""
        return f"the API server has not answered for {silence:.0f} s; before that: {self.state()}"

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        self.height = console.height
        drawn = self.table(options.max_width)
        if silent := self._silent():
            drawn = Styled(f"{drawn}\n{cut(silent, options.max_width)}")
        yield Text.from_ansi(drawn, no_wrap=True)


def follow(cluster: Cluster, objects: Sequence[ObjectKey], view: _View) -> None:
    """Show objects until all have ended; log lines go to stdout, all else to stderr.

    Raises:
        Failed: One can never start, or was deleted.
        Unavailable: The cluster does not answer.
    """
    try:
        with doing(view.doing), live(view) as screen:
            launched.follow(cluster, objects, lambda: _show(view, screen), view.finish)
    except KeyboardInterrupt:
        _say_what_becomes_of(cluster, objects)
        raise


def _show(view: _View, screen: "Console | None") -> None:
    if screen:
        view.look()
    else:
        for line in view.news():
            echo(f"[{view.seconds:7.1f} s] {line}", err=True)
    for line in view.output():
        if screen and sys.stdout.isatty():  # above the table
            screen.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            echo(line)


def _say_what_becomes_of(cluster: Cluster, objects: Sequence[ObjectKey]) -> None:
    for kind, name in objects:
        group = "experiment" if kind == "Experiment" else "job"
        if cluster.outlives_client(kind):
            delete = next_command(f"{group} delete {name}", cluster)
            echo(f"{kind} {name} goes on at {cluster.url}; delete it with: {delete}", err=True)
        elif kind == "Experiment":
            resume = next_command(f"experiment resume {name}", cluster)
            echo(f"Experiment {name} is stopped; resume it with: {resume}", err=True)


_SHOWN = 24
"""Rows of the live table at most; earlier trials are counted, the best always shown."""

_AROUND = 6
"""Lines of the terminal left for the title, heads, the best trial and the prompt."""


_NO_FLAG = re.compile(
    r"unrecognized arguments|No such option|Unknown command line flag|Could not consume arg"
    r"|Unrecognized options"
)
"""What argparse, click, absl, fire and tyro say of a flag that a program does not have."""

_MISUNDERSTOOD = 3
"""Trials that fail for such a flag, at least, before a sweep is stopped."""


class ExperimentView(_View):
    """An Experiment's trials.

    Args:
        reported: Phases of trials that a log need not hear of again.
        patience: Trials without a result, from the first on, after which it is stopped; 0: never.
    """

    def __init__(
        self, cluster: Cluster, name: str, reported: Mapping[str, str], patience: int = 0
    ) -> None:
        super().__init__(cluster)
        self._judged = 0  # failed trials whose messages were looked at
        self._patience, self.in_vain = patience, 0
        """How many trials had no result when it was stopped for that; 0 if it was not."""
        self._name, self._news = name, TrialProgress(cluster, name, reported)
        self._seen: tuple[Experiment, list[Trial]] | None = None

    def state(self) -> str:
        return self._news.state()

    def output(self) -> Iterable[str]:
        """Stop it where its first trials are in vain; it can be resumed."""
        # Several times a second: the Experiment's own lists, rather than a list of its trials.
        if not self._patience:
            return ()
        experiment = self.cluster.experiment(self._name)
        trials, failed = experiment.trials, experiment.trials.get("Failed", ())
        in_vain = len(failed) + len(trials.get("MetricsUnavailable", ()))
        if trials.keys() & {"Succeeded", "EarlyStopped"}:
            self._patience = 0
        elif self._patience <= in_vain or self._are_misunderstood(experiment, failed):
            self._patience = 0
            with suppress(InvalidInput):  # it has just ended
                self.cluster.stop("Experiment", self._name)
                self.in_vain = in_vain
        return ()

    def _are_misunderstood(self, experiment: Experiment, failed: Sequence[str]) -> bool:
        """Whether all failed for a flag that their program does not know, with each value of each
        choice: a script may take a flag with one of its models alone."""
        if len(failed) < max(_MISUNDERSTOOD, self._judged + 1):
            return False
        self._judged = len(failed)
        trials = [self.cluster.trial(name) for name in failed]
        tried = {item for trial in trials for item in trial.parameters.items()}
        choices = {(each.name, value) for each in experiment.space for value in each.choices}
        return choices <= tried and all(_NO_FLAG.search(trial.message) for trial in trials)

    def look(self) -> None:
        experiment = self.cluster.experiment(self._name)
        self._seen = experiment, TrialReader(self.cluster, self._name).all(experiment)

    def news(self) -> Iterator[str]:
        return self._news.lines()

    def table(self, width: int) -> Styled:
        """Draw the latest trials, the running ones and the best, as many as there is room for."""
        if not self._seen:
            return styled("starting …")
        experiment, trials = self._seen
        best = best_trial(trials)
        said = forecast(experiment, trials)
        most = max(1, min(_SHOWN, (self.height or 100) - _AROUND - (1 if said else 0)))
        hidden = {
            trial.name for trial in trials[:-most] if trial is not best and trial.phase != "Running"
        }
        title = f"{self._name}: {plural(len(trials), 'trial')}, {self.seconds:.0f} s"
        if hidden:
            title += f" ({len(hidden)} earlier ones not shown)"
        if said:
            title += f"; {said}"
        shown = [trial for trial in trials if trial.name not in hidden]
        return leaderboard_of(shown, experiment, trials).text(width=width, title=title)


class JobView(_View):
    """Jobs, their replicas, and the log of the replica of each that reports metrics.

    Args:
        logs: Whether their logs are printed.
    """

    def __init__(self, cluster: Cluster, jobs: Sequence[Job], logs: bool) -> None:
        super().__init__(cluster)
        self._jobs, self._logs = jobs, logs
        self._seen: dict[Job, tuple[Workload, Sequence[ReplicaStatus]]] = {}
        self._said: dict[Job, str] = {}
        self._last: dict[Job, str] = {}
        self._lines: queue.SimpleQueue[tuple[Job, str]] = queue.SimpleQueue()
        self._readers = [
            threading.Thread(target=self._read, args=(job,), daemon=True) for job in jobs
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, job: Job) -> None:
        try:
            for line in self.cluster.logs(job.kind, job.name, follow=True):
                self._lines.put((job, line))
        except (
            PodiumError
        ) as error:  # the job is judged by its state: a log that cannot be read is no failure
            echo(f"the log of {job.kind} {job.name} breaks off: {error.message}", err=True)

    def state(self) -> str:
        return (
            "; ".join(f"{job.name} {progress_of(*seen)}" for job, seen in self._seen.items())
            or "starting"
        )

    def finish(self) -> None:
        """Wait for the last lines of the jobs that ended; others, which can never start, have none.

        A log that never ends must not keep the command.
        """
        with suppress(PodiumError):  # what was seen last is told then
            self.look()
        for job, reader in zip(self._jobs, self._readers, strict=True):
            if job in self._seen and self._seen[job][0].state.finished:
                reader.join(timeout=10)

    def look(self) -> None:
        self._seen |= {job: (job.workload, job.replicas) for job in self._jobs}

    def news(self) -> Iterator[str]:
        self.look()
        for job, seen in self._seen.items():
            if self._said.get(job) != (line := progress_of(*seen)):
                self._said[job] = line
                yield f"{job.name} {line}"

    def output(self) -> Iterator[str]:
        """Return new log lines; of several jobs each carries the job's name."""
        while not self._lines.empty():
            job, line = self._lines.get()
            self._last[job] = line
            if self._logs:
                yield f"[{job.name}] {line}" if len(self._jobs) > 1 else line

    def table(self, width: int) -> Styled:
        """Draw a row for each replica, with the last log line where there is room."""
        several = len(self._seen) > 1
        restarted = any(
            replica.restarts for _, replicas in self._seen.values() for replica in replicas
        )
        rows, states = (
            [],
            [f"{job.name} ({seen.state.phase})" for job, (seen, _) in self._seen.items()],
        )
        for (job, (seen, replicas)), state in zip(self._seen.items(), states, strict=True):
            if seen.state.phase == "Waiting":
                cells = [state] * several + ["", "Waiting"] + [""] * restarted
                rows.append(Row(phase="Waiting", cells=cells, rest=seen.state.message))
            for at, replica in enumerate(replicas):
                cells = [
                    *[state if at == 0 else ""] * several,
                    replica.name,
                    replica.phase,
                    *[str(replica.restarts or "")] * restarted,
                ]
                rows.append(
                    Row(
                        phase=replica.phase,
                        cells=cells,
                        rest=self._last.get(job, "") if at == 0 else "",
                    )
                )
        heads = ["JOB"] * several + ["REPLICA", "STATE"] + [">RESTARTS"] * restarted
        title = (
            f"{states[0] if len(states) == 1 else plural(len(states), 'job')}, {self.seconds:.0f} s"
        )
        return table(heads, rows, title=title, width=width, drop=[">RESTARTS", "JOB"])

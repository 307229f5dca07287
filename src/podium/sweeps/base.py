"""The seams of the trial loop: the documents that keep an Experiment and its trials, the executor
that runs trials, and how the job of one is run and read."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Protocol

from podium.errors import Failed
from podium.manifests.experiment import Experiment, Trial
from podium.manifests.labels import READINGS
from podium.manifests.workload import Workload
from podium.metrics import Reading

AWAY_SECONDS = 900.0
"""Outage of a storage after which a sweep fails."""


def not_handed_on(folder: str, names: Iterable[str]) -> set[str]:
    """Return the names in a trial's folder that no other trial gets: links to nowhere, and to a
    folder that they stand in; sockets and pipes."""

    def leads_back(path: Path) -> bool:
        real = path.resolve()
        return any(parent.resolve() == real for parent in path.parents)

    paths = {name: Path(folder, name) for name in names}
    return {
        name
        for name, path in paths.items()
        if not (path.is_file() or path.is_dir()) or (path.is_symlink() and leads_back(path))
    }


class NoMetricsFile(Failed):
    """The program wrote no file where the collector looks, or reported what that does not read."""


class TrialIO(ABC):
    """Runs and reads one trial's job."""

    @abstractmethod
    def start(self) -> None:
        """Create the trial's job.

        Raises:
            InvalidInput: No trial of the Experiment can run: the cluster refuses its jobs.
            PodiumError: This one could not be created.
        """

    @abstractmethod
    def changes(self) -> Iterator[Workload]:
        """Yield the job now and at each change of its status, until it has ended or is gone.

        Raises:
            Failed: It can never start, or what runs it gave up.
        """

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Yield the lines that hold metrics as they are written, until the job has ended."""

    def pushed(self) -> Iterator[Reading]:
        """Yield the readings that the program pushes instead of printing them, until the job has
        ended."""
        return iter(())

    @abstractmethod
    def stop(self) -> None:
        """Ask for the end of the job, without waiting."""

    def settle(self) -> None:  # noqa: B027  nothing to do by default
        """Collect the job's results, now that it has ended and before they are read."""

    def last_words(self) -> str:
        """Return in a line how a failed job ended, with its last message, such as its exception."""
        return ""

    @abstractmethod
    def collect(self) -> tuple[dict[str, Any], list[Reading]]:
        """Return the observation for the trial's status and the readings behind it, once the job
        has ended.

        Raises:
            NoMetricsFile: There is no file to read: the trial has no metrics.
            Failed: What is there cannot be read; the trial fails, as with Katib's collector.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove the job; its logs stay with the trial where the cluster can keep them."""


@dataclass(kw_only=True)
class TrialResult:
    """Outcome of a trial."""

    readings: Sequence[Reading] = ()
    refused: str | None = None
    """Reason why its job could not be created."""

    unsaved: Exception | None = None
    """Error that kept its end from being written."""


class RunningTrial(Protocol):
    """Runs one trial, here or elsewhere."""

    trial: Trial
    """The trial with its current status."""

    def run(self) -> TrialResult:
        """Have the trial run to its end; its status says how it went."""

    def stop(self) -> None:
        """Ask for its end, without waiting."""

    def end_early(self, message: str) -> None:
        """Ask for its end, without waiting; it counts as stopped early, with the metrics it has
        reported."""


class Save(Protocol):
    """Writes the status of a trial, with the readings it reported once it has ended."""

    def __call__(self, trial: Trial, readings: Sequence[Reading] = ()) -> None: ...


class Executor(ABC):
    """Runs the trials of one Experiment."""

    @abstractmethod
    def begin(self, experiment: Experiment, trials: Sequence[Trial]) -> Sequence[Trial]:
        """Prepare for the first trial, without waiting, and take over the trials of a stopped or
        killed engine; return them as they continue, or start again.

        Args:
            experiment: As stored.
        """

    @abstractmethod
    def run(
        self, experiment: Experiment, trial: Trial, save: Save, stopping: Event
    ) -> RunningTrial:
        """Return the object that runs a trial.

        Args:
            trial: As stored.
            stopping: Set when the engine stops: the trial stays as it is then.
        """

    def settle(self, trial: Trial) -> None:  # noqa: B027  nothing to do by default
        """Take note that the end of a trial is stored."""

    def close(self, *, remove: bool) -> None:  # noqa: B027  nothing to do by default
        """End, before the last status of the Experiment is written.

        Args:
            remove: Whether everything it runs goes, too; else the next engine takes it up.
        """

    def tidy(self) -> None:  # noqa: B027  nothing to do by default
        """Remove what stayed for people to read until the Experiment had ended."""


class Documents(ABC):
    """Keeps the documents of Experiments and their trials: a directory, the API server, or a prefix
    of a storage."""

    directory: Path
    """This process's own files of the Experiment: the search keeps its study there."""

    keeps_all_readings = False
    """Whether every reading of a trial is kept, not only those that a stopping rule needs."""

    resume_command = ""
    """Command that resumes the Experiment after a stop."""

    @abstractmethod
    def trials(self, experiment: str) -> Sequence[Trial]:
        """Return the trials of an Experiment, oldest first, which belong to this process from now
        on."""

    @abstractmethod
    def create(self, trial: Trial) -> Trial:
        """Store a new trial and return it as stored."""

    @abstractmethod
    def write(self, resource: Experiment | Trial, readings: Sequence[Reading] = ()) -> None:
        """Write the status of an Experiment, with the counts of its spec, which may have been
        edited, or of a trial, after the readings that it reported.

        Raises:
            NotFound: It was deleted.
        """

    def readings(self, trial: Trial) -> Sequence[Reading]:
        """Return the readings of a trial that ended; empty if it failed."""
        return [*map(Reading.of, json.loads(self._rows(trial)))]

    @staticmethod
    def written(readings: Iterable[Reading]) -> str:
        """Return readings as they are kept: name, value and time (ISO 8601) of each, in JSON."""
        return json.dumps([reading.row for reading in readings])

    def _rows(self, trial: Trial) -> str:
        return trial.annotations.get(READINGS) or "[]"

    def asked(self, kind: str, name: str) -> str:
        """Return ``stop`` or ``delete`` if somebody, perhaps another process, asked for that."""
        return ""

    def close(self, experiment: str, asked: str) -> None:  # noqa: B027  nothing to do by default
        """Give an Experiment up, whose last status is written.

        Args:
            asked: Its request; removes the Experiment if that is ``delete``.
        """

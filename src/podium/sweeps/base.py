"""The two seams of the trial loop: where an Experiment and its trials are kept, and how a trial
runs and is read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from podium.errors import Failed
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.status import Status
from podium.manifests.experiment.trial import Trial
from podium.manifests.workload import Workload
from podium.metrics import Reading
from podium.search.warm_start import Earlier

if TYPE_CHECKING:
    from podium.sweeps.trials import Run


class NoMetricsFile(Failed):
    """The program wrote no file where the collector looks."""


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


class Records(ABC):
    """Storage of one Experiment and its trials.

    One class, because they are the questions that the trial loop has to whatever keeps an
    Experiment; each is one line there.

    Args:
        directory: This process's own files of the Experiment: the search keeps its study there.
    """

    removes_failed = True
    """Whether the job of a trial that failed is removed at once; else close does that."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.directory = name, directory

    @abstractmethod
    def experiment(self) -> Experiment:
        """Return the Experiment as it is stored.

        Raises:
            NotFound: It was deleted.
        """

    @abstractmethod
    def trials(self) -> Sequence[Trial]:
        """Return its trials, oldest first."""

    @abstractmethod
    def write(self, experiment: Experiment, status: Status) -> None:
        """Write the Experiment's status, and the counts of its spec, which may have been edited.

        Raises:
            NotFound: It was deleted.
        """

    @abstractmethod
    def add(self, trial: Trial) -> Trial:
        """Store a new trial and return it as stored."""

    @abstractmethod
    def save(self, trial: Trial) -> None:
        """Write a trial's status.

        Raises:
            NotFound: It was deleted.
        """

    def is_stop_asked(self, trial: str) -> bool:
        """Return whether somebody, perhaps another process, asked to end a trial with the metrics
        it has reported."""
        return False

    def asked_trials(self) -> Mapping[str, Mapping[str, str]]:
        """Return the values of requested trials, by the names that they will have."""
        return {}

    def forget_asked(self, trial: str) -> None:  # noqa: B027  nothing was asked
        """Take such a request back, as the trial is there; nothing where none can be made."""

    @abstractmethod
    def readings(self, trial: Trial) -> list[Reading]:
        """Return the readings of a trial that ended; empty if it failed."""

    @abstractmethod
    def keep_readings(self, trial: Trial, readings: Sequence[Reading]) -> None:
        """Keep the readings of a trial, for an engine that resumes the Experiment."""

    @abstractmethod
    def claim(self, trial: Trial) -> Trial:
        """Take over a trial of a stopped or killed engine; return it as it continues, or starts
        again."""

    @abstractmethod
    def open(self, experiment: Experiment, trial: Trial) -> TrialIO:
        """Return the object that runs and reads a trial."""

    def hand_over(
        self, experiment: Experiment, trial: Trial, save: Callable[[Trial], None], stopping: Event
    ) -> "Run | None":
        """Return the object that has a trial run elsewhere, None if this process runs it; the
        arguments are those of TrialRun."""
        return None

    @property
    def outlives_engine(self) -> bool:
        """Whether trials outlive the engine's process, and the next engine takes them over."""
        return False

    def earlier(self, experiment: Experiment) -> Sequence[Earlier]:
        """Return the trials of other Experiments that the search learns from."""
        return []

    def begin(self) -> None:  # noqa: B027  nothing to do by default
        """Prepare for the first trial, without waiting."""

    @property
    @abstractmethod
    def asked(self) -> str:
        """Pending request: ``stop`` or ``delete``; ``leave`` if another engine runs it now; else
        empty."""

    @property
    @abstractmethod
    def resume_command(self) -> str:
        """Command that resumes the Experiment after a stop."""

    @abstractmethod
    def close(self, experiment: Experiment, status: Status) -> None:
        """Write the status for the last time and give the Experiment up; remove it if that was
        asked for."""

"""The records of a sweep: its Experiment and its trials, written while this process may."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from podium.cluster.base import Cluster
from podium.errors import Conflict, InvalidInput, NotFound, PodiumError
from podium.files.documents import parse, read_json
from podium.files.drafts import appearing
from podium.manifests.experiment import Experiment, Trial
from podium.manifests.experiment.status import Status, shortened
from podium.manifests.labels import SAMPLER
from podium.metrics import Reading
from podium.search.in_order import check_sampler
from podium.sweeps.base import AWAY_SECONDS, Documents, Executor
from podium.sweeps.early_stopping import MedianStop

if TYPE_CHECKING:
    from podium.cluster.kubernetes.leadership import Leadership

_T = TypeVar("_T")

_NEW_SECONDS = 90.0
"""Outage of a storage as a new Experiment begins, after which it fails: its bucket may be wrong."""


class Records:
    """One Experiment and its trials.

    Args:
        cluster: Cluster that has the Experiment.
        experiment: Checked; as stored, if it is stored.
        documents: Keeps the Experiment.
        executor: Runs the trials.
        trials: Keeps the trials, where that is not where the Experiment is kept.
        leadership: Only while it is held is anything written; None where the documents' own store
            says who supervises them.
        served: Whether the API server has the Experiment: then its trials run on without this
            process, and the next engine takes them over.
    """

    def __init__(
        self,
        cluster: Cluster,
        experiment: Experiment,
        documents: Documents,
        executor: Executor,
        *,
        trials: Documents | None = None,
        leadership: "Leadership | None" = None,
        served: bool = False,
    ) -> None:
        self.cluster, self.name = cluster, experiment.name
        self._uid = experiment.uid if served else ""
        self._documents, self._executor = documents, executor
        self._trials = trials or documents
        self._leadership, self._served = leadership, served
        self._median = MedianStop.of(experiment)
        self._is_deleted = False
        self.directory = documents.directory
        self.resume_command = documents.resume_command
        self.readings, self.run = self._trials.readings, executor.run

    def experiment(self) -> Experiment:
        """Return the Experiment as it is stored.

        Raises:
            NotFound: It was deleted.
        """
        stored = self.cluster.experiment(self.name)
        if stored.is_leaving or self._uid not in ("", stored.uid):
            raise NotFound(f"Experiment {self.name} is deleted")
        return stored

    def check_library(self) -> None:
        """Check the library that suggested the trials of an Experiment that the API server has.

        Raises:
            OtherLibrary: This process has another version of it.
            PodiumError: They cannot be read.
        """
        for trial in self._trials.trials(self.name) if self._served else ():
            check_sampler(trial.name, trial.labels.get(SAMPLER))

    def begin(self, experiment: Experiment) -> Sequence[Trial]:
        """Return the trials of an earlier engine as they continue, oldest first.

        Args:
            experiment: As stored.
        """

        def begin() -> Sequence[Trial]:
            trials = [
                trial
                for trial in self._trials.trials(self.name)
                if any(owner.get("uid") == experiment.uid for owner in trial.owners)
            ]
            return self._executor.begin(experiment, trials)

        self._check()
        return self._patiently(begin, AWAY_SECONDS if experiment.status else _NEW_SECONDS)

    def write(self, experiment: Experiment, status: Status) -> None:
        """Write the Experiment's status, and the counts of its spec.

        Raises:
            NotFound: It was deleted.
        """
        self._check()
        if self._trials is not self._documents:
            status = shortened(status)
        self._documents.write(experiment.with_status(status))

    def add(self, trial: Trial) -> Trial:
        self._check()
        return self._trials.create(trial)

    def save(self, trial: Trial, readings: Sequence[Reading] = ()) -> None:
        """Write a trial's status, and its readings for an engine that resumes the Experiment.

        Raises:
            NotFound: It was deleted.
        """
        if not self._trials.keeps_all_readings:
            readings = self._median.needed(readings) if self._median else ()
        self._patiently(lambda: self._trials.write(trial, readings))
        if trial.state.finished:
            self._executor.settle(trial)

    def is_stop_asked(self, trial: str) -> bool:
        """Return whether somebody, perhaps another process, asked to end a trial with the metrics
        it has reported."""
        return self._documents.asked("Trial", trial) == "stop"

    @property
    def asked(self) -> str:
        """Pending request: ``stop`` or ``delete``; ``leave`` if another engine runs it now; else
        empty."""
        if self._is_deleted:
            return "delete"
        held = self._leadership is None or self._leadership.is_held
        return self._documents.asked("Experiment", self.name) or ("" if held else "leave")

    def forget(self) -> None:
        """Take note that the Experiment was deleted."""
        self._is_deleted = True

    @property
    def leaves_trials(self) -> bool:
        """Whether only this engine ends: its trials keep running, and the next engine takes them
        over."""
        return self.asked == "leave" or (self._served and not self.asked)

    def close(self, experiment: Experiment, status: Status) -> None:
        """Write the status for the last time and give the Experiment up; remove it if that was
        asked for."""
        asked, ended = self.asked, experiment.with_status(status).state.finished
        stays = asked == "leave" or (self.leaves_trials and not ended)
        with suppress(PodiumError):  # the jobs go with the Experiment, or at their deadline
            self._executor.close(remove=not stays)
        if asked not in ("delete", "leave"):
            # Where there is no room, or no server, the Experiment reads as one left behind.
            with suppress(PodiumError, OSError):
                self.write(experiment, status)
        if not stays:
            with suppress(PodiumError):
                self._executor.tidy()
        for documents in dict.fromkeys((self._trials, self._documents)):
            with suppress(PodiumError):
                documents.close(self.name, asked)

    def _patiently(self, work: Callable[[], _T], seconds: float = AWAY_SECONDS) -> _T:
        """Call what speaks to a storage; while that is away, and this process leads, wait for it,
        so many seconds at most."""
        end = time.monotonic() + seconds
        while True:
            self._check()
            try:
                return work()
            except (NotFound, Conflict, InvalidInput):
                raise
            except PodiumError:
                if self._leadership is None or self.asked or time.monotonic() > end:
                    raise
                self._leadership.lost.wait(1.0)

    def _check(self) -> None:
        if self._leadership:
            self._leadership.check()


class Requests:
    """Trials that a person asked the process for that runs an Experiment, or will: a file for
    each, in the Experiment's directory."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "asked"

    def add(self, trial: str, values: Mapping[str, str]) -> None:
        self._folder.mkdir(exist_ok=True)
        with appearing(self._folder / f"{trial}.json") as draft:
            draft.write_text(json.dumps(dict(values)) + "\n")

    def all(self) -> dict[str, Mapping[str, str]]:
        """Return the values by the name of the trial, in the order of the requests."""
        try:
            files = sorted(
                self._folder.glob("[!.]*.json"), key=lambda file: file.stat().st_mtime_ns
            )
        except FileNotFoundError:
            return {}
        asked: dict[str, Mapping[str, str]] = {}
        for file in files:
            with suppress(FileNotFoundError, InvalidInput):
                asked[file.stem] = parse(dict[str, str], read_json(file), str(file))
        return asked

    def drop(self, trial: str) -> None:
        (self._folder / f"{trial}.json").unlink(missing_ok=True)

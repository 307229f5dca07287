"""The interface of every cluster: a few verbs over Kubernetes-shaped objects."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from podium.cluster.traits import Traits, traits_of
from podium.display.text import quoted
from podium.errors import Failed, InvalidInput, NotFound
from podium.manifests.kinds import JOB_KINDS
from podium.manifests.labels import EXPERIMENT, NOTE
from podium.manifests.resource import R, Resource
from podium.system.processes import DEADLY, killed_by

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment
    from podium.manifests.experiment.trial import Trial
    from podium.manifests.workload import Workload


KINDS = (*JOB_KINDS, "Experiment", "Trial")
"""Kinds that a cluster supports. Trials are created by Experiments and are read only."""

MOST_LINE = 1 << 16
"""Bytes of a line of a log that are read at once."""


def divided(line: bytes, *, stamped: bool = False) -> list[bytes]:
    """Divide a line of more than MOST_LINE bytes at carriage returns, as a progress bar has one
    before each state: the last states count as the first do. Of what has none the beginning is
    left.

    Args:
        stamped: Whether the line begins with its time, which each part then has.
    """
    parts = list[bytes]()
    stamp = line[: line.find(b" ") + 1] if stamped else b""
    while len(line) > MOST_LINE:
        end = line.rfind(b"\r", len(stamp) + 1, MOST_LINE)
        parts.append(line[: end + 1 if end > 0 else MOST_LINE])
        if end < 0 and (end := line.find(b"\r", MOST_LINE)) < 0:
            return parts
        line = stamp + line[end + 1 :]
    return [*parts, line]


def goes_on(line: str) -> bool:
    """Return whether a line is a part of a progress bar, as divided makes them, but the last."""
    return line.endswith("\r") and len(line) > MOST_LINE // 8


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus:
    """One replica of a job: a pod, or its process on this machine."""

    name: str
    """``master-0``, ``worker-1``, ``node-0``, ``pod-0`` …"""

    phase: str
    """Pending, Running, Succeeded, Failed, or Stopped: ended from outside."""

    restarts: int
    exit_code: int | None = None
    """None while it has not ended."""

    reason: str = ""
    """One-word reason for waiting or ending: ImagePullBackOff, Unschedulable, OOMKilled …; empty if
    unknown."""

    started: str = ""
    """Last start of its container, RFC3339; empty before."""

    node: str = ""
    """Node it runs on; empty on this machine."""

    pid: int | None = None
    """Its process while one runs on this machine."""

    HEADS: ClassVar = {
        "name": "REPLICA",
        "phase": "STATE",
        "restarts": ">RESTARTS",
        "exit_code": ">EXIT CODE",
        "reason": "REASON",
        "started": "STARTED",
        "node": "NODE",
        "pid": ">PID",
    }
    """Head of a table by field."""

    def cells(self) -> list[str]:
        """Return its row of a table, a cell for each head."""
        values = (getattr(self, name) for name in self.HEADS)
        return ["" if value is None else str(value) for value in values]

    def to_json(self) -> dict[str, Any]:
        names = {"name": "replica", "exit_code": "exitCode"}
        return {names.get(name, name): value for name, value in asdict(self).items()}


class Cluster(ABC):
    """A place that runs PyTorchJobs, TrainJobs, Jobs and Experiments.

    Leaving the context (or close) releases what the client holds. A local cluster stops everything
    it still runs then; objects on a real one live on.
    """

    url: str

    @property
    def traits(self) -> Traits:
        """Properties that callers may rely on."""
        return traits_of(self.url)

    def outlives_client(self, kind: str) -> bool:
        """Return whether objects of a kind survive close() and the process that created them."""
        return self.traits.outlives_client

    @abstractmethod
    def create(self, resource: R) -> R:
        """Start an object and return it as stored.

        Raises:
            InvalidInput: It breaks a rule; nothing was started.
            Conflict: An object of this kind and name exists.
        """

    @abstractmethod
    def get(self, kind: str, name: str) -> Resource:
        """Return the object, an Experiment, Trial or Workload, with its present status.

        Raises:
            NotFound: There is none.
        """

    @abstractmethod
    def list(self, kind: str, labels: dict[str, str] | None = None) -> Sequence[Resource]:
        """Return the objects of a kind that carry all given labels, oldest first."""

    @abstractmethod
    def watch(self, kind: str, name: str, timeout: float | None = None) -> Iterator[Resource]:
        """Yield the object now and on every change of its status; end after its last state was
        yielded.

        The last state of a job or trial is Succeeded, Failed (or EarlyStopped, MetricsUnavailable);
        an object that was deleted ends the iteration too.

        Args:
            kind: One of KINDS.
            timeout: Seconds; None waits as long as it takes.

        Raises:
            NotFound: There is none at the start.
            Failed: The timeout passed.
        """

    @abstractmethod
    def logs(
        self, kind: str, name: str, replica: str | None = None, follow: bool = False
    ) -> Iterator[str]:
        """Yield the log lines of one replica, without line ends.

        Args:
            kind: A kind of job, or Trial (of a trial: its job's).
            replica: ``master-0``, ``worker-1``, ``node-0`` …; the one that reports metrics if None.
            follow: Go on until the replica has ended.

        Raises:
            NotFound: There is no such object or replica.
        """

    @abstractmethod
    def replicas(self, kind: str, name: str) -> Sequence[ReplicaStatus]:
        """Return the replicas that a job has had so far, the newest try of each; those that are
        gone are left out.

        Raises:
            NotFound: There is none.
        """

    def waits_for(self, job: "Workload") -> str:
        """Return why pods of a job do not start, as far as known; empty if they start, or should
        not."""
        return ""

    @property
    def silence(self) -> float:
        """Seconds for which the cluster has not answered; 0 while it does."""
        return 0.0

    @abstractmethod
    def stop(self, kind: str, name: str) -> None:
        """Ask for the end of the object's processes or pods, without waiting; the object and its
        record stay.

        Raises:
            NotFound: There is none.
            InvalidInput: It has ended, or this cluster cannot stop an object of this kind.
        """

    def add_trial(self, experiment: str, values: Mapping[str, object]) -> str:
        """Add a trial with values chosen by a user to an Experiment that runs, or will be resumed.

        Args:
            values: One for each parameter.

        Returns:
            The name that the trial will have.

        Raises:
            NotFound: There is no such Experiment.
            InvalidInput: A value is missing or not of the space, or this cluster takes no trials by
                hand.
        """
        hint = "podium experiment render makes an Experiment with another space"
        raise InvalidInput(
            f"trials by hand are for sweeps whose loop podium runs itself, not for {self.url}", hint
        )

    @abstractmethod
    def resume(self, kind: str, name: str, changes: Mapping[str, int | str] | None = None) -> None:
        """Resume a stopped object.

        Args:
            kind: A kind of job, or Experiment.
            changes: For an Experiment, new maxTrialCount, parallelTrialCount, maxFailedTrialCount,
                or the annotations of its budget; a higher maxTrialCount resumes a finished one too,
                as in Katib, and a higher budget one that has used it up.

        Raises:
            NotFound: There is none.
            InvalidInput: It was not stopped, or cannot be resumed.
            Conflict: Another process runs it.
        """

    def note(self, resource: Resource) -> str:
        """Return a person's note on an object; empty if there is none."""
        return resource.annotations.get(NOTE, "")

    @abstractmethod
    def write_note(self, kind: str, name: str, text: str) -> None:
        """Write a person's note on an object in place of the one it has; an empty text removes it.

        Raises:
            NotFound: There is no such object.
            InvalidInput: The text is too long.
        """

    @abstractmethod
    def delete(self, kind: str, name: str) -> None:
        """Stop the object and forget it; returns when none of its processes or pods is left, or
        after 30 s.

        Deleting what is not there is no error.
        """

    def admits(self, kind: str, workers: int = 0) -> bool:
        """Return whether it runs jobs of a kind: a namespace may lack an operator, or refuse the
        pods.

        Args:
            workers: Pods beside the first one.
        """
        return kind in KINDS

    def experiment(self, name: str) -> "Experiment":
        """Return an Experiment with its present status.

        Raises:
            NotFound: There is none.
        """
        return cast("Experiment", self.get("Experiment", name))

    def experiments(self) -> "Sequence[Experiment]":
        """Return the Experiments, oldest first."""
        return cast("Sequence[Experiment]", self.list("Experiment"))

    def trial(self, name: str) -> "Trial":
        """Return a Trial with its present status.

        Raises:
            NotFound: There is none.
        """
        return cast("Trial", self.get("Trial", name))

    def trials(self, experiment: str) -> "Sequence[Trial]":
        """Return the trials of an Experiment, oldest first."""
        return cast("Sequence[Trial]", self.list("Trial", {EXPERIMENT: experiment}))

    def judged_trials(self, experiment: "Experiment") -> "Sequence[Trial]":
        """Return the trials of an Experiment, oldest first, with all that they are judged by."""
        return [trial.judged_as(experiment) for trial in self.trials(experiment.name)]

    def workload(self, kind: str, name: str) -> "Workload":
        """Return a job with its present status.

        Raises:
            NotFound: There is none.
        """
        return cast("Workload", self.get(kind, name))

    def is_over(self, kind: str, name: str) -> bool:
        """Return whether an object has ended, or is gone."""
        try:
            return self.get(kind, name).state.finished
        except NotFound:
            return True

    def refuse_ended(self, kind: str, name: str) -> None:
        """Refuse to stop what has ended.

        Raises:
            NotFound: There is none.
            InvalidInput: It has ended.
        """
        state = self.get(kind, name).state
        if state.finished:
            problem = f"{kind} {name} does not run: it has {state.phase.lower()}"
            raise InvalidInput(problem, "there is nothing to stop")

    def directory(self, kind: str, name: str) -> Path | None:
        """Return the directory of an object's logs and files on this machine; None if they are
        elsewhere."""
        return None

    def join(self, kind: str, name: str, timeout: float | None = None) -> bool:
        """Wait until nothing of an object is running in this process; return whether that is so."""
        return True

    def abandon(self, kind: str, name: str) -> None:
        """Ask once for the object's end, without waiting: for a process that is about to be killed.

        A namespace is left clean; a local cluster keeps the object's files. Under Kubeflow
        Pipelines a canceled step has a few tenths of a second (observed). Best effort: errors are
        those of delete, and nothing is retried.
        """
        self.delete(kind, name)

    def failure(self, kind: str, name: str) -> Failed:
        """Return the error to raise for an object that failed: the failed part, its last lines, and
        a hint.

        Args:
            kind: One of KINDS.
        """
        condition = self.get(kind, name).condition("Failed")
        why = (condition.message or condition.reason) if condition else ""
        if condition and kind == "Trial":
            why = self.trial(name).message
        text = f"{kind} {name} failed" + (f": {why}" if why else "")
        killed = [
            f"{replica.name} was killed by {killed_by(replica.exit_code)}"
            for replica in (self.replicas(kind, name) if kind in JOB_KINDS else ())
            if replica.exit_code in DEADLY
        ]
        lines = [] if kind == "Experiment" else list(self.logs(kind, name))[-15:]
        return Failed("\n".join([text, *killed, *quoted(lines)]))

    def close(self) -> None:  # noqa: B027  nothing to release by default
        """Release the client's resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

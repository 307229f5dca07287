"""The runs of `podium run` on this machine: find one, read what it recorded, remove it."""

import fcntl
import json
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, TypeVar

from podium.documents import parse, parse_member, read_json
from podium.drafts import appearing
from podium.errors import Conflict, InvalidInput, NotFound, require, suggestion
from podium.identity import ATTEMPT
from podium.kfp.parameters import pairs
from podium.settings import Settings
from podium.steps.kept_logs import KeptLogs
from podium.storage import path_of

R = TypeVar("R")


@dataclass(kw_only=True)
class StepRecord:
    """A step of a run."""

    title: str
    state: str = "pending"
    """pending, running, succeeded, cached, failed or stopped."""

    started: float | None = None
    """Seconds since the epoch."""

    seconds: float | None = None
    exit_code: int | None = None
    """Exit code of its process, if it failed."""

    attempt: int = 1
    """The run's attempt that it belongs to."""

    @property
    def elapsed(self) -> float:
        """Seconds, of a running step so far."""
        if self.seconds is None and self.started is not None and self.state == "running":
            return time.time() - self.started
        return self.seconds or 0.0

    @property
    def is_done(self) -> bool:
        """Whether it succeeded, now or in the run that its result was cached by."""
        return self.state in ("succeeded", "cached")


@dataclass(kw_only=True)
class Run:
    """A run, as in run.json."""

    id: str
    """Name of the run's directory, and part of its jobs' names."""

    pipeline: str
    """Name of the pipeline, or its file."""

    directory: Path
    words: list[str] | None = None
    """Parameters as they were typed; None in a record of an older podium."""

    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameters that differ from the pipeline's defaults."""

    steps: dict[str, StepRecord] = field(default_factory=dict)
    """By task name, in the order they run."""

    outputs: dict[str, Any] = field(default_factory=dict)
    """What the pipeline returned: values, and URIs of artifacts."""

    state: str = "running"
    """running, succeeded, failed, stopped, or killed: its process is gone without a word."""

    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    """Start time."""

    attempt: int = 1
    """How often finished steps were begun anew, plus one. What a later attempt launches and stores has other names."""

    def identity(self, attempt: int = 0) -> str:
        """Return the run id that steps of an attempt see, in names and keys; of the last one if 0."""
        attempt = attempt or self.attempt
        return self.id if attempt == 1 else f"{self.id}{ATTEMPT}{attempt}"

    def repeat(self, name: str) -> None:
        """Begin a step and all after it anew, even where they had finished, in a new attempt.

        Raises:
            InvalidInput: The run has no such step.
        """
        if name not in self.steps:
            hint = suggestion(name, self.steps) or f"its steps: {', '.join(self.steps)}"
            raise InvalidInput(f"run {self.id} has no step {name!r}: it has {', '.join(self.steps) or 'none'}", hint)
        self.attempt += 1
        names = list(self.steps)
        for at, (step, record) in enumerate(self.steps.items()):
            if at >= names.index(name) or not record.is_done:
                self.steps[step] = StepRecord(title=record.title, attempt=self.attempt)

    def log(self, step: str) -> Path:
        """Return the file with a step's output."""
        return self.directory / "logs" / f"{step}.log"

    def close(self, state: str, ended: float) -> None:
        """Set the state of a run of which nothing has run since a moment; a step that was running is stopped."""
        self.state = state
        for step in self.steps.values():
            if step.seconds is None and step.started is not None:
                step.seconds = round(max(0.0, ended - step.started), 3)
            step.state = "stopped" if step.state == "running" else step.state

    @property
    def last_sign(self) -> float:
        """When anything was last written to its record or a step's log, in seconds since the epoch."""
        return max(path.stat().st_mtime for path in (self.directory / "run.json", *self.directory.glob("logs/*.log")))

    def save(self) -> None:
        """Write run.json, whole or not at all."""
        with appearing(self.directory / "run.json") as draft:
            draft.write_text(json.dumps(asdict(self), indent=1, default=str) + "\n")

    @property
    def seconds(self) -> float:
        """Duration of its steps together; of a running one so far."""
        return sum(step.elapsed for step in self.steps.values())

    @property
    def candidates(self) -> list[Path]:
        """Directories with the models its attempts trained, those of trials too, as far as they are on this machine."""
        storage = str(self.parameters.get("storage") or "")
        if not storage.startswith(("file://", "/")):
            return []
        known = (Path(path_of(storage)) / "runs" / self.identity(number + 1) for number in range(self.attempt))
        return [directory for directory in known if directory.is_dir()]

    @property
    def kept_logs(self) -> KeptLogs | None:
        """The logs of what it launched on another cluster; None if all was launched on this machine."""
        storage, cluster = (str(self.parameters.get(name) or "") for name in ("storage", "cluster"))
        return KeptLogs(storage, self.identity()) if storage and cluster.startswith("kubernetes:") else None

    @property
    def resume_command(self) -> str:
        """The command that goes on with it."""
        return f"podium run --resume {self.id}"

    def command(self, changed: Mapping[str, Any]) -> str:
        """Return the command that begins it anew, with some parameters changed."""
        new = {name: value if isinstance(value, str) else json.dumps(value) for name, value in changed.items()}
        values = {**dict(pairs(self.words or [])), **new}
        return shlex.join(["podium", "run", self.pipeline, *(f"{name}={text}" for name, text in values.items())])

    @property
    def cluster(self) -> Path:
        """Directory of its local cluster."""
        return self.directory / "cluster"


MOST_ATTEMPTS = 10_000
"""More than anybody resumes a run."""

LOCK = "lock"
"""File in a run's directory that its process holds locked as long as it lives."""


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    """Content of run.json."""

    id: str
    pipeline: str
    steps: dict[str, StepRecord]
    state: str
    began: str
    words: list[str] | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    attempt: int = 1


class Runs:
    """The runs under ``<home>/runs``, the oldest first.

    Args:
        settings: Names the directory.
    """

    def __init__(self, settings: Settings) -> None:
        self.directory = settings.runs

    def __iter__(self) -> Iterator[Run]:
        """Yield every run whose record can be read."""
        for path in sorted(self.directory.glob("*/run.json")):
            with suppress(InvalidInput):
                yield read_run(path.parent)

    def __getitem__(self, name: str) -> Run:
        """Return a run by its id, by the beginning of it if only one run has it, or the newest by ``latest``.

        Raises:
            NotFound: There is no such run.
            InvalidInput: Several begin like that, or its record is damaged.
        """
        names = sorted(path.parent.name for path in self.directory.glob("*/run.json"))
        if name == "latest" and names:
            return read_run(self.directory / names[-1])
        if not (matching := run_called(name, names)):
            hint = suggestion(name, names) if names else "podium run makes one"
            raise NotFound(f"there is no run {name!r} in {self.directory}", hint)
        return read_run(self.directory / matching)

    def delete(self, run: Run) -> None:
        """Remove a run's directory, its kept logs and the candidates in a storage on this machine; versions stay.

        Raises:
            Conflict: It is running.
            InvalidInput: Its directory is a link.
            PodiumError: The storage of its logs refused; nothing was removed on this machine.
        """
        if run.state == "running":
            raise Conflict(f"run {run.id} is running", "stop it first")
        if run.directory.is_symlink():
            raise InvalidInput(f"{run.directory} is a link to {run.directory.resolve()}, and nothing is removed there",
                               f"rm {shlex.quote(str(run.directory))} removes the link")  # fmt: skip
        if kept := run.kept_logs:
            kept.delete()
        for candidates in run.candidates:
            shutil.rmtree(candidates, ignore_errors=True)
        shutil.rmtree(run.directory)


def run_called(name: str, names: Sequence[str]) -> str:
    """Return the run of this id, else the only one whose id begins so; empty if there is none.

    Raises:
        InvalidInput: Several begin so.
    """
    matching = [name] if name in names else [known for known in names if known.startswith(name)]
    if len(matching) > 1:
        text = f"{len(matching)} runs begin with {name!r}: {', '.join(matching[-5:])}"
        raise InvalidInput(text, "give more of it")
    return matching[0] if matching else ""


def last_like(run: Run) -> Run | None:
    """Return the newest earlier run that did the same, with any seed, in one go; None if there is none."""

    def what(run: Run) -> tuple[str, list[str], dict[str, Any]]:
        own = ("cluster", "storage", "seed")  # of each run its own
        return run.pipeline, list(run.steps), {name: run.parameters[name] for name in run.parameters if name not in own}

    for path in sorted(run.directory.parent.glob("*/run.json"), reverse=True):
        with suppress(InvalidInput):
            other = read_run(path.parent)
            if other.id < run.id and other.state == "succeeded" and other.attempt == 1 and what(other) == what(run):
                return other
    return None


def read_run(directory: Path) -> Run:
    """Read the record of a run, which was killed if it says running but no process of it lives.

    Raises:
        InvalidInput: It is damaged.
    """
    path = directory / "run.json"
    recorded = parse(_Recorded, read_json(path), str(path))
    parse_member(datetime, recorded.began, str(path), "began")  # it stays text, as it is shown and written
    # What is deleted, read and shown with a run follows from its id, steps and attempts: the directory has the id.
    wrong = next((name for name in recorded.steps if name != Path(name).name or name in ("", ".", "..")), None)
    if recorded.id != directory.name or wrong is not None or not 1 <= recorded.attempt <= MOST_ATTEMPTS:
        what = f"step {wrong!r}" if wrong is not None else f"id {recorded.id!r} and attempt {recorded.attempt}"
        raise InvalidInput(
            f"{path} is damaged: it names {what}", f"look at it; rm -r {shlex.quote(str(directory))} removes it"
        )
    run = Run(directory=directory, **vars(recorded))
    if run.state == "running" and not is_locked(directory):
        run.close("killed", run.last_sign)
    return run


def choose_old(
    runs: Iterable[R], moment: Callable[[R], datetime], *, keep: int | None, older_than: int | None
) -> list[R]:
    """Return the runs that are old, the oldest first.

    Args:
        moment: Returns the time that decides how old a run is.
        keep: How many of the newest are not among them.
        older_than: Days since that moment, at least.

    Raises:
        InvalidInput: Neither is given, or one is out of range.
    """
    require(keep is not None or older_than is not None, "keep or older_than is given", keep=keep, older_than=older_than)
    require(keep is None or keep >= 0, "keep >= 0", keep=keep)
    require(older_than is None or 0 <= older_than <= 36500, "0 <= older_than <= 36500", "days", older_than=older_than)
    ordered = sorted(runs, key=moment)
    before = datetime.now(UTC) - timedelta(days=older_than or 0)
    return [run for run in ordered[: max(0, len(ordered) - (keep or 0))] if moment(run) <= before]


@contextmanager
def locked(directory: Path) -> Iterator[IO[bytes]]:
    """Hold a run's lock; the kernel releases it however the process ends.

    Raises:
        Conflict: Another process holds it.
    """
    with (directory / LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"run {directory.name} is running", "wait for its end, or stop it") from None
        yield file


def is_locked(directory: Path) -> bool:
    """Return whether a process of the run lives."""
    try:
        with locked(directory):
            return False
    except (Conflict, OSError):
        return (directory / LOCK).exists()


def bytes_of(directory: Path) -> int:
    """Return the size of everything in a directory; what vanishes meanwhile does not count."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if not path.is_dir() else 0
    return total

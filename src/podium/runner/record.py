"""The record of a run, run.json: reports of its child process, its end, and the holder of its
lock."""

import fcntl
import json
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from podium.cluster.traits import traits_of
from podium.display.text import as_note, last_said
from podium.errors import Conflict, Failed, InvalidInput, NotFound, PodiumError, suggestion
from podium.files.documents import parse, read_json, write_json
from podium.kfp.parameters import pairs, word
from podium.runner.messages import AGAIN, KFP, Event, stem
from podium.storage import local_path
from podium.system.processes import killed_by
from podium.training.identity import ATTEMPT
from podium.training.kept_logs import KeptLogs

EDIT_LOCK = "edit-lock"
"""File in a run's directory that is locked while run.json is read and rewritten."""

TAG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,38}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """A user's note and tags on a run."""

    note: str = ""
    tags: tuple[str, ...] = ()
    """In the order they were given."""

    @classmethod
    def read(cls, directory: Path) -> "Annotations":
        """Read those of a run.

        Raises:
            NotFound: There is no such run.
            InvalidInput: Its record is damaged.
        """
        return cls._of(_record(directory), str(directory / "run.json"))

    @classmethod
    def _of(cls, record: dict[str, Any], name: str) -> "Annotations":
        note = parse(str, record.get("note", ""), name, "note")
        return cls(note=note, tags=parse(tuple[str, ...], record.get("tags", []), name, "tags"))

    @classmethod
    def edit(
        cls, directory: Path, change: Callable[["Annotations"], "Annotations"]
    ) -> "Annotations":
        """Change the annotations of a run, whether it runs or not; nothing else in its record is
        touched.

        Raises:
            NotFound: There is no such run.
            InvalidInput: Its record is damaged, or the change is refused.
        """
        path = directory / "run.json"
        # There is one: else its lock would appear in a directory that is no run's.
        _record(directory)
        with _editing(directory):
            record = _record(directory)
            changed = change(cls._of(record, str(path)))
            write_json(path, {**record, "note": changed.note, "tags": list(changed.tags)})
        return changed

    def noted(self, text: str) -> "Annotations":
        """Return them with another note; empty for none.

        Raises:
            InvalidInput: It is too long.
        """
        return replace(self, note=as_note(text))

    def tagged(self, names: str | Iterable[str]) -> "Annotations":
        """Return them with more tags.

        Raises:
            InvalidInput: One is not a word of at most 40 letters, digits, dots, dashes and
                underscores.
        """
        names = [names] if isinstance(names, str) else list(names)
        for name in names:
            if not TAG.fullmatch(name):
                rule = "a tag has at most 40 letters, digits, ., - and _, and begins and ends with a letter or digit"
                raise InvalidInput(f"{rule}, but got {name!r}", "for example baseline, or lr-0.1")
        return replace(self, tags=tuple(dict.fromkeys([*self.tags, *names])))

    def untagged(self, names: Sequence[str]) -> "Annotations":
        """Return them without some tags.

        Raises:
            NotFound: There is no such tag.
        """
        if missing := [name for name in names if name not in self.tags]:
            raise NotFound(
                f"there is no tag {missing[0]!r}", f"its tags: {', '.join(self.tags) or 'none'}"
            )
        return replace(self, tags=tuple(tag for tag in self.tags if tag not in names))


@contextmanager
def _editing(directory: Path) -> Iterator[None]:
    """Hold the lock that everybody holds who reads and writes run.json; the kernel releases it with
    the process."""
    with (directory / EDIT_LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _record(directory: Path) -> dict[str, Any]:
    path = directory / "run.json"
    try:
        return parse(dict[str, Any], read_json(path), str(path))
    except FileNotFoundError:
        raise NotFound(
            f"there is no run {directory.name!r} in {directory.parent}", "podium runs list"
        ) from None


PREPARING = ("fingerprint-data", "prepare-data")
"""Steps after which nothing is lost by a new run, while a resumed one would keep a parameter that
they refused."""

MOST_ATTEMPTS = 10_000
"""More than anybody resumes a run."""

LOCK = "lock"
"""File in a run's directory that its process holds locked as long as it lives; it holds the
process's id."""

_TRACEBACK = "Traceback (most recent call last):"
_AGAIN = re.compile(rf"(exit code -?\d+: )?{AGAIN}( in [\d.e+-]+ s)?")
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")

LAST, LONGEST = 12, 400
"""Number of lines shown of a log that ends without an error, and number of characters of each."""

_LIBRARY = re.compile("^<frozen|/site-packages/|/lib/python3[.]")
_FRAME = re.compile(r'  File "([^"]+)", line \d+')

STOP = "stop"
"""File in a run's directory: a process, maybe another than the run's, has stopped it."""


@dataclass(kw_only=True)
class StepRecord:
    """A step of a run."""

    title: str
    state: str = "pending"
    """pending, running, succeeded, cached, skipped (by a condition), failed or stopped."""

    started: float | None = None
    """Seconds since the epoch."""

    seconds: float | None = None
    exit_code: int | None = None
    """Exit code of its process, if it failed."""

    attempt: int = 1
    """The run's attempt that it belongs to."""

    _since = 0.0  # when it started, by time.monotonic() of the process that runs it; the file knows only the epoch

    @property
    def elapsed(self) -> float:
        """Seconds, of a running step so far."""
        if self.seconds is None and self.started is not None and self.state == "running":
            return (
                time.monotonic() - self._since
                if self._since
                else max(0.0, time.time() - self.started)
            )
        return self.seconds or 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain values; no duration of a step that has not begun."""
        seconds = None if self.state == "pending" else round(self.elapsed, 3)
        return {"title": self.title, "state": self.state, "seconds": seconds}

    def to_document(self) -> dict[str, Any]:
        """Return what run.json keeps of it; asdict copies more, which takes eight times as long."""
        return {name: value for name, value in vars(self).items() if name != "_since"}

    @property
    def is_done(self) -> bool:
        """Whether it succeeded, now or in the run that its result was cached by, or was skipped."""
        return self.state in ("succeeded", "cached", "skipped")

    def take(self, event: Event) -> None:
        """Update from a report of the child process."""
        if event.kind == "start":
            self.state, self.started, self.seconds = "running", time.time(), None
            self._since = time.monotonic()
        elif event.kind == "skipped" or (event.kind == "cached" and not self.is_done):
            self.state, self.seconds = event.kind, 0.0
        elif event.kind in ("success", "failure"):
            self.seconds = round(self.elapsed, 3)
            self.state = "succeeded" if event.kind == "success" else "failed"
            self.exit_code = event.code


@dataclass(kw_only=True)
class RunRecord:
    """Content of run.json, and values derived from it."""

    id: str
    """Name of the run's directory, and part of its jobs' names."""

    pipeline: str
    """Name of the pipeline, or its file."""

    directory: Path
    words: list[str] = field(default_factory=list)
    """Parameters as they were typed."""

    folder: str = ""
    """Directory that it was started in: relative files are looked up there, wherever it goes on."""

    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameters that differ from the pipeline's defaults."""

    packed: dict[str, str] = field(default_factory=dict)
    """Directory that the code of each such parameter was packed from."""

    places: dict[str, dict[str, str]] = field(default_factory=dict)
    """Places that stand in for volumes, Secrets, ConfigMaps and images, by option and name."""

    steps: dict[str, StepRecord] = field(default_factory=dict)
    """By task name, in the order they run."""

    outputs: dict[str, Any] = field(default_factory=dict)
    """Return values of the pipeline: values, and URIs of artifacts."""

    state: str = "running"
    """running, succeeded, failed, stopped, or killed: its process is gone without a word."""

    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    attempt: int = 1
    """Number of resumes that repeated finished steps, plus one. Each attempt launches and stores
    under names of its own."""

    note: str = ""
    """A user's note. podium.runner.record changes note and tags, in the file."""

    tags: list[str] = field(default_factory=list)
    """Names that a user gave it, to find it by."""

    process = ""  # id of the child that this record follows; it is not written
    # Inode, time and length of the file as it was last written here; they are not written.
    _written = (-1, -1, -1)

    def identity(self, attempt: int = 0) -> str:
        """Return the run id that steps of an attempt see, in names and keys; of the last one if
        0."""
        attempt = attempt or self.attempt
        return self.id if attempt == 1 else f"{self.id}{ATTEMPT}{attempt}"

    def repeat(self, name: str) -> None:
        """Repeat a step and all after it in a new attempt, even if they had finished.

        Raises:
            InvalidInput: The run has no such step.
        """
        check_step(self, name)
        self.attempt += 1
        names = list(self.steps)
        for at, (step, record) in enumerate(self.steps.items()):
            if at >= names.index(name) or not record.is_done:
                self.steps[step] = StepRecord(title=record.title, attempt=self.attempt)

    def log(self, step: str) -> Path:
        return self.directory / "logs" / f"{step}.log"

    def _last_words(self, step: str) -> tuple[str, Mapping[str, Any]]:
        """Return a step's error, else the end of its log, and the parameters that avoid it."""
        left = failure_file(self.directory, step)
        with suppress(FileNotFoundError, InvalidInput):
            failure = parse(_Failure, read_json(left), str(left))
            return _indented(failure.error.splitlines()), failure.fix
        end = last_lines(self.log(step), 20 * LAST)  # a traceback is long
        return _indented(list(_without_libraries(_of_last_attempt(end)))[-LAST:]), {}

    @property
    def cause(self) -> str:
        """The last thing that the step that failed said, in one line; empty if none did."""
        failed = next((name for name, step in self.steps.items() if step.state == "failed"), None)
        if self.state != "failed" or failed is None:
            return ""
        words, _ = self._last_words(failed)
        said = last_said(line.strip().removeprefix("| ") for line in words.splitlines())
        return f'{said or "it printed nothing"}, in "{self.steps[failed].title}"'

    def close(self, state: str, ended: float) -> None:
        """Set the state of a run of which nothing has run since a moment; a step that was running
        is stopped."""
        self.state = state
        for name in self.steps:
            step = _to_change(self.steps, name)
            if step.seconds is None and step.started is not None:
                step.seconds = round(
                    step.elapsed if step._since else max(0.0, ended - step.started), 3
                )
            step.state = "stopped" if step.state == "running" else step.state

    @classmethod
    def read(cls, directory: Path) -> "RunRecord":
        """Read the record of a run, which was stopped or killed if it says running but no process
        of it lives.

        Raises:
            NotFound: There is none, or it was deleted.
            InvalidInput: It is damaged.
        """
        path = directory / "run.json"
        record = parse(cls, {**_record(directory), "directory": str(directory)}, str(path))
        parse(
            datetime, record.began, str(path), "began"
        )  # it stays text, as it is shown and written
        # What is deleted, read and shown with a run follows from its id, steps and attempts: the
        # directory has the id.
        wrong = next(
            (name for name in record.steps if name != Path(name).name or name in ("", ".", "..")),
            None,
        )
        if (
            record.id != directory.name
            or wrong is not None
            or not 1 <= record.attempt <= MOST_ATTEMPTS
        ):
            detail = (
                f"step {wrong!r}"
                if wrong is not None
                else f"id {record.id!r} and attempt {record.attempt}"
            )
            hint = f"look at it; rm -r {shlex.quote(str(directory))} removes it"
            raise InvalidInput(f"{path} is damaged: it names {detail}", hint)
        if record.state == "running" and not _is_locked(directory):
            written_last = max(
                file.stat().st_mtime for file in (path, *directory.glob("logs/*.log"))
            )
            record.close("stopped" if (directory / STOP).exists() else "killed", written_last)
        return record

    def save(self) -> None:
        """Write run.json, whole or not at all, unless the run is another process's by now; note and
        tags stay as they are in the file."""
        path = self.directory / "run.json"
        with _editing(self.directory):
            if self.process and _owner(self.directory) not in ("", self.process):
                return
            if self._written != _stamp(path):
                with suppress(NotFound, InvalidInput):  # the first time, or over a damaged one
                    written = Annotations.read(self.directory)
                    self.note, self.tags = written.note, list(written.tags)
            document = {each.name: getattr(self, each.name) for each in fields(self)}
            steps = {name: step.to_document() for name, step in self.steps.items()}
            document |= {"directory": str(self.directory), "steps": steps}
            write_json(path, document)
            self._written = _stamp(path)

    @property
    def seconds(self) -> float:
        """Duration of its steps together; of a running one so far."""
        return sum(step.elapsed for step in self.steps.values())

    @property
    def candidates(self) -> list[Path]:
        """Directories with the models its attempts trained, those of trials too, as far as they are
        on this machine."""
        root = local_path(str(self.parameters.get("storage") or ""))
        if root is None or not root.is_absolute():
            return []
        directories = (root / "runs" / self.identity(number + 1) for number in range(self.attempt))
        return [directory for directory in directories if directory.is_dir()]

    @property
    def kept_logs(self) -> KeptLogs | None:
        """Logs of objects that it launched on another cluster; None if all were launched on this
        machine."""
        storage, cluster = (str(self.parameters.get(name) or "") for name in ("storage", "cluster"))
        return (
            KeptLogs(storage, self.identity())
            if storage and cluster and not traits_of(cluster).keeps_logs
            else None
        )

    @property
    def resume_command(self) -> str:
        return f"podium run --resume {self.id}"

    def command(self, changed: Mapping[str, Any]) -> str:
        """Return the command that starts it again, with some parameters changed."""
        values = dict(pairs(self.words)) | {name: word(value) for name, value in changed.items()}
        return shlex.join(
            ["podium", "run", self.pipeline, *(f"{name}={text}" for name, text in values.items())]
        )

    @property
    def cluster(self) -> Path:
        return self.directory / "cluster"

    def take(self, event: Event) -> bool:
        """Update from a report of the child process; return whether anything visible changed.

        Raises:
            InvalidInput: The child refused the run.
        """
        if event.kind == "refused":
            if self.steps:
                self._refuse(event.text)
            raise InvalidInput(event.text, event.hint)
        if event.kind == "steps":
            self.parameters, self.packed = dict(event.values), dict(event.packed) or self.packed
        if event.kind in ("steps", "loop"):
            self.steps = self._known(event.steps)
        elif event.kind == "outputs":
            self.outputs = dict(event.values)
            return False
        elif event.step in self.steps:
            _to_change(self.steps, event.step).take(event)
        if event.kind != "line":
            self.save()
        return event.kind != "loop"

    def _known(self, titles: Mapping[str, str]) -> dict[str, StepRecord]:
        """Return a record for each step: that from before, which a loop has for each round."""
        found: dict[str, StepRecord] = {}
        rounds: dict[str, dict[str, StepRecord]] = {}
        for step_name, step in self.steps.items():
            rounds.setdefault(stem(step_name), {})[step_name] = step
        for name, title in titles.items():
            like = rounds.get(stem(name), {})
            if name in like:
                found[name] = like[name]
            elif name == stem(name) and like:
                found |= like  # its rounds are not counted again yet
            else:
                attempt = next((step.attempt for step in like.values()), 1)
                found[name] = StepRecord(title=title, attempt=attempt)
        return found

    def _refuse(self, why: str) -> None:
        for name, step in self.steps.items():
            if step.state == "running":
                _to_change(self.steps, name).state = "failed"
                left = json.dumps(asdict(_Failure(error=why, fix={})))
                failure_file(self.directory, name).write_text(left)
        self.close("failed", time.time())
        self.save()

    def end(self, code: int, *, stopped: bool) -> None:
        """Record how the run ended.

        Args:
            code: Exit code of its child.
            stopped: Whether the stop was requested.

        Raises:
            Failed: A step failed, or a signal killed it.
            PodiumError: The child broke off by itself.
        """
        failed = next(
            (
                name
                for state in ("failed", "running")
                for name, step in self.steps.items()
                if step.state == state
            ),
            None,
        )
        if code and failed and not stopped:
            _to_change(self.steps, failed).state = "failed"
        self.close("succeeded" if code == 0 else "stopped" if stopped else "failed", time.time())
        if self.directory.is_dir():  # else it ended before it was begun
            self.save()
        if code and not stopped:
            raise self._failure(failed, code)

    def _failure(self, step: str | None, code: int) -> PodiumError:
        """Return the error of a step, or of the run if it failed outside of all steps."""
        who = f'step "{self.steps[step].title}"' if step else "run"
        if killer := killed_by(self.steps[step].exit_code or code if step else code):
            hint = f"its log: {self.log(step or KFP)}; continue with: {self.resume_command}"
            if not self.directory.is_dir():
                hint = "start it again; it was killed before it began"
            return Failed(f"{who} was killed by {killer}", hint)
        if step is None:
            printed = self.log(KFP)
            hint = (
                f"see {printed}"
                if printed.is_file()
                else "run it again; it ended before it printed anything"
            )
            return PodiumError(f"run {self.id} broke off (exit code {code})", hint)
        words, fix = self._last_words(step)
        again = self.command(fix) if step in PREPARING else self.resume_command
        go_on = "this command changes that" if fix else "once that is fixed, continue with"
        ended = self.steps[step].exit_code
        with_code = f" with exit code {ended}" if ended not in (None, 0, 1) else ""
        said = words if words.strip() else _indented(["it printed nothing"])
        return Failed(
            f"{who} failed{with_code}\n{said}", f"its log: {self.log(step)}; {go_on}: {again}"
        )


def snapshot(run: RunRecord) -> RunRecord:
    """Return a copy that no report changes any more."""
    copied = copy(run)
    copied.steps = dict(run.steps)
    return copied


def _to_change(steps: dict[str, StepRecord], name: str) -> StepRecord:
    """Return the record of a step to change; snapshots keep the one before."""
    steps[name] = copy(steps[name])
    return steps[name]


def check_step(run: RunRecord, name: str) -> None:
    """Refuse the name of a step that a run does not have.

    Raises:
        InvalidInput: The message names those that it has.
    """
    if name not in run.steps:
        raise InvalidInput(
            f"run {run.id} has no step {name!r}: it has {', '.join(run.steps) or 'none'}",
            suggestion(name, run.steps),
        )


@dataclass(kw_only=True)
class _Failure:
    """Error that a failed step leaves for `podium run`; its log also holds the output of
    programs."""

    error: str
    fix: dict[str, Any]


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what tells a file from the one that takes its place: a disk may give the inode of a
    removed file to the next one within a tick, and a note or a tag has a length."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def failure_file(directory: Path, step: str) -> Path:
    """Return the file in which a step of a run leaves its error."""
    return directory / "logs" / f"{step}.error.json"


@contextmanager
def locked(directory: Path) -> Iterator[IO[bytes]]:
    """Hold a run's lock; the kernel releases it however the process ends.

    Raises:
        Conflict: Another process holds it.
    """
    with (directory / LOCK).open("ab") as file:
        while not _flock(file, fcntl.LOCK_EX):
            if not _flock(file, fcntl.LOCK_SH):  # else somebody only looks
                hint = "wait for its end, or stop it"
                raise Conflict(f"run {directory.name} is running", hint)
            fcntl.flock(file, fcntl.LOCK_UN)
        file.truncate(0)
        yield file


def _flock(file: IO[bytes], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def process_of(directory: Path) -> int | None:
    """Return the id of the process that a run is in, which leads a process group; None if it does
    not run."""
    text = _owner(directory) if _is_locked(directory) else ""
    return int(text) if text.isdigit() else None


def _owner(directory: Path) -> str:
    with suppress(FileNotFoundError):
        return (directory / LOCK).read_text()
    return ""


def _is_locked(directory: Path) -> bool:
    # The check does not keep others from starting one.
    try:
        with (directory / LOCK).open("rb") as file:
            return not _flock(file, fcntl.LOCK_SH)
    except OSError:
        return (directory / LOCK).exists()


def last_lines(log: Path, most: int) -> list[str]:
    """Return the last lines of a file, of which only the end is read; blank ones at the end do not
    count."""
    if not log.is_file():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - most * LONGEST))
        return file.read().decode(errors="replace").rstrip().splitlines()[-most:]


def _of_last_attempt(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines of the last attempt; where it has several tracebacks, from the last one on
    that follows from no other."""
    begins, links = list[int](), False
    ends = [at for at, line in enumerate(lines, 1) if _AGAIN.fullmatch(line)]
    lines = lines[ends[-1] :] if ends else lines
    for at, line in enumerate(lines):
        if line.startswith(_TRACEBACK) and not links:
            begins.append(at)
        links = line.startswith(_LINKS) or (links and not line)
    return lines[begins[-1] :] if len(begins) > 1 else lines


def _without_libraries(lines: Iterable[str]) -> Iterator[str]:
    """Drop the frames of libraries and of Python itself from the tracebacks among lines."""
    in_library = False
    for line in lines:
        frame = _FRAME.match(line)
        in_library = (
            bool(_LIBRARY.search(frame[1])) if frame else in_library and line.startswith("    ")
        )
        if not in_library:
            yield line


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)

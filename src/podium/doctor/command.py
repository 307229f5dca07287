"""Run a command briefly, the way a trial's pod would, and examine its output."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from podium.doctor.log import examine_events, examine_given, examine_log
from podium.doctor.reading import Reader
from podium.doctor.report import Report
from podium.errors import InvalidInput, require
from podium.manifests.experiment.experiment import Collector, Experiment
from podium.manifests.experiment.shell_rules import SHELL_RULES
from podium.manifests.rules import Finding, Rules, Violation, apply, worst_first
from podium.manifests.shell import named_folder
from podium.system.processes import signal_group

_PAUSE = 0.05

GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""


@dataclass(frozen=True, kw_only=True)
class _CommandRun:
    """Outcome of a command."""

    seconds: float
    code: int | None
    """Exit code; None if it was stopped at the limit."""

    first: float | None
    """Seconds from the start to the first output; None without output."""

    left: bool
    """Whether processes that it started were still there after its end."""

    output: str
    missing: str | None = None
    """Path of the file or folder that the collector would read, if the command did not write it."""

    @property
    def late(self) -> bool:
        return self.first is not None and self.first > self.seconds - 0.5


RUN_RULES = Rules[_CommandRun]()
rule = RUN_RULES.rule


@rule("fail", "Metrics of a failed trial are not used.", where="exit code")
def _command_failed(run: _CommandRun) -> Iterator[Violation]:
    if run.code:
        last = (run.output.strip().splitlines() or ["nothing was printed"])[-1]
        missing = "the program and its modules must be in the image"
        hint = missing if run.code in (126, 127) else "correct the program"
        yield Violation(f"exit code {run.code}: {last[:200]}", hint=hint)


@rule("note", "Only the beginning was read.", where="time", hint="give it more: --seconds 300")
def _stopped_at_the_limit(run: _CommandRun) -> Iterator[Violation]:
    if run.code is None:
        yield Violation(f"stopped after {run.seconds:.0f} s")


@rule(
    "warn",
    "The collector looks for the program's process; one that ends too soon makes the trial Failed (a race).",
    where="time",
    hint="make a trial last some seconds",
)
def _ends_too_soon(run: _CommandRun) -> Iterator[Violation]:
    if run.code == 0 and run.seconds < 1:
        yield Violation(f"it ended after {run.seconds:.1f} s")


@rule(
    "warn",
    "Python keeps output back in blocks when stdout is not a terminal: nothing to follow, nothing to stop early by.",
    where="output",
    hint="run python -u, set PYTHONUNBUFFERED=1, or print with flush=True",
)
def _output_comes_late(run: _CommandRun) -> Iterator[Violation]:
    if run.code is None and not run.output:
        yield Violation(f"nothing was printed in {run.seconds:.0f} s")
    elif run.code is not None and run.seconds > 2 and run.output.count("\n") > 2 and run.late:
        yield Violation("everything was printed in the last moment")


@rule(
    "warn",
    "The collector waits for every process in the pod; one left behind keeps the trial running.",
    where="processes",
    hint="wait for what the program starts, or end it",
)
def _processes_left_behind(run: _CommandRun) -> Iterator[Violation]:
    if run.left:
        yield Violation("processes were still there after its end")


@rule(
    "fail",
    "A File or TensorFlowEvent collector reads what the program writes, not what it prints.",
    where="collector",
)
def _metrics_not_written(run: _CommandRun) -> Iterator[Violation]:
    if run.missing and run.code is not None:
        hint = f"write the metrics to {run.missing}, best by naming the path in the command; or collect from StdOut"
        yield Violation(f"the command wrote nothing to {run.missing}", hint=hint)


def examine_command(
    words: Sequence[str],
    choose: Callable[[Sequence[str]], Reader],
    *,
    seconds: float,
    subject: str,
) -> Report:
    """Run a command and report what Katib would read.

    It runs through the very shell line that Katib makes of it. If the shell would change it, it
    runs as given, so that a stray ``;`` does no harm here, and the report fails.

    Args:
        words: The program and its arguments.
        choose: Returns a reader for the printed lines. The path of its collector, where a word
            names it, is replaced by a temporary one.
        seconds: Time limit of the command.

    Raises:
        InvalidInput: There is no command, or no time.
    """
    if not words:
        raise InvalidInput("there is no command to run", "podium doctor -- python train.py")
    require(seconds > 0, "seconds > 0", seconds=seconds)
    collector = choose(()).collector
    broken = [
        replace(finding, where=finding.where.rpartition(".")[2])
        for finding in apply(SHELL_RULES, _trial(words))
    ]
    wrapped = all(finding.rule != "shell-breaks-words" for finding in broken)
    with tempfile.TemporaryDirectory(prefix="podium-doctor-") as folder:
        run, metrics = _execute(words, seconds, Path(folder), wrapped=wrapped, collector=collector)
        log = _examine_metrics(run, metrics, choose, subject, collector)
    rules = [
        rule for rule in RUN_RULES if collector.kind == "StdOut" or rule is not _output_comes_late
    ]
    own = apply(rules, run)
    in_log = [_later(finding) if run.code is None else finding for finding in log.findings]
    details = {
        "exit": run.code,
        "seconds": round(run.seconds, 2),
        **log.details,
        "commands": {"it": collector.wrap(words)},
    }
    return Report(
        subject=subject,
        kind="command",
        findings=worst_first([*broken, *own, *in_log]),
        details=details,
    )


def _trial(words: Sequence[str]) -> Experiment:
    container = {"name": "main", "command": list(words)}
    job = {"kind": "Job", "spec": {"template": {"spec": {"containers": [container]}}}}
    return Experiment.parse(
        {"spec": {"trialTemplate": {"primaryContainerName": "main", "trialSpec": job}}}
    )


def _examine_metrics(
    run: _CommandRun,
    metrics: Path,
    choose: Callable[[Sequence[str]], Reader],
    subject: str,
    collector: Collector,
) -> Report:
    if collector.kind == "TensorFlowEvent":
        return examine_events(metrics, choose([]), subject)
    if collector.kind != "File":
        lines = run.output.splitlines()
        return examine_given(lines, choose(lines), subject)
    lines = metrics.read_text(errors="replace").splitlines() if metrics.is_file() else []
    return examine_log(lines, choose(lines), subject)


def _later(finding: Finding) -> Finding:
    if finding.rule not in ("objective-missing", "scalar-missing"):
        return finding
    return replace(finding, level="warn", hint=f"give it more time (--seconds), or {finding.hint}")


def _execute(
    words: Sequence[str],
    seconds: float,
    folder: Path,
    *,
    wrapped: bool,
    collector: Collector,
) -> tuple[_CommandRun, Path]:
    """Run words with their output in a file, as in a pod; stop all their processes at the limit.

    Args:
        words: The program and its arguments.
        folder: Directory for the output, and for a replacement of the collector's path.
        wrapped: Whether through Katib's shell line; else as given.
        collector: Katib's collector.

    Returns:
        How it went, and the file or folder that the collector would read.
    """
    file, metrics = folder / "metrics.log", folder / "collected"
    file.touch()
    if collector.path.strip("/"):
        path = PurePosixPath(collector.path)
        named = named_folder(path, words)
        words = [word.replace(str(named), str(metrics)) for word in words]
        metrics = metrics / path.relative_to(named)
        (metrics if collector.kind == "TensorFlowEvent" else metrics.parent).mkdir(
            parents=True, exist_ok=True
        )
    collected = str(metrics) if collector.path else str(file)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    begin, clock = time.monotonic(), time.time()
    with file.open("ab") as output:
        sink = subprocess.DEVNULL if wrapped and collector.kind == "StdOut" else output
        argv = replace(collector, path=collected).wrap(words) if wrapped else tuple(words)
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            text = f"{words[0]}: {error.strerror}"
            return _CommandRun(seconds=0, code=127, first=None, left=False, output=text), metrics
    try:
        first = _follow(child, file, begin, begin + seconds)
        code, spent = child.poll(), time.monotonic() - begin
        left = code is not None and signal_group(child.pid, 0)
    finally:
        _stop(child)
    written = next(
        (path for path in (metrics, Path(collector.path)) if _written(path, clock)), None
    )
    missing = collector.path if collector.path and not written else None
    text = file.read_text(errors="replace")
    return _CommandRun(
        seconds=spent, code=code, first=first, left=left, output=text, missing=missing
    ), written or metrics


def _written(path: Path, since: float) -> bool:
    """Return whether a file, or an event file below a folder, was written after a time."""
    files = [path] if path.is_file() else path.rglob("*tfevents*") if path != Path() else []
    return any(file.stat().st_mtime >= since - 1 for file in files)


def _follow(child: "subprocess.Popen[bytes]", file: Path, begin: float, end: float) -> float | None:
    """Wait for a process to end or reach the limit; return the seconds until its first output."""
    first = None
    while True:
        ended = child.poll() is not None
        if first is None and file.stat().st_size:
            first = time.monotonic() - begin
        if ended or time.monotonic() >= end:
            return first
        time.sleep(_PAUSE)


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """End a process and its group: politely, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        end = time.monotonic() + GRACE
        if not signal_group(child.pid, number):
            break
        while time.monotonic() < end:
            child.poll()
            if not signal_group(child.pid, 0):
                return
            time.sleep(_PAUSE)
    child.wait(GRACE)

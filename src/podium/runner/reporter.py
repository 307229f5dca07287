"""Reports of the child process of `podium run`: events on stdout, a log file for each step."""

import codecs
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

from podium.runner.messages import KFP, Event
from podium.training.base import PROGRESS

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL, as a kubelet gives a pod."""


def end(processes: Iterable[subprocess.Popen[bytes]], grace: float = GRACE) -> None:
    """End supervised processes: SIGTERM, and after the grace what they still run is killed."""
    processes, deadline = list(processes), time.monotonic() + grace
    for process in processes:
        process.terminate()
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        if process.stdin:
            with suppress(BrokenPipeError):
                process.stdin.close()  # its supervisor kills then


_EXECUTOR, _INPUTS = "[KFP Executor ", "Got executor_input:"

LONGEST = 1 << 16
"""Characters of a line of a step's output; a longer one is kept as several."""


class Reporter:
    """Writes events and logs, of several steps at once, and knows their processes.

    Args:
        logs: Directory of the log files.
        events: Where events are written.
    """

    def __init__(self, logs: Path, events: TextIO) -> None:
        self.logs, self.scratch = logs, logs
        self.titles: dict[str, str] = {}
        """Of the steps that are known, in the order they run."""

        self._events, self._lock = events, threading.Lock()
        self._stop = threading.Event()
        self.running: list[subprocess.Popen[bytes]] = []
        """Processes of steps that were begun; some have ended."""

        self._grace: float | None = None  # set once the time is up

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def report(self, kind: str, **more: Any) -> None:
        """Write an event. A broken pipe is ignored: the caller is gone and the run is ending."""
        with self._lock, suppress(BrokenPipeError):
            self._events.write(Event(kind=kind, **more).to_line())
            self._events.flush()

    def begin(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes] | None:
        """Start the process of a step, unless the run was cancelled.

        One that was about to start when the signal came has missed it, and gets it from here.
        """
        if self.stopping:
            return None
        process = start()
        self.running.append(process)
        if self._grace is not None:
            end([process], self._grace)
        elif self.stopping:
            process.terminate()
        return process

    def stop(self, *_: Any) -> None:
        """Handle SIGTERM: running steps get it too, clean up and end."""
        self._stop.set()
        for process in self.running:
            process.terminate()

    def end(self, grace: float = GRACE) -> None:
        """Stop at a limit: what does not end within the grace is killed."""
        self._grace = grace
        self.stop()
        end(self.running, grace)

    def wait(self, seconds: float) -> None:
        """Wait, unless the run is cancelled meanwhile."""
        self._stop.wait(seconds)

    def repeat(self, names: Sequence[str], times: int) -> None:
        """Put as many steps in the place of each as a loop has rounds, and report all."""
        with self._lock:
            self.titles = {
                new: said
                for name, title in self.titles.items()
                for new, said in (
                    [(f"{name}.{at}", f"{title} {at + 1}/{times}") for at in range(times)]
                    if name in names
                    else [(name, title)]
                )
            }
        self.report("loop", steps=self.titles)

    def log(self, name: str, line: str) -> None:
        with self._lock, (self.logs / f"{name}.log").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


class StepLog:
    """The output of one step, of which KFP's own lines go to kfp.log.

    Args:
        reporter: Takes the lines.
        step: Name of the step.
    """

    def __init__(self, reporter: Reporter, step: str) -> None:
        self.reporter, self.step = reporter, step
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest, self._in_inputs = "", False

    def write(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + self._decoder.decode(piece)).split("\n")
        if len(self._rest) > LONGEST:  # who prints no line end is not waited for
            lines, self._rest = [*lines, self._rest], ""
        lines = [line.rstrip("\r") for line in lines]
        for log, group in groupby(lines, self._log_of):
            before = f"{self.step}: " if log == KFP else ""
            self.reporter.log(log, "\n".join(f"{before}{line}" for line in group))
        for line in lines:
            if line.startswith(PROGRESS):
                self.reporter.report("line", step=self.step, text=line)

    def close(self) -> None:
        """Take what is left, a line without an end."""
        if self._rest:
            self.write(b"\n")

    def _log_of(self, line: str) -> str:
        # KFP's executor prints its inputs as an indented JSON object.
        if self._in_inputs or line.startswith(_EXECUTOR):
            self._in_inputs = line != "}" if self._in_inputs else line.endswith(_INPUTS)
            return KFP
        return self.step

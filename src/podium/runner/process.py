"""`podium run`: a pipeline on this machine, start to end, in one directory.

The pipeline itself runs in a child process in its own session (``podium.runner.child``), which
SIGTERM stops with all its steps. Everything of a run is in ``<home>/runs/<run id>/``::

    run.json        parameters, and the state and time of each step
    logs/           one file per step with all its output
    artifacts/      inputs and outputs of the steps, of each attempt
    cluster/        the local cluster: jobs, experiments, trials and their logs
    report.html     the whole run as one page
"""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from podium.display.terminal import doing
from podium.errors import Conflict, Failed
from podium.runner.messages import Event, Order
from podium.runner.record import STOP, RunRecord, StepRecord, process_of, snapshot
from podium.system.background import Background
from podium.system.interrupts import signals_interrupt
from podium.system.processes import signal_group
from podium.system.settings import Settings
from podium.training.identity import RUN_ID

STOP_SECONDS = 40
"""Seconds that a cancelled step has to stop the objects it started."""

POLL_SECONDS = 0.5
"""Seconds between checks of a run of another process."""

Watcher = Callable[[RunRecord, str, str], None]
"""Called on every change with the run, the step (or "") and the step's message (or "")."""


def check_run(
    pipeline: str, words: Sequence[str], settings: Settings, project: Path | None = None
) -> RunRecord:
    """Return the record that a run of a pipeline would begin with; nothing is created.

    Args:
        words: Parameters as ``name=value``.
        project: A ``podium.yaml`` that gives the parameters that are not among the words.

    Raises:
        InvalidInput: As of start.
    """
    from podium.runner.child import checked  # which is to be loaded by the child alone
    from podium.runner.compiled import Compiled

    run = RunRecord(id="", pipeline=pipeline, directory=settings.runs, words=list(words))
    run.state = "planned"
    order = _order(run, settings, words=list(words), project=str(project or ""))
    definition, run.parameters, _, run.packed = checked(order)
    steps = Compiled(definition.spec).titles
    run.steps = {name: StepRecord(title=title) for name, title in steps.items()}
    return run


def go_on(run: RunRecord, settings: Settings, **more: Any) -> "RunningPipeline":
    """Go on with a run that was stopped, was killed or failed; what is done is not repeated.

    Args:
        settings: Directories of runs and models.
        more: Fields of the order.

    Raises:
        Conflict: It is running.
        InvalidInput: A value breaks a rule.
    """
    if run.state == "running":
        raise Conflict(f"run {run.id} is running", "wait for its end, or stop it")
    (run.directory / STOP).unlink(missing_ok=True)
    for name, step in run.steps.items():
        if not step.is_done:
            run.steps[name] = StepRecord(title=step.title, attempt=step.attempt)
    run.state, run.outputs = "running", {}  # which are of the values that it had
    attempts = {name: run.identity(step.attempt) for name, step in run.steps.items()}
    return start(run, settings, resumed=run.parameters, attempts=attempts, **more)


def _order(run: RunRecord, settings: Settings, **parameters: Any) -> Order:
    defaults = {"storage": settings.storage, "cluster": f"local://{run.cluster}"}
    return Order(
        run=run.id,
        began=run.began,
        pipeline=run.pipeline,
        directory=str(run.directory),
        defaults=defaults,
        cache=str(settings.home / "cache"),
        environments=str(settings.cache / "environments"),
        places=run.places,
        **parameters,
    )


def start(run: RunRecord, settings: Settings, **fields: Any) -> "RunningPipeline":
    """Begin a run; return as soon as its parameters are checked.

    Args:
        settings: Directories of runs and models.
        fields: Those of the order.

    Raises:
        InvalidInput: The pipeline or a parameter is unknown, a value breaks a rule, or this machine
            cannot run it; nothing was created.
    """
    order = _order(run, settings, **fields)
    with signals_interrupt(), doing("starting"):
        running = RunningPipeline(run, order)
        try:
            running.wait_for_steps()
        except BaseException:
            running.stop()
            raise
    return running


class RunningPipeline:
    """A run that this process carries out, in a child process; a thread records what the child
    reports.

    The run is stopped when this process ends, however it does.

    Args:
        run: The run's record, which changes as it runs.
        order: Order for the child process.
    """

    def __init__(self, run: RunRecord, order: Order) -> None:
        self.run = run
        self._error: BaseException | None = None
        self._stopping = False
        self.debugged: Event | None = None
        """The step that the run stopped before, for a person."""

        self._has_begun = False
        self._has_steps = threading.Event()
        self._changes: SimpleQueue[tuple[RunRecord, str, str] | None] = SimpleQueue()
        self._child = _start_child(order, run)
        run.process = str(self._child.pid)
        self._recorder = Background(self._record, f"podium-run-{run.id}")
        self._recorder.start()
        atexit.register(self.stop)

    def wait_for_steps(self) -> None:
        """Wait until the child has reported the steps.

        Raises:
            InvalidInput: The parameters were refused.
        """
        self._has_steps.wait()
        if self._error and not self._has_begun:
            raise self._error

    def follow(self, watcher: Watcher) -> None:
        """Call a watcher for each change since the last call, in this thread, and return when
        nothing runs any more.

        Raises:
            Failed: A step failed; the message holds its error and the hint names its log.
            KeyboardInterrupt: SIGINT, SIGTERM or SIGHUP arrived; everything was stopped, and a note
                says how to resume.
        """
        with signals_interrupt():
            try:
                while change := self._changes.get():
                    watcher(*change)
            except KeyboardInterrupt as interrupt:
                self.stop()
                interrupt.add_note(
                    f"finished steps are kept; continue with: {self.run.resume_command}"
                )
                raise
        self._changes.put(None)  # for the next call
        self._recorder.join()
        if self._error:
            raise self._error

    def stop(self) -> None:
        """Stop everything of the run; return when nothing of it runs any more."""
        self._stopping = True
        signal_group(self._child.pid, signal.SIGTERM)
        if not self._recorder.join(STOP_SECONDS):
            signal_group(self._child.pid, signal.SIGKILL)
        self._recorder.join()

    @property
    def _is_stopping(self) -> bool:
        return self._stopping or (self.run.directory / STOP).exists()

    def _record(self) -> None:
        try:
            assert self._child.stdout is not None
            for line in self._child.stdout:
                if line.endswith("\n"):  # else it was killed within it
                    self._take(Event.of_line(line))
            code = self._child.wait()
            self.run.end(code, stopped=self._is_stopping or self.debugged is not None)
            if code and not self._stopping and not self.debugged:
                problem = f"run {self.run.id} was stopped by another process"
                raise Failed(problem, f"continue with: {self.run.resume_command}")
        except BaseException as error:  # raised where somebody waits
            self._error = error
        finally:
            self._close()

    def _take(self, event: Event) -> None:
        if event.kind == "debug":
            self.debugged = event
            return
        if event.kind == "failure" and self._is_stopping:
            return  # the step was stopped, and did not fail by itself
        if not self.run.take(event):
            return
        self._changes.put((snapshot(self.run), event.step, event.text))
        self._has_begun = True
        self._has_steps.set()

    def _close(self) -> None:
        signal_group(self._child.pid, signal.SIGKILL)
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream:
                with suppress(BrokenPipeError):
                    stream.close()
        atexit.unregister(self.stop)
        self._has_steps.set()
        self._changes.put(None)


def follow_elsewhere(run: RunRecord, watcher: Watcher) -> RunRecord:
    """Call a watcher for each change of a run that another process carries out; return its last
    record.

    Raises:
        Failed: It has not succeeded.
    """
    seen: dict[str, str] = {}
    watcher(run, "", "")
    while True:
        for name, step in run.steps.items():
            if step.state != seen.get(name, "pending"):
                seen[name] = step.state
                watcher(run, name, "")
        if run.state != "running":
            break
        time.sleep(POLL_SECONDS)
        run = RunRecord.read(run.directory)
        if run.state == "killed":  # or its process has ended, and the record follows
            time.sleep(POLL_SECONDS)
            run = RunRecord.read(run.directory)
    if run.state != "succeeded":
        raise Failed(
            f"run {run.id} has not succeeded: it is {run.state}",
            f"continue with: {run.resume_command}",
        )
    return run


def stop_elsewhere(run: RunRecord) -> None:
    """Stop a run that another process carries out; return when nothing of it runs any more.

    Raises:
        Conflict: It belongs to another user, or does not end.
    """
    process = process_of(run.directory)
    (run.directory / STOP).touch()
    try:
        if process is not None:
            os.killpg(process, signal.SIGTERM)
    except PermissionError:
        raise Conflict(f"run {run.id} belongs to another user", "stop it as that user") from None
    except ProcessLookupError:
        pass  # it has just ended
    end = time.monotonic() + STOP_SECONDS
    while process_of(run.directory) is not None or RunRecord.read(run.directory).state == "running":
        if time.monotonic() > end:
            problem = f"run {run.id} has not ended within {STOP_SECONDS} s"
            raise Conflict(
                problem, f"kill -9 -- -{process}" if process else "press Ctrl-C where it runs"
            )
        time.sleep(POLL_SECONDS)


def _start_child(order: Order, run: RunRecord) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "podium.runner.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, RUN_ID: run.identity(), "PYTHONUTF8": "1"},  # kfp takes no other paths
        cwd=run.folder if os.path.isdir(run.folder) else None,
        start_new_session=True,
        encoding="utf-8",
        errors="surrogateescape",
    )
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # it was killed already, which its reader finds out
        child.stdin.write(order.to_line())
        child.stdin.flush()  # and left open: the child ends when it closes
    return child

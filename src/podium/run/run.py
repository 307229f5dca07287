"""`podium run`: a pipeline on this machine, start to end, in one directory.

The pipeline itself runs in a child process in its own session (``podium.run.child``), so that one signal to its
process group stops the run. Everything of a run is in ``<home>/runs/<run id>/``::

    run.json        parameters, and the state and time of each step
    logs/           one file per step with all its output
    artifacts/      inputs and outputs of the steps, kept by kfp.local
    cluster/        the local cluster: jobs, experiments, trials and their logs
    report.html     the whole run as one page
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from podium.errors import Conflict, Failed, InvalidInput, PodiumError
from podium.identity import RUN_ID, new_run_id
from podium.interrupts import signals_interrupt
from podium.run.runs import Run, StepRecord
from podium.settings import Settings

PATIENCE = 40
"""Seconds a cancelled step has to stop what it started."""


Watcher = Callable[[Run, str, str], None]
"""Called on every change with the run, the step it is about (or "") and what the step said (or "")."""


def resume_run(run: Run, settings: Settings, watcher: Watcher, first: str = "") -> Run:
    """Go on with a run that was stopped, was killed or failed: its finished steps and trials are not repeated.

    Args:
        run: As Runs returns it.
        settings: Directories of runs and models.
        watcher: Called on every change.
        first: Step that is repeated with all after it, even where they had finished.

    Raises:
        InvalidInput: It has succeeded and no first step is named, or it has no such step.
        Conflict: It is running.
        Failed, KeyboardInterrupt: As run_pipeline.
    """
    if run.state == "running":
        raise Conflict(f"run {run.id} is running", "wait for its end, or stop it")
    if first:
        run.repeat(first)
    elif run.state == "succeeded":
        hint = f"--from STEP repeats a step and all after it: {', '.join(run.steps)}"
        raise InvalidInput(f"run {run.id} has succeeded: nothing is left to do", hint)
    for step in run.steps.values():
        if not step.is_done:
            step.state, step.started, step.seconds, step.exit_code = "pending", None, None, None
    run.state = "running"
    attempts = {name: run.identity(step.attempt) for name, step in run.steps.items()}
    return _carry_out(run, {"values": run.parameters, "attempts": attempts}, settings, watcher)


def run_pipeline(
    pipeline: str, words: Sequence[str], settings: Settings, watcher: Watcher, project: Path | None = None
) -> Run:
    """Run a pipeline and return when nothing of it runs any more.

    Args:
        pipeline: Its name, or ``FILE.py``.
        words: Parameters as ``name=value``.
        settings: Directories of runs and models.
        watcher: Called on every change.
        project: A ``podium.yaml`` that gives the parameters that are not among the words.

    Raises:
        InvalidInput: The pipeline or a parameter is unknown, or a value breaks a rule; nothing was created.
        Failed: A step failed; the message holds its error and the hint names its log.
        KeyboardInterrupt: SIGINT, SIGTERM or SIGHUP arrived and everything was stopped. Its notes say how to resume.
    """
    run = Run(id=new_run_id(), pipeline=pipeline, directory=Path())
    run.directory = settings.runs / run.id
    return _carry_out(run, {"words": list(words), "project": str(project or "")}, settings, watcher)


def _carry_out(run: Run, parameters: dict[str, Any], settings: Settings, watcher: Watcher) -> Run:
    defaults = {"storage": settings.storage, "cluster": f"local://{run.cluster}"}
    order = {"run": run.id, "pipeline": run.pipeline, "directory": str(run.directory), "defaults": defaults,
             "cache": str(settings.home / "cache"), **parameters}  # fmt: skip
    try:
        with _child(order, run.identity()) as child:
            assert child.stdout is not None
            for line in child.stdout:
                _follow(run, json.loads(line), watcher)
            code = child.wait()
    except KeyboardInterrupt as interrupt:
        _stopped(run)
        if run.steps:
            interrupt.add_note(f"what finished is kept; go on with: {_resume_command(run)}")
        raise
    _end(run, code)
    return run


def _resume_command(run: Run) -> str:
    return f"podium run --resume {run.id}"


@contextmanager
def _child(order: dict[str, Any], run: str) -> Iterator[subprocess.Popen[str]]:
    """Start the child; on leaving, kill whatever is left of its process group."""
    with signals_interrupt():
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "podium.run.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, RUN_ID: run, "PYTHONUTF8": "1"},  # kfp takes no paths that are not
            start_new_session=True, encoding="utf-8", errors="surrogateescape",
        )  # fmt: skip
        try:
            assert child.stdin is not None
            child.stdin.write(json.dumps(order, ensure_ascii=False) + "\n")
            child.stdin.flush()  # and left open: the child ends when it closes
            yield child
        except BaseException:
            _stop(child)
            raise
        finally:
            _signal(child, signal.SIGKILL)
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream:
                    stream.close()


def _stop(child: subprocess.Popen[str]) -> None:
    _signal(child, signal.SIGTERM)
    end = time.monotonic() + PATIENCE
    while child.poll() is None and time.monotonic() < end:
        time.sleep(0.05)


def _signal(child: subprocess.Popen[str], number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        return


def _follow(run: Run, event: dict[str, Any], watcher: Watcher) -> None:
    kind, name = event["event"], event.get("step", "")
    if kind == "refused":
        if run.steps:
            run.state = "failed"
            run.save()
        raise InvalidInput(event["message"], event["hint"])
    if kind == "steps":
        run.parameters = event["parameters"]
        run.steps = {step: run.steps.get(step, StepRecord(title=title)) for step, title in event["steps"].items()}
    elif kind == "outputs":
        run.outputs = event["outputs"]
        return
    elif name and name not in run.steps:  # inside a pipeline that is part of this one
        run.steps[name] = StepRecord(title=name)
    if kind == "start":
        run.steps[name].state, run.steps[name].started = "running", time.time()
    elif kind == "cached" and not run.steps[name].is_done:
        run.steps[name].state, run.steps[name].seconds = "cached", 0.0
    elif kind in ("success", "failure"):
        step = run.steps[name]
        step.state = "succeeded" if kind == "success" else "failed"
        step.exit_code = event.get("code")
        step.seconds = round(time.time() - (step.started or time.time()), 3)
    if kind != "line":
        run.save()
    watcher(run, name, event.get("text", ""))


def _stopped(run: Run) -> None:
    run.state = "stopped"
    for step in run.steps.values():
        step.state = "stopped" if step.state == "running" else step.state
    if run.directory.is_dir():
        run.save()


def _end(run: Run, code: int) -> None:
    if code == 0:
        run.state = "succeeded"
        run.save()
        return
    run.state = "failed"
    failed = next((name for name, step in run.steps.items() if step.state in ("failed", "running")), None)
    if failed:
        run.steps[failed].state = "failed"
    if run.directory.is_dir():
        run.save()
    who, code = (f'step "{run.steps[failed].title}"', run.steps[failed].exit_code or code) if failed else ("run", code)
    if killer := _killed_by(code):
        hint = f"its log: {run.log(failed or 'kfp')}; go on with: {_resume_command(run)}"
        raise Failed(f"{who} was killed by {killer}", hint)
    if failed is None:
        raise PodiumError(f"run {run.id} broke off (exit code {code})", f"see {run.log('kfp')}")
    raise Failed(
        f'step "{run.steps[failed].title}" failed\n{_last_words(run.log(failed))}',
        f"its log: {run.log(failed)}; once that is fixed go on with: {_resume_command(run)}",
    )


def _killed_by(code: int) -> str | None:
    """Return the signal of an exit code, as Popen or a shell gives it; None for any other."""
    number = -code if code < 0 else code - 128
    if number not in set(signal.Signals):
        return None
    name = signal.Signals(number).name
    return f"{name}, as when the memory is used up" if number == signal.SIGKILL else name


def _last_words(log: Path) -> str:
    """Return a step's error: the log from its last line "error: …" on, else the end of the log."""
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    while lines and not lines[-1].strip():
        lines.pop()
    start = next((number for number in range(len(lines) - 1, -1, -1) if lines[number].startswith("error: ")), None)
    words = lines[-12:] if start is None else [lines[start].removeprefix("error: "), *lines[start + 1 :]]
    return "\n".join(f"  {line}" for line in words)

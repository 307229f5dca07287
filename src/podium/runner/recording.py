"""The record of a run that is carried out: what its child process reports, and how it ended."""

import json
import signal
import time
from pathlib import Path
from typing import Any

from podium.errors import Failed, InvalidInput, PodiumError
from podium.runner.messages import Event
from podium.runner.runs import Run, StepRecord
from podium.steps.base import FIX

PREPARING = ("fingerprint-data", "prepare-data")
"""Steps after which nothing is lost by a new run, while a resumed one would keep a parameter that they refused."""


def record_event(run: Run, event: Event) -> bool:
    """Change a run's record by what its child reports; return whether that is anything to show.

    Raises:
        InvalidInput: The child refused the run.
    """
    if event.kind == "refused":
        if run.steps:
            run.state = "failed"
            run.save()
        raise InvalidInput(event.text, event.hint)
    if event.kind == "steps":
        run.parameters = dict(event.values)
        run.steps = {name: run.steps.get(name, StepRecord(title=title)) for name, title in event.steps.items()}
    elif event.kind == "outputs":
        run.outputs = dict(event.values)
        return False
    elif event.step:  # one that is not known is inside a pipeline that is part of this one
        _record_step(run.steps.setdefault(event.step, StepRecord(title=event.step)), event)
    if event.kind != "line":
        run.save()
    return True


def _record_step(step: StepRecord, event: Event) -> None:
    if event.kind == "start":
        step.state, step.started, step.seconds = "running", time.time(), None
    elif event.kind == "cached" and not step.is_done:
        step.state, step.seconds = "cached", 0.0
    elif event.kind in ("success", "failure"):
        step.state = "succeeded" if event.kind == "success" else "failed"
        step.exit_code = event.code
        step.seconds = round(time.time() - (step.started or time.time()), 3)


def record_end(run: Run, code: int, *, stopped: bool) -> None:
    """Record how a run ended.

    Args:
        code: Exit code of its child.
        stopped: Whether it was stopped on purpose.

    Raises:
        Failed: A step failed, or a signal killed it.
        PodiumError: The child broke off by itself.
    """
    failed = next((name for name, step in run.steps.items() if step.state in ("failed", "running")), None)
    if code and failed and not stopped:
        run.steps[failed].state = "failed"
    run.close("succeeded" if code == 0 else "stopped" if stopped else "failed", time.time())
    if run.directory.is_dir():  # else it ended before it was begun
        run.save()
    if code and not stopped:
        raise _failure(run, failed, code)


def _failure(run: Run, step: str | None, code: int) -> PodiumError:
    """Return the error of a step, or of the run if it failed outside of all steps."""
    who = f'step "{run.steps[step].title}"' if step else "run"
    if killer := _killed_by(run.steps[step].exit_code or code if step else code):
        hint = f"its log: {run.log(step or 'kfp')}; go on with: {run.resume_command}"
        return Failed(f"{who} was killed by {killer}", hint)
    if step is None:
        return PodiumError(f"run {run.id} broke off (exit code {code})", f"see {run.log('kfp')}")
    words, fix = _last_words(run.log(step))
    again = run.resume_command
    if step in PREPARING and run.words is not None:
        again = run.command(fix)
    go_on = "this command changes that" if fix else "once that is fixed go on with"
    return Failed(f"{who} failed\n{words}", f"its log: {run.log(step)}; {go_on}: {again}")


def _killed_by(code: int) -> str | None:
    """Return the signal of an exit code, as Popen or a shell gives it; None for any other."""
    number = -code if code < 0 else code - 128
    if number not in set(signal.Signals):
        return None
    name = signal.Signals(number).name
    return f"{name}, as when the memory is used up" if number == signal.SIGKILL else name


def _last_words(log: Path) -> tuple[str, dict[str, Any]]:
    """Return a step's error, the log from its last line "error: …" on, else the end of the log; and what fixes it."""
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    while lines and not lines[-1].strip():
        lines.pop()
    start = next((number for number in range(len(lines) - 1, -1, -1) if lines[number].startswith("error: ")), None)
    words = lines[-12:] if start is None else [lines[start].removeprefix("error: "), *lines[start + 1 :]]
    fix = json.loads(words.pop().removeprefix(FIX)) if start is not None and words[-1].startswith(FIX) else {}
    return "\n".join(f"  {line}" for line in words), fix

"""Runs of pipelines as pages: on this machine, and on a server of Kubeflow Pipelines."""

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import podium
from podium.errors import NotFound, PodiumError
from podium.kfp.runs import OVER
from podium.runner.record import last_lines
from podium.runner.run import Run
from podium.text import harmless
from podium.training.kept_logs import KeptLogs
from podium.ui.view import LINES, View

if TYPE_CHECKING:
    from podium.kfp.runs import ServerRun


def rows_of(most: int | None = None) -> list[dict[str, Any]]:
    """Return the list entry of each run on this machine, the newest first."""
    known = podium.runs().all[::-1]
    return [_row(run) for run in known[:most]]


def _row(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "subject": run.subject,
        "state": run.state,
        "began": run.began,
        "seconds": run.seconds,
        "path": f"/runs/{run.id}",
        "result": _result(str(run.directory), run.state),
        "steps": [{"title": step.title, "state": step.state} for step in run.record.steps.values()],
    }


@lru_cache(maxsize=4096)
def _result(directory: str, state: str) -> str:
    """Return the result of a run, which takes several files to read, once."""
    ended = state in ("succeeded", "failed")
    return podium.runs()[Path(directory).name].result if ended else ""


def view(run: Run, path: str, step: str) -> View:
    """Return the page of a run.

    Args:
        path: Path of the page.
        step: Step whose log it shows; empty for the one that failed, runs, or ended last.

    Raises:
        NotFound: There is no such step.
    """
    record = run.record
    if step and step not in record.steps:
        raise NotFound(f"run {run.id} has no step {step!r}")
    shown = step or _interesting(run)
    log = record.log(shown) if shown else None
    lines = tail(log) if log and log.is_file() else []
    outcome: dict[str, Any] = {}
    with suppress(PodiumError):
        outcome = run.outcome
    sweep = ""
    with suppress(PodiumError, OSError):
        sweep = run.sweep.name if record.cluster.is_dir() else ""
    return View(
        template="run.html.jinja",
        title=f"{run.id}",
        over=run.state != "running",
        shown={
            "run": run,
            "result": _result(str(run.directory), run.state) if outcome else "",
            "steps": record.steps,
            "path": path,
            "step": shown,
            "lines": lines,
            "sweep": sweep,
            "decision": outcome.get("decision"),
            "metric": (outcome.get("metric") or {}).get("name", ""),
            "outputs": run.outputs,
            "has_report": bool(outcome.get("report")),
        },
    )


def _interesting(run: Run) -> str:
    """Return the step that failed, else the one that runs, else the last that ended."""
    steps = run.record.steps
    for state in ("failed", "running"):
        if found := [name for name, step in steps.items() if step.state == state]:
            return found[-1]
    ended = [name for name, step in steps.items() if step.state not in ("pending", "cached")]
    return ended[-1] if ended else ""


def tail(log: Path, most: int = LINES) -> list[str]:
    """Return the last lines of a file, of which only the end is read."""
    return list(map(harmless, last_lines(log, most)))


def server_view(run: "ServerRun", path: str, storage: str, log: str) -> View:
    """Return the page of a run of a server.

    Args:
        path: Path of the page.
        storage: Storage of the logs of its steps, trials and trainings, each written at its end.
        log: The one to show; empty for that of a step that failed, else the newest of a step.

    Raises:
        NotFound: There is no such log.
    """
    names, lines, shown, trouble = [], [], "", ""
    try:
        kept = KeptLogs(storage, run.id)
        names = kept.names()
        shown = log or _telling(names, run)
        lines = [harmless(line) for line in kept.read(shown).splitlines()] if shown in names else []
    except PodiumError as error:  # a storage that only pods reach, or a bucket that is gone
        trouble = f"{error.message}; {error.hint}" if error.hint else error.message
    if log and not trouble and log not in names:
        raise NotFound(f"no log {log!r} is kept with run {run.id}")
    return View(
        template="server_run.html.jinja",
        title=run.id,
        over=run.state.upper() in OVER,
        shown={
            "run": run,
            "path": path,
            "logs": names,
            "log": shown,
            "lines": lines[-LINES:],
            "cut": max(0, len(lines) - LINES),
            "storage": storage,
            "trouble": trouble,
        },
    )


def _telling(names: Sequence[str], run: "ServerRun") -> str:
    """Return the log of a step that failed, else of the one that ended last."""
    steps = [name for name in names if name.startswith("steps/")]
    failed = [name for name in steps if run.tasks.get(name.removeprefix("steps/")) == "FAILED"]
    return next(iter([*failed, *steps[::-1]]), "")

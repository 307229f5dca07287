"""Runs of pipelines as pages: on this machine, and on a server of Kubeflow Pipelines."""

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import podium
from podium.display.text import harmless
from podium.errors import NotFound, PodiumError
from podium.kfp.runs import ServerRun
from podium.reports import plots
from podium.runner.messages import KFP, STARTS
from podium.runner.record import last_lines
from podium.runner.run import Run
from podium.training.follow import read_metrics
from podium.training.kept_logs import KeptLogs
from podium.training.recipe import reported_metrics
from podium.ui.sources import Sources
from podium.ui.sweeps import FollowedSweep
from podium.ui.view import LINES, View

_MOST_LINES = 20_000
"""Last lines of a step's log in which metrics are looked for."""


def rows_of() -> list[dict[str, Any]]:
    known = podium.runs().all[::-1]
    return [run.to_json() | {"path": f"/runs/{run.id}"} for run in known]


def view(run: Run, sources: Sources, path: str, step: str) -> View:
    """Return the page of a run.

    Args:
        sources: Has its sweep.
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
    lines = _tail(log) if log and log.is_file() else []
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
        figures=_curves(run, sources.sweep(sweep, run.id) if sweep else None),
        shown={
            "run": run,
            "result": run.result if outcome else "",
            "steps": record.steps,
            "path": path,
            "step": shown,
            "lines": lines,
            "raw": _raw(record.log(KFP), shown),
            "sweep": sweep,
            "decision": outcome.get("decision"),
            "metric": (outcome.get("metric") or {}).get("name", ""),
            "outputs": run.outputs,
            "has_report": bool(outcome.get("report")),
        },
    )


def _curves(run: Run, sweep: FollowedSweep | None) -> dict[str, str]:
    objective = sweep.cluster.experiment(sweep.name).objective.metrics if sweep else ()
    metrics = reported_metrics(*objective, str(run.parameters.get("metric") or ""))
    rows: list[dict[str, Any]] = [
        {"name": step.title, "epochs": _epochs(log, log.stat().st_size, tuple(metrics))}
        for name, step in run.record.steps.items()
        if (log := run.record.log(name)).is_file()
    ]
    rows = [row for row in rows if len(row["epochs"]) > 1]
    if sweep:
        return sweep.curves(rows)
    return plots.learning_curves(rows, metrics, [row["name"] for row in rows], "")


@lru_cache(maxsize=256)
def _epochs(log: Path, size: int, names: tuple[str, ...]) -> list[dict[str, float]]:
    """Return the metrics of each line of a step's log that has some; it is read when it grows."""
    read = (read_metrics(line, names, ()) for line in last_lines(log, _MOST_LINES))
    return [metrics for metrics in read if metrics]


def _raw(log: Path, step: str) -> list[str]:
    own = [
        line.removeprefix(f"{step}: ")
        for line in _tail(log, _MOST_LINES)
        if line.startswith(f"{step}: ")
    ]
    starts = [at for at, line in enumerate(own) if line == STARTS]
    return own[starts[-1] :][:LINES] if starts else []


def _interesting(run: Run) -> str:
    steps = run.record.steps
    for state in ("failed", "running"):
        if found := [name for name, step in steps.items() if step.state == state]:
            return found[-1]
    ended = [
        name for name, step in steps.items() if step.state not in ("pending", "cached", "skipped")
    ]
    return ended[-1] if ended else ""


def _tail(log: Path, most: int = LINES) -> list[str]:
    return list(map(harmless, last_lines(log, most)))


def server_view(run: ServerRun, path: str, log: str) -> View:
    """Return the page of a run of a server.

    Args:
        path: Path of the page.
        log: The one to show; empty for that of a step that failed, else the newest of a step.

    Raises:
        NotFound: There is no such log.
    """
    names, lines, shown, trouble = [], [], "", ""
    try:
        kept = KeptLogs(run.storage, run.id)
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
        over=run.is_over,
        shown={
            "run": run,
            "path": path,
            "logs": names,
            "log": shown,
            "lines": lines[-LINES:],
            "cut": max(0, len(lines) - LINES),
            "storage": run.storage,
            "trouble": trouble,
        },
    )


def _telling(names: Sequence[str], run: ServerRun) -> str:
    steps = [name for name in names if name.startswith("steps/")]
    failed = [name for name in steps if run.tasks.get(name.removeprefix("steps/")) == "FAILED"]
    return next(iter([*failed, *steps[::-1]]), "")

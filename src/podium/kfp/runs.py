"""Submit a run to a server and follow its tasks."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from podium.errors import Failed, PodiumError
from podium.kfp.client import Server
from podium.kfp.code import store_code
from podium.kfp.project import Project, read_given
from podium.kfp.versions import Version

POLL = 2.0
"""Seconds between polls: the server has no watch."""

PATIENCE = 120.0
"""Seconds for which a server may be unavailable while a run is followed."""

LATE = 10.0
"""Seconds to wait after a run's end for its failed task, which 2.0.5 reports later (observed)."""

DEFAULT_ROOT = "minio://mlpipeline/v2/artifacts"
"""Where KFP keeps artifacts unless its ConfigMap kfp-launcher or the run says otherwise."""

OVER = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """A run that was started."""

    run_id: str
    """The server's id, also in the label pipeline/runid of its pods."""

    name: str
    link: str
    """Its page."""


def submit(
    server: Server,
    version: Version,
    words: Sequence[str],
    *,
    group: str,
    name: str | None = None,
    service_account: str | None = None,
    project: Project | None = None,
) -> Submitted:
    """Start a run of a version.

    Args:
        server: The server.
        version: What to run.
        words: Parameters as ``name=value``, checked against the version's own; an Experiment's file is sent as text.
        group: KFP experiment that the run is listed under.
        name: Display name; the pipeline's name and the time if None.
        service_account: Service account of the steps; the server's default if None.
        project: Gives the parameters that are not among the words.

    Raises:
        InvalidInput: A parameter is unknown, of another type, or breaks a rule of its pipeline; nothing was started.
    """
    values, code = version.sendable(read_given(words, version.parameters(), project))
    store_code(code)
    title = name or f"{version.pipeline} {time.strftime('%Y-%m-%d %H:%M:%S')}"
    run = server.call(
        f"run {version.pipeline}",
        server.services.create_run,
        group=server.group(group),
        name=title,
        parameters=values,
        pipeline_id=version.pipeline_id,
        version_id=version.id,
        service_account=service_account,
    )
    return Submitted(run_id=str(run.run_id), name=title, link=server.link(f"runs/details/{run.run_id}"))


def storage_of(server: Server, run_id: str) -> str:
    """Return the storage in which a run keeps its models and logs.

    Args:
        server: The server.
        run_id: The run.

    Returns:
        Its parameter ``storage``; else ``podium`` in the bucket of its artifacts, of KFP's own bucket if it names none.

    Raises:
        NotFound: There is no such run.
    """
    config = server.call(f"read run {run_id}", server.services.get_run, run_id=run_id).runtime_config
    if given := (config.parameters or {}).get("storage") if config else None:
        return str(given)
    root = urlsplit((config.pipeline_root if config else "") or DEFAULT_ROOT)
    return f"{root.scheme}://{root.netloc}/podium"


def follow(server: Server, run_id: str, report: Callable[[str, str], None], timeout: float | None = None) -> str:
    """Wait for the end of a run and report each task's state as it changes.

    Args:
        server: The server; it may be unavailable for two minutes.
        run_id: The run.
        report: Called with a task's name and its state.
        timeout: Seconds; None waits without a limit.

    Returns:
        ``SUCCEEDED``.

    Raises:
        Failed: The run failed or was cancelled; the message names the failed tasks. Or the timeout passed.
    """
    end = float("inf") if timeout is None else time.monotonic() + timeout
    known: dict[str, str] = {}
    answered, over, cancelled = time.monotonic(), float("inf"), False
    while True:
        try:
            run = server.call(f"read run {run_id}", server.services.get_run, run_id=run_id)
            answered = time.monotonic()
        except PodiumError:
            if time.monotonic() - answered > PATIENCE:
                raise
            time.sleep(POLL)
            continue
        cancelled = cancelled or _cancelled(run)  # 2.16.1 does not always report it (observed)
        for task, state in tasks_of(run).items():
            if known.get(task) != state:
                known[task] = state
                report(task, state)
        if run.state in OVER:
            over = min(over, time.monotonic())
            explained = run.state == "SUCCEEDED" or "FAILED" in known.values() or cancelled
            if explained or time.monotonic() - over > LATE:
                return _end(run, known, cancelled)
        elif time.monotonic() > end:
            raise Failed(f"run {run_id} did not end within {timeout:g} s and is still running", "look at it in the UI")
        time.sleep(POLL)


def tasks_of(run: Any) -> dict[str, str]:
    """Return the state of each of the pipeline's own tasks by name, without drivers and the root."""
    details = (run.run_details.task_details if run.run_details else None) or []
    return {str(task.display_name): str(task.state) for task in details if task.state and _is_own(task)}


def _is_own(task: Any) -> bool:
    """Return whether a task is the pipeline's own: not a driver, an executor or the workflow itself."""
    name = task.display_name or ""
    machinery = name in ("", "root", "executor") or name.endswith("-driver")
    # The pods of the workflow's children begin with the workflow's name.
    return not machinery and not any((child.pod_name or "").startswith(f"{name}-") for child in task.child_tasks or [])


def _cancelled(run: Any) -> bool:
    """Return whether the run was cancelled: its final state is FAILED, only its history shows it (observed)."""
    return any(status.state in ("CANCELING", "CANCELED") for status in run.state_history or [])


def _end(run: Any, tasks: dict[str, str], cancelled: bool) -> str:
    if run.state == "SUCCEEDED":
        return "SUCCEEDED"
    failed = [name for name, state in tasks.items() if state == "FAILED"]
    why = run.error.message if run.error and run.error.message else f"failed at {', '.join(failed) or 'no task'}"
    text = f"run {run.run_id} was cancelled" if cancelled else f"run {run.run_id} {why}"
    label = f"pipeline/runid={run.run_id}"
    hint = f"see the steps' logs: podium runs logs {run.run_id}, or kubectl logs -l {label} -c main --tail 50"
    raise Failed(text, f"{hint}; if a pod was refused: kubectl describe workflow -l {label}")

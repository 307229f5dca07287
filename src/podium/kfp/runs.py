"""The runs of a server: submitted, listed, followed, stopped."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, ClassVar
from urllib.parse import urlsplit

from podium.display.text import cut, duration, when
from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.kfp.client import Server
from podium.kfp.code import store_code
from podium.kfp.project import Project, ServerSettings, read_given
from podium.kfp.values import PipelineSettings
from podium.kfp.versions import PipelineVersion, ServerPipelines
from podium.system.pod import STEPS, has_kubeconfig
from podium.training.kept_logs import KeptLogs

POLL_SECONDS = 2.0
"""Longest polling interval: the server has no watch, and many runs end soon after they start."""

_FIRST_POLL_SECONDS = 0.05
"""Before the second poll; each pause is half as long again as the one before."""

PATIENCE = 120.0
"""Seconds for which a server may be unavailable while a run is followed."""

LATE = 10.0
"""Seconds to wait after a run's end for its failed task, which 2.0.5 reports later (observed)."""

_DEFAULT_ROOT = "minio://mlpipeline/v2/artifacts"
"""KFP's artifact root unless its ConfigMap kfp-launcher or the run sets another."""

LINES = 20
"""Last lines of a failed step's error that are shown; the error quotes the end of the pod's log."""

NAMESPACE = "kubeflow"
"""Namespace of the steps on a single-user server."""

_OVER = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")


@dataclass(frozen=True, kw_only=True)
class _Submitted:
    """A run that was started."""

    run_id: str
    """The server's id, also in the label pipeline/runid of its pods."""

    name: str
    link: str
    """URL of the run's page."""


class ServerRuns:
    """The runs of a server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def __getitem__(self, name: str) -> "ServerRun":
        """Return a run by its id, the beginning of the id of one of the newest thousand, or
        ``latest``.

        Raises:
            NotFound: There is none.
            InvalidInput: Several begin so.
        """
        return ServerRun.read(self._find(name), ServerPipelines(self.server).names())

    def _find(self, name: str) -> Any:
        reading, read = f"read run {name}", self.server.runs.run_service_get_run
        if name == "latest":
            matching = [str(run.run_id) for run in self._listed(1)]
        else:
            with suppress(NotFound, InvalidInput):  # 2.0.5 says an id it lacks is invalid
                return self.server.call(reading, read, run_id=name)
            listed = [str(run.run_id) for run in self._listed(1000)]
            matching = [run_id for run_id in listed if name and run_id.startswith(name)]
        if len(matching) > 1:
            raise InvalidInput(
                f"{len(matching)} runs begin with {name!r}", f"one of {', '.join(matching[:5])}"
            )
        if not matching:
            raise NotFound(
                f"the server has no run {name!r}", "podium runs list --host URL shows the newest"
            )
        return self.server.call(reading, read, run_id=matching[0])

    def newest(self, limit: int) -> list["ServerRun"]:
        """Return at most so many of the runs, the newest last."""
        names = ServerPipelines(self.server).names()
        return [ServerRun.read(run, names) for run in reversed(self._listed(limit))]

    def submit(
        self,
        version: PipelineVersion,
        words: Sequence[str],
        *,
        group: str,
        name: str | None = None,
        service_account: str | None = None,
        pipeline_root: str | None = None,
        project: Project | None = None,
        named: bool = False,
        tell: Callable[[str], None] = lambda line: None,
    ) -> _Submitted:
        """Start a run of a version.

        Args:
            words: Parameters as ``name=value``, checked against the version's own; an Experiment's
                file is sent as text.
            group: KFP experiment that the run is listed under.
            name: Display name; the pipeline's name and the time if None.
            service_account: Service account of the steps; the project's if None, else the server's
                default.
            pipeline_root: URL below which the server keeps the run's artifacts; the same.
            project: Project with the parameters that are not among the words.
            named: Whether the user named this very version.
            tell: Called with a description of the run, before it starts.

        Raises:
            InvalidInput: A parameter is unknown, of another type, or breaks a rule of its
                pipeline, or a shared name holds somebody's project; nothing was started.
        """
        from kfp_server_api import V2beta1Run

        given = read_given(words, version.parameters(), project)
        if not named:
            version.require_own(given)
        values, code = version.sendable(given)
        tell(_announced(version, given))
        own = project.server if project else ServerSettings()
        service_account = service_account or own.service_account or None
        if version.ours:
            for line in _beyond_quotas(
                version.parameters().with_defaults(given), service_account, self.server.namespace
            ):
                tell(f"warning: {line}")
        store_code(code)
        title = name or f"{version.pipeline} {time.strftime('%Y-%m-%d %H:%M:%S')}"
        body = V2beta1Run(
            experiment_id=self.server.group(group),
            display_name=title,
            service_account=service_account,
            **version.body(values, pipeline_root or own.pipeline_root or None),
        )
        run = self.server.call(
            f"run {version.pipeline}",
            self.server.runs.run_service_create_run,
            run=body,
        )
        return _Submitted(
            run_id=str(run.run_id), name=title, link=self.server.link(f"runs/details/{run.run_id}")
        )

    def follow(
        self, run_id: str, report: Callable[[str, str], None], timeout: float | None = None
    ) -> str:
        """Wait for the end of a run and report each task's state as it changes; the server may be
        unavailable for two minutes.

        Args:
            report: Called with a task's name and its state.
            timeout: Seconds; None waits without a limit.

        Returns:
            ``SUCCEEDED``.

        Raises:
            Failed: The run failed or was cancelled; the message names the failed tasks. Or the
                timeout passed.
        """
        end = float("inf") if timeout is None else time.monotonic() + timeout
        states: dict[str, str] = {}
        answered, over, cancelled = time.monotonic(), float("inf"), False
        pause = _FIRST_POLL_SECONDS
        while True:
            try:
                run = self.server.call(
                    f"read run {run_id}", self.server.runs.run_service_get_run, run_id=run_id
                )
                answered = time.monotonic()
            except PodiumError:
                if time.monotonic() - answered > PATIENCE:
                    raise
                time.sleep(pause := min(POLL_SECONDS, 1.5 * pause))
                continue
            cancelled = cancelled or _cancelled(run)  # 2.16.1 does not always report it (observed)
            for task, state in _tasks_of(run).items():
                if states.get(task) != state:
                    states[task] = state
                    report(task, state)
            if run.state in _OVER:
                over = min(over, time.monotonic())
                explained = (
                    _state_of(run) == "SUCCEEDED" or "FAILED" in states.values() or cancelled
                )
                if explained or time.monotonic() - over > LATE:
                    return _end(run, states, cancelled)
            elif time.monotonic() > end:
                raise Failed(
                    f"run {run_id} did not end within {timeout:g} s and is still running",
                    "look at it in the UI",
                )
            time.sleep(pause := min(POLL_SECONDS, 1.5 * pause))

    def in_flight(self, recurring: Sequence[str]) -> tuple[str, ...]:
        """Return the ids of the runs of recurring runs that are not over, newest first, among the
        newest thousand: servers cannot filter runs by what started them."""
        return tuple(
            str(run.run_id)
            for run in self._listed(1000)
            if run.state not in _OVER and run.recurring_run_id in recurring
        )

    def terminate(self, run_id: str) -> None:
        """Cancel a run; its steps clean up after themselves.

        Raises:
            NotFound: There is no such run.
        """
        terminate = self.server.runs.run_service_terminate_run
        self.server.call(f"stop run {run_id}", terminate, run_id=run_id)

    def _listed(self, limit: int) -> list[Any]:
        """Return the server's answers, the newest first."""
        runs = self.server.pages(
            "list runs",
            self.server.runs.run_service_list_runs,
            "runs",
            namespace=self.server.namespace,
            sort_by="created_at desc",
        )
        return list(islice(runs, limit))


def _beyond_quotas(
    values: Mapping[str, Any], service_account: str | None, namespace: str | None
) -> list[str]:
    """Say which jobs of a run do not fit the quotas of their namespace now, as far as this machine
    can read them.

    The kubeconfig's cluster is not known to be the server's, so its context is named and nothing is
    refused.

    Args:
        service_account: The steps'; a team's launches into the team's namespace.
        namespace: The steps'; None for KFP's own.
    """
    if not has_kubeconfig():
        return []
    from podium.cluster.kubernetes.cluster import KubernetesCluster
    from podium.cluster.kubernetes.queues import beyond_quotas

    team = (service_account or "").removeprefix(f"{STEPS}-")
    home = team if team != (service_account or "") else namespace or NAMESPACE
    said = []
    with (
        suppress(PodiumError),
        KubernetesCluster(values.get("cluster") or f"kubernetes://{home}") as cluster,
    ):
        for description, job in PipelineSettings.read(values).jobs():
            said += [
                f"{description} {line} ({cluster.api.host})"
                for line in beyond_quotas(cluster.api, job)
            ]
    return said


def _announced(version: PipelineVersion, given: Mapping[str, Any]) -> str:
    defaults = {parameter.name: parameter.default for parameter in version.parameters()}
    main = {
        name: str((defaults | dict(given))[name])
        for name in ("dataset", "model_name")
        if name in defaults
    }
    words = [f"{name.removesuffix('_name')} {value}" for name, value in main.items() if value]
    others = {name: value for name, value in version.changes(given).items() if name not in main}
    shown = [f"{name}={cut(str(value), 60)}" for name, value in others.items()]
    return ", ".join([f"pipeline {version.pipeline} {version.name}", *words, *shown])


@dataclass(frozen=True, kw_only=True)
class ServerRun:
    """A run as a server shows it."""

    id: str
    name: str
    """Display name; a schedule's run has the schedule's and a time."""

    pipeline: str
    """Name of the pipeline; empty if it is deleted."""

    state: str
    """running, pending, succeeded, failed, canceled, and others of KFP in small letters."""

    began: datetime
    seconds: float
    """Duration; of a running one so far."""

    parameters: dict[str, Any]
    tasks: dict[str, str]
    """State of each task by name, as far as the server has reported."""

    error: str
    """The server's message about the failure, without the steps' own errors."""

    storage: str
    """Where it keeps its models and logs: its parameter ``storage``; else ``podium`` in the bucket
    of its artifacts, of KFP's own bucket if it names none."""

    @classmethod
    def read(cls, run: Any, pipelines: Mapping[str, str]) -> "ServerRun":
        """Read a server's answer.

        Args:
            pipelines: Names by id, see ServerPipelines.names.
        """
        reference = run.pipeline_version_reference
        end = (
            run.finished_at if run.finished_at and run.finished_at.year > 1970 else None
        )  # 1970 while it runs (2.0.5)
        canceled = _cancelled(run) and run.state in _OVER
        return cls(
            id=str(run.run_id),
            name=str(run.display_name),
            state="canceled" if canceled else _state_of(run).lower(),
            began=run.created_at,
            pipeline=pipelines.get(str(reference.pipeline_id), "") if reference else "",
            seconds=max(0.0, ((end or datetime.now(UTC)) - run.created_at).total_seconds()),
            parameters=dict((run.runtime_config.parameters if run.runtime_config else None) or {}),
            tasks=_tasks_of(run),
            error=str(run.error.message or "") if run.error else "",
            storage=_storage_of(run),
        )

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state.upper() in _OVER

    @property
    def result(self) -> str:
        """The result in a few words."""
        failed = [name for name, state in self.tasks.items() if state == "FAILED"]
        return (
            f"failed at {', '.join(failed)}"
            if failed
            else self.error
            if self.state == "failed"
            else ""
        )

    HEADS: ClassVar = ("RUN", "PIPELINE", "STATE", "BEGAN (UTC)", ">TOOK", "NAME", "RESULT")

    def cells(self) -> tuple[str, ...]:
        """Return its row of a table, a cell for each head."""
        began, took = when(self.began), duration(self.seconds)
        return self.id, self.pipeline, self.state, began, took, self.name, self.result

    def to_json(self) -> dict[str, Any]:
        """Return plain values, by the names of a run on this machine."""
        return {
            "kind": "run",
            "run": self.id,
            "name": self.name,
            "pipeline": self.pipeline,
            "subject": self.pipeline,
            "state": self.state,
            "began": self.began.isoformat(),
            "seconds": round(self.seconds, 3),
            "result": self.result,
            "parameters": self.parameters,
            "steps": {
                name: {"title": name, "state": state.lower()} for name, state in self.tasks.items()
            },
            "error": self.error,
        }


def _storage_of(run: Any) -> str:
    config = run.runtime_config
    if storage := (config.parameters or {}).get("storage") if config else None:
        return str(storage)
    root = urlsplit((config.pipeline_root if config else "") or _DEFAULT_ROOT)
    return f"{root.scheme}://{root.netloc}/podium"


def _tasks_of(run: Any) -> dict[str, str]:
    """Return the state of each of the pipeline's own tasks by name as they began, without drivers
    and the root."""
    details = (run.run_details.task_details if run.run_details else None) or []
    details = sorted(
        details, key=lambda task: str(task.start_time or "later")
    )  # the server has no order (2.0.5)
    return {
        str(task.display_name): str(task.state) for task in details if task.state and _is_own(task)
    }


def _is_own(task: Any) -> bool:
    name = task.display_name or ""
    # A task that is tried again has executor(0), executor(1) … (2.16.1).
    machinery = re.fullmatch(r"|root|executor(\(\d+\))?|.*-driver", name)
    # The pods of the workflow's children begin with the workflow's name.
    return not machinery and not any(
        (child.pod_name or "").startswith(f"{name}-") for child in task.child_tasks or []
    )


def _cancelled(run: Any) -> bool:
    # Its final state is FAILED, only its history shows it (observed).
    return any(status.state in ("CANCELING", "CANCELED") for status in run.state_history or [])


def _state_of(run: Any) -> str:
    """Return the state of a run. KFP 2.0.5 says SUCCEEDED where tasks failed and their exit handler
    ran, 2.16.1 FAILED (observed)."""
    broken = any(
        state == "FAILED" and re.fullmatch(r"exit-handler-\d+", task)
        for task, state in _tasks_of(run).items()
    )
    return "FAILED" if broken and run.state == "SUCCEEDED" else str(run.state or "PENDING")


def _end(run: Any, tasks: dict[str, str], cancelled: bool) -> str:
    if _state_of(run) == "SUCCEEDED":
        return "SUCCEEDED"
    failed = [name for name, state in tasks.items() if state == "FAILED"]
    why = (
        run.error.message
        if run.error and run.error.message
        else f"failed at {', '.join(failed) or 'no task'}"
    )
    text = f"run {run.run_id} was cancelled" if cancelled else f"run {run.run_id} {why}"
    label = f"pipeline/runid={run.run_id}"
    error, advice = next(filter(any, (_said_by(run, step) for step in failed)), ("", ""))
    hint = f"see the steps' logs: podium runs logs {run.run_id}, or kubectl logs -l {label} -c main --tail 50"
    if not advice:
        hint += f"; if a pod was refused: kubectl describe workflow -l {label}"
    raise Failed(f"{text}: {error}" if error else text, f"{advice}; {hint}" if advice else hint)


def _said_by(run: Any, step: str) -> tuple[str, str]:
    """Return the error and the hint that a failed step left beside its kept log; empty if
    unreachable.

    A step that failed before its program ran, or was killed, kept no log, though others of its run
    did.
    """
    try:
        kept = KeptLogs(_storage_of(run), str(run.run_id))
        names = kept.names()
        if names and f"steps/{step}" not in names:
            unsaid = (
                "it did not come to print anything that is kept: its pod was not admitted or was "
                "killed, or its inputs"
            )
            return f"{unsaid} could not be read from the store", ""
        left = kept.error(f"steps/{step}")
    except PodiumError:
        return "", ""
    return "\n".join(left.error.splitlines()[:LINES]), left.hint

"""Keep the recurring runs of a server as schedules say.

A recurring run cannot be changed on the server, so one that differs is deleted and created again.
Every recurring run is pinned to a version: "latest" is resolved at creation by 2.0.5, and loses the
schedule on 2.16.1 (a run every ten seconds; both observed). In a file, ``version: latest`` is the
newest version at the time of `apply`.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from podium.code.bundle import Bundle
from podium.display.text import one_line
from podium.errors import Conflict, InvalidInput, NotFound, suggestion
from podium.kfp.client import Server
from podium.kfp.code import store_code
from podium.kfp.runs import live_runs, terminate
from podium.kfp.schedule_files import LATEST, Schedule, check
from podium.kfp.versions import PipelineVersion, choose, versions_of


@dataclass(frozen=True, kw_only=True)
class Change:
    """Planned change of a schedule."""

    schedule: Schedule
    version: PipelineVersion
    """The version that the schedule's ``version`` resolves to now."""

    parameters: Mapping[str, Any]
    """The schedule's, as pods can read them, see PipelineVersion.sendable."""

    action: str
    """create, replace, resume, pause, or keep."""

    differences: tuple[str, ...] = ()
    """Fields and parameters that differ, as ``cron: 0 0 3 * * * -> 0 0 4 * * *``."""

    present: tuple[str, ...] = ()
    """Ids of the recurring runs of that name."""

    running: tuple[str, ...] = ()
    """Ids of their runs in flight, which end when apply deletes their recurring runs."""

    code: Mapping[str, Bundle] = field(default_factory=dict)
    """Packed code that the parameters name, by URI."""


def present(server: Server) -> list[Any]:
    """Return the server's recurring runs, by name."""
    listed = server.pages(
        "list schedules",
        server.services.list_recurring_runs,
        "recurring_runs",
        namespace=server.namespace,
    )
    return sorted(listed, key=lambda run: (str(run.display_name), run.created_at))


def in_flight(server: Server, recurring: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the runs of recurring runs that are not over, newest first."""
    # Servers cannot filter runs by what started them, so the newest are looked through.
    return tuple(str(run.run_id) for run in live_runs(server) if run.recurring_run_id in recurring)


def plan(server: Server, schedules: Sequence[Schedule]) -> list[Change]:
    """Compare schedules with the server; nothing is changed.

    Raises:
        NotFound: A pipeline or version is not on the server.
        InvalidInput: The version does not take a parameter, or its value breaks a rule.
    """
    listed = present(server)
    return [
        _compare(server, schedule, [run for run in listed if run.display_name == schedule.name])
        for schedule in schedules
    ]


def _sendable(
    schedule: Schedule, version: PipelineVersion
) -> tuple[dict[str, Any], dict[str, Bundle]]:
    """Check a schedule's parameters against the version, see PipelineVersion.sendable."""
    known = {parameter.name: parameter for parameter in version.parameters()}
    if schedule.version == LATEST:
        version.require_own(schedule.parameters)
    for name in schedule.parameters:
        if name not in known:
            problem = (
                f"{schedule.name}: {version.pipeline} {version.name} has no parameter {name!r}"
            )
            raise InvalidInput(problem, suggestion(name, known))
    try:
        checked = {name: known[name].check(value) for name, value in schedule.parameters.items()}
        return version.sendable(checked, schedule.folder)
    except InvalidInput as error:
        raise InvalidInput(f"{schedule.name}: {error.message}", error.hint) from error


def _compare(server: Server, schedule: Schedule, runs: list[Any]) -> Change:
    version = choose(
        server, schedule.pipeline, None if schedule.version == LATEST else schedule.version
    )
    parameters, code = _sendable(schedule, version)
    change = Change(
        schedule=schedule,
        version=version,
        parameters=parameters,
        code=code,
        action="create",
        present=tuple(str(run.recurring_run_id) for run in runs),
    )
    if not runs:
        return change
    wanted, actual = _wanted(change), settings_of(runs[-1])
    different = [key for key, value in wanted.items() if actual[key] != value]
    if "version" in different:
        names = {known.id: known.name for known in versions_of(server, version.pipeline)}
        actual["version"], wanted["version"] = (
            names.get(actual["version"], "of another pipeline"),
            version.name,
        )
    differences = [
        line for key in different for line in _differences(key, actual[key], wanted[key])
    ]
    if len(runs) > 1:
        differences.insert(0, f"{len(runs)} schedules have this name")
    only_state = len(runs) == 1 and different == ["enabled"]
    action = (
        "keep"
        if not differences
        else ("resume" if schedule.enabled else "pause")
        if only_state
        else "replace"
    )
    running = in_flight(server, change.present) if action == "replace" else ()
    return replace(change, action=action, differences=tuple(differences), running=running)


def _differences(key: str, actual: Any, wanted: Any) -> list[str]:
    if not isinstance(wanted, dict):
        return [f"{key}: {actual} -> {wanted}"]
    names = [name for name in {**actual, **wanted} if actual.get(name) != wanted.get(name)]
    return [f"{name}: {_brief(actual, name)} -> {_brief(wanted, name)}" for name in names]


def _brief(values: Mapping[str, Any], name: str) -> str:
    text = one_line(str(values[name])) if name in values else "the pipeline's own"
    return f"{text[:40]}… ({len(text)} characters)" if len(text) > 80 else text


def _wanted(change: Change) -> dict[str, Any]:
    schedule = change.schedule
    return {
        "cron": check(schedule.cron),
        "version": change.version.id,
        "parameters": change.parameters,
        "max_concurrency": schedule.max_concurrency,
        "catchup": schedule.catchup,
        "enabled": schedule.enabled,
        # The server fills in its default where none was given (observed), so only a named account is compared.
        **({"service_account": schedule.service_account} if schedule.service_account else {}),
        "pipeline_root": schedule.pipeline_root,
    }


def settings_of(run: Any) -> dict[str, Any]:
    """Return a recurring run's settings by the names of a schedule's fields."""
    cron = run.trigger.cron_schedule.cron if run.trigger and run.trigger.cron_schedule else None
    reference = run.pipeline_version_reference
    return {
        "cron": cron,
        "version": (reference.pipeline_version_id if reference else None)
        or run.pipeline_version_id,
        "parameters": dict((run.runtime_config.parameters if run.runtime_config else None) or {}),
        "max_concurrency": int(run.max_concurrency or 1),
        "catchup": not run.no_catchup,
        "enabled": str(run.status) == "ENABLED",
        "service_account": run.service_account or "",
        "pipeline_root": (run.runtime_config.pipeline_root if run.runtime_config else None) or "",
    }


def require_idle(server: Server, name: str, running: Sequence[str], again: Sequence[str]) -> None:
    """Refuse to delete a recurring run whose run is in flight.

    A server deletes the workflow with what started it, and lists the run as running for ever
    (observed).

    Args:
        running: The runs in flight, see in_flight.
        again: Words of the command that ends them.

    Raises:
        Conflict: There are some.
    """
    if running:
        host = ["--host", server.address]
        shown = shlex.join(["podium", "runs", "show", running[0], *host])
        raise Conflict(
            f"schedule {name} has a run in flight, {', '.join(running)}, which would end with it",
            f"wait for its end: {shown}; or cancel it: {shlex.join([*again, '--now', *host])}",
        )


def apply(server: Server, change: Change, group: str) -> None:
    """Carry out one change; applying twice changes nothing the second time. What is replaced ends
    its run in flight."""
    if change.action in ("resume", "pause"):
        switch(server, change.present[-1], on=change.action == "resume")
    if change.action not in ("create", "replace"):
        return
    store_code(change.code)
    _create(
        server, change, group
    )  # before the old one goes: a failure here must not leave a night without a run
    for recurring_run_id in change.present:
        remove(server, recurring_run_id)


def _create(server: Server, change: Change, group: str) -> None:
    schedule = change.schedule
    server.call(
        f"create schedule {schedule.name}",
        server.services.create_recurring_run,
        group=server.group(group),
        name=schedule.name,
        description="kept by podium schedule",
        cron=check(schedule.cron),
        max_concurrency=schedule.max_concurrency,
        no_catchup=not schedule.catchup,
        parameters=change.parameters,
        pipeline_id=change.version.pipeline_id,
        version_id=change.version.id,
        enabled=schedule.enabled,
        service_account=schedule.service_account or None,
        pipeline_root=schedule.pipeline_root or None,
    )


def find(server: Server, name: str) -> list[str]:
    """Return the ids of the recurring runs with this name.

    Raises:
        NotFound: There are none.
    """
    listed = present(server)
    ids = [str(run.recurring_run_id) for run in listed if run.display_name == name]
    if not ids:
        names = [str(run.display_name) for run in listed]
        raise NotFound(f"the server has no schedule {name!r}", suggestion(name, names))
    return ids


def switch(server: Server, recurring_run_id: str, *, on: bool) -> None:
    """Resume or pause a recurring run."""
    services = server.services
    method = services.enable_recurring_run if on else services.disable_recurring_run
    server.call(
        "resume the schedule" if on else "pause the schedule",
        method,
        recurring_run_id=recurring_run_id,
    )


def remove(server: Server, recurring_run_id: str) -> None:
    """End the runs in flight of a recurring run, as cancelled, and delete it; its runs stay
    listed."""
    for run_id in in_flight(server, [recurring_run_id]):
        terminate(server, run_id)
    server.call(
        "delete the schedule",
        server.services.delete_recurring_run,
        recurring_run_id=recurring_run_id,
    )

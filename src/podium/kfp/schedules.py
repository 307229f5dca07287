"""Keep the recurring runs of a server as schedules say.

A recurring run cannot be changed on the server, so one that differs is deleted and created again. Every recurring run
is pinned to a version: "latest" is resolved at creation by 2.0.5, and loses the schedule on 2.16.1 (a run every ten
seconds; both observed). In a file, ``version: latest`` is the newest version at the time of `apply`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from podium.code.bundle import Bundle
from podium.errors import InvalidInput, NotFound, require, suggestion
from podium.kfp.client import Server
from podium.kfp.code import store_code
from podium.kfp.cron import check
from podium.kfp.schedule_files import LATEST, Schedule
from podium.kfp.versions import Version, choose, versions_of


@dataclass(frozen=True, kw_only=True)
class Change:
    """What apply does for a schedule."""

    schedule: Schedule
    version: Version
    """The version that the schedule's ``version`` resolves to now."""

    parameters: Mapping[str, Any]
    """The schedule's, as pods can read them, see Version.sendable."""

    action: str
    """create, replace, resume, pause, or keep."""

    differences: tuple[str, ...] = ()
    """Fields that differ, as ``cron: 0 0 3 * * * -> 0 0 4 * * *``."""

    present: tuple[str, ...] = ()
    """Ids of the recurring runs of that name."""

    code: Mapping[str, Bundle] = field(default_factory=dict)
    """Packed code that the parameters name, by URI."""


def present(server: Server) -> list[Any]:
    """Return the server's recurring runs, by name."""
    listed = server.pages(
        "list schedules", server.services.list_recurring_runs, "recurring_runs", namespace=server.namespace
    )
    return sorted(listed, key=lambda run: (str(run.display_name), run.created_at))


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


def _sendable(schedule: Schedule, version: Version) -> tuple[dict[str, Any], dict[str, Bundle]]:
    """Check a schedule's parameters against the version, see Version.sendable."""
    known = {parameter.name: parameter for parameter in version.parameters()}
    for name in schedule.parameters:
        rule = f"{schedule.name}: {version.pipeline} {version.name} takes the parameter"
        require(name in known, rule, suggestion(name, known), parameter=name)
    try:
        checked = {name: known[name].check(value) for name, value in schedule.parameters.items()}
        return version.sendable(checked, schedule.folder)
    except InvalidInput as error:
        raise InvalidInput(f"{schedule.name}: {error.message}", error.hint) from error


def _compare(server: Server, schedule: Schedule, runs: list[Any]) -> Change:
    version = choose(server, schedule.pipeline, None if schedule.version == LATEST else schedule.version)
    parameters, code = _sendable(schedule, version)
    change = Change(schedule=schedule, version=version, parameters=parameters, code=code, action="create",
                    present=tuple(str(run.recurring_run_id) for run in runs))  # fmt: skip
    if not runs:
        return change
    wanted, actual = _wanted(change), settings_of(runs[-1])
    different = [key for key, value in wanted.items() if actual[key] != value]
    if "version" in different:
        names = {known.id: known.name for known in versions_of(server, version.pipeline)}
        actual["version"], wanted["version"] = names.get(actual["version"], "of another pipeline"), version.name
    differences = tuple(f"{key}: {_brief(actual[key])} -> {_brief(wanted[key])}" for key in different)
    if len(runs) > 1:
        differences = (f"{len(runs)} schedules have this name", *differences)
    only_state = len(runs) == 1 and different == ["enabled"]
    action = "keep" if not differences else ("resume" if schedule.enabled else "pause") if only_state else "replace"
    return replace(change, action=action, differences=differences)


def _brief(value: Any) -> str:
    """Shorten a value for a list of differences: of an Experiment's text, its beginning and its length."""
    if not isinstance(value, dict):
        return str(value)
    texts = {name: str(item) for name, item in value.items()}
    long = {name: f"{text[:40]}… ({len(text)} characters)" for name, text in texts.items() if len(text) > 80}
    return str({**value, **long})


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
    }


def settings_of(run: Any) -> dict[str, Any]:
    """Return a recurring run's settings by the names of a schedule's fields."""
    cron = run.trigger.cron_schedule.cron if run.trigger and run.trigger.cron_schedule else None
    reference = run.pipeline_version_reference
    return {
        "cron": cron,
        "version": (reference.pipeline_version_id if reference else None) or run.pipeline_version_id,
        "parameters": dict((run.runtime_config.parameters if run.runtime_config else None) or {}),
        "max_concurrency": int(run.max_concurrency or 1),
        "catchup": not run.no_catchup,
        "enabled": str(run.status) == "ENABLED",
        "service_account": run.service_account or "",
    }


def apply(server: Server, change: Change, group: str) -> None:
    """Carry out one change. Applying twice changes nothing the second time."""
    schedule = change.schedule
    if change.action in ("resume", "pause"):
        switch(server, change.present[-1], on=change.action == "resume")
    if change.action not in ("create", "replace"):
        return
    store_code(change.code)
    for recurring_run_id in change.present:
        remove(server, recurring_run_id)
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
    server.call("resume the schedule" if on else "pause the schedule", method, recurring_run_id=recurring_run_id)


def remove(server: Server, recurring_run_id: str) -> None:
    """Delete a recurring run; the runs it started stay listed."""
    server.call("delete the schedule", server.services.delete_recurring_run, recurring_run_id=recurring_run_id)

"""Keep the recurring runs of a server as schedules say.

A recurring run cannot be changed on the server, so one that differs is deleted and created again.
Every recurring run is pinned to a version: "latest" is resolved at creation by 2.0.5, and loses the
schedule on 2.16.1 (a run every ten seconds; both observed). In a file, ``version: latest`` is the
newest version at the time of `apply`.
"""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from podium.code.bundle import Bundle
from podium.display.text import one_line
from podium.errors import Conflict, InvalidInput, NotFound, require_known, suggestion
from podium.kfp.client import Server
from podium.kfp.code import store_code
from podium.kfp.runs import ServerRuns
from podium.kfp.schedule_files import LATEST, Schedule, check
from podium.kfp.versions import PipelineVersion, ServerPipelines


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


class Schedules:
    """The recurring runs of a server, also those that podium did not make."""

    def __init__(self, server: Server) -> None:
        self._server, self._runs = server, ServerRuns(server)
        self._pipelines = ServerPipelines(server)

    def all(self) -> list[dict[str, Any]]:
        """Return each recurring run by name: its ``name``, ``pipeline_id`` and, by the names
        of a schedule's fields, its settings; ``version`` is an id."""
        return [_settings_of(run) for run in self._listed()]

    def _listed(self) -> list[Any]:
        recurring = self._server.recurring_runs.recurring_run_service_list_recurring_runs
        listed = self._server.pages(
            "list schedules", recurring, "recurring_runs", namespace=self._server.namespace
        )
        return sorted(listed, key=lambda run: (str(run.display_name), run.created_at))

    def plan(self, schedules: Sequence[Schedule]) -> list[Change]:
        """Compare schedules with the server; nothing is changed.

        Raises:
            NotFound: A pipeline or version is not on the server.
            InvalidInput: The version does not take a parameter, or its value breaks a rule.
        """
        listed = self._listed()
        return [
            self._compare(schedule, [run for run in listed if run.display_name == schedule.name])
            for schedule in schedules
        ]

    def _compare(self, schedule: Schedule, runs: list[Any]) -> Change:
        version = self._pipelines.choose(
            schedule.pipeline,
            None if schedule.version == LATEST else schedule.version,
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
        wanted, actual = _wanted(change), _settings_of(runs[-1])
        different = [key for key, value in wanted.items() if actual[key] != value]
        if "version" in different:
            names = {each.id: each.name for each in self._pipelines.versions(version.pipeline)}
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
        running = self._runs.in_flight(change.present) if action == "replace" else ()
        return replace(change, action=action, differences=tuple(differences), running=running)

    def apply(
        self, changes: Sequence[Change], group: str, *, now: bool = True, command: str = ""
    ) -> None:
        """Carry out changes; applying twice changes nothing the second time. What is replaced ends
        its run in flight.

        Args:
            now: Also where a run is in flight.
            command: The command that ends it, for the hint.

        Raises:
            Conflict: A run is in flight; nothing was changed.
        """
        for change in changes if not now else ():
            self._require_idle(change.schedule.name, change.running, command)
        for change in changes:
            if change.action in ("resume", "pause"):
                self._switch(change.present[-1], on=change.action == "resume")
            if change.action in ("create", "replace"):
                store_code(change.code)
                self._create(change, group)  # first: a failure must not leave a night without a run
                self._replace(change, group)

    def _replace(self, change: Change, group: str) -> None:
        """Remove all recurring runs of a name but the newest that came since the look: there are
        more where somebody else applies at once, or where a request arrived twice."""
        while True:
            name = change.schedule.name
            runs = [run for run in self._listed() if run.display_name == name]
            runs.sort(key=lambda run: (run.created_at, run.recurring_run_id))
            ids = [str(run.recurring_run_id) for run in runs]
            new = [each for each in ids if each not in change.present]
            if not new:  # somebody else took it for an older one: times are whole seconds
                self._create(change, group)
                continue
            if ids == new[-1:]:
                return
            for each in ids:
                if each != new[-1]:
                    self._remove(each)

    def pause(self, name: str) -> None:
        """Stop the recurring runs of this name from firing.

        Raises:
            NotFound: There are none.
        """
        for recurring_run_id in self._find(name):
            self._switch(recurring_run_id, on=False)

    def delete(self, name: str, *, now: bool = True, command: str = "") -> None:
        """End the runs in flight of the recurring runs of this name, as cancelled, and delete them;
        their runs stay listed. Arguments as of apply.

        Raises:
            NotFound: There are none.
            Conflict: A run is in flight; nothing was changed.
        """
        ids = self._find(name)
        if not now:
            self._require_idle(name, self._runs.in_flight(ids), command)
        for recurring_run_id in ids:
            self._remove(recurring_run_id)

    def _require_idle(self, name: str, running: Sequence[str], command: str) -> None:
        """A server deletes the workflow with what started it, and lists the run as running for ever
        (observed)."""
        if running:
            host = f"--host {shlex.quote(self._server.address)}"
            shown = f"podium runs show {running[0]} {host}"
            raise Conflict(
                f"schedule {name} has a run in flight, {', '.join(running)}, "
                "which would end with it",
                f"wait for its end: {shown}; or cancel it: {command} --now {host}",
            )

    def _create(self, change: Change, group: str) -> None:
        from kfp_server_api import (
            RecurringRunMode,
            V2beta1CronSchedule,
            V2beta1RecurringRun,
            V2beta1Trigger,
        )

        schedule = change.schedule
        body = V2beta1RecurringRun(
            experiment_id=self._server.group(group),
            display_name=schedule.name,
            description="kept by podium schedule",
            service_account=schedule.service_account or None,
            mode=RecurringRunMode.ENABLE if schedule.enabled else RecurringRunMode.DISABLE,
            no_catchup=not schedule.catchup,
            max_concurrency=schedule.max_concurrency,
            trigger=V2beta1Trigger(cron_schedule=V2beta1CronSchedule(cron=check(schedule.cron))),
            **change.version.body(change.parameters, schedule.pipeline_root or None),
        )
        create = self._server.recurring_runs.recurring_run_service_create_recurring_run
        self._server.call(f"create schedule {schedule.name}", create, recurring_run=body)

    def _find(self, name: str) -> list[str]:
        listed = self._listed()
        ids = [str(run.recurring_run_id) for run in listed if run.display_name == name]
        if not ids:
            names = [str(run.display_name) for run in listed]
            raise NotFound(f"the server has no schedule {name!r}", suggestion(name, names))
        return ids

    def _switch(self, recurring_run_id: str, *, on: bool) -> None:
        service = self._server.recurring_runs
        switch = (
            service.recurring_run_service_enable_recurring_run
            if on
            else service.recurring_run_service_disable_recurring_run
        )
        doing = "resume the schedule" if on else "pause the schedule"
        self._server.call(doing, switch, recurring_run_id=recurring_run_id)

    def _remove(self, recurring_run_id: str) -> None:
        for run_id in self._runs.in_flight([recurring_run_id]):
            self._runs.terminate(run_id)
        delete = self._server.recurring_runs.recurring_run_service_delete_recurring_run
        with suppress(NotFound):  # somebody else was faster
            self._server.call("delete the schedule", delete, recurring_run_id=recurring_run_id)


def _sendable(
    schedule: Schedule, version: PipelineVersion
) -> tuple[dict[str, Any], dict[str, Bundle]]:
    """Check a schedule's parameters against the version, see PipelineVersion.sendable."""
    parameters = {parameter.name: parameter for parameter in version.parameters()}
    if schedule.version == LATEST:
        version.require_own(schedule.parameters)
    where = f"{schedule.name}: {version.pipeline} {version.name}"
    require_known(schedule.parameters, parameters, f"{where} has no parameter")
    try:
        checked = {
            name: parameters[name].check(value) for name, value in schedule.parameters.items()
        }
        return version.sendable(checked, schedule.folder)
    except InvalidInput as error:
        raise InvalidInput(f"{schedule.name}: {error.message}", error.hint) from error


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
        # The server fills in its default where none was given (observed), so only a named account
        # is compared.
        **({"service_account": schedule.service_account} if schedule.service_account else {}),
        "pipeline_root": schedule.pipeline_root,
    }


def _settings_of(run: Any) -> dict[str, Any]:
    """Return a recurring run's settings by the names of a schedule's fields."""
    cron = run.trigger.cron_schedule.cron if run.trigger and run.trigger.cron_schedule else None
    reference = run.pipeline_version_reference
    return {
        "name": str(run.display_name),
        "pipeline_id": str(reference.pipeline_id) if reference else "",
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

"""Schedules as code: recurring runs described in small YAML files.

A recurring run cannot be changed on the server, so one that differs is deleted and created again. Every recurring run
is pinned to a version: "latest" is resolved at creation by 2.0.5, and loses the schedule on 2.16.1 (a run every ten
seconds; both observed). In a file, ``version: latest`` is the newest version at the time of `apply`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from podium.code.bundle import Bundle
from podium.documents import load_yaml, read_text
from podium.errors import InvalidInput, NotFound, require, suggestion
from podium.kfp.client import Server
from podium.kfp.code import packed, store_code
from podium.kfp.cron import check
from podium.kfp.definition import reaching
from podium.kfp.parameters import require_all, with_defaults
from podium.kfp.project import FILE, Project, check_reachable
from podium.kfp.values import check_values, with_experiment_text
from podium.kfp.versions import Version, choose, pipeline_spec, versions_of

LATEST = "latest"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A pipeline, its parameters and when it runs."""

    name: str
    """Name of the recurring run; unique."""

    pipeline: str
    cron: str
    """Six fields, seconds first, UTC; or @daily and the like."""

    version: str = LATEST
    """Name of a version, or latest: the newest version when applied."""

    parameters: dict[str, Any] = field(default_factory=dict)
    """Pipeline parameters that differ from their defaults."""

    max_concurrency: int = 1
    """Runs of this schedule at a time, 1 to 10."""

    catchup: bool = False
    """Whether runs missed while paused are made up for."""

    enabled: bool = True
    """False creates it paused."""

    service_account: str = ""
    """Service account of the runs; empty for the server's default."""

    folder: Path = Path()
    """Folder of the file, the base of an Experiment's relative path; not a field of the file."""

    code: Mapping[str, Bundle] = field(default_factory=dict)
    """Packed code that the parameters name, by URI; not a field of the file."""

    def __post_init__(self) -> None:
        for known in written_fields():
            kind = known.type if isinstance(known.type, type) else dict
            value = getattr(self, known.name)
            require(type(value) is kind, f"{known.name} is {kind.__name__}", **{known.name: value})
        require(bool(self.name), "name is not empty", name=self.name)
        check(self.cron)
        require(1 <= self.max_concurrency <= 10, "1 <= max_concurrency <= 10", max_concurrency=self.max_concurrency)
        literal = [value for value in self.parameters.values() if "[[" in str(value)]
        rule = "no parameter holds [[...]]: servers do not substitute it"
        require(not literal, rule, "let the step read the time itself", parameters=self.parameters)


def written_fields() -> "list[Field[Any]]":
    """Return the fields that a file may set."""
    return [known for known in fields(Schedule) if known.name not in ("folder", "code")]


@dataclass(frozen=True, kw_only=True)
class Change:
    """What apply does for a schedule."""

    schedule: Schedule
    version: Version
    """The version that the schedule's ``version`` resolves to now."""

    action: str
    """create, replace, resume, pause, or keep."""

    differences: tuple[str, ...] = ()
    """Fields that differ, as ``cron: 0 0 3 * * * -> 0 0 4 * * *``."""

    present: tuple[str, ...] = ()
    """Ids of the recurring runs of that name."""


def default_path() -> Path:
    """Return where the schedules of the working directory are."""
    folder = Path("schedules")
    return Path(FILE) if not folder.exists() and Path(FILE).exists() else folder


def load(paths: Iterable[Path]) -> list[Schedule]:
    """Read schedules from files, and from the *.yaml of directories.

    Raises:
        InvalidInput: A file is not a schedule, or two schedules have the same name; the message names the file.
    """
    loaded: dict[str, Schedule] = {}
    for path in paths:
        for file in sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]:
            try:
                documents = load_yaml(read_text(file), str(file))
            except OSError as error:
                hint = "name a YAML file with schedules, or a directory of them; see docs/cluster.md"
                raise InvalidInput(f"{file} cannot be read: {error.strerror}", hint) from error
            if file.name == FILE:
                documents = [_of_project(Project.load(file))]
            require(len(documents) == 1, f"{file} holds one YAML document", documents=len(documents))
            content = documents[0]
            schedules = content["schedules"] if isinstance(content, dict) and "schedules" in content else [content]
            require(isinstance(schedules, list), f"{file}: schedules is a list", schedules=schedules)
            for item in schedules:
                schedule = _parse(file, item)
                unique = schedule.name not in loaded
                require(unique, f"{file}: every schedule has a name of its own", name=schedule.name)
                loaded[schedule.name] = schedule
    if not loaded:
        raise InvalidInput(f"no schedule in {', '.join(map(str, paths))}", "see docs/cluster.md for an example")
    return list(loaded.values())


def _of_project(project: Project) -> dict[str, Any]:
    """Return a project's schedule as a schedule's file would have it."""
    hint = 'for example schedule: {name: nightly, cron: "@daily"}'
    require(bool(project.schedule), f"{project.file} has a schedule", hint, schedule=project.schedule)
    return {"pipeline": project.pipeline, **project.schedule, "parameters": dict(project.values)}


def _parse(file: Path, content: Any) -> Schedule:
    require(isinstance(content, dict), f"{file} holds a schedule: name, pipeline, cron …", content=content)
    known = [field.name for field in written_fields()]
    for name in content:
        require(name in known, f"{file}: a schedule's field is known", suggestion(str(name), known), field=name)
    missing = {"name", "pipeline", "cron"} - set(content)
    require(not missing, f"{file}: a schedule has name, pipeline and cron", missing=sorted(missing))
    try:
        return Schedule(**content, folder=file.parent)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error.message}", error.hint) from error


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


def _checked(schedule: Schedule, version: Version) -> Schedule:
    """Check a schedule's parameters against the version; return the schedule with an Experiment's file as text."""
    known = {parameter.name: parameter for parameter in version.parameters()}
    for name in schedule.parameters:
        rule = f"{schedule.name}: {version.pipeline} {version.name} takes the parameter"
        require(name in known, rule, suggestion(name, known), parameter=name)
    spec = pipeline_spec(version.spec)
    names = reaching(spec, "experiment")
    try:
        checked = {name: known[name].check(value) for name, value in schedule.parameters.items()}
        require_all(checked, known.values())
        parameters = with_experiment_text(checked, schedule.folder, names)
        parameters, code = packed(parameters, known.values(), reaching(spec, "code"), schedule.folder)
        if version.ours:
            check_reachable(parameters)
            check_values(with_defaults(parameters, known.values()))
    except InvalidInput as error:
        raise InvalidInput(f"{schedule.name}: {error.message}", error.hint) from error
    return replace(schedule, parameters=parameters, code=code)


def _compare(server: Server, schedule: Schedule, runs: list[Any]) -> Change:
    version = choose(server, schedule.pipeline, None if schedule.version == LATEST else schedule.version)
    schedule = _checked(schedule, version)
    ids = tuple(str(run.recurring_run_id) for run in runs)
    if not runs:
        return Change(schedule=schedule, version=version, action="create")
    wanted, actual = _wanted(schedule, version), settings_of(runs[-1])
    different = [key for key, value in wanted.items() if actual[key] != value]
    if "version" in different:
        names = {known.id: known.name for known in versions_of(server, version.pipeline)}
        actual["version"], wanted["version"] = names.get(actual["version"], "of another pipeline"), version.name
    differences = tuple(f"{key}: {_brief(actual[key])} -> {_brief(wanted[key])}" for key in different)
    if len(runs) > 1:
        differences = (f"{len(runs)} schedules have this name", *differences)
    only_state = len(runs) == 1 and different == ["enabled"]
    action = "keep" if not differences else ("resume" if schedule.enabled else "pause") if only_state else "replace"
    return Change(schedule=schedule, version=version, action=action, differences=differences, present=ids)


def _brief(value: Any) -> str:
    """Shorten a value for a list of differences: of an Experiment's text, its beginning and its length."""
    if not isinstance(value, dict):
        return str(value)
    texts = {name: str(item) for name, item in value.items()}
    long = {name: f"{text[:40]}… ({len(text)} characters)" for name, text in texts.items() if len(text) > 80}
    return str({**value, **long})


def _wanted(schedule: Schedule, version: Version) -> dict[str, Any]:
    return {
        "cron": check(schedule.cron),
        "version": version.id,
        "parameters": schedule.parameters,
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
    store_code(schedule.code)
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
        parameters=schedule.parameters,
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

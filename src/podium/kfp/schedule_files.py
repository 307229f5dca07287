"""Schedules as small YAML files describe them, or a project's ``podium.yaml``.

Cron expressions are read as the scheduler of Kubeflow Pipelines does: robfig/cron v1, six fields,
seconds first. It lets the last field be omitted, so it accepts a crontab's five fields and
misreads them: ``0 3 * * *`` runs at minute 3 of every hour, not daily at three.
"""

import re
from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from podium.errors import InvalidInput, require, require_known
from podium.files.documents import load_yaml, read_text
from podium.kfp.project import FILE, Project

_DESCRIPTORS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}

FIELDS = "second minute hour day-of-month month day-of-week"


def check(expression: str) -> str:
    """Check a cron expression and return it as six fields.

    Args:
        expression: Six fields, or a descriptor such as @daily.

    Raises:
        InvalidInput: It has the five fields of a crontab (the hint converts it), a field is out of
            range, or it uses what the scheduler does not support: @every, L, W, #, day-of-week 7.
    """
    text = " ".join(expression.split())
    text = _DESCRIPTORS.get(text.lower(), text)
    if text.startswith("@"):
        raise InvalidInput(
            f"no schedule is called {expression!r}",
            f"six fields, or one of {', '.join(_DESCRIPTORS)}",
        )
    count = len(text.split())
    if count == 5:
        problem = f"cron has six fields, {FIELDS}, but got the five of a crontab: {expression!r}"
        raise InvalidInput(problem, f'write "0 {text}", with the second in front')
    if count != 6:
        raise InvalidInput(f"cron has six fields, {FIELDS}, but got {expression!r}")
    _iterator(text, datetime.now(UTC))
    return text


def next_times(expression: str, count: int = 5, after: datetime | None = None) -> list[datetime]:
    """Return when a schedule fires next in UTC, the scheduler's zone unless CRON_SCHEDULE_TIMEZONE
    is set there.

    Args:
        expression: The argument of check.
        after: Start; now if None.

    Raises:
        InvalidInput: As check.
    """
    times = _iterator(check(expression), after or datetime.now(UTC))
    return [next(times) for _ in range(count)]


def _iterator(text: str, after: datetime):  # type: ignore[no-untyped-def]  # cronsim is loaded here only
    from cronsim import CronSim, CronSimError

    day, weekday = text.split()[3], text.split()[5].upper()
    supported = not re.search(r"[LW#]", day.upper()) and not re.search(r"#|\dL|(?<!/)\b7", weekday)
    if not supported:
        raise InvalidInput(
            f"the scheduler does not support L, W, # or day-of-week 7, but got {text!r}",
            "Sunday is 0",
        )
    # A star anywhere in a list restricts nothing; CronSim sees only one at its beginning. The steps
    # from a weekday on end with Saturday; CronSim's go on to 7, a Sunday, and those of a range of
    # one value to the end.
    *others, weekdays = text.replace("?", "*").split()
    weekdays = re.sub(r"(?i)(^|,)sat/", r"\g<1>6/", weekdays)
    parts = (*others, re.sub(r"(^|,)(\w+)/", r"\1\2-6/", weekdays))
    lists = [
        ",".join(sorted(each.split(","), key=lambda item: not item.startswith("*")))
        for each in (re.sub(r"\b(\w+)-\1/0*[1-9]\d*", r"\1", part) for part in parts)
    ]
    try:
        return CronSim(" ".join(lists), after.astimezone(UTC))
    except CronSimError as error:
        fields = f"fields are {FIELDS}; * any, 1-5 range, */10 step, 1,15 list"
        raise InvalidInput(f"not a cron expression: {text!r}: {error}", fields) from error


_MACRO = re.compile(r"\[\[(?:ScheduledTime|CurrentTime|Index|RunUUID)\b")

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

    pipeline_root: str = ""
    """URL below which the server keeps the artifacts of the runs; empty for the server's own."""

    folder: Path = Path()
    """Folder of the file, where relative paths in the parameters start; not a field of the file."""

    def __post_init__(self) -> None:
        for setting in _written_fields():
            kind = setting.type if isinstance(setting.type, type) else dict
            value = getattr(self, setting.name)
            if type(value) is not kind:
                raise InvalidInput(f"{setting.name} is {kind.__name__}, not {value!r}")
        if not self.name:
            raise InvalidInput("a schedule's name is empty")
        check(self.cron)
        require(
            1 <= self.max_concurrency <= 10,
            "1 <= max_concurrency <= 10",
            max_concurrency=self.max_concurrency,
        )
        literal = [value for value in self.parameters.values() if _MACRO.search(str(value))]
        if literal:
            problem = f"servers do not substitute [[...]], but a parameter is {literal[0]!r}"
            raise InvalidInput(problem, "let the step read the time itself")


def _written_fields() -> "list[Field[Any]]":
    return [setting for setting in fields(Schedule) if setting.name != "folder"]


def default_path() -> Path:
    """Return where the schedules of the working directory are."""
    folder = Path("schedules")
    return Path(FILE) if not folder.exists() and Path(FILE).exists() else folder


def load(paths: Iterable[Path]) -> list[Schedule]:
    """Read schedules from files, and from the *.yaml of directories.

    Raises:
        InvalidInput: A file is not a schedule, or two schedules have the same name; the message
            names the file.
    """
    loaded: dict[str, Schedule] = {}
    for path in paths:
        for file in (
            sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]
        ):
            try:
                documents = load_yaml(read_text(file), str(file), own=True)
            except OSError as error:
                hint = "name a YAML file with schedules, or a directory of them; see docs/cluster-operations.md"
                raise InvalidInput(f"{file} cannot be read: {error.strerror}", hint) from error
            if file.name == FILE:
                documents = [_of_project(Project.load(file))]
            if len(documents) != 1:
                raise InvalidInput(
                    f"{file} must hold one YAML document, but holds {len(documents)}"
                )
            content = documents[0]
            schedules = [content]
            if isinstance(content, dict) and "schedules" in content:
                schedules = content.pop("schedules")
                if content:
                    raise InvalidInput(
                        f"{file}: {next(iter(content))} stands beside the list of schedules",
                        "give it to each schedule that it is for",
                    )
            if not isinstance(schedules, list):
                raise InvalidInput(f"{file}: schedules must be a list, but is {schedules!r}")
            for item in schedules:
                schedule = _parse(file, item)
                if schedule.name in loaded:
                    raise InvalidInput(f"{file}: another schedule is called {schedule.name!r} too")
                loaded[schedule.name] = schedule
    if not loaded:
        raise InvalidInput(
            f"no schedule in {', '.join(map(str, paths))}",
            "docs/cluster-operations.md has an example",
        )
    return list(loaded.values())


def _of_project(project: Project) -> dict[str, Any]:
    hint = 'for example schedule: {name: nightly, cron: "@daily"}'
    if not project.schedule:
        raise InvalidInput(f"{project.file} has no schedule", hint)
    server = {
        "service_account": project.server.service_account,
        "pipeline_root": project.server.pipeline_root,
    }
    own = project.schedule.get("parameters", {})
    return {
        "pipeline": project.title,
        **server,
        **project.schedule,
        "parameters": {**project.values, **own} if isinstance(own, dict) else own,
    }


def _parse(file: Path, content: Any) -> Schedule:
    if not isinstance(content, dict):
        raise InvalidInput(
            f"{file} must hold a schedule, but holds {content!r}", "name, pipeline, cron …"
        )
    names = [field.name for field in _written_fields()]
    require_known(content, names, f"{file}: a schedule has no field")
    missing = {"name", "pipeline", "cron"} - set(content)
    if missing:
        raise InvalidInput(f"{file}: the schedule has no {', '.join(sorted(missing))}")
    try:
        return Schedule(**content, folder=file.parent)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error.message}", error.hint) from error

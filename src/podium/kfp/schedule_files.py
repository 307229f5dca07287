"""Schedules as small YAML files describe them, or a project's ``podium.yaml``."""

from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from podium.documents import load_yaml, read_text
from podium.errors import InvalidInput, require, suggestion
from podium.kfp.cron import check
from podium.kfp.project import FILE, Project

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
    return [known for known in fields(Schedule) if known.name != "folder"]


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
    server = {"service_account": project.server.service_account, "pipeline_root": project.server.pipeline_root}
    return {"pipeline": project.title, **server, **project.schedule, "parameters": dict(project.values)}


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

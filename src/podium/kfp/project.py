"""``podium.yaml``: a pipeline and the values of its parameters, for every command that takes a
pipeline.

Its keys are the pipeline's own parameters, and besides them ``name``, ``pipeline``, ``schedule``
and ``server``. What the command line gives comes before it.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from podium.display.terminal import echo
from podium.errors import InvalidInput, PodiumError, require_known
from podium.files.documents import load_yaml, read_text
from podium.kfp.definition import is_file
from podium.kfp.parameters import Parameter, Parameters

FILE = "podium.yaml"
PIPELINE = "tune_and_promote"
"""The pipeline where none is named."""

OWN = ("name", "pipeline", "schedule", "server")
"""Keys that are not parameters."""

LOCAL = ("table:", "text:", "images:", "npz:")
"""Prefixes of the user's own files or directories in ``dataset``."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings for compiling and running a project's pipeline on a server, named like the command's
    options."""

    service_account: str = ""
    """Account that runs and the schedule are under; empty for the server's default."""

    pipeline_root: str = ""
    """URL below which Kubeflow Pipelines keeps the artifacts of runs; empty for the server's
    own."""

    steps_image: str = ""
    """Image of the steps; empty for the one the components name."""

    trainer_image: str = ""
    """Image of trials and training; empty for the one the components name."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """The content of a ``podium.yaml``."""

    file: Path
    """Relative paths in it start from its folder."""

    pipeline: str = PIPELINE
    name: str = ""
    """Name of its pipeline on a server; empty for the model's, or else the folder's."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Parameters, not yet checked against a pipeline."""

    schedule: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a schedule besides pipeline and parameters, as in ``{name: nightly, cron:
    "@daily"}``."""

    server: ServerSettings = ServerSettings()

    @classmethod
    def load(cls, file: Path) -> "Project":
        """Read a file.

        Raises:
            InvalidInput: It cannot be read, or holds something else than one mapping.
        """
        try:
            documents = load_yaml(read_text(file), str(file), own=True)
        except OSError as error:
            raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
        content = documents[0] if len(documents) == 1 else None
        if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
            raise InvalidInput(
                f"{file} does not hold names and values", "for example model_name: iris"
            )
        pipeline, schedule = content.pop("pipeline", PIPELINE), content.pop("schedule", {})
        name = content.pop("name", "")
        if (
            not isinstance(name, str)
            or not isinstance(pipeline, str)
            or not isinstance(schedule, dict)
        ):
            raise InvalidInput(
                f"{file}: name is text, pipeline a name or a file, and schedule holds name and cron",
                'schedule: {name: nightly, cron: "@daily"}',
            )
        pipeline = str(file.parent / pipeline) if is_file(pipeline) else pipeline
        server = _server_settings(file, content.pop("server", {}))
        return cls(
            file=file,
            pipeline=pipeline,
            name=name,
            values=content,
            schedule=schedule,
            server=server,
        )

    @classmethod
    def find(cls) -> "Project | None":
        """Return the one of the working directory; None if it has no ``podium.yaml``."""
        return cls.load(Path(FILE)) if Path(FILE).is_file() else None

    @property
    def title(self) -> str:
        """Name of its pipeline on a server: one that no other project's has."""
        model = self.values.get("model_name")
        return (
            self.name
            or (model if isinstance(model, str) else "")
            or self.file.absolute().parent.name
        )

    def parameters(self, declared: Iterable[Parameter]) -> dict[str, Any]:
        """Return the values of a pipeline's parameters.

        Raises:
            InvalidInput: The pipeline has no such parameter, or one of another type.
        """
        table = {parameter.name: parameter for parameter in declared}
        require_known(self.values, [*table, *OWN], f"{self.file}: there is no parameter")
        try:
            checked = {name: table[name].check(value) for name, value in self.values.items()}
        except InvalidInput as error:
            raise InvalidInput(f"{self.file}: {error.message}", error.hint) from error
        return {name: from_folder(self.file.parent, name, value) for name, value in checked.items()}


def _server_settings(file: Path, settings: Any) -> ServerSettings:
    names = [setting.name for setting in fields(ServerSettings)]
    example = "server: {service_account: podium-steps}"
    if not isinstance(settings, dict) or not all(
        isinstance(value, str) for value in settings.values()
    ):
        raise InvalidInput(
            f"{file}: server holds names and texts, but got {settings!r}", f"for example {example}"
        )
    require_known(settings, names, f"{file}: server has no setting")
    return ServerSettings(**settings)


def choose(first: str, rest: Sequence[str]) -> tuple[str, list[str], Project | None]:
    """Tell a pipeline from parameters: it may be left out, and then the project of the working
    directory counts.

    Args:
        first: First word of the command line; may be empty.

    Returns:
        The pipeline, the words of the parameters, and the project if there is one and no other
        pipeline was named.
    """
    project = Project.find()
    if not first or "=" in first or first.startswith("-"):
        return project.pipeline if project else PIPELINE, [first, *rest] if first else [], project
    if project and _same(first, project.pipeline):
        return project.pipeline, list(rest), project
    if project and first != project.title and not first.endswith((".yaml", ".yml")):
        echo(f"{project.file} is not read: it is for {project.pipeline}", err=True)
    return first, list(rest), None


def _same(first: str, second: str) -> bool:
    if is_file(first):
        return Path(first).absolute() == Path(second).absolute()
    return first.replace("-", "_") == second.replace("-", "_")


def read_given(
    words: Sequence[str], parameters: Parameters, project: Project | None = None
) -> dict[str, Any]:
    """Return the user's parameters: from the command line, else from the project.

    Raises:
        InvalidInput: A parameter is unknown or of another type.
    """
    return {**(project.parameters(parameters) if project else {}), **parameters.read(words)}


def from_folder(folder: Path, name: str, value: Any) -> Any:
    """Return a parameter's value with the file of data, code or an Experiment in it that starts
    from a folder."""
    if not isinstance(value, str) or folder == Path():
        return value
    if name in ("experiment", "code") and (folder / value).exists():
        return str(folder / value)
    prefix = next(
        (prefix for prefix in LOCAL if name == "dataset" and value.startswith(prefix)), ""
    )
    return (
        f"{prefix}{folder / value.removeprefix(prefix)}" if prefix and "://" not in value else value
    )


def check_reachable(values: Mapping[str, Any]) -> None:
    """Refuse data that no pod has.

    Args:
        values: Parameters of one of podium's pipelines.

    Raises:
        InvalidInput: The dataset, its source or the weights are a relative path.
    """
    dataset = str(values.get("dataset", ""))
    kind = next((prefix for prefix in LOCAL if dataset.startswith(prefix)), "")
    paths = {"source": str(values.get("source", "")), "weights": str(values.get("weights", ""))}
    if kind:
        paths["dataset"] = dataset.removeprefix(kind)
    for name, path in paths.items():
        if path and "://" not in path and not path.startswith("/"):
            before = kind if name == "dataset" else ""
            there = f"s3://BUCKET/{Path(path).name}"
            raise InvalidInput(
                f"{name}={before}{path} is a file of this machine, and no pod has it",
                f"podium storage put {path} {there}, then {name}={before}{there}",
            )


def parameters_of(named: str) -> dict[str, str]:
    """Return the type of each parameter of a pipeline, read from its file as text, since loading
    kfp takes a second; empty if there is no such pipeline.

    Args:
        named: The pipeline on the command line; the project's pipeline, else the default one, if it
            is empty or a parameter.
    """
    if not named or "=" in named or named.startswith("-"):
        named = PIPELINE
        with suppress(PodiumError):
            project = Project.find()
            named = project.pipeline if project else PIPELINE
    file, _, function = named.partition(":")
    if not file.endswith(".py"):
        from podium import pipelines

        function = file.replace("-", "_")
        file = (
            str(Path(pipelines.__path__[0], f"{function}.py"))
            if function in pipelines.NAMES
            else ""
        )
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.parse(Path(file).read_text()).body:
            if (
                isinstance(node, ast.FunctionDef)
                and function in ("", node.name)
                and _is_pipeline(node)
            ):
                arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                return {
                    argument.arg: ast.unparse(argument.annotation) if argument.annotation else ""
                    for argument in arguments
                }
    return {}


def _is_pipeline(function: ast.FunctionDef) -> bool:
    # dsl.pipeline may be imported in any way, and called or not.
    names = (ast.unparse(decorator).partition("(")[0] for decorator in function.decorator_list)
    return any(name.rpartition(".")[2] == "pipeline" for name in names)

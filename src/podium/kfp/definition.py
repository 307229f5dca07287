"""A pipeline as commands name it: one of podium's, or one in a Python file (``FILE.py``,
``FILE.py:function``)."""

import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from podium.display.terminal import echo
from podium.errors import InvalidInput, suggestion
from podium.files.documents import foreign, load_yaml, read_text
from podium.kfp.importing import import_kfp
from podium.kfp.parameters import Parameters


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A pipeline that can be compiled and run."""

    pipeline: Any = None
    """A ``kfp.dsl`` GraphComponent; None for one that was read from compiled YAML."""

    ours: bool
    """Whether it is one of podium's pipelines, whose values have rules; those of another may mean
    something else."""

    documents: tuple[dict[str, Any], ...] = ()

    @classmethod
    def load(cls, reference: str) -> "Definition":
        """Return a pipeline by its name, or from its file.

        Args:
            reference: Name of one of podium's pipelines, ``FILE.py``, ``FILE.py:function`` where a
                file has several, or a compiled one, ``FILE.yaml``.

        Raises:
            InvalidInput: There is no such pipeline, or the file cannot be imported; the message
                names file and line.
        """
        if reference.endswith(_COMPILED):
            return cls(documents=_read(Path(reference)), ours=False)
        import_kfp()
        if not is_file(reference):
            from podium.pipelines import NAMES, load as load_own

            stem, colon, function = reference.partition(":")
            if reference.replace("-", "_") not in NAMES and os.path.isfile(f"{stem}.py"):
                raise InvalidInput(
                    f"there is no pipeline {reference!r}",
                    f"did you mean {stem}.py{colon}{function}?",
                )
            return cls(pipeline=load_own(reference), ours=True)
        file, _, function = reference.partition(":")
        return cls(pipeline=_choose(_import(Path(file)), file, function), ours=False)

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The compiled pipeline, without images and defaults of the command line."""
        return self._document(0, "pipeline_spec")

    @cached_property
    def platform(self) -> dict[str, Any]:
        """Its platform settings; empty without any."""
        return self._document(1, "platform_spec")

    def _document(self, at: int, name: str) -> dict[str, Any]:
        from google.protobuf.json_format import MessageToDict

        if self.pipeline is None:
            return self.documents[at] if len(self.documents) > at else {}
        return dict(MessageToDict(getattr(self.pipeline, name)))

    @cached_property
    def parameters(self) -> Parameters:
        """Its parameters, in the order of the function's."""
        if self.pipeline is None:
            return Parameters.within(self.spec)
        function = self.pipeline.pipeline_func
        if self.ours:
            return Parameters.of(function)
        order = list(signature(function).parameters)
        compiled = Parameters.within(self.spec)
        return Parameters(sorted(compiled, key=lambda parameter: order.index(parameter.name)))


def is_file(reference: str) -> bool:
    """Return whether a pipeline is named by its Python file."""
    return reference.partition(":")[0].endswith(".py")


_COMPILED = (".yaml", ".yml", ".json")
"""Endings of a compiled pipeline's file."""


def _read(file: Path) -> tuple[dict[str, Any], ...]:
    if not os.path.isfile(file):  # also of a text that is too long for a path
        raise InvalidInput(f"there is no file {file}", "a compiled pipeline, or FILE.py")
    text = read_text(file)
    documents = [each for each in load_yaml(text, str(file)) if each]
    first = documents[0] if documents else None
    if re.search(r"^apiVersion: argoproj\.io", text, re.MULTILINE):
        raise InvalidInput(f"{file} was compiled by KFP 1", "compile its source with KFP 2")
    if isinstance(first, dict) and "pipelineSpec" in first:  # as Vertex AI's jobs have it
        documents = [first["pipelineSpec"]]
        first = documents[0]
    if not isinstance(first, dict) or "pipelineInfo" not in first or "root" not in first:
        raise InvalidInput(f"{file} is not a compiled KFP v2 pipeline", "podium compile makes one")
    if str(first.get("schemaVersion")).startswith("2.0."):
        raise InvalidInput(
            f"{file} was compiled by {first.get('sdkVersion')}, in a schema that KFP 2 does not read",
            "compile its source with KFP 2",
        )
    with foreign(f"{file} is not a whole pipeline", hint="podium compile makes one"):
        list(_references(first))
    return tuple(documents)


def _references(spec: Mapping[str, Any]) -> Iterator[Any]:
    """Yield its name, all that its parts refer to, and the types of their parameters."""
    yield spec["pipelineInfo"]["name"]
    components = spec.get("components", {})
    executors = spec.get("deploymentSpec", {}).get("executors", {})
    for part in (spec["root"], *components.values()):
        for parameter in part.get("inputDefinitions", {}).get("parameters", {}).values():
            yield parameter["parameterType"]
        if "dag" not in part:
            yield executors[part["executorLabel"]]
            continue
        for task in part["dag"]["tasks"].values():
            yield components[task["componentRef"]["name"]]


def _choose(module: ModuleType, file: str, function: str) -> Any:
    from kfp.dsl.base_component import BaseComponent
    from kfp.dsl.graph_component import GraphComponent

    named = {
        name: value for name, value in vars(module).items() if isinstance(value, GraphComponent)
    }
    hint = "decorate a function with kfp.dsl.pipeline"
    for name, value in vars(module).items():
        if isinstance(value, BaseComponent) and name not in named and function in ("", name):
            how = "call it in a function with @kfp.dsl.pipeline, and name that"
            hint = f"{name} is a component: {how}, {file}:FUNCTION"
            break
    else:
        hint = suggestion(function, named) if function and named else hint
    if function:
        if function not in named:
            raise InvalidInput(f"{file} has no pipeline {function!r}", hint)
        return named[function]
    # One that is a part of another, from a file or this one, or that has two names, is not a
    # second.
    parts = {name for each in named.values() for name in each.pipeline_func.__code__.co_names}
    own = {
        id(value): name
        for name, value in named.items()
        if value.pipeline_func.__module__ == module.__name__ and name not in parts
    }
    if len(own) == 1:
        return named[next(iter(own.values()))]
    if own:
        raise InvalidInput(
            f"{file} has {len(own)} pipelines: {', '.join(own.values())}",
            f"name one: {file}:{next(iter(own.values()))}",
        )
    raise InvalidInput(f"{file} has no pipeline", hint)


def _import(file: Path) -> ModuleType:
    if not os.path.isfile(file):
        raise InvalidInput(
            f"there is no file {file}", "a pipeline's name, or a Python file that defines one"
        )
    spec = spec_from_file_location(f"pipeline_file_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    before = list(sys.path)
    # As python FILE has it, and the working directory: files of a repository import each other by
    # their paths from its root.
    packages = next((at for at, path in enumerate(before) if "site-packages" in path), len(before))
    sys.path[packages:packages] = [os.getcwd()]
    sys.path.insert(0, str(file.parent.absolute()))
    try:
        with redirect_stdout(sys.stderr):  # stdout is for the compiled pipeline
            try:
                spec.loader.exec_module(module)
            except ImportError as error:
                if "no known parent package" not in str(error):
                    raise
                module = _import_member(file.absolute())
    except (Exception, SystemExit) as error:
        if not _submits(module, error):
            raise _broken(file, error) from error
        echo(
            f"warning: {_broken(file, error).message}; its pipeline runs here all the same",
            err=True,
        )
    finally:
        sys.path[:] = before
    return module


def _import_member(file: Path) -> ModuleType:
    root = file.parent.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    sys.path.insert(0, str(root))
    return import_module(".".join(file.relative_to(root).with_suffix("").parts))


def _submits(module: ModuleType, error: BaseException) -> bool:
    # Whether a file that has defined its pipeline failed as it called a server.
    from kfp.dsl.graph_component import GraphComponent

    frames = traceback.extract_tb(error.__traceback__)
    has_pipeline = any(isinstance(value, GraphComponent) for value in vars(module).values())
    return has_pipeline and any("/kfp/client/" in frame.filename for frame in frames)


_KFP_1 = re.compile(
    r"\b(\w*ContainerOp|ResourceOp|VolumeOp|VolumeSnapshotOp|PipelineVolume|PipelineParam|PipelineConf"
    r"|create_component_from_func|func_to_container_op|\w*func_to_component_text|InputTextFile|InputPath|OutputPath"
    r"|get_pipeline_conf|use_k8s_secret|kfp\.(?:onprem|gcp|aws|azure|v2|deprecated|compiler\.compiler))\b"
    r"|(?<=cannot import name ')(?:onprem|gcp|aws|azure)(?=' from 'kfp')"
)
"""Names that KFP 1 has, and KFP 2 has not."""


def _broken(file: Path, error: BaseException) -> InvalidInput:
    folder = str(file.parent.absolute())
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    files = [(name, line) for name, line in frames if not name.startswith("<")]  # <string>
    own = [(name, line) for name, line in files if str(Path(name).absolute()).startswith(folder)]
    name, line = (
        (error.filename, error.lineno)
        if isinstance(error, SyntaxError)
        else (own or [(str(file), 1)])[-1]
    )
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    first = (text.strip().splitlines() or [""])[0]
    if isinstance(error, (AttributeError, ImportError)) and (old := _KFP_1.search(first)):
        return InvalidInput(
            f"{name}, line {line}: {old[0]} is of KFP 1, and this kfp is version 2",
            "podium runs pipelines of KFP 2: components are functions with dsl.component",
        )
    is_missing = isinstance(error, ModuleNotFoundError) or "(unknown location)" in first
    hint = _where_to_find(error, file) if is_missing else None
    return InvalidInput(f"{name}, line {line}: {type(error).__name__}: {first}".rstrip(": "), hint)


def _where_to_find(error: BaseException, file: Path) -> str:
    """Return how to have a module that was not found: from a folder above the file, or
    installed."""
    parts = str(getattr(error, "name", None) or "").split(".")
    for folder in file.absolute().parents[:-1]:
        place = folder.joinpath(*parts)
        if all(parts) and (place.is_dir() or place.with_suffix(".py").is_file()):
            return f"put PYTHONPATH={shlex.quote(str(folder))} before the command"
    return "install it in this environment"


def reaching(spec: Mapping[str, Any], field: str) -> set[str]:
    """Return the pipeline's parameters that reach an input of podium's launching components.

    Args:
        field: Name of the input of katib_sweep or train_distributed.
    """
    return {
        str(source["componentInputParameter"])
        for source in _sources(spec, spec.get("root", {}), field)
        if "componentInputParameter" in source
    }


def constants(spec: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    """Return the holders of constants that a pipeline's own code passes to an input of podium's
    components, under ``constant``."""
    groups = [spec.get("root", {}), *spec.get("components", {}).values()]
    sources = [source for group in groups for source in _sources(spec, group, field)]
    holders = {id(source): source["runtimeValue"] for source in sources if "runtimeValue" in source}
    return [holder for holder in holders.values() if "constant" in holder]


_LAUNCHING = ("comp-katib-sweep", "comp-train-distributed")
"""Components that launch the user's code; KFP numbers further ones."""


def _sources(spec: Mapping[str, Any], group: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    """Return the sources of a field for each task of a group; for a group of its own, the sources
    of that group's input."""
    holders: list[dict[str, Any]] = []
    for task in group.get("dag", {}).get("tasks", {}).values():
        name = task["componentRef"]["name"]
        inner = spec["components"].get(name, {})
        if "dag" in inner:
            names = {
                source.get("componentInputParameter") for source in _sources(spec, inner, field)
            }
        else:
            names = {field} if name.rstrip("-0123456789") in _LAUNCHING else set()
        sources = task.get("inputs", {}).get("parameters", {})
        holders += [sources[name] for name in names if name in sources]
    return holders

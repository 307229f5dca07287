"""A pipeline as commands name it: one of podium's, or one in a Python file (``FILE.py``,
``FILE.py:function``)."""

import sys
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from podium.errors import InvalidInput, suggestion
from podium.kfp.importing import import_kfp
from podium.kfp.parameters import Parameter, parameters_in, parameters_of


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A pipeline that can be compiled and run."""

    pipeline: Any
    """A ``kfp.dsl`` GraphComponent."""

    ours: bool
    """Whether it is one of podium's pipelines, whose values have rules; those of another may mean
    something else."""

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The compiled pipeline, without images and defaults of the command line."""
        from google.protobuf.json_format import MessageToDict

        return dict(MessageToDict(self.pipeline.pipeline_spec))

    @cached_property
    def parameters(self) -> list[Parameter]:
        """Its parameters, in the order of the function's."""
        function = self.pipeline.pipeline_func
        if self.ours:
            return parameters_of(function)
        order = list(signature(function).parameters)
        return sorted(parameters_in(self.spec), key=lambda parameter: order.index(parameter.name))


def is_file(reference: str) -> bool:
    """Return whether a pipeline is named by its Python file."""
    return reference.partition(":")[0].endswith(".py")


def load(reference: str) -> Definition:
    """Return a pipeline by its name, or from its file.

    Args:
        reference: Name of one of podium's pipelines, ``FILE.py``, or ``FILE.py:function`` where a
            file has several.

    Raises:
        InvalidInput: There is no such pipeline, or the file cannot be imported; the message names
            file and line.
    """
    import_kfp()
    if not is_file(reference):
        from podium.pipelines import load as load_own

        return Definition(pipeline=load_own(reference), ours=True)
    file, _, function = reference.partition(":")
    return Definition(pipeline=_choose(_import(Path(file)), file, function), ours=False)


def _choose(module: ModuleType, file: str, function: str) -> Any:
    from kfp.dsl.graph_component import GraphComponent

    named = {
        name: value for name, value in vars(module).items() if isinstance(value, GraphComponent)
    }
    if function:
        if function not in named:
            hint = (
                suggestion(function, named)
                if named
                else "decorate the function with kfp.dsl.pipeline"
            )
            raise InvalidInput(f"{file} has no pipeline {function!r}", hint)
        return named[function]
    # One that is imported to be a part of another, or that has two names, is not a second pipeline.
    own = {
        id(value): name
        for name, value in named.items()
        if value.pipeline_func.__module__ == module.__name__
    }
    if len(own) == 1:
        return named[next(iter(own.values()))]
    if own:
        raise InvalidInput(
            f"{file} has {len(own)} pipelines: {', '.join(own.values())}",
            f"name one: {file}:{next(iter(own.values()))}",
        )
    raise InvalidInput(f"{file} has no pipeline", "decorate a function with kfp.dsl.pipeline")


def _import(file: Path) -> ModuleType:
    if not file.is_file():
        raise InvalidInput(
            f"there is no file {file}", "a pipeline's name, or a Python file that defines one"
        )
    spec = spec_from_file_location(f"pipeline_file_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    sys.path.insert(0, str(file.parent.absolute()))
    try:
        with redirect_stdout(sys.stderr):  # stdout is for the compiled pipeline
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _broken(file, error) from error
    finally:
        sys.path.pop(0)
    return module


def _broken(file: Path, error: BaseException) -> InvalidInput:
    """Say in one sentence where in the user's code an import failed."""
    folder = str(file.parent.absolute())
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own = [(name, line) for name, line in frames if str(Path(name).absolute()).startswith(folder)]
    name, line = (
        (error.filename, error.lineno)
        if isinstance(error, SyntaxError)
        else (own or [(str(file), 1)])[-1]
    )
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    first = (text.strip().splitlines() or [""])[0]
    hint = "install it in this environment" if isinstance(error, ModuleNotFoundError) else None
    return InvalidInput(f"{name}, line {line}: {type(error).__name__}: {first}".rstrip(": "), hint)


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
    given = [source for group in groups for source in _sources(spec, group, field)]
    holders = {id(source): source["runtimeValue"] for source in given if "runtimeValue" in source}
    return [holder for holder in holders.values() if "constant" in holder]


LAUNCHING = ("comp-katib-sweep", "comp-train-distributed")
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
            names = {field} if name.rstrip("-0123456789") in LAUNCHING else set()
        given = task.get("inputs", {}).get("parameters", {})
        holders += [given[name] for name in names if name in given]
    return holders

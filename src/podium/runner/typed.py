"""Names and values of a pipeline's parameters for the command line, read from its file as text:
loading kfp takes a second."""

import ast
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from podium.errors import PodiumError
from podium.kfp.project import LOCAL, PIPELINE, find_project


def values_of(name: str, kind: str) -> Sequence[str]:
    """Return the valid values of a parameter; empty where they cannot be listed."""
    if name == "network":
        from podium.trainer.networks import OWN, TORCHVISION

        return (*OWN, *TORCHVISION)
    if name == "metric":
        from podium.scoring.metrics import METRICS

        return tuple(METRICS)
    if name == "rule":
        from podium.models.criteria import CRITERIA

        return tuple(name for name, criterion in CRITERIA.items() if criterion.compares)
    if name == "dataset":
        from podium.data.sources.known import DATASETS

        return (*DATASETS, *LOCAL)
    if name == "experiment":
        from podium.manifests.experiment.source import bundled

        return bundled()
    if name == "job_kind":
        from podium.manifests.job_kinds import AUTO, CHOICES

        return (AUTO, *CHOICES)
    return ("true", "false") if kind == "bool" else ()


def parameters_of(named: str) -> dict[str, str]:
    """Return the type of each parameter of a pipeline, as in its file; empty if there is no such
    pipeline.

    Args:
        named: The pipeline on the command line; the project's pipeline, else the default one, if it
            is empty or a parameter.
    """
    if not named or "=" in named or named.startswith("-"):
        named = PIPELINE
        with suppress(PodiumError):
            project = find_project()
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
                known = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                return {
                    known.arg: ast.unparse(known.annotation) if known.annotation else ""
                    for known in known
                }
    return {}


def _is_pipeline(function: ast.FunctionDef) -> bool:
    """Return whether a function is decorated with ``dsl.pipeline``, however it was imported, called
    or not."""
    names = (ast.unparse(decorator).partition("(")[0] for decorator in function.decorator_list)
    return any(name.rpartition(".")[2] == "pipeline" for name in names)

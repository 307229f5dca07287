"""The pipelines, one file each; loaded by name so that kfp is imported only when it is needed."""

from importlib import import_module
from typing import Any

NAMES = ("tune_and_promote", "train_and_promote")


def load(name: str) -> Any:
    """Return a pipeline, a ``kfp.dsl`` GraphComponent.

    Args:
        name: One of NAMES; dashes and underscores are the same.

    Raises:
        InvalidInput: There is no such pipeline.
    """
    from podium.errors import InvalidInput, suggestion

    wanted = name.replace("-", "_")
    if wanted not in NAMES:
        raise InvalidInput(f"there is no pipeline {name!r}", suggestion(wanted, NAMES))
    return getattr(import_module(f"podium.pipelines.{wanted}"), wanted)

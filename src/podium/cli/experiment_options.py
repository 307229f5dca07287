"""What `podium experiment run` and `render` share: a manifest and the changes to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from podium.cli.cluster_options import queue_options
from podium.errors import InvalidInput

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = [
    click.option("--name", help="Name of the Experiment, instead of the manifest's."),
    click.option("--data", metavar="URI", help="Directory or URI of the dataset: the trainer's --data."),
    click.option("--output", metavar="URI", help="Where trials put their models, each below its own name."),
    click.option(
        "--set",
        "flags",
        metavar="FLAG=VALUE",
        multiple=True,
        help="Another flag of the trials' program; may be repeated.",
    ),
    click.option("--image", help="Image of the trials."),
    click.option("--max-trials", type=int, help="Trials in all (spec.maxTrialCount)."),
    click.option("--parallel-trials", type=int, help="Trials at a time (spec.parallelTrialCount)."),
    click.option("--workers", type=int, help="Workers of each trial beside its master; 0 for none."),
    click.option("--goal", type=float, help="Stop when the objective reaches this (spec.objective.goal)."),
    click.option("--seed", type=int, help="Seed of the search algorithm (random_state)."),
    click.option(
        "--resume-policy",
        type=click.Choice(["Never", "LongRunning", "FromVolume"]),
        help="Whether a finished Experiment may get more trials (spec.resumePolicy).",
    ),
    click.option(
        "--config-map",
        "config_maps",
        metavar="FILE",
        multiple=True,
        type=click.Path(path_type=Path),
        help="YAML of the ConfigMap that holds the trial template; it may stand in the Experiment's own file too.",
    ),
    click.option(
        "--warm-start",
        "warm_start",
        metavar="NAME",
        multiple=True,
        help="Learn from the trials of this Experiment of the same cluster first; may be repeated.",
    ),
]


def manifest_options(function: F) -> F:
    """Add the options that change a manifest."""
    function = queue_options(function)
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def read_flags(texts: tuple[str, ...]) -> dict[str, str]:
    """Read the flags of --set.

    Raises:
        InvalidInput: One has no value.
    """
    given: dict[str, str] = {}
    for text in texts:
        flag, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(f"`--set FLAG=VALUE` must hold, but got {text!r}", "for example --set epochs=2")
        given[flag.lstrip("-")] = value
    return given

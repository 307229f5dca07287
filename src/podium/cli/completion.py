"""What the shell offers at Tab: names of runs, pipelines and Experiments. Options and commands click knows itself."""

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

PIPELINES = ("tune_and_promote", "train_and_promote")


def run_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the runs on this machine, and latest."""
    from podium.settings import Settings

    known = sorted(path.parent.name for path in Settings.from_environment().runs.glob("*/run.json"))
    return _beginning([*known, "latest"], incomplete)


def run_and_sweep_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the runs and the sweeps on this machine, and latest."""
    from podium.settings import Settings

    stored = Settings.from_environment().cluster.glob("experiments/[!.]*/object.json")
    sweeps = sorted(path.parent.name for path in stored)
    return [*run_names(ctx, param, incomplete), *_beginning(sweeps, incomplete)]


def pipelines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer podium's pipelines, else files."""
    return _beginning(PIPELINES, incomplete) or [CompletionItem(incomplete, type="file")]


def experiments(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the Experiments that come with podium, else files."""
    from podium.manifests.experiment.source import bundled

    return _beginning(bundled(), incomplete) or [CompletionItem(incomplete, type="file")]


def _beginning(names: Sequence[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]

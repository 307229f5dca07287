"""Shell completion: names of runs, pipelines and Experiments. Options and commands
click knows itself."""

import os
import re
from collections.abc import Sequence

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    split_arg_string,
)

from podium.system.settings import Settings

_PIPELINES = ("tune_and_promote", "train_and_promote")

_BREAKS = re.compile("[=:]+")
"""Words of their own in COMP_WORDS, unless COMP_WORDBREAKS was changed."""


def run_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the runs on this machine, and latest."""
    names = sorted(path.parent.name for path in Settings.from_environment().runs.glob("*/run.json"))
    return _beginning([*names, "latest"], incomplete)


def run_and_sweep_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the runs and the sweeps on this machine, and latest."""
    stored = Settings.from_environment().cluster.glob("experiments/[!.]*/object.json")
    sweeps = sorted(path.parent.name for path in stored)
    return [*run_names(ctx, param, incomplete), *_beginning(sweeps, incomplete)]


def pipelines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer podium's pipelines, or the parameters of the one that is meant where none is named,
    else files."""
    if found := _beginning(_PIPELINES, incomplete):
        return found
    return parameters(ctx, param, incomplete) or [CompletionItem(incomplete, type="file")]


def parameters(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the parameters of the pipeline that are not given yet, or the values of one behind its
    ``=``."""
    from podium.kfp.project import LOCAL, parameters_of

    named = str(ctx.params.get("pipeline") or "")
    types = parameters_of(named)
    name, equals, value = incomplete.partition("=")
    if not equals:
        given = {_name(word) for word in (named, *ctx.params.get("parameters", ()))}
        return _beginning(
            [f"{parameter}=" for parameter in types if parameter not in given], _name(incomplete)
        )
    if _name(name) == "dataset" and value.startswith(LOCAL):
        return [CompletionItem(incomplete, type="file")]
    if _name(name) == "code":
        return [CompletionItem(incomplete, type="dir")]
    choices = _values_of(_name(name), types[_name(name)]) if _name(name) in types else ()
    return _beginning([f"{name}={value}" for value in choices], incomplete)


def _values_of(name: str, kind: str) -> Sequence[str]:
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
        from podium.kfp.project import LOCAL

        return (*DATASETS, *LOCAL)
    if name == "experiment":
        from podium.manifests.experiment.source import bundled

        return bundled()
    if name == "job_kind":
        from podium.manifests.job_kinds import AUTO, CHOICES

        return (AUTO, *CHOICES)
    return ("true", "false") if kind == "bool" else ()


def _name(word: str) -> str:
    return word.partition("=")[0].removeprefix("--").replace("-", "_")


def experiments(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the Experiments that come with podium, else files."""
    from podium.manifests.experiment.source import bundled

    return _beginning(bundled(), incomplete) or [CompletionItem(incomplete, type="file")]


def _beginning(names: Sequence[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@add_completion_class
class _Bash(BashComplete):
    """Bash, which takes ``network=fast`` for three words and replaces the last one alone; click
    expects one word."""

    source_template = BashComplete.source_template.replace(
        "env COMP_WORDS=", 'env COMP_CURRENT="${COMP_LINE:0:COMP_POINT}" COMP_WORDS='
    ).replace(
        "    return 0\n",
        "    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=:] ]]; then\n"
        "        compopt -o nospace 2>/dev/null\n"  # the value follows
        "    fi\n\n    return 0\n",
    )

    _before = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor's, and that word as far as it is written."""
        at = int(os.environ["COMP_CWORD"])
        words = [*split_arg_string(os.environ["COMP_WORDS"]), ""][: at + 1]
        written = re.split(r"\s", os.environ.get("COMP_CURRENT", ""))[-1]
        first = len(words) - 1  # of the pieces that the cursor's word has
        while (
            first > 1 and written != (joined := "".join(words[first:])) and written.endswith(joined)
        ):
            first -= 1
        if first < len(words) - 1 and written == "".join(words[first:]):
            last = "" if _BREAKS.fullmatch(words[-1]) else words[-1]
            self._before = written.removesuffix(last)
            return _whole(words[1:first]), written
        return _whole(words[1:-1]), words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return an item without what stands before the piece that bash replaces."""
        return f"{item.type},{item.value.removeprefix(self._before)}"


def _whole(pieces: Sequence[str]) -> list[str]:
    words: list[str] = []
    for piece in pieces:
        if words and (_BREAKS.fullmatch(piece) or _BREAKS.fullmatch(words[-1][-1:])):
            words[-1] += piece
        else:
            words.append(piece)
    return words

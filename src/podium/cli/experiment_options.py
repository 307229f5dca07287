"""What `podium experiment run` and `render` share: a manifest and the changes to it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from podium.cli.cluster_options import queue_options
from podium.errors import InvalidInput

if TYPE_CHECKING:
    from podium.manifests.experiment import Experiment
    from podium.manifests.placement import Pods

F = TypeVar("F", bound=Callable[..., Any])

_TRAINER = ["-m", "podium.trainer"]

_OPTIONS = [
    click.option("--name", help="metadata.name; that of the manifest if missing."),
    click.option("--data", metavar="URI", help="Directory or URI of the dataset: the trainer's --data."),
    click.option("--output", metavar="URI", help="Where trials put their models, each below its own name."),
    click.option("--set", "flags", metavar="FLAG=VALUE", multiple=True, help="Another flag of the trials' program."),
    click.option("--image", help="Image of the trials."),
    click.option("--max-trials", type=int, help="spec.maxTrialCount."),
    click.option("--parallel-trials", type=int, help="spec.parallelTrialCount."),
    click.option("--workers", type=int, help="Workers of each trial beside its master; 0 for none."),
    click.option("--goal", type=float, help="spec.objective.goal."),
    click.option("--seed", type=int, help="random_state of the algorithm."),
    click.option(
        "--resume-policy",
        type=click.Choice(["Never", "LongRunning", "FromVolume"]),
        help="spec.resumePolicy: whether a finished Experiment may get more trials.",
    ),
    click.option(
        "--config-map",
        "config_maps",
        metavar="FILE",
        multiple=True,
        type=click.Path(path_type=Path),
        help="YAML of the ConfigMap that holds the trial template; it may stand in the Experiment's own file too.",
    ),
    click.option("--warm-start", "warm_start", metavar="NAME", multiple=True, help="Learn from this Experiment first."),
]


def manifest_options(function: F) -> F:
    """Add the options that change a manifest."""
    function = queue_options(function)
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def changed(
    source: str,
    *,
    name: str | None,
    data: str | None,
    output: str | None,
    flags: tuple[str, ...],
    warm_start: tuple[str, ...],
    config_maps: tuple[Path, ...],
    queue: "Pods",
    **changes: Any,
) -> "Experiment":
    """Load an Experiment and change it as the options say.

    Raises:
        InvalidInput: A flag has no value, or there is no such file or bundled Experiment, or it is not readable.
    """
    from podium.manifests.experiment import Experiment, customize, load
    from podium.manifests.experiment.build import own_name
    from podium.manifests.kinds import JOB_KINDS
    from podium.manifests.labels import WARM_START
    from podium.manifests.placement import place

    networks = [text.partition("=")[2] for text in flags if text.lstrip("-").startswith("model=")]
    manifest = load(source, networks[-1] if networks else "", config_maps)
    if (kind := manifest.get("kind")) in JOB_KINDS:
        message = f"{source} must hold an Experiment, but holds a {kind}"
        raise InvalidInput(message, f"podium job run {source}" if Path(source).is_file() else "podium job run FILE")
    experiment = Experiment.parse(manifest)
    given: dict[str, str | None] = {}
    for text in flags:
        flag, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(f"`--set FLAG=VALUE` must hold, but got {text!r}", "for example --set epochs=2")
        given[f"--{flag.lstrip('-')}"] = value
    if data:
        given["--data"] = _uri(data)
    if output:
        if not experiment.template.parameters and not experiment.template.workload.manifest:
            raise InvalidInput("--output needs a spec.trialTemplate, but there is none", "write one")
        experiment, own = own_name(experiment)
        given["--output"] = f"{_uri(output)}/{own}"
    annotations = {WARM_START: ", ".join(warm_start)} if warm_start else None
    return place(customize(experiment, name=name, flags=given, annotations=annotations, **changes), queue)


def at_home(experiment: "Experiment", home: Path, data: str | None, output: str | None) -> "Experiment":
    """Point our own trainer's S3 defaults at this machine's directories, where the user named none.

    Args:
        experiment: As changed by the options.
        home: Holds ``data/mnist`` and ``trials``.
        data: What the user gave.
        output: What the user gave.

    Raises:
        InvalidInput: There is no dataset where it would be.
    """
    from podium.manifests.experiment import customize
    from podium.manifests.experiment.build import own_name

    words = [word for _, container in experiment.template.primary_containers() for word in container.words]
    flags: dict[str, str] = {}
    if not any(words[at : at + 2] == _TRAINER for at in range(len(words))):
        return experiment
    if not data and any(word.startswith("--data=s3://podium/") for word in words):
        flags["--data"] = str(home / "data" / "mnist")
        if not Path(flags["--data"], "dataset.json").exists():
            raise InvalidInput(f"no dataset at {flags['--data']}", "podium data prepare")
    if not output and any(word.startswith("--output=s3://podium/") for word in words):
        experiment, own = own_name(experiment)
        flags["--output"] = f"{home / 'trials'}/{own}"
    return customize(experiment, flags=flags)


def _uri(text: str) -> str:
    return text.rstrip("/") if "://" in text else str(Path(text).absolute())

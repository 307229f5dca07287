"""`podium tune`: search the best flags of any script or command, without YAML."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from podium.cli.experiment import follow_to_end
from podium.cli.options import (
    TYPED,
    Notifier,
    WithCommand,
    cluster_options,
    experiment_name,
    json_option,
    next_command,
    notify_option,
    pairs_option,
    queue_options,
    sweep_options,
)
from podium.documents import write_file
from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.libraries import LIBRARIES, library_of
from podium.search.algorithms import ALGORITHMS
from podium.search.auto import AUTO
from podium.terminal import echo
from podium.text import relative

if TYPE_CHECKING:
    from podium.api.cluster_spec import ClusterSpec
    from podium.api.sweep import Sweep
    from podium.api.tune import Plan, TuneSettings
    from podium.notify import Notice

KEYS = [library.key for library in LIBRARIES]
SIMPLE = ", ".join(
    [AUTO, *(name for name, algorithm in ALGORITHMS.own.items() if not algorithm.required)]
)


@click.command(
    cls=WithCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] --NAME SPACE...")
@click.option("--trials", default=20, show_default=True, help="How many.")
@click.option("--parallel", default=2, show_default=True, help="How many at a time.")
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    default=["accuracy"],
    show_default=True,
    help="Metric: NAME, min:NAME or max:NAME; may be repeated, the first decides about the best trial.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Another metric to record; may be repeated.",
)
@click.option(
    "--prints",
    type=click.Choice(KEYS),
    help="The library that prints the metrics, in lines of its own.",
)
@click.option("--algorithm", default=AUTO, show_default=True, help=f"{SIMPLE}.")
@click.option(
    "--stop", type=click.Choice(["median", "asha"]), help="Keep trials short that get nowhere."
)
@click.option("--seed", type=int, help="Seed of the algorithm.")
@pairs_option(
    "--param",
    "params",
    metavar="NAME=SPACE",
    example="seed=1..5",
    help="A flag that podium tune has too.",
)
@click.option(
    "--data", metavar="URI", help="Directory or URI of a dataset: the script gets it as --data."
)
@click.option(
    "--storage", metavar="URI", help="Where trials put models, and on a cluster their code is kept."
)
@click.option("--image", default="", help="Image of the trials, on a cluster.")
@click.option(
    "--name", callback=experiment_name, help="Name of the Experiment; the script's if missing."
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the Experiment as YAML, too.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the report into this file.",
)
@queue_options
@sweep_options(without=("objectives", "algorithm"))
@click.option("--no-run", is_flag=True, help="Only write the YAML; needs --save.")
@cluster_options
@notify_option
@json_option
def tune(
    words: tuple[str, ...],
    command: tuple[str, ...],
    spec: "ClusterSpec",
    notifier: Notifier,
    as_json: bool,
    no_run: bool,
    report: Path | None,
    **options: Any,
) -> None:
    """Search the best flags of a script, or of the command behind --.

    Every other option --NAME SPACE is a flag of the script. SPACE is a range (1e-4..1e-1, 1..8,
    0..1:0.25), choices (32,64,128), or a value that is the same in all trials. A range of floats
    that spans two decades or more is searched on a log scale; log:1..64 and linear:1e-4..1 say
    which. The script prints metric lines such as accuracy=0.98, and may keep its model in
    $PODIUM_OUTPUT. A script that prints as a library does needs no change: --prints names it, and
    '${podium.output}' is a flag's value, where the trial's model is kept.

    --stop median stops a trial that is worse than the others once it has printed the objective
    three times; --stop asha begins all with the least --epochs and goes on with the best, and needs
    a range of them: --epochs 1..27.

    It ends with the best trial, the command that trains with its values, and an HTML report beside
    the Experiment.

    On a cluster the code of the working directory is packed into --storage, and runs in --image.

    \b
    Examples:
      podium tune train.py --lr 1e-4..1e-1 --batch-size 32,64,128 --trials 20
      podium tune ./train.sh --lr 1e-4..1e-1 --objective min:loss --algorithm random --parallel 4
      podium tune train.py --lr 1e-4..1e-1 --trials 40 --stop median
      podium tune train.py --lr 1e-4..1e-1 --trials 500 --max-time 2h
      podium tune train.py --width 8..256 --objective accuracy --objective min:latency_ms
      podium tune train.py --width 8..256 --constraint "size_mb<5"
      podium tune --lr 1e-3..1 --trials 10 -- python -m podium.trainer --data podium-work/data/mnist
      podium tune train.py --learning_rate 1e-5..1e-3 --prints huggingface --objective eval_accuracy
      podium tune train.py --lr 1e-4..1e-1 --save sweep.yaml --no-run
      podium tune train.py --lr 1e-4..1e-1 --cluster kubernetes://team --storage s3://bucket/tuning
    """
    train, space = _read(words, command, options.pop("params"))
    save, given = (
        options.pop("save"),
        {name: options.pop(name) for name in ("data", "storage", "name")},
    )
    if no_run and save is None:
        raise InvalidInput(
            "--no-run runs nothing, and without --save nothing is written", "add --save sweep.yaml"
        )
    from podium.api.tune import plan

    with notifier.about("Experiment") as notice:
        planned = plan(train, space, _settings(**options), spec=spec, **given)
        if save:
            _save(planned, save)
        if no_run:
            return
        begun = planned.start()
        notice.run = begun.name
        with closing(begun), _reported(begun, report, notice):
            try:
                notice.metrics = follow_to_end(
                    begun, as_json, objective="--objective NAME", ask=_ask
                )
            except Failed:  # also then some trials may have a result
                _say_how_to_train(planned, begun, as_json)
                raise
            _say_how_to_train(planned, begun, as_json)
            echo(
                f"all trials: {next_command(f'experiment trials {begun.name}', begun.cluster)}",
                err=True,
            )


OPTIONS = [
    name.removeprefix("--")
    for option in tune.params
    for name in option.opts
    if name.startswith("--")
]


def _settings(
    *,
    objectives: Sequence[str],
    prints: str | None,
    image: str,
    queue: str,
    queue_priority: str,
    **options: Any,
) -> "TuneSettings":
    from podium.api.tune import Goal, TuneSettings
    from podium.manifests.options import read_settings, settings
    from podium.manifests.placement import Pods
    from podium.training.target import TRAINER_IMAGE

    pods = Pods(queue=queue, queue_priority=queue_priority)
    first, *further = objectives
    asked = {
        name: options.pop(name) for name in settings() if name in options and name != "algorithm"
    }
    library, image = library_of(prints) if prints else None, image or TRAINER_IMAGE
    return TuneSettings(
        goal=Goal.read(first, any_name=library is not None),
        prints=library,
        image=image,
        pods=pods,
        asked=read_settings({**asked, "objectives": further}),
        **options,
    )


def _say_how_to_train(planned: "Plan", sweep: "Sweep", as_json: bool) -> None:
    if as_json:
        return
    with suppress(NotFound):  # no trial has a result
        flags = [f"--{name}={value}" for name, value in sweep.best_trial.parameters.items()]
        echo(f"train with them: {shlex.join([*planned.words, *flags])}")


def _ask(library: str, metric: str) -> str:
    """Return the command as it was typed, for the lines of a library."""
    from podium.manifests.experiment.trainer import set_flags

    typed = list(click.get_current_context().meta[TYPED])
    cut = typed.index("--") if "--" in typed else len(typed)
    own: dict[str, Any] = {"args": typed[:cut]}
    set_flags(own, {"--prints": None, "--objective": None}, quoted=False)
    asked = f"--prints {library} --objective " + (
        metric if shlex.quote(metric) == metric else f'"{metric}"'
    )
    return " ".join(
        filter(
            None, ["podium tune", shlex.join(own.get("args", ())), asked, shlex.join(typed[cut:])]
        )
    )


@contextmanager
def _reported(sweep: "Sweep", file: Path | None, notice: "Notice") -> Iterator[None]:
    """Write the report when the sweep has ended, also where it failed; after Ctrl-C only say how
    to."""
    try:
        yield
    except KeyboardInterrupt:
        echo(
            f"its report: {next_command(f'experiment report {sweep.name}', sweep.cluster)}",
            err=True,
        )
        raise
    except Failed:
        with suppress(PodiumError):  # the sweep's own error counts
            _write_report(sweep, file, notice)
        raise
    _write_report(sweep, file, notice)


def _write_report(sweep: "Sweep", file: Path | None, notice: "Notice") -> None:
    notice.report = str(sweep.report(file))
    echo(f"report: {relative(notice.report)}", err=True)


def _read(
    words: Sequence[str], command: Sequence[str], params: Mapping[str, str]
) -> tuple[str | Sequence[str], dict[str, Any]]:
    """Tell the script from its flags.

    Raises:
        InvalidInput: There is no script or several, or a flag has no value.
    """
    from podium.api.space import dimension, from_text

    scripts, given, left = list[str](), dict[str, str](), list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and (own := get_close_matches(name, OPTIONS, n=1, cutoff=0.85)):
            echo(f"warning: --{name} is a flag of the script; did you mean --{own[0]}?", err=True)
        if not word.startswith("--"):
            scripts.append(word)
        elif equals:
            given[name] = value
        elif left and not left[0].startswith("--"):
            given[name] = left.pop(0)
        else:
            hint = f"--{name} SPACE; a flag without a value goes behind --: podium tune … -- python train.py --{name}"
            raise InvalidInput(f"--{name} has no value", hint)
    if len(scripts) != (not command):
        hint = "podium tune train.py --lr 1e-4..1e-1, or podium tune --lr 1e-4..1e-1 -- python train.py"
        named = " ".join([*scripts, *(["--", *command] if command else [])]) or "none"
        raise InvalidInput(f"one script is tuned, or the command behind --, but got {named}", hint)
    space = {name: from_text(name, text) for name, text in {**given, **params}.items()}
    if not any(dimension(name, values) for name, values in space.items()):
        run = shlex.join(["podium", "tune", *scripts, "--lr", "1e-4..1e-1"])
        problem = f"there is nothing to search in {' '.join(words) or shlex.join(command)}"
        raise InvalidInput(problem, " -- ".join(filter(None, [run, shlex.join(command)])))
    return command or scripts[0], space


def _save(planned: "Plan", file: Path) -> None:
    """Write an Experiment as it is created on its cluster."""
    from podium.api.experiments import with_store
    from podium.cluster.traits import traits_of
    from podium.yaml_loader import dump

    experiment, url = planned.experiment, planned.spec.url
    if not traits_of(url).shares_files:
        experiment = with_store(experiment, url, lambda line: echo(line, err=True))
    write_file(file, dump(experiment.manifest))
    echo(f"wrote {file}", err=True)

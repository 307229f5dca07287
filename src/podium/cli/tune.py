"""`podium tune`: search the best flags of any script or command, without YAML."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

import click

from podium.cli.experiment import follow_to_end
from podium.cli.notify import Notice, Notifier
from podium.cli.options import (
    TYPED,
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
from podium.display.terminal import echo
from podium.display.text import relative
from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.files.documents import write_file
from podium.metrics.libraries import LIBRARIES
from podium.search.algorithms import ALGORITHMS, AUTO

if TYPE_CHECKING:
    from podium.api.cluster_spec import ClusterSpec
    from podium.api.sweep import Sweep
    from podium.api.tune import TunePlan

KEYS = [library.key for library in LIBRARIES]
_SEARCH = (
    *("--trials", "--parallel", "--objective", "--prints", "--algorithm"),
    *("--constraint", "--condition", "--max-time", "--max-cost"),
)
"""Options about the search, of which a program would have its own under other names."""

_SIMPLE = ", ".join(
    [AUTO, *(name for name, algorithm in ALGORITHMS.own.items() if not algorithm.required)]
)


@click.command(
    cls=WithCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] --NAME SPACE...")
@click.option(
    "--trials",
    default=20,
    show_default=True,
    help="Number of trials. A sweep is stopped where its first 20 have no result.",
)
@click.option("--parallel", default=2, show_default=True, help="Number of trials at a time.")
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    default=["accuracy"],
    show_default=True,
    help="Metric: NAME, min:NAME or max:NAME; may be repeated; the first one selects the best trial.",
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
    help="Library whose output holds the metrics.",
)
@click.option(
    "--as",
    "passing",
    metavar="WAY",
    default="",
    help="How the program takes parameters: flags, hydra, papermill, env or config:FILE.",
)
@click.option("--algorithm", default=AUTO, show_default=True, help=f"{_SIMPLE}.")
@click.option(
    "--stop", type=click.Choice(["median", "asha"]), help="Stop unpromising trials early."
)
@click.option("--seed", type=int, help="Seed of the algorithm.")
@pairs_option(
    "--param",
    "params",
    metavar="NAME=SPACE",
    example="seed=1..5",
    help="Flag of the script that podium tune has, too.",
)
@click.option(
    "--data", metavar="URI", help="Directory or URI of a dataset, passed to the script as --data."
)
@click.option(
    "--storage",
    metavar="URI",
    help="Storage of the trials' models and, on a cluster, of their code.",
)
@click.option("--image", default="", help="Image of the trials, on a cluster.")
@click.option(
    "--name", callback=experiment_name, help="Name of the Experiment; the script's by default."
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
    """Search for the best flags of a script, or of the command after --.

    Every other option --NAME SPACE is a flag of the script. SPACE is a range (1e-4..1e-1, 1..8,
    0..1:0.25), choices (32,64,128 or [64,64],[128]), or a value for all trials. A range of floats
    that spans two decades or more is searched on a log scale; log:1..64 and linear:1e-4..1 say
    which. The script prints metric lines such as accuracy=0.98, and may keep its model in
    $PODIUM_OUTPUT. A script that uses a supported library needs no change: --prints names the
    library, and '${podium.output}' as a flag's value is the directory of the trial's model.

    A program that takes its parameters otherwise is tuned as it is: --as hydra (name=value),
    papermill (a notebook's way), env (variables) or config:FILE, in which ${name} stands for a
    value. '${name}' in the command is a value's place; --augment/--no-augment is a flag without a
    value, --amp/ one that is there or not.

    --stop median stops a trial that is worse than the others once it has printed the objective
    three times; --stop asha starts all trials with the fewest --epochs and continues the best ones,
    and needs a range: --epochs 1..27.

    At the end it prints the best trial and the command that trains with its values, and writes an
    HTML report beside the Experiment.

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
      podium tune train.py --as hydra --optimizer.lr 1e-4..1e-1 --model.layers 1..4
      podium tune --as config:run.toml --lr 1e-4..1e-1 -- python train.py --config run.toml
      podium tune --lr 1e-4..1e-1 -- python train.py fit '${lr}'
      podium tune train.py --lr 1e-4..1e-1 --save sweep.yaml --no-run
      podium tune train.py --lr 1e-4..1e-1 --cluster kubernetes://team --storage s3://bucket/tuning
    """
    train, space = _read(words, command, options.pop("params"))
    save, plan_options = (
        options.pop("save"),
        {name: options.pop(name) for name in ("data", "storage", "name")},
    )
    if no_run and save is None:
        raise InvalidInput(
            "--no-run runs nothing, and without --save nothing is written", "add --save sweep.yaml"
        )
    chosen = ALGORITHMS.own.get(options["algorithm"])
    if chosen and chosen.required and not options["stop"]:
        raise InvalidInput(
            f"{chosen.name} needs the settings {', '.join(chosen.required)}, which podium tune has no "
            "flags for",
            "--stop asha stops trials early; in Python podium.tune(…, settings={…})",
        )
    told = {"--notify": notifier.targets, "--report": report, "--json": as_json}
    if no_run and (useless := [option for option, value in told.items() if value]):
        raise InvalidInput(
            f"--no-run runs nothing, whose end {' and '.join(useless)} could report",
            f"leave out --no-run, or {' and '.join(useless)}",
        )
    from podium.api.tune import TuneSettings, plan

    with notifier.about("Experiment") as notice:
        settings = TuneSettings.read(options.pop("objectives"), **options)
        planned = plan(train, space, settings, spec=spec, **plan_options)
        if save:
            _save(planned, save)
        if no_run:
            return
        begun = planned.start()
        notice.run = begun.name
        with begun, _reported(begun, report, notice):
            try:
                notice.metrics = follow_to_end(
                    begun,
                    as_json,
                    objective="--objective NAME",
                    ask=_ask,
                    patience=_patience(begun),
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


def _say_how_to_train(planned: "TunePlan", sweep: "Sweep", as_json: bool) -> None:
    if as_json:
        return
    with suppress(NotFound):  # no trial has a result
        echo(f"train with them: {planned.command_line(sweep.best_trial.parameters)}")


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


def _patience(begun: "Sweep") -> int:
    """Return after how many trials without a result a sweep is stopped; 0 for never: a grid may
    begin where no point has one, and Katib knows no stop."""
    experiment = begun.experiment
    if experiment.search.name == "grid" or begun.cluster.outlives_client("Experiment"):
        return 0
    return max(20, 2 * experiment.limits.parallel)


@contextmanager
def _reported(sweep: "Sweep", file: Path | None, notice: Notice) -> Iterator[None]:
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


def _write_report(sweep: "Sweep", file: Path | None, notice: Notice) -> None:
    notice.report = str(sweep.report(file))
    echo(f"report: {relative(notice.report)}", err=True)


def _read(
    words: Sequence[str], command: Sequence[str], params: Mapping[str, str]
) -> tuple[str | Sequence[str], dict[str, Any]]:
    """Tell the script from its flags.

    Raises:
        InvalidInput: There is no script or several, or a flag has no value.
    """
    from podium.api.flags_of_script import misplaced
    from podium.api.program import script_words
    from podium.api.space import Switch, dimension, from_text

    typed, flags, left = list[str](), dict[str, str](), list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and (own := get_close_matches(name, OPTIONS, n=1, cutoff=0.85)):
            echo(f"warning: --{name} is a flag of the script; did you mean --{own[0]}?", err=True)
        if word.startswith("--") and name in flags:
            _refuse_twice(name)
        if not word.startswith("--"):
            typed.append(word)
        elif Switch.named(name):
            flags[name] = ""
        elif equals:
            flags[name] = value
        elif left and not left[0].startswith("--"):
            flags[name] = left.pop(0)
        else:
            hint = (
                f"--{name} SPACE; --{name}/ for a flag that is there or not; one that is always "
                f"there goes after --: podium tune … -- python train.py --{name}"
            )
            raise InvalidInput(f"--{name} has no value", hint)
    if typed and typed[0].startswith("../"):
        folder, _, script = typed[0].rpartition("/")
        hint = f"cd {shlex.quote(folder)}, then podium tune {shlex.quote(script)} …"
        raise InvalidInput(f"{typed[0]} is not below the working directory", hint)
    unfit = [word for word in typed if word.startswith("-") or ".." in word] + [
        word for word in typed[1:] if word.endswith((".py", ".sh", ".ipynb"))
    ]
    if bool(typed) == bool(command) or unfit:
        hint = "podium tune train.py --lr 1e-4..1e-1, or podium tune --lr 1e-4..1e-1 -- python train.py"
        if typed and not command and (typed[0] == "-m" or which(typed[0])):
            hint = _behind_dashes(["python", *typed] if typed[0] == "-m" else typed, typed)
        if typed and command and command[0].startswith("--"):
            own = [word for word in click.get_current_context().meta[TYPED] if word != "--"]
            hint = shlex.join(["podium", "tune", *own])
        named = " ".join([*typed, *(["--", *command] if command else [])]) or "none"
        raise InvalidInput(
            f"podium tune takes one script, or the command after --, but got {named}", hint
        )
    if both := flags.keys() & params.keys():
        _refuse_twice(min(both))
    space = {name: from_text(name, text) for name, text in {**flags, **params}.items()}
    if not any(Switch.named(name) or dimension(name, values) for name, values in space.items()):
        run = shlex.join(["podium", "tune", *typed, "--lr", "1e-4..1e-1"])
        problem = f"there is nothing to search in {' '.join(words) or shlex.join(command)}"
        raise InvalidInput(problem, " -- ".join(filter(None, [run, shlex.join(command)])))
    if lost := misplaced(command, _SEARCH) if command else "":
        echo(f"warning: {lost}", err=True)
    if command or len(typed) == 1:
        return command or typed[0], space
    return [*script_words(Path(typed[0])), *typed[1:]], space


def _behind_dashes(program: Sequence[str], typed: Sequence[str]) -> str:
    """Return the command as it was typed, with its program after --."""
    left = list(click.get_current_context().meta[TYPED])
    for word in typed:
        left.remove(word)
    return shlex.join(["podium", "tune", *left, "--", *program])


def _refuse_twice(name: str) -> None:
    hint = (
        f"one space or value for --{name}; what the program takes several times goes after --: "
        f"podium tune --lr 1e-4..1e-1 -- python train.py --{name} 1 --{name} 2"
    )
    raise InvalidInput(f"--{name} is given twice", hint)


def _save(planned: "TunePlan", file: Path) -> None:
    from podium.api.experiments import with_store
    from podium.cluster.traits import traits_of
    from podium.files.yaml_loader import dump
    from podium.storage import absolute, local_path

    experiment, url = planned.experiment, planned.spec.url
    if not traits_of(url).shares_files:
        experiment = with_store(experiment, url, lambda line: echo(line, err=True))
    write_file(file, dump(experiment.manifest))
    here = [
        absolute(str(place))
        for place in (planned.output, planned.data)
        if place and local_path(str(place)) is not None
    ]
    paths = f", with paths of this machine: {', '.join(here)}" if here else ""
    echo(f"wrote {file}{paths}", err=True)
    if here:
        hint = "for another machine name URIs with --storage and --data, or edit them"
        echo(f"  hint: {hint}", err=True)

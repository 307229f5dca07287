"""`podium run` and `podium compile`."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import podium
from podium.cli.completion import parameters as parameters_, pipelines, run_names
from podium.cli.notify import Notifier
from podium.cli.options import (
    image_dir_option,
    json_option,
    notify_option,
    supply_options,
)
from podium.display.terminal import echo, output
from podium.errors import InvalidInput
from podium.files.documents import write_file

if TYPE_CHECKING:
    from podium.cluster.local.supplies import Supplies
    from podium.runner.run import Run

FROM = "Repeat this step and all after it, even if they had finished."
FREE = {"ignore_unknown_options": True, "allow_extra_args": True}


@click.command(context_settings=FREE)
@click.argument("pipeline", default="", shell_complete=pipelines)
@click.argument("parameters", nargs=-1, type=click.UNPROCESSED, shell_complete=parameters_)
@click.option(
    "--list", "list_", is_flag=True, help="Show the pipeline's parameters and their defaults."
)
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=run_names,
    help="Resume a run that was stopped or failed; latest for the newest.",
)
@click.option(
    "--from",
    "first",
    metavar="STEP",
    default="",
    help=f"With --resume: {FROM[0].lower()}{FROM[1:]}",
)
@click.option(
    "--debug",
    metavar="STEP",
    default="",
    help="Stop before this step, and open a shell with its inputs, environment and command.",
)
@supply_options
@image_dir_option()
@notify_option
@json_option
def run(
    pipeline: str,
    parameters: tuple[str, ...],
    list_: bool,
    resume: str | None,
    first: str,
    debug: str,
    supplies: "Supplies",
    images: dict[str, str],
    notifier: Notifier,
    as_json: bool,
) -> None:
    """Run a pipeline on this machine; no cluster, no Docker.

    PIPELINE is tune_and_promote, train_and_promote, or a file with any KFP v2 pipeline: FILE.py,
    FILE.py:function if it has several, or a compiled FILE.yaml. Without one, podium.yaml in the
    working directory names the pipeline and gives parameters (see podium init); where there is
    none it is tune_and_promote. PARAMETERS are written name=value or --name value. The run is
    stored under podium-work/runs/, models under podium-work/store/ (PODIUM_HOME moves both).
    --resume continues an earlier run with its parameters: finished steps and trials are not
    repeated, unless --from names the first step to repeat. The remaining steps use the current
    code, from the directory it was packed from or from code=DIR. What a pipeline takes from a
    cluster comes from --volume, --secret, --config-map and --image-dir, or is refused before its
    first step.

    \b
    Examples:
      podium run
      podium run tune_and_promote max_trials=6 epochs=5
      podium run train_and_promote --dataset fashion-mnist --workers 0
      podium run my_pipeline.py max_trials=8
      podium run compiled.yaml --secret hf-token=token.env --volume data=/srv/data
      podium run --resume latest
      podium run --resume latest --from train-distributed
      podium run --resume latest code=src
      podium run --resume latest --debug train
      podium run --list
    """
    from podium.kfp.parameters import pairs
    from podium.kfp.project import choose

    arguments = [*([pipeline] if pipeline else []), *parameters]
    if first and not resume:
        raise InvalidInput(f"--from {first} needs --resume", "podium run --resume RUN --from STEP")
    places = {**vars(supplies), "image_dir": images}
    show = _debug if debug else run_to_end
    if resume:
        more: dict[str, Any] = {"code": dict(pairs(arguments)), "places": places, "debug": debug}
        show(lambda: podium.runs()[resume].resume(first, wait=False, **more), notifier, as_json)
        return
    pipeline, words, project = choose(pipeline, parameters)
    if list_:
        _show_parameters(pipeline, as_json)
        return
    from podium.runner.run import begin

    file = project.file if project else None
    show(lambda: begin(pipeline, words, file, places, debug), notifier, as_json)


def _debug(begin: "Callable[[], Run]", notifier: Notifier, as_json: bool) -> None:
    """Run until a step, and give a shell in its place; without that step, as run_to_end."""
    run = begin().wait()
    stop = run.debugged
    if stop is None:
        run_to_end(lambda: run, notifier, as_json)
        return
    echo(f"a shell before {stop.step}: ./run runs it, with its code and inputs beside it", err=True)
    _open_shell(Path(stop.text), stop.values)
    echo(f"finished steps are kept; continue with: {run.record.resume_command}", err=True)


def _open_shell(folder: Path, env: Mapping[str, str]) -> None:
    """Give a shell in a step's place.

    Args:
        env: What the step's environment has beyond podium's.
    """
    shell = os.environ.get("SHELL") or "/bin/sh"
    (folder / "packages").mkdir(exist_ok=True)
    environment = {**os.environ, **env}
    if "PIP_TARGET" in env:  # that of the run is gone
        environment["PIP_TARGET"] = str(folder / "packages")
        environment["PYTHONPATH"] = env["PYTHONPATH"].replace(
            env["PIP_TARGET"], environment["PIP_TARGET"]
        )
    subprocess.call([shell], cwd=folder, env=environment)


def run_to_end(begin: "Callable[[], Run]", notifier: Notifier, as_json: bool) -> None:
    """Show a run's progress and then its outcome.

    Args:
        as_json: Whether the outcome is printed as JSON.
    """
    from podium.runner.outcome import show

    with notifier.about("run") as notice:
        run = begin()
        notice.run, notice.pipeline = run.id, run.pipeline
        outcome = run.wait().outcome
        if decision := outcome.get("decision"):
            notice.event = "champion" if decision["outcome"] == "promoted" else "end"
            notice.model, notice.version = decision["model_name"], decision["version"]
            notice.metrics, notice.report = outcome["test"]["metrics"], outcome["report"]
    output(as_json, outcome, lambda: show(outcome))


@click.command(context_settings=FREE)
@click.argument("pipeline", default="", shell_complete=pipelines)
@click.argument("parameters", nargs=-1, type=click.UNPROCESSED, shell_complete=parameters_)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="-",
    help="File to write; stdout by default.",
)
@click.option(
    "--name",
    "title",
    help="Name of the compiled pipeline; the project's or the pipeline's own by default.",
)
@click.option("--steps-image", help="Image of the steps.")
@click.option(
    "--trainer-image", help="Image of trials and training, and of the step that prepares the data."
)
@click.option(
    "--platform",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting for newer servers, see above.",
)
def compile_(pipeline: str, parameters: tuple[str, ...], output: str, **settings: Any) -> None:
    """Compile a pipeline to YAML for Kubeflow Pipelines.

    PIPELINE is a name or FILE.py, as for podium run; without one, podium.yaml is used, and gives
    the name. PARAMETERS (name=value) become the defaults of the compiled pipeline. Without
    --platform the YAML runs on old and new servers. Settings, for every step: secret (name of a
    Secret with accesskey and secretkey), timeout (seconds), retries, pull_policy, tolerations (a
    JSON list); they need a server that knows kfp-kubernetes.

    \b
    Examples:
      podium compile -o tune_and_promote.yaml
      podium compile train_and_promote epochs=10 --trainer-image example/trainer:1 -o train.yaml
      podium compile --platform secret=podium-storage --platform timeout=7200 --platform retries=2
    """
    from podium.kfp.compiling import compile_pipeline
    from podium.kfp.project import choose

    pipeline, words, project = choose(pipeline, parameters)
    text = compile_pipeline(pipeline, words, project=project, **settings)
    if output == "-":
        echo(text, nl=False)
        return
    write_file(Path(output), text)
    echo(f"wrote {output}", err=True)


def _show_parameters(pipeline: str, as_json: bool) -> None:
    from podium.kfp.definition import Definition

    rows = Definition.load(pipeline).parameters
    value = [{**vars(parameter), "type": parameter.type.__name__} for parameter in rows]
    shown = [
        parameter.name
        if parameter.required
        else f"{parameter.name}={json.dumps(parameter.default)}"
        for parameter in rows
    ]
    width = max(map(len, shown), default=0) + 2
    lines = [
        (text.ljust(width) + parameter.description).rstrip()
        for parameter, text in zip(rows, shown, strict=True)
    ]
    output(as_json, value, lambda: "\n".join(lines))

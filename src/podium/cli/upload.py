"""`podium upload` and `podium submit`."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from podium.cli.completion import parameters as parameters_, pipelines
from podium.cli.notify import Notifier
from podium.cli.options import (
    GROUP,
    ServerOptions,
    json_option,
    notify_option,
    server_options,
)
from podium.display.terminal import doing, echo, echo_json, output
from podium.errors import InvalidInput
from podium.files.documents import read_text
from podium.kfp.client import Server
from podium.kfp.compiling import compile_pipeline
from podium.kfp.definition import is_file
from podium.kfp.project import Project, choose
from podium.kfp.versions import ServerPipelines, read_spec

_FREE = {"ignore_unknown_options": True}


@click.command(context_settings=_FREE)
@click.argument("pipeline", default="", shell_complete=pipelines)
@click.argument("parameters", nargs=-1, type=click.UNPROCESSED, shell_complete=parameters_)
@click.option("--name", help="Name on the server; the project's or the pipeline's own by default.")
@click.option("--steps-image", help="Image of the steps.")
@click.option("--trainer-image", help="Image of trials and training.")
@json_option
@server_options
def upload(
    pipeline: str,
    parameters: tuple[str, ...],
    name: str | None,
    as_json: bool,
    server: ServerOptions,
    **images: Any,
) -> None:
    """Upload a pipeline to Kubeflow Pipelines; a new version only if the content changed.

    PIPELINE is tune_and_promote, train_and_promote, a Python file with a pipeline (FILE.py or
    FILE.py:function), or a compiled YAML file; without one, podium.yaml is used as for podium run,
    and gives its name. PARAMETERS (name=value) become the defaults of the uploaded pipeline.

    \b
    Examples:
      podium upload tune_and_promote --host http://127.0.0.1:8888
      podium upload my_pipeline.py epochs=5
      podium compile -o pipeline.yaml && podium upload pipeline.yaml
    """
    pipeline, words, project = choose(pipeline, parameters)
    text = _text(pipeline, words, project, title=name, **images)
    kfp_server = server.open()
    version = ServerPipelines(kfp_server).upload(text, name)
    link = kfp_server.link(f"pipelines/details/{version.pipeline_id}/version/{version.id}")
    fields = ("pipeline", "pipeline_id", "name", "id", "created", "digest", "new")
    said = f"{version.pipeline} {version.name} {'uploaded' if version.new else 'unchanged'}"
    output(
        as_json,
        {field: getattr(version, field) for field in fields} | {"link": link},
        lambda: f"{said}\n{link}",
    )


def _text(
    pipeline: str,
    words: Sequence[str] = (),
    project: Project | None = None,
    title: str | None = None,
    **images: Any,
) -> str:
    file = Path(pipeline)
    if file.suffix not in (".yaml", ".yml"):
        return compile_pipeline(pipeline, words, project=project, title=title, **images)
    if words or any(images.values()):
        raise InvalidInput(
            f"{pipeline} is compiled: its images and parameters stay",
            "give them to `podium compile`",
        )
    try:
        text = read_text(file)
    except OSError as error:
        raise InvalidInput(f"{pipeline} cannot be read: {error.strerror}") from error
    read_spec(text, pipeline)
    return text


@click.command(context_settings=_FREE)
@click.argument("pipeline", default="", shell_complete=pipelines)
@click.argument("parameters", nargs=-1, type=click.UNPROCESSED, shell_complete=parameters_)
@click.option("--version", help="Name of the version; the newest by default.")
@click.option(
    "--group", default=GROUP, show_default=True, help="KFP experiment the run is listed under."
)
@click.option("--name", help="Display name of the run.")
@click.option(
    "--service-account",
    help="Service account of the run; by default the project's or the server's.",
)
@click.option(
    "--pipeline-root",
    metavar="URL",
    help="Where the server keeps the run's artifacts: minio://BUCKET/DIR.",
)
@click.option("--wait", is_flag=True, help="Show the tasks until the run ends; exit 1 if it fails.")
@click.option("--timeout", type=float, help="Maximum seconds to wait; the run continues.")
@notify_option
@json_option
@server_options
def submit(
    pipeline: str,
    parameters: tuple[str, ...],
    version: str | None,
    wait: bool,
    timeout: float | None,
    notifier: Notifier,
    as_json: bool,
    server: ServerOptions,
    **options: Any,
) -> None:
    """Run an uploaded pipeline on Kubeflow Pipelines.

    PIPELINE is its name on the server, or a Python file with a pipeline, FILE.py or
    FILE.py:function, which is uploaded first if its content changed; without one it is the
    project's of podium.yaml, with the parameters there. PARAMETERS are written name=value and
    checked against the uploaded version. The pipeline, its data and its model are printed before it
    starts.

    \b
    Examples:
      podium submit train_and_promote epochs=3 workers=2 --wait
      podium submit tune-and-promote --version v3-1a2b3c4d max_trials=6
      podium submit my_pipeline.py epochs=5
    """
    pipeline, words, project = choose(pipeline, parameters)
    for option, value in (("--notify", notifier.targets), ("--timeout", timeout is not None)):
        if value and not wait:
            raise InvalidInput(f"{option} needs --wait", "without it submit returns at once")
    from_file = is_file(pipeline)
    if from_file and version:
        raise InvalidInput(
            f"{pipeline} is a file, which has no version {version}", "name the pipeline instead"
        )
    text = _text(pipeline, project=project) if from_file else ""
    runs = server.runs()
    uploaded = project.title if project else pipeline
    there = ServerPipelines(runs.server)
    chosen = there.upload(text) if from_file else there.choose(uploaded, version)
    run = runs.submit(
        chosen,
        words,
        project=project,
        named=version is not None,
        tell=partial(echo, err=True),
        **options,
    )
    echo(f"{run.run_id}  {run.link}", err=as_json)
    tasks: dict[str, str] = {}
    if wait:
        watched = doing(lambda: f"{time.strftime('%H:%M:%S')}  {_doing(runs.server, tasks)}")
        with (
            notifier.about("run", run=run.run_id, pipeline=chosen.pipeline, report=run.link),
            watched,
        ):
            state = runs.follow(run.run_id, partial(_tell, tasks), timeout)
    else:
        state = "SUBMITTED"
    if as_json:
        echo_json({"run_id": run.run_id, "name": run.name, "link": run.link, "state": state})
    elif wait:
        echo(state)


def _doing(server: Server, tasks: Mapping[str, str]) -> str:
    running = [task for task, state in tasks.items() if state == "RUNNING"]
    state = f"running: {', '.join(running)}" if running else "waiting for the server"
    if server.silent_since is None:
        return state
    return f"the server has not answered for {time.monotonic() - server.silent_since:.0f} s; before that: {state}"


def _tell(tasks: dict[str, str], task: str, state: str) -> None:
    tasks[task] = state
    echo(f"{time.strftime('%H:%M:%S')}  {state:<10} {task}", err=True)

"""`podium experiment`: run Katib Experiments on this machine."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from podium.cli.experiment_options import (
    as_json_option,
    at_home,
    changed,
    directory_option,
    manifest_options,
    open_cluster,
)
from podium.cli.experiment_tables import best, delete, keep, list_, show_best, status, stop, trials
from podium.errors import Failed
from podium.terminal import echo

if TYPE_CHECKING:
    from podium.doctor.pods import Workload
    from podium.manifests.experiment import Experiment
    from podium.sweeps.local import LocalSweeps

F = TypeVar("F", bound=Callable[..., Any])

LOOK = 0.25
"""Seconds between two looks at the trials while an Experiment runs."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def experiment() -> None:
    """Run a Katib Experiment YAML on this machine."""


def _running(function: F) -> F:
    for option in reversed(
        [
            click.option(
                "--image-dir",
                "images",
                metavar="IMAGE=DIR",
                multiple=True,
                help="Directory that stands for an image (its bin/ first on PATH); any other image is this Python.",
            ),
            click.option("--fork-server/--no-fork-server", default=True, help="Start python -m from a warm process."),
        ]
    ):
        function = option(function)
    return function


@experiment.command()
@click.argument("source")
@manifest_options
@_running
@directory_option
@as_json_option
def run(
    source: str, directory: Path | None, images: tuple[str, ...], fork_server: bool, as_json: bool, **options: Any
) -> None:
    """Run an Experiment here: a file, or one that comes with podium (random, grid, tpe …).

    Trials run as processes; everything lies under the cluster's directory. Ctrl-C or SIGTERM stops all trials; resume
    goes on.

    \b
    Examples:
      podium experiment run random
      podium experiment run sweep.yaml --data podium-work/data/mnist --output models --max-trials 20
      podium experiment run tpe --set epochs=2 --set model=fast --workers 0 --json
      podium experiment run tpe --name second --warm-start tpe
    """
    from podium.doctor.shell_rules import shell_breaks_values
    from podium.manifests.experiment import examine
    from podium.settings import Settings

    experiment = changed(source, **options)
    experiment = at_home(experiment, Settings.from_environment().home, options["data"], options["output"])
    with open_cluster(directory, images, fork_server) as cluster:
        if options["name"] is None:
            experiment = _with_free_name(cluster, experiment)
        name = experiment.name
        cluster.create(experiment.manifest)
        for told in shell_breaks_values.findings(_trials_job(experiment)):
            echo(f"warning: on a cluster {told.what}\n  hint: {told.mend}", err=True)
        for finding in examine(experiment.manifest)[1]:
            echo(f"warning: {finding.text}\n  hint: {finding.hint}", err=True)
        warm = f", warm from {', '.join(names)}" if (names := experiment.warm_start) else ""
        echo(f"Experiment {name}{warm}, everything under {cluster.store.directory}", err=True)
        _follow(cluster, name, as_json)


@experiment.command()
@click.argument("name")
@click.option("--max-trials", type=int, help="New spec.maxTrialCount; must be above the trials there are.")
@click.option("--parallel-trials", type=int, help="New spec.parallelTrialCount.")
@click.option("--max-failed-trials", type=int, help="New spec.maxFailedTrialCount.")
@_running
@directory_option
@as_json_option
def resume(
    name: str,
    max_trials: int | None,
    parallel_trials: int | None,
    max_failed_trials: int | None,
    images: tuple[str, ...],
    fork_server: bool,
    directory: Path | None,
    as_json: bool,
) -> None:
    """Go on with an Experiment that was stopped or killed, or with more trials than it had.

    A finished one needs resumePolicy LongRunning or FromVolume and a higher --max-trials, as in Katib.

    \b
    Examples:
      podium experiment resume random
      podium experiment resume random --max-trials 12
    """
    from podium.cli.experiment_view import finished
    from podium.sweeps.resume import resume as go_on

    given = {
        "maxTrialCount": max_trials,
        "parallelTrialCount": parallel_trials,
        "maxFailedTrialCount": max_failed_trials,
    }
    with open_cluster(directory, images, fork_server) as cluster:
        told = {trial.name: trial.phase for trial in finished(cluster, name)}
        go_on(cluster, name, {field: value for field, value in given.items() if value is not None})
        _follow(cluster, name, as_json, told)


@experiment.command()
@click.argument("source")
@manifest_options
@as_json_option
def render(source: str, as_json: bool, **options: Any) -> None:
    """Print an Experiment with your changes, checked, ready for kubectl apply -f -.

    What Katib would refuse or never end is refused, also where podium itself runs it.

    \b
    Examples:
      podium experiment render random --image registry.example/trainer:1 --data s3://bucket/mnist
      podium experiment render tpe --max-trials 50 --json
    """
    import yaml

    from podium.doctor.manifest import check_for_katib

    manifest = check_for_katib(changed(source, **options)).manifest
    echo(json.dumps(manifest, indent=1) if as_json else yaml.safe_dump(manifest, sort_keys=False), nl=as_json)


for command in (list_, status, best, trials, stop, keep, delete):
    experiment.add_command(command)


def _trials_job(experiment: "Experiment") -> "Workload":
    """Return what the doctor looks at: the job of an Experiment's trials."""
    from podium.doctor.pods import workload

    job = experiment.template.workload
    return workload(job.manifest, job.path, {**experiment.manifest, "spec": experiment.spec})


def _with_free_name(cluster: "LocalSweeps", experiment: "Experiment") -> "Experiment":
    name, count = experiment.name, 1
    while cluster.store.exists("Experiment", name):
        count += 1
        name = f"{experiment.name[: 40 - len(str(count)) - 1]}-{count}"
    return experiment if name == experiment.name else experiment.with_metadata({**experiment.metadata, "name": name})


def _follow(cluster: "LocalSweeps", name: str, as_json: bool, told: Mapping[str, str] | None = None) -> None:
    from podium.cli.experiment_view import progress
    from podium.sweeps.resume import is_stopped

    try:
        with progress(cluster, name, told or {}) as view:
            while True:
                ended = cluster.join("Experiment", name, LOOK)
                view.look()
                if ended:
                    break
    except KeyboardInterrupt:
        echo(f"Experiment {name} is stopped; resume it with: {cluster.store.resume_command(name)}", err=True)
        raise
    found = cluster.experiment(name)
    if is_stopped(found):
        why = found.state.message.partition(";")[0].removeprefix("Experiment was stopped")
        raise Failed(f"Experiment {name} was stopped{why}", f"resume it with: {cluster.store.resume_command(name)}")
    if not found.state.succeeded:
        raise _failure(cluster, name, found.state.message)
    echo(found.state.message, err=True)
    show_best(cluster, name, as_json)


def _failure(cluster: "LocalSweeps", name: str, message: str) -> Failed:
    from podium.cli.experiment_view import finished

    text = f"Experiment {name} failed: {message}"
    bad = next((one.name for one in finished(cluster, name) if one.phase in ("Failed", "MetricsUnavailable")), None)
    if bad is None:
        return Failed(text, f"podium experiment trials {name}")
    lines = list(cluster.logs("Trial", bad))[-8:]
    said = "\n".join([f"trial {bad} said last", *(f"  | {line}" for line in lines)])
    return Failed(f"{text}\n{said}" if lines else text, f"podium job logs {bad} prints all it said")

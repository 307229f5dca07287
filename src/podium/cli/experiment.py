"""`podium experiment`: run Katib Experiments on this machine or on a cluster with Katib."""

import json
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

import podium
from podium.cli.cluster_options import (
    ProcessOptions,
    as_json_option,
    cluster_options,
    next_command,
    process_options,
)
from podium.cli.completion import experiments
from podium.cli.experiment_options import manifest_options, read_flags
from podium.cli.experiment_tables import best, delete, keep, list_, report, show_best, status, stop, trials
from podium.cli.groups import Commands
from podium.cli.notify_options import Notifier, notify_option
from podium.errors import Failed
from podium.terminal import echo

if TYPE_CHECKING:
    from podium.api.sweep import Sweep


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def experiment() -> None:
    """Run a Katib Experiment YAML, on this machine or on a cluster."""


@experiment.command()
@click.argument("source", shell_complete=experiments)
@manifest_options
@process_options()
@cluster_options
@notify_option
@as_json_option
def run(source: str, url: str, processes: ProcessOptions, notifier: Notifier, as_json: bool, **options: Any) -> None:
    """Run an Experiment to its end: a file, or one that comes with podium (random, grid, tpe …).

    Trials run as processes; everything lies under the cluster's directory. Ctrl-C or SIGTERM stops all trials; resume
    continues. With --cluster kubernetes://NAMESPACE Katib runs it there; Ctrl-C leaves it running.

    \b
    Examples:
      podium experiment run random
      podium experiment run sweep.yaml --data podium-work/data/mnist --output models --max-trials 20
      podium experiment run tpe --set epochs=2 --set model=fast --workers 0 --json
      podium experiment run tpe --name second --warm-start tpe
      podium experiment run sweep.yaml --cluster kubernetes://team
    """
    trials, parallel = options.pop("max_trials"), options.pop("parallel_trials")
    options["flags"] = read_flags(options["flags"])
    with notifier.about("Experiment") as notice:
        begun = podium.sweep(
            source, cluster=processes.place(url), trials=trials, parallel=parallel, wait=False, **options
        )
        notice.run = begun.name
        with closing(begun):
            notice.metrics = follow_to_end(begun, as_json)


@experiment.command()
@click.argument("name")
@click.option("--max-trials", type=int, help="Trials in all, more than there are (spec.maxTrialCount).")
@click.option("--parallel-trials", type=int, help="Trials at a time (spec.parallelTrialCount).")
@click.option("--max-failed-trials", type=int, help="Failed trials that end it (spec.maxFailedTrialCount).")
@process_options()
@cluster_options
@as_json_option
def resume(
    name: str,
    max_trials: int | None,
    parallel_trials: int | None,
    max_failed_trials: int | None,
    processes: ProcessOptions,
    url: str,
    as_json: bool,
) -> None:
    """Resume an Experiment that was stopped or killed, or with more trials than it had.

    A finished one needs resumePolicy LongRunning or FromVolume and a higher --max-trials, as in Katib.

    \b
    Examples:
      podium experiment resume random
      podium experiment resume random --max-trials 12
    """
    known = podium.open_sweep(name, cluster=processes.place(url))
    with closing(known):
        reported = known.finished
        known.resume(max_trials, parallel=parallel_trials, failures=max_failed_trials, wait=False)
        follow_to_end(known, as_json, reported)


@experiment.command()
@click.argument("source", shell_complete=experiments)
@manifest_options
@click.option(
    "--secret",
    default="mlpipeline-minio-artifact",
    metavar="NAME",
    show_default=True,
    help="Secret with accesskey and secretkey for trials that use s3://; '' for workload identity.",
)
@as_json_option
def render(source: str, secret: str, as_json: bool, **options: Any) -> None:
    """Print an Experiment with your changes, checked, ready for kubectl apply -f -.

    What Katib would refuse or never end is refused, also where podium itself runs it. Trials that use s3:// or
    minio:// get the store's address from the ConfigMap podium-storage (deploy/) and the keys from a Secret, both by
    reference; containers that bring such variables themselves keep them. Pods get what `experiment run --cluster` gives
    them: small requests, no token of the API, and a securityContext that keeps root out.

    \b
    Examples:
      podium experiment render random --image registry.example/trainer:1 --data s3://bucket/mnist
      podium experiment render tpe --data s3://datasets/mnist --secret storage-keys | kubectl apply -f -
      podium experiment render tpe --max-trials 50 --json
    """
    import yaml

    from podium.api.experiments import changed
    from podium.cluster.kubernetes.store_access import AccessByReference, grant_access, opens_store
    from podium.doctor.manifest import check_for_katib
    from podium.manifests.pod_defaults import with_pod_deadlines, with_pod_defaults

    options["flags"] = read_flags(options["flags"])
    experiment = with_pod_deadlines(with_pod_defaults(check_for_katib(changed(source, **options))))
    if opens_store(experiment):
        experiment = grant_access(experiment, AccessByReference(secret=secret))
        keys = f"keys from Secret {secret}" if secret else "no keys: the pods need a workload identity"
        echo(f"trials read the store's address from ConfigMap podium-storage, {keys}", err=True)
    manifest = experiment.manifest
    echo(json.dumps(manifest, indent=1) if as_json else yaml.safe_dump(manifest, sort_keys=False), nl=as_json)


for command in (list_, status, best, trials, report, stop, keep, delete):
    experiment.add_command(command)


def follow_to_end(sweep: "Sweep", as_json: bool, reported: Mapping[str, str] | None = None) -> dict[str, float]:
    """Show a sweep to its end, and then its best trial, whose objective is returned."""
    from podium.api.trials import failure
    from podium.cli.experiment_view import ExperimentView
    from podium.cli.live import follow

    cluster, name = sweep.cluster, sweep.name
    follow(cluster, [("Experiment", name)], ExperimentView(cluster, name, reported or {}))
    state = sweep.experiment.state
    if sweep.status == "Stopped":
        raise Failed(f"{name}: {state.message}")
    if not state.succeeded:
        trials, logs = next_command(f"experiment trials {name}", cluster), next_command("job logs TRIAL", cluster)
        raise failure(cluster, name, trials=trials, logs=logs)
    echo(state.message, err=True)
    best = show_best(sweep, as_json)
    return {} if best.value is None else {best.objective.metric: best.value}

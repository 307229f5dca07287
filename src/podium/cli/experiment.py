"""`podium experiment`: run Katib Experiments on this machine or on a cluster with Katib."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import podium
from podium.cli.completion import experiments
from podium.cli.notify import Notifier
from podium.cli.options import (
    Commands,
    cluster_options,
    experiment_name,
    json_option,
    named_object,
    next_command,
    notify_option,
    pairs_option,
    process_options,
    queue_options,
    stacked,
    sweep_options,
)
from podium.display.terminal import echo, output
from podium.display.text import plural, size
from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.manifests.experiment.source import each_of

if TYPE_CHECKING:
    from podium.api.cluster_spec import ClusterSpec
    from podium.api.sweep import Sweep
    from podium.cluster.base import Cluster
    from podium.manifests.experiment import Trial

_manifest_options = stacked(
    click.option(
        "--name",
        callback=experiment_name,
        help="Name of the Experiment, instead of the manifest's.",
    ),
    click.option(
        "--data",
        metavar="URI",
        help="Directory or URI of the dataset, passed to the trainer as --data.",
    ),
    click.option(
        "--output", metavar="URI", help="Where trials put their models, each below its own name."
    ),
    pairs_option(
        "--set",
        "flags",
        metavar="FLAG=VALUE",
        example="epochs=2",
        empty=True,
        help="Flag to set in the trials' command; may be repeated.",
    ),
    click.option("--image", help="Image of the trials."),
    click.option("--max-trials", type=int, help="Trials in all (spec.maxTrialCount)."),
    click.option("--parallel-trials", type=int, help="Trials at a time (spec.parallelTrialCount)."),
    click.option(
        "--workers", type=int, help="Workers of each trial besides its master; 0 for none."
    ),
    click.option(
        "--goal", type=float, help="Stop when the objective reaches this (spec.objective.goal)."
    ),
    click.option("--seed", type=int, help="Seed of the search algorithm (random_state)."),
    click.option(
        "--resume-policy",
        type=click.Choice(["Never", "LongRunning", "FromVolume"]),
        help="Whether a finished Experiment may get more trials (spec.resumePolicy).",
    ),
    click.option(
        "--template",
        "config_maps",
        metavar="FILE",
        multiple=True,
        type=click.Path(path_type=Path),
        help="YAML of the ConfigMap that holds the trial template; it may also be in the Experiment's own file.",
    ),
    queue_options,
    sweep_options(),
)


@click.group(cls=Commands)
def experiment() -> None:
    """Run a Katib Experiment YAML, on this machine or on a cluster."""


@experiment.command("run")
@click.argument("source", shell_complete=experiments)
@_manifest_options
@click.option(
    "--detach",
    is_flag=True,
    help="Return at once; the cluster continues the Experiment, in a Job if necessary.",
)
@cluster_options
@process_options()
@notify_option
@json_option
def _run_each(
    source: str,
    spec: "ClusterSpec",
    notifier: Notifier,
    as_json: bool,
    detach: bool,
    **options: Any,
) -> None:
    """Run an Experiment to its end: a file, or one that comes with podium (random, grid, tpe …).

    The Experiments of a file that holds several run one after the other.

    Trials run as processes; everything is stored under the cluster's directory. Ctrl-C or SIGTERM
    stops all trials; resume continues. With --cluster kubernetes://NAMESPACE the cluster runs it,
    and Ctrl-C leaves it running; if it serves no Experiments, it runs the trials and this command
    runs the search.

    \b
    Examples:
      podium experiment run random
      podium experiment run sweep.yaml --data podium-work/data/mnist --output models --max-trials 20
      podium experiment run tpe --set epochs=2 --set model=fast --workers 0 --json
      podium experiment run tpe --name second --warm-start tpe
      podium experiment run tpe --max-trials 60 --max-time 2h
      podium experiment run sweep.yaml --cluster kubernetes://team
      podium experiment run sweep.yaml --cluster kubernetes://team --detach
    """
    if detach and notifier.targets:
        raise InvalidInput(
            "--detach returns before the end that --notify reports", "leave one of them out"
        )
    sources = each_of(source)
    if len(sources) > 1 and options.get("name"):
        raise InvalidInput(
            f"{source} holds {len(sources)} Experiments, which --name would give one name",
            "leave --name out: each keeps its metadata.name",
        )
    for each in sources:
        _run(each, spec, notifier, as_json, detach, options)


def _run(
    source: str,
    spec: "ClusterSpec",
    notifier: Notifier,
    as_json: bool,
    detach: bool,
    options: dict[str, Any],
) -> None:
    if detach:
        begun = podium.sweep(source, cluster=spec, detach=True, **options)
        trials = next_command(f"experiment trials {begun.name}", begun.cluster)
        value = {"experiment": begun.name, "cluster": begun.cluster.url}
        output(
            as_json,
            value,
            lambda: f"{begun.name} continues without this command; follow it with: {trials}",
        )
        return
    with notifier.about("Experiment") as notice:
        begun = podium.sweep(source, cluster=spec, wait=False, **options)
        notice.run = begun.name
        with begun:
            notice.metrics = follow_to_end(begun, as_json)


@experiment.command("resume")
@click.argument("name")
@click.option(
    "--max-trials",
    "trials",
    type=int,
    help="Trials in all, more than there are (spec.maxTrialCount).",
)
@click.option(
    "--parallel-trials", "parallel", type=int, help="Trials at a time (spec.parallelTrialCount)."
)
@click.option(
    "--max-failed-trials",
    "failures",
    type=int,
    help="Failed trials that end it (spec.maxFailedTrialCount).",
)
@sweep_options(raised=True)
@cluster_options
@process_options()
@json_option
def _resume(name: str, spec: "ClusterSpec", as_json: bool, **more: Any) -> None:
    """Resume an Experiment that was stopped or killed, or extend one by more trials or a higher
    budget.

    A finished one needs resumePolicy LongRunning or FromVolume and a higher --max-trials, as in
    Katib; one that has used its budget needs a higher one.

    \b
    Examples:
      podium experiment resume random
      podium experiment resume random --max-trials 12
      podium experiment resume tpe --max-time 4h
    """
    sweep = podium.open_sweep(name, cluster=spec)
    with sweep:
        reported = sweep.finished
        sweep.resume(**more, wait=False)
        follow_to_end(sweep, as_json, reported)


@experiment.command("render")
@click.argument("source", shell_complete=experiments)
@_manifest_options
@click.option(
    "--secret",
    default="mlpipeline-minio-artifact",
    metavar="NAME",
    show_default=True,
    help="Secret with accesskey and secretkey for trials that use s3://; '' for workload identity.",
)
@json_option
def _render(source: str, secret: str, as_json: bool, **options: Any) -> None:
    """Print an Experiment with your changes, checked, ready for kubectl apply -f -.

    An Experiment that Katib would refuse or never end is refused, even where podium itself would
    run it. Trials that use s3:// or minio:// get the store's address from the ConfigMap
    podium-storage (deploy/) and the keys from a Secret, both by reference; containers that bring
    such variables themselves keep them. Pods get what `experiment run --cluster` gives them: small
    requests, no token of the API, and a securityContext that keeps root out. Trials keep their pods
    until the Experiment is deleted, unless it says retain: false.

    \b
    Examples:
      podium experiment render random --image registry.example/trainer:1 --data s3://bucket/mnist
      podium experiment render tpe --data s3://datasets/mnist --secret keys | kubectl apply -f -
      podium experiment render tpe --max-trials 50 --json
    """
    from podium.api.experiments import changed
    from podium.cluster.kubernetes.store_access import AccessByReference, grant_access
    from podium.files.yaml_loader import dump
    from podium.manifests.experiment.build import with_pods_retained
    from podium.manifests.experiment.rules import check, warnings_of
    from podium.manifests.pod_security import with_pod_deadlines, with_pod_defaults
    from podium.manifests.rules import RUNNERS

    experiment = with_pod_deadlines(with_pod_defaults(check(changed(source, **options), RUNNERS)))
    if "retain" not in experiment.template.manifest:
        experiment = with_pods_retained(experiment)
        echo(
            "trials keep their pods, so that the log of a failed one can be read (retain: true)",
            err=True,
        )
    if experiment.opens_store:
        experiment = grant_access(experiment, AccessByReference(secret=secret))
        keys = (
            f"keys from Secret {secret}" if secret else "no keys: the pods need a workload identity"
        )
        echo(f"trials read the store's address from ConfigMap podium-storage, {keys}", err=True)
    manifest = experiment.manifest
    for warning in warnings_of(experiment):
        echo(warning, err=True)
    output(as_json, manifest, lambda: dump(manifest).rstrip())


@experiment.command("list")
@cluster_options
@json_option
def _list(spec: "ClusterSpec", as_json: bool) -> None:
    """List the Experiments of a cluster, this machine's by default.

    \b
    Examples:
      podium experiment list --json
      podium experiment list --cluster kubernetes://team
    """
    from podium.api.sweep_list import HEADS, list_sweeps, sweep_cells
    from podium.display.tables import Row, screen_width, table

    sweeps = list_sweeps(spec)
    rows = [Row(phase=sweep["state"].capitalize(), cells=sweep_cells(sweep)) for sweep in sweeps]
    drop = ("ALGORITHM", "BEGAN (UTC)", "METRIC", ">BEST", "STATE")
    output(
        as_json,
        sweeps,
        lambda: table(HEADS, rows, width=screen_width(), drop=drop, shorten="NAME"),
    )


@experiment.command("status")
@named_object
def _status(name: str, spec: "ClusterSpec", as_json: bool) -> None:
    """Show an Experiment's progress.

    \b
    Example:
      podium experiment status random
    """
    with podium.open_sweep(name, cluster=spec) as sweep:
        show_status(sweep, as_json)


def show_status(sweep: "Sweep", as_json: bool) -> None:
    experiment = sweep.experiment
    waiting = [sweep.cluster.trial(trial) for trial in experiment.trials.get("Waiting", ())]
    front = (
        {"front": [trial.name for trial in sweep.front]}
        if experiment.asked.get("objectives")
        else {}
    )
    shown = sweep.to_json()
    counts = ", ".join(f"{count} {state}" for state, count in shown["counts"].items())
    trials = f"{plural(shown['trials'], 'trial')} ({counts or 'none yet'})"
    lines = [
        f"{sweep.name}: {experiment.outcome}, {trials}",
        *(f"{title}: {text}" for title, text in shown["asked"].items()),
        *(f"Pareto front: {', '.join(names) or 'no trial yet'}" for names in front.values()),
        shown["message"],
        shown["cause"] and f"no trial has a result. {shown['cause']}",
        *(f"{trial.name} waits. {trial.message}" for trial in waiting),
    ]
    details = {"options": dict(experiment.asked), "status": experiment.status}
    output(as_json, {**shown, **details, **front}, lambda: "\n".join(filter(None, lines)))


@experiment.command("best")
@named_object
def _best(name: str, spec: "ClusterSpec", as_json: bool) -> None:
    """Show the best trial: its parameters and metrics.

    \b
    Example:
      podium experiment best random --json
    """
    with podium.open_sweep(name, cluster=spec) as sweep:
        _show_best(sweep, as_json)


@experiment.command("trials")
@named_object
def _trials(name: str, spec: "ClusterSpec", as_json: bool) -> None:
    """List an Experiment's trials, best first.

    \b
    Example:
      podium experiment trials random
    """
    from podium.api.trials import leaderboard_of
    from podium.display.tables import screen_width
    from podium.manifests.experiment import fronts_of, leaderboard
    from podium.training.standing import standing

    with podium.open_sweep(name, cluster=spec) as sweep:
        experiment = sweep.experiment
        ranked = leaderboard(sweep.cluster.judged_trials(experiment))
        failed = [trial.name for trial in ranked if trial.phase == "Failed"][:_EXPLAINED]
        sure = standing(experiment, ranked)
        reasons = {trial: lines for trial in failed if (lines := _why_failed(sweep.cluster, trial))}
    on = fronts_of(ranked)
    rows = [
        trial.to_json() | {"reason": "\n".join(reasons.get(trial.name, ()))} for trial in ranked
    ]
    rows = [row | {"front": on.get(row["name"])} for row in rows] if on else rows
    rows = [row | sure.to_json(row["name"]) for row in rows]
    said = {trial.name: [*trial.infeasible, trial.note] for trial in ranked}
    reasons |= {name: lines for name, each in said.items() if (lines := [*filter(None, each)])}
    output(
        as_json,
        rows,
        lambda: leaderboard_of(ranked, experiment, sure=sure).text(
            width=screen_width(), reasons=reasons
        ),
    )


_EXPLAINED = 5
"""Failed trials whose pods are asked why: several fail for one reason, and each costs requests."""


def _why_failed(cluster: "Cluster", trial: str) -> list[str]:
    try:
        lines = cluster.failure("Trial", trial).message.splitlines()
    except PodiumError:
        return []
    return lines[1:] or lines


@experiment.command("stop")
@click.option(
    "--trial",
    metavar="TRIAL",
    help="Stop only this trial; it counts with the metrics it has reported.",
)
@named_object
def _stop(name: str, trial: str | None, spec: "ClusterSpec", as_json: bool) -> None:
    """Stop an Experiment that runs in another terminal, or one of its trials.

    podium experiment resume continues an Experiment. Katib cannot stop an Experiment and keep it,
    so on Kubernetes this is refused.

    \b
    Examples:
      podium experiment stop random
      podium experiment stop random --trial random-7d2k9xqf
    """
    with podium.open_sweep(name, cluster=spec) as sweep:
        if trial is not None:
            sweep.stop_trial(trial)
            output(as_json, {"experiment": name, "trial": trial, "stopping": True})
            echo(f"trial {trial} stops; the metrics it has reported count", err=True)
            return
        resume = next_command(f"experiment resume {name}", sweep.stop().cluster)
    output(as_json, {"experiment": name, "stopping": True})
    echo(f"Experiment {name} stops; resume it with: {resume}", err=True)


@experiment.command("add")
@click.argument("name")
@click.argument("values", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--like", metavar="TRIAL", help="Trial whose values are used for all other parameters."
)
@cluster_options
@json_option
def _add(
    name: str, values: tuple[str, ...], like: str | None, spec: "ClusterSpec", as_json: bool
) -> None:
    """Start a trial with your own values, in an Experiment that is running, stopped or finished.

    The search learns from it as from its own trials. It counts as one of the Experiment's trials
    and is marked as added by hand. An Experiment that is not running is resumed here, with one more
    trial if it has finished.

    \b
    Examples:
      podium experiment add random lr=0.02 batch-size=64 schedule=step
      podium experiment add random --like random-7d2k9xqf lr=0.005
    """
    assignments = dict[str, str]()
    for word in values:
        parameter, equals, value = word.partition("=")
        if not equals:
            raise InvalidInput(
                f"a value is written NAME=VALUE, but got {word!r}", "for example lr=0.02"
            )
        assignments[parameter] = value
    with podium.open_sweep(name, cluster=spec) as sweep:
        trial = sweep.add_trial(assignments, like=like)
        output(as_json, {"experiment": name, "trial": trial})
        echo(f"trial {trial}: {next_command(f'experiment trials {name}', sweep.cluster)}", err=True)


@experiment.command("report")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write instead.",
)
@named_object
def _report(name: str, file: Path | None, spec: "ClusterSpec", as_json: bool) -> None:
    """Write an HTML report: best trial, leaderboard, figures, and why trials failed.

    It is written beside the Experiment on this machine, or below podium-work/reports/ for one on
    Kubernetes. The Experiment may be running, stopped or failed.

    \b
    Examples:
      podium experiment report random
      podium experiment report random -o random.html --json
    """
    with podium.open_sweep(name, cluster=spec) as sweep:
        written = str(sweep.report(file))
    output(as_json, {"experiment": name, "report": written}, lambda: written)


@experiment.command("delete")
@named_object
def _delete(name: str, spec: "ClusterSpec", as_json: bool) -> None:
    """Stop an Experiment and remove it with its trials and logs; models stay where trials put them.

    \b
    Example:
      podium experiment delete random
    """
    podium.open_sweep(name, cluster=spec).delete()
    output(as_json, {"experiment": name, "deleted": True})


@experiment.command("keep")
@click.argument("name")
@click.option(
    "--best", type=click.IntRange(1), required=True, help="How many trials keep their weights."
)
@click.option(
    "--delete",
    "deleting",
    is_flag=True,
    help="Delete the others' weights; otherwise they are only listed.",
)
@cluster_options
@json_option
def _keep(name: str, best: int, deleting: bool, spec: "ClusterSpec", as_json: bool) -> None:
    """Remove the weights of all but the best trials; trials, metrics and logs stay. Deletes only
    with --delete.

    Everything under a trial's --output is removed, except metrics.json, hyperparameters.json and
    environment.json; each trial must have an --output that ends with its own name.

    \b
    Examples:
      podium experiment keep random --best 3
      podium experiment keep random --best 3 --delete
    """
    from podium.training.retention import Retention

    with spec.open() as cluster:
        plan = Retention.plan(cluster, name, best)
        if deleting:
            plan.remove()
    total = size(sum(weights.size for weights in plan.removed))
    end = " deleted" if deleting else "; nothing deleted, say --delete"
    lines = [
        *(
            f"{weights.url}  {plural(len(weights.keys), 'file')}, {size(weights.size)}"
            for weights in plan.removed
        ),
        f"kept: {', '.join(plan.kept) or 'none, no trial has a result'}",
        f"weights of {plural(len(plan.removed), 'trial')}, {total}{end}",
    ]
    output(as_json, {"deleted": deleting, **asdict(plan)}, lambda: "\n".join(lines))


def follow_to_end(
    sweep: "Sweep",
    as_json: bool,
    reported: Mapping[str, str] | None = None,
    objective: str = "objectiveMetricName: NAME",
    ask: Callable[[str, str], str] | None = None,
    patience: int = 0,
) -> dict[str, float]:
    """Show a sweep to its end, and then its best trial, whose objective is returned.

    Args:
        as_json: Whether the best trial is printed as JSON.
        reported: Phases by trial that nothing is shown for.
        objective: What to change to search for another metric, with NAME for its name.
        ask: How a sweep is started that reads a library's lines, from its key and the metric.
        patience: Trials without a result, from the first on, after which it is stopped; 0: never.
    """
    from podium.api.trials import TrialReader
    from podium.cli.live import ExperimentView, follow

    cluster, name = sweep.cluster, sweep.name
    view = ExperimentView(cluster, name, reported or {}, patience)
    follow(cluster, [("Experiment", name)], view)
    reader, state = TrialReader(cluster, name), sweep.experiment.state
    if sweep.status == "Stopped" and not view.in_vain:
        raise Failed(f"{name}: {state.message}")
    trials, logs = (
        next_command(f"experiment trials {name}", cluster),
        next_command("job logs TRIAL", cluster),
    )
    if not state.succeeded:
        with suppress(NotFound):  # what succeeded counts, also where most failed
            _show_best(sweep, as_json)
        error = reader.failure(trials=trials, logs=logs, objective=objective, ask=ask)
        if sweep.status == "Stopped":
            _, _, why = error.message.partition("\n")
            goes_on = next_command(f"experiment resume {name}", cluster)
            error = Failed(
                f"{name} was stopped: its first {view.in_vain} trials have no result\n{why}",
                f"{error.hint}; {goes_on} goes on all the same",
            )
        raise error
    echo(state.message, err=True)
    if warning := reader.warning(logs=logs):
        echo(warning, err=True)
    best = _show_best(sweep, as_json)
    return {} if best.value is None else {best.objective.metric: best.value}


def _show_best(sweep: "Sweep", as_json: bool) -> "Trial":
    try:
        best = sweep.best_trial
    except NotFound as error:
        trials = next_command(f"experiment trials {sweep.name}", sweep.cluster)
        logs = next_command("job logs TRIAL", sweep.cluster)
        raise NotFound(
            error.message, f"{trials} names them; {logs} | podium doctor - says why"
        ) from None
    lines = [
        f"best trial: {best.name}",
        *(f"  {name} = {value}" for name, value in best.parameters.items()),
    ]
    for metric, values in best.metrics.items():
        lines.append(
            f"  {metric}: min {values['min']}, max {values['max']}, latest {values['latest']}"
        )
    found = {"experiment": sweep.name, **best.to_json()}
    if best.criteria.several:
        found["front"] = [trial.to_json() for trial in sweep.front]
        lines.append(f"Pareto front, {best.criteria}:")
        for trial in found["front"]:
            metrics = (f"{metric} {value}" for metric, value in trial["metrics"].items())
            lines.append(f"  {trial['name']}: {', '.join(metrics)}")
    output(as_json, found, lambda: "\n".join(lines))
    return best

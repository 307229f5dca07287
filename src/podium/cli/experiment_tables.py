"""`podium experiment list|status|best|trials|report|stop|keep|delete`: what there is, and its end."""

import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import podium
from podium.cli.cluster_options import as_json_option, cluster_options, named_object, next_command, open_cluster
from podium.errors import NotFound
from podium.terminal import echo

if TYPE_CHECKING:
    from podium.api.sweep import Sweep
    from podium.manifests.experiment import Experiment, Trial


@click.command("list")
@cluster_options
@as_json_option
def list_(url: str, as_json: bool) -> None:
    """List the Experiments of a cluster, this machine's by default.

    \b
    Examples:
      podium experiment list --json
      podium experiment list --cluster kubernetes://team
    """
    from podium.manifests.experiment import Experiment
    from podium.tables import Row, screen_width, table

    with open_cluster(url) as cluster:
        rows = [summary_of(Experiment.parse(manifest)) for manifest in cluster.list("Experiment")]
    if as_json:
        echo(json.dumps(rows, indent=1))
        return
    fields = ("name", "state", "trials", "algorithm", "created")
    listed = [Row(phase=row["state"], cells=[str(row[field]) for field in fields]) for row in rows]
    heads = ("NAME", "STATE", ">TRIALS", "ALGORITHM", "CREATED (UTC)")
    drop = ("ALGORITHM", "CREATED (UTC)", "STATE")
    echo(table(heads, listed, width=screen_width(), drop=drop, shorten="NAME"))


@click.command()
@named_object
def status(name: str, url: str, as_json: bool) -> None:
    """Show an Experiment's progress.

    \b
    Example:
      podium experiment status random
    """
    with open_cluster(url) as cluster:
        experiment = cluster.experiment(name)
        waiting = [cluster.trial(trial) for trial in experiment.trials.get("Waiting", ())]
    summary = {**summary_of(experiment), "status": experiment.status}
    if as_json:
        echo(json.dumps(summary, indent=1))
        return
    counts = [f"{len(names)} {phase.lower()}" for phase, names in experiment.trials.items()]
    echo(f"{name}: {summary['state']}, {summary['trials']} trials ({', '.join(counts) or 'none yet'})")
    if summary["message"]:
        echo(summary["message"])
    for trial in waiting:
        echo(f"{trial.name} waits. {trial.message}")


@click.command()
@named_object
def best(name: str, url: str, as_json: bool) -> None:
    """Show the best trial: its parameters and metrics.

    \b
    Example:
      podium experiment best random --json
    """
    with closing(podium.open_sweep(name, cluster=url)) as sweep:
        show_best(sweep, as_json)


@click.command()
@named_object
def trials(name: str, url: str, as_json: bool) -> None:
    """List an Experiment's trials, best first.

    \b
    Example:
      podium experiment trials random
    """
    from podium.cli.experiment_view import draw
    from podium.manifests.experiment import leaderboard

    with closing(podium.open_sweep(name, cluster=url)) as sweep:
        experiment, ranked = sweep.experiment, leaderboard(sweep.cluster.trials(name))
    echo(json.dumps([trial.summary() for trial in ranked], indent=1) if as_json else draw(ranked, experiment))


@click.command()
@named_object
def stop(name: str, url: str, as_json: bool) -> None:
    """Stop an Experiment that runs in another terminal; podium experiment resume continues it.

    Katib cannot stop an Experiment and keep it: on Kubernetes this is refused.

    \b
    Example:
      podium experiment stop random
    """
    with closing(podium.open_sweep(name, cluster=url)) as sweep:
        resume = next_command(f"experiment resume {name}", sweep.stop().cluster)
    if as_json:
        echo(json.dumps({"experiment": name, "stopping": True}))
    echo(f"Experiment {name} stops; resume it with: {resume}", err=True)


@click.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write this file instead.")
@named_object
def report(name: str, output: Path | None, url: str, as_json: bool) -> None:
    """Write an HTML report: best trial, leaderboard, figures, and why trials failed.

    It is written beside the Experiment on this machine, of one on Kubernetes below podium-work/reports/; also of an
    Experiment that runs, was stopped or failed.

    \b
    Examples:
      podium experiment report random
      podium experiment report random -o random.html --json
    """
    with closing(podium.open_sweep(name, cluster=url)) as sweep:
        file = sweep.report(output)
    echo(json.dumps({"experiment": name, "report": str(file)}) if as_json else str(file))


@click.command()
@named_object
def delete(name: str, url: str, as_json: bool) -> None:
    """Stop an Experiment and remove it with its trials and logs; models stay where trials put them.

    \b
    Example:
      podium experiment delete random
    """
    podium.open_sweep(name, cluster=url).delete()
    if as_json:
        echo(json.dumps({"experiment": name, "deleted": True}))


@click.command()
@click.argument("name")
@click.option("--best", type=click.IntRange(1), required=True, help="How many trials keep their weights.")
@click.option("--delete", "deleting", is_flag=True, help="Delete the others' weights; otherwise they are only listed.")
@cluster_options
@as_json_option
def keep(name: str, best: int, deleting: bool, url: str, as_json: bool) -> None:
    """Remove the weights of all but the best trials; trials, metrics and logs stay. Deletes only with --delete.

    What a trial left under its --output goes, but for metrics.json, hyperparameters.json and environment.json.

    \b
    Examples:
      podium experiment keep random --best 3
      podium experiment keep random --best 3 --delete
    """
    from podium.steps.retention import plan_retention, remove
    from podium.text import size

    with open_cluster(url) as cluster:
        plan = plan_retention(cluster, name, best)
        if deleting:
            remove(plan.removed)
    if as_json:
        echo(json.dumps({"deleted": deleting, **asdict(plan)}, indent=1))
        return
    for weights in plan.removed:
        echo(f"{weights.url}  {len(weights.keys)} files, {size(weights.size)}")
    total = size(sum(weights.size for weights in plan.removed))
    echo(f"kept: {', '.join(plan.kept) or 'none, no trial has a result'}")
    end = " deleted" if deleting else "; nothing deleted, say --delete"
    echo(f"weights of {len(plan.removed)} trials, {total}{end}")


def show_best(sweep: "Sweep", as_json: bool) -> "Trial":
    """Print an Experiment's best trial, and return it."""
    try:
        best = sweep.best_trial
    except NotFound as error:
        trials = next_command(f"experiment trials {sweep.name}", sweep.cluster)
        logs = next_command("job logs TRIAL", sweep.cluster)
        raise NotFound(error.message, f"{trials} names them; {logs} | podium doctor - says why") from None
    if as_json:
        echo(json.dumps({"experiment": sweep.name, **best.summary()}, indent=1))
        return best
    echo(f"best trial: {best.name}")
    for parameter, value in best.assignments.items():
        echo(f"  {parameter} = {value}")
    for metric, values in best.metrics.items():
        echo(f"  {metric}: min {values['min']}, max {values['max']}, latest {values['latest']}")
    return best


def summary_of(experiment: "Experiment") -> dict[str, Any]:
    """Return an Experiment in a few words."""
    return {
        "name": experiment.name,
        "state": experiment.state.phase,
        "message": experiment.state.message,
        "trials": experiment.trial_count,
        "algorithm": experiment.algorithm.name,
        "created": experiment.created,
    }

"""Search hyperparameters with a Katib Experiment; every trial keeps its own model."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from podium.cluster.base import Cluster
from podium.cluster.local.store import has_ended
from podium.data import artifact
from podium.doctor.trial import why_unavailable
from podium.errors import Denied, Failed, InvalidInput, PodiumError, Unavailable
from podium.identity import RunIdentity, current_run, object_name
from podium.manifests.experiment import Experiment, Trial, best_trial, leaderboard, news
from podium.manifests.experiment.adapt import adapt, decided, is_podiums, locate, with_pods_retained
from podium.manifests.experiment.source import QUICKEST, is_bundled, quickest
from podium.manifests.job_kinds import AUTO, Admits, admits_all, check_choice, choose_kind, trials_as
from podium.steps.base import require_at_least, require_seed, say
from podium.steps.follow import show_log
from podium.steps.launch import launched
from podium.steps.model_directory import require_model
from podium.steps.origin import Origin
from podium.steps.recipe import Recipe
from podium.steps.step import step
from podium.steps.target import LaunchTarget, local_path, say_kind, storage_url
from podium.steps.trained import TrainedMetrics
from podium.steps.trial_logs import TrialLogs, trial_logs
from podium.sweeps import connect
from podium.text import brief, duration

WORTH = 10.0
"""Seconds below which it is not said what is left."""


@dataclass(frozen=True, kw_only=True)
class Swept:
    """Result of a sweep."""

    hyperparameters: dict[str, Any]
    """Of the best trial: all flags of podium's trainer except data and output, or the search parameters of another."""

    recipe: str
    """How the best trial was trained, as Recipe.parse reads it."""

    trial: str
    """Name of the best trial."""

    model: str
    """URI of its model directory."""

    metrics: dict[str, float]
    """Objective of the best trial and the number of trials."""

    metadata: dict[str, Any]
    """Metadata of the table of trials."""


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What a sweep runs; fields are named as in the pipelines."""

    experiment: str
    """Name of a bundled Experiment, or YAML."""

    max_trials: int
    """spec.maxTrialCount"""

    parallel_trials: int
    """spec.parallelTrialCount; lowered to max_trials."""

    trial_epochs: int = 0
    """``--epochs`` of podium's trainer; 0 leaves it to the Experiment."""

    trial_workers: int = 0
    """Workers of each trial, besides its master; 0: none, or those of the Experiment for another trainer."""

    network: str = ""
    """``--model`` of podium's trainer; empty leaves it to the Experiment, if that does not come with podium."""

    unnamed: str = QUICKEST
    """``--model`` of a bundled Experiment's trials where nobody names one, see with_data."""

    seed: int = 0
    """``random_state`` of the algorithm and ``--seed`` of podium's trainer; 0 leaves both to the Experiment."""

    job_kind: str = AUTO
    """What its trials are: auto, pytorchjob, trainjob or job, see podium.manifests.job_kinds."""

    def __post_init__(self) -> None:
        check_choice(self.job_kind, self.trial_workers)
        require_at_least(self, max_trials=1, parallel_trials=1, trial_epochs=0, trial_workers=0)
        require_seed(self.seed)

    @property
    def model(self) -> str:
        """``--model`` of the trials; empty for what the Experiment says."""
        return self.network if self.names_network else self.unnamed

    @property
    def names_network(self) -> bool:
        """Whether somebody chose the network."""
        return bool(self.network) or not is_bundled(self.experiment)

    def with_data(self, meaning: str) -> "SweepSettings":
        """Return the settings for data whose input is an image, a table or an array."""
        return replace(self, unnamed=quickest(meaning))

    def load(self) -> Experiment:
        """Read the Experiment as it is written."""
        return Experiment.load(self.experiment, self.model)

    def adapt(self, target: LaunchTarget, *, name: str, run: RunIdentity, admits: Admits = admits_all) -> Experiment:
        """Return the Experiment as part of a run, with placeholders for data and outputs.

        Args:
            target: Where and with what it runs.
            run: The run it belongs to.

        Raises:
            InvalidInput: There is no such Experiment, or a setting makes no sense for it.
        """
        experiment = self.load()
        if self.network and not is_podiums(experiment):
            problem = f"network={self.network} is for podium's trainer, but the trials run another"
            raise InvalidInput(problem, "make it a parameter of the Experiment or a word of its command")
        experiment = self._as_kind(experiment, admits)
        fixed = decided(epochs=self.trial_epochs, network=self.model, seed=self.seed, gpus=target.gpus_per_worker)
        seeded = self.seed and "random_state" in experiment.algorithm.facts.settings
        return adapt(
            experiment, fixed=fixed, gpus=target.gpus_per_worker, name=name, image=target.image,
            max_trials=self.max_trials, workers=self.trial_workers,
            parallel_trials=min(self.parallel_trials, self.max_trials), seed=self.seed if seeded else None,
            labels=run.labels, owner=run.owner,
        )  # fmt: skip

    def _as_kind(self, experiment: Experiment, admits: Admits) -> Experiment:
        """Return the Experiment with the kind of job as its trials that was asked for, or that the cluster runs."""
        own = experiment.template.workload
        workers = self.trial_workers if self.trial_workers or is_podiums(experiment) else own.workers
        if own.kind == "Job" and self.job_kind == AUTO:
            return experiment
        kind = choose_kind(own.kind, self.job_kind, workers, admits)
        return trials_as(experiment, kind, workers)


@step
def sweep(data: str, trials: str | Path, *, task: str, settings: SweepSettings, target: LaunchTarget) -> Swept:
    """Run an Experiment, show its trials, find the best trial's model.

    Args:
        data: URI of the dataset artifact.
        trials: File for the table of trials, JSON.
        task: Tells this step from the run's others; equal on retry.
        target: Where and with what to run it.

    Raises:
        InvalidInput: The Experiment breaks a rule, or a setting makes no sense for it; nothing was started.
        Failed: The Experiment failed, or no trial has a result or a model.
    """
    run = current_run()
    name = object_name("sweep", run.id, task)
    root = target.model_url(data, run, "trials")
    if not settings.names_network:
        settings = settings.with_data(artifact.describe(data).meaning)
    with connect(target.cluster_url()) as cluster:
        data = target.data_url(data, run, cluster)
        adapted = settings.adapt(target, name=name, run=run, admits=cluster.admits)
        located = target.place(
            locate(adapted, data=local_path(data), root=local_path(root)), adapted.template.primary_container
        )
        say_kind(settings.load().template.workload, adapted.template.workload)
        with (
            launched(cluster, located if cluster.traits.keeps_logs else with_pods_retained(located)),
            trial_logs(cluster, storage_url(target.storage, data), run.id, located) as logs,
        ):
            say(f"Experiment {name}: {settings.max_trials} trials, {adapted.limits.parallel} at a time")
            if not is_podiums(adapted):
                say("epochs and seed are not passed on to the trials: they do not run podium's trainer")
            _watch(cluster, adapted, logs)
            ended, ended_trials = cluster.experiment(name), cluster.trials(name)
            best = _best(cluster, ended, ended_trials)
            table = table_of(ended, ended_trials, lambda trial: f"{root}/{trial.name}", best.name)
    if note := other_choice(ended, ended_trials, best):
        say(note)
        table["note"] = note
    Path(trials).write_text(json.dumps(table, indent=1) + "\n")
    return _swept(best, Recipe.of_trial(adapted, best), table, run, target)


def _watch(cluster: Cluster, experiment: Experiment, logs: TrialLogs | None) -> None:
    """Show each trial as it starts and ends, the first also as it learns, until the Experiment ends."""
    seen: dict[str, str] = {}
    name, shown = experiment.name, False
    for _ in cluster.watch("Experiment", name):
        with suppress(Unavailable, Denied):  # the watch decides how long to wait for the cluster
            trials = cluster.trials(name)
            ended = _ended(seen)
            _say_news(trials, seen, logs)
            if _ended(seen) > ended and (left := time_left(experiment, trials)):
                say(left)
            first = next((trial for trial in trials if trial.phase == "Running"), None)
            if first and not shown:
                shown = True
                _show_epochs(cluster, experiment, first)
    _say_news(cluster.trials(name), seen, logs)


def _ended(seen: Mapping[str, str]) -> int:
    return sum(phase not in ("Pending", "Waiting", "Running") for phase in seen.values())


def _show_epochs(cluster: Cluster, experiment: Experiment, trial: Trial) -> None:
    """Print a trial's pace and epochs as they come: until it ends nothing else tells how long the sweep will take."""
    metrics, formats = (experiment.objective.metric,), experiment.collector.filters

    def show() -> None:
        show_log(cluster, "Trial", trial.name, metrics, formats, [], whose=f"trial {trial.name}, ")

    threading.Thread(target=show, name=f"log of {trial.name}", daemon=True).start()


def time_left(experiment: Experiment, trials: Sequence[Trial]) -> str:
    """Estimate what is left of a sweep by the trials that ended; empty if that says nothing or is not worth a word."""
    took = [trial.seconds for trial in trials if trial.is_good and trial.seconds is not None]
    spent = sum(trial.seconds or 0.0 for trial in trials if trial.phase == "Running")
    most = experiment.limits.max_trials or 0
    left = most - sum(trial.state.finished for trial in trials)
    if not took or left <= 0 or experiment.algorithm.facts.has_resource:  # whose trials are of different lengths
        return ""
    seconds = (left * sum(took) / len(took) - spent) / min(left, experiment.limits.parallel)
    return f"{left} of {most} trials left, about {duration(seconds)}" if seconds >= WORTH else ""


def _say_news(trials: Sequence[Trial], seen: dict[str, str], logs: TrialLogs | None) -> None:
    """Print what changed since the phases in ``seen``, update them, and keep the logs of trials that ended."""
    for trial in trials:
        if trial.state.finished and not has_ended(trial):
            continue  # its process ended with an earlier attempt of this step; it runs again
        for phase in news(trial, seen.get(trial.name, "Pending")):
            say(describe(trial, phase))
            seen[trial.name] = phase
    if logs:
        logs.update(trials)


def describe(trial: Trial, phase: str) -> str:
    """Describe a trial's state in a line."""
    parameters = " ".join(f"{name}={brief(value)}" for name, value in trial.assignments.items())
    if phase == "Running":
        return f"trial {trial.name} started: {parameters}"
    if phase == "Waiting":
        return f"trial {trial.name} waits. {trial.message}"
    result = f"{trial.value:.4f}" if trial.value is not None else trial.message
    seconds = f" in {trial.seconds:.1f} s" if trial.seconds is not None else ""
    return f"trial {trial.name} {phase.lower()}{seconds}: {result} ({parameters})"


def _best(cluster: Cluster, experiment: Experiment, trials: Sequence[Trial]) -> Trial:
    if not experiment.state.succeeded:
        failed = first_failure(trials)
        raise _failure(cluster, experiment, failed) if failed else cluster.failure("Experiment", experiment.name)
    best = best_trial(trials)
    if best is None:
        raise Failed(
            f"no trial of Experiment {experiment.name} reported {experiment.objective.metric}", "see the trials' logs"
        )
    return best


def first_failure(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial that failed first; what failed later may have been ended with the Experiment."""
    failed = [trial for trial in trials if trial.phase in ("Failed", "MetricsUnavailable")]
    return min(failed, key=lambda trial: trial.ended, default=None)


def _failure(cluster: Cluster, experiment: Experiment, trial: Trial) -> Failed:
    """Return the error of a trial that failed: what it said last, why it has no metrics, and where its log is."""
    error, why, hint = cluster.failure("Trial", trial.name), list[str](), ""
    if trial.phase == "MetricsUnavailable":
        error = Failed(f"trial {trial.name}: {trial.message}", error.hint)
        with suppress(PodiumError):
            printed = list(cluster.logs("Trial", trial.name))
            why, hint = why_unavailable(experiment, printed, "objectiveMetricName: NAME")
            why += ["it said last", *(f"  | {line}" for line in printed[-8:])]
    logs = sorted(folder.glob("logs/*.log")) if (folder := cluster.directory("Trial", trial.name)) else []
    hints = [error.hint, hint, f"all it said: {logs[0]}" if logs else ""]
    return Failed("\n".join([error.message, *why]), "; ".join(filter(None, hints)) or None)


def other_choice(experiment: Experiment, trials: Sequence[Trial], best: Trial) -> str | None:
    """Explain why the best trial is not Katib's currentOptimalTrial; None if it is, or if there is none."""
    optimal = experiment.optimal_trial
    if optimal in ("", best.name):
        return None
    value = next((trial.value for trial in trials if trial.name == optimal), None)
    why = "both reached the same objective, and it ended first" if value == best.value else "its objective is better"
    return f"Katib's currentOptimalTrial is {optimal}; podium takes {best.name}: {why}"


def table_of(
    experiment: Experiment, trials: Sequence[Trial], model_of: Callable[[Trial], str], best: str
) -> dict[str, Any]:
    """Describe all trials, best first, each with the metrics of its epochs.

    Args:
        trials: Its trials, oldest first.
        model_of: Returns the URI of a trial's model directory; empty for none.
        best: Name of the best trial; empty if there is none.
    """
    numbers = {trial.name: number for number, trial in enumerate(trials, 1)}
    rows = [
        {**trial.summary(), "number": numbers[trial.name], "model": url, "epochs": _curve(url) if url else []}
        for trial in leaderboard(trials)
        for url in [model_of(trial)]
    ]
    return {
        "experiment": experiment.name,
        "algorithm": experiment.algorithm.name,
        "objective": {"metric": experiment.objective.metric, "maximize": experiment.objective.maximize},
        "parameters": experiment.spec.get("parameters") or [],
        "best": best,
        "trials": rows,
    }


def _curve(url: str) -> list[dict[str, float]]:
    try:
        return TrainedMetrics.read(url).epochs
    except InvalidInput:
        return []  # its trainer keeps another record: its row still counts


def _swept(best: Trial, recipe: Recipe, table: Mapping[str, Any], run: RunIdentity, target: LaunchTarget) -> Swept:
    url = next(row["model"] for row in table["trials"] if row["name"] == best.name)
    require_model(url)
    origin = Origin(kind="trial", name=best.name, run_id=run.id, uri=url, hyperparameters=dict(best.assignments),
                    experiment=table["experiment"], image=next(iter(best.workload.images), ""),
                    code=target.code, install_requirements=target.install_requirements)  # fmt: skip
    origin.write()
    assert best.value is not None
    metrics = {table["objective"]["metric"]: best.value, "trials": float(len(table["trials"]))}
    metadata = {"uri": url, "trial": best.name, **{name: str(value) for name, value in best.assignments.items()}}
    say(f"best trial {best.name}: {table['objective']['metric']} {best.value:.4f}")
    return Swept(hyperparameters=dict(recipe.hyperparameters), recipe=recipe.to_text(), trial=best.name, model=url,
                 metrics=metrics, metadata=metadata)  # fmt: skip

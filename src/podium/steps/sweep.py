"""Search hyperparameters with a Katib Experiment; every trial keeps its own model."""

import math
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from podium.cluster.base import Cluster
from podium.data import artifact
from podium.data.folds import few_items
from podium.data.given import GivenData
from podium.data.schema import DatasetInfo
from podium.display.text import brief, duration, figure, plural, quoted
from podium.doctor.trial import misread_trial, why_unavailable
from podium.errors import Denied, Failed, PodiumError, Unavailable
from podium.manifests.experiment import Experiment, Trial, best_trial, news, no_best
from podium.manifests.experiment.build import locate, with_pods_retained
from podium.manifests.experiment.rules import warnings_of
from podium.manifests.options import describe as describe_options
from podium.prediction.directory import ModelDirectory
from podium.sweeps import connect
from podium.training.base import say
from podium.training.ensemble import build
from podium.training.follow import show_log
from podium.training.handover import TrialTable
from podium.training.identity import RunIdentity, StepContext, object_name
from podium.training.kept_logs import TrialLogs, trial_logs
from podium.training.origin import Origin
from podium.training.own_files import complete
from podium.training.recipe import Recipe
from podium.training.settings import SweepSettings
from podium.training.target import LaunchTarget, data_url, launched, local_path, say_kind
from podium.training.trial_table import trial_table

__all__ = ["LaunchTarget", "SweepSettings", "sweep"]

_MANY_ITEMS, _MOST_EPOCHS = 5_000, 30
"""Items that a trial sees of which nothing is said, and how many epochs are advised at most."""

_WORTH = 10.0
"""Seconds below which it is not said what is left."""


@dataclass(frozen=True, kw_only=True)
class _SweepResult:
    hyperparameters: dict[str, Any]
    """The best trial's: all flags of podium's trainer except data and output, or the search
    parameters of another."""

    recipe: str
    """How the best trial was trained, as Recipe.parse reads it."""

    trial: str
    model: str
    """URI of its model directory."""

    ensemble: str
    """URI of the model directory of several trials together; empty if there is none."""

    metrics: dict[str, float]
    """Objective of the best trial and the number of trials."""

    metadata: dict[str, Any]


def sweep(
    step: StepContext,
    data: str,
    trials: str | Path,
    *,
    task: str,
    settings: SweepSettings,
    target: LaunchTarget,
) -> _SweepResult:
    """Run an Experiment, show its trials, find the best trial's model.

    Args:
        data: URI of the dataset artifact.
        trials: File for the table of trials, JSON.
        task: Tells this step from the run's others; equal on retry.
        target: Where and with what to run it.

    Raises:
        InvalidInput: The Experiment breaks a rule, or a setting makes no sense for it; nothing was
            started.
        Failed: The Experiment failed, or no trial has a result or a model.
    """
    run = step.run
    name = object_name("sweep", run.id, task)
    root = step.url("trials")
    info = artifact.describe(data)
    settings = replace(settings, data_meaning=info.meaning, data_kind=info.kind)
    given_data = GivenData(data, run.resumed_as)
    settings = settings.with_folds(artifact.usual_folds(data))
    written = settings.load()
    folds = max(0, settings.folds) or written.asked.get("folds")
    if folds:
        artifact.check_folds(data, folds)
    elif advice := few_items(info):
        say(advice)
    if written.uses_builtin_trainer and (advice := _longer(info, settings.decided_epochs)):
        say(advice)
    with connect(target.cluster_url(), state=step.url(f"sweeps/{name}")) as cluster:
        data = data_url(data, step, cluster)
        adapted = settings.adapt(target, name=name, run=run, admits=cluster.admits)
        located = target.place(
            locate(adapted, data=local_path(data), root=local_path(root)),
            adapted.template.primary_container,
        )
        say_kind(written.template.workload, adapted.template.workload)
        with (
            launched(
                cluster, located if cluster.traits.keeps_logs else with_pods_retained(located)
            ),
            trial_logs(cluster, step.storage, run.id, located) as logs,
        ):
            _announce(cluster, adapted)
            _watch(cluster, adapted, logs, given_data)
            ended = cluster.experiment(name)
            ended_trials = cluster.judged_trials(ended)
            best = _best(cluster, ended, ended_trials)
            note = _other_choice(ended, ended_trials, best)
            doubt = _misread(cluster, ended, best, ended_trials)
            table = trial_table(
                ended, ended_trials, best, lambda trial: f"{root}/{trial.name}", note, in_run=True
            )
    for line in filter(None, (doubt, note, table.standing)):
        say(line)
    table.write(Path(trials))
    together = ""
    if settings.ensemble:
        together = build(table, info, f"{root}/{name}-ensemble", run.id)
    url = next(row.model for row in table.trials if row.name == best.name)
    return _result(best, Recipe.of_trial(adapted, best, url), table, run, target, together)


def _announce(cluster: Cluster, experiment: Experiment) -> None:
    """Say what begins, and what of it others may not keep where they run the Experiment."""
    limits = experiment.limits
    say(
        f"Experiment {experiment.name}: {plural(limits.max_trials or 0, 'trial')}, {limits.parallel} at a time"
    )
    for title, words in describe_options(experiment).items():
        say(f"{title}: {words}")
    if not experiment.uses_builtin_trainer:
        say("epochs and seed are not passed on to the trials: they do not run podium's trainer")
    for warning in warnings_of(experiment) if cluster.outlives_client("Experiment") else ():
        say(warning)


def _watch(
    cluster: Cluster, experiment: Experiment, logs: TrialLogs | None, given_data: GivenData
) -> None:
    """Show each trial as it starts and ends, some also as they learn, until the
    Experiment ends.

    Raises:
        Failed: A trial wrote into the data that all are given.
    """
    seen: dict[str, str] = {}
    name, shown, said = experiment.name, set[str](), ""
    for now in cluster.watch("Experiment", name):
        if now.state.phase == "Waiting" and now.state.message != said:
            say(said := now.state.message)
        with suppress(Unavailable, Denied):  # the watch decides how long to wait for the cluster
            trials = cluster.trials(name)
            ended = _ended(seen)
            _say_news(trials, seen, logs)
            if new := _ended(seen) - ended:
                given_data.check(*_named(new, seen))
                if left := _time_left(experiment, trials):
                    say(left)
            if learning := _to_be_shown(trials, experiment.limits.max_trials or 0, shown):
                shown.add(learning.name)
                _show_epochs(cluster, experiment, learning)
    ended = _ended(seen)
    _say_news(cluster.trials(name), seen, logs)
    given_data.check(*_named(_ended(seen) - ended, seen))


def _ended(seen: Mapping[str, str]) -> set[str]:
    return {name for name, phase in seen.items() if phase not in ("Pending", "Waiting", "Running")}


def _named(ended: set[str], seen: Mapping[str, str]) -> list[str]:
    """Return the trials that may be responsible: those that have just ended, and running ones."""
    running = [name for name, phase in seen.items() if phase == "Running"]
    return [f"trial {name}" for name in (*sorted(ended), *running)] or ["a trial"]


def _to_be_shown(trials: Sequence[Trial], most: int, shown: Collection[str]) -> Trial | None:
    """Return the running trial whose epochs are news: the first of all, the last one alone, and one
    that has taken twice as long as any that ended, by which what is left was estimated."""
    running = [trial for trial in trials if trial.phase == "Running" and trial.name not in shown]
    ended = [trial.seconds or 0.0 for trial in trials if trial.state.finished]
    if not shown or len(ended) == most - 1:
        return next(iter(running), None)
    usual = max(_WORTH, *ended) if ended else math.inf
    return next((trial for trial in running if (trial.seconds or 0.0) > 2 * usual), None)


def _show_epochs(cluster: Cluster, experiment: Experiment, trial: Trial) -> None:
    """Print a trial's pace and epochs as they come: until it ends nothing else tells how long the
    sweep will take."""
    metrics, formats = (experiment.objective.metric,), experiment.collector.filters

    def show() -> None:
        show_log(cluster, "Trial", trial.name, metrics, formats, [], whose=f"trial {trial.name}, ")

    threading.Thread(target=show, name=f"log of {trial.name}", daemon=True).start()


def _time_left(experiment: Experiment, trials: Sequence[Trial]) -> str:
    """Estimate what is left of a sweep by the trials that ended; empty if that says nothing or is
    not worth a word."""
    took = [trial.seconds for trial in trials if trial.is_good and trial.seconds is not None]
    spent = sum(trial.seconds or 0.0 for trial in trials if trial.phase == "Running")
    most = experiment.limits.max_trials or 0
    left = most - sum(trial.state.finished for trial in trials)
    if (
        not took or left <= 0 or experiment.algorithm.facts.has_resource
    ):  # whose trials are of different lengths
        return ""
    seconds = (left * sum(took) / len(took) - spent) / min(left, experiment.limits.parallel)
    return (
        f"{left} of {plural(most, 'trial')} left, about {duration(seconds)}"
        if seconds >= _WORTH
        else ""
    )


def _longer(info: DatasetInfo, taken: int) -> str:
    """Return a line for who has too few items for networks of so few epochs; else nothing."""
    items = info.parts["train"].count
    if not taken or items * taken >= _MANY_ITEMS or info.meaning in ("table", "tokens"):
        return ""
    epochs = min(_MOST_EPOCHS, math.ceil(2 * _MANY_ITEMS / items))
    weights = (
        "; network=resnet18 weights=FILE starts from torchvision's weights"
        if info.meaning == "image"
        else ""
    )
    return (
        f"{plural(items, 'item')} in {plural(taken, 'epoch')} may teach a trial little: "
        f"trial_epochs={epochs} epochs={2 * epochs} trains longer{weights}"
    )


def _say_news(trials: Sequence[Trial], seen: dict[str, str], logs: TrialLogs | None) -> None:
    """Print what changed since the phases in ``seen``, update them, and keep the logs of trials
    that ended."""
    for trial in trials:
        if trial.state.lost:
            continue  # its process ended with an earlier attempt of this step; it runs again
        for phase in news(trial, seen.get(trial.name, "Pending")):
            say(_describe(trial, phase))
            seen[trial.name] = phase
    if logs:
        logs.update(trials)


def _describe(trial: Trial, phase: str) -> str:
    parameters = " ".join(f"{name}={brief(value)}" for name, value in trial.parameters.items())
    if phase == "Running":
        return f"trial {trial.name} started: {parameters}"
    if phase == "Waiting":
        return f"trial {trial.name} waits. {trial.message}"
    result = figure(trial.value) if trial.value is not None else trial.message
    seconds = f" in {trial.seconds:.1f} s" if trial.seconds is not None else ""
    return f"trial {trial.name} {phase.lower()}{seconds}: {result} ({parameters})"


def _best(cluster: Cluster, experiment: Experiment, trials: Sequence[Trial]) -> Trial:
    best, failed, name = best_trial(trials), _first_failure(trials), experiment.name
    has_succeeded = experiment.state.succeeded
    if best and has_succeeded:
        return best
    if has_succeeded and any(trial.infeasible for trial in trials):
        hint = "loosen the constraint, or give the sweep more trials"
        raise Failed(f"no trial of Experiment {name} {no_best(trials)}", hint)
    if failed:
        raise _failure(cluster, experiment, failed)
    if has_succeeded:
        raise Failed(f"no trial of Experiment {name} reported {experiment.objective.metric}")
    raise cluster.failure("Experiment", name)


def _misread(cluster: Cluster, experiment: Experiment, best: Trial, trials: Sequence[Trial]) -> str:
    with suppress(PodiumError):
        if doubt := misread_trial(
            experiment, best, trials, lambda name: cluster.logs("Trial", name)
        ):
            trial, other = doubt
            where = f"{other.where} of the log of {trial.name}"
            return f"warning: {other.what} ({where}); {other.hint}"
    return ""


def _first_failure(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial that failed first; what failed later may have been ended with the
    Experiment."""
    failed = [trial for trial in trials if trial.phase in ("Failed", "MetricsUnavailable")]
    return min(failed, key=lambda trial: trial.ended, default=None)


def _failure(cluster: Cluster, experiment: Experiment, trial: Trial) -> Failed:
    """Return the error of a trial that failed: what it said last, why it has no metrics, and where
    its log is."""
    error, why, hint = cluster.failure("Trial", trial.name), list[str](), ""
    if trial.phase == "MetricsUnavailable":
        error = Failed(f"trial {trial.name}: {trial.message}", error.hint)
        with suppress(PodiumError):
            printed = list(cluster.logs("Trial", trial.name))
            why, hint = why_unavailable(experiment, printed, "objectiveMetricName: NAME")
            why += ["its last lines", *quoted(printed[-8:])]
    logs = (
        sorted(folder.glob("logs/*.log"))
        if (folder := cluster.directory("Trial", trial.name))
        else []
    )
    hints = [error.hint, hint, f"its whole log: {logs[0]}" if logs else ""]
    return Failed("\n".join([error.message, *why]), "; ".join(filter(None, hints)) or None)


def _other_choice(experiment: Experiment, trials: Sequence[Trial], best: Trial) -> str | None:
    """Explain why the best trial is not Katib's currentOptimalTrial; None if it is, or if there is
    none."""
    optimal = experiment.optimal_trial
    if optimal in ("", best.name):
        return None
    other = next((trial for trial in trials if trial.name == optimal), None)
    if other and other.infeasible:
        return f"Katib's currentOptimalTrial is {optimal}; podium takes {best.name}: {optimal} is infeasible"
    value = other.value if other else None
    why = (
        "both reached the same objective, and it ended first"
        if value == best.value
        else "its objective is better"
    )
    return f"Katib's currentOptimalTrial is {optimal}; podium takes {best.name}: {why}"


def _result(
    best: Trial,
    recipe: Recipe,
    table: TrialTable,
    run: RunIdentity,
    target: LaunchTarget,
    together: str,
) -> _SweepResult:
    directory = ModelDirectory(recipe.model)
    complete(directory, target)
    origin = Origin(
        kind="trial",
        name=best.name,
        run_id=run.id,
        uri=recipe.model,
        hyperparameters=dict(best.parameters),
        experiment=table.experiment,
        image=next(iter(best.workload.images), ""),
        code=target.code,
        install_requirements=target.install_requirements,
    )
    origin.write(directory)
    assert best.value is not None
    metrics = {"trials": float(len(table.trials)), table.objective.metric: best.value}
    metadata = {
        **{name: str(value) for name, value in best.parameters.items()},
        "uri": recipe.model,
        "trial": best.name,
    }
    say(f"best trial {best.name}: {table.objective.metric} {figure(best.value)}")
    return _SweepResult(
        hyperparameters=dict(recipe.hyperparameters),
        recipe=recipe.to_text(),
        trial=best.name,
        model=recipe.model,
        ensemble=together,
        metrics=metrics,
        metadata=metadata,
    )

"""A sweep as one HTML page."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podium.api.passing import settled
from podium.api.trials import TrialReader, failed, measured, model_of
from podium.cluster.base import Cluster
from podium.errors import PodiumError
from podium.files.documents import MAX_JSON, load_json, parse, write_file
from podium.manifests.experiment import Experiment, Trial, best_trial, no_best
from podium.manifests.options import describe
from podium.manifests.shell import join
from podium.metrics import number
from podium.reports import Failure, SweepPage, render_sweep
from podium.reports.page import SHOWN_FAILURES
from podium.storage import connect
from podium.system.settings import Settings
from podium.training.trial_table import trial_table

_LINES = 12
"""Last lines shown of a trial without a result."""


def write_report(cluster: Cluster, name: str, path: Path | None = None) -> Path:
    """Write the report of an Experiment, whole or not at all, and return its path.

    Args:
        cluster: Runs it, or has run it.
        path: Path of the HTML file, whose directory is created; beside the Experiment if None and
            that is on this machine, else below PODIUM_HOME.

    Raises:
        PodiumError: The file cannot be written.
    """
    if path is None:
        directory = cluster.directory("Experiment", name)
        elsewhere = Settings.from_environment().home / "reports" / f"{name}.html"
        path = directory / "report.html" if directory else elsewhere
    experiment = cluster.experiment(name)
    write_file(path, render_sweep(_page(cluster, experiment, cluster.judged_trials(experiment))))
    return path


def _page(cluster: Cluster, experiment: Experiment, trials: Sequence[Trial]) -> SweepPage:
    reader, best = TrialReader(cluster, experiment.name), best_trial(trials)
    values = (
        {name: number(text) for name, text in measured(best, experiment).items()} if best else {}
    )
    return SweepPage(
        table=_table(reader, experiment, trials, best),
        cluster=cluster.url,
        goal=f"{experiment.objective.direction} {experiment.objective.metric}",
        no_best=no_best(trials),
        asked=describe(experiment),
        state=experiment.outcome,
        message=experiment.state.message if experiment.outcome == experiment.state.phase else "",
        metrics={name: value for name, value in values.items() if value is not None},
        command=command_of(best, experiment.template.primary_container) if best else "",
        trained_with=_environment(model_of(best) or "") if best else {},
        failures=[
            _failure(reader, trial, said=at < SHOWN_FAILURES)
            for at, trial in enumerate(failed(trials))
        ],
    )


def _environment(model: str) -> dict[str, Any]:
    if not model:
        return {}
    with suppress(PodiumError):
        name = f"{model}/environment.json"
        return parse(
            dict[str, Any],
            load_json(connect(model).get("environment.json", limit=MAX_JSON + 1), name),
            name,
        )
    return {}


def _table(
    reader: TrialReader, experiment: Experiment, trials: Sequence[Trial], best: Trial | None
) -> dict[str, Any]:
    """Describe the trials; where a trial's model has no record of its epochs, its log has."""
    good = {trial.name: trial for trial in trials if trial.is_good}
    models = {name: model_of(trial) or "" for name, trial in good.items()}
    table = asdict(trial_table(experiment, trials, best, lambda trial: models.get(trial.name, "")))
    for row in table["trials"]:
        if row["name"] in good and not row["epochs"]:
            row["epochs"] = reader.epochs(row["name"], experiment)
    return table


def command_of(trial: Trial, container: str) -> str:
    """Return a trial's program as a shell command, for its first replica; variables are replaced by
    their values."""
    own = next((own for _, own in trial.workload.containers() if own.name == container), None)
    script = join(own.words)[1] if own else ""
    for name, variable in own.env.items() if own else ():
        value = str(variable.value or "").replace("$$", "$")  # as Kubernetes reads it
        script = script.replace(f'"${name}"', shlex.quote(value))
    return settled(script)


def _failure(reader: TrialReader, trial: Trial, *, said: bool) -> Failure:
    lines = reader.last_lines(trial.name)[-_LINES:] if said else []
    return Failure(name=trial.name, state=trial.phase, message=trial.message, lines=lines)

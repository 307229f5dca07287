"""The table of a sweep's trials, made from its Experiment."""

from collections.abc import Callable, Sequence

from podium.errors import InvalidInput
from podium.files.documents import parse
from podium.manifests.experiment import Experiment, Trial, fronts_of, leaderboard
from podium.manifests.options.objectives import Criteria
from podium.metrics.goals import Goal
from podium.training.handover import TableParameter, TrialRow, TrialTable
from podium.training.standing import standing
from podium.training.trained import TrainedMetrics


def trial_table(
    experiment: Experiment,
    trials: Sequence[Trial],
    best: Trial | None,
    model_of: Callable[[Trial], str] = lambda trial: "",
    note: str | None = None,
    *,
    in_run: bool = False,
) -> TrialTable:
    """Describe all trials of a sweep, each with the metrics of its epochs.

    Args:
        trials: Its trials, oldest first.
        model_of: Returns the URI of a trial's model directory; empty for none.
        note: Why the best trial is another than Katib's, if it is.
        in_run: See standing.
    """
    ranked = leaderboard(trials)
    sure = standing(experiment, ranked, model_of, in_run=in_run)
    numbers = {trial.name: number for number, trial in enumerate(trials, 1)}
    objective, on = experiment.objective, fronts_of(trials)
    criteria = Criteria.of(objective, experiment.asked)
    more = {goal.metric: goal.maximize for goal in criteria.goals}
    judged = {name: more.get(name) for name in criteria.metrics[1:]}
    return TrialTable(
        experiment=experiment.name,
        algorithm=experiment.search.name,
        objective=Goal(metric=objective.metric, maximize=objective.maximize),
        parameters=[
            parse(TableParameter, entry, "parameters")
            for entry in experiment.spec.get("parameters") or []
        ],
        best=best.name if best else "",
        note=note,
        standing=sure.remark,
        judged=judged,
        strategies=dict(objective.strategies),
        constraints=list(criteria.constraints),
        trials=[
            TrialRow(
                **trial.to_json(),
                **sure.to_json(trial.name),
                number=numbers[trial.name],
                model=url,
                epochs=_curve(url) if url else [],
                judged={name: criteria.measured(trial.metrics).get(name) for name in judged},
                front=on.get(trial.name),
                started=trial.started or None,
                ended=trial.completed or None,
            )
            for trial in ranked
            for url in [model_of(trial)]
        ],
    )


def _curve(url: str) -> list[dict[str, float]]:
    from podium.prediction.directory import ModelDirectory  # which loads pyarrow and Pillow

    try:
        return TrainedMetrics.read(ModelDirectory(url)).epochs
    except InvalidInput:
        return []  # its trainer keeps another record: its row still counts

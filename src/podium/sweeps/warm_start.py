"""The finished trials of earlier Experiments that a search learns from."""

from podium.cluster.base import Cluster
from podium.errors import InvalidInput
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.trial import Trial
from podium.manifests.options.objectives import Criteria
from podium.manifests.options.warm_start import WarmStart
from podium.search.algorithm import PastTrial
from podium.search.algorithms import ALGORITHMS
from podium.search.distributions import fits


def earlier_trials(cluster: Cluster, experiment: Experiment) -> list[PastTrial]:
    """Return the earlier trials that an Experiment learns from before it begins; empty without a
    warm start.

    Args:
        cluster: Cluster with the earlier Experiments and their trials.
        experiment: Checked.

    Raises:
        NotFound: There is no such earlier Experiment.
        InvalidInput: Its algorithm does not learn, the objectives differ, or no trial lies in its
            space.
    """
    option = WarmStart.of(experiment.asked)
    if option is None:
        return []
    names = option.names
    algorithm, least = experiment.algorithm.name, experiment.algorithm.facts.warm_trials
    if not least:
        learning = ", ".join(known.name for known in ALGORITHMS.values() if known.warm_trials)
        hint = f"choose one of {learning}, or leave warm_start out"
        raise InvalidInput(
            f"{algorithm} does not learn from earlier trials, which warm_start asks for", hint
        )
    strategy = experiment.algorithm.settings.get("restart_strategy", "none")
    if strategy != "none":
        hint = "remove the setting restart_strategy, or warm_start"
        raise InvalidInput(
            f"{algorithm} with warm_start has no restarts, not restart_strategy={strategy}", hint
        )
    usable: list[PastTrial] = []
    count = 0
    for name in names:
        _check_objective(experiment, cluster.experiment(name))
        trials = cluster.trials(name)
        count += len(trials)
        usable += [known for trial in trials if (known := _usable(trial, experiment))]
    if len(usable) < least:
        raise InvalidInput(
            f"{algorithm} needs at least {least} finished trials of {', '.join(names)} within the search space, but of "
            f"{count} trials {len(usable)} are",
            "a trial counts if it has a result and values for exactly the parameters searched here, all within bounds",
        )
    return usable


def _check_objective(experiment: Experiment, other: Experiment) -> None:
    mine, theirs = experiment.objective, other.objective
    if (mine.metric, mine.maximize, mine.strategy) != (
        theirs.metric,
        theirs.maximize,
        theirs.strategy,
    ):
        raise InvalidInput(
            f"warm_start names Experiments of the same objective, but {other.name} has to {theirs} and this one to "
            f"{mine}",
            "name another one",
        )


def _usable(trial: Trial, experiment: Experiment) -> PastTrial | None:
    value = Criteria.of(experiment.objective, experiment.asked).value(trial.metrics)
    if not trial.is_good or value is None or not fits(trial.assignments, experiment.space):
        return None
    return PastTrial(trial=trial.name, point=trial.assignments, value=value)

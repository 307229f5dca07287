"""Recovery after a stopped or killed engine, and the edits Katib allows before an Experiment is
resumed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from podium.errors import Conflict, InvalidInput
from podium.manifests.conditions import Conditions
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.rules import check
from podium.manifests.experiment.status import restarted
from podium.manifests.options import ended_by, read_settings, settings

if TYPE_CHECKING:
    from podium.sweeps.local import LocalSweeps


def edit(experiment: Experiment, changes: Mapping[str, int | str]) -> Experiment:
    """Return an Experiment with other counts, by the rules of Katib's webhook, or with another
    budget.

    Args:
        changes: maxTrialCount, parallelTrialCount, maxFailedTrialCount; settings of options that
            may be raised.

    Raises:
        InvalidInput: It has ended and may not be restarted, or the counts make no sense.
    """
    raised = read_settings({name: value for name, value in changes.items() if name in settings()})
    edited = experiment.with_counts(
        {name: int(value) for name, value in changes.items() if name not in raised}
    )
    edited = edited.with_asked(raised) if raised else edited
    if edited.limits == experiment.limits and edited.asked == experiment.asked:
        return experiment
    most, count = edited.limits.max_trials, experiment.trial_count
    if experiment.is_resumable:
        # As of one that runs, its counts may be any that its trials leave room for.
        if most is not None and most < count:
            raise InvalidInput(
                f"maxTrialCount must be at least the number of trials there are, but got maxTrialCount={most}, "
                f"trials={count}",
                f"give {count} or more",
            )
        return check(edited)
    full = ended_by(experiment)
    if full:
        option = full.of(edited.asked)
        if option and not option.more_than(full.of(experiment.asked)):
            raise InvalidInput(
                f"{experiment.name} has ended: {experiment.state.message}",
                f"go on with {full.raised}",
            )
    if experiment.state.finished and not full and not experiment.is_restartable:
        raise InvalidInput(
            "a finished Experiment is resumed only if it used its budget, or reached maxTrialCount and has "
            "resumePolicy LongRunning or FromVolume, but this one has resumePolicy "
            f"{experiment.resume_policy} and ended with {experiment.state.reason}",
            "begin a new Experiment; it can start warm from this one's trials",
        )
    if most is not None and most <= count:
        raise InvalidInput(
            f"maxTrialCount must be above the number of trials there are, but got maxTrialCount={most}, trials={count}",
            f"give {count + 1} or more",
        )
    return check(edited)


def resume(
    cluster: "LocalSweeps", name: str, changes: Mapping[str, int | str] | None = None
) -> Experiment:
    """Resume a stored Experiment in this process: one whose engine was stopped, or a finished one
    with more trials.

    Args:
        changes: See ``edit``.

    Raises:
        NotFound: There is none.
        InvalidInput: It has ended for good, or the changes break a rule.
        Conflict: Another process runs it.
    """
    if cluster.experiment(name).state.finished:
        cluster.join(
            "Experiment", name
        )  # in this process: it has written its end, and may still be closing its study
    with cluster.store.alone():  # else two processes could both find it free
        stored = cluster.experiment(name)
        if cluster.store.is_supervised("Experiment", name) and not stored.state.finished:
            raise Conflict(
                f"Experiment {name} runs in another process", "wait for it or stop it first"
            )
        edited = edit(stored, changes or {})
        status = dict(stored.status)
        lost = ["Failed"] if stored.state.lost else []
        Conditions(status, "katib").remove("Stopped", *lost)
        edited = edited.with_status(status)
        cluster.store.forget_stop("Experiment", name)
        if stored.state.finished and changes and not stored.is_resumable:
            edited = restarted(edited)
        supervisor = cluster.supervisor(edited)
        cluster.store.claim("Experiment", name)
        parts = {"status": edited.status, "spec": edited.spec, "metadata": edited.metadata}
        written = {name: dict(part) for name, part in parts.items()}
        resumed = cluster.store.update(
            "Experiment", name, lambda manifest: manifest.update(written)
        )
    cluster.supervise("Experiment", name, supervisor)
    return replace(edited, manifest=resumed)

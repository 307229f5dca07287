"""A cluster inside this process: PyTorchJobs and Jobs as processes, Experiments as trial loops over
them, resumed after a stop or a kill with the edits that Katib allows."""

from collections.abc import Mapping
from dataclasses import replace

from podium.cluster.base import R
from podium.cluster.local.cluster import LocalCluster, Supervisor
from podium.errors import Conflict, InvalidInput, suggestion
from podium.manifests.conditions import Conditions
from podium.manifests.experiment import Experiment, check
from podium.manifests.experiment.status import restarted
from podium.manifests.labels import REUSE, SAMPLER
from podium.manifests.names import random_suffix
from podium.manifests.options import ended_by, options_of, read_settings, settings
from podium.manifests.options.algorithm import settled as with_algorithm
from podium.manifests.options.pool import pool_size
from podium.search.in_order import check_sampler
from podium.search.space import Parameter, settled
from podium.sweeps.records import Records, Requests


def _edit(experiment: Experiment, changes: Mapping[str, int | str]) -> Experiment:
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
            "start a new Experiment; it can start warm from this one's trials",
        )
    if most is not None and most <= count:
        raise InvalidInput(
            f"maxTrialCount must be above the number of trials there are, but got maxTrialCount={most}, trials={count}",
            f"give {count + 1} or more",
        )
    return check(edited)


def _check_values(experiment: Experiment, values: Mapping[str, object]) -> dict[str, str]:
    """Return the values of a trial as text, in the order of the space; an inactive parameter has
    its fixed value.

    Raises:
        InvalidInput: One is missing, is not of the space, or lies outside of it: the search could
            not learn from it; or an option refuses trials by hand.
    """
    for option in options_of(experiment):
        option.check_trial_by_hand(experiment)
    parameters = {parameter.name: parameter for parameter in experiment.space}
    for name in values:
        if name not in parameters:
            raise InvalidInput(
                f"{experiment.name} does not search over {name!r}", suggestion(name, parameters)
            )
    point = {name: _check_value(parameters[name], str(value)) for name, value in values.items()}
    if missing := [
        name
        for name, parameter in parameters.items()
        if name not in point and parameter.counts(point)
    ]:
        raise InvalidInput(
            f"no value is given for {', '.join(missing)}",
            f"{missing[0]}=VALUE; --like TRIAL fills in",
        )
    return settled(experiment.space, point)


def _check_value(parameter: Parameter, text: str) -> str:
    if not parameter.numeric:
        if text not in parameter.choices:
            raise InvalidInput(
                f"{parameter.name}={text} is not among its values",
                suggestion(text, parameter.choices),
            )
        return text
    hint = f"its space is {parameter.extent}"
    try:
        value = float(text)
    except ValueError:
        raise InvalidInput(f"{parameter.name}={text} is not a number", hint) from None
    if not parameter.low <= value <= parameter.high:
        raise InvalidInput(f"{parameter.name}={text} lies outside of its space", hint)
    if parameter.kind == "int" and not value.is_integer():
        raise InvalidInput(f"{parameter.name}={text} is not a whole number", hint)
    return parameter.nearest(value) if parameter.step else parameter.text(value)


class LocalSweeps(LocalCluster):
    """Jobs and Experiments under a directory, which also holds ``{experiments,trials}/<name>/``."""

    creates = (*LocalCluster.creates, "Experiment")

    def resume(self, kind: str, name: str, changes: Mapping[str, int | str] | None = None) -> None:
        """Resume an Experiment in this process: one whose engine was stopped, or a finished one
        with more trials. A job cannot be resumed.

        Raises:
            NotFound: There is none.
            InvalidInput: It has ended for good, the changes break a rule, or another version of
                Optuna began a deterministic one; nothing has changed then.
            Conflict: Another process runs it.
        """
        if kind != "Experiment":
            return super().resume(kind, name, changes)
        if self.experiment(name).state.finished:
            self.join(
                "Experiment", name
            )  # in this process: it has written its end, and may still be closing its study
        with self.store.supervision.alone():  # else two processes could both find it free
            stored = self.experiment(name)
            if (
                self.store.supervision.is_supervised("Experiment", name)
                and not stored.state.finished
            ):
                raise Conflict(
                    f"Experiment {name} runs in another process",
                    f"wait for it, or podium experiment stop {name}",
                )
            for trial in self.trials(name):  # the engine would fail the Experiment for good
                check_sampler(trial.name, trial.labels.get(SAMPLER))
            edited = _edit(stored, changes or {})
            status = dict(stored.status)
            lost = ["Failed"] if stored.state.lost else []
            Conditions(status, "katib").remove("Stopped", *lost)
            edited = edited.with_status(status)
            self.store.forget_stop("Experiment", name)
            if stored.state.finished and changes and not stored.is_resumable:
                edited = restarted(edited)
            supervisor = self.supervisor(edited)
            self.store.supervision.claim("Experiment", name)
            parts = {"status": edited.status, "spec": edited.spec, "metadata": edited.metadata}
            written = {name: dict(part) for name, part in parts.items()}
            self.store.update("Experiment", name, lambda manifest: manifest.update(written))
        self.supervise("Experiment", name, supervisor)

    def add_trial(self, experiment: str, values: Mapping[str, object]) -> str:
        found = self.experiment(experiment)
        assignments = _check_values(found, values)
        if full := ended_by(found):
            hint = f"{self.store.resume_command(experiment)} with {full.raised} comes first"
            raise InvalidInput(f"Experiment {experiment} has ended: {found.state.message}", hint)
        if found.state.finished and not found.is_resumable and not found.is_restartable:
            problem = f"Experiment {experiment} has ended for good: {found.state.message}"
            raise InvalidInput(
                problem, "start a new Experiment; it can start warm from this one's trials"
            )
        trial = f"{experiment}-{random_suffix(8)}"
        Requests(self.store.path("Experiment", experiment)).add(trial, assignments)
        return trial

    def stop(self, kind: str, name: str) -> None:
        """Ask for the end of an object; a running trial counts with the metrics it has reported."""
        if kind == "Trial" and pool_size(self.experiment(self.trial(name).experiment)):
            raise InvalidInput(
                f"a pool runs trial {name} to its end", "stop the sweep, or let it run"
            )
        super().stop(kind, name)

    def _store(self, resource: R) -> tuple[R, Supervisor]:
        if not isinstance(resource, Experiment):
            return super()._store(resource)
        chosen = with_algorithm(resource) if self.traits.shares_files else resource
        supervisor = self.supervisor(
            chosen
        )  # which checks the Experiment; nothing is stored if that fails
        return replace(resource, manifest=self.store.create(chosen.manifest)), supervisor

    def supervisor(self, experiment: Experiment) -> Supervisor:
        """Return the supervisor of an Experiment.

        Raises:
            InvalidInput: It breaks a rule, or its trials cannot run here.
        """
        from podium.sweeps.controller import ExperimentController
        from podium.sweeps.file_documents import FileDocuments
        from podium.sweeps.local_trial import ProcessExecutor

        checked = check(experiment)
        documents = FileDocuments(self, checked.name)
        if REUSE in checked.annotations:
            from podium.sweeps.kept_trial import KeptExecutor

            executor: ProcessExecutor = KeptExecutor(self, checked)
        else:
            executor = ProcessExecutor(self, checked)
        records = Records(self, checked, documents, executor)
        return ExperimentController(records, experiment)

    def remove(self, kind: str, name: str) -> None:
        """Remove an object that no process runs; an Experiment with its trials and their jobs."""
        for trial in self.trials(name) if kind == "Experiment" else ():
            self.delete(trial.workload.kind, trial.name)
            self.store.remove("Trial", trial.name)
        super().remove(kind, name)

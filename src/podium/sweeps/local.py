"""A cluster inside this process: PyTorchJobs and Jobs as processes, Experiments as trial loops over
them."""

from collections.abc import Mapping
from dataclasses import replace

from podium.cluster.base import R
from podium.cluster.local.cluster import LocalCluster
from podium.cluster.local.supervisor import Supervisor
from podium.errors import InvalidInput
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.names import random_suffix
from podium.manifests.options import ended_by
from podium.manifests.options.algorithm import settled
from podium.manifests.options.pool import pool_size
from podium.sweeps.by_hand import ask_for, check_values


class LocalSweeps(LocalCluster):
    """Jobs and Experiments under a directory, which also holds ``{experiments,trials}/<name>/``."""

    creates = (*LocalCluster.creates, "Experiment")

    def resume(self, kind: str, name: str, changes: Mapping[str, int | str] | None = None) -> None:
        """Resume an Experiment in this process; a job cannot be resumed."""
        if kind != "Experiment":
            return super().resume(kind, name, changes)
        from podium.sweeps.resume import resume

        resume(self, name, changes)

    def add_trial(self, experiment: str, values: Mapping[str, object]) -> str:
        found = self.experiment(experiment)
        assignments = check_values(found, values)
        if full := ended_by(found):
            hint = f"podium experiment resume {experiment}, with {full.raised}, comes first"
            raise InvalidInput(f"Experiment {experiment} has ended: {found.state.message}", hint)
        if found.state.finished and not found.is_resumable and not found.is_restartable:
            problem = f"Experiment {experiment} has ended for good: {found.state.message}"
            raise InvalidInput(
                problem, "begin a new Experiment; it can start warm from this one's trials"
            )
        trial = f"{experiment}-{random_suffix(8)}"
        ask_for(self.store.path("Experiment", experiment), trial, assignments)
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
        chosen = settled(resource) if self.traits.shares_files else resource
        supervisor = self.supervisor(
            chosen
        )  # which checks the Experiment; nothing is stored if that fails
        return replace(resource, manifest=self.store.create(chosen.manifest)), supervisor

    def supervisor(self, experiment: Experiment) -> Supervisor:
        """Return the supervisor of an Experiment.

        Raises:
            InvalidInput: It breaks a rule, or its trials cannot run here.
        """
        from podium.manifests.experiment.rules import check
        from podium.sweeps.controller import ExperimentController
        from podium.sweeps.file_documents import FileDocuments
        from podium.sweeps.local_trial import ProcessExecutor
        from podium.sweeps.records import Records

        checked = check(experiment)
        documents = FileDocuments(self, checked.name)
        records = Records(self, checked, documents, ProcessExecutor(self, checked))
        return ExperimentController(records, experiment)

    def remove(self, kind: str, name: str) -> None:
        """Remove an object that no process runs; an Experiment with its trials and their jobs."""
        for trial in self.trials(name) if kind == "Experiment" else ():
            self.delete(trial.workload.kind, trial.name)
            self.store.remove("Trial", trial.name)
        super().remove(kind, name)

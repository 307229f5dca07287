"""A cluster inside this process: PyTorchJobs and Jobs as processes, Experiments as trial loops over them."""

from collections.abc import Mapping
from dataclasses import replace

from podium.cluster.base import R
from podium.cluster.local.cluster import LocalCluster
from podium.cluster.local.supervisor import Supervisor
from podium.manifests.experiment.experiment import Experiment


class LocalSweeps(LocalCluster):
    """Jobs and Experiments under a directory, which also holds ``{experiments,trials}/<name>/``."""

    creates = (*LocalCluster.creates, "Experiment")

    def resume(self, kind: str, name: str, changes: Mapping[str, int] | None = None) -> None:
        """Resume an Experiment in this process; a job cannot be resumed."""
        if kind != "Experiment":
            return super().resume(kind, name, changes)
        from podium.sweeps.resume import resume

        resume(self, name, changes)

    def _store(self, resource: R) -> tuple[R, Supervisor]:
        if not isinstance(resource, Experiment):
            return super()._store(resource)
        supervisor = self.supervisor(resource)  # which checks the Experiment; nothing is stored if that fails
        return replace(resource, manifest=self.store.create(resource.manifest)), supervisor

    def supervisor(self, experiment: Experiment) -> Supervisor:
        """Return what runs an Experiment.

        Raises:
            InvalidInput: It breaks a rule, or its trials cannot run here.
        """
        from podium.manifests.experiment.rules import check
        from podium.sweeps.controller import ExperimentController
        from podium.sweeps.local_records import LocalRecords

        return ExperimentController(LocalRecords(self, check(experiment)), experiment)

    def remove(self, kind: str, name: str) -> None:
        """Remove an object that no process runs; an Experiment with its trials and their jobs."""
        for trial in self.trials(name) if kind == "Experiment" else ():
            self.delete(trial.workload.kind, trial.name)
            self.store.remove("Trial", trial.name)
        super().remove(kind, name)

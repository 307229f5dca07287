"""A cluster inside this process: PyTorchJobs and Jobs as processes, Experiments as trial loops over them."""

from collections.abc import Mapping

from podium.cluster.local.cluster import LocalCluster
from podium.cluster.local.supervisor import Supervisor
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.resource import Resource
from podium.sweeps.supervisor import ExperimentSupervisor, remove_experiment


class LocalSweeps(LocalCluster):
    """Jobs and Experiments under a directory, which also holds ``{experiments,trials}/<name>/``."""

    creates = (*LocalCluster.creates, "Experiment")

    def resume(self, kind: str, name: str, changes: Mapping[str, int] | None = None) -> None:
        """Resume an Experiment in this process; a job cannot be resumed."""
        if kind != "Experiment":
            return super().resume(kind, name, changes)
        from podium.sweeps.resume import resume

        resume(self, name, changes)

    def _store(self, resource: Resource) -> tuple[Resource, Supervisor]:
        if resource.kind != "Experiment":
            return super()._store(resource)
        from podium.sweeps.controller import ExperimentController

        experiment = Experiment.parse(resource.manifest)
        # Its constructor checks the Experiment; nothing is stored if that fails.
        controller = ExperimentController(self, experiment, self.store.path("Experiment", experiment.name))
        stored = Resource.parse(self.store.create(resource.manifest))
        return stored, ExperimentSupervisor(self, controller)

    def _remove(self, kind: str, name: str) -> None:
        if kind == "Experiment":
            remove_experiment(self, name)
        else:
            super()._remove(kind, name)

    def _before_closing(self, supervisors: Mapping[tuple[str, str], Supervisor]) -> None:
        # They would take it for a failure that further trials are refused.
        for (kind, _), supervisor in supervisors.items():
            if kind == "Experiment":
                supervisor.stop()

"""An MPIJob on one machine: the launcher runs, and mpirun starts the Workers' processes beside it.

On a cluster a Worker's pod sleeps until mpirun executes something in it, through kubectl. Here it
is slots of this machine, and its variables and volumes are the launcher's, too. Source:
kubeflow/trainer release-1.9, pkg/controller.v1/mpi/mpijob_controller.go.
"""

from collections.abc import Mapping
from dataclasses import replace as changed

from podium.cluster.local.controller import Runtime
from podium.cluster.local.operator_job import OperatorJobController
from podium.cluster.local.pods import ContainerPlan, PodPlan
from podium.cluster.local.rendezvous import Member
from podium.manifests.workload import Replica, Workload

_CONFIG = "/etc/mpi"
"""Where the operator mounts the hostfile."""


class MPIJobController(OperatorJobController):
    """Supervises the launcher of one MPIJob."""

    def __init__(self, runtime: Runtime, job: Workload, plans: Mapping[str, PodPlan]) -> None:
        super().__init__(runtime, job, plans)
        self._config = self.directory / "mpi"
        launcher, worker = plans["Launcher"], plans.get("Worker")
        main = _joined(launcher.main, worker.main) if worker else launcher.main
        mounts = (*main.mounts, (_CONFIG, "mpi-job-config", self._config))
        self.plans = {"Launcher": changed(launcher, main=changed(main, mounts=mounts))}

    def reconcile_pods(self, replica: Replica) -> None:
        """Run the launcher; Workers are as active as it is."""
        if replica.role == "Launcher":
            super().reconcile_pods(replica)
        else:
            active = int(any(pod.active for pod in self.pods)) * replica.count
            self.status["replicaStatuses"][replica.role] = {"active": active} if active else {}

    def environment(self, member: Member) -> dict[str, str]:
        """Return the variables that name the hostfile to Open MPI 4 and 5, and write it."""
        file = self._config / "hostfile"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"localhost slots={member.job.processes_at_once}\n")
        names = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
        return dict.fromkeys(names, str(file))


def _joined(launcher: ContainerPlan, worker: ContainerPlan) -> ContainerPlan:
    """Return the launcher's container with what the Workers' has beside."""
    named = {variable.name for variable in launcher.env}
    mounted = {where for where, _, _ in launcher.mounts}
    return changed(
        launcher,
        env=(*(each for each in worker.env if each.name not in named), *launcher.env),
        mounts=(*launcher.mounts, *(each for each in worker.mounts if each[0] not in mounted)),
        files={**worker.files, **launcher.files},
        supplied={**worker.supplied, **launcher.supplied},
        values={**worker.values, **launcher.values},
    )

"""An MPIJob, or a TrainJob with MPI, on one machine: the launcher runs, and mpirun starts the
processes of Workers or nodes beside it.

On a cluster the pod of a Worker or node sleeps until mpirun executes something in it, through
kubectl or ssh. Here it is slots of this machine, and its variables and volumes are the launcher's,
too. Source: kubeflow/trainer release-1.9, pkg/controller.v1/mpi/mpijob_controller.go, and v2.3.0,
pkg/runtime/framework/plugins/mpi/mpi.go.
"""

from collections.abc import Mapping
from dataclasses import replace as changed
from pathlib import Path

from podium.cluster.local.controller import Runtime
from podium.cluster.local.operator_job import Member, OperatorJobController, TrainJobController
from podium.cluster.local.pods import ContainerPlan, PodPlan
from podium.manifests.trainjob import mpi_slots
from podium.manifests.workload import Replica, Workload

_CONFIG = "/etc/mpi"
"""Where the operator mounts the hostfile."""

_HOME = "/home/mpiuser"
"""Home of the user of Trainer's images for MPI, where Kubeflow's SDK writes a function."""


class MPIJobController(OperatorJobController):
    """Supervises the launcher of one MPIJob."""

    def __init__(self, runtime: Runtime, job: Workload, plans: Mapping[str, PodPlan]) -> None:
        super().__init__(runtime, job, plans)
        self._config = self.directory / "mpi"
        launcher, worker = plans["Launcher"], plans.get("Worker")
        main = _joined(launcher.main, worker.main) if worker else launcher.main
        self.plans = {"Launcher": _with_hostfile(changed(launcher, main=main), self._config)}

    def reconcile_pods(self, replica: Replica) -> None:
        """Run the launcher; Workers are as active as it is."""
        if replica.role == "Launcher":
            super().reconcile_pods(replica)
        else:
            active = int(any(pod.active for pod in self.pods)) * replica.count
            self.status["replicaStatuses"][replica.role] = {"active": active} if active else {}

    def environment(self, member: Member) -> dict[str, str]:
        """Return the variables that name the hostfile to Open MPI 4 and 5, and write it."""
        return _hostfile(self._config, member.job)


class MPITrainJobController(TrainJobController):
    """Supervises the launcher of one TrainJob whose runtime is for MPI."""

    def __init__(self, runtime: Runtime, job: Workload, plans: Mapping[str, PodPlan]) -> None:
        super().__init__(runtime, job, plans)
        self._config = self.directory / "mpi"
        home = self._config / "home"
        home.mkdir(parents=True, exist_ok=True)
        self.plans = {
            role: _mounted(_with_hostfile(plan, self._config), _HOME, home)
            for role, plan in self.plans.items()
        }

    def environment(self, member: Member) -> dict[str, str]:
        """Return the variables that Trainer sets in the launcher, and write the hostfile."""
        _, slots = mpi_slots(member.job.spec)
        return {
            **_hostfile(self._config, member.job),
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_set_default_slots": str(slots),
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
            "JOB_COMPLETION_INDEX": str(member.index),
        }


def _with_hostfile(plan: PodPlan, config: Path) -> PodPlan:
    return _mounted(plan, _CONFIG, config)


def _mounted(plan: PodPlan, where: str, directory: Path) -> PodPlan:
    mounts = (*plan.main.mounts, (where, "mpi", directory))
    return changed(plan, main=changed(plan.main, mounts=mounts))


def _hostfile(config: Path, job: Workload) -> dict[str, str]:
    file = config / "hostfile"
    config.mkdir(exist_ok=True)
    file.write_text(f"localhost slots={job.processes_at_once}\n")
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

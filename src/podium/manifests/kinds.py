"""Kinds of jobs that podium runs: a Job of Kubernetes, those of the training operator, and
Trainer's TrainJob.

Source: kubeflow/trainer release-1.9,
pkg/apis/kubeflow.org/v1/{pytorch,tensorflow,xgboost,jax,mpi}_{types,defaults}.go; kubeflow/trainer
v2.3.0, pkg/apis/trainer/v1alpha1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from podium.manifests.labels import TRAINER_API


@dataclass(frozen=True, kw_only=True)
class OperatorKind:
    """A kind of job that the training operator runs as replicas of several roles."""

    replica_specs: str
    """Field of spec that holds the replicas by role."""

    container: str
    """The container that every pod must have; empty if any name will do."""

    roles: tuple[str, ...]
    """In the order in which their pods start."""

    environment: Mapping[str, str]
    """Variables that the operator sets in every container; an empty one is left out."""

    restart_policy: str = "Never"
    """Default for replicas that do not set one."""

    required: str = ""
    """The role that must be there; empty if any will do."""

    first_pod_decides: bool = False
    """Whether the job succeeds with the first pod of the role that leads, unless successPolicy is
    AllWorkers."""

    full_names: bool = False
    """Whether the operator names the namespace in every message."""

    migration: str = ""
    """Hint for a kind that ``podium migrate`` does not convert to a TrainJob."""


MPIJOB = "MPIJob"

_RANK = {
    "PYTHONUNBUFFERED": "1",
    "MASTER_ADDR": "{master}",
    "MASTER_PORT": "{master_port}",
    "WORLD_SIZE": "{processes}",
    "RANK": "{rank}",
}

OPERATOR_KINDS = {
    "PyTorchJob": OperatorKind(
        replica_specs="pytorchReplicaSpecs",
        container="pytorch",
        roles=("Master", "Worker"),
        restart_policy="OnFailure",
        environment={
            **_RANK,
            "PET_MASTER_ADDR": "{master}",
            "PET_MASTER_PORT": "{master_port}",
            "PET_NNODES": "{pods}",
            "PET_NODE_RANK": "{rank}",
            "PET_NPROC_PER_NODE": "{processes_per_pod}",
        },
    ),
    "TFJob": OperatorKind(
        replica_specs="tfReplicaSpecs",
        container="tensorflow",
        roles=("Chief", "Master", "PS", "Worker", "Evaluator"),
        environment={"TF_CONFIG": "{tf_config}"},
        first_pod_decides=True,
        full_names=True,
        migration="Trainer has no runtime for TensorFlow",
    ),
    "XGBoostJob": OperatorKind(
        replica_specs="xgbReplicaSpecs",
        container="xgboost",
        roles=("Master", "Worker"),
        environment={**_RANK, "WORKER_PORT": "{worker_port}", "WORKER_ADDRS": "{workers}"},
        required="Master",
        migration="rewrite it for the runtime xgboost-distributed: its variables are DMLC_*",
    ),
    "JAXJob": OperatorKind(
        replica_specs="jaxReplicaSpecs",
        container="jax",
        roles=("Worker",),
        environment={
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_ADDRESS": "{address}",
            "COORDINATOR_PORT": "{port}",
            "NUM_PROCESSES": "{pods}",
            "PROCESS_ID": "{index}",
        },
        migration="rewrite it for the runtime jax-distributed: its variables are JAX_*",
    ),
    MPIJOB: OperatorKind(
        replica_specs="mpiReplicaSpecs",
        container="",
        roles=("Launcher", "Worker"),
        environment={
            "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
            "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
        },
        required="Launcher",
        migration="rewrite it for a runtime with mpi, such as deepspeed-distributed",
    ),
}

TRAINJOB = "TrainJob"

JOB_KINDS = {
    "Job": "batch/v1",
    **dict.fromkeys(OPERATOR_KINDS, "kubeflow.org/v1"),
    TRAINJOB: f"{TRAINER_API}/v1alpha1",
}

MIGRATED_KINDS = ("PyTorchJob", "Job")
"""Kinds that ``podium migrate`` makes a TrainJob of."""

LEADERS = ("Chief", "Master", "Launcher")
"""Roles of one replica that decide about the whole job; without them Workers do."""


def or_list(words: tuple[str, ...] | list[str]) -> str:
    """Return words as in "a Job, a PyTorchJob or a TFJob"."""
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)

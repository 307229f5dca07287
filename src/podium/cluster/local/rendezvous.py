"""Environment that the training operator, or Trainer, sets in the replicas of each kind of job, so
that they find each other.

Source: kubeflow/trainer release-1.9,
pkg/controller.v1/{pytorch/{envvar,master,elastic},tensorflow/tensorflow,
xgboost/xgboost,jax/envvar}.go; kubeflow/trainer v2.3.0,
pkg/runtime/framework/plugins/torch/torch.go. Two values differ from a cluster's: all replicas share
this machine, so every address is 127.0.0.1 and every port a free one.
"""

import json
import math
import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.errors import InvalidInput
from podium.manifests.trainjob import NODE
from podium.manifests.workload import ElasticPolicy, Replica, Workload

_HERE = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One replica of a job, as its environment describes it."""

    job: Workload
    """Admitted."""

    replica: Replica
    index: int
    """Number within its role."""

    ports: Mapping[tuple[str, int], int]
    """A free port for each role and index."""

    @property
    def rank(self) -> int:
        """Number among all replicas: the Master is 0."""
        return self.index + (
            self.replica.role == "Worker" and self.job.replica("Master") is not None
        )

    @property
    def port(self) -> int:
        """The port at which the first replica of the first role is reached."""
        return next(iter(self.ports.values()))


def free_ports(job: Workload) -> dict[tuple[str, int], int]:
    """Return a free port for each replica."""
    return {
        (replica.role, index): _free_port()
        for replica in job.replicas
        for index in range(replica.count)
    }


def operator_environment(member: Member) -> dict[str, str]:
    """Return the variables that the training operator or Trainer sets in every container of a
    replica."""
    job, port, operator = member.job, member.port, member.job.operator
    if operator is None:
        return _trainer(member)
    values: dict[str, object] = {
        "address": _HERE,
        "port": port,
        "index": member.index,
        "pods": job.pod_count,
    }
    master = {
        "master": _HERE,
        "master_port": port,
        "processes": job.processes_at_once,
        "rank": member.rank,
    }
    values |= master if job.replica("Master") else dict.fromkeys(master, "")
    # For LightGBM, which wants one port of all machines: on one machine only its first process gets it.
    values |= {
        "worker_port": port if job.pod_count > 1 else "",
        "workers": ",".join([_HERE] * (job.pod_count - 1)),
    }
    values |= {"processes_per_pod": job.processes}
    values |= {"tf_config": _tensorflow(member) if "TF_CONFIG" in operator.environment else ""}
    env = {name: value.format_map(values) for name, value in operator.environment.items()}
    elastic = (
        _elastic_environment(job.elastic, job.workers, port)
        if job.elastic and "PET_NNODES" in env
        else {}
    )
    return {name: value for name, value in env.items() if value} | elastic


def _elastic_environment(elastic: ElasticPolicy, workers: int, port: int) -> dict[str, str]:
    least = elastic.min_replicas or elastic.max_replicas or workers
    most = elastic.max_replicas or elastic.min_replicas or workers
    env = {
        "PET_RDZV_ENDPOINT": f"127.0.0.1:{elastic.host_port or port}",
        "PET_RDZV_BACKEND": elastic.backend,
        "PET_NNODES": f"{least}:{most}",
    }
    values = {
        "PET_MAX_RESTARTS": elastic.max_restarts,
        "PET_NPROC_PER_NODE": elastic.processes,
        "PET_RDZV_ID": elastic.id,
    }
    env |= {name: str(value) for name, value in values.items() if value is not None}
    if elastic.configuration:
        env["PET_RDZV_CONF"] = ",".join(f"{key}={value}" for key, value in elastic.configuration)
    return env | ({"PET_STANDALONE": ""} if elastic.standalone else {})


def _tensorflow(member: Member) -> str:
    job, role = member.job, member.replica.role.lower()
    task = {"type": role, "index": member.index}
    if job.pod_count == 1:
        return ""
    cluster: dict[str, Any] = {
        replica.role.lower(): [
            f"{_HERE}:{member.ports[replica.role, index]}" for index in range(replica.count)
        ]
        for replica in job.replicas
    }
    if not job.dynamic_workers:
        return json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
    own = cluster[role][member.index]
    servers = {"ps": [own], "worker": cluster.get("ps", [])}.get(role, [])
    workers = {str(member.index): own} if role == "worker" else {}
    return json.dumps({"cluster": {"worker": workers, "ps": servers}, "task": task})


def _trainer(member: Member) -> dict[str, str]:
    """Return the variables of Trainer's torch plugin, and the Job controller's index: neither RANK
    nor WORLD_SIZE."""
    env = {
        "PET_NNODES": str(member.job.nodes),
        "PET_NPROC_PER_NODE": _processes_per_node(member.job),
    }
    env |= {
        "PET_NODE_RANK": str(member.index),
        "PET_MASTER_ADDR": _HERE,
        "PET_MASTER_PORT": str(member.port),
    }
    return env | {"JOB_COMPLETION_INDEX": str(member.index)}


def _processes_per_node(job: Workload) -> str:
    """Return numProcPerNode; without it ``auto`` where a node has GPUs, else the CPUs it asks for,
    rounded up."""
    node = next(container for _, container in job.containers() if container.name == NODE)
    if job.processes_per_replica or any(
        "gpu" in name.lower() for name in (*node.requests, *node.limits)
    ):
        return job.processes
    cpu = node.requests.get("cpu") or node.limits.get("cpu")
    if not cpu:
        return "1"
    from kubernetes.utils import parse_quantity

    return str(max(1, math.ceil(parse_quantity(cpu))))


def _free_port() -> int:
    """Return a free port below the range that systems use for outgoing connections."""
    for _ in range(100):
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise InvalidInput("no free port between 20000 and 32000", "see what listens there: ss -tln")

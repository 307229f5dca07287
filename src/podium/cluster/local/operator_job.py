"""Jobs of the training operators as processes.

A PyTorchJob, TFJob, XGBoostJob or JAXJob is reconciled as the training operator does:
kubeflow/trainer release-1.9, pkg/controller.v1/common/{job,pod}.go, pkg/core, and the controller of
each kind under pkg/controller.v1; of restarts in place: the kubelet.

A TrainJob's nodes run as Trainer, JobSet and the Job controller run those of ``torch-distributed``:
a JobSet of one Indexed Job called ``node``, whose pods restart in place, six times in all, and
whose first failed Job fails the JobSet (kubeflow/trainer v2.3.0,
pkg/controller/trainjob_controller.go and manifests/base/runtimes/torch_distributed.yaml; jobset
v0.12.0, pkg/webhooks/jobset_webhook.go and pkg/controllers/{jobset_controller,failure_policy}.go;
kubernetes, pkg/controller/job/job_controller.go).
"""

import json
import math
import random
import socket
from collections.abc import Collection, Mapping
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from podium.cluster.local.batch_job import JobController
from podium.cluster.local.controller import Controller, RunningPod, Runtime, backoff
from podium.cluster.local.pods import ContainerPlan, PodPlan
from podium.errors import InvalidInput
from podium.manifests.conditions import timestamp
from podium.manifests.fields import quantity
from podium.manifests.kinds import MPIJOB, OPERATOR_KINDS, TRAINJOB
from podium.manifests.labels import (
    JOB_NAME,
    JOBSET_NAME,
    OPERATOR_NAME,
    REPLICA_TYPE,
    TRAINJOB_MANAGERS,
)
from podium.manifests.trainjob import BACKOFF_LIMIT, NODE, OTHER_RUNTIMES, mpi_slots
from podium.manifests.workload import ElasticPolicy, Replica, Workload

_HERE = "127.0.0.1"


def _free_ports(job: Workload) -> dict[tuple[str, int], int]:
    ports: dict[tuple[str, int], int] = {}
    for replica in job.replicas:
        for index in range(replica.count):
            ports[replica.role, index] = _free_port(ports.values())
    return ports


def _elastic_environment(elastic: ElasticPolicy, workers: int, port: int) -> dict[str, str]:
    least = elastic.min_replicas or elastic.max_replicas or workers
    most = elastic.max_replicas or elastic.min_replicas or workers
    env = {
        "PET_RDZV_ENDPOINT": f"{_HERE}:{elastic.host_port or port}",
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


def _processes_per_node(job: Workload) -> str:
    """Return numProcPerNode; without it ``auto`` where a node has GPUs, else the CPUs it asks for,
    rounded up."""
    node = next(container for _, container in job.containers() if container.name == NODE)
    if job.processes_per_replica or any(
        "gpu" in name.lower() for name in (*node.requests, *node.limits)
    ):
        return job.processes
    cpu = node.requests.get("cpu") or node.limits.get("cpu")
    return str(max(1, math.ceil(quantity(cpu) or 0)))


def _free_port(taken: Collection[int]) -> int:
    """Return a free port below the range that systems use for outgoing connections, and none of
    those taken."""
    for _ in range(100):
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind((_HERE, port))
            except OSError:
                continue
            if port not in taken:
                return port
    raise InvalidInput("no free port between 20000 and 32000", "see what listens there: ss -tln")


class _OperatorJobController(Controller):
    """Supervises the replicas of one job of the training operator."""

    def __init__(self, runtime: Runtime, job: Workload, plans: Mapping[str, PodPlan]) -> None:
        super().__init__(runtime, job, plans)
        self.operator = OPERATOR_KINDS[self.kind]
        self._ports = _free_ports(job)
        self._pods: dict[tuple[str, int], RunningPod] = {}
        self._recreated: dict[tuple[str, int], int] = {}

    @property
    def ttl(self) -> float | None:
        return None if self.job.suspended else super().ttl

    @staticmethod
    def check(job: Workload) -> None:
        if job.managed_by not in ("", "kubeflow.org/training-operator"):
            problem = f"spec.runPolicy.managedBy is {job.managed_by}, but this cluster stands for the training operator"
            raise InvalidInput(problem, "remove it")

    def reconcile(self, now: float) -> None:
        if self.finished is not None:
            self._clean_up()
        elif self.job.suspended:
            self._set("Suspended", f"{self.kind} {self.name} is suspended.")
        elif self._past_backoff_limit():
            self.fail(
                "Failed",
                f"Job {self.name} has failed because it has reached the specified backoff limit",
            )
        elif "startTime" in self.status and now >= self.deadline:
            text = (
                f"Job {self.name} has failed because it was active longer than specified deadline"
            )
            self.fail("Failed", text)
        else:
            for replica in self.job.replicas:
                self.reconcile_pods(replica)
            self._update_status()

    def fail(self, reason: str, message: str) -> None:
        self.status.setdefault("completionTime", timestamp())
        self._set("Failed", message, reason)

    def _set(self, kind: str, message: str, reason: str | None = None) -> None:
        self.conditions.add(kind, f"{self.kind}{reason or kind}", message)

    def _past_backoff_limit(self) -> bool:
        limit = self.job.backoff_limit
        if limit is None:
            return False
        failed = sum(pod.phase == "Failed" for pod in self._pods.values())
        reported = sum(
            counts.get("failed", 0) for counts in self.status.get("replicaStatuses", {}).values()
        )
        if limit == 0 and failed > reported:
            return True
        restarts = sum(
            pod.restarts
            for pod in self.pods
            if pod.setting.restart != "Never" and pod.phase == "Running"
        )
        return restarts > 0 and restarts >= limit

    def reconcile_pods(self, replica: Replica) -> None:
        """Start, count and replace the pods of a role."""
        counts: dict[str, Any] = {}
        kind, policy = replica.role, replica.restart_policy
        for index in range(replica.count):
            pod = self._pods.get((kind, index))
            if pod is None:
                self._create_pod(replica, index)
                continue
            if pod.phase == "Failed" and policy == "ExitCode" and (pod.exit_code or 0) >= 128:
                self._set(
                    "Restarting", f"job {self.name} is restarting because {kind} replica(s) failed."
                )
                del self._pods[kind, index]
                self.wake()
            elif pod.phase == "Failed" and policy == "ExitCode":
                message = f'job "{self.name}" is failing because "{kind}" replica(s) failed.'
                self.fail("Failed", message)
            count = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}.get(
                pod.phase
            )
            if count:
                counts[count] = counts.get(count, 0) + 1
        selector = ",".join(f"{key}={value}" for key, value in self._labels(replica).items())
        self.status.setdefault("replicaStatuses", {})[kind] = counts | {"selector": selector}

    def _labels(self, replica: Replica) -> dict[str, str]:
        operator = {JOB_NAME: self.name, OPERATOR_NAME: f"{self.kind.lower()}-controller"}
        return operator | {REPLICA_TYPE: replica.role.lower()}

    def _create_pod(self, replica: Replica, index: int) -> None:
        key = (replica.role, index)
        again = self._recreated.get(key, -1) + 1
        self._recreated[key] = again
        self._pods[key] = self.start_pod(
            replica,
            f"{replica.role.lower()}-{index}",
            labels=replica.labels_of(index) | self._labels(replica),
            environment=self.environment(replica, index),
            delay=backoff(again - 1) if again else 0.0,
        )
        self.pods = list(self._pods.values())

    def environment(self, replica: Replica, index: int) -> dict[str, str]:
        """Return the variables that the training operator sets in every container of a replica.

        Source: kubeflow/trainer release-1.9, pkg/controller.v1/{pytorch/{envvar,master,elastic},
        tensorflow/tensorflow,xgboost/xgboost,jax/envvar}.go. Two values differ from a cluster's:
        all replicas share this machine, so every address is 127.0.0.1 and every port a free one.
        """
        job, wanted = self.job, self.operator.environment
        port = next(iter(self._ports.values()))  # of the first replica of the first role
        values: dict[str, object] = {
            "address": _HERE,
            "port": port,
            "index": index,
            "pods": job.pod_count,
        }
        master = {
            "master": _HERE,
            "master_port": port,
            "processes": job.processes_at_once,
            "rank": index + (replica.role == "Worker" and job.replica("Master") is not None),
        }
        values |= {
            **(master if job.replica("Master") else dict.fromkeys(master, "")),
            # For LightGBM, which wants one port of all machines: on one machine only its first
            # process gets it.
            "worker_port": port if job.pod_count > 1 else "",
            "workers": ",".join([_HERE] * (job.pod_count - 1)),
            "processes_per_pod": job.processes,
            "tf_config": self._tensorflow(replica.role, index) if "TF_CONFIG" in wanted else "",
        }
        env = {name: value.format_map(values) for name, value in wanted.items()}
        elastic = (
            _elastic_environment(job.elastic, job.workers, port)
            if job.elastic and "PET_NNODES" in env
            else {}
        )
        return {name: value for name, value in env.items() if value} | elastic

    def _tensorflow(self, role: str, index: int) -> str:
        if self.job.pod_count == 1:
            return ""
        cluster: dict[str, Any] = {
            replica.role.lower(): [
                f"{_HERE}:{self._ports[replica.role, at]}" for at in range(replica.count)
            ]
            for replica in self.job.replicas
        }
        role = role.lower()
        task = {"type": role, "index": index}
        if not self.job.dynamic_workers:
            return json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
        own = cluster[role][index]
        servers = {"ps": [own], "worker": cluster.get("ps", [])}.get(role, [])
        workers = {str(index): own} if role == "worker" else {}
        return json.dumps({"cluster": {"worker": workers, "ps": servers}, "task": task})

    def _update_status(self) -> None:
        self.status.setdefault("startTime", timestamp())
        for replica in self.job.replicas:
            counts = self.status["replicaStatuses"][replica.role]
            active, succeeded, failed = (
                counts.get(name, 0) for name in ("active", "succeeded", "failed")
            )
            if replica.leads:
                # The operator's own words, which name the namespace in some of these messages.
                full = self.operator.full_names or replica.role == "Worker"
                subject = (
                    f"{self.kind} {self.job.namespace}/{self.name}"
                    if full
                    else f"{self.kind} {self.name}"
                )
                if active:
                    self._set("Running", f"{subject} is running.")
                if self._has_succeeded(replica, succeeded):
                    self._set(
                        "Succeeded", f"{subject} {'' if full else 'is '}successfully completed."
                    )
                    self.status.setdefault("completionTime", timestamp())
                    return
            if failed and replica.count > succeeded + active:
                self._note_failed(replica, failed)

    def _has_succeeded(self, replica: Replica, succeeded: int) -> bool:
        if succeeded == replica.count or (succeeded and self.job.elastic):
            return True
        first = self._pods.get((replica.role, 0))
        decides = self.operator.first_pod_decides and self.job.success_policy != "AllWorkers"
        return decides and first is not None and first.phase == "Succeeded"

    def _note_failed(self, replica: Replica, failed: int) -> None:
        kind = replica.role
        if replica.restart_policy != "Never":
            text = (
                f"{self.kind} {self.name} is restarting because {failed} {kind} replica(s) failed."
            )
            self._set("Restarting", text)
        else:
            text = f"{self.kind} {self.name} is failed because {failed} {kind} replica(s) failed."
            self.fail("Failed", text)

    def _clean_up(self) -> None:
        if self.job.clean_pod_policy != "None":
            for pod in self._pods.values():
                pod.stop()
        if self.state.succeeded:
            for counts in self.status.get("replicaStatuses", {}).values():
                if active := counts.pop("active", 0):
                    counts["succeeded"] = counts.get("succeeded", 0) + active


class _TrainJobController(Controller):
    """Supervises the nodes of one TrainJob."""

    def __init__(self, runtime: Runtime, job: Workload, plans: Mapping[str, PodPlan]) -> None:
        super().__init__(runtime, job, plans)
        (self.nodes,) = job.replicas
        self._ports = _free_ports(job)

    @staticmethod
    def check(job: Workload) -> None:
        if job.managed_by not in ("", TRAINJOB_MANAGERS[0]):
            raise InvalidInput(
                f"spec.managedBy is {job.managed_by}, but this cluster stands for Trainer",
                "remove it",
            )
        if job.runtime in OTHER_RUNTIMES:
            hint = "run it on a cluster, or use torch-distributed, which sets PET_NNODES, PET_NODE_RANK and so on"
            raise InvalidInput(f"spec.runtimeRef: this machine has no runtime {job.runtime}", hint)
        if job.has_initializer:
            hint = "let the program load its data, or run the TrainJob on a cluster"
            raise InvalidInput("spec.initializer: this machine cannot honor it", hint)

    def reconcile(self, now: float) -> None:
        if self.finished is not None:
            return
        if self.mailbox.status:
            self.status["trainerStatus"] = self.mailbox.status
        if self.job.suspended:
            self._count(suspended=1)
            self.conditions.add("Suspended", "Suspended", "TrainJob is suspended")
            return
        for index in range(self.nodes.count if not self.pods else 0):
            self._create_pod(index)
        if self._past_backoff_limit():
            first = f"{self.name}-{self.nodes.replicated_job}-0"
            self.fail(
                "FailedJobs",
                f"jobset failed due to one or more job failures (first failed job: {first})",
            )
        elif now >= self.deadline:
            self.fail("DeadlineExceeded", "TrainJob exceeded its active deadline")
        elif all(pod.phase == "Succeeded" for pod in self.pods):
            self._count(succeeded=1)
            self.conditions.add("Complete", "AllJobsCompleted", "jobset completed successfully")
        else:
            self._count(
                active=1, ready=int(all(pod.phase in ("Running", "Succeeded") for pod in self.pods))
            )

    def fail(self, reason: str, message: str) -> None:
        for pod in self.pods:
            pod.stop()
        self._count(failed=1)
        self.conditions.add("Failed", reason, message)

    def _past_backoff_limit(self) -> bool:
        cannot_start = any(pod.phase == "Failed" for pod in self.pods)
        return cannot_start or sum(pod.restarts for pod in self.pods if pod.active) >= BACKOFF_LIMIT

    def _count(self, **counts: int) -> None:
        # There is one Job of the JobSet.
        zero = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        self.status["jobsStatus"] = [{"name": self.nodes.replicated_job, **zero, **counts}]

    def _create_pod(self, index: int) -> None:
        labels = self.nodes.labels_of(index) | {JOBSET_NAME: self.name}
        name = f"{self.nodes.replicated_job}-{index}"
        self.pods.append(
            self.start_pod(self.nodes, name, labels=labels, environment=self.environment(index))
        )

    def environment(self, index: int) -> dict[str, str]:
        """Return the variables of Trainer's torch plugin, and the Job controller's index: neither
        RANK nor WORLD_SIZE.

        Source: kubeflow/trainer v2.3.0, pkg/runtime/framework/plugins/torch/torch.go.
        """
        return {
            "PET_NNODES": str(self.job.nodes),
            "PET_NPROC_PER_NODE": _processes_per_node(self.job),
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": _HERE,
            "PET_MASTER_PORT": str(next(iter(self._ports.values()))),
            "JOB_COMPLETION_INDEX": str(index),
        }


_CONFIG = "/etc/mpi"
"""Where the operator mounts the hostfile."""

_HOME = "/home/mpiuser"
"""Home of the user of Trainer's images for MPI, where Kubeflow's SDK writes a function."""


class _MPIJobController(_OperatorJobController):
    """Supervises the launcher of one MPIJob."""

    def __init__(self, runtime: Runtime, job: Workload, plans: Mapping[str, PodPlan]) -> None:
        super().__init__(runtime, job, plans)
        self._config = self.directory / "mpi"
        launcher, worker = plans["Launcher"], plans.get("Worker")
        main = _joined(launcher.main, worker.main) if worker else launcher.main
        self.plans = {"Launcher": _mounted(changed(launcher, main=main), _CONFIG, self._config)}

    def reconcile_pods(self, replica: Replica) -> None:
        """Run the launcher; Workers are as active as it is."""
        if replica.role == "Launcher":
            super().reconcile_pods(replica)
        else:
            active = int(any(pod.active for pod in self.pods)) * replica.count
            self.status["replicaStatuses"][replica.role] = {"active": active} if active else {}

    def environment(self, replica: Replica, index: int) -> dict[str, str]:
        """Return the variables that name the hostfile to Open MPI 4 and 5, and write it."""
        return _hostfile(self._config, self.job)


class _MPITrainJobController(_TrainJobController):
    """Supervises the launcher of one TrainJob whose runtime is for MPI."""

    def __init__(self, runtime: Runtime, job: Workload, plans: Mapping[str, PodPlan]) -> None:
        super().__init__(runtime, job, plans)
        self._config = self.directory / "mpi"
        home = self._config / "home"
        home.mkdir(parents=True, exist_ok=True)
        self.plans = {
            role: _mounted(_mounted(plan, _CONFIG, self._config), _HOME, home)
            for role, plan in self.plans.items()
        }

    def environment(self, index: int) -> dict[str, str]:
        """Return the variables that Trainer sets in the launcher, and write the hostfile."""
        _, slots = mpi_slots(self.job.spec)
        return {
            **_hostfile(self._config, self.job),
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_set_default_slots": str(slots),
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
            "JOB_COMPLETION_INDEX": str(index),
        }


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


def controller_of(job: Workload) -> type[Controller]:
    """Return the class that runs jobs of a kind here."""
    if job.kind == TRAINJOB:
        return _MPITrainJobController if job.uses_mpi else _TrainJobController
    if job.kind == MPIJOB:
        return _MPIJobController
    return _OperatorJobController if job.operator else JobController

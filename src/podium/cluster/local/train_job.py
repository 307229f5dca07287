"""A TrainJob's nodes as processes, as Trainer, JobSet and the Job controller run those of
``torch-distributed``.

That runtime makes a JobSet of one Indexed Job called ``node``: its pods restart in place, six times
in all, and the first Job that fails fails the JobSet. Source: kubeflow/trainer v2.3.0,
pkg/controller/trainjob_controller.go and manifests/base/runtimes/torch_distributed.yaml; jobset
v0.12.0, pkg/webhooks/jobset_webhook.go and pkg/controllers/{jobset_controller,failure_policy}.go;
kubernetes, pkg/controller/job/job_controller.go.
"""

from collections.abc import Mapping

from podium.cluster.local.controller import Controller, Runtime
from podium.cluster.local.pods import PodPlan
from podium.cluster.local.rendezvous import Member, free_ports, operator_environment
from podium.errors import InvalidInput
from podium.manifests.labels import JOBSET_NAME, TRAINJOB_MANAGERS
from podium.manifests.trainjob import BACKOFF_LIMIT, NODE, OTHER_RUNTIMES, ROLE
from podium.manifests.workload import Workload


class TrainJobController(Controller):
    """Supervises the nodes of one TrainJob."""

    def __init__(self, runtime: Runtime, job: Workload, plans: Mapping[str, PodPlan]) -> None:
        super().__init__(runtime, job, plans)
        (self.nodes,) = job.replicas
        self._ports = free_ports(job)

    @staticmethod
    def check(job: Workload) -> None:
        """Refuse a job that this machine cannot run as written.

        Raises:
            InvalidInput: Another controller is to run the job, its runtime is not for PyTorch, or
                it has initializers.
        """
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
        """Do the work of three controllers in one."""
        if self.finished is not None:
            return
        if self.job.suspended:
            self._count(suspended=1)
            self.conditions.add("Suspended", "Suspended", "TrainJob is suspended")
            return
        for index in range(self.nodes.count if not self.pods else 0):
            self._create_pod(index)
        if self._past_backoff_limit():
            first = f"{self.name}-{NODE}-0"
            self.fail(
                "FailedJobs",
                f"jobset failed due to one or more job failures (first failed job: {first})",
            )
        elif self.past_deadline:
            self.fail("DeadlineExceeded", "TrainJob exceeded its active deadline")
        elif all(pod.phase == "Succeeded" for pod in self.pods):
            self._count(succeeded=1)
            self.conditions.add("Complete", "AllJobsCompleted", "jobset completed successfully")
        else:
            self._count(
                active=1, ready=int(all(pod.phase in ("Running", "Succeeded") for pod in self.pods))
            )

    def fail(self, reason: str, message: str) -> None:
        """End all nodes and write the failure."""
        for pod in self.pods:
            pod.stop()
        self._count(failed=1)
        self.conditions.add("Failed", reason, message)

    def _past_backoff_limit(self) -> bool:
        cannot_start = any(pod.phase == "Failed" for pod in self.pods)
        return cannot_start or sum(pod.restarts for pod in self.pods if pod.active) >= BACKOFF_LIMIT

    def _count(self, **counts: int) -> None:
        """Write the number of Jobs of the JobSet in each state; there is one Job."""
        zero = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        self.status["jobsStatus"] = [{"name": NODE, **zero, **counts}]

    def _create_pod(self, index: int) -> None:
        member = Member(job=self.job, replica=self.nodes, index=index, ports=self._ports)
        labels = self.nodes.labels_of(index) | {JOBSET_NAME: self.name}
        name = f"{ROLE.lower()}-{index}"
        self.pods.append(
            self.start_pod(
                self.nodes, name, labels=labels, environment=operator_environment(member)
            )
        )

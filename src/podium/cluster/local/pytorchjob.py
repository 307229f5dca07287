"""A PyTorchJob as processes, reconciled as the training operator does.

Source of the rules: kubeflow/trainer release-1.9, pkg/controller.v1/common/{job,pod}.go, pkg/core, and
pkg/controller.v1/pytorch/pytorchjob_controller.go; of restarts in place: the kubelet.
"""

import time
from typing import Any

from podium.cluster.base import Manifest
from podium.cluster.local.controller import Controller, Runtime, past
from podium.cluster.local.environment import (
    PodIdentity,
    free_port,
    operator_environment,
    processes_per_replica,
    threads_per_process,
)
from podium.cluster.local.metadata import timestamp
from podium.cluster.local.pods import PodPlan, plan_pod
from podium.cluster.local.replica import Replica, Setting, backoff
from podium.errors import require
from podium.manifests.conditions import set_condition
from podium.manifests.labels import JOB_NAME, JOB_ROLE, OPERATOR_NAME, REPLICA_INDEX, REPLICA_TYPE


class PyTorchJobController(Controller):
    """Supervises the replicas of one PyTorchJob."""

    def __init__(self, runtime: Runtime, job: Manifest) -> None:
        super().__init__(runtime, job)
        spec = job["spec"]
        self.specs: dict[str, Manifest] = spec["pytorchReplicaSpecs"]
        self.policy: Manifest = spec["runPolicy"]
        self.plans = plan_pytorchjob(job, runtime)
        self.threads = threads_of(job)
        self.port = free_port()
        self._pods: dict[tuple[str, int], Replica] = {}
        self._recreated: dict[tuple[str, int], int] = {}

    @property
    def ttl(self) -> float | None:
        """Seconds from the end after which the job is removed."""
        return None if self.policy.get("suspend") else self.policy.get("ttlSecondsAfterFinished")

    @property
    def next_look(self) -> float | None:
        """The deadline."""
        seconds = self.policy.get("activeDeadlineSeconds")
        return None if seconds is None else self.started + seconds

    def reconcile(self, now: float) -> None:
        """Go once through the operator's loop."""
        if self.finished is not None:
            self._clean_up()
        elif self.policy.get("suspend"):
            if not any(one["type"] == "Suspended" for one in self.status.get("conditions", [])):
                self._set("Suspended", f"PyTorchJob {self.name} is suspended.")
        elif self._past_backoff_limit():
            self.fail("Failed", f"Job {self.name} has failed because it has reached the specified backoff limit")
        elif "startTime" in self.status and past(self.started, self.policy.get("activeDeadlineSeconds")):
            text = f"Job {self.name} has failed because it was active longer than specified deadline"
            self.fail("Failed", text)
        else:
            for kind in self.specs:
                self._reconcile_pods(kind)
            self._update_status()

    def fail(self, reason: str, message: str) -> None:
        """Write the end of a job that failed."""
        self.status.setdefault("completionTime", timestamp())
        self._set("Failed", message, reason)

    def _set(self, kind: str, message: str, reason: str | None = None) -> None:
        set_condition(self.status, kind, True, f"PyTorchJob{reason or kind}", message, timestamp())

    def _past_backoff_limit(self) -> bool:
        limit = self.policy.get("backoffLimit")
        if limit is None:
            return False
        failed = sum(pod.phase == "Failed" for pod in self._pods.values())
        known = sum(one.get("failed", 0) for one in self.status.get("replicaStatuses", {}).values())
        if limit == 0 and failed > known:
            return True
        restarting = [pod for (kind, _), pod in self._pods.items() if self.specs[kind]["restartPolicy"] != "Never"]
        restarts = sum(pod.restarts for pod in restarting if pod.phase == "Running")
        return restarts > 0 and restarts >= limit

    def _reconcile_pods(self, kind: str) -> None:
        counts: dict[str, Any] = {}
        policy = self.specs[kind]["restartPolicy"]
        for index in range(self.specs[kind]["replicas"]):
            pod = self._pods.get((kind, index))
            if pod is None:
                self._create_pod(kind, index)
                continue
            if pod.phase == "Failed" and policy == "ExitCode" and (pod.exit_code or 0) >= 128:
                self._set("Restarting", f"job {self.name} is restarting because {kind} replica(s) failed.")
                del self._pods[kind, index]
                self.wake()
            elif pod.phase == "Failed" and policy == "ExitCode":
                message = f'job "{self.name}" is failing because "{kind}" replica(s) failed.'
                self.fail("Failed", message)
            count = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}.get(pod.phase)
            if count:
                counts[count] = counts.get(count, 0) + 1
        labels = {
            JOB_NAME: self.name,
            OPERATOR_NAME: "pytorchjob-controller",
            REPLICA_TYPE: kind.lower(),
        }
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        self.status.setdefault("replicaStatuses", {})[kind] = counts | {"selector": selector}

    def _create_pod(self, kind: str, index: int) -> None:
        template = self.specs[kind]["template"].get("metadata") or {}
        policy = self.specs[kind]["restartPolicy"]
        replica, again = f"{kind.lower()}-{index}", self._recreated.get((kind, index), -1) + 1
        self._recreated[kind, index] = again
        labels = {
            JOB_NAME: self.name,
            OPERATOR_NAME: "pytorchjob-controller",
            REPLICA_TYPE: kind.lower(),
            REPLICA_INDEX: str(index),
        }
        if kind == "Master" or ("Master" not in self.specs and index == 0):
            labels[JOB_ROLE] = "master"
        metadata = self.job["metadata"]
        setting = Setting(
            replica=replica,
            identity=PodIdentity(
                name=f"{self.name}-{replica}",
                namespace=metadata["namespace"],
                uid=f"{metadata['uid']}-{replica}",
                labels=(template.get("labels") or {}) | labels,
                annotations=template.get("annotations") or {},
            ),
            place=self.place,
            forced=operator_environment(self.job, kind, index, self.port),
            threads=self.threads,
            restart="Never" if policy == "ExitCode" else policy,
        )
        delay = backoff(again - 1) if again else 0.0
        pod = Replica(self.plans[kind], setting, self.runtime.launchers, self.wake, delay)
        self._pods[kind, index] = pod
        self.replicas = list(self._pods.values())
        # The first pods start one after the other in this thread: together they would only wait for each other.
        pod.advance(time.monotonic())
        self.wake()

    def _update_status(self) -> None:
        self.status.setdefault("startTime", timestamp())
        for kind, spec in self.specs.items():
            counts, total = self.status["replicaStatuses"][kind], spec["replicas"]
            active, succeeded, failed = (counts.get(one, 0) for one in ("active", "succeeded", "failed"))
            if kind == "Master":
                if active:
                    self._set("Running", f"PyTorchJob {self.name} is running.")
                if succeeded == total:
                    self._succeed(f"PyTorchJob {self.name} is successfully completed.")
                    return
            elif "Master" not in self.specs:
                name = f"{self.job['metadata']['namespace']}/{self.name}"
                if succeeded == total or (succeeded and self.job["spec"].get("elasticPolicy") is not None):
                    self._succeed(f"PyTorchJob {name} successfully completed.")
                elif active:
                    self._set("Running", f"PyTorchJob {name} is running.")
            if failed and total > succeeded + active:
                self._note_failed(kind, failed)

    def _note_failed(self, kind: str, failed: int) -> None:
        if self.specs[kind]["restartPolicy"] != "Never":
            text = f"PyTorchJob {self.name} is restarting because {failed} {kind} replica(s) failed."
            self._set("Restarting", text)
        else:
            text = f"PyTorchJob {self.name} is failed because {failed} {kind} replica(s) failed."
            self.fail("Failed", text)

    def _succeed(self, message: str) -> None:
        self.status.setdefault("completionTime", timestamp())
        self._set("Succeeded", message)

    def _clean_up(self) -> None:
        if self.policy["cleanPodPolicy"] != "None":
            for pod in self._pods.values():
                pod.stop()
        if self.status["conditions"][-1]["type"] == "Succeeded":
            for counts in self.status.get("replicaStatuses", {}).values():
                if active := counts.pop("active", 0):
                    counts["succeeded"] = counts.get("succeeded", 0) + active


def plan_pytorchjob(job: Manifest, runtime: Runtime) -> dict[str, PodPlan]:
    """Return how each kind of replica runs here.

    Raises:
        InvalidInput: A field cannot be honoured on this machine.
    """
    manager = job["spec"]["runPolicy"].get("managedBy")
    law = "spec.runPolicy.managedBy is the training operator, which this cluster stands for"
    require(manager in (None, "kubeflow.org/training-operator"), law, managedBy=manager)
    path = "spec.pytorchReplicaSpecs.{}.template"
    return {
        kind: plan_pod(spec["template"], path.format(kind), runtime.images)
        for kind, spec in job["spec"]["pytorchReplicaSpecs"].items()
    }


def threads_of(job: Manifest) -> int:
    """Return the threads of each process: the job's cores shared by all its processes."""
    replicas = sum(one["replicas"] for one in job["spec"]["pytorchReplicaSpecs"].values())
    return threads_per_process(job, replicas * processes_per_replica(job))

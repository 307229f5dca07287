"""A batch/v1 Job as processes, reconciled as Kubernetes does (pkg/controller/job/job_controller.go)."""

import time
from typing import Any

from podium.cluster.base import Manifest
from podium.cluster.local.controller import Controller, Runtime, past
from podium.cluster.local.environment import PodIdentity, threads_per_process
from podium.cluster.local.metadata import timestamp
from podium.cluster.local.pods import PodPlan, plan_pod
from podium.cluster.local.replica import Replica, Setting, backoff
from podium.errors import InvalidInput

_KNOWN = {
    "parallelism",
    "completions",
    "completionMode",
    "backoffLimit",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "suspend",
    "template",
}
_INDEX = "batch.kubernetes.io/job-completion-index"


class JobController(Controller):
    """Supervises the pods of one Job."""

    def __init__(self, runtime: Runtime, job: Manifest) -> None:
        super().__init__(runtime, job)
        self.spec = job["spec"]
        self.plan = plan_job(job, runtime)
        self.threads = threads_of(job)
        self._indexes: list[int] = []
        self._not_before = 0.0
        self._failures = 0

    @property
    def ttl(self) -> float | None:
        """Seconds from the end after which the job is removed."""
        seconds: float | None = self.spec.get("ttlSecondsAfterFinished")
        return seconds

    @property
    def next_look(self) -> float | None:
        """The deadline, or the time of the next pod."""
        seconds = self.spec.get("activeDeadlineSeconds")
        due = [self.started + seconds] if seconds is not None else []
        return min(due + ([self._not_before] if self._not_before > time.monotonic() else []), default=None)

    def reconcile(self, now: float) -> None:
        """Go once through the Job controller's loop."""
        if self.finished is not None:
            return
        if self.spec.get("suspend"):
            if not self.status.get("conditions"):
                self._add("Suspended", "JobSuspended", "Job suspended")
            return
        self.status.setdefault("startTime", timestamp())
        self._count(now)
        restarts = sum(pod.restarts for pod in self.replicas if pod.active)
        limit, failed = self.spec["backoffLimit"], self.status.get("failed", 0)
        if failed > limit or (restarts > 0 and restarts >= limit):
            self.fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif past(self.started, self.spec.get("activeDeadlineSeconds")):
            self.fail("DeadlineExceeded", "Job was active longer than specified deadline")
        elif self._is_complete():
            self._complete()
        else:
            self._create_pods(now)

    def fail(self, reason: str, message: str) -> None:
        """End all pods and write the failure."""
        active = [pod for pod in self.replicas if pod.active]
        for pod in active:
            pod.stop()
        self.status.pop("active", None)
        if failed := self.status.get("failed", 0) + len(active):
            self.status["failed"] = failed
        self._add("FailureTarget", reason, message)
        self._add("Failed", reason, message)

    def _count(self, now: float) -> None:
        counts = {"active": 0, "succeeded": 0, "failed": 0}
        for pod in self.replicas:
            counts["active" if pod.active else pod.phase.lower()] += 1
        if counts["failed"] > self._failures:
            # A new pod waits after a failure; a cluster waits 10 s and more.
            self._failures = counts["failed"]
            self._not_before = now + backoff(self._failures)
        for name, count in counts.items():
            if count:
                self.status[name] = count
            else:
                self.status.pop(name, None)
        self.status["ready"] = counts["active"]

    def _is_complete(self) -> bool:
        succeeded, completions = self.status.get("succeeded", 0), self.spec.get("completions")
        if completions is None:
            # A work queue: done when one has succeeded and all have ended.
            return bool(succeeded) and not self.status.get("active")
        return bool(succeeded >= completions)

    def _complete(self) -> None:
        for pod in self.replicas:
            pod.stop()
        self.status.pop("active", None)
        self.status |= {"ready": 0, "completionTime": timestamp()}
        for kind in ("SuccessCriteriaMet", "Complete"):
            self._add(kind, "CompletionsReached", "Reached expected number of succeeded pods")

    def _create_pods(self, now: float) -> None:
        active, succeeded = self.status.get("active", 0), self.status.get("succeeded", 0)
        completions = self.spec.get("completions")
        if completions is None:
            wanted = self.spec["parallelism"] if not succeeded else 0
        else:
            wanted = min(self.spec["parallelism"], completions - succeeded)
        if now < self._not_before:
            return
        for _ in range(wanted - active):
            self._create_pod()

    def _create_pod(self) -> None:
        taken = {
            index
            for pod, index in zip(self.replicas, self._indexes, strict=True)
            if pod.active or pod.phase == "Succeeded"
        }
        index = next(number for number in range(len(taken) + 1) if number not in taken)
        template, metadata = self.spec["template"].get("metadata") or {}, self.job["metadata"]
        replica = f"pod-{len(self.replicas)}"
        names = {"batch.kubernetes.io/job-name": self.name, "job-name": self.name}
        numbers = {_INDEX: str(index)} if self.spec["completionMode"] == "Indexed" else {}
        setting = Setting(
            replica=replica,
            identity=PodIdentity(
                name=f"{self.name}-{replica}",
                namespace=metadata["namespace"],
                uid=f"{metadata['uid']}-{replica}",
                labels=(template.get("labels") or {}) | names | numbers,
                annotations=(template.get("annotations") or {}) | numbers,
            ),
            place=self.place,
            forced={"JOB_COMPLETION_INDEX": str(index)} if numbers else {},
            threads=self.threads,
            restart=self.spec["template"]["spec"]["restartPolicy"],
        )
        pod = Replica(self.plan, setting, self.runtime.launchers, self.wake)
        self.replicas.append(pod)
        self._indexes.append(index)
        pod.advance(time.monotonic())
        self.wake()

    def _add(self, kind: str, reason: str, message: str) -> None:
        now = timestamp()
        condition: dict[str, Any] = {"type": kind, "status": "True", "reason": reason, "message": message}
        self.status.setdefault("conditions", []).append(condition | {"lastProbeTime": now, "lastTransitionTime": now})


def plan_job(job: Manifest, runtime: Runtime) -> PodPlan:
    """Return how the pods of a Job run here.

    Raises:
        InvalidInput: A field cannot be honoured on this machine.
    """
    given = {name for name, value in job["spec"].items() if value is not None}
    for name in sorted(given - _KNOWN):
        raise InvalidInput(f"spec.{name}: this machine cannot honour it", "remove it, or run the Job on a cluster")
    return plan_pod(job["spec"]["template"], "spec.template", runtime.images)


def threads_of(job: Manifest) -> int:
    """Return the threads of each pod: the job's cores shared by the pods that run at once."""
    spec = job["spec"]
    pods = min(spec["parallelism"], spec["completions"] if spec.get("completions") else spec["parallelism"])
    return threads_per_process(job, max(1, pods))

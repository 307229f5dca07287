"""A batch/v1 Job as processes, reconciled as Kubernetes does
(pkg/controller/job/job_controller.go)."""

import time
from collections.abc import Mapping

from podium.cluster.local.controller import Controller, Runtime, backoff
from podium.cluster.local.pods import PodPlan
from podium.errors import InvalidInput
from podium.manifests.conditions import timestamp
from podium.manifests.fields import mapping, objects
from podium.manifests.labels import COMPLETION_INDEX
from podium.manifests.workload import Workload

_KNOWN = {
    "parallelism",
    "completions",
    "completionMode",
    "backoffLimit",
    "activeDeadlineSeconds",
    "podFailurePolicy",
    "ttlSecondsAfterFinished",
    "suspend",
    "template",
}


class JobController(Controller):
    """Supervises the pods of one Job."""

    def __init__(self, runtime: Runtime, job: Workload, plans: Mapping[str, PodPlan]) -> None:
        super().__init__(runtime, job, plans)
        (self.replica,) = job.replicas
        self._indexes: list[int] = []
        self._not_before = 0.0
        self._failures = 0

    @property
    def next_look(self) -> float:
        pod = self._not_before
        return min(pod, self.deadline) if pod > time.monotonic() else self.deadline

    @staticmethod
    def check(job: Workload) -> None:
        fields = {name for name, value in job.spec.items() if value is not None}
        for name in sorted(fields - _KNOWN):
            raise InvalidInput(
                f"spec.{name}: this machine cannot honor it",
                "remove it, or run the Job on a cluster",
            )
        for number, rule in enumerate(
            objects(mapping(job.spec.get("podFailurePolicy")).get("rules"))
        ):
            if (
                "onPodConditions" not in rule
            ):  # nothing evicts a process, so a rule about that changes nothing here
                where = f"spec.podFailurePolicy.rules[{number}]"
                raise InvalidInput(
                    f"{where}: this machine cannot honor it",
                    "remove it, or run the Job on a cluster",
                )

    def reconcile(self, now: float) -> None:
        if self.finished is not None:
            return
        if self.job.suspended:
            if self.state.phase != "Suspended":
                self.conditions.add("Suspended", "JobSuspended", "Job suspended")
            return
        self.status.setdefault("startTime", timestamp())
        self._count(now)
        restarts = sum(pod.restarts for pod in self.pods if pod.active)
        limit, failed = self.job.backoff_limit or 0, self.status.get("failed", 0)
        if failed > limit or (restarts > 0 and restarts >= limit):
            self.fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif now >= self.deadline:
            self.fail("DeadlineExceeded", "Job was active longer than specified deadline")
        elif self._is_complete():
            self._complete()
        else:
            self._create_pods(now)
            self._count(now)

    def fail(self, reason: str, message: str) -> None:
        active = [pod for pod in self.pods if pod.active]
        for pod in active:
            pod.stop()
        self.status.pop("active", None)
        if failed := self.status.get("failed", 0) + len(active):
            self.status["failed"] = failed
        self.conditions.add("FailureTarget", reason, message)
        self.conditions.add("Failed", reason, message)

    def _count(self, now: float) -> None:
        counts = {"active": 0, "succeeded": 0, "failed": 0}
        for pod in self.pods:
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
        succeeded, completions = self.status.get("succeeded", 0), self.job.completions
        if completions is None:
            # A work queue: done when one has succeeded and all have ended.
            return bool(succeeded) and not self.status.get("active")
        return bool(succeeded >= completions)

    def _complete(self) -> None:
        for pod in self.pods:
            pod.stop()
        self.status.pop("active", None)
        self.status |= {"ready": 0, "completionTime": timestamp()}
        for kind in ("SuccessCriteriaMet", "Complete"):
            self.conditions.add(
                kind, "CompletionsReached", "Reached expected number of succeeded pods"
            )

    def _create_pods(self, now: float) -> None:
        active, succeeded = self.status.get("active", 0), self.status.get("succeeded", 0)
        completions, parallelism = self.job.completions, self.job.parallelism
        if completions is None:
            wanted = parallelism if not succeeded else 0
        else:
            wanted = min(parallelism, completions - succeeded)
        if now < self._not_before:
            return
        for _ in range(wanted - active):
            self._create_pod()

    def _create_pod(self) -> None:
        taken = {
            index
            for pod, index in zip(self.pods, self._indexes, strict=True)
            if pod.active or pod.phase == "Succeeded"
        }
        index = next(number for number in range(len(taken) + 1) if number not in taken)
        template = self.replica.pod
        labels = template.labels | {
            "batch.kubernetes.io/job-name": self.name,
            "job-name": self.name,
        }
        numbers = {COMPLETION_INDEX: str(index)} if self.job.is_indexed else {}
        pod = self.start_pod(
            self.replica,
            f"pod-{len(self.pods)}",
            labels=labels | numbers,
            annotations=template.annotations | numbers,
            environment={"JOB_COMPLETION_INDEX": str(index)} if numbers else {},
        )
        self.pods.append(pod)
        self._indexes.append(index)

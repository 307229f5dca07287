"""Kueue's record of a job: its position in the queue, and why it waits.

Source: kubernetes-sigs/kueue v0.15.0, apis/kueue/v1beta2/workload_types.go,
pkg/controller/jobframework/reconciler.go.
"""

from typing import Any

from podium.manifests.experiment.experiment import TRIAL_LISTS, Experiment
from podium.manifests.fields import Attribute, objects, text
from podium.manifests.kinds import TRAINJOB
from podium.manifests.labels import JOB_UID
from podium.manifests.resource import Condition, Resource
from podium.manifests.workload import Workload

WAITING = "Waiting"
"""Type of the condition with which podium shows that a job, or a trial's job, waits for its
queue."""

STOPPED = "Deactivated"
"""Reason of a Suspended condition: removed from its queue, by a user or by Kueue, until it is
resumed."""


class QueueEntry(Resource):
    """Kueue's Workload of a job; podium's Workload is the job itself."""

    queue = Attribute("spec.queueName", text)

    @property
    def job_uid(self) -> str:
        return self.labels.get(JOB_UID, "")

    @property
    def active(self) -> bool:
        """Whether it may be admitted; False once it was stopped, or evicted too often."""
        return self.spec.get("active") is not False

    @property
    def why(self) -> Condition:
        """Return the reason why the job waits, as a condition that is True."""
        conditions = {condition.type: condition for condition in self.conditions}
        evicted = conditions.get("Evicted")
        if not self.active:
            return _condition(
                "Suspended", STOPPED, evicted.message if evicted else "stopped; resume it", evicted
            )
        reserved, admitted = conditions.get("QuotaReserved"), conditions.get("Admitted")
        if reserved is None:
            return _condition(WAITING, "Pending", "not looked at yet", None)
        if not reserved.status:
            return _condition(WAITING, reserved.reason, reserved.message, reserved)
        if evicted and evicted.status:
            return _condition(WAITING, evicted.reason, evicted.message, evicted)
        if admitted and admitted.status:
            return _condition(WAITING, admitted.reason, "admitted, about to start", admitted)
        return _condition(WAITING, "AdmissionChecks", self._checks(admitted), reserved)

    def _checks(self, admitted: Condition | None) -> str:
        checks = [
            check
            for check in objects(self.status.get("admissionChecks"))
            if check.get("state") != "Ready"
        ]
        said = [
            f"{text(check.get('name'))}: {text(check.get('message')) or text(check.get('state'))}"
            for check in checks
        ]
        own = admitted.message if admitted else ""
        return "; ".join(said) or own or "quota is reserved; its admission checks are not ready"


def _condition(kind: str, reason: str, message: str, source: Condition | None) -> Condition:
    changed = source.changed if source else ""
    return Condition(type=kind, status=True, reason=reason, message=message, changed=changed)


def is_held(job: Workload) -> bool:
    return bool(job.queue) and job.suspended and not job.state.finished


def lost_patches(resource: Resource) -> bool:
    """Return whether a TrainJob that a queue has admitted has no runtimePatches: podium's always
    have some."""
    job = resource
    if not isinstance(job, Workload) or job.kind != TRAINJOB:
        return False
    return bool(job.queue) and not job.suspended and not job.spec.get("runtimePatches")


def unexplained(job: Workload, hint: str) -> Condition:
    """Return the reason why a job waits where Kueue's record of it cannot be read: the job's own
    condition."""
    own = job.condition("Suspended")
    message = f"{own.message} ({hint})" if own and own.message else hint
    return _condition(WAITING, own.reason if own else "", message, own)


def with_reason(resource: Resource, queue: str, why: Condition) -> Resource:
    """Return a job or trial with a condition that says why it waits.

    Args:
        resource: The job or trial.
        queue: Name of the local queue.
        why: The condition, without the queue's name.
    """
    shown: dict[str, Any] = {"type": why.type, "status": "True", "reason": why.reason}
    shown |= {"message": f"Queue {queue}: {why.message}", "lastTransitionTime": why.changed}
    kept = [
        old for old in objects(resource.status.get("conditions")) if old.get("type") != why.type
    ]
    return resource.with_status({**resource.status, "conditions": [*kept, shown]})


def with_waiting_trials(experiment: Experiment, waiting: set[str]) -> Experiment:
    """Return an Experiment that lists trials as waiting which Katib calls running or pending."""
    status, moved = dict(experiment.status), []
    for phase in ("Running", "Created"):
        names, count = TRIAL_LISTS[phase]
        listed = experiment.trials.get(phase, ())
        left = [name for name in listed if name not in waiting]
        moved += [name for name in listed if name in waiting]
        if len(left) < len(listed):
            status |= {names: left, count: len(left)}
    names, count = TRIAL_LISTS[WAITING]
    return experiment.with_status({**status, names: moved, count: len(moved)} if moved else status)


def only_waits(resource: Resource) -> bool:
    """Return whether nothing of a job or Experiment runs because a queue holds it back: its time
    does not count."""
    if isinstance(resource, Experiment):
        return WAITING in resource.trials and "Running" not in resource.trials
    return resource.state.phase == WAITING

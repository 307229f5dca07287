"""Limits of a namespace: Kueue's queues (which suspended jobs wait, and why; jobs and trials are
shown with the reason in their status), and quotas, checked before a job is launched.

Source: kubernetes-sigs/kueue v0.15.0, apis/kueue/v1beta2/workload_types.go,
pkg/controller/jobframework/reconciler.go.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from podium.cluster.kubernetes.api import Api, api_resource
from podium.errors import Denied, NotFound, PodiumError
from podium.manifests.experiment.experiment import TRIAL_LISTS, Experiment
from podium.manifests.experiment.trial import Trial
from podium.manifests.fields import objects, quantity, text
from podium.manifests.labels import JOB_UID, QUEUE
from podium.manifests.pod_security import with_pod_defaults
from podium.manifests.resource import Condition, Resource
from podium.manifests.workload import Replica, Workload

_GROUP = "kueue.x-k8s.io"
_VERSIONS = ("v1beta2", "v1beta1")
"""Newest first; Kueue before 0.15 has the second only."""

_PATIENCE_SECONDS = 5.0
"""Seconds for which the reason is requested: without it a job is shown as waiting all the same."""


WAITING = "Waiting"
"""Type of the condition with which podium shows that a job, or a trial's job, waits for its
queue."""

_STOPPED = "Deactivated"
"""Reason of a Suspended condition: removed from its queue, by a user or by Kueue, until it is
resumed."""


class _QueueEntry(Resource):
    """Kueue's Workload of a job; podium's Workload is the job itself."""

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
                "Suspended", _STOPPED, evicted.message if evicted else "stopped; resume it", evicted
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


class Queues:
    """Kueue's reasons why jobs of one namespace wait. Sends no requests about jobs that no queue
    holds back."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.versions: Sequence[str] = _VERSIONS

    def explain(self, resource: Resource) -> Resource:
        """Return an object of any kind with the reason for its waiting in its status."""
        return self.explain_all([resource])[0]

    def explain_all(self, resources: Sequence[Resource]) -> Sequence[Resource]:
        """Return objects of one kind, each with the reason for its waiting in its status."""
        if trials := [trial for trial in resources if isinstance(trial, Trial)]:
            return self._trials(trials)
        reasons = self._reasons([job for job in resources if isinstance(job, Workload)])
        return [
            self._experiment(resource)
            if isinstance(resource, Experiment)
            else _explained(resource, reasons)
            for resource in resources
        ]

    def set_active(self, job: Workload, active: bool) -> bool:
        """Remove a job from its queue, or put it back; False where Kueue does not know it.

        Kueue starts an admitted job again whose ``suspend`` was set by somebody else, and suspends
        one that was started past it.
        """
        entry = self._entries([job.uid]).get(job.uid) if job.queue else None
        if entry is None:
            return False
        doing = f"{'resume' if active else 'stop'} {job.kind} {job.name} in queue {job.queue}"
        patch = self.api.custom.patch_namespaced_custom_object
        self._call(doing, patch, entry.name, {"spec": {"active": active}})
        return True

    def _experiment(self, experiment: Experiment) -> Experiment:
        if experiment.state.finished or not experiment.template.workload.queue:
            return experiment
        jobs = self._jobs(experiment.template.workload)
        waiting = {name for name, (_, why) in self._reasons(jobs).items() if why.type == WAITING}
        return _with_waiting_trials(experiment, waiting)

    def _trials(self, trials: list[Trial]) -> list[Resource]:
        open_ones = [trial for trial in trials if trial.workload.queue and not trial.state.finished]
        if not open_ones:
            return list(trials)
        templates = {
            (trial.workload.kind, trial.workload.queue): trial.workload for trial in open_ones
        }
        reasons: dict[str, tuple[str, Condition]] = {}
        for template in templates.values():
            reasons |= self._reasons(self._jobs(template))
        names = {trial.name for trial in open_ones}
        return [_explained(trial, reasons) if trial.name in names else trial for trial in trials]

    def _jobs(self, like: Workload) -> list[Workload]:
        # A trial's job has its name, but no label of it (Katib 0.19).
        return [
            Workload.parse(manifest)
            for manifest in self.api.objects(like.kind, f"{QUEUE}={like.queue}")
        ]

    def _reasons(self, jobs: Iterable[Workload]) -> dict[str, tuple[str, Condition]]:
        """Return queue and reason of each job that a queue holds back, by its name."""
        held = [job for job in jobs if job.queue and job.suspended and not job.state.finished]
        if not held:
            return {}
        hint = "Kueue has no entry for it yet, or is not installed"
        try:
            entries = self._entries([job.uid for job in held])
        except Denied:
            entries, hint = {}, "Kueue's reason may not be read: apply deploy/"
        except PodiumError as error:
            entries, hint = {}, f"Kueue's reason cannot be read: {error.message}"
        reasons = {uid: entry.why for uid, entry in entries.items()}
        return {
            job.name: (job.queue, reasons.get(job.uid) or _unexplained(job, hint)) for job in held
        }

    def _entries(self, uids: Sequence[str]) -> dict[str, _QueueEntry]:
        """Return Kueue's entries by the uid of their job; empty where Kueue is not installed."""
        selector = f"{JOB_UID} in ({','.join(uids)})"
        function = self.api.custom.list_namespaced_custom_object
        listed = self._call("read Kueue's queue", function, label_selector=selector)
        entries = [_QueueEntry.parse(item) for item in (listed or {}).get("items", [])]
        return {
            entry.labels.get(JOB_UID, ""): entry
            for entry in sorted(entries, key=lambda entry: entry.created)
        }

    def _call(self, doing: str, function: Any, *args: Any, **options: Any) -> Any:
        """Call a function of the API in the version that the server serves; None if it serves
        none."""
        for version in self.versions:
            try:
                where = (_GROUP, version, self.api.namespace, "workloads")
                answer = self.api.call(
                    doing, function, *where, *args, patience=_PATIENCE_SECONDS, **options
                )
            except NotFound:
                continue
            self.versions = (version,)
            return answer
        return None


def _explained(resource: Resource, reasons: dict[str, tuple[str, Condition]]) -> Resource:
    if resource.name not in reasons:
        return resource
    queue, why = reasons[resource.name]
    return resource.explained(replace(why, message=f"Queue {queue}: {why.message}"))


def _unexplained(job: Workload, hint: str) -> Condition:
    own = job.condition("Suspended")
    message = f"{own.message} ({hint})" if own and own.message else hint
    return _condition(WAITING, own.reason if own else "", message, own)


def _with_waiting_trials(experiment: Experiment, waiting: set[str]) -> Experiment:
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


_SHORT = ("cpu", "memory", "ephemeral-storage")
"""Resources whose name alone means their requests in a quota (Kubernetes' documentation, "Resource
Quotas")."""


def _quota_use(resource: Workload | Experiment) -> dict[str, float]:
    """Return a job's use of a quota while all of its pods run; for an Experiment with as many
    trials as run at once.

    Returns:
        Amounts by a quota's names: ``requests.cpu`` in cores, ``limits.memory`` in bytes, ``pods``,
        ``count/…``.
    """
    defaulted = with_pod_defaults(resource)
    trials = defaulted.limits.parallel if isinstance(defaulted, Experiment) else 1
    job = defaulted.template.workload if isinstance(defaulted, Experiment) else defaulted
    used: Counter[str] = Counter()
    for kind, count in (
        ((defaulted.kind, 1), (job.kind, trials)) if defaulted is not job else ((job.kind, 1),)
    ):
        where = api_resource(kind)
        used[f"count/{where.plural}.{where.group}"] += count
    for replica in job.replicas:
        pods = replica.count * trials
        used["pods"] += pods
        for name, amount in _of_pod(replica).items():
            used[name] += amount * pods
    return dict(used)


def _of_pod(replica: Replica) -> Counter[str]:
    """Return a pod's requests: the sum of its containers, or one init container's, whichever is
    more."""
    together: Counter[str] = Counter()
    for container in replica.pod.containers:
        together += Counter(_amounts(container.requests, container.limits))
    for container in replica.pod.init_containers:
        together |= Counter(_amounts(container.requests, container.limits))
    return together


def _amounts(requests: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, float]:
    amounts: dict[str, float] = {}
    for begins, quantities in (("requests", {**limits, **requests}), ("limits", limits)):
        for name, amount in quantities.items():
            value = quantity(amount) or 0.0  # the API server refuses what is no amount
            amounts |= {
                f"{begins}.{name}": value,
                **({name: value} if begins == "requests" and name in _SHORT else {}),
            }
    return amounts


def beyond_quotas(api: Api, resource: Workload | Experiment) -> Iterator[str]:
    """Report the parts of a job that do not fit the quotas of a namespace now.

    Quotas with scopes are left out: whether a pod counts there depends on what admission makes of
    it.

    Raises:
        PodiumError: The quotas cannot be read.
    """
    used = _quota_use(resource)
    listed = api.call(
        "list quotas",
        api.core.list_namespaced_resource_quota,
        api.namespace,
        patience=0,
        _request_timeout=(2, 3),
    )
    for quota in listed.items:
        spec, status = quota.spec, quota.status
        if not spec or spec.scopes or spec.scope_selector:
            continue
        for name, hard in (spec.hard or {}).items():
            asked, taken = used.get(name, 0.0), ((status and status.used) or {}).get(name, "0")
            # As floats 100m and 200m are more than 300m.
            limit = (quantity(hard) or 0.0) * (1 + 1e-9)
            if asked and asked + (quantity(taken) or 0.0) > limit:
                yield (
                    f"asks for {_short(name, asked)} of {name}, but quota {quota.metadata.name} of namespace "
                    f"{api.namespace} has {hard}, {taken} in use"
                )


def _short(name: str, amount: float) -> str:
    return f"{amount / 2**20:.0f}Mi" if name.endswith(("memory", "storage")) else f"{amount:g}"

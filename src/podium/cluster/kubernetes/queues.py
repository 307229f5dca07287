"""Limits of a namespace: Kueue's queues (which suspended jobs wait, and why; jobs and trials are
shown with the reason in their status), and quotas, checked before a job is launched."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from podium.cluster.kubernetes.api import Api, api_resource
from podium.errors import Denied, NotFound, PodiumError
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.trial import Trial
from podium.manifests.kueue import (
    WAITING,
    QueueEntry,
    is_held,
    unexplained,
    with_reason,
    with_waiting_trials,
)
from podium.manifests.labels import JOB_UID, QUEUE
from podium.manifests.pod_security import with_pod_defaults
from podium.manifests.resource import Condition, Resource
from podium.manifests.workload import Replica, Workload

_GROUP = "kueue.x-k8s.io"
_VERSIONS = ("v1beta2", "v1beta1")
"""Newest first; Kueue before 0.15 has the second only."""

_PATIENCE_SECONDS = 5.0
"""Seconds for which the reason is requested: without it a job is shown as waiting all the same."""


class Queues:
    """Kueue's reasons why jobs of one namespace wait. Sends no requests about jobs that no queue
    holds back."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.versions: Sequence[str] = _VERSIONS

    def explain(self, resource: Resource) -> Resource:
        """Return an object of any kind with the reason for its waiting in its status."""
        return self.explain_all([resource])[0]

    def explain_all(self, given: Sequence[Resource]) -> Sequence[Resource]:
        """Return objects of one kind, each with the reason for its waiting in its status."""
        if trials := [trial for trial in given if isinstance(trial, Trial)]:
            return self._trials(trials)
        reasons = self._reasons([job for job in given if isinstance(job, Workload)])
        return [
            self._experiment(resource)
            if isinstance(resource, Experiment)
            else _explained(resource, reasons)
            for resource in given
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
        return with_waiting_trials(experiment, waiting)

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
        """Return the jobs of a kind in a queue: a trial's job has its name, but no label of it
        (Katib 0.19)."""
        return [
            Workload.parse(manifest)
            for manifest in self.api.objects(like.kind, f"{QUEUE}={like.queue}")
        ]

    def _reasons(self, jobs: Iterable[Workload]) -> dict[str, tuple[str, Condition]]:
        """Return queue and reason of each job that a queue holds back, by its name."""
        held = [job for job in jobs if is_held(job)]
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
            job.name: (job.queue, reasons.get(job.uid) or unexplained(job, hint)) for job in held
        }

    def _entries(self, uids: Sequence[str]) -> dict[str, QueueEntry]:
        """Return Kueue's entries by the uid of their job; empty where Kueue is not installed."""
        selector = f"{JOB_UID} in ({','.join(uids)})"
        function = self.api.custom.list_namespaced_custom_object
        listed = self._call("read Kueue's queue", function, label_selector=selector)
        entries = [QueueEntry.parse(item) for item in (listed or {}).get("items", [])]
        return {entry.job_uid: entry for entry in sorted(entries, key=lambda entry: entry.created)}

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
    return with_reason(resource, *reasons[resource.name]) if resource.name in reasons else resource


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
    given = with_pod_defaults(resource)
    trials = given.limits.parallel if isinstance(given, Experiment) else 1
    job = given.template.workload if isinstance(given, Experiment) else given
    used: Counter[str] = Counter()
    for kind, count in (
        ((given.kind, 1), (job.kind, trials)) if given is not job else ((job.kind, 1),)
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
    for begins, given in (("requests", {**limits, **requests}), ("limits", limits)):
        for name, amount in given.items():
            value = _number(amount)
            amounts |= {
                f"{begins}.{name}": value,
                **({name: value} if begins == "requests" and name in _SHORT else {}),
            }
    return amounts


def _number(quantity: Any) -> float:
    from kubernetes.utils import parse_quantity

    return float(parse_quantity(str(quantity)))


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
            if asked and asked + _number(taken) > _number(hard):
                yield (
                    f"asks for {_short(name, asked)} of {name}, but quota {quota.metadata.name} of namespace "
                    f"{api.namespace} has {hard}, {taken} in use"
                )


def _short(name: str, amount: float) -> str:
    return f"{amount / 2**20:.0f}Mi" if name.endswith(("memory", "storage")) else f"{amount:g}"

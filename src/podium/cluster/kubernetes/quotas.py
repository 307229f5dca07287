"""Checks of a job's requests against the quotas of its namespace, before it is launched."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from podium.cluster.kubernetes.api import Api, api_resource
from podium.manifests.experiment import Experiment
from podium.manifests.pod_defaults import with_pod_defaults
from podium.manifests.workload import Replica, Workload

SHORT = ("cpu", "memory", "ephemeral-storage")
"""Resources whose name alone means their requests in a quota (Kubernetes' documentation, "Resource
Quotas")."""


def quota_use(resource: Workload | Experiment) -> dict[str, float]:
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
                **({name: value} if begins == "requests" and name in SHORT else {}),
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
    used = quota_use(resource)
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
    """Format an amount as in a manifest: memory in Mi."""
    return f"{amount / 2**20:.0f}Mi" if name.endswith(("memory", "storage")) else f"{amount:g}"

"""Launch an object on a cluster so that a retry adopts it and it does not outlive its step."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from podium.cluster.base import Cluster
from podium.cluster.kubernetes.store_access import Access, find_access, grant_access
from podium.errors import Conflict, Denied, PodiumError, Unavailable
from podium.manifests.labels import RUN_NAMESPACE
from podium.system.interrupts import Terminated
from podium.system.pod import pod_namespace
from podium.training.base import say

if TYPE_CHECKING:
    from podium.manifests.experiment import Experiment
    from podium.manifests.workload import Workload

DEADLINE = 24 * 3600
"""Deadline of a job in seconds, in case its step cannot end it."""

KEPT = 7 * 24 * 3600
"""Seconds for which a finished job is kept."""


@contextmanager
def launched(cluster: Cluster, resource: "Workload | Experiment") -> Iterator[None]:
    """Start an object that runs only as long as the context is open.

    A retried step adopts the object of its earlier attempt, found by name, unless that failed. A
    finished object is kept; one that still runs when the step fails is deleted, unless the step
    failed because the cluster does not answer. KFP gives a cancelled step a few tenths of a second
    (observed), enough for one call without waiting.

    Raises:
        InvalidInput: The manifest breaks a rule; nothing was started.
        Unavailable: The cluster does not answer; the object may run.
        Denied: The cluster no longer allows what it did; the object may run.
    """
    kind, name = resource.kind, resource.name
    try:
        launch(cluster, resource)
        yield
    except Terminated:
        cluster.abandon(kind, name)
        raise
    except (Unavailable, Denied) as error:
        # The object may still run: a retry adopts it, and it has its own deadline.
        why = "no longer allows it" if isinstance(error, Denied) else "does not answer"
        say(f"{kind} {name} is not deleted: its cluster {why}")
        raise
    except BaseException:
        # Report the original error, not one of the cleanup.
        with suppress(PodiumError):
            if not cluster.get(kind, name).state.finished:
                cluster.delete(kind, name)
        raise


def launch(cluster: Cluster, resource: "Workload | Experiment") -> None:
    """Start an object, or adopt that of its name.

    Raises:
        InvalidInput: The manifest breaks a rule; nothing was started.
    """
    _create_or_adopt(cluster, _of_run(cluster, grant_access(resource, _access(cluster, resource))))


def _of_run(cluster: Cluster, resource: "Workload | Experiment") -> "Workload | Experiment":
    """Return an object of a pipeline's run as its namespace may hold it, with a note for the reaper
    where the run is.

    In another namespace it has no owner: the garbage collector takes an owner from elsewhere for
    one that is gone, and deletes what it owned (Kubernetes' documentation, "Owners and
    Dependents").
    """
    home = pod_namespace()
    if not cluster.traits.collects_garbage or home is None or not resource.owners:
        return resource
    noted = resource.with_metadata(
        {**resource.metadata, "annotations": {**resource.annotations, RUN_NAMESPACE: home}}
    )
    return noted if cluster.url == f"kubernetes://{home}" else noted.without_owners()


def _access(cluster: Cluster, resource: "Workload | Experiment") -> Access | None:
    """Return the store set in the namespace of the pods, or else in this step's namespace.

    A Service has another name from elsewhere, and a pod may read the Secrets of its own namespace
    only.
    """
    asked = not cluster.traits.shares_files and (pod_namespace() or resource.opens_store)
    there = find_access(cluster.url) if asked else None
    return there or find_access()


def _create_or_adopt(cluster: Cluster, resource: "Workload | Experiment") -> None:
    kind, name = resource.kind, resource.name
    try:
        cluster.create(resource)
        return
    except Conflict:
        existing = cluster.get(kind, name)
        state = existing.state
    if kind == "Experiment" and cluster.experiment(name).is_resumable:
        say(f"{kind} {name} was stopped; continuing it")
        cluster.resume(kind, name)
    elif state.finished and not state.succeeded:
        say(f"{kind} {name} of an earlier attempt failed; starting it again")
        cluster.delete(kind, name)
        cluster.create(resource)
    else:
        say(f"{kind} {name} of an earlier attempt exists; continuing it")

"""Jobs that outlived their run: find them by label and delete them, once or as soon as there are any.

A canceled step has well under a second to delete its job, and no owner reference acts at a cancel (both observed on
KFP 2.0.5 and 2.16.1), so one may stay. Whether a run is over is asked of its Workflow, not of the KFP API: there a run
whose Workflow was deleted stays RUNNING forever.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import PodiumError, UnknownKind
from podium.manifests.kinds import TRAINJOB
from podium.manifests.labels import KFP_RUN, RUN, RUN_NAMESPACE
from podium.manifests.resource import Resource

KINDS = ("Experiment", "PyTorchJob", TRAINJOB, "Job")
"""Looked at in this order: an Experiment takes its trials along."""


@dataclass(frozen=True, kw_only=True)
class Orphan:
    """A job or experiment that runs though its run does not."""

    kind: str
    name: str
    run_id: str
    phase: str
    created: str
    why: str
    """What became of the run."""


def orphans(cluster: KubernetesCluster) -> list[Orphan]:
    """Return the unfinished objects of the namespace whose run is over or gone.

    Raises:
        PodiumError: The Workflows cannot be read: without them nothing is called an orphan.
    """
    orphaned = []
    over: dict[str, str | None] = {}
    for kind in KINDS:
        try:
            objects = [Resource.parse(manifest) for manifest in cluster.api.objects(kind, RUN)]
        except UnknownKind:
            continue
        for launched in objects:
            run_id, state = launched.labels[RUN], launched.state
            home = launched.annotations.get(RUN_NAMESPACE)
            if state.finished or home is None:  # no step launched it: a trial, or a run that is not of this cluster
                continue
            if run_id not in over:
                over[run_id] = _over(cluster, run_id, home)
            if why := over[run_id]:
                names = {"kind": kind, "name": launched.name, "created": launched.created}
                orphaned.append(Orphan(**names, run_id=run_id, phase=state.phase, why=why))
    return orphaned


def reap(cluster: KubernetesCluster, orphaned: Sequence[Orphan]) -> None:
    """Delete orphans; returns when their pods are gone."""
    for orphan in orphaned:
        cluster.api.delete(orphan.kind, orphan.name)  # all at once, before the pods of the first are waited for
    for orphan in orphaned:
        cluster.delete(orphan.kind, orphan.name)


def keep_reaping(cluster: KubernetesCluster, every: float, report: Callable[[str], None]) -> NoReturn:
    """Look for orphans every few seconds and delete them at once, for good.

    A round costs a list of each kind, and one of Workflows for every run that has something unfinished.

    Args:
        cluster: The namespace.
        every: Seconds between two rounds.
        report: Called with a line for each deletion, and for each round that failed: the next one may not.
    """
    while True:
        try:
            for orphan in orphans(cluster):
                cluster.api.delete(orphan.kind, orphan.name)
                report(f"deleted {orphan.kind} {orphan.name} of run {orphan.run_id}: {orphan.why}")
        except PodiumError as error:
            report(f"error: {error}")
        time.sleep(every)


def _over(cluster: KubernetesCluster, run_id: str, namespace: str) -> str | None:
    """Say what became of a run, or None while its Workflow goes on."""
    list_objects = cluster.api.custom.list_namespaced_custom_object
    workflows = ("argoproj.io", "v1alpha1", namespace, "workflows")
    doing, selector = f"read the workflow of run {run_id}", f"{KFP_RUN}={run_id}"
    answer = cluster.api.call(doing, list_objects, *workflows, label_selector=selector)
    phases = [Resource.parse(item).status.get("phase") or "Pending" for item in answer["items"]]
    if not phases:
        return "its workflow is gone"
    going = [phase for phase in phases if phase in ("Pending", "Running")]
    return None if going else f"its workflow is {phases[0]}"

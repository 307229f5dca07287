"""Jobs that outlived their run: find them by label and delete them, once or as soon as there are
any.

A canceled step has well under a second to delete its job, and no owner reference acts at a cancel
(both observed on KFP 2.0.5 and 2.16.1), so one may stay. Whether a run is over is asked of its
Workflow, not of the KFP API: there a run whose Workflow was deleted stays RUNNING forever.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from typing import NoReturn

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import NotFound, PodiumError, UnknownKind
from podium.manifests.kinds import TRAINJOB
from podium.manifests.labels import ARGO_PHASE, KFP_RUN, RUN, RUN_NAMESPACE
from podium.manifests.resource import Resource
from podium.system.exposition import metric, serve

_KINDS = ("Experiment", "PyTorchJob", TRAINJOB, "Job")
"""Looked at in this order: an Experiment takes its trials along."""

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""Accept header of a list that needs metadata only."""


@dataclass(frozen=True, kw_only=True)
class _Orphan:
    """A job or experiment that runs though its run does not."""

    kind: str
    name: str
    run_id: str
    phase: str
    created: str
    why: str
    """End of the run, or that it is gone."""

    uid: str


@dataclass
class _Look:
    """Result of one scan of a namespace."""

    seen: int = 0
    """Unfinished objects that a step launched."""

    orphans: list[_Orphan] = field(default_factory=list)
    errors: dict[str, PodiumError] = field(default_factory=dict)
    """Failed reads by their subject: nothing that depends on one is called an orphan."""


def look(cluster: KubernetesCluster) -> _Look:
    """Find the unfinished objects of the namespace whose run is over or gone."""
    found = _Look()
    over: dict[tuple[str, str], str | None] = {}
    for kind in _KINDS:
        try:
            objects = [Resource.parse(manifest) for manifest in cluster.api.objects(kind, RUN)]
        except UnknownKind:
            continue
        except PodiumError as error:
            found.errors[kind] = error
            continue
        for launched in objects:
            run_id, state = launched.labels[RUN], launched.state
            home = launched.annotations.get(RUN_NAMESPACE)
            # Without a home no step launched it: a trial, or a run that is not of this cluster.
            if state.finished or launched.is_leaving or home is None:
                continue
            found.seen += 1
            try:
                if (run_id, home) not in over:
                    over[run_id, home] = _over(cluster, run_id, home)
            except PodiumError as error:
                found.errors[f"{kind} {launched.name}"] = error
                continue
            if why := over[run_id, home]:
                found.orphans.append(
                    _Orphan(
                        kind=kind,
                        name=launched.name,
                        created=launched.created,
                        run_id=run_id,
                        phase=state.phase,
                        why=why,
                        uid=launched.uid,
                    )
                )
    return found


def reap(cluster: KubernetesCluster, orphaned: Sequence[_Orphan]) -> None:
    """Delete orphans; returns when their pods are gone."""
    for orphan in orphaned:
        cluster.api.delete(
            orphan.kind, orphan.name
        )  # all at once, before the pods of the first are waited for
    for orphan in orphaned:
        cluster.delete(orphan.kind, orphan.name)


class Reaper:
    """Looks for orphans every few seconds and deletes them at once, for good.

    A round costs a list of each kind, and one of Workflows for every run that has something
    unfinished; once a minute the runs are counted, for /metrics.

    Args:
        cluster: The namespace.
        every: Seconds between two rounds.
        report: Called with a line at the start, for each deletion, and for each new error.
    """

    def __init__(
        self, cluster: KubernetesCluster, every: float, report: Callable[[str], None]
    ) -> None:
        self.cluster, self.every, self.report = cluster, every, report
        cluster.api.patience = 5.0  # seconds: the next round asks again
        self.seen = self.deleted = self.errors = 0
        self.success = time.time()
        """Time of the last round without errors, seconds since 1970; at first the start."""
        self.round = time.monotonic()
        """End of the last round, by time.monotonic."""
        self.runs: dict[str, int] = {}
        """Runs of the last day by phase, see _count_runs; empty while they cannot be counted."""
        self.counted = 0.0
        """Time of the last count, by time.monotonic."""
        self._known: dict[str, str] = {}

    def run(self) -> NoReturn:
        where, every = self.cluster.api.namespace, self.every
        self.report(
            f"namespace {where}: looking every {every:g} s for jobs whose pipeline run is over"
        )
        while True:
            self._round()
            time.sleep(every)

    def _round(self) -> None:
        found = look(self.cluster)
        for orphan in found.orphans:
            try:
                self._delete(orphan)
            except PodiumError as error:
                found.errors[f"{orphan.kind} {orphan.name}"] = error
        self._count(found)
        said = {about: str(error) for about, error in found.errors.items()}
        for about, text in said.items():
            if self._known.get(about) != text:
                self.report(f"error: {about}: {text}")
        for about in self._known.keys() - said.keys():
            self.report(f"no more errors about {about}")
        self._known, self.seen, self.errors = said, found.seen, self.errors + len(said)
        self.round = time.monotonic()
        if not said:
            self.success = time.time()

    def _count(self, found: _Look) -> None:
        if self.runs and time.monotonic() - self.counted < 60:
            return
        try:
            self.runs, self.counted = _count_runs(self.cluster), time.monotonic()
        except NotFound:  # no Argo here, so no runs
            self.runs = {}
        except PodiumError as error:
            self.runs, found.errors["the count of runs"] = {}, error

    def _delete(self, orphan: _Orphan) -> None:
        self.cluster.api.delete(orphan.kind, orphan.name)
        self.deleted += 1
        why = f"run {orphan.run_id} is over: {orphan.why}"
        self.report(f"deleted {orphan.kind} {orphan.name}: {why}")
        self.cluster.api.tell(
            orphan.kind, orphan.name, orphan.uid, "Reaped", f"deleted by podium-reaper: {why}"
        )

    @property
    def alive(self) -> bool:
        """Whether a round ended lately."""
        return time.monotonic() - self.round < 60 + 10 * self.every

    @property
    def metrics(self) -> str:
        """Its counters in Prometheus' text format."""
        counters = {
            "seen": (self.seen, "Unfinished objects that a step launched."),
            "deleted_total": (self.deleted, "Objects deleted since the start."),
            "errors_total": (
                self.errors,
                "Objects that could not be read or deleted, counted in every round.",
            ),
            "last_success_timestamp_seconds": (
                self.success,
                "End of the last round without an error.",
            ),
        }
        pages = [
            metric(f"podium_reaper_{name}", text, value) for name, (value, text) in counters.items()
        ]
        if self.runs:
            text = "Pipeline runs of the namespace that began within a day, by the phase of their Workflow."
            pages.append(metric("podium_runs", text, self.runs, "phase"))
        return "".join(pages)

    def serve(self, port: int) -> ThreadingHTTPServer:
        """Answer /healthz and /metrics on a port, until the process ends.

        Raises:
            PodiumError: The port is taken.
        """
        return serve(port, lambda: self.metrics, lambda: self.alive)


def _count_runs(cluster: KubernetesCluster) -> dict[str, int]:
    """Count the pipeline runs of the namespace that began within a day, by the phase of their
    Workflow.

    Only metadata are asked for, and the phase is read from Argo's label: a Workflow with its steps
    may be a megabyte. Kubeflow Pipelines keeps the Workflow of a run that is over for a day, unless
    it was told otherwise.
    """
    path = f"/apis/argoproj.io/v1alpha1/namespaces/{cluster.api.namespace}/workflows"
    answer = cluster.api.call(
        f"count the runs of namespace {cluster.api.namespace}",
        cluster.api.client.call_api,
        path,
        "GET",
        query_params=[("labelSelector", KFP_RUN)],
        header_params={"Accept": _METADATA_ONLY},
        response_type="object",
        auth_settings=["BearerToken"],
        _return_http_data_only=True,
    )
    since = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    counts = dict.fromkeys(("Pending", "Running", "Succeeded", "Failed", "Error"), 0)
    for run in map(Resource.parse, answer["items"] or ()):  # null, not [], where there is none
        if run.created >= since:
            phase = run.labels.get(ARGO_PHASE) or "Pending"
            counts[phase] = counts.get(phase, 0) + 1
    return counts


def _over(cluster: KubernetesCluster, run_id: str, namespace: str) -> str | None:
    """Say how a run ended; None while its Workflow runs."""
    list_objects = cluster.api.custom.list_namespaced_custom_object
    workflows = ("argoproj.io", "v1alpha1", namespace, "workflows")
    doing, selector = f"read the workflow of run {run_id}", f"{KFP_RUN}={run_id}"
    answer = cluster.api.call(doing, list_objects, *workflows, label_selector=selector)
    phases = [Resource.parse(item).status.get("phase") or "Pending" for item in answer["items"]]
    if not phases:
        return "its workflow is gone"
    going = [phase for phase in phases if phase in ("Pending", "Running")]
    return None if going else f"its workflow is {phases[0]}"

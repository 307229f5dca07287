"""Runs the jobs of the API server in memory as processes, and reports status, pods and logs as an operator would."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from api_server import World

from podium.cluster.base import ReplicaStatus
from podium.cluster.local.cluster import LocalCluster
from podium.errors import InvalidInput, NotFound
from podium.manifests.admission import admit
from podium.manifests.conditions import Conditions
from podium.manifests.job_editor import JobEditor
from podium.manifests.kinds import JOB_KINDS
from podium.manifests.labels import (
    COMPLETION_INDEX,
    JOB_NAME,
    JOBSET_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    REPLICATED_JOB,
)
from podium.manifests.workload import Workload

PLURALS = {"pytorchjobs": "PyTorchJob", "jobs": "Job", "trainjobs": "TrainJob"}
NOW = "2026-01-01T00:00:00Z"


def _without_pod_deadline(editor: JobEditor) -> None:
    """Drop what the client adds for a kubelet; processes of this machine know the job's deadline only."""
    for _, template in editor.templates:
        template["spec"].pop("activeDeadlineSeconds", None)


def _with_one_limit(editor: JobEditor) -> None:
    """Let the pods of an Indexed Job be started again as often as that of each index together."""
    spec = editor.body["spec"]
    if (tries := spec.pop("backoffLimitPerIndex", None)) is not None:
        spec["backoffLimit"] = tries * spec["completions"]
        for field in ("podReplacementPolicy", "podFailurePolicy"):
            spec.pop(field, None)


class JobOperator:
    """A loop over the jobs of a World; `with JobOperator(world, directory):`."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world, self.local = world, LocalCluster(directory, fork_server=False)
        self.running: dict[tuple[str, str], str] = {}
        self.ending: dict[tuple[str, str], threading.Thread] = {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        world.admit = lambda item: admit(item) if item.get("kind") in JOB_KINDS else item

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()
        for ending in self.ending.values():
            ending.join()
        self.local.close()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            with self.world.changed:
                jobs = {key: item for key, item in self.world.objects.items() if key[0] in PLURALS}
            for key, uid in list(self.running.items()):
                if key not in jobs or jobs[key]["metadata"]["uid"] != uid:
                    self.end(key)
            for key, item in jobs.items():
                self.reconcile(key, Workload.parse({"kind": PLURALS[key[0]], **item}))

    def reconcile(self, key: tuple[str, str], job: Workload) -> None:
        if key in self.ending and self.ending[key].is_alive():
            return
        if job.suspended:
            if key in self.running:
                self.end(key)
                status: dict[str, Any] = {"startTime": NOW}
                Conditions(status, "operator").add("Suspended", "Suspended", "suspended", NOW)
                self.report(key, status)
            return
        if key not in self.running:
            metadata = {"name": job.name, "labels": job.labels}
            plain = job.changed_job(_without_pod_deadline).changed_job(_with_one_limit)
            plain, printer = self.without_sidecar(plain)
            if printer and not self.local.store.exists("Job", printer["metadata"]["name"]):
                self.local.create(Workload.parse(printer))
            if printer and not (self.shared(job) / ".podium-reads").exists():  # its startup probe
                return
            self.local.create(plain.with_metadata(metadata).with_status({}))
            self.running[key] = job.uid
        status = dict(
            self.local.get(job.kind, job.name).status
        )  # before the pods: none is behind its job then
        complete = [
            self.report_pod(job, replica) for replica in self.local.replicas(job.kind, job.name)
        ]
        if not all(complete):
            return
        self.report(key, status)

    def end(self, key: tuple[str, str]) -> None:
        kind, name = PLURALS[key[0]], key[1]
        for replica in self.local.replicas(kind, name):
            self.world.remove("pods", f"{name}-{replica.name}")
        del self.running[key]

        def delete() -> None:
            self.local.delete(kind, name)
            self.local.delete("Job", f"{name}-sidecar")

        # Beside the others: what a process does as it ends may be to wait for the end of another job.
        self.ending[key] = threading.Thread(target=delete)
        self.ending[key].start()

    def shared(self, job: Workload) -> Path:
        """Return the directory that a pod's containers share."""
        return self.local.store.directory / "shared" / job.name

    def without_sidecar(self, job: Workload) -> tuple[Workload, dict[str, Any] | None]:
        """Return a job without its native sidecar, and the sidecar as a job of its own on the same directory.

        A kubelet starts it before the pod's other containers and ends it by SIGTERM after them.
        """
        folder, found = str(self.shared(job)), []

        def take(editor: JobEditor) -> None:
            for _, template in editor.templates:
                spec = template["spec"]
                found.extend(spec.pop("initContainers", []))
                if found:
                    Path(folder).mkdir(parents=True, exist_ok=True)
                    for volume in spec["volumes"]:
                        volume |= {"hostPath": {"path": folder}}
                        volume.pop("emptyDir", None)

        changed = job.changed_job(take)
        if not found:
            return job, None
        keys = ("name", "image", "command", "env", "volumeMounts")
        container = {key: found[0][key] for key in keys if key in found[0]}
        volumes = [{"name": container["volumeMounts"][0]["name"], "hostPath": {"path": folder}}]
        pod = {"spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes}}
        spec = {"backoffLimit": 0, "template": pod}
        return changed, {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"{job.name}-sidecar"},
            "spec": spec,
        }

    def log_of(self, job: Workload, replica: ReplicaStatus) -> list[str] | None:
        """Return a pod's log: its sidecar's, if it has one; None until a sidecar has printed all."""
        sidecar = f"{job.name}-sidecar"
        if not self.local.store.exists("Job", sidecar):
            return list(self.local.logs(job.kind, job.name, replica.name))
        if (
            replica.phase not in ("Pending", "Running")
            and not self.local.workload("Job", sidecar).state.finished
        ):
            with suppress(InvalidInput):  # it may have ended since the look
                self.local.stop("Job", sidecar)
            return None
        return list(self.local.logs("Job", sidecar))

    def report(self, key: tuple[str, str], status: dict[str, Any]) -> None:
        with self.world.changed:
            item = self.world.objects.get(key)
            if item and item.get("status") != status:
                self.world.put(key[0], {**item, "status": status})

    def report_pod(self, job: Workload, replica: ReplicaStatus) -> bool:
        name, (role, _, index) = f"{job.name}-{replica.name}", replica.name.rpartition("-")
        labels = {"job-name": job.name}
        if job.kind == "TrainJob":
            labels = {JOBSET_NAME: job.name, REPLICATED_JOB: role, COMPLETION_INDEX: index}
        if job.kind == "PyTorchJob":
            labels = {JOB_NAME: job.name, REPLICA_TYPE: role, REPLICA_INDEX: index}
        _, template = next(JobEditor.of(job.manifest).templates)
        labels = {**template.get("metadata", {}).get("labels", {}), **labels}
        ended = replica.phase not in ("Pending", "Running")
        state: dict[str, Any] = (
            {"running": {"startedAt": replica.started}} if replica.started else {"waiting": {}}
        )
        if ended:
            terminated = {"exitCode": replica.exit_code or 0, "startedAt": replica.started or None}
            state = {
                "terminated": {
                    **terminated,
                    "reason": "Error" if replica.exit_code else "Completed",
                }
            }
        container = next(container.name for _, container in job.containers())
        common = {
            "name": container,
            "image": "any",
            "imageID": "any",
            "ready": not ended,
            "state": state,
        }
        phase = "Failed" if replica.phase == "Stopped" else replica.phase
        status = {
            "phase": phase,
            "containerStatuses": [{**common, "restartCount": replica.restarts}],
        }
        spec = {"containers": [{"name": container}], "nodeName": "node-1"}
        try:
            log = self.log_of(job, replica)
        except NotFound:
            log = []
        if log is None:
            return False
        self.world.logs[name] = log
        if self.world.objects.get(("pods", name), {}).get("status") != status:
            # The uid is the one that the pod itself reads.
            uid = f"{self.local.workload(job.kind, job.name).uid}-{replica.name}"
            metadata = {"name": name, "labels": labels, "uid": uid}
            self.world.put("pods", {"metadata": metadata, "spec": spec, "status": status})
        return True

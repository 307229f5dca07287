"""Deadlines that hold on a real cluster.

The training operator means to look at a job again when its activeDeadlineSeconds have passed, but in 1.9.3 that
reminder goes to a queue that keeps nothing (kubeflow/trainer v1.9.3, pkg/common/util/fake_workqueue.go): a job whose
pods are quiet, which is what a hung job is, runs on for ever (observed). The kubelet does end a pod at the pod's own
deadline, and that event makes the operator look.
"""

import json

from podium.cluster.base import Manifest

MARGIN = 5
"""Seconds the pods' deadline is later: else a pod might end first and count as a replica to start again."""


def with_pod_deadlines(manifest: Manifest) -> Manifest:
    """Return the manifest with the deadline of a PyTorchJob, or of the trials that are one, on every pod too.

    A pod that was started anew has its full time again: the job then ends at the latest when that is over.

    Args:
        manifest: Any kind; a pod template with a deadline of its own keeps it.
    """
    changed: Manifest = json.loads(json.dumps(manifest))
    spec = changed.get("spec") or {}
    job = (spec.get("trialTemplate") or {}).get("trialSpec") if changed.get("kind") == "Experiment" else changed
    if not isinstance(job, dict) or job.get("kind") != "PyTorchJob":
        return changed
    job_spec = job.get("spec") or {}
    seconds = (job_spec.get("runPolicy") or {}).get("activeDeadlineSeconds")
    if type(seconds) is int:
        for replica in (job_spec.get("pytorchReplicaSpecs") or {}).values():
            replica.get("template", {}).get("spec", {}).setdefault("activeDeadlineSeconds", seconds + MARGIN)
    return changed

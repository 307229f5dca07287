"""Manifests of a batch Job of one pod."""

from collections.abc import Mapping, Sequence
from typing import Any

from podium.manifests.conditions import Manifest
from podium.manifests.job_editor import DISRUPTED
from podium.manifests.labels import ISTIO_INJECT


def job_manifest(
    name: str,
    *,
    image: str,
    command: Sequence[str],
    labels: Mapping[str, str],
    owner: Mapping[str, Any] | None,
    active_deadline_seconds: int,
    ttl_seconds_after_finished: int,
) -> Manifest:
    """Write the manifest of a Job that is tried once, and again where its pod was evicted or
    preempted.

    Args:
        labels: Labels of the job and its pod.
        active_deadline_seconds: Seconds from the start after which it fails.
        ttl_seconds_after_finished: Seconds from the end after which it is deleted.
    """
    container = {"name": "main", "image": image, "command": list(command)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": dict(labels),
            **({"ownerReferences": [dict(owner)]} if owner else {}),
        },
        "spec": {
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [dict(DISRUPTED)]},
            "activeDeadlineSeconds": active_deadline_seconds,
            "ttlSecondsAfterFinished": ttl_seconds_after_finished,
            "template": {
                # A label, not an annotation: current Istio reads only that, and its proxy would keep the pod alive.
                "metadata": {"labels": {**labels, ISTIO_INJECT: "false"}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }

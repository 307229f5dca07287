"""What every launched pod gets where its manifest says nothing: its run, no token of the API, and small requests."""

import json
from collections.abc import Iterator
from typing import Any

from podium.cluster.base import Manifest
from podium.manifests.labels import RUN

REQUESTS = {"cpu": "250m", "memory": "512Mi"}
"""Of each container. Without any request a busy node starves a pod, evicts it first, and is chosen by chance."""


def with_pod_defaults(manifest: Manifest) -> Manifest:
    """Return the manifest with the defaults in every pod template; what it says itself stays.

    A pod with a service account of its own asks for an identity, and keeps the token.

    Args:
        manifest: A PyTorchJob, Job or Experiment.
    """
    changed: Manifest = json.loads(json.dumps(manifest))  # not deepcopy: YAML anchors make two replicas one object
    run = ((manifest.get("metadata") or {}).get("labels") or {}).get(RUN)
    for template in _templates(changed):
        spec = template["spec"]
        if run:  # also for the network policy in deploy/, which tells launched pods by it
            template["metadata"] = metadata = template.get("metadata") or {}
            metadata["labels"] = {RUN: run, **(metadata.get("labels") or {})}
        if not spec.get("serviceAccountName"):
            spec.setdefault("automountServiceAccountToken", False)
        for container in spec.get("containers") or []:
            _request(container)
    return changed


def _templates(manifest: Manifest) -> Iterator[dict[str, Any]]:
    spec = manifest.get("spec") or {}
    if manifest.get("kind") == "Experiment":
        spec = ((spec.get("trialTemplate") or {}).get("trialSpec") or {}).get("spec") or {}
    for holder in (spec.get("pytorchReplicaSpecs") or {"": spec}).values():
        if (holder.get("template") or {}).get("spec"):
            yield holder["template"]


def _request(container: dict[str, Any]) -> None:
    resources = container.get("resources") or {}
    requests = resources.get("requests") or {}
    limited = resources.get("limits") or {}  # a limit alone is the request too
    missing = {name: amount for name, amount in REQUESTS.items() if name not in requests and name not in limited}
    if missing:
        container["resources"] = {**resources, "requests": {**requests, **missing}}

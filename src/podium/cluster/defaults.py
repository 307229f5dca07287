"""What every launched pod gets where its manifest says nothing: no token of the API, and small requests."""

import json
from collections.abc import Iterator
from typing import Any

from podium.cluster.base import Manifest

REQUESTS = {"cpu": "250m", "memory": "512Mi"}
"""Of each container. Without any request a busy node starves a pod, evicts it first, and is chosen by chance."""


def with_pod_defaults(manifest: Manifest) -> Manifest:
    """Return the manifest with the defaults in every pod template; what it says itself stays.

    A pod with a service account of its own asks for an identity, and keeps the token.

    Args:
        manifest: A PyTorchJob, Job or Experiment.
    """
    changed: Manifest = json.loads(json.dumps(manifest))  # not deepcopy: YAML anchors make two replicas one object
    for spec in _pods(changed):
        if not spec.get("serviceAccountName"):
            spec.setdefault("automountServiceAccountToken", False)
        for container in spec.get("containers") or []:
            _request(container)
    return changed


def _pods(manifest: Manifest) -> Iterator[dict[str, Any]]:
    spec = manifest.get("spec") or {}
    if manifest.get("kind") == "Experiment":
        spec = ((spec.get("trialTemplate") or {}).get("trialSpec") or {}).get("spec") or {}
    for holder in (spec.get("pytorchReplicaSpecs") or {"": spec}).values():
        pod = (holder.get("template") or {}).get("spec")
        if isinstance(pod, dict):
            yield pod


def _request(container: dict[str, Any]) -> None:
    resources = container.get("resources") or {}
    requests = resources.get("requests") or {}
    limited = resources.get("limits") or {}  # a limit alone is the request too
    missing = {name: amount for name, amount in REQUESTS.items() if name not in requests and name not in limited}
    if missing:
        container["resources"] = {**resources, "requests": {**requests, **missing}}

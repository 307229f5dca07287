"""Kueue's queues for tests."""

from collections.abc import Mapping

from podium.manifests.conditions import Manifest

GROUP, VERSION = "kueue.x-k8s.io", "v1beta1"


def queue_objects(name: str, *, namespace: str, quota: Mapping[str, str]) -> dict[str, Manifest]:
    """Write a queue for a namespace's jobs, and a priority above the others'."""
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": name, "resources": resources}]}
    queue = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [group],
    }
    return {
        "resourceflavors": {"kind": "ResourceFlavor"},
        "workloadpriorityclasses": {"kind": "WorkloadPriorityClass", "value": 100},
        "clusterqueues": {"kind": "ClusterQueue", "spec": queue},
    }

"""Settings given once, as pipeline parameters, are in every pod of a job and of a trial: read back from the API server."""

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from livekubeflow import (
    NAMESPACE,
    Submit,
    cancel,
    ended_by_cancel,
    has_katib,
    jobs_of,
    podium,
    pods_of,
    until,
)

from podium.cluster.kubernetes.cluster import KubernetesCluster

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(1200)]
TOLERATION = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}


@pytest.fixture
def named(cluster: KubernetesCluster) -> Iterator[str]:
    """A name under which there are a priority class, a service account, a Secret and a claim."""
    from kubernetes import client as kubernetes

    name = f"podium-test-{uuid.uuid4().hex[:8]}"
    core, scheduling = cluster.api.core, kubernetes.SchedulingV1Api(cluster.api.core.api_client)
    metadata = {"name": name}
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    with ExitStack() as made:
        scheduling.create_priority_class({"metadata": metadata, "value": 7})
        made.callback(scheduling.delete_priority_class, name)
        core.create_namespaced_service_account(NAMESPACE, {"metadata": metadata})
        made.callback(core.delete_namespaced_service_account, name, NAMESPACE)
        core.create_namespaced_secret(
            NAMESPACE, {"metadata": metadata, "stringData": {"key": "never shown"}}
        )
        made.callback(core.delete_namespaced_secret, name, NAMESPACE)
        core.create_namespaced_persistent_volume_claim(
            NAMESPACE, {"metadata": metadata, "spec": wanted}
        )
        made.callback(core.delete_namespaced_persistent_volume_claim, name, NAMESPACE)
        named = {"pod-accounts": f"podium-steps,{name}", "pod-secrets": name}  # deploy/policies
        core.patch_namespaced_config_map("podium-storage", NAMESPACE, {"data": named})
        unnamed = {"data": {"pod-accounts": "podium-steps", "pod-secrets": None}}
        made.callback(core.patch_namespaced_config_map, "podium-storage", NAMESPACE, unnamed)
        yield name


def settings(name: str) -> str:
    """Write all of podium.manifests.placement.Pods as the parameter `pods`."""
    return json.dumps(
        {
            "cpu": "150m", "memory": "200Mi", "node_selector": {"kubernetes.io/os": "linux"},
            "tolerations": [TOLERATION], "env": {"MARK": "seen"}, "secret_env": {"TOKEN": f"{name}/key"},
            "claims": {"/scratch": name}, "queue": name, "queue_priority": name, "priority_class": name,
            "service_account": name, "image_pull_secrets": [name], "labels": {"team": name},
            "security": "baseline", "run_as_user": 1000,
        }
    )  # fmt: skip


def check_pod(pod: dict[str, Any], name: str) -> None:
    """Compare a pod as the API server has it with the settings."""
    spec, labels = pod["spec"], pod["metadata"]["labels"]
    (container,) = [container for container in spec["containers"] if container["name"] == "pytorch"]
    assert container["resources"] == {
        "requests": {"cpu": "150m", "memory": "200Mi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "200Mi", "nvidia.com/gpu": "1"},
    }
    env = {variable["name"]: variable for variable in container["env"]}
    assert env["MARK"]["value"] == "seen"
    assert env["TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": name, "key": "key"}}
    (claim,) = [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    assert claim["persistentVolumeClaim"]["claimName"] == name
    assert {"name": claim["name"], "mountPath": "/scratch"} in container["volumeMounts"]
    assert spec["securityContext"] == {"runAsUser": 1000, "runAsNonRoot": False}
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert TOLERATION in spec["tolerations"]
    assert (spec["priorityClassName"], spec["priority"]) == (name, 7)
    assert spec["serviceAccountName"] == name
    assert spec["imagePullSecrets"] == [{"name": name}]
    assert labels["team"] == name
    assert labels["sidecar.istio.io/inject"] == "false"


def check_run(cluster: KubernetesCluster, run_id: str, name: str, jobs: int) -> None:
    """Wait for the jobs of a run with three pods each, and look at all; they stay Pending: no node has that GPU."""
    try:
        found = until(
            lambda: len(jobs_of(cluster, run_id)) == jobs and jobs_of(cluster, run_id), 300
        )
        for job in found:
            for label in ("queue-name", "priority-class"):
                assert job["metadata"]["labels"][f"kueue.x-k8s.io/{label}"] == name
            selector = f"training.kubeflow.org/job-name={job['metadata']['name']}"
            pods = until(
                lambda of=selector: len(pods_of(cluster, of)) == 3 and pods_of(cluster, of), 60
            )
            for pod in pods:
                check_pod(pod, name)
    finally:
        cancel(run_id)
        assert ended_by_cancel(run_id)
    until(lambda: not jobs_of(cluster, run_id), 60)


def test_every_replica_of_the_training_gets_all_settings(
    cluster: KubernetesCluster, submit: Submit, named: str
) -> None:
    run_id = submit(workers=2, gpus_per_worker=1, pods=settings(named))
    check_run(cluster, run_id, named, jobs=1)


def test_every_replica_of_every_trial_gets_all_settings(
    cluster: KubernetesCluster, submit: Submit, named: str
) -> None:
    if not has_katib(cluster):
        pytest.skip("this cluster has no Katib")
    assert podium("upload", "tune_and_promote").returncode == 0
    run_id = submit(
        "tune-and-promote",
        max_trials=2,
        parallel_trials=2,
        trial_workers=2,
        gpus_per_worker=1,
        pods=settings(named),
    )
    check_run(cluster, run_id, named, jobs=2)

"""`podium compile --platform` on a live server that knows kfp-kubernetes: its settings are in the pods of the steps."""

import json
from pathlib import Path
from typing import Any

import pytest
from kfp_server_api import HealthzServiceApi
from livekubeflow import NAMESPACE, Submit, client, end_of, podium, pods_of

from podium.cluster.kubernetes.cluster import KubernetesCluster

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(1200)]
TOLERATION = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}


def knows_kfp_kubernetes() -> bool:
    """Tell a new server by what it says of itself: 2.0.5 accepts such a pipeline and fails in its driver (observed)."""
    return (
        HealthzServiceApi(client().api_client).healthz_service_get_healthz().pipeline_store
        is not None
    )


def steps_of(cluster: KubernetesCluster, run_id: str) -> list[dict[str, Any]]:
    """List the pods of a run's steps, without those of drivers."""
    pods = pods_of(cluster, f"pipeline/runid={run_id}")
    return [pod for pod in pods if "-impl-" in pod["metadata"]["name"]]


def test_platform_settings_are_in_every_step(
    cluster: KubernetesCluster, submit: Submit, tmp_path: Path
) -> None:
    if not knows_kfp_kubernetes():
        pytest.skip("this Kubeflow Pipelines is too old for platform settings")
    settings = ("secret=mlpipeline-minio-artifact", "timeout=1234", "retries=1", "pull_policy=Never",
                f"tolerations={json.dumps([TOLERATION])}")  # fmt: skip
    flags = [word for setting in settings for word in ("--platform", setting)]
    compiled = tmp_path / "pipeline.yaml"
    assert podium("compile", "train_and_promote", *flags, "-o", str(compiled)).returncode == 0
    name = "podium-test-platform"
    assert podium("upload", str(compiled), "--name", name).returncode == 0
    assert "unchanged" in podium("upload", str(compiled), "--name", name).stdout
    run_id = submit(name, workers=0)
    assert end_of(run_id) == "SUCCEEDED"
    steps = steps_of(cluster, run_id)
    assert len(steps) >= 4  # the data may come from the cache
    for pod in steps:
        check_step(pod)
    workflow = cluster.api.custom.list_namespaced_custom_object(
        "argoproj.io", "v1alpha1", NAMESPACE, "workflows", label_selector=f"pipeline/runid={run_id}"
    )["items"][0]
    retried = [
        template for template in workflow["spec"]["templates"] if "retryStrategy" in template
    ]
    assert retried


def check_step(pod: dict[str, Any]) -> None:
    """Compare a step's pod with the settings."""
    assert pod["spec"]["activeDeadlineSeconds"] == 1234
    assert TOLERATION in pod["spec"]["tolerations"]
    (main,) = [container for container in pod["spec"]["containers"] if container["name"] == "main"]
    assert main["imagePullPolicy"] == "Never"
    env = {variable["name"]: variable.get("valueFrom", {}) for variable in main["env"]}
    for name, key in (("AWS_ACCESS_KEY_ID", "accesskey"), ("AWS_SECRET_ACCESS_KEY", "secretkey")):
        reference = env[name]["secretKeyRef"]
        assert (reference["name"], reference["key"]) == ("mlpipeline-minio-artifact", key)

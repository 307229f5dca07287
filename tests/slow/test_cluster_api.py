"""`podium.sweep` on a live cluster with Katib, from Python: pytest --cluster, any kubeconfig.

PODIUM_TEST_PYTHON names an image with python (python:3.11-slim).
"""

import os
import uuid
from collections.abc import Iterator

import pytest
from livekubeflow import has_katib
from sweep_manifests import job, write_experiment

import podium
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import InvalidInput, NotFound

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
IMAGE = os.environ.get("PODIUM_TEST_PYTHON", "python:3.11-slim")

PROGRAM = "'import time; time.sleep(4); print(\"loss=\" + str((${trialParameters.x} - 0.5) ** 2)); time.sleep(2)'"
"""Katib's collector misses a program that has ended before it looks."""


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace of its own in which Katib collects metrics."""
    name = f"podium-api-{uuid.uuid4().hex[:8]}"
    labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
    with KubernetesCluster(f"kubernetes://{name}") as there:
        if not has_katib(there):
            pytest.skip("this cluster has no Katib")
        core = there.api.core
        core.create_namespace({"metadata": {"name": name, "labels": labels}})
        yield f"kubernetes://{name}"
        core.delete_namespace(name)


def test_a_sweep_on_a_cluster_ends_with_its_best_trial(namespace: str) -> None:
    container = {
        "image": IMAGE, "securityContext": {"runAsUser": 1000},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }  # fmt: skip
    trial = job(["python", "-c", PROGRAM], **container)
    manifest = write_experiment(
        trial, name="bowl", maxFailedTrialCount=1, template={"retain": True}
    )
    sweep = podium.sweep(manifest, cluster=namespace)
    assert sweep.status == "Succeeded"
    assert sweep.best.value == pytest.approx((sweep.best.parameters["x"] - 0.5) ** 2)
    assert len(sweep.trials) == len(sweep.plot.history().data[1].y) == 2
    assert f"loss={sweep.best.value}"[:12] in sweep.logs()
    with pytest.raises(InvalidInput, match="there is nothing to stop"):
        sweep.stop()
    sweep.delete()
    with pytest.raises(NotFound):
        podium.open_sweep("bowl", cluster=namespace)

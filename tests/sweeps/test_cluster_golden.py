"""Experiments that a real Katib 0.19 ran end by podium-engine on a live cluster as they ended there."""

import json
import subprocess
import time
import uuid
from collections.abc import Iterator

import pytest
from katibcases import CASES, GOLDEN, experiment_of
from test_experiment_golden import RESUMED, SEARCH_DEPENDS, check_end

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.manifests.experiment import Experiment
from podium.manifests.job_editor import JobEditor

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

NAMESPACE = "kubeflow"
PROGRAMS = "/opt/programs"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    with KubernetesCluster(f"kubernetes://{NAMESPACE}") as opened:
        if opened.has_katib:
            pytest.skip("Katib runs the Experiments of this cluster")
        if not opened.api.serves("Experiment"):
            pytest.skip("deploy/engine is not applied")
        yield opened


@pytest.fixture(scope="module")
def programs(cluster: KubernetesCluster) -> Iterator[str]:
    """A ConfigMap with what the trials run."""
    name = f"golden-{uuid.uuid4().hex[:8]}"
    kubectl = ["kubectl", "-n", NAMESPACE]
    files = [f"--from-file={file}" for file in sorted((GOLDEN / "programs").iterdir())]
    subprocess.run([*kubectl, "create", "configmap", name, *files], check=True, capture_output=True)
    yield name
    subprocess.run([*kubectl, "delete", "configmap", name], check=True, capture_output=True)


def on_the_cluster(experiment: Experiment, programs: str) -> Experiment:
    """Let the trials run in an image of Python, with the programs where Katib's had them."""

    def change(editor: JobEditor) -> None:
        for _, template in editor.templates:
            template["spec"]["securityContext"] = {"runAsUser": 1000}
            template["spec"]["volumes"] = [{"name": "programs", "configMap": {"name": programs}}]
        for _, container in editor.containers():
            container["image"] = "python:3.11-slim"
            container["volumeMounts"] = [{"name": "programs", "mountPath": PROGRAMS}]
            container["resources"] = {"requests": {"cpu": "20m", "memory": "32Mi"}}

    return experiment.changed_job(change)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, case in CASES.items()
        if name not in RESUMED | SEARCH_DEPENDS and "refused" not in case.get("podium", {})
    ],
)
def test_a_cluster_ends_an_experiment_as_katib_did(
    name: str, cluster: KubernetesCluster, programs: str
) -> None:
    made = Experiment.parse(json.loads(json.dumps(experiment_of(CASES[name], PROGRAMS))))
    cluster.delete("Experiment", name)
    cluster.create(on_the_cluster(made, programs))
    try:
        for _ in cluster.watch("Experiment", name, timeout=400):
            pass
        end = time.monotonic() + 60
        while (status := dict(cluster.experiment(name).status)) and (
            status.get("trialsRunning")
            or status.get("trialsPending")
            or status.get("trials") != len(cluster.trials(name))
        ):
            assert time.monotonic() < end, "the counts never followed"
            time.sleep(0.5)
        trials = [dict(trial.manifest) for trial in cluster.trials(name)]
    finally:
        cluster.delete("Experiment", name)
    check_end(name, status, trials)

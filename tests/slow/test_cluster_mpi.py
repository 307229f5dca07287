"""MPIJobs on a live cluster: ranks of one training in several pods, as a job and as trials.

PODIUM_TEST_NAMESPACE names a namespace in which a training operator 1.9 runs MPIJobs (kubeflow).
PODIUM_TEST_MPI_IMAGE names podium-trainer with Debian's openmpi-bin (podium-trainer-mpi:0.1.0).
"""

import base64
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from livekubeflow import NAMESPACE, podium

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.manifests.typed import typed

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

IMAGE = os.environ.get("PODIUM_TEST_MPI_IMAGE", "podium-trainer-mpi:0.1.0")
# As Katib's mpijob-horovod example starts its trainer.
MPIRUN = "mpirun --allow-run-as-root -np 2 -bind-to none -map-by slot -x PATH -mca pml ob1"
TRAINER = "python3 -m podium.trainer --data /data/tiny --model fast --epochs 1 --batch-size 32"


@pytest.fixture
def cluster() -> Iterator[KubernetesCluster]:
    with KubernetesCluster(f"kubernetes://{NAMESPACE}") as opened:
        if not opened.api.serves("MPIJob"):
            pytest.skip("the training operator of this cluster has no MPIJobs")
        yield opened


@pytest.fixture
def name(cluster: KubernetesCluster, tiny_dataset: Path) -> Iterator[str]:
    """Name of what a test makes: a dataset in a ConfigMap and a claim for models are there."""
    name, core = f"mpi-{uuid.uuid4().hex[:6]}", cluster.api.core
    place = tiny_dataset.parent  # the test part lies beside it
    files = [path for path in sorted(place.rglob("*")) if path.is_file()]
    data = {
        str(path.relative_to(place)).replace("/", ".."): base64.b64encode(
            path.read_bytes()
        ).decode()
        for path in files
    }
    claim = {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "100Mi"}},
        },
    }
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": name}, "binaryData": data})
    core.create_namespaced_persistent_volume_claim(NAMESPACE, claim)
    try:
        yield name
    finally:
        for kind in ("MPIJob", "Job"):
            cluster.delete(kind, name)
        core.delete_namespaced_config_map(name, NAMESPACE)
        core.delete_namespaced_persistent_volume_claim(name, NAMESPACE)


def pod(cluster: KubernetesCluster, name: str, **container: Any) -> dict[str, Any]:
    """Write a pod template that has the data at /data and the claim at /volume."""
    keys = cluster.api.core.read_namespaced_config_map(name, NAMESPACE).binary_data
    items = [{"key": key, "path": key.replace("..", "/")} for key in keys]
    mounts = [{"name": volume, "mountPath": f"/{volume}"} for volume in ("data", "volume")]
    given = {"name": "training", "image": IMAGE, "volumeMounts": mounts, **container}
    volumes = [
        {"name": "data", "configMap": {"name": name, "items": items}},
        {"name": "volume", "persistentVolumeClaim": {"claimName": name}},
    ]
    security = {"runAsUser": 1000, "fsGroup": 1000}
    return {"spec": {"containers": [given], "volumes": volumes, "securityContext": security}}


def mpijob(cluster: KubernetesCluster, name: str, words: str) -> dict[str, Any]:
    specs = {
        "Launcher": {
            "replicas": 1,
            "template": pod(cluster, name, command=f"{MPIRUN} {TRAINER} {words}".split()),
        },
        "Worker": {"replicas": 2, "template": pod(cluster, name)},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": 1,
            "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": specs,
        },
    }


def steps(cluster: KubernetesCluster, name: str, script: str) -> str:
    """Run a script where the models are; return what it printed."""
    template = pod(cluster, name, image="podium-steps:0.1.0", command=["sh", "-ec", script])
    template["spec"]["restartPolicy"] = "Never"
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    cluster.create(typed({**job, "spec": {"backoffLimit": 0, "template": template}}))
    *_, last = cluster.watch("Job", name, timeout=300)
    said = "\n".join(cluster.logs("Job", name))
    assert last.state.succeeded, said
    return said


def test_ranks_in_two_pods_train_one_model(
    cluster: KubernetesCluster, name: str, tmp_path: Path
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(mpijob(cluster, name, "--output /volume/model")))
    done = podium("job", "run", str(job), "--cluster", f"kubernetes://{NAMESPACE}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("accuracy=") == 1
    assert "launcher-0" in {one.name for one in cluster.replicas("MPIJob", name)}
    assert json.loads(steps(cluster, name, "cat /volume/model/environment.json"))["processes"] == 2


def test_the_best_of_mpijobs_as_trials_is_promoted(
    cluster: KubernetesCluster, name: str, tmp_path: Path
) -> None:
    words = "--lr ${trialParameters.lr} --output /volume/${trialParameters.trial}"
    trial = mpijob(cluster, name, words)
    del trial["metadata"]
    experiment = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": name},
        "spec": {
            "objective": {"type": "maximize", "objectiveMetricName": "accuracy"},
            "algorithm": {"algorithmName": "random"},
            "maxTrialCount": 2,
            "parallelTrialCount": 1,
            "parameters": [
                {
                    "name": "lr",
                    "parameterType": "double",
                    "feasibleSpace": {"min": "0.001", "max": "0.01"},
                }
            ],
            "trialTemplate": {
                "primaryContainerName": "training",
                "trialParameters": [
                    {"name": "lr", "reference": "lr"},
                    {"name": "trial", "reference": "${trialSpec.Name}"},
                ],
                "trialSpec": trial,
            },
        },
    }
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(experiment))
    place = f"kubernetes://{NAMESPACE}?engine=here&state={tmp_path}/state"
    done = podium("experiment", "run", str(file), "--cluster", place, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    best = json.loads(done.stdout)["name"]
    script = f"""
        cd /volume; export PODIUM_STORAGE=/volume/registry HOME=/tmp
        podium models upload mpi /volume/{best} --version best --data /data/tiny
        podium models promote mpi best
        podium models show mpi champion"""
    assert "best" in steps(cluster, name, script)

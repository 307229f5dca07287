"""Pods in a live namespace that enforces Pod Security "restricted": what runs there, and what is said of the rest.

The nodes have the image podium-trainer:0.1.0; PODIUM_TEST_ROOT_IMAGE names one with sh whose user is root
(python:3.11-slim).
"""

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from livekubeflow import has_katib, podium
from pytorchjobs import write_pytorchjob

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import PodiumError
from podium.manifests.conditions import status_of
from podium.manifests.labels import METRICS_INJECTION
from podium.manifests.placement import Pods, place
from podium.manifests.workload import Workload

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600)]
TRAINER = os.environ.get("PODIUM_TEST_TRAINER_IMAGE", "podium-trainer:0.1.0")
ROOT_IMAGE = os.environ.get("PODIUM_TEST_ROOT_IMAGE", "python:3.11-slim")
LITTLE = {"requests": {"cpu": "50m", "memory": "64Mi"}}


LEARN = """
python3 -c "
import random
print('a,b,y')
for n in range(300):
    a, b = random.random(), random.random()
    print(f'{a},{b},{\\"yes\\" if a > b else \\"no\\"}')" >/tmp/t.csv
podium data prepare table:/tmp/t.csv --target y --output /tmp/data &&
python3 -m podium.trainer --data=/tmp/data --model=mlp --epochs=1 --output=/tmp/model &&
test -s /tmp/model/model.onnx && id -u
"""
"""A table made up, prepared and learned from."""

_SAY = 'print("loss=" + str(time.time()), "x=${trialParameters.x}", flush=True)'
WORSE_EACH_TIME = f"'import time; [({_SAY}, time.sleep(1)) for _ in range(30)]'"
"""A trial that is worse than each one before it, in quotes: Katib makes a command one line for sh."""


@pytest.fixture(scope="module")
def restricted() -> Iterator[KubernetesCluster]:
    """A namespace of its own that enforces restricted, for the time of these tests."""
    name = f"podium-restricted-{uuid.uuid4().hex[:8]}"
    with KubernetesCluster(f"kubernetes://{name}") as there:
        core = there.api.core
        labels = {"pod-security.kubernetes.io/enforce": "restricted", METRICS_INJECTION: "enabled"}
        core.create_namespace({"metadata": {"name": name, "labels": labels}})
        yield there
        core.delete_namespace(name)


def job(image: str, script: str, **container: Any) -> dict[str, Any]:
    main = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", script],
        "resources": LITTLE,
        **container,
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [main]}}
    metadata = {"name": f"test-{uuid.uuid4().hex[:8]}"}
    spec = {"backoffLimit": 0, "activeDeadlineSeconds": 120, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def run(cluster: KubernetesCluster, manifest: dict[str, Any], folder: Path) -> Any:
    """Run a job's file there as a user does."""
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(manifest))
    return podium("job", "run", str(file), "--cluster", cluster.url)


def test_a_job_runs_as_the_images_own_user(restricted: KubernetesCluster, tmp_path: Path) -> None:
    done = run(restricted, job(TRAINER, "id -u; touch ~/x && echo wrote"), tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["1000", "wrote"]), done.stderr


def test_a_root_image_ends_with_the_settings_that_help(
    restricted: KubernetesCluster, tmp_path: Path
) -> None:
    done = run(restricted, job(ROOT_IMAGE, "id -u"), tmp_path)
    assert done.returncode == 1
    assert "image will run as root" in done.stderr
    assert 'pods={"run_as_user": 1000}' in done.stderr


def test_a_root_image_runs_with_another_user(restricted: KubernetesCluster, tmp_path: Path) -> None:
    placed = place(
        Workload.parse(job(ROOT_IMAGE, "id -u; touch ~/x && echo wrote")), Pods(run_as_user=1234)
    )
    done = run(restricted, dict(placed.manifest), tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["1234", "wrote"]), done.stderr


def test_the_trainer_needs_no_user_and_no_writable_root(
    restricted: KubernetesCluster, tmp_path: Path
) -> None:
    volume = [{"name": "tmp", "mountPath": "/tmp"}]
    context = {"runAsUser": 54321, "readOnlyRootFilesystem": True}
    env = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    manifest = job(TRAINER, LEARN, volumeMounts=volume, securityContext=context, env=env)
    manifest["spec"]["template"]["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}]
    done = run(restricted, manifest, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "54321"


def test_the_nodes_of_a_trainjob_run(restricted: KubernetesCluster, tmp_path: Path) -> None:
    try:
        restricted.list("TrainJob")
    except PodiumError:
        pytest.skip("this cluster has no Kubeflow Trainer 2")
    trainer = {
        "numNodes": 2,
        "image": TRAINER,
        "command": ["sh", "-c", "id -u"],
        "resourcesPerNode": LITTLE,
    }
    metadata = {"name": f"test-{uuid.uuid4().hex[:8]}"}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": spec,
    }
    done = run(restricted, manifest, tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["1000"]), done.stderr


def test_a_pytorchjobs_workers_run_or_the_refusal_is_explained(
    restricted: KubernetesCluster, tmp_path: Path
) -> None:
    doctor = podium("doctor", "--namespace", restricted.api.namespace, "--json")
    (level,) = [
        finding
        for finding in json.loads(doctor.stdout)["reports"][0]["findings"]
        if finding["rule"] == "pod-security"
    ]
    assert (level["level"], "controllers' containers" in level["what"]) == ("warn", True)
    spec = write_pytorchjob(
        name=f"test-{uuid.uuid4().hex[:8]}", image=TRAINER, command=("sh", "-c", "sleep 5"), workers=1,
        resources={"cpu": "50m", "memory": "64Mi"}, restart_policy="Never", active_deadline_seconds=120,
    )  # fmt: skip
    done = run(restricted, spec, tmp_path)
    if done.returncode:  # an operator whose template has a securityContext runs it
        assert 'container "init-pytorch" must set' in done.stderr
        assert "deploy/training-operator" in done.stderr


def stopped_sweep() -> dict[str, Any]:
    """Write a sweep whose second trial is stopped early."""
    main = {
        "name": "main",
        "image": TRAINER,
        "command": ["python3", "-c", WORSE_EACH_TIME],
        "resources": LITTLE,
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [main]}}
    trial = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"backoffLimit": 0, "template": template},
    }
    settings = {"min_trials_required": "1", "start_step": "3"}
    spec = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "algorithm": {"algorithmName": "random"},
        "earlyStopping": {
            "algorithmName": "medianstop",
            "algorithmSettings": [{"name": name, "value": value} for name, value in settings.items()],
        },
        "parallelTrialCount": 1, "maxTrialCount": 2, "maxFailedTrialCount": 0,
        "parameters": [{"name": "x", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}],
        "trialTemplate": {
            "primaryContainerName": "main", "retain": True, "trialSpec": trial,
            "trialParameters": [{"name": "x", "reference": "x"}],
        },
    }  # fmt: skip
    metadata = {"name": f"test-{uuid.uuid4().hex[:8]}"}
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": metadata,
        "spec": spec,
    }


def test_katibs_sweep_runs_or_the_refusal_is_explained(
    restricted: KubernetesCluster, tmp_path: Path
) -> None:
    if not has_katib(restricted):
        pytest.skip("this cluster has no Katib")
    sweep = stopped_sweep()
    file, name = tmp_path / "sweep.yaml", sweep["metadata"]["name"]
    file.write_text(yaml.safe_dump(sweep))
    done = podium("experiment", "run", str(file), "--cluster", restricted.url)
    if done.returncode:  # Katib is as it comes
        assert "violates PodSecurity" in done.stderr
        assert "deploy/katib" in done.stderr
    else:
        trials = restricted.list("Trial", {"katib.kubeflow.org/experiment": name})
        assert sorted(status_of(trial).phase for trial in trials) == ["EarlyStopped", "Succeeded"]

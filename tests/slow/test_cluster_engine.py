"""Experiments on a live cluster without Katib, where deploy/engine is applied: kubectl's and KatibClient's way."""

import subprocess
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from podium.cluster.kubernetes.cluster import KubernetesCluster

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

RATES = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: NAME}
spec:
  objective: {type: minimize, objectiveMetricName: loss}
  algorithm: {algorithmName: random}
  maxTrialCount: 4
  parallelTrialCount: 2
  maxFailedTrialCount: 1
  parameters:
    - {name: lr, parameterType: double, feasibleSpace: {min: "0.1", max: "0.9"}}
  trialTemplate:
    primaryContainerName: main
    trialParameters: [{name: lr, reference: lr}]
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      spec:
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            containers:
              - name: main
                image: podium-steps:0.1.0
                command: [sh, -c, "sleep 2; echo loss=${trialParameters.lr}"]
"""


@pytest.fixture
def cluster() -> Iterator[KubernetesCluster]:
    with KubernetesCluster("kubernetes://kubeflow") as opened:
        if opened.has_katib:
            pytest.skip("Katib runs the Experiments of this cluster")
        if not opened.runs_experiments:
            pytest.skip("no podium-engine leads in the namespace: deploy/engine")
        yield opened


@pytest.fixture
def name(cluster: KubernetesCluster) -> Iterator[str]:
    given = f"engine-{uuid.uuid4().hex[:6]}"
    yield given
    cluster.delete("Experiment", given)


def kubectl(*words: str, text: str = "") -> str:
    done = subprocess.run(
        ["kubectl", "-n", "kubeflow", *words], input=text, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ended(cluster: KubernetesCluster, name: str) -> dict[str, Any]:
    for _ in cluster.watch("Experiment", name, timeout=180):
        pass
    return dict(cluster.experiment(name).status)


def test_kubectl_apply_runs_an_experiment(cluster: KubernetesCluster, name: str) -> None:
    kubectl("apply", "-f", "-", text=RATES.replace("NAME", name))
    status = ended(cluster, name)
    assert status["conditions"][-1]["reason"] == "ExperimentMaxTrialsReached"
    trials = cluster.trials(name)
    assert [trial.value for trial in trials] == [float(trial.assignments["lr"]) for trial in trials]
    assert name in kubectl("get", "experiments")


def test_a_killed_engine_loses_no_trial(cluster: KubernetesCluster, name: str) -> None:
    kubectl("apply", "-f", "-", text=RATES.replace("NAME", name))
    while not cluster.trials(name):
        time.sleep(0.5)
    kubectl(
        "delete", "pod", "-l", "app.kubernetes.io/name=podium-engine", "--grace-period=0", "--force"
    )
    assert ended(cluster, name)["trialsSucceeded"] == 4
    assert len(cluster.trials(name)) == 4


def test_an_experiment_being_deleted_begins_no_trial(cluster: KubernetesCluster, name: str) -> None:
    held = yaml.safe_load(RATES.replace("NAME", name))
    held["metadata"]["finalizers"] = ["podium.dev/test"]
    held["spec"]["maxTrialCount"] = 12
    kubectl("create", "-f", "-", text=yaml.safe_dump(held))
    try:
        while not cluster.trials(name):
            time.sleep(0.5)
        kubectl("delete", "experiment", name, "--wait=false")
        time.sleep(5)
        begun = len(cluster.trials(name))
        time.sleep(10)
        assert len(cluster.trials(name)) == begun < 12
        assert not [job for job in cluster.list("Job") if job.name.startswith(name)]
    finally:
        kubectl(
            "patch", "experiment", name, "--type=merge", "-p", '{"metadata": {"finalizers": null}}'
        )


PYTORCHJOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: pytorch
              image: podium-steps:0.1.0
              command: [sh, -c, "sleep 600"]
    Worker:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: pytorch
              image: podium-steps:0.1.0
              command: [cat, "/no/dataset/${trialParameters.lr}"]
"""


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_a_failed_trial_says_why_until_the_experiment_ends(
    cluster: KubernetesCluster, name: str, kind: str
) -> None:
    failing = yaml.safe_load(RATES.replace("NAME", name))
    template = failing["spec"]["trialTemplate"]
    if kind == "PyTorchJob":
        template |= {"trialSpec": yaml.safe_load(PYTORCHJOB), "primaryContainerName": "pytorch"}
    else:
        pod = template["trialSpec"]["spec"]["template"]["spec"]
        pod["containers"][0]["command"] = ["cat", "/no/dataset/${trialParameters.lr}"]
    failing["spec"] |= {"parallelTrialCount": 1, "maxFailedTrialCount": 2, "maxTrialCount": 2}
    kubectl("create", "-f", "-", text=yaml.safe_dump(failing))
    while not [trial for trial in cluster.trials(name) if trial.phase == "Failed"]:
        time.sleep(0.5)
    failed = next(trial for trial in cluster.trials(name) if trial.phase == "Failed")
    assert "No such file or directory" in failed.message
    replica = "worker-0" if kind == "PyTorchJob" else None
    assert "No such file or directory" in "".join(cluster.logs(kind, failed.name, replica))
    ended(cluster, name)
    end = time.monotonic() + 30
    while [job for job in cluster.list(kind) if job.name.startswith(name)]:
        assert time.monotonic() < end
        time.sleep(0.5)


def test_the_api_server_refuses_what_it_can(cluster: KubernetesCluster) -> None:
    twice = yaml.safe_load(RATES.replace("NAME", "refused"))
    twice["spec"]["parameters"] *= 2
    done = subprocess.run(
        ["kubectl", "-n", "kubeflow", "create", "-f", "-"],
        input=yaml.safe_dump(twice),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "spec.parameters[1]: Duplicate value" in done.stderr


def test_the_official_client_runs_an_experiment(name: str) -> None:
    katib = pytest.importorskip("kubeflow.katib")
    client = katib.KatibClient(namespace="kubeflow")
    client.create_experiment(yaml.safe_load(RATES.replace("NAME", name)))
    client.wait_for_experiment_condition(name=name, timeout=180, polling_interval=2)
    best = client.get_optimal_hyperparameters(name)
    details = client.get_success_trial_details(name)
    assert len(details) == 4
    assert best.best_trial_name in [trial["name"] for trial in details]

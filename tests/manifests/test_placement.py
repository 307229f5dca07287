"""What is said once about pods reaches every replica of jobs and trials."""

from typing import Any

import pytest
from pytorchjobs import write_pytorchjob

from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, check as check_experiment
from podium.manifests.placement import Pods, place
from podium.manifests.workload import Workload

GIVEN: dict[str, Any] = {
    "cpu": "2",
    "memory": "4Gi",
    "node_selector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "env": {"NCCL_DEBUG": "INFO"},
    "secret_env": {"WANDB_API_KEY": "tracking/key"},
    "claims": {"/data": "mnist"},
    "queue": "team",
    "queue_priority": "urgent",
    "priority_class": "high",
    "service_account": "trainer",
    "image_pull_secrets": ["registry"],
    "labels": {"team": "vision"},
    "security": "baseline",
    "run_as_user": 1000,
}


def check(template: dict[str, Any]) -> None:
    spec = template["spec"]
    (container,) = spec["containers"]
    env = {variable["name"]: variable for variable in container["env"]}
    assert template["metadata"]["labels"]["team"] == "vision"
    assert spec["nodeSelector"] == {"pool": "gpu"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert spec["priorityClassName"] == "high"
    assert spec["serviceAccountName"] == "trainer"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["securityContext"] == {"runAsUser": 1000, "runAsNonRoot": False}
    assert {"name": "claim-0", "persistentVolumeClaim": {"claimName": "mnist"}} in spec["volumes"]
    assert {"name": "claim-0", "mountPath": "/data"} in container["volumeMounts"]
    assert env["NCCL_DEBUG"]["value"] == "INFO"
    assert env["WANDB_API_KEY"]["valueFrom"] == {"secretKeyRef": {"name": "tracking", "key": "key"}}
    assert container["resources"]["requests"]["cpu"] == "2"
    assert (
        container["resources"]["limits"]["memory"]
        == container["resources"]["requests"]["memory"]
        == "4Gi"
    )


def test_every_replica_gets_all_settings_and_keeps_its_gpus() -> None:
    job = write_pytorchjob(
        name="mnist", image="trainer", command=("python",), workers=2, gpus_per_worker=1
    )
    placed = place(Workload.parse(job), Pods.read(GIVEN)).manifest
    assert placed["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert placed["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "urgent"
    for replica in placed["spec"]["pytorchReplicaSpecs"].values():
        check(replica["template"])
        resources = replica["template"]["spec"]["containers"][0]["resources"]
        assert (
            resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == "1"
        )
        assert replica["template"]["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"


@pytest.mark.parametrize("name", ["random", "random-job"])
def test_every_trial_gets_all_of_it(name: str) -> None:
    placed = place(Experiment.load(name), Pods.read(GIVEN))
    trial = placed.manifest["spec"]["trialTemplate"]["trialSpec"]
    replicas = trial["spec"].get("pytorchReplicaSpecs")
    for replica in replicas.values() if replicas else [trial["spec"]]:
        check(replica["template"])
    assert trial["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert trial["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "urgent"
    check_experiment(placed)


@pytest.mark.parametrize(
    ("given", "threads"),
    [
        ({"cpu": "4"}, "4"),
        ({"cpu": "500m"}, "1"),
        ({"cpu": "3500m"}, "4"),
        ({"cpu": "4", "env": {"OMP_NUM_THREADS": "2"}}, "2"),
        ({"memory": "1Gi"}, None),
    ],
)
def test_a_pod_has_as_many_threads_as_requested_cores(
    given: dict[str, Any], threads: str | None
) -> None:
    job = write_pytorchjob(name="mnist", image="trainer", command=("python",), workers=1)
    for replica in (
        place(Workload.parse(job), Pods.read(given))
        .manifest["spec"]["pytorchReplicaSpecs"]
        .values()
    ):
        env = {
            variable["name"]: variable["value"]
            for variable in replica["template"]["spec"]["containers"][0].get("env", [])
        }
        assert env.get("OMP_NUM_THREADS") == threads


def test_nothing_said_changes_nothing() -> None:
    job = write_pytorchjob(name="mnist", image="trainer", command=("python",))
    assert place(Workload.parse(job), Pods.read({})).manifest == job


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gpus": 1}, "no setting 'gpus'"),
        ({"nodeSelector": {}}, "no setting 'nodeSelector'"),
        ({"cpu": 2}, "cpu must be text, not 2"),
        ({"cpu": "two"}, "cpu is an amount.*'two'"),
        ({"memory": "4 gigabytes"}, "memory is an amount"),
        ({"memory": "4 Gi"}, "memory is an amount"),
        ({"memory": "1K"}, "memory is an amount"),
        ({"cpu": "-1"}, "cpu is an amount"),
        ({"cpu": "inf"}, "cpu is an amount"),
        ({"labels": {"team": "vision & text"}}, "can have the label team='vision & text'"),
        ({"labels": {"team": "x" * 64}}, "can have the label team="),
        ({"node_selector": {"gpu": True}}, "node_selector holds texts by name, but 'gpu'"),
        ({"env": {"OMP_NUM_THREADS": 4}}, "env holds texts by name, but 'OMP_NUM_THREADS'"),
        ({"secret_env": {"KEY": 5}}, "secret_env holds texts by name, but 'KEY'"),
        ({"claims": {5: "mnist"}}, "claims holds texts by name, but 5"),
        ({"node_selector": {"a/b/c": "d"}}, "can have the label a/b/c='d'"),
        ({"queue": "team a"}, "can have the label .*='team a'"),
        ({"tolerations": {}}, "tolerations must be a list"),
        ({"secret_env": {"KEY": "hunter2"}}, "secret-name/key"),
        ({"security": "privileged"}, "one of restricted, baseline"),
        ({"run_as_user": -1}, "run_as_user >= 0"),
        ({"claims": {"data": "mnist"}}, "a mount path is absolute"),
        ({"queue_priority": "urgent"}, "queue_priority needs queue"),
    ],
)
def test_a_wrong_setting_is_refused_and_no_secret_is_shown(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        Pods.read(given)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "spec", [{}, {"containers": [{"env": [{"value": "x"}], "resources": None}]}]
)
def test_what_the_checks_refuse_is_left_to_them(spec: dict[str, Any]) -> None:
    job = Workload.parse({"kind": "Job", "spec": {"template": {"spec": spec}}})
    placed = place(job, Pods.read({"cpu": "2", "env": {"A": "1"}})).manifest["spec"]["template"][
        "spec"
    ]
    for container in placed.get("containers", []):
        assert container["env"][0] == {"value": "x"}
        assert container["resources"] == {"requests": {"cpu": "2"}}

"""A PyTorchJob from a dataclass: one template, references instead of secrets, rules of the operator."""

import json
from typing import Any

import pytest

from podium.errors import InvalidInput
from podium.manifests.pytorchjob import PyTorchJobSpec, SecretKey, build

OWNER = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "run", "uid": "u-1"}


def spec(**changes: Any) -> PyTorchJobSpec:
    given: dict[str, Any] = {"name": "train", "image": "podium", "command": ("python", "-m", "podium.trainer")}
    return PyTorchJobSpec(**given | changes)


def replicas(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["pytorchReplicaSpecs"]
    return found


def test_master_and_workers_differ_in_nothing_but_their_number() -> None:
    both = replicas(build(spec(workers=2)))
    assert both["Master"].pop("replicas") == 1
    assert both["Worker"].pop("replicas") == 2
    assert both["Master"] == both["Worker"]


def test_a_job_without_workers_is_a_master_alone() -> None:
    assert list(replicas(build(spec()))) == ["Master"]


def test_a_trial_template_has_neither_name_nor_namespace() -> None:
    assert "metadata" not in build(spec(name=None))


def test_sidecar_injection_is_switched_off_by_a_pod_label() -> None:
    template = replicas(build(spec(labels={"app": "x"})))["Master"]["template"]
    assert template["metadata"]["labels"] == {"app": "x", "sidecar.istio.io/inject": "false"}


def test_gpus_are_requested_and_limited_alike() -> None:
    template = replicas(build(spec(gpus_per_worker=2, resources={"cpu": "4"})))["Master"]["template"]
    assert template["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "4", "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }


def test_a_secret_is_a_reference() -> None:
    job = build(spec(env={"PLAIN": "1"}, secret_env={"KEY": SecretKey("minio", "secretkey")}))
    assert replicas(job)["Master"]["template"]["spec"]["containers"][0]["env"] == [
        {"name": "PLAIN", "value": "1"},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "minio", "key": "secretkey"}}},
    ]


def test_deadline_owner_and_policies_stand_where_the_operator_reads() -> None:
    job = build(spec(owner=OWNER, active_deadline_seconds=60, ttl_seconds_after_finished=9, processes_per_worker=2))
    assert job["metadata"]["ownerReferences"] == [OWNER]
    assert job["spec"]["nprocPerNode"] == "2"
    assert job["spec"]["runPolicy"] == {
        "activeDeadlineSeconds": 60,
        "backoffLimit": 4,
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": 9,
    }


def test_the_manifest_is_plain_json() -> None:
    job = build(spec(workers=1))
    assert json.loads(json.dumps(job)) == job


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"name": "Train"}, "a letter first"),
        ({"name": "x" * 60}, "choose a shorter name"),
        ({"command": ()}, "command is not empty"),
        ({"image": ""}, "image is not empty"),
        ({"workers": -1}, "workers >= 0"),
        ({"gpus_per_worker": -1}, "gpus_per_worker >= 0"),
        ({"processes_per_worker": 0}, "processes_per_worker >= 1"),
        ({"restart_policy": "Sometimes"}, "restart_policy is one of"),
        ({"clean_pod_policy": "Never"}, "clean_pod_policy is one of"),
    ],
)
def test_a_broken_rule_is_named(change: dict[str, Any], law: str) -> None:
    with pytest.raises(InvalidInput, match=law):
        spec(**change)

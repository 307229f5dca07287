"""A PyTorchJob from a command: one template for Master and Workers, and the operator's rules kept."""

import json
from typing import Any

import pytest

from podium.errors import InvalidInput
from podium.manifests.admission import admit
from podium.manifests.job_kinds import build_pytorchjob


def job(name: str | None = "train", workers: int = 0, **changes: Any) -> dict[str, Any]:
    return build_pytorchjob(**({"image": "podium", "command": ("python", "-m", "podium.trainer")} | changes), name=name,
                 workers=workers)  # fmt: skip


def replicas(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["pytorchReplicaSpecs"]
    return found


def test_master_and_workers_differ_in_nothing_but_their_number() -> None:
    both = replicas(job(workers=2))
    assert both["Master"].pop("replicas") == 1
    assert both["Worker"].pop("replicas") == 2
    assert both["Master"] == both["Worker"]
    assert both["Master"]["template"] is not both["Worker"]["template"]


def test_a_job_without_workers_is_a_master_alone() -> None:
    assert list(replicas(job())) == ["Master"]


def test_a_trial_template_has_neither_name_nor_namespace() -> None:
    assert "metadata" not in job(name=None)


def test_sidecar_injection_is_switched_off_by_a_pod_label() -> None:
    template = replicas(job())["Master"]["template"]
    assert template["metadata"]["labels"] == {"sidecar.istio.io/inject": "false"}


def test_every_replica_may_restart_three_times() -> None:
    assert job(workers=1)["spec"]["runPolicy"] == {"backoffLimit": 7, "cleanPodPolicy": "Running"}


def test_the_manifest_is_plain_json_that_the_operator_admits() -> None:
    manifest = job(workers=1)
    assert json.loads(json.dumps(manifest)) == manifest
    assert admit(manifest).workers == 1


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"name": "Train"}, "a letter first"),
        ({"name": "x" * 60}, "choose a shorter name"),
        ({"image": ""}, "image: must be given"),
        ({"workers": -1}, "replicas >= 1"),
    ],
)
def test_admission_names_the_rule_that_is_broken(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        admit(job(**change))
    assert rule in f"{refused.value.message} {refused.value.hint}"


def mpijob(**workers: int) -> dict[str, Any]:
    def replica(name: str, **given: int) -> dict[str, Any]:
        return {**given, "template": {"spec": {"containers": [{"name": name, "image": "mpi"}]}}}

    specs = {"Launcher": replica("launcher"), "Worker": replica("worker", **workers)}
    named = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "a"}}
    return {**named, "spec": {"mpiReplicaSpecs": specs}}


def test_workers_of_an_mpijob_wait_for_the_launcher() -> None:
    job = admit(mpijob(replicas=2))
    assert [container.words for _, container in job.containers()] == [(), ("sleep", "365d")]


def test_an_mpijob_has_no_workers_that_nobody_counted() -> None:
    with pytest.raises(InvalidInput, match="`replicas >= 1` must hold, but got 0"):
        admit(mpijob())


def test_admission_names_the_policies_there_are() -> None:
    manifest = job()
    replicas(manifest)["Master"]["restartPolicy"] = "Sometimes"
    manifest["spec"] |= {"runPolicy": {"cleanPodPolicy": "Never"}, "nprocPerNode": "0"}
    with pytest.raises(InvalidInput) as refused:
        admit(manifest)
    for rule in (
        "one of Always, OnFailure, Never, ExitCode",
        "one of Running, All, None",
        "auto, cpu, gpu or a number",
    ):
        assert rule in refused.value.message

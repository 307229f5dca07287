"""Pods get small requests and no token where nobody says otherwise."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import World
from pytorchjobs import write_pytorchjob

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.manifests.experiment import Experiment, customize
from podium.manifests.pod_security import with_pod_defaults
from podium.manifests.typed import typed
from podium.manifests.workload import Workload

DEPLOY = Path(__file__).parent.parent.parent / "deploy"


def pod(**changes: Any) -> dict[str, Any]:
    """Build a job of one pod and return its spec with the defaults."""
    spec = write_pytorchjob(name="mnist", image="trainer", command=("python",), **changes)
    job = with_pod_defaults(Workload.parse(spec))
    pod_spec: dict[str, Any] = job.manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"][
        "spec"
    ]
    return pod_spec


def test_launched_pods_get_no_token_and_small_requests(
    cluster: KubernetesCluster, world: World
) -> None:
    cluster.create(
        typed(write_pytorchjob(name="mnist", image="trainer", command=("python",), workers=1))
    )
    for replica in world.objects["pytorchjobs", "mnist"]["spec"]["pytorchReplicaSpecs"].values():
        spec = replica["template"]["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["containers"][0]["resources"] == {
            "requests": {"cpu": "250m", "memory": "512Mi"}
        }


@pytest.mark.parametrize("name", ["random", "random-job"])
def test_pods_of_trials_get_no_token_and_their_runs_label(name: str) -> None:
    launched = customize(Experiment.load(name), labels={"podium/run-id": "r1"})
    trial = with_pod_defaults(launched).manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]
    for replica in (trial.get("pytorchReplicaSpecs") or {"": trial}).values():
        assert replica["template"]["spec"]["automountServiceAccountToken"] is False
        assert replica["template"]["metadata"]["labels"]["podium/run-id"] == "r1"


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob", "TrainJob"])
def test_the_network_policy_selects_every_launched_pod(kind: str) -> None:
    main = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
    spec = {
        "Job": {"template": main},
        "PyTorchJob": {
            "pytorchReplicaSpecs": {"Master": {"template": main}, "Worker": {"template": main}}
        },
        "TrainJob": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"image": "i", "command": ["run"]},
        },
    }
    policy = yaml.safe_load((DEPLOY / "network" / "policy.yaml").read_text())["spec"]
    (expression,) = policy["podSelector"]["matchExpressions"]
    launched = with_pod_defaults(Workload.parse({"kind": kind, "spec": spec[kind]}))
    assert expression["operator"] == "Exists"
    assert all(expression["key"] in replica.pod.labels for replica in launched.replicas)


def test_a_service_account_asked_for_keeps_its_token() -> None:
    assert "automountServiceAccountToken" not in pod(service_account="trainer")


def test_what_users_ask_for_wins() -> None:
    (container,) = pod(resources={"memory": "4Gi"}, gpus_per_worker=1)["containers"]
    assert container["resources"]["requests"] == {
        "cpu": "250m",
        "memory": "4Gi",
        "nvidia.com/gpu": "1",
    }


def test_a_limit_alone_is_no_reason_to_ask_for_more() -> None:
    pod_spec = {"containers": [{"name": "main", "resources": {"limits": {"memory": "100Mi"}}}]}
    job = Workload.parse({"kind": "Job", "spec": {"template": {"spec": pod_spec}}})
    (container,) = with_pod_defaults(job).manifest["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"memory": "100Mi"}, "requests": {"cpu": "250m"}}


def test_a_template_podium_cannot_read_stays_as_it_is() -> None:
    kept = {"kind": "Experiment", "spec": {"trialTemplate": {"configMap": {"configMapName": "x"}}}}
    assert with_pod_defaults(Experiment.parse(kept)).manifest == kept

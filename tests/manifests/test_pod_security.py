"""Launched pods fit a namespace that enforces Pod Security "restricted", unless they ask for more themselves."""

from typing import Any

import pytest
from pytorchjobs import write_pytorchjob

from podium.manifests.placement import Pods, place
from podium.manifests.pod_security import violations, with_pod_defaults
from podium.manifests.workload import Workload


def job(container: dict[str, Any] | None = None, **spec: Any) -> Workload:
    """Write a Job with one container beside what the pod's spec is given."""
    main = {"name": "main", "image": "i", **({"securityContext": container} if container else {})}
    template = {"spec": {"containers": [main], **spec}}
    return Workload.parse({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template}})


def refused(workload: Workload) -> list[str]:
    return [text for replica in workload.replicas for text in violations(replica.pod)]


def secured(workload: Workload) -> dict[str, Any]:
    """Return the securityContext that the first container gets."""
    (replica,) = with_pod_defaults(workload).replicas
    context: dict[str, Any] = replica.pod.containers[0].manifest.get("securityContext", {})
    return context


def test_a_bare_pod_is_refused_and_a_launched_one_fits() -> None:
    assert refused(job()) == [
        "container main: allowPrivilegeEscalation is not false",
        "container main: capabilities.drop lacks ALL",
        "container main: runAsNonRoot is not true",
        "container main: seccompProfile is neither RuntimeDefault nor Localhost",
    ]
    assert refused(with_pod_defaults(job())) == []


def test_init_containers_and_every_replica_fit_too() -> None:
    assert refused(with_pod_defaults(job(initContainers=[{"name": "fetch", "image": "i"}]))) == []
    spec = write_pytorchjob(name="mnist", image="trainer", command=("python",), workers=2)
    assert refused(with_pod_defaults(Workload.parse(spec))) == []


def test_containers_others_add_may_run_as_root() -> None:
    (replica,) = with_pod_defaults(job()).replicas
    assert replica.pod.spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}


def test_what_the_manifest_says_stays() -> None:
    given = {"runAsUser": 7, "capabilities": {"add": ["NET_BIND_SERVICE"]}}
    context = secured(
        job(
            given,
            securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "p"}},
        )
    )
    assert context == {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "runAsUser": 7,
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
    }


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"privileged": True}, "container main: privileged is true"),
        ({"runAsUser": 0}, "container main: runAsUser is 0"),
        ({"runAsNonRoot": False}, "container main: runAsNonRoot is not true"),
        (
            {"allowPrivilegeEscalation": True},
            "container main: allowPrivilegeEscalation is not false",
        ),
        ({"capabilities": {"add": ["IPC_LOCK"]}}, "container main: capabilities.add has IPC_LOCK"),
    ],
)
def test_containers_that_want_privileges_stay_as_written(
    given: dict[str, Any], refusal: str
) -> None:
    assert secured(job(given)) == given
    assert refusal in refused(with_pod_defaults(job(given)))


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"hostNetwork": True}, "hostNetwork is true"),
        ({"volumes": [{"name": "d", "hostPath": {"path": "/d"}}]}, "volume d is of type hostPath"),
        (
            {"containers": [{"name": "m", "ports": [{"hostPort": 80}]}]},
            "container m: it has a hostPort",
        ),
    ],
)
def test_what_reaches_for_the_node_is_refused(spec: dict[str, Any], refusal: str) -> None:
    assert refused(with_pod_defaults(job(**spec))) == [refusal]


def test_baseline_leaves_root_to_the_image() -> None:
    placed = place(job(), Pods.read({"security": "baseline"}))
    (replica,) = with_pod_defaults(placed).replicas
    assert replica.pod.spec["securityContext"] == {"runAsNonRoot": False}
    assert "securityContext" not in replica.pod.containers[0].manifest


def test_a_user_of_ones_own_gets_a_home() -> None:
    placed = place(job(), Pods.read({"run_as_user": 1234}))
    (replica,) = with_pod_defaults(placed).replicas
    assert replica.pod.spec["securityContext"]["runAsUser"] == 1234
    assert replica.pod.containers[0].env["HOME"].value == "/tmp"
    assert refused(with_pod_defaults(placed)) == []


def test_the_nodes_of_a_trainjob_fit_by_its_patches() -> None:
    trainer = {"numNodes": 2, "image": "i", "command": ["python", "train.py"]}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    written = Workload.parse(
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}
    )
    launched = with_pod_defaults(place(written, Pods.read({"run_as_user": 1234})))
    assert refused(written)
    assert refused(launched) == []
    assert launched.manifest["spec"]["trainer"]["env"] == [{"name": "HOME", "value": "/tmp"}]

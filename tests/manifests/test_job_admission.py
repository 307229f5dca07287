"""Jobs are refused where the API server and the training operator's webhook refuse them.

What a change does to a job was asked of Kubernetes 1.34 with training operator 1.9. It takes a
PyTorchJob with a label of several words, two containers of one name, a name with a capital, or
another policy, and then cannot create its pods.
"""

from collections.abc import Callable
from typing import Any

import pytest
from pytorchjobs import write_pytorchjob

from podium.manifests.admission import admit
from podium.manifests.rules import BrokenRules

Change = Callable[[dict[str, Any]], Any]


def pod_template(name: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "x", "sidecar.istio.io/inject": "false"}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "securityContext": {"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            ],
            "initContainers": [{"name": "setup", "image": "busybox", "command": ["true"]}],
            "containers": [
                {
                    "name": name,
                    "image": "python",
                    "ports": [{"containerPort": 8080, "name": "http"}],
                    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
                    "envFrom": [{"configMapRef": {"name": "conf"}}],
                    "volumeMounts": [
                        {"name": "data", "mountPath": "/data", "readOnly": True},
                        {"name": "shm", "mountPath": "/dev/shm"},
                    ],
                    "resources": {"limits": {"memory": "2Gi", "nvidia.com/gpu": 1}},
                    "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 10},
                }
            ],
        },
    }


def job(kind: str) -> dict[str, Any]:
    if kind == "PyTorchJob":
        made = write_pytorchjob(image="python", command=["true"], name="job", workers=1)
        for replica in made["spec"]["pytorchReplicaSpecs"].values():
            replica["template"] = pod_template("pytorch")
        return made
    spec = {"template": pod_template("training"), "backoffLimit": 0}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "job"}, "spec": spec}


def pod(made: dict[str, Any]) -> dict[str, Any]:
    roles = made["spec"].get("pytorchReplicaSpecs")
    template: dict[str, Any] = (roles["Worker"] if roles else made["spec"])["template"]
    return template


def container(made: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = pod(made)["spec"]["containers"][0]
    return first


def claim(storage: str) -> dict[str, Any]:
    resources = {"requests": {"storage": storage}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    return {"volumeClaimTemplate": {"spec": spec}}


REFUSED: dict[str, tuple[Change, str]] = {
    "a label that is no text": (
        lambda made: pod(made)["metadata"]["labels"].update({"sidecar.istio.io/inject": False}),
        "metadata.labels.sidecar.istio.io/inject: must be text, but got False",
    ),
    "a label of several words": (
        lambda made: pod(made)["metadata"]["labels"].update(app="a b"),
        "metadata.labels.app: must be a label's name and value",
    ),
    "a node's label that is no text": (
        lambda made: pod(made)["spec"]["nodeSelector"].update(disk=True),
        "spec.nodeSelector.disk: must be text, but got True",
    ),
    "a port in quotes": (
        lambda made: container(made)["ports"][0].update(containerPort="8080"),
        "ports[0].containerPort: must be an integer, but got '8080'",
    ),
    "a flag in quotes": (
        lambda made: container(made)["volumeMounts"][0].update(readOnly="yes"),
        "volumeMounts[0].readOnly: must be true or false, but got 'yes'",
    ),
    "a user's name for a number": (
        lambda made: pod(made)["spec"]["securityContext"].update(runAsUser="me"),
        "spec.securityContext.runAsUser: must be an integer, but got 'me'",
    ),
    "a toleration's value that is no text": (
        lambda made: pod(made)["spec"]["tolerations"][0].update(value=True),
        "spec.tolerations[0].value: must be text, but got True",
    ),
    "a claim without its name": (
        lambda made: pod(made)["spec"]["volumes"][0].update(persistentVolumeClaim={"claim": "x"}),
        "persistentVolumeClaim.claimName: must be given, but got None",
    ),
    "memory's limit that is no amount": (
        lambda made: pod(made)["spec"]["volumes"][1]["emptyDir"].update(sizeLimit="1 GB"),
        "emptyDir.sizeLimit: must be an amount of a resource, but got '1 GB'",
    ),
    "memory's limit in a list": (
        lambda made: pod(made)["spec"]["volumes"][1]["emptyDir"].update(sizeLimit=["1Gi"]),
        "emptyDir.sizeLimit: must be an amount of a resource, but got ['1Gi']",
    ),
    "a claim's request that is no amount": (
        lambda made: pod(made)["spec"]["volumes"].append(
            {"name": "own", "ephemeral": claim("inf")}
        ),
        "resources.requests.storage: must be an amount of a resource, but got 'inf'",
    ),
    "a mount without its path": (
        lambda made: container(made)["volumeMounts"][0].pop("mountPath"),
        "volumeMounts[0].mountPath: must be given, but got None",
    ),
    "two mounts at one path": (
        lambda made: container(made)["volumeMounts"][1].update(mountPath="/data"),
        "volumeMounts[1].mountPath: must be unique, but got '/data'",
    ),
    "two containers of one name": (
        lambda made: pod(made)["spec"]["initContainers"][0].update(name=container(made)["name"]),
        "spec.initContainers[0].name: must be unique",
    ),
    "two volumes of one name": (
        lambda made: pod(made)["spec"]["volumes"].append({"name": "shm", "emptyDir": {}}),
        "spec.volumes[2].name: must be unique, but got 'shm'",
    ),
    "an image's policy in lower case": (
        lambda made: container(made).update(imagePullPolicy="ifNotPresent"),
        "imagePullPolicy: must be one of Always, IfNotPresent, Never, but got 'ifNotPresent'",
    ),
    "a container's name with a capital": (
        lambda made: pod(made)["spec"]["initContainers"][0].update(name="Setup"),
        "spec.initContainers[0].name: must be lower case letters, digits and -, but got 'Setup'",
    ),
}
ROLES: dict[str, tuple[Change, str]] = {
    "two variables of one name": (
        lambda made: container(made)["env"].append({"name": "A", "value": "2"}),
        "env[2].name: must be unique, but got 'A'",
    ),
    "a Master without replicas": (
        lambda made: made["spec"]["pytorchReplicaSpecs"]["Master"].pop("replicas"),
        "spec.pytorchReplicaSpecs.Master.replicas: must be given, but got None",
    ),
    "a role in capitals": (
        lambda made: made["spec"]["pytorchReplicaSpecs"].update(
            WORKER=made["spec"]["pytorchReplicaSpecs"].pop("Worker")
        ),
        "spec.pytorchReplicaSpecs.WORKER: must be spelled Worker, but got 'WORKER'",
    ),
}
CASES = [
    *((kind, what, *case) for kind in ("Job", "PyTorchJob") for what, case in REFUSED.items()),
    *(("PyTorchJob", what, *case) for what, case in ROLES.items()),
]


@pytest.mark.parametrize(
    ("kind", "what", "change", "says"), CASES, ids=[f"{kind}, {what}" for kind, what, *_ in CASES]
)
def test_what_the_server_refuses_is_refused(
    kind: str, what: str, change: Change, says: str
) -> None:
    made = job(kind)
    admit(made)
    change(made)
    with pytest.raises(BrokenRules) as refused:
        admit(made)
    assert says in refused.value.message
    assert refused.value.hint


def test_an_mpijob_of_another_operator_is_refused_by_its_name() -> None:
    with pytest.raises(BrokenRules) as refused:
        admit({**job("PyTorchJob"), "kind": "MPIJob", "apiVersion": "kubeflow.org/v2beta1"})
    assert "apiVersion: must be kubeflow.org/v1, but got 'kubeflow.org/v2beta1'" in str(
        refused.value.message
    )
    assert "mpi-operator" in str(refused.value.hint)


def test_a_volumes_size_may_be_a_trials_parameter() -> None:
    made = job("Job")
    pod(made)["spec"]["volumes"][1]["emptyDir"]["sizeLimit"] = "${trialParameters.size}"
    pod(made)["spec"]["volumes"].append({"name": "own", "ephemeral": claim("1Gi")})
    assert admit(made).name == "job"


def test_a_job_may_say_a_variable_twice() -> None:
    made = job("Job")
    container(made)["env"].append({"name": "A", "value": "2"})
    assert admit(made).name == "job"


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_seconds_may_be_more_than_an_int32(kind: str) -> None:
    made = job(kind)
    pod(made)["spec"]["terminationGracePeriodSeconds"] = 2**32
    policy = made["spec"] if kind == "Job" else made["spec"].setdefault("runPolicy", {})
    policy["activeDeadlineSeconds"] = 2**32
    forever = {"effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 2**63 - 1}
    pod(made)["spec"]["tolerations"].append(forever)
    assert admit(made).name == made["metadata"]["name"]


def test_a_port_is_less_than_2_to_the_31() -> None:
    made = job("Job")
    container(made)["ports"][0]["containerPort"] = 2**32
    with pytest.raises(BrokenRules, match="containerPort: must be an integer, but got 4294967296"):
        admit(made)


def test_each_wrong_type_is_said_once() -> None:
    made = job("Job")
    container(made)["image"] = True
    with pytest.raises(BrokenRules) as refused:
        admit(made)
    assert len(refused.value.findings) == 1, refused.value.message

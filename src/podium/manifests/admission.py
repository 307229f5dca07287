"""Admission of PyTorchJobs and Jobs: the rules of the operator's webhook and of the API server.

Sources: kubeflow/trainer release-1.9 pkg/webhooks/pytorch and pkg/apis/kubeflow.org/v1; kubernetes
pkg/apis/batch/validation.
"""

from copy import deepcopy
from typing import Any

from podium.manifests.conditions import Manifest
from podium.manifests.experiment.hints import nearest
from podium.manifests.experiment.rules import BOOL, INT, OBJECT, TEXT, Findings, Schema, check_structure, raise_for
from podium.manifests.names import is_dns_1035, is_dns_1123
from podium.manifests.pytorchjob import CLEAN_POD_POLICIES, CONTAINER, RESTART_POLICIES
from podium.manifests.workload import Workload

_CONTAINER: Schema = {
    "name": TEXT,
    "image": TEXT,
    "command": [TEXT],
    "args": [TEXT],
    "workingDir": TEXT,
    "env": [{"name": TEXT, "value": TEXT, "valueFrom": OBJECT}],
    "envFrom": [OBJECT],
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT, "subPath": TEXT}],
    "resources": {"requests": OBJECT, "limits": OBJECT},
}
_TEMPLATE: Schema = {
    "metadata": {"labels": OBJECT, "annotations": OBJECT},
    "spec": {
        "containers": [_CONTAINER],
        "initContainers": [_CONTAINER],
        "volumes": [{"name": TEXT}],
        "restartPolicy": TEXT,
        "terminationGracePeriodSeconds": INT,
    },
}
_METADATA: Schema = {
    "name": TEXT,
    "generateName": TEXT,
    "namespace": TEXT,
    "labels": OBJECT,
    "annotations": OBJECT,
    "ownerReferences": [OBJECT],
}
_REPLICA: Schema = {"replicas": INT, "restartPolicy": TEXT, "template": _TEMPLATE}
_PYTORCHJOB: Schema = {
    "metadata": _METADATA,
    "spec": {
        "nprocPerNode": TEXT,
        "runPolicy": {
            "cleanPodPolicy": TEXT,
            "ttlSecondsAfterFinished": INT,
            "activeDeadlineSeconds": INT,
            "backoffLimit": INT,
            "schedulingPolicy": OBJECT,
            "suspend": BOOL,
            "managedBy": TEXT,
        },
        "elasticPolicy": {
            "minReplicas": INT,
            "maxReplicas": INT,
            "rdzvBackend": TEXT,
            "rdzvPort": INT,
            "rdzvHost": TEXT,
            "rdzvId": TEXT,
            "rdzvConf": [{"key": TEXT, "value": TEXT}],
            "standalone": BOOL,
            "nProcPerNode": INT,
            "maxRestarts": INT,
            "metrics": [OBJECT],
        },
        "pytorchReplicaSpecs": OBJECT,
    },
}
_JOB: Schema = {
    "metadata": _METADATA,
    "spec": {
        "parallelism": INT,
        "completions": INT,
        "completionMode": TEXT,
        "backoffLimit": INT,
        "activeDeadlineSeconds": INT,
        "ttlSecondsAfterFinished": INT,
        "suspend": BOOL,
        "template": _TEMPLATE,
    },
}
_REPLICAS = "spec.pytorchReplicaSpecs"
_NOT_NEGATIVE = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "parallelism", "completions")


def admit(manifest: Manifest) -> Workload:
    """Check a PyTorchJob or Job and return it with the defaults filled in.

    Raises:
        InvalidInput: One line for each rule it breaks, with field, rule and value.
    """
    findings = Findings()
    found = deepcopy(manifest)
    kind, expected = found.get("kind"), {"PyTorchJob": "kubeflow.org/v1", "Job": "batch/v1"}
    if findings.require(kind in expected, "kind", "kind is PyTorchJob or Job", kind):
        version = expected[str(kind)]
        findings.require(
            found.get("apiVersion") == version, "apiVersion", f"apiVersion is {version}", found.get("apiVersion")
        )
        check_structure(found, _PYTORCHJOB if kind == "PyTorchJob" else _JOB, "", findings)
        for part in ("metadata", "spec"):
            findings.require(isinstance(found.get(part), dict), part, f"{part} is an object", found.get(part))
    raise_for(findings)
    _check_pytorchjob(found, findings) if kind == "PyTorchJob" else _check_job(found, findings)
    raise_for(findings)
    return Workload(manifest=found)


def _check_pytorchjob(job: Manifest, findings: Findings) -> None:
    spec = job["spec"]
    replicas = spec["pytorchReplicaSpecs"] = _camel_case(spec.get("pytorchReplicaSpecs") or {})
    findings.require(bool(replicas), _REPLICAS, "there is a Master or a Worker", replicas)
    for kind, replica in replicas.items():
        path = f"{_REPLICAS}.{kind}"
        if findings.require(kind in ("Master", "Worker"), path, "a replica type is Master or Worker", kind):
            _check_replica(kind, replica, path, findings)
    raise_for(findings)
    policy = spec["runPolicy"] = spec.get("runPolicy") or {}
    policy["cleanPodPolicy"] = policy.get("cleanPodPolicy") or "None"
    _one_of(policy["cleanPodPolicy"], CLEAN_POD_POLICIES, "spec.runPolicy.cleanPodPolicy", findings)
    managers = (None, "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
    _one_of(policy.get("managedBy"), managers, "spec.runPolicy.managedBy", findings)
    _check_numbers(policy, "spec.runPolicy", findings)
    _check_processes(spec, findings)
    longest = max((f"-{kind.lower()}-{replica['replicas'] - 1}" for kind, replica in replicas.items()), key=len)
    name = _check_name(job, is_dns_1035, "a name is lower case letters, digits and -, a letter first", findings)
    law = f"len(name + {longest!r}) <= 63, for pods and services are called so"
    findings.require(len(name) + len(longest) <= 63, "metadata.name", law, name, "choose a shorter name")


def _check_replica(kind: str, replica: Any, path: str, findings: Findings) -> None:
    before = len(findings)
    if findings.require(isinstance(replica, dict), path, f"{kind} is an object", replica):
        check_structure(replica, _REPLICA, path, findings)
    if len(findings) > before:
        return
    replica["replicas"] = 1 if replica.get("replicas") is None else replica["replicas"]
    replica["restartPolicy"] = replica.get("restartPolicy") or "OnFailure"
    law = "replicas == 1 for the Master" if kind == "Master" else "replicas >= 1"
    holds = replica["replicas"] == 1 if kind == "Master" else replica["replicas"] >= 1
    hint = "further processes are Workers" if kind == "Master" else "leave the Worker out if there is none"
    findings.require(holds, f"{path}.replicas", law, replica["replicas"], hint)
    _one_of(replica["restartPolicy"], RESTART_POLICIES, f"{path}.restartPolicy", findings)
    names = _check_containers(replica.get("template"), f"{path}.template", findings)
    law = f"a container is called {CONTAINER}"
    findings.require(CONTAINER in names, f"{path}.template.spec.containers", law, names, f"name: {CONTAINER}")


def _check_processes(spec: dict[str, Any], findings: Findings) -> None:
    processes, elastic = spec.get("nprocPerNode"), spec.get("elasticPolicy")
    known = processes is None or processes in ("auto", "cpu", "gpu") or (processes.isdecimal() and int(processes) > 0)
    findings.require(known, "spec.nprocPerNode", "nprocPerNode is auto, cpu, gpu or a number in quotes", processes)
    if elastic is not None:
        hint = "an elastic job has Workers"
        has_workers = "Worker" in spec["pytorchReplicaSpecs"]
        findings.require(has_workers, f"{_REPLICAS}.Worker", "there is a Worker with elasticPolicy", None, hint)
        twice = elastic.get("nProcPerNode") is not None and processes is not None
        law = "elasticPolicy.nProcPerNode is not given beside nprocPerNode"
        findings.require(not twice, "spec.elasticPolicy.nProcPerNode", law, elastic.get("nProcPerNode"))


def _check_job(job: Manifest, findings: Findings) -> None:
    spec = job["spec"]
    template = spec.get("template") or {}
    _check_containers(template, "spec.template", findings)
    policy = (template.get("spec") or {}).get("restartPolicy")
    _one_of(policy, ("Never", "OnFailure"), "spec.template.spec.restartPolicy", findings)
    spec["completionMode"] = spec.get("completionMode") or "NonIndexed"
    _one_of(spec["completionMode"], ("NonIndexed", "Indexed"), "spec.completionMode", findings)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    defaults = {"parallelism": 1, "backoffLimit": 6}
    spec |= {key: value for key, value in defaults.items() if spec.get(key) is None}
    _check_numbers(spec, "spec", findings)
    indexed = spec["completionMode"] == "Indexed" and spec.get("completions") is None
    findings.require(not indexed, "spec.completions", "completions is given with completionMode Indexed", None)
    law = "a name is lower case letters, digits, - and ., at most 63"
    _check_name(job, lambda name: is_dns_1123(name) and len(name) <= 63, law, findings)


def _check_containers(template: Any, path: str, findings: Findings) -> list[str]:
    spec = (template or {}).get("spec") or {}
    containers = spec.get("containers") or []
    findings.require(bool(containers), f"{path}.spec.containers", "there is a container", containers)
    for place, container in enumerate([*containers, *(spec.get("initContainers") or [])]):
        inside = f"{path}.spec.containers[{place}]"
        if place >= len(containers):
            inside = f"{path}.spec.initContainers[{place - len(containers)}]"
        image, hint = container.get("image"), "any name will do on one machine, where this Python stands for it"
        findings.require(bool(image), f"{inside}.image", "an image is given", image, hint)
        findings.require(bool(container.get("name")), f"{inside}.name", "a name is given", container.get("name"))
        for at, variable in enumerate(container.get("env") or []):
            given = bool(variable.get("name"))
            findings.require(given, f"{inside}.env[{at}].name", "a name is given", variable.get("name"))
            both = bool(variable.get("value")) and variable.get("valueFrom") is not None
            law = "value and valueFrom are not given both"
            findings.require(not both, f"{inside}.env[{at}]", law, variable)
    return [str(container.get("name")) for container in containers]


def _check_name(job: Manifest, rule: Any, law: str, findings: Findings) -> str:
    metadata = job["metadata"]
    name = metadata.get("name")
    if name is None and metadata.get("generateName"):
        name = metadata["generateName"] + "x" * 5
    findings.require(bool(name) and rule(name), "metadata.name", law, name)
    return name or ""


def _check_numbers(policy: dict[str, Any], path: str, findings: Findings) -> None:
    for field in _NOT_NEGATIVE:
        value = policy.get(field)
        findings.require(value is None or value >= 0, f"{path}.{field}", f"{field} >= 0", value)


def _one_of(value: Any, allowed: tuple[Any, ...], path: str, findings: Findings) -> None:
    field = path.rpartition(".")[2]
    findings.require(
        value in allowed, path, f"{field} is one of {', '.join(map(str, allowed))}", value, nearest(value, allowed)
    )


def _camel_case(replicas: dict[str, Any]) -> dict[str, Any]:
    # The operator accepts master and WORKER too; Master comes first here, so that ranks start in order.
    named = {
        {"master": "Master", "worker": "Worker"}.get(str(kind).lower(), kind): one for kind, one in replicas.items()
    }
    return dict(sorted(named.items(), key=lambda item: str(item[0])))

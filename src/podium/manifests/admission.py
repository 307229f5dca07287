"""Admission of PyTorchJobs and Jobs: the rules of the operator's webhook and of the API server.

Sources: kubeflow/trainer release-1.9 pkg/webhooks/pytorch and pkg/apis/kubeflow.org/v1; kubernetes
pkg/apis/batch/validation.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from podium.manifests.conditions import Manifest
from podium.manifests.experiment.schema import JOB_KINDS
from podium.manifests.names import is_dns_1035, is_dns_1123
from podium.manifests.pytorchjob import CLEAN_POD_POLICIES, CONTAINER, RESTART_POLICIES
from podium.manifests.resource import integer, numbered, text
from podium.manifests.rules import Hit, Rule, apply, broken, one_of, raise_for, rule
from podium.manifests.structure import BOOL, INT, OBJECT, TEXT, Schema, wrong_types
from podium.manifests.workload import REPLICA_SPECS, Draft, Pod, Replica, Workload

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
        "pytorchReplicaSpecs": {"Master": _REPLICA, "Worker": _REPLICA},
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
_REPLICAS = f"spec.{REPLICA_SPECS}"
_NOT_NEGATIVE = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "parallelism", "completions")

refused = rule("refuse", "The operator's webhook or the API server refuses the job.", "refused-by-operator")


def admit(manifest: Mapping[str, Any]) -> Workload:
    """Check a PyTorchJob or Job and return it with the defaults filled in.

    Raises:
        BrokenRules: One line for each rule it breaks, with field, rule and value.
    """
    admitted = _capitalized(manifest)
    raise_for(well_formed.findings(admitted))
    _set_defaults(admitted)
    job = Workload.parse(admitted)
    raise_for(apply(PYTORCHJOB if job.kind == "PyTorchJob" else JOB, job))
    return job


def _capitalized(manifest: Mapping[str, Any]) -> Manifest:
    """Copy a manifest; the operator accepts master and WORKER too. Master comes first, so that ranks start in order."""
    copy = Draft.of(manifest).manifest
    spec = copy.get("spec")
    if isinstance(spec, dict) and isinstance(given := spec.get(REPLICA_SPECS), dict):
        names = {"master": "Master", "worker": "Worker"}
        replicas = {names.get(str(role).lower(), str(role)): replica or {} for role, replica in given.items()}
        spec[REPLICA_SPECS] = dict(sorted(replicas.items()))
    return copy


def _set_defaults(job: Manifest) -> None:
    spec = job["spec"]
    if job["kind"] == "PyTorchJob":
        policy = spec["runPolicy"] = spec.get("runPolicy") or {}
        policy["cleanPodPolicy"] = policy.get("cleanPodPolicy") or "None"
        spec[REPLICA_SPECS] = spec.get(REPLICA_SPECS) or {}
        for replica in spec[REPLICA_SPECS].values():
            if isinstance(replica, dict):
                replica["replicas"] = 1 if replica.get("replicas") is None else replica["replicas"]
                replica["restartPolicy"] = replica.get("restartPolicy") or "OnFailure"
        return
    spec["completionMode"] = spec.get("completionMode") or "NonIndexed"
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    defaults = {"parallelism": 1, "backoffLimit": 6}
    spec |= {key: value for key, value in defaults.items() if spec.get(key) is None}


@refused
def well_formed(manifest: Mapping[str, Any]) -> Iterator[Hit]:
    kind, version = manifest.get("kind"), manifest.get("apiVersion")
    if kind not in tuple(JOB_KINDS):
        yield broken("kind", "must be PyTorchJob or Job", kind)
        return
    if version != JOB_KINDS[str(kind)]:
        yield broken("apiVersion", f"must be {JOB_KINDS[str(kind)]}", version)
    for part in ("metadata", "spec"):
        if manifest.get(part) is None:
            yield broken(part, "must be an object", None)
    yield from wrong_types(manifest, _PYTORCHJOB if kind == "PyTorchJob" else _JOB)


@refused
def replicas(job: Workload) -> Iterator[Hit]:
    if not job.replicas:
        yield broken(_REPLICAS, "must have a Master or a Worker", {})
    for replica in job.replicas:
        path = replica.path
        if replica.role not in ("Master", "Worker"):
            yield broken(path, "must be a Master or a Worker", replica.role)
            continue
        if replica.role == "Master" and replica.count != 1:
            rule = "replicas == 1 for the Master"
            yield broken(f"{path}.replicas", rule, replica.count, "further processes are Workers")
        elif replica.count < 1:
            yield broken(f"{path}.replicas", "replicas >= 1", replica.count, "leave the Worker out if there is none")
        yield from one_of(f"{path}.restartPolicy", replica.restart_policy, RESTART_POLICIES)
        if replica.pod.container(CONTAINER) is None:
            names = [container.name for container in replica.pod.containers]
            yield broken(f"{replica.pod.path}.spec.containers", f"must hold one called {CONTAINER}", names)


@refused
def run_policy(job: Workload) -> Iterator[Hit]:
    path, policy = job.run_policy_path, job.run_policy
    for field in _NOT_NEGATIVE:
        value = integer(policy.get(field))
        if value is not None and value < 0:
            yield broken(f"{path}.{field}", f"{field} >= 0", value)
    if job.kind == "PyTorchJob":
        yield from one_of(f"{path}.cleanPodPolicy", job.clean_pod_policy, CLEAN_POD_POLICIES)
        if policy.get("managedBy") is not None:
            managers = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
            yield from one_of(f"{path}.managedBy", policy["managedBy"], managers)


@refused
def processes(job: Workload) -> Iterator[Hit]:
    given, elastic = job.spec.get("nprocPerNode"), job.spec.get("elasticPolicy")
    if given is not None and given not in ("auto", "cpu", "gpu") and not job.processes_per_replica:
        yield broken("spec.nprocPerNode", "must be auto, cpu, gpu or a number in quotes", given)
    if elastic is not None and job.replica("Worker") is None:
        yield broken(f"{_REPLICAS}.Worker", "must be given with elasticPolicy", None, "an elastic job has Workers")
    if elastic and elastic.get("nProcPerNode") is not None and given is not None:
        where = "spec.elasticPolicy.nProcPerNode"
        yield broken(where, "must be left out beside spec.nprocPerNode", elastic["nProcPerNode"])


@refused
def completions(job: Workload) -> Iterator[Hit]:
    mode, policy = job.spec.get("completionMode"), job.replicas[0].restart_policy
    yield from one_of("spec.template.spec.restartPolicy", policy, ("Never", "OnFailure"))
    yield from one_of("spec.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed" and job.spec.get("completions") is None:
        yield broken("spec.completions", "must be given with completionMode Indexed", None)


@refused
def containers(job: Workload) -> Iterator[Hit]:
    for replica in job.replicas:
        yield from _containers(replica.pod)


def _containers(pod: Pod) -> Iterator[Hit]:
    if not pod.containers:
        yield broken(f"{pod.path}.spec.containers", "must hold a container", [])
    for container in (*pod.containers, *pod.init_containers):
        if not container.image:
            hint = "any name will do on one machine, where this Python stands for it"
            yield broken(f"{container.path}.image", "must be given", container.image, hint)
        if not container.name:
            yield broken(f"{container.path}.name", "must be given", container.name)
        for path, variable in numbered(f"{container.path}.env", container.manifest.get("env")):
            if not variable.get("name"):
                yield broken(f"{path}.name", "must be given", variable.get("name"))
            if variable.get("value") and variable.get("valueFrom") is not None:
                yield broken(path, "must have either value or valueFrom", dict(variable))


@refused
def name(job: Workload) -> Iterator[Hit]:
    given = job.name
    if "name" not in job.metadata and job.metadata.get("generateName"):
        given = f"{text(job.metadata['generateName'])}{'x' * 5}"
    if job.kind == "Job":
        if not (is_dns_1123(given) and len(given) <= 63):
            yield broken("metadata.name", "must be lower case letters, digits, - and ., at most 63", given)
        return
    if not is_dns_1035(given):
        yield broken("metadata.name", "must be lower case letters, digits and -, a letter first", given)
    longest = max(map(_pod_suffix, job.replicas), key=len, default="")
    if len(given) + len(longest) > 63:
        rule = f"len(name + {longest!r}) <= 63, the length of a pod's name"
        yield broken("metadata.name", rule, given, "choose a shorter name")


def _pod_suffix(replica: Replica) -> str:
    return f"-{replica.role.lower()}-{replica.count - 1}"


PYTORCHJOB: tuple[Rule[Workload], ...] = (replicas, containers, run_policy, processes, name)
JOB: tuple[Rule[Workload], ...] = (containers, completions, run_policy, name)

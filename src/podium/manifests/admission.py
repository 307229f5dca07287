"""Admission of jobs: the rules of the training operator's webhooks and of the API server.

Sources: kubeflow/trainer release-1.9 pkg/webhooks and pkg/apis/kubeflow.org/v1; kubernetes
pkg/apis/batch/validation. Of TrainJobs: kubeflow/trainer v2.3.0,
pkg/apis/trainer/v1alpha1/trainjob_types.go, pkg/webhooks/trainjob_webhook.go and
pkg/runtime/framework/plugins/{torch/torch,jobset/jobset}.go; jobset v0.12.0,
pkg/webhooks/jobset_webhook.go. Those look names up in the runtime: torch-distributed has one
replicated job ``node`` with a container ``node``; what another has is known in its cluster only.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from podium.errors import suggestion
from podium.manifests.conditions import Manifest
from podium.manifests.fields import (
    integer,
    items,
    mapping,
    numbered,
    objects,
    quantity,
    text,
    unshared,
)
from podium.manifests.kinds import (
    JOB_KINDS,
    LEADERS,
    MPIJOB,
    OPERATOR_KINDS,
    TRAINJOB,
    OperatorKind,
    or_list,
)
from podium.manifests.labels import TRAINER_API, TRAINJOB_MANAGERS
from podium.manifests.names import is_dns_1035, is_dns_1123, is_label
from podium.manifests.rules import (
    BrokenRules,
    Finding,
    Rules,
    Violation,
    apply,
    at_least,
    broken,
    one_of,
    raise_for,
)
from podium.manifests.structure import (
    BOOL,
    INT,
    LONG,
    OBJECT,
    TEXT,
    Schema,
    kubernetes_schema,
    texts_by_name,
    unknown_fields,
    wrong_types,
)
from podium.manifests.trainjob import (
    MPI_RESERVED,
    NODE,
    PATCHED_CONTAINER,
    PATCHED_POD,
    RESERVED,
    RUNTIME_IMAGES,
    TORCH,
    template_of,
)
from podium.manifests.workload import Replica, Workload, role_of

_EXACT = ("JAXJob", "PyTorchJob", "XGBoostJob")
"""Kinds whose webhook takes the roles only as they are."""

_RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_CLEAN_POD_POLICIES = ("Running", "All", "None")

_ENV: Schema = [{"name": TEXT, "value": TEXT}]
_RESOURCES: Schema = {"requests": OBJECT, "limits": OBJECT}
_CONTAINER: Schema = {
    "name": TEXT,
    "image": TEXT,
    "command": [TEXT],
    "args": [TEXT],
    "workingDir": TEXT,
    "env": _ENV,
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT, "subPath": TEXT}],
    "resources": _RESOURCES,
}
_POD_TEMPLATE: Schema = {
    "metadata": {"labels": texts_by_name, "annotations": texts_by_name},
    "spec": {
        "containers": [_CONTAINER],
        "initContainers": [_CONTAINER],
        "volumes": [{"name": TEXT}],
        "restartPolicy": TEXT,
        "terminationGracePeriodSeconds": LONG,
        "serviceAccountName": TEXT,
        "imagePullSecrets": [{"name": TEXT}],
        "nodeSelector": texts_by_name,
    },
}
"""What pods mostly have; the types of all else are those of Kubernetes' client."""


def _amounts(path: str, resources: Any, kind: str) -> Iterator[Violation]:
    for part in ("requests", "limits"):
        for name, amount in mapping(mapping(resources).get(part)).items():
            where, hint = f"{path}.{part}.{name}", f'{name}: "500m", "2" or "4Gi"'
            if amount is None or "${" in str(amount):  # null is 0, and a trial's value comes later
                continue
            if quantity(amount) is None:
                yield broken(where, "must be an amount of a resource", amount, hint)
            elif kind != "Job" and isinstance(amount, float) and not amount.is_integer():
                # by the schema of their CRDs
                rule = "must be a whole number or in quotes"
                yield broken(where, rule, amount, f'{name}: "{amount}"')
    limits = mapping(mapping(resources).get("limits"))
    for name, amount in mapping(mapping(resources).get("requests")).items():
        asked, most = quantity(amount), quantity(limits.get(name))
        if asked is not None and most is not None and asked > most:
            rule, both = "must be at most the limit", f"{amount} > {limits[name]}"
            yield broken(f"{path}.requests.{name}", rule, both, "raise the limit, or ask for less")


def _variables(path: str, env: Any) -> Iterator[Violation]:
    for where, variable in numbered(path, env):
        if not variable.get("name"):
            yield broken(f"{where}.name", "must be given", variable.get("name"))
        if variable.get("value") and variable.get("valueFrom") is not None:
            yield broken(where, "must have either value or valueFrom", dict(variable))


_METADATA: Schema = {
    "name": TEXT,
    "generateName": TEXT,
    "namespace": TEXT,
    "labels": texts_by_name,
    "annotations": texts_by_name,
    "ownerReferences": [OBJECT],
}
_REPLICA: Schema = {"replicas": INT, "restartPolicy": TEXT, "template": _POD_TEMPLATE}
_RUN_POLICY: Schema = {
    "cleanPodPolicy": TEXT,
    "ttlSecondsAfterFinished": INT,
    "activeDeadlineSeconds": LONG,
    "backoffLimit": INT,
    "schedulingPolicy": OBJECT,
    "suspend": BOOL,
    "managedBy": TEXT,
}
_OWN_FIELDS: dict[str, Schema] = {
    MPIJOB: {"slotsPerWorker": INT, "cleanPodPolicy": TEXT, "mainContainer": TEXT},
    "PyTorchJob": {
        "nprocPerNode": TEXT,
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
    },
    "TFJob": {"successPolicy": TEXT, "enableDynamicWorker": BOOL},
}
_JOB_SPEC: Schema = {
    "parallelism": INT,
    "completions": INT,
    "completionMode": TEXT,
    "backoffLimit": INT,
    "activeDeadlineSeconds": LONG,
    "ttlSecondsAfterFinished": INT,
    "suspend": BOOL,
    "template": _POD_TEMPLATE,
}
_NOT_NEGATIVE = (
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
    "backoffLimit",
    "parallelism",
    "completions",
)

JOB = Rules[Workload]()
"""Rules about a Job or a job of the training operator."""

_SHAPE = Rules[Mapping[str, Any]]()
TRAINJOB_REFUSED = Rules[Workload]()

_OPERATOR = "The operator's webhook or the API server refuses the job."
refused = JOB.rule("fail", _OPERATOR, "refused-by-operator", refuses=True)
refused_trainjob = TRAINJOB_REFUSED.rule(
    "fail", "Trainer, JobSet or the API server refuses it.", "refused-by-trainer", refuses=True
)


def admit(manifest: Mapping[str, Any]) -> Workload:
    """Check a job and return it with the defaults filled in.

    Raises:
        BrokenRules: One line for each rule it breaks, with field, rule and value.
    """
    admitted = _ordered(manifest)
    raise_for(_well_formed.findings(admitted))
    _set_defaults(admitted)
    job = Workload.parse(admitted)
    raise_for(apply(TRAINJOB_REFUSED if job.kind == TRAINJOB else JOB, job))
    return job


def refusals(manifest: Mapping[str, Any]) -> list[Finding]:
    """Return why a job would be refused; empty if it would not."""
    try:
        admit(manifest)
    except BrokenRules as error:
        return list(error.findings)
    return []


def _ordered(manifest: Mapping[str, Any]) -> Manifest:
    """Copy a manifest. Where no webhook looks at roles, the operator takes them in any case. They
    come in the order in which they start."""
    copy: Manifest = unshared(manifest)
    spec, operator = copy.get("spec"), OPERATOR_KINDS.get(text(copy.get("kind")))
    specs = spec.get(operator.replica_specs) if operator and isinstance(spec, dict) else None
    if operator and isinstance(spec, dict) and isinstance(specs, dict):
        exact = text(copy.get("kind")) in _EXACT
        replicas = {
            str(role) if exact else role_of(str(role), operator): replica or {}
            for role, replica in specs.items()
        }
        ordered = {role: replicas[role] for role in operator.roles if role in replicas}
        spec[operator.replica_specs] = ordered | replicas
    return copy


def _set_defaults(job: Manifest) -> None:
    kind, spec = job["kind"], job["spec"]
    if operator := OPERATOR_KINDS.get(kind):
        policy = spec["runPolicy"] = spec.get("runPolicy") or {}
        policy["cleanPodPolicy"] = policy.get("cleanPodPolicy") or "None"
        replicas = spec[operator.replica_specs] = spec.get(operator.replica_specs) or {}
        for role, replica in replicas.items():
            if isinstance(replica, dict):
                _default(replica, replicas=0 if (kind, role) == (MPIJOB, "Worker") else 1)
                replica["restartPolicy"] = replica.get("restartPolicy") or operator.restart_policy
        if kind == MPIJOB:
            template = mapping(mapping(replicas.get("Worker")).get("template"))
            for container in objects(mapping(template.get("spec")).get("containers"))[:1]:
                if isinstance(container, dict) and not container.get("command"):
                    container |= {"command": ["sleep"], "args": ["365d"]}
    elif kind == TRAINJOB:  # those of the runtime torch-distributed
        trainer = spec["trainer"] = dict(spec.get("trainer") or {})
        image = RUNTIME_IMAGES.get(text(mapping(spec.get("runtimeRef")).get("name")), "")
        _default(trainer, numNodes=1)
        trainer["image"] = trainer.get("image") or image
    else:
        spec["completionMode"] = spec.get("completionMode") or "NonIndexed"
        if spec.get("completions") is None and spec.get("parallelism") is None:
            spec["completions"] = 1
        _default(spec, parallelism=1, backoffLimit=6)


def _default(holder: dict[str, Any], **values: int) -> None:
    holder |= {name: value for name, value in values.items() if holder.get(name) is None}


@_SHAPE.rule("fail", _OPERATOR, "refused-by-operator", refuses=True)
def _well_formed(manifest: Mapping[str, Any]) -> Iterator[Violation]:
    kind, version = text(manifest.get("kind")), manifest.get("apiVersion")
    if kind not in JOB_KINDS:
        yield broken("kind", f"must be {or_list([*JOB_KINDS])}", manifest.get("kind"))
        return
    if version != JOB_KINDS[kind]:
        gone = f"{version} is not served any more"
        if (kind, version) == (MPIJOB, "kubeflow.org/v2beta1"):
            gone = f"{version} is of the mpi-operator, podium runs the training operator's"
        hint = f"{gone}: write {JOB_KINDS[kind]}"
        yield broken("apiVersion", f"must be {JOB_KINDS[kind]}", version, hint)
    for part in ("metadata", "spec"):
        if manifest.get(part) is None:
            yield broken(part, "must be an object", None)
    wrong = {each.where: each for each in wrong_types(manifest, schema_of(kind))}
    for pod in (replica.pod for replica in Workload.parse(manifest).replicas):
        if kind != TRAINJOB and any(unknown_fields(pod.manifest, _POD_TEMPLATE, pod.path)):
            schema = kubernetes_schema("V1PodTemplateSpec")
            wrong |= {each.where: each for each in wrong_types(pod.manifest, schema, pod.path)}
    yield from wrong.values()
    if kind in _EXACT:
        yield from _roles(manifest, OPERATOR_KINDS[kind])


def _roles(manifest: Mapping[str, Any], operator: OperatorKind) -> Iterator[Violation]:
    """Yield what a webhook says of the roles before defaults are set."""
    path = f"spec.{operator.replica_specs}"
    specs = mapping(mapping(manifest.get("spec")).get(operator.replica_specs))
    for role, replica in specs.items():
        right = role_of(str(role), operator)
        if right != role:
            yield broken(f"{path}.{role}", f"must be spelled {right}", role, f"write {right}")
        if role == "Master" and mapping(replica).get("replicas") is None:
            yield broken(f"{path}.{role}.replicas", "must be given", None, "replicas: 1")


def schema_of(kind: str) -> Schema:
    """Return the shape of a kind of job, as far as types go; of an unknown kind that of its
    metadata."""
    if operator := OPERATOR_KINDS.get(kind):
        roles = {operator.replica_specs: dict.fromkeys(operator.roles, _REPLICA)}
        return {
            "metadata": _METADATA,
            "spec": {"runPolicy": _RUN_POLICY, **_OWN_FIELDS.get(kind, {}), **roles},
        }
    specs = {"Job": _JOB_SPEC, TRAINJOB: _TRAINJOB_SPEC}
    return {"metadata": _METADATA, "spec": specs.get(kind, OBJECT)}


@refused
def _replicas(job: Workload) -> Iterator[Violation]:
    if not (operator := job.operator):
        return
    roles = [replica.role for replica in job.replicas]
    allowed = or_list([f"a {role}" for role in operator.roles])
    if not roles:
        yield broken(job.replicas_path, f"must have {allowed}", {})
    elif operator.required and operator.required not in roles:
        yield broken(f"{job.replicas_path}.{operator.required}", "must be given", None)
    leaders = [role for role in LEADERS if role in operator.roles]
    if len([role for role in roles if role in leaders]) > 1:
        yield broken(job.replicas_path, f"must have one of {' and '.join(leaders)} only", roles)
    for replica in job.replicas:
        if replica.role not in operator.roles:
            yield broken(replica.path, f"must be {allowed}", replica.role)
        else:
            yield from _replica(replica, operator.container)


def _replica(replica: Replica, container: str) -> Iterator[Violation]:
    path, role = replica.path, replica.role
    if role in LEADERS and replica.count != 1:
        rule = f"replicas == 1 for the {role}"
        yield broken(f"{path}.replicas", rule, replica.count, "further processes are Workers")
    else:
        hint = f"leave the {role} out if there is none"
        yield from at_least(f"{path}.replicas", replica.count, 1, hint)
    yield from one_of(f"{path}.restartPolicy", replica.restart_policy, _RESTART_POLICIES)
    if container and replica.pod.container(container) is None:
        names = [each.name for each in replica.pod.containers]
        rule = f"must hold one called {container}"
        yield broken(f"{replica.pod.path}.spec.containers", rule, names)


@refused
def _run_policy(job: Workload) -> Iterator[Violation]:
    path, policy = job.run_policy_path, job.run_policy
    for field in _NOT_NEGATIVE:
        yield from at_least(f"{path}.{field}", integer(policy.get(field)), 0)
    if job.operator:
        yield from one_of(f"{path}.cleanPodPolicy", job.clean_pod_policy, _CLEAN_POD_POLICIES)
        if policy.get("managedBy") is not None:
            managers = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
            yield from one_of(f"{path}.managedBy", policy["managedBy"], managers)


@refused
def _processes(job: Workload) -> Iterator[Violation]:
    if job.kind != "PyTorchJob":
        return
    per_node, elastic = job.spec.get("nprocPerNode"), job.spec.get("elasticPolicy")
    if (
        per_node is not None
        and per_node not in ("auto", "cpu", "gpu")
        and not job.processes_per_replica
    ):
        yield broken("spec.nprocPerNode", "must be auto, cpu, gpu or a number in quotes", per_node)
    if elastic is not None and job.replica("Worker") is None:
        where, hint = f"{job.replicas_path}.Worker", "an elastic job has Workers"
        yield broken(where, "must be given with elasticPolicy", None, hint)
    if elastic and elastic.get("nProcPerNode") is not None and per_node is not None:
        where = "spec.elasticPolicy.nProcPerNode"
        yield broken(where, "must be left out beside spec.nprocPerNode", elastic["nProcPerNode"])


@refused
def _other_kinds(job: Workload) -> Iterator[Violation]:
    if job.kind == MPIJOB:
        hint = "the number of processes in each Worker; 1 if left out"
        yield from at_least("spec.slotsPerWorker", job.slots_per_worker, 1, hint)
    if job.operator and job.operator.first_pod_decides and job.success_policy:
        yield from one_of("spec.successPolicy", job.success_policy, ("AllWorkers",))
    if job.kind == "Job":
        mode, policy = job.spec.get("completionMode"), job.replicas[0].restart_policy
        yield from one_of("spec.template.spec.restartPolicy", policy, ("Never", "OnFailure"))
        yield from one_of("spec.completionMode", mode, ("NonIndexed", "Indexed"))
        if mode == "Indexed" and job.spec.get("completions") is None:
            yield broken("spec.completions", "must be given with completionMode Indexed", None)


@refused
def _containers(job: Workload) -> Iterator[Violation]:
    for pod in (replica.pod for replica in job.replicas):
        if not pod.containers:
            yield broken(f"{pod.path}.spec.containers", "must hold a container", [])
        for container in (*pod.containers, *pod.init_containers):
            if not container.image:
                hint = "any name will do on one machine, where this Python stands for it"
                yield broken(f"{container.path}.image", "must be given", container.image, hint)
            if not container.name:
                yield broken(f"{container.path}.name", "must be given", container.name)
            elif not (is_dns_1123(container.name) and "." not in container.name):
                must = "must be lower case letters, digits and -"
                yield broken(f"{container.path}.name", must, container.name, "choose such a name")
            if policy := text(container.manifest.get("imagePullPolicy")):
                yield from one_of(f"{container.path}.imagePullPolicy", policy, _PULL_POLICIES)
            yield from _variables(f"{container.path}.env", container.manifest.get("env"))
            volumes = [volume.name for volume in pod.volumes]
            for at, mount in enumerate(container.mounts):
                if mount.volume not in volumes:
                    where = f"{container.path}.volumeMounts[{at}].name"
                    hint = suggestion(mount.volume, volumes) or "declare it in the pod's volumes"
                    yield broken(where, "must be a volume of the pod", mount.volume, hint)
            resources = container.manifest.get("resources")
            yield from _amounts(f"{container.path}.resources", resources, job.kind)


@refused
def _repeated(job: Workload) -> Iterator[Violation]:
    for pod in (replica.pod for replica in job.replicas):
        names = [
            (f"{each.path}.name", each.name) for each in (*pod.containers, *pod.init_containers)
        ]
        yield from _again(names)
        yield from _again(_values(f"{pod.path}.spec.volumes", pod.spec.get("volumes"), "name"))
        for each in (*pod.containers, *pod.init_containers):
            mounts = each.manifest.get("volumeMounts")
            yield from _again(_values(f"{each.path}.volumeMounts", mounts, "mountPath"))
            if job.operator:  # their CRDs say so; a Job's last one counts
                yield from _again(_values(f"{each.path}.env", each.manifest.get("env"), "name"))


def _values(path: str, entries: Any, field: str) -> list[tuple[str, str]]:
    return [(f"{where}.{field}", text(each.get(field))) for where, each in numbered(path, entries)]


def _again(values: Iterable[tuple[str, str]]) -> Iterator[Violation]:
    """Yield each place whose value, unless it is empty, has come before."""
    seen = set[str]()
    for where, value in values:
        if value and value in seen:
            yield broken(where, "must be unique", value, "remove one of them, or change it")
        seen.add(value)


@refused
def _labels(job: Workload) -> Iterator[Violation]:
    holders = [("metadata", job.manifest.get("metadata"))]
    holders += [
        (f"{each.pod.path}.metadata", each.pod.manifest.get("metadata")) for each in job.replicas
    ]
    for path, metadata in holders:
        for name, value in mapping(mapping(metadata).get("labels")).items():
            if value is not None and not is_label(str(name), value):
                must = "must be a label's name and value: at most 63 letters, digits, -, _ and ."
                yield broken(f"{path}.labels.{name}", must, value, "an annotation takes any text")


@refused
def _name(job: Workload) -> Iterator[Violation]:
    name = job.expected_name
    if job.kind != "Job":
        suffixes = [f"-{replica.role.lower()}-{replica.count - 1}" for replica in job.replicas]
        yield from _pod_name(name, max(suffixes, key=len, default=""))
    elif not (is_dns_1123(name) and len(name) <= 63):
        rule = "must be lower case letters, digits, - and ., at most 63"
        yield broken("metadata.name", rule, name)


def _pod_name(name: str, longest: str) -> Iterator[Violation]:
    """Yield the reasons why neither a distributed job nor each of its pods can have a name.

    Args:
        longest: The longest of what its pods' names have after it.
    """
    if not is_dns_1035(name):
        rule = "must be lower case letters, digits and -, a letter first"
        yield broken("metadata.name", rule, name)
    if len(name) + len(longest) > 63:
        rule = f"len(name + {longest!r}) <= 63, the length of a pod's name"
        yield broken("metadata.name", rule, name, "choose a shorter name")


_HTTP_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_PATCHED_JOB: Schema = {
    "name": TEXT,
    "template": {"metadata": OBJECT, "spec": {"template": _POD_TEMPLATE}},
}

_TRAINJOB_SPEC: Schema = {
    "runtimeRef": {"name": TEXT, "apiGroup": TEXT, "kind": TEXT},
    "initializer": OBJECT,
    "trainer": {
        "image": TEXT,
        "command": [TEXT],
        "args": [TEXT],
        "env": _ENV,
        "numNodes": INT,
        "numProcPerNode": INT,
        "resourcesPerNode": _RESOURCES,
    },
    "runtimePatches": [
        {
            "manager": TEXT,
            "time": TEXT,
            "trainingRuntimeSpec": {
                "template": {"metadata": OBJECT, "spec": {"replicatedJobs": [_PATCHED_JOB]}}
            },
        }
    ],
    "suspend": BOOL,
    "activeDeadlineSeconds": LONG,
    "managedBy": TEXT,
}


@refused_trainjob
def _runtime(job: Workload) -> Iterator[Violation]:
    reference, path = mapping(job.spec.get("runtimeRef")), f"{job.path}spec.runtimeRef"
    if not job.runtime:
        hint = "runtimeRef: {name: torch-distributed}; `kubectl get clustertrainingruntimes` lists them"
        yield broken(f"{path}.name", "must be the name of a runtime", reference.get("name"), hint)
    if reference.get("kind") is not None:
        yield from one_of(
            f"{path}.kind", job.runtime_kind, ("ClusterTrainingRuntime", "TrainingRuntime")
        )
    if reference.get("apiGroup") is not None:
        yield from one_of(f"{path}.apiGroup", reference["apiGroup"], (TRAINER_API,))


@refused_trainjob
def _trainer(job: Workload) -> Iterator[Violation]:
    path, trainer = f"{job.path}spec.trainer", mapping(job.spec.get("trainer"))
    for name in ("numNodes", "numProcPerNode"):
        yield from at_least(f"{path}.{name}", integer(trainer.get(name)), 1)
    yield from _variables(f"{path}.env", trainer.get("env"))
    yield from _amounts(f"{path}.resourcesPerNode", trainer.get("resourcesPerNode"), job.kind)
    reserved = MPI_RESERVED if job.uses_mpi else RESERVED
    for where, variable in numbered(f"{path}.env", trainer.get("env")):
        if variable.get("name") in reserved:
            rule = "must not be a variable that Trainer sets"
            yield broken(where, rule, variable["name"], "remove it")


@refused_trainjob
def _trainjob_limits(job: Workload) -> Iterator[Violation]:
    path = f"{job.path}spec"
    yield from at_least(f"{path}.activeDeadlineSeconds", job.active_deadline_seconds, 1)
    if job.managed_by:
        yield from one_of(f"{path}.managedBy", job.managed_by, TRAINJOB_MANAGERS)


@refused_trainjob
def _patches(job: Workload) -> Iterator[Violation]:
    patches, managers = job.spec.get("runtimePatches"), set()
    if len(items(patches)) > 16:
        yield broken(
            f"{job.path}spec.runtimePatches", "must have at most 16 entries", len(items(patches))
        )
    for path, patch in numbered(f"{job.path}spec.runtimePatches", patches):
        manager = text(patch.get("manager"))
        host, _, rest = manager.partition("/")
        if not (is_dns_1123(host) and _HTTP_PATH.fullmatch(rest)):
            hint = "for example acme.com/team"
            yield broken(
                f"{path}.manager",
                "must be a domain, a slash and a name",
                patch.get("manager"),
                hint,
            )
        if manager in managers:
            yield broken(f"{path}.manager", "must be given once", manager, "join the two entries")
        managers.add(manager)
        runtime = mapping(patch.get("trainingRuntimeSpec"))
        spec = mapping(mapping(runtime.get("template")).get("spec"))
        inside = f"{path}.trainingRuntimeSpec.template.spec.replicatedJobs"
        for where, patched in numbered(inside, spec.get("replicatedJobs")):
            yield from _patched_job(patched, where, is_torch=job.runtime == TORCH)


def _patched_job(patched: Mapping[str, Any], path: str, *, is_torch: bool) -> Iterator[Violation]:
    if patched.get("name") != NODE and is_torch:
        yield broken(
            f"{path}.name", f"must be {NODE}", patched.get("name"), "torch-distributed has no other"
        )
    pod, inside = mapping(template_of(patched).get("spec")), f"{path}.template.spec.template.spec"
    for name in sorted(set(pod) - set(PATCHED_POD)):
        yield _not_patched(f"{inside}.{name}", PATCHED_POD, "set it in the runtime")
    for part in ("initContainers", "containers"):
        for where, container in numbered(f"{inside}.{part}", pod.get(part)):
            yield from _patched_container(container, where, is_torch=is_torch)


def _patched_container(
    container: Mapping[str, Any], path: str, *, is_torch: bool
) -> Iterator[Violation]:
    for name in sorted(set(container) - set(PATCHED_CONTAINER)):
        hint = "image, command, args and resourcesPerNode stand in spec.trainer"
        yield _not_patched(f"{path}.{name}", PATCHED_CONTAINER, hint)
    if container.get("name") != NODE:
        if is_torch:
            hint = "a runtimePatch changes the containers of the runtime and adds none"
            yield broken(f"{path}.name", f"must be {NODE}", container.get("name"), hint)
    elif container.get("env"):
        yield broken(
            f"{path}.env", "must be left out", container["env"], "write it into spec.trainer.env"
        )


def _not_patched(path: str, allowed: tuple[str, ...], hint: str) -> Violation:
    field = path.rpartition(".")[2]
    return broken(path, f"must be one of {', '.join(allowed)}", field, hint)


@refused_trainjob
def _name_of_trainjob(job: Workload) -> Iterator[Violation]:
    return _pod_name(job.expected_name, f"-{NODE}-0-{job.nodes - 1}-abcde")

"""Admission of jobs: the rules of the training operator's webhooks and of the API server.

Sources: kubeflow/trainer release-1.9 pkg/webhooks and pkg/apis/kubeflow.org/v1; kubernetes
pkg/apis/batch/validation.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from podium.manifests import trainjob_rules
from podium.manifests.conditions import Manifest
from podium.manifests.fields import integer, mapping, objects, text, unshared
from podium.manifests.kinds import JOB_KINDS, LEADERS, MPIJOB, OPERATOR_KINDS, TRAINJOB, or_list
from podium.manifests.names import broken_name, is_dns_1123
from podium.manifests.pod_rules import POD_TEMPLATE, broken_containers
from podium.manifests.pytorchjob import CLEAN_POD_POLICIES, RESTART_POLICIES
from podium.manifests.rules import (
    BrokenRules,
    Finding,
    Look,
    Rule,
    Rules,
    Violation,
    apply,
    broken,
    one_of,
    raise_for,
)
from podium.manifests.structure import BOOL, INT, OBJECT, TEXT, Schema, wrong_types
from podium.manifests.workload import Replica, Workload, role_of

T = TypeVar("T")

_METADATA: Schema = {
    "name": TEXT,
    "generateName": TEXT,
    "namespace": TEXT,
    "labels": OBJECT,
    "annotations": OBJECT,
    "ownerReferences": [OBJECT],
}
_REPLICA: Schema = {"replicas": INT, "restartPolicy": TEXT, "template": POD_TEMPLATE}
_RUN_POLICY: Schema = {
    "cleanPodPolicy": TEXT,
    "ttlSecondsAfterFinished": INT,
    "activeDeadlineSeconds": INT,
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
    "activeDeadlineSeconds": INT,
    "ttlSecondsAfterFinished": INT,
    "suspend": BOOL,
    "template": POD_TEMPLATE,
}
_NOT_NEGATIVE = (
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
    "backoffLimit",
    "parallelism",
    "completions",
)

OPERATOR_JOB, JOB, ANY_JOB = Rules[Workload](), Rules[Workload](), Rules[Workload]()
SHAPE = Rules[Mapping[str, Any]]()


def _refused(table: Rules[T]) -> Callable[[Look[T]], Rule[T]]:
    why = "The operator's webhook or the API server refuses the job."
    return table.rule("fail", why, "refused-by-operator", refuses=True)


refused, refused_job, refused_operator_job = (
    _refused(ANY_JOB),
    _refused(JOB),
    _refused(OPERATOR_JOB),
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
    own = (
        trainjob_rules.REFUSED
        if job.kind == TRAINJOB
        else [*(OPERATOR_JOB if job.operator else JOB), *ANY_JOB]
    )
    raise_for(apply(own, job))
    return job


def refusals(manifest: Mapping[str, Any]) -> list[Finding]:
    """Return why a job would be refused; empty if it would not."""
    try:
        admit(manifest)
    except BrokenRules as error:
        return list(error.findings)
    return []


def _ordered(manifest: Mapping[str, Any]) -> Manifest:
    """Copy a manifest; the operator accepts master and WORKER too. Roles come in the order in which
    they start."""
    copy: Manifest = unshared(manifest)
    spec, operator = copy.get("spec"), OPERATOR_KINDS.get(text(copy.get("kind")))
    if (
        operator
        and isinstance(spec, dict)
        and isinstance(given := spec.get(operator.replica_specs), dict)
    ):
        replicas = {role_of(str(role), operator): replica or {} for role, replica in given.items()}
        order = {role: number for number, role in enumerate(operator.roles)}
        spec[operator.replica_specs] = dict(
            sorted(replicas.items(), key=lambda item: order.get(item[0], len(order)))
        )
    return copy


def _set_defaults(job: Manifest) -> None:
    spec = job["spec"]
    if operator := OPERATOR_KINDS.get(job["kind"]):
        policy = spec["runPolicy"] = spec.get("runPolicy") or {}
        policy["cleanPodPolicy"] = policy.get("cleanPodPolicy") or "None"
        replicas = spec[operator.replica_specs] = spec.get(operator.replica_specs) or {}
        for role, replica in replicas.items():
            if isinstance(replica, dict):
                usual = 0 if (job["kind"], role) == (MPIJOB, "Worker") else 1
                replica["replicas"] = (
                    usual if replica.get("replicas") is None else replica["replicas"]
                )
                replica["restartPolicy"] = replica.get("restartPolicy") or operator.restart_policy
        if job["kind"] == MPIJOB:
            _let_workers_wait(mapping(mapping(replicas.get("Worker")).get("template")))
        return
    if job["kind"] == TRAINJOB:
        trainjob_rules.set_defaults(spec)
        return
    spec["completionMode"] = spec.get("completionMode") or "NonIndexed"
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    defaults = {"parallelism": 1, "backoffLimit": 6}
    spec |= {key: value for key, value in defaults.items() if spec.get(key) is None}


def _let_workers_wait(template: Mapping[str, Any]) -> None:
    """Give an MPIJob's Workers the operator's command: mpirun starts programs beside it."""
    for container in objects(mapping(template.get("spec")).get("containers"))[:1]:
        if isinstance(container, dict) and not container.get("command"):
            container |= {"command": ["sleep"], "args": ["365d"]}


@_refused(SHAPE)
def _well_formed(manifest: Mapping[str, Any]) -> Iterator[Violation]:
    kind, version = text(manifest.get("kind")), manifest.get("apiVersion")
    if kind not in JOB_KINDS:
        yield broken("kind", f"must be {or_list([*JOB_KINDS])}", manifest.get("kind"))
        return
    if version != JOB_KINDS[kind]:
        hint = f"{version} is not served any more; write {JOB_KINDS[kind]}"
        yield broken("apiVersion", f"must be {JOB_KINDS[kind]}", version, hint)
    for part in ("metadata", "spec"):
        if manifest.get(part) is None:
            yield broken(part, "must be an object", None)
    yield from wrong_types(manifest, schema_of(kind))


def schema_of(kind: str) -> Schema:
    """Return the shape of a kind of job, as far as types go; of an unknown kind that of its
    metadata."""
    if operator := OPERATOR_KINDS.get(kind):
        roles = {operator.replica_specs: dict.fromkeys(operator.roles, _REPLICA)}
        return {
            "metadata": _METADATA,
            "spec": {"runPolicy": _RUN_POLICY, **_OWN_FIELDS.get(kind, {}), **roles},
        }
    specs = {"Job": _JOB_SPEC, TRAINJOB: trainjob_rules.SPEC}
    return {"metadata": _METADATA, "spec": specs.get(kind, OBJECT)}


@refused_operator_job
def replicas(job: Workload) -> Iterator[Violation]:
    operator, roles = job.operator, [replica.role for replica in job.replicas]
    assert operator
    known = or_list([f"a {role}" for role in operator.roles])
    if not roles:
        yield broken(job.replicas_path, f"must have {known}", {})
    elif operator.required and operator.required not in roles:
        yield broken(f"{job.replicas_path}.{operator.required}", "must be given", None)
    leaders = [role for role in LEADERS if role in operator.roles]
    if len([role for role in roles if role in leaders]) > 1:
        yield broken(job.replicas_path, f"must have one of {' and '.join(leaders)} only", roles)
    for replica in job.replicas:
        if replica.role not in operator.roles:
            yield broken(replica.path, f"must be {known}", replica.role)
            continue
        yield from _replica(replica, operator.container)


def _replica(replica: Replica, container: str) -> Iterator[Violation]:
    path = replica.path
    if replica.role in LEADERS and replica.count != 1:
        rule = f"replicas == 1 for the {replica.role}"
        yield broken(f"{path}.replicas", rule, replica.count, "further processes are Workers")
    elif replica.count < 1:
        yield broken(
            f"{path}.replicas",
            "replicas >= 1",
            replica.count,
            f"leave the {replica.role} out if there is none",
        )
    yield from one_of(f"{path}.restartPolicy", replica.restart_policy, RESTART_POLICIES)
    if container and replica.pod.container(container) is None:
        names = [given.name for given in replica.pod.containers]
        yield broken(
            f"{replica.pod.path}.spec.containers", f"must hold one called {container}", names
        )


@refused
def _run_policy(job: Workload) -> Iterator[Violation]:
    path, policy = job.run_policy_path, job.run_policy
    for field in _NOT_NEGATIVE:
        value = integer(policy.get(field))
        if value is not None and value < 0:
            yield broken(f"{path}.{field}", f"{field} >= 0", value)
    if job.operator:
        yield from one_of(f"{path}.cleanPodPolicy", job.clean_pod_policy, CLEAN_POD_POLICIES)
        if policy.get("managedBy") is not None:
            managers = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
            yield from one_of(f"{path}.managedBy", policy["managedBy"], managers)


@refused_operator_job
def _processes(job: Workload) -> Iterator[Violation]:
    if job.kind != "PyTorchJob":
        return
    given, elastic = job.spec.get("nprocPerNode"), job.spec.get("elasticPolicy")
    if given is not None and given not in ("auto", "cpu", "gpu") and not job.processes_per_replica:
        yield broken("spec.nprocPerNode", "must be auto, cpu, gpu or a number in quotes", given)
    if elastic is not None and job.replica("Worker") is None:
        yield broken(
            f"{job.replicas_path}.Worker",
            "must be given with elasticPolicy",
            None,
            "an elastic job has Workers",
        )
    if elastic and elastic.get("nProcPerNode") is not None and given is not None:
        where = "spec.elasticPolicy.nProcPerNode"
        yield broken(where, "must be left out beside spec.nprocPerNode", elastic["nProcPerNode"])


@refused_operator_job
def _slots(job: Workload) -> Iterator[Violation]:
    if job.kind == MPIJOB and job.slots_per_worker is not None and job.slots_per_worker < 1:
        hint = "the number of processes in each Worker; 1 if left out"
        yield broken("spec.slotsPerWorker", "slotsPerWorker >= 1", job.slots_per_worker, hint)


@refused_operator_job
def _success_policy(job: Workload) -> Iterator[Violation]:
    if job.operator and job.operator.first_pod_decides and job.success_policy:
        yield from one_of("spec.successPolicy", job.success_policy, ("AllWorkers",))


@refused_job
def _completions(job: Workload) -> Iterator[Violation]:
    mode, policy = job.spec.get("completionMode"), job.replicas[0].restart_policy
    yield from one_of("spec.template.spec.restartPolicy", policy, ("Never", "OnFailure"))
    yield from one_of("spec.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed" and job.spec.get("completions") is None:
        yield broken("spec.completions", "must be given with completionMode Indexed", None)


@refused
def containers(job: Workload) -> Iterator[Violation]:
    for replica in job.replicas:
        yield from broken_containers(replica.pod)


@refused
def name(job: Workload) -> Iterator[Violation]:
    if job.kind != "Job":
        longest = max(map(_pod_suffix, job.replicas), key=len, default="")
        yield from broken_name(job.expected_name, longest)
    elif not (is_dns_1123(job.expected_name) and len(job.expected_name) <= 63):
        yield broken(
            "metadata.name",
            "must be lower case letters, digits, - and ., at most 63",
            job.expected_name,
        )


def _pod_suffix(replica: Replica) -> str:
    return f"-{replica.role.lower()}-{replica.count - 1}"

"""A PyTorchJob or Job as a TrainJob of Kubeflow Trainer 2.2 or later, and an Experiment whose
trials are such jobs.

A TrainJob says less than its pods: what ``spec.trainer`` and ``spec.runtimePatches`` have no field
for stands in the runtime. Each field is carried over, or there is a note of why not. Source:
kubeflow/trainer v2.3.0, pkg/apis/trainer/v1alpha1/trainjob_types.go; release-1.9,
pkg/apis/kubeflow.org/v1/{common,pytorch}_types.go.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from podium.errors import InvalidInput
from podium.manifests.admission import admit
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.rules import check
from podium.manifests.experiment.schema import default_conditions, default_primary_labels
from podium.manifests.fields import mapping, present, unshared, with_values
from podium.manifests.kinds import JOB_KINDS, MIGRATED_KINDS, OPERATOR_KINDS, TRAINJOB, or_list
from podium.manifests.labels import TRAINJOB_MANAGERS
from podium.manifests.resource import R
from podium.manifests.rules import Violation, shorten
from podium.manifests.torchrun import launches, with_torchrun
from podium.manifests.trainjob import (
    BACKOFF_LIMIT,
    NODE,
    PATCHED_CONTAINER,
    PATCHED_POD,
    RESERVED,
    TORCH,
    TRAINER_FIELDS,
    with_node_template,
)
from podium.manifests.workload import Container, Replica, Workload

OWN_RUNTIME = "put it into a TrainingRuntime of your own, a copy of torch-distributed, and name that in spec.runtimeRef"

_KEPT_METADATA = ("name", "generateName", "namespace", "labels", "annotations")
_OF_THE_SERVER = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OF_THE_OPERATOR = re.compile(r"\$[({]?(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT)\b")
_MULTIKUEUE = TRAINJOB_MANAGERS[1]
_OF_A_JOB = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Labels that the controller of Jobs gives their pods."""

_DEFAULTS = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "automountServiceAccountToken": True,
    "hostUsers": True,
    "schedulerName": "default-scheduler",
    "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
"""Fields of pods and containers that mean nothing with these values: an API server adds them
itself."""


def migrate(resource: R, runtime: str = TORCH) -> tuple[R, list[Violation]]:
    """Write a job, or the job of an Experiment's trials, as a TrainJob.

    Args:
        resource: A Workload or an Experiment.

    Returns:
        It, and the parts that were dropped or have changed, each with the field of the source.

    Raises:
        BrokenRules: It is refused as it is, or would be as a TrainJob.
        InvalidInput: It is of another kind, or a TrainJob cannot run its pods.
    """
    migrated: Any
    if isinstance(resource, Experiment):
        check(resource, job=False)
        migrated, notes = _experiment(resource, runtime)
        check(migrated, job=False)
        trial = f"{migrated.expected_name}-{'x' * 8}"  # as Katib names it
        admit({**migrated.template.workload.manifest, "metadata": {"name": trial}})
        return migrated, notes
    if not isinstance(resource, Workload):
        raise _not_migrated(resource.kind)
    if resource.kind in MIGRATED_KINDS:
        admit(resource.manifest)
    migrated, notes = as_trainjob(resource, runtime=runtime)
    admit(migrated.manifest)
    return migrated, notes


def _not_migrated(kind: str, path: str = "") -> InvalidInput:
    hint = OPERATOR_KINDS[kind].migration if kind in OPERATOR_KINDS else None
    problem = (
        f"{path}kind: must be {or_list([*MIGRATED_KINDS])} to become a TrainJob, but got {kind!r}"
    )
    return InvalidInput(problem, hint)


def as_trainjob(
    job: Workload, name: str = "", *, runtime: str = TORCH, keep_command: bool = False
) -> tuple[Workload, list[Violation]]:
    """Return a job, which may be the template of one, as a TrainJob, and the notes; nothing is
    admitted.

    Args:
        job: A PyTorchJob or Job.
        name: Container that trains; the operator's, or the first, if empty.
        keep_command: Whether its command finds the other nodes by PET_* alone, and needs no
            torchrun.

    Raises:
        InvalidInput: It is of another kind, or a TrainJob cannot run its pods.
    """
    if job.kind not in MIGRATED_KINDS:
        raise _not_migrated(job.kind, job.path)
    nodes, first = _count(job), job.replica("Master") or job.replicas[0]
    name = name or (job.operator.container if job.operator else first.pod.containers[0].name)
    container = next(container for container in first.pod.containers if container.name == name)
    notes = [*_metadata_notes(job), *_policy_notes(job), *_template_notes(job, first, container)]
    command, said = _command(job, container, nodes)
    if keep_command:
        words = {"command": list(container.command), "args": list(container.args)}
        command, said = {name: part for name, part in words.items() if part}, []
    notes += said
    trainer = {"numNodes": nodes} | _processes(job, container, notes)
    spec = present(
        runtimeRef={"name": runtime},
        trainer=trainer,
        suspend=job.suspended or None,
        activeDeadlineSeconds=job.active_deadline_seconds or None,
        managedBy=_MULTIKUEUE if job.managed_by == _MULTIKUEUE else None,
    )
    spec = with_node_template(spec, _node_template(first, container, command))
    spec = {name: value for name, value in spec.items() if value != []}
    metadata = {key: value for key, value in _metadata(job).items() if value}
    manifest = {
        "apiVersion": JOB_KINDS[TRAINJOB],
        "kind": TRAINJOB,
        "metadata": metadata,
        "spec": spec,
    }
    return Workload(
        manifest=unshared({name: value for name, value in manifest.items() if value}), path=job.path
    ), notes


def _count(job: Workload) -> int:
    """Return the number of nodes of a job.

    Raises:
        InvalidInput: A TrainJob cannot run its pods.
    """
    if job.kind == "Job":
        completions = 1 if job.completions is None and job.parallelism == 1 else job.completions
        if completions != job.parallelism or (completions != 1 and not job.is_indexed):
            rule = (
                "completions == parallelism, and completionMode Indexed for several pods, must hold"
            )
            actual = f"parallelism={job.parallelism}, completions={job.completions}"
            raise InvalidInput(
                f"{job.path}spec: {rule}, but got {actual}",
                "the nodes of a TrainJob run at once, each once; leave this one a Job",
            )
        return job.parallelism
    return job.pod_count


def _metadata(job: Workload) -> dict[str, Any]:
    kept = {key: value for key, value in job.metadata.items() if key in _KEPT_METADATA}
    annotations = {key: value for key, value in job.annotations.items() if key != _LAST_APPLIED}
    return {**kept, "annotations": annotations}


def _metadata_notes(job: Workload) -> Iterator[Violation]:
    for name in job.metadata:
        if name not in (*_KEPT_METADATA, *_OF_THE_SERVER):
            yield Violation(
                "is left out: it belongs to the stored object", f"{job.path}metadata.{name}"
            )


def _policy_notes(job: Workload) -> Iterator[Violation]:
    path, policy = job.run_policy_path, job.run_policy
    for name, (note, hint) in _POLICY.items():
        if policy.get(name) is not None:
            yield Violation(note, f"{path}.{name}", hint)
    if job.clean_pod_policy == "All":
        note = "is left out: the pods stay, with their logs, until the TrainJob is deleted"
        yield Violation(note, f"{path}.cleanPodPolicy")
    policies = {replica.restart_policy: replica for replica in reversed(job.replicas)}
    for restart_policy, replica in policies.items():
        if restart_policy not in ("", "OnFailure"):
            where = (
                f"{replica.path}.restartPolicy"
                if job.operator
                else f"{replica.pod.path}.spec.restartPolicy"
            )
            note = f"{restart_policy} is left out: nodes restart OnFailure, {BACKOFF_LIMIT} times in all"
            yield Violation(note, where, OWN_RUNTIME)
    if policy.get("managedBy") not in (None, _MULTIKUEUE, "kubeflow.org/training-operator"):
        yield Violation(f"{policy['managedBy']} is left out", f"{path}.managedBy")
    if job.elastic:
        note = f"is left out: a TrainJob has a fixed number of nodes, here {job.pod_count}"
        hint = "torchrun's --max-restarts, or PET_MAX_RESTARTS in spec.trainer.env, restarts processes within a node"
        yield Violation(note, f"{job.path}spec.elasticPolicy", hint)
    if job.kind == "PyTorchJob" and job.replica("Master") and job.workers:
        note = "a TrainJob is complete when every node is, a PyTorchJob when its Master was"
        yield Violation(note, f"{job.replicas_path}.Master")


_IN_JOBSET = "is left out: it stands in the runtime"
_POLICY = {
    "ttlSecondsAfterFinished": (
        _IN_JOBSET,
        "as spec.template.spec.ttlSecondsAfterFinished of a TrainingRuntime",
    ),
    "backoffLimit": (
        f"{_IN_JOBSET}; torch-distributed leaves it at {BACKOFF_LIMIT}",
        "as spec.template.spec.replicatedJobs[0].template.spec.backoffLimit of a TrainingRuntime",
    ),
    "schedulingPolicy": (
        f"{_IN_JOBSET}: pods that start together",
        "as spec.podGroupPolicy of a TrainingRuntime",
    ),
    "podFailurePolicy": (_IN_JOBSET, OWN_RUNTIME),
    "podReplacementPolicy": (_IN_JOBSET, OWN_RUNTIME),
    "successPolicy": (_IN_JOBSET, OWN_RUNTIME),
    "backoffLimitPerIndex": (_IN_JOBSET, OWN_RUNTIME),
    "maxFailedIndexes": (_IN_JOBSET, OWN_RUNTIME),
}
"""Fields of a run policy, or of a Job's spec, that a TrainJob has not."""


def _template_notes(job: Workload, first: Replica, container: Container) -> Iterator[Violation]:
    for replica in job.replicas:
        if replica is not first and (
            paths := list(_differences(first.pod.manifest, replica.pod.manifest))
        ):
            note = f"differs in {', '.join(paths[:8])}: every node gets the {first.role}'s"
            yield Violation(note, replica.pod.path)
    pod = first.pod
    for name in _own_fields(pod.spec, {*PATCHED_POD, "restartPolicy", "serviceAccount"}):
        yield _not_patched(f"{pod.path}.spec.{name}")
    for other in pod.init_containers:
        yield _not_patched(other.path, f"the init container {other.name}")
    for other in pod.containers:
        if other is not container:
            yield _not_patched(other.path, f"the container {other.name}")
    for name in _own_fields(container.manifest, {*PATCHED_CONTAINER, *TRAINER_FIELDS}):
        if name != "ports" or not _is_default_port(container):
            yield _not_patched(f"{container.path}.{name}")
    for name in container.env:
        if name in RESERVED:
            yield Violation(f"{name} is left out: Trainer sets it", f"{container.path}.env")


def _own_fields(manifest: Mapping[str, Any], carried: set[str]) -> list[str]:
    names = {*with_values(manifest), *(_DEFAULTS.keys() & manifest.keys())}  # false says something
    return [
        name
        for name in sorted(names - carried)
        if manifest[name] not in (None, "", _DEFAULTS.get(name))
    ]


def _not_patched(where: str, part: str = "") -> Violation:
    return Violation(
        f"{part} is left out: a TrainJob has no such field".strip(), where, OWN_RUNTIME
    )


def _is_default_port(container: Container) -> bool:
    ports = container.manifest["ports"]
    return isinstance(ports, list) and [mapping(port).get("name") for port in ports] == [
        "pytorchjob-port"
    ]


def _differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which two templates differ, down to the fields of containers."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys((*one, *other)):
            yield from _differences(
                one.get(key), other.get(key), f"{path}.{key}" if path else str(key)
            )
    elif (
        path.endswith("ontainers")
        and isinstance(one, list)
        and isinstance(other, list)
        and len(one) == len(other)
    ):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differences(left, right, f"{path}[{index}]")
    elif one != other:
        yield path


def _command(
    job: Workload, container: Container, nodes: int
) -> tuple[dict[str, Any], list[Violation]]:
    command, args = list(container.command), list(container.args)
    notes = list(_variable_notes(container))
    if nodes > 1 and not launches(container.words):
        words = with_torchrun(container.words)
        if words is None or not command:
            note = "several nodes need torchrun, and this does not begin with one python: put torchrun there yourself"
            notes.append(
                Violation(
                    note,
                    f"{container.path}.command",
                    "Trainer sets PET_* for torchrun, but neither RANK nor WORLD_SIZE",
                )
            )
        else:
            ends = zip(reversed(args), reversed(words[1:]), strict=False)
            kept = len(list(takewhile(lambda pair: pair[0] == pair[1], ends)))
            command, args = list(words[: len(words) - kept]), list(words[len(words) - kept :])
            before, after = (shorten(" ".join(line)) for line in (container.words, words))
            note = f"{before} becomes {after}: Trainer sets neither RANK nor WORLD_SIZE"
            notes.append(Violation(note, f"{container.path}.command"))
    elif nodes == 1 and job.kind == "PyTorchJob" and not launches(container.words):
        note = "neither RANK nor WORLD_SIZE is set any more: a script that insists on them needs torchrun before it"
        notes.append(Violation(note, f"{container.path}.command"))
    return {name: words for name, words in (("command", command), ("args", args)) if words}, notes


def _variable_notes(container: Container) -> Iterator[Violation]:
    values = ((f"{container.path}.env", variable.value) for variable in container.variables)
    for where, word in (*container.numbered_words, *values):
        if name := _OF_THE_OPERATOR.search(word):
            instead = {"RANK": "PET_NODE_RANK", "WORLD_SIZE": "PET_NNODES"}.get(
                name[1], f"PET_{name[1]}"
            )
            note = f"refers to {name[1]}, which Trainer does not set"
            hint = f"{instead} is what it sets; within torchrun's processes {name[1]} is there as before"
            yield Violation(note, where, hint)


def _processes(job: Workload, container: Container, notes: list[Violation]) -> dict[str, int]:
    """Return ``numProcPerNode``: 1 unless the job asks for more, or leaves the number to
    torchrun."""
    processes = job.processes_per_replica or (job.elastic.processes if job.elastic else None)
    if processes is None and launches(container.words):
        note = "is left out: Trainer starts as many processes on a node as it has GPUs, else CPUs in its request"
        notes.append(
            Violation(note, f"{job.path}spec.nprocPerNode", "set spec.trainer.numProcPerNode")
        )
        return {}
    return {"numProcPerNode": processes or 1}


def _node_template(
    first: Replica, container: Container, command: Mapping[str, Any]
) -> dict[str, Any]:
    labels = {name: value for name, value in first.pod.labels.items() if name not in _OF_A_JOB}
    metadata = {
        name: values
        for name, values in (("labels", labels), ("annotations", first.pod.annotations))
        if values
    }
    spec = {
        name: value
        for name, value in first.pod.spec.items()
        if name in PATCHED_POD and value not in (None, "", [], {})
    }
    if account := first.pod.spec.get("serviceAccount"):
        spec.setdefault("serviceAccountName", account)
    spec.pop("initContainers", None)
    fields = {*PATCHED_CONTAINER, *TRAINER_FIELDS} - {"command", "args", "env"}
    body = {name: value for name, value in container.manifest.items() if name in fields and value}
    env = [
        dict(variable.manifest) for name, variable in container.env.items() if name not in RESERVED
    ]
    body |= {"name": NODE, **command, **({"env": env} if env else {})}
    return {**({"metadata": metadata} if metadata else {}), "spec": {**spec, "containers": [body]}}


def _experiment(experiment: Experiment, runtime: str) -> tuple[Experiment, list[Violation]]:
    template = experiment.template
    if template.in_config_map:
        hint = "put the ConfigMap into the same file, or the job into spec.trialTemplate.trialSpec"
        raise InvalidInput(
            "spec.trialTemplate.configMap: must be a trialSpec, but got a ConfigMap", hint
        )
    job, notes = as_trainjob(template.workload, template.primary_container, runtime=runtime)
    success, failure = default_conditions(TRAINJOB) or ("", "")
    notes += _trial_notes(experiment)

    def change(manifest: dict[str, Any]) -> None:
        trial = manifest["spec"]["trialTemplate"]
        trial |= {
            "primaryContainerName": NODE,
            "primaryPodLabels": default_primary_labels(TRAINJOB),
            "successCondition": success,
            "failureCondition": failure,
        }
        del trial["trialSpec"]
        trial["trialSpec"] = job.manifest  # last, as people write it
        manifest.pop("status", None)
        metadata = manifest["metadata"]
        manifest["metadata"] = {key: metadata[key] for key in metadata if key not in _OF_THE_SERVER}

    return experiment.changed(change), notes


def _trial_notes(experiment: Experiment) -> Iterator[Violation]:
    template, path = experiment.template, "spec.trialTemplate"
    success, failure = default_conditions(template.workload.kind) or ("", "")
    conditions = (
        ("successCondition", template.success_condition, success),
        ("failureCondition", template.failure_condition, failure),
    )
    for name, condition, usual in conditions:
        if condition and condition != usual:
            yield Violation(f"{condition} becomes the condition of a TrainJob", f"{path}.{name}")
    usual_labels = default_primary_labels(template.workload.kind) or {}
    if dict(template.primary_pod_labels) != usual_labels:
        yield Violation("metrics are collected from the first node", f"{path}.primaryPodLabels")

"""The pod template of a TrainJob's nodes: read from its spec, and written back.

A TrainJob has no pod template of its own: it names a runtime, which the cluster has.
``spec.trainer`` overrides the runtime's container ``node``, and the entries of
``spec.runtimePatches`` are merged into its pods one after the other.

Source: kubeflow/trainer v2.3.0, pkg/apis/trainer/v1alpha1/trainjob_types.go,
pkg/runtime/core/trainingruntime.go and pkg/runtime/framework/plugins/mpi/mpi.go.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from podium.errors import InvalidInput
from podium.manifests.fields import integer, mapping, objects, strings, text, unshared
from podium.manifests.labels import PATCH_MANAGER

NODE = "node"
"""Name of the replicated job whose pods train, and of their container."""

LAUNCHER = "launcher"
"""Name of the replicated job of a runtime with MPI whose pod runs the command; its nodes wait for
mpirun. Its container is called ``node``, too."""

BACKOFF_LIMIT = 6
"""Restarts of all nodes together after which the job fails: the default of a Job, which
torch-distributed leaves."""

TORCH = "torch-distributed"
"""The ClusterTrainingRuntime for PyTorch that Trainer installs."""

RUNTIME_IMAGES = {TORCH: "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"}
"""Image of a runtime's container ``node`` (v2.3.0: manifests/base/runtimes)."""

MPI_RUNTIMES = ("deepspeed-distributed", "mlx-distributed")
"""Runtimes that Trainer installs for Open MPI, with ranks on the launcher, too."""

OTHER_RUNTIMES = ("jax-distributed", "xgboost-distributed")
"""Runtimes that Trainer installs and that set other variables than PyTorch's."""

MPI_RESERVED = (
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_plm_rsh_args",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
)
RESERVED = (
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
)
"""Variables that Trainer sets for PyTorch; trainer.env must not."""


TRAINER_FIELDS = {
    "image": "image",
    "command": "command",
    "args": "args",
    "env": "env",
    "resources": "resourcesPerNode",
}
"""Fields of the container ``node`` that spec.trainer holds, with their names there."""

PATCHED_CONTAINER = ("name", "env", "volumeMounts", "securityContext")
"""Fields of a container that a runtimePatch may set; ``env`` of ``node`` is not among them."""

PATCHED_POD = (
    "serviceAccountName",
    "volumes",
    "initContainers",
    "containers",
    "imagePullSecrets",
    "securityContext",
    "nodeSelector",
    "affinity",
    "tolerations",
    "schedulingGates",
    "terminationGracePeriodSeconds",
)
"""Fields of a pod's spec that a runtimePatch may set."""

_MERGE_KEYS = {
    **dict.fromkeys(
        ("containers", "initContainers", "volumes", "imagePullSecrets", "schedulingGates", "env"),
        "name",
    ),
    "volumeMounts": "mountPath",
}
"""Lists that a strategic merge joins by a field of their items; any other list is replaced."""


def uses_mpi(spec: Mapping[str, Any]) -> bool:
    """Return whether a TrainJob's runtime is for MPI: one of Trainer's by its name, any other one
    by the command."""
    runtime = text(mapping(spec.get("runtimeRef")).get("name"))
    if runtime in (TORCH, *OTHER_RUNTIMES):
        return False
    command = strings(mapping(spec.get("trainer")).get("command"))
    return runtime in MPI_RUNTIMES or PurePosixPath(*command[:1]).name == "mpirun"


def training_job(spec: Mapping[str, Any]) -> str:
    """Return the name of the replicated job whose pods run a TrainJob's command."""
    return LAUNCHER if uses_mpi(spec) else NODE


def mpi_slots(spec: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many hosts the hostfile of a TrainJob with MPI lists, and the slots of each.

    With Trainer's own runtimes the launcher is one of them, and at least one node another.
    """
    trainer = mapping(spec.get("trainer"))
    nodes = integer(trainer.get("numNodes")) or 1
    own = text(mapping(spec.get("runtimeRef")).get("name")) not in MPI_RUNTIMES
    return nodes if own else max(nodes, 2), integer(trainer.get("numProcPerNode")) or 1


def node_template(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod template of a TrainJob's nodes, as far as the TrainJob says it.

    Args:
        spec: The TrainJob's; nothing in the result is shared with it.
    """
    trainer = mapping(spec.get("trainer"))
    container = {field: trainer[own] for field, own in TRAINER_FIELDS.items() if own in trainer}
    template: Any = {"spec": {"containers": [{"name": NODE, **container}]}}
    for patch in objects(spec.get("runtimePatches")):
        own = (job for job in _patched_jobs(patch) if job.get("name") == training_job(spec))
        template = _merged(template, template_of(next(own, {})))
    return dict(unshared(template))


def with_node_template(spec: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Return a TrainJob's spec with another pod template for its nodes.

    The container ``node`` goes to spec.trainer. What else differs from the patches of other
    managers goes into one entry of podium's own, which comes last and so has the last word.

    Raises:
        InvalidInput: The template has a field that only the runtime may set.
    """
    if template == node_template(spec):
        return dict(spec)
    trainer = {
        name: value
        for name, value in mapping(spec.get("trainer")).items()
        if name not in TRAINER_FIELDS.values()
    }
    container = next(
        (body for body in _containers(template, "containers") if body.get("name") == NODE), {}
    )
    trainer |= {
        own: container[field] for field, own in TRAINER_FIELDS.items() if field in container
    }
    patches = [dict(patch) for patch in objects(spec.get("runtimePatches"))]
    others = [patch for patch in patches if patch.get("manager") != PATCH_MANAGER]
    own = next(
        (patch for patch in patches if patch.get("manager") == PATCH_MANAGER),
        {"manager": PATCH_MANAGER},
    )
    before = node_template({**spec, "trainer": trainer, "runtimePatches": others})
    own = _with_patched_template(own, _own_part(template, before), training_job(spec))
    return {
        **spec,
        "trainer": trainer,
        "runtimePatches": [*others, *([own] if len(own) > 1 else [])],
    }


def _patched_jobs(patch: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return objects(_inner(patch, "trainingRuntimeSpec", "template", "spec").get("replicatedJobs"))


def template_of(patched_job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the pod template that an entry of a runtimePatch merges into the pods of a replicated
    job."""
    return _inner(patched_job, "template", "spec", "template")


def _inner(holder: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        holder = mapping(holder.get(name))
    return holder


def _with_patched_template(
    patch: Mapping[str, Any], template: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """Return a runtimePatch with another template for a replicated job; its other parts stay."""
    jobs: list[Any] = [job for job in _patched_jobs(patch) if job.get("name") != name]
    if template:
        jobs.append({"name": name, "template": {"spec": {"template": template}}})
    jobset = _inner(patch, "trainingRuntimeSpec", "template")
    others = mapping(jobset.get("spec")).items()
    spec = {
        **{key: value for key, value in others if key != "replicatedJobs"},
        **({"replicatedJobs": jobs} if jobs else {}),
    }
    jobset = {
        **{key: value for key, value in jobset.items() if key != "spec"},
        **({"spec": spec} if spec else {}),
    }
    kept = {
        key: value for key, value in patch.items() if key not in ("trainingRuntimeSpec", "time")
    }
    return {**kept, **({"trainingRuntimeSpec": {"template": jobset}} if jobset else {})}


def _own_part(template: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a template that neither the runtime nor the patches of others provide."""
    metadata, provided = mapping(template.get("metadata")), mapping(others.get("metadata"))
    own = {
        name: dict(_differing(mapping(metadata.get(name)), mapping(provided.get(name))))
        for name in metadata
    }
    own = {name: values for name, values in own.items() if values}
    spec, theirs = mapping(template.get("spec")), mapping(others.get("spec"))
    fields = {
        name: value
        for name, value in _differing(spec, theirs)
        if not name.lower().endswith("containers")
    }
    _refuse_other(fields, PATCHED_POD, "a pod's")
    for part in ("initContainers", "containers"):
        before = {text(body.get("name")): body for body in _containers(others, part)}
        containers = [
            _own_container(body, before.get(text(body.get("name")), {}))
            for body in _containers(template, part)
        ]
        fields |= {part: named} if (named := [body for body in containers if len(body) > 1]) else {}
    return {**({"metadata": own} if own else {}), **({"spec": fields} if fields else {})}


def _own_container(container: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    in_trainer = TRAINER_FIELDS if container.get("name") == NODE else {}
    own = {name: value for name, value in _differing(container, before) if name not in in_trainer}
    _refuse_other(own, PATCHED_CONTAINER, f"the container {container.get('name')}'s")
    return {
        "name": container.get("name"),
        **{name: value for name, value in own.items() if name != "name"},
    }


def _refuse_other(fields: Mapping[str, Any], allowed: tuple[str, ...], whose: str) -> None:
    for name in sorted(set(fields) - set(allowed)):
        hint = "set it in the ClusterTrainingRuntime, or in a TrainingRuntime of the namespace, that runtimeRef names"
        raise InvalidInput(
            f"a TrainJob cannot set {whose} {name}: runtimePatches has no such field", hint
        )


def _differing(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in new.items() if name not in old or old[name] != value)


def _containers(template: Mapping[str, Any], part: str) -> tuple[Mapping[str, Any], ...]:
    return objects(mapping(template.get("spec")).get(part))


def _merged(base: Any, patch: Any, field: str = "") -> Any:
    """Merge as a strategic merge patch of Kubernetes does, for the fields that a runtimePatch
    has."""
    if isinstance(base, Mapping) and isinstance(patch, Mapping):
        return {
            **base,
            **{name: _merged(base.get(name), value, name) for name, value in patch.items()},
        }
    if (key := _MERGE_KEYS.get(field)) and isinstance(base, list) and isinstance(patch, list):
        joined = {text(mapping(item).get(key)): item for item in base}
        for item in patch:
            name = text(mapping(item).get(key))
            joined[name] = _merged(joined.get(name), item)
        return list(joined.values())
    return patch

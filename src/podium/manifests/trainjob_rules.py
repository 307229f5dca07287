"""Admission of TrainJobs: the rules of its CRD, of Trainer's webhooks and of JobSet's.

Source: kubeflow/trainer v2.3.0, pkg/apis/trainer/v1alpha1/trainjob_types.go,
pkg/webhooks/trainjob_webhook.go and pkg/runtime/framework/plugins/{torch/torch,jobset/jobset}.go;
jobset v0.12.0, pkg/webhooks/jobset_webhook.go. They look names up in the runtime: torch-distributed
has one replicated job ``node`` with a container ``node``; what another has is known in its cluster
only.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from podium.manifests.fields import integer, items, mapping, numbered, text
from podium.manifests.labels import TRAINER_API, TRAINJOB_MANAGERS
from podium.manifests.names import broken_name, is_dns_1123
from podium.manifests.pod_rules import ENV, POD_TEMPLATE, RESOURCES, broken_variables
from podium.manifests.rules import Rules, Violation, broken, one_of
from podium.manifests.structure import BOOL, INT, OBJECT, TEXT, Schema
from podium.manifests.trainjob import (
    NODE,
    PATCHED_CONTAINER,
    PATCHED_POD,
    RUNTIME_IMAGES,
    TORCH,
    reserved,
    template_of,
)
from podium.manifests.workload import Workload

_HTTP_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_PATCHED_JOB: Schema = {
    "name": TEXT,
    "template": {"metadata": OBJECT, "spec": {"template": POD_TEMPLATE}},
}

SPEC: Schema = {
    "runtimeRef": {"name": TEXT, "apiGroup": TEXT, "kind": TEXT},
    "initializer": OBJECT,
    "trainer": {
        "image": TEXT,
        "command": [TEXT],
        "args": [TEXT],
        "env": ENV,
        "numNodes": INT,
        "numProcPerNode": INT,
        "resourcesPerNode": RESOURCES,
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
    "activeDeadlineSeconds": INT,
    "managedBy": TEXT,
}

REFUSED = Rules[Workload]()
refused = REFUSED.rule(
    "fail", "Trainer, JobSet or the API server refuses it.", "refused-by-trainer", refuses=True
)


def set_defaults(spec: dict[str, Any]) -> None:
    """Fill in the defaults of the runtime torch-distributed; alters the TrainJob's spec."""
    trainer = spec["trainer"] = dict(spec.get("trainer") or {})
    image = RUNTIME_IMAGES.get(text(mapping(spec.get("runtimeRef")).get("name")), "")
    trainer["numNodes"] = 1 if trainer.get("numNodes") is None else trainer["numNodes"]
    trainer["image"] = trainer.get("image") or image


@refused
def runtime(job: Workload) -> Iterator[Violation]:
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


@refused
def trainer(job: Workload) -> Iterator[Violation]:
    path, given = f"{job.path}spec.trainer", mapping(job.spec.get("trainer"))
    for name in ("numNodes", "numProcPerNode"):
        value = integer(given.get(name))
        if value is not None and value < 1:
            yield broken(f"{path}.{name}", f"{name} >= 1", value)
    yield from broken_variables(f"{path}.env", given.get("env"))
    for where, variable in numbered(f"{path}.env", given.get("env")):
        if variable.get("name") in reserved(job.spec):
            yield broken(
                where, "must not be a variable that Trainer sets", variable["name"], "remove it"
            )


@refused
def _limits(job: Workload) -> Iterator[Violation]:
    seconds = job.active_deadline_seconds
    if seconds is not None and seconds < 1:
        yield broken(f"{job.path}spec.activeDeadlineSeconds", "activeDeadlineSeconds >= 1", seconds)
    if job.managed_by:
        yield from one_of(f"{job.path}spec.managedBy", job.managed_by, TRAINJOB_MANAGERS)


@refused
def _patches(job: Workload) -> Iterator[Violation]:
    given, managers = job.spec.get("runtimePatches"), set()
    if len(items(given)) > 16:
        yield broken(
            f"{job.path}spec.runtimePatches", "must have at most 16 entries", len(items(given))
        )
    for path, patch in numbered(f"{job.path}spec.runtimePatches", given):
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
            yield from _patched_job(patched, where, known=job.runtime == TORCH)


def _patched_job(patched: Mapping[str, Any], path: str, *, known: bool) -> Iterator[Violation]:
    if patched.get("name") != NODE and known:
        yield broken(
            f"{path}.name", f"must be {NODE}", patched.get("name"), "torch-distributed has no other"
        )
    pod, inside = mapping(template_of(patched).get("spec")), f"{path}.template.spec.template.spec"
    for name in sorted(set(pod) - set(PATCHED_POD)):
        yield _not_patched(f"{inside}.{name}", PATCHED_POD, name)
    for part in ("initContainers", "containers"):
        for where, container in numbered(f"{inside}.{part}", pod.get(part)):
            yield from _patched_container(container, where, known=known)


def _patched_container(
    container: Mapping[str, Any], path: str, *, known: bool
) -> Iterator[Violation]:
    for name in sorted(set(container) - set(PATCHED_CONTAINER)):
        hint = "image, command, args and resourcesPerNode stand in spec.trainer"
        yield _not_patched(f"{path}.{name}", PATCHED_CONTAINER, name, hint)
    if container.get("name") != NODE:
        if known:
            hint = "a runtimePatch changes the containers of the runtime and adds none"
            yield broken(f"{path}.name", f"must be {NODE}", container.get("name"), hint)
    elif container.get("env"):
        yield broken(
            f"{path}.env", "must be left out", container["env"], "write it into spec.trainer.env"
        )


def _not_patched(
    path: str, known: tuple[str, ...], name: str, hint: str | None = None
) -> Violation:
    return broken(path, f"must be one of {', '.join(known)}", name, hint or "set it in the runtime")


@refused
def name(job: Workload) -> Iterator[Violation]:
    return broken_name(job.expected_name, f"-{NODE}-0-{job.nodes - 1}-abcde")

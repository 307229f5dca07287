"""Pod Security: settings that a namespace with the level "restricted" requires, and reasons for its
refusals.

Source: the Pod Security Standards as the API server applies them (kubernetes/kubernetes v1.34,
staging/src/k8s.io/pod-security-admission/policy/check_*.go).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from podium.manifests.fields import items, mapping, strings
from podium.manifests.job_editor import JobEditor, merge
from podium.manifests.labels import LAUNCHED, RUN
from podium.manifests.resource import R
from podium.manifests.workload import Container, Pod, Workload

ENFORCE = "pod-security.kubernetes.io/enforce"
"""Label of a namespace with the level that its pods must keep (k8s.io/pod-security-admission:
api/constants.go)."""

RESTRICTED = "restricted"

_CONTAINER = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}
"""securityContext of a container, beside the capabilities that it drops."""

_HARMLESS = {"NET_BIND_SERVICE"}
_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def secure(spec: dict[str, Any]) -> None:
    """Set the fields that "restricted" requires in a pod's spec, unless it has its own.

    Each container carries ``runAsNonRoot`` itself: a controller may add containers whose image runs
    as root, as Katib's metrics collector and the training operator's init container do, and on the
    pod it would stop those. A container that runs as root, is privileged or adds capabilities by
    its manifest stays as it is: the API server refuses some of these together, and root without
    capabilities can do less than any other user.
    """
    own = mapping(spec.get("securityContext"))
    if own.get("runAsNonRoot") is not False:
        spec["securityContext"] = {"seccompProfile": {"type": "RuntimeDefault"}, **own}
    for part in ("initContainers", "containers"):
        for container in items(spec.get(part)):
            if isinstance(container, dict) and not _asks_for_privileges(container, own):
                context = mapping(container.get("securityContext"))
                capabilities = {"drop": ["ALL"], **mapping(context.get("capabilities"))}
                container["securityContext"] = {
                    **_CONTAINER,
                    **context,
                    "capabilities": capabilities,
                }


def _asks_for_privileges(container: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    own = mapping(container.get("securityContext"))
    context = {**pod, **own}
    added = strings(mapping(own.get("capabilities")).get("add"))
    as_root = context.get("runAsNonRoot") is False or context.get("runAsUser") == 0
    escalates = own.get("privileged") is True or own.get("allowPrivilegeEscalation") is True
    return as_root or escalates or not _HARMLESS.issuperset(added)


def with_security(job: Workload) -> Workload:
    """Return a job whose pods are secured, and nothing else."""

    def change(editor: JobEditor) -> None:
        for _, template in editor.templates:
            secure(template["spec"])

    return job.changed_job(change)


def violations(pod: Pod) -> Iterator[str]:
    """Yield the violations of "restricted", as ``container main: runAsNonRoot is not true``."""
    yield from (
        f"{field} is true"
        for field in ("hostNetwork", "hostPID", "hostIPC")
        if pod.spec.get(field) is True
    )
    for volume in pod.volumes:
        for source in volume.sources:
            if source not in _VOLUMES:
                yield f"volume {volume.name} is of type {source}"
    own = mapping(pod.spec.get("securityContext"))
    for container in (*pod.init_containers, *pod.containers):
        yield from (
            f"container {container.name}: {text}" for text in _container_violations(container, own)
        )


def _container_violations(container: Container, pod: Mapping[str, Any]) -> Iterator[str]:
    own = mapping(container.manifest.get("securityContext"))
    context = {**pod, **own}
    capabilities = mapping(own.get("capabilities"))
    if own.get("privileged") is True:
        yield "privileged is true"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if "ALL" not in strings(capabilities.get("drop")):
        yield "capabilities.drop lacks ALL"
    if added := sorted({*strings(capabilities.get("add"))} - _HARMLESS):
        yield f"capabilities.add has {', '.join(added)}"
    if context.get("runAsNonRoot") is not True:
        yield "runAsNonRoot is not true"
    if context.get("runAsUser") == 0:
        yield "runAsUser is 0"
    if mapping(context.get("seccompProfile")).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile is neither RuntimeDefault nor Localhost"
    if any(mapping(port).get("hostPort") for port in items(container.manifest.get("ports"))):
        yield "it has a hostPort"


_REQUESTS = {"cpu": "250m", "memory": "512Mi"}
"""Requests of each container. Without any, a busy node starves a pod, evicts it first, and is
chosen by chance."""

MARGIN = 5
"""Seconds the pods' deadline is later: else a pod might end first and count as a replica to start
again."""


def with_pod_defaults(resource: R) -> R:
    """Return a job or Experiment whose pods fit a namespace that enforces Pod Security
    "restricted".

    They also have small requests, labels that tell them and their run, and no token of the API; a
    pod with a service account of its own asks for an identity, and keeps the token.
    """
    run = resource.labels.get(RUN)
    return resource.changed_job(lambda editor: _set_defaults(editor, run))


def _set_defaults(editor: JobEditor, run: str | None) -> None:
    for role, template in editor.templates:
        own = {LAUNCHED: "true", **({RUN: run} if run else {})}
        labels = mapping(mapping(template.get("metadata")).get("labels"))
        merge(template, ("metadata", "labels"), {**own, **labels})
        # An MPIJob's launcher has an account from the operator, to reach its Workers by kubectl.
        keeps_token = template["spec"].get("serviceAccountName") or role == "Launcher"
        if not keeps_token and editor.takes("automountServiceAccountToken"):
            template["spec"].setdefault("automountServiceAccountToken", False)
        secure(template["spec"])
    for _, container in editor.containers():
        resources = mapping(container.get("resources"))
        # A limit alone is the request too.
        requested = {*mapping(resources.get("requests")), *mapping(resources.get("limits"))}
        if missing := {name: amount for name, amount in _REQUESTS.items() if name not in requested}:
            merge(container, ("resources", "requests"), missing)


def with_pod_deadlines(resource: R) -> R:
    """Return a job or Experiment with the deadline of its operator job on every pod too; a pod's
    own deadline stays.

    The training operator means to look at a job again when its activeDeadlineSeconds have passed,
    but in 1.9.3 that reminder goes to a queue that keeps nothing (kubeflow/trainer v1.9.3,
    pkg/common/util/fake_workqueue.go): a job whose pods are quiet, as a hung job's are, runs
    forever (observed). The kubelet does end a pod at the pod's own deadline, and that event makes
    the operator look. A restarted pod has its full time again.
    """
    return resource.changed_job(_set_deadlines)


def _set_deadlines(editor: JobEditor) -> None:
    job = Workload(manifest=editor.manifest)
    if job.operator and job.active_deadline_seconds is not None:
        for _, template in editor.templates:
            template["spec"].setdefault(
                "activeDeadlineSeconds", job.active_deadline_seconds + MARGIN
            )

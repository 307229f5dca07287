"""Defaults of every launched pod on a real cluster; its manifest may override them."""

from typing import Any, TypeVar

from podium.manifests.fields import mapping
from podium.manifests.job_editor import JobEditor, merge
from podium.manifests.labels import LAUNCHED, RUN
from podium.manifests.pod_security import secure
from podium.manifests.resource import Resource
from podium.manifests.workload import Workload

REQUESTS = {"cpu": "250m", "memory": "512Mi"}
"""Requests of each container. Without any, a busy node starves a pod, evicts it first, and is
chosen by chance."""

MARGIN = 5
"""Seconds the pods' deadline is later: else a pod might end first and count as a replica to start
again."""

T = TypeVar("T", bound=Resource)


def with_pod_defaults(resource: T) -> T:
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
        _request(container)


def _request(container: dict[str, Any]) -> None:
    resources = mapping(container.get("resources"))
    given = {
        *mapping(resources.get("requests")),
        *mapping(resources.get("limits")),
    }  # a limit alone is the request too
    if missing := {name: amount for name, amount in REQUESTS.items() if name not in given}:
        merge(container, ("resources", "requests"), missing)


def with_pod_deadlines(resource: T) -> T:
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

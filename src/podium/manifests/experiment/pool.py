"""The pool of an Experiment: its number of pods, their Job, and the requirements of a process in
one of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from podium.errors import InvalidInput
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.fields import items, mapping, present
from podium.manifests.job_editor import DISRUPTED, JobEditor, merge, set_env
from podium.manifests.labels import (
    EXPERIMENT,
    ISTIO_INJECT,
    MANAGED_BY,
    QUEUE,
    QUEUE_PRIORITY,
    RUN,
    RUN_NAMESPACE,
)
from podium.manifests.options.pool import pool_size
from podium.manifests.workload import Workload

POD_UID = "PODIUM_POD_UID"
"""Variable with the uid of a worker's pod: a pod in place of another has another one."""

_TRIES = 20
"""Times that Kubernetes starts a pod of each index again. Those that it took away itself do not
count."""

TERMINATED = 143
"""Exit code of a worker that was asked to end: with 0 its index would count as done, and get no
other pod."""

_OF_PROCESS = ("name", "image", "command", "args", "env", "workingDir", "ports")
"""Fields of a container that its process in a worker has; the rest is the pod's."""


def refuse_what_pools_lack(experiment: Experiment) -> None:
    """Refuse an Experiment whose trials no pool can run.

    Raises:
        InvalidInput: It says what, and what to do.
    """
    job = experiment.sample_job(pool_name(experiment))
    hint = "leave pool out: each trial has pods of its own then"
    if job.pod_count != 1:
        raise InvalidInput(
            f"a worker of a pool runs trials of one pod, but these have {job.pod_count}", hint
        )
    containers = job.replicas[0].pod.containers
    if len(containers) > 1:
        names = ", ".join(container.name for container in containers)
        raise InvalidInput(
            f"a worker of a pool runs one container a trial, but these have {names}", hint
        )
    if any(name in experiment.asked for name in ("max_time", "max_cost")):
        raise InvalidInput(
            "a worker of a pool runs each trial to its end, so no budget can be kept", hint
        )
    if not containers[0].image:
        raise InvalidInput(
            "a worker of a pool runs in the trials' image, but the template names none", "name one"
        )


def pool_name(experiment: Experiment) -> str:
    return f"{experiment.name}-pool"


def as_workers_run(experiment: Experiment) -> Experiment:
    """Return an Experiment whose trials' job has the fields that a process needs; volumes, Secrets
    and the like belong to the pod."""

    def strip(editor: JobEditor) -> None:
        for _, template in editor.templates:
            spec = template["spec"]
            template["spec"] = present(
                containers=spec.get("containers"), restartPolicy=spec.get("restartPolicy")
            )
        for _, container in editor.containers():
            kept = {name: value for name, value in container.items() if name in _OF_PROCESS}
            plain = [entry for entry in items(kept.get("env")) if "valueFrom" not in mapping(entry)]
            container.clear()
            container |= {**kept, "env": plain}

    return experiment.changed_job(strip).with_counts({"parallelTrialCount": 1})


def pool_job(
    experiment: Experiment,
    url: str,
    access: Sequence[Mapping[str, Any]],
    owners: Sequence[Mapping[str, Any]],
) -> Workload:
    """Return the Job whose pods are an Experiment's workers.

    They are as the trials' pod: image, resources, volumes, account, security. Their command alone
    is the worker's.

    Args:
        experiment: Checked, as stored.
        url: URL of the pool's storage.
        access: Environment that opens it; a container that has one of these variables keeps its
            own.
        owners: Owner references: the Job goes with them.
    """
    job = experiment.sample_job(pool_name(experiment))
    template = next(template for _, template in JobEditor.of(job.manifest).templates)
    spec = template["spec"]
    (container,) = spec["containers"]
    container["command"] = ["python", "-m", "podium.sweeps.worker", url]
    container.pop("args", None)
    own = {mapping(entry).get("name") for entry in items(container.get("env"))}
    if own.isdisjoint(entry["name"] for entry in access):
        set_env(container, access)
    set_env(
        container, [{"name": POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]
    )
    spec["restartPolicy"] = "Never"
    whose = {name: value for name, value in experiment.labels.items() if name in (RUN, MANAGED_BY)}
    labels = {**whose, EXPERIMENT: experiment.name}
    merge(template, ("metadata", "labels"), {ISTIO_INJECT: "false", **labels})
    queue = {name: value for name, value in job.labels.items() if name in (QUEUE, QUEUE_PRIORITY)}
    annotations = {
        name: value for name, value in experiment.annotations.items() if name == RUN_NAMESPACE
    }
    metadata = {
        "name": job.name,
        "labels": {**labels, **queue},
        **present(annotations=annotations or None),
    }
    size = pool_size(experiment)
    return Workload(
        manifest={
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {**metadata, **present(ownerReferences=[*owners] or None)},
            "spec": {
                "completionMode": "Indexed",
                "completions": size,
                "parallelism": size,
                "backoffLimitPerIndex": _TRIES,
                "podReplacementPolicy": "Failed",
                "podFailurePolicy": {
                    "rules": [
                        DISRUPTED,
                        {
                            "action": "Ignore",
                            "onExitCodes": {"operator": "In", "values": [TERMINATED]},
                        },
                    ]
                },
                "template": template,
            },
        }
    )

"""A job as another kind of job: the same container in a Job, a PyTorchJob or a TrainJob."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podium.errors import InvalidInput, suggestion
from podium.manifests.conditions import Manifest
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.fields import present, unshared
from podium.manifests.job_editor import DISRUPTED, JobEditor
from podium.manifests.kinds import JOB_KINDS, TRAINJOB
from podium.manifests.labels import ISTIO_INJECT
from podium.manifests.migrate import as_trainjob
from podium.manifests.pod_security import RESTRICTED
from podium.manifests.trainjob import NODE
from podium.manifests.workload import Workload

CONTAINER = "pytorch"
"""The container the operator looks for in every replica."""


def build_pytorchjob(
    *,
    image: str,
    command: Sequence[str],
    args: Sequence[str] = (),
    name: str | None = None,
    workers: int = 0,
) -> Manifest:
    """Write a PyTorchJob of one Master and any number of Workers, all from one pod template.

    Args:
        image: Container image; a local cluster maps it to an environment.
        command: Program of every replica; never left to the image, Katib would have to ask its
            registry.
        name: metadata.name; None in a trial template, where Katib gives the name.
        workers: Worker replicas beside the Master.
    """
    container = present(args=list(args) or None, command=list(command), image=image, name=CONTAINER)
    # A label, not an annotation: current Istio reads only that, and its proxy would keep a trial's
    # pod alive forever (kubeflow/katib#2527).
    template = {
        "metadata": {"labels": {ISTIO_INJECT: "false"}},
        "spec": {"containers": [container]},
    }
    counts = {"Master": 1} | ({"Worker": workers} if workers else {})
    replicas = {
        role: {"replicas": count, "restartPolicy": "OnFailure", "template": unshared(template)}
        for role, count in counts.items()
    }
    # The limit is of the restarts of all replicas together: three of each.
    policy = {"backoffLimit": 3 * (workers + 1) + 1, "cleanPodPolicy": "Running"}
    return present(
        apiVersion="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=None if name is None else {"name": name},
        spec={"pytorchReplicaSpecs": replicas, "runPolicy": policy},
    )


def _as_pytorchjob(job: Workload, container: str) -> Workload:
    """Return a PyTorchJob whose Master and Workers run a Job's pod or a TrainJob's nodes.

    Args:
        job: A Job or TrainJob; stays as it is.
        container: Name of the container that trains; the operator wants it to be called CONTAINER.
    """
    editor = JobEditor.of(job.manifest)
    ((_, template),) = editor.templates
    for _, body in editor.containers(container):
        body["name"] = CONTAINER
    policy = template["spec"].pop("restartPolicy", job.replicas[0].restart_policy or "Never")
    master = {"replicas": 1, "restartPolicy": policy, "template": template}
    worker = {"replicas": job.workers, "restartPolicy": policy, "template": unshared(template)}
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": editor.body.get("metadata") or {},
        "spec": {
            **present(
                nprocPerNode=str(job.processes_per_replica) if job.processes_per_replica else None
            ),
            "pytorchReplicaSpecs": {
                "Master": master,
                **({"Worker": worker} if job.workers else {}),
            },
            "runPolicy": present(
                backoffLimit=job.backoff_limit,
                activeDeadlineSeconds=job.active_deadline_seconds,
                suspend=job.suspended or None,
            ),
        },
    }
    return Workload(manifest=manifest, path=job.path)


AUTO = "auto"
CHOICES = {"pytorchjob": "PyTorchJob", "trainjob": TRAINJOB, "job": "Job"}
"""Kind by value of the parameter job_kind; ``auto`` leaves the choice to the cluster."""

_WITH_WORKERS = "job_kind=pytorchjob or job_kind=trainjob, or no workers"
_FIT = (
    "install Kubeflow Trainer 2.2 or later, or set workers=0, or, where the training operator has the template of "
    "deploy/training-operator, job_kind=pytorchjob (docs/cluster-teams.md)"
)


Admits = Callable[[str, int], bool]
"""Whether a cluster runs a job of a kind with so many workers, see
podium.cluster.base.Cluster.admits."""


def admits_all(kind: str, workers: int) -> bool:
    """Return True: any kind runs with any number of workers, as on this machine."""
    return True


def check_choice(job_kind: str, workers: int = 0) -> None:
    """Refuse an invalid value of the parameter job_kind.

    Args:
        workers: Pods beside the first one that are asked for; negative leaves their number open.

    Raises:
        InvalidInput: It is not one of those known, or a Job is asked for, and workers.
    """
    choices = (AUTO, *CHOICES)
    if job_kind not in choices:
        raise InvalidInput(f"job_kind cannot be {job_kind!r}", suggestion(job_kind, choices))
    if job_kind == "job" and workers > 0:
        raise InvalidInput(f"a Job has no workers, but {workers} are asked for", _WITH_WORKERS)


def choose_kind(own: str, job_kind: str, workers: int, admits: Admits) -> str:
    """Return the kind that a job is launched as.

    ``auto`` is its own kind where the cluster admits it, else a PyTorchJob, else a TrainJob. A Job
    has one pod: with workers it is one of the others too. A cluster that admits no kind at all gets
    a TrainJob: its refusal says what to install.

    Args:
        own: Kind of the job as written.
        workers: Pods beside the first one.

    Raises:
        InvalidInput: A Job is asked for, and workers; or the cluster admits no kind with workers,
            and one without.
    """
    check_choice(job_kind, workers)
    if job_kind != AUTO:
        return CHOICES[job_kind]
    if own == "Job" and workers <= 0:
        return own
    kinds = [kind for kind in dict.fromkeys((own, "PyTorchJob", TRAINJOB)) if kind != "Job"]
    chosen = next((kind for kind in kinds if admits(kind, workers)), None)
    if chosen is None and workers and any(admits(kind, 0) for kind in kinds):
        raise InvalidInput(
            f'Pod Security "{RESTRICTED}" refuses a PyTorchJob\'s Workers, but workers={workers}',
            _FIT,
        )
    return chosen or TRAINJOB


def as_kind(job: Workload, container: str, kind: str) -> tuple[Workload, str]:
    """Return a job as another kind that runs the same container, and the container's name there.

    Args:
        job: A Job, PyTorchJob or TrainJob; another kind only as itself.
        container: Name of the container that trains.

    Raises:
        InvalidInput: Its pods cannot be those of the other kind.
    """
    if job.kind == kind:
        return job, container
    if job.kind not in CHOICES.values():
        raise InvalidInput(f"a {job.kind} cannot run as a {kind}", "leave job_kind=auto")
    if kind == "Job":
        return _as_job(job), container
    if kind == "PyTorchJob":
        if job.kind == "Job" and job.pod_count > 1:
            problem = f"a Job whose pods know no rank cannot run as a {kind}, but this one has {job.pod_count} pods"
            raise InvalidInput(problem, "leave job_kind=auto, or set parallelism: 1 and workers")
        return _as_pytorchjob(job, container), CONTAINER
    builtin = any(
        body.uses_builtin_trainer for _, body in job.containers() if body.name == container
    )
    return as_trainjob(job, container, keep_command=builtin)[0], NODE


def _as_job(job: Workload) -> Workload:
    if job.workers:
        raise InvalidInput(f"a Job has no workers, but {job.name} has {job.workers}", _WITH_WORKERS)
    template = unshared(job.replicas[0].pod.manifest)
    template["spec"]["restartPolicy"] = "Never"
    spec = present(
        backoffLimit=job.backoff_limit or 0,
        activeDeadlineSeconds=job.active_deadline_seconds,
        ttlSecondsAfterFinished=job.ttl_seconds_after_finished,
        suspend=job.suspended or None,
        template=template,
    )
    manifest = present(
        apiVersion=JOB_KINDS["Job"], kind="Job", metadata=dict(job.metadata) or None, spec=spec
    )
    return Workload(manifest=manifest, path=job.path)


def with_workers(job: Workload, container: str, workers: int) -> tuple[Workload, str]:
    """Return a job with pods beside its first one, and its container; a Job that gets some becomes
    a PyTorchJob."""
    if job.kind == "Job" and workers:
        job, container = _as_pytorchjob(job, container), CONTAINER
    if job.kind in ("PyTorchJob", TRAINJOB):
        job = job.changed_job(lambda editor: editor.set_workers(workers))
    return job, container


def trials_as(experiment: Experiment, kind: str, workers: int) -> Experiment:
    """Return an Experiment whose trials run the same container as another kind of job.

    Conditions and labels of the trials' job are Katib's defaults for the new kind.

    Args:
        workers: Number of its pods beside the first one.

    Raises:
        InvalidInput: Their pods cannot be those of the other kind.
    """
    template = experiment.template
    if template.workload.kind == kind or not template.workload.manifest:
        return experiment
    job, container = as_kind(
        *with_workers(template.workload, template.primary_container, workers), kind
    )

    def change(manifest: dict[str, Any]) -> None:
        trial = manifest["spec"]["trialTemplate"]
        for name in ("successCondition", "failureCondition", "primaryPodLabels"):
            trial.pop(name, None)
        trial |= {"primaryContainerName": container, "trialSpec": job.manifest}

    return experiment.changed(change)


def job_manifest(
    name: str,
    *,
    image: str,
    command: Sequence[str],
    labels: Mapping[str, str],
    owner: Mapping[str, Any] | None,
    active_deadline_seconds: int,
    ttl_seconds_after_finished: int,
) -> Manifest:
    """Write the manifest of a Job that is tried once, and again where its pod was evicted or
    preempted.

    Args:
        labels: Labels of the job and its pod.
        active_deadline_seconds: Seconds from the start after which it fails.
        ttl_seconds_after_finished: Seconds from the end after which it is deleted.
    """
    container = {"name": "main", "image": image, "command": list(command)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": dict(labels),
            **({"ownerReferences": [dict(owner)]} if owner else {}),
        },
        "spec": {
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [dict(DISRUPTED)]},
            "activeDeadlineSeconds": active_deadline_seconds,
            "ttlSecondsAfterFinished": ttl_seconds_after_finished,
            "template": {
                # A label, not an annotation: current Istio reads only that, and its proxy would
                # keep the pod alive.
                "metadata": {"labels": {**labels, ISTIO_INJECT: "false"}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }

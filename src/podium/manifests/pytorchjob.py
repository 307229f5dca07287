"""PyTorchJobs made of a command, or of a job of another kind."""

from collections.abc import Sequence

from podium.manifests.conditions import Manifest
from podium.manifests.fields import present, unshared
from podium.manifests.job_editor import JobEditor
from podium.manifests.labels import ISTIO_INJECT
from podium.manifests.workload import Workload

CONTAINER = "pytorch"
"""The container the operator looks for in every replica."""

RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
CLEAN_POD_POLICIES = ("Running", "All", "None")


def build(
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
    # A label, not an annotation: current Istio reads only that, and its proxy would keep a trial's pod alive forever
    # (kubeflow/katib#2527).
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


def as_pytorchjob(job: Workload, container: str) -> Workload:
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

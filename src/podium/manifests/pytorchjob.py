"""PyTorchJob manifests: a dataclass in, a dict out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from podium.errors import require
from podium.manifests.conditions import Manifest
from podium.manifests.draft import Draft
from podium.manifests.fields import present, unshared
from podium.manifests.labels import ISTIO_INJECT
from podium.manifests.names import is_dns_1035
from podium.manifests.workload import Workload

CONTAINER = "pytorch"
"""The container the operator looks for in every replica."""

RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
_OWNER = ("apiVersion", "kind", "name", "uid")
CLEAN_POD_POLICIES = ("Running", "All", "None")


class SecretKey(NamedTuple):
    """One value of a Secret: by reference only, never the value."""

    name: str
    key: str


@dataclass(frozen=True, kw_only=True)
class PyTorchJobSpec:
    """A PyTorchJob of one Master and any number of Workers that run the same program."""

    name: str | None = None
    """metadata.name; None in a trial template, where Katib gives the name."""

    namespace: str | None = None
    """metadata.namespace; None leaves it to the cluster."""

    image: str
    """Container image; a local cluster maps it to an environment."""

    command: tuple[str, ...]
    """Program of every replica; never left to the image, Katib would have to ask its registry."""

    args: tuple[str, ...] = ()
    workers: int = 0
    """Worker replicas beside the one Master."""

    processes_per_worker: int | None = None
    """spec.nprocPerNode for a command that is torchrun; None is the operator's default, auto."""

    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, SecretKey] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    """Requests of every replica, for example ``{"cpu": "2", "memory": "4Gi"}``."""

    gpus_per_worker: int = 0
    """nvidia.com/gpu of every replica, Master included; requests and limits are equal."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, Any] | None = None
    """Owner reference: apiVersion, kind, name, uid."""

    restart_policy: str = "OnFailure"
    """OnFailure restarts in place; ExitCode only after exit codes of 128 and more; Never; Always."""

    backoff_limit: int | None = None
    """The job fails when the restarts of all its replicas together reach it; None leaves room for three restarts of
    every replica."""

    active_deadline_seconds: int | None = None
    """Seconds from the start after which the job fails."""

    ttl_seconds_after_finished: int | None = None
    """Seconds from the end after which the job is deleted."""

    clean_pod_policy: str = "Running"
    """What is stopped when the Master has succeeded: Running replicas, All (pods and their logs too), None."""

    service_account: str | None = None
    image_pull_policy: str | None = None
    """Always, IfNotPresent, Never; None is the cluster's default."""

    def __post_init__(self) -> None:
        if self.name is not None:
            require(is_dns_1035(self.name), "name is lower case letters, digits and -, a letter first", name=self.name)
            longest = len(f"{self.name}-worker-{max(self.workers - 1, 0)}")
            require(longest <= 63, "len(name) + len('-worker-N') <= 63", "choose a shorter name", name=self.name)
        require(bool(self.image), "image is not empty", image=self.image)
        require(bool(self.command), "command is not empty", "give the whole command line", command=self.command)
        require(self.workers >= 0, "workers >= 0", workers=self.workers)
        require(self.gpus_per_worker >= 0, "gpus_per_worker >= 0", gpus_per_worker=self.gpus_per_worker)
        processes = self.processes_per_worker
        require(processes is None or processes >= 1, "processes_per_worker >= 1", processes_per_worker=processes)
        require(
            self.restart_policy in RESTART_POLICIES,
            f"restart_policy is one of {', '.join(RESTART_POLICIES)}",
            restart_policy=self.restart_policy,
        )
        require(
            self.clean_pod_policy in CLEAN_POD_POLICIES,
            f"clean_pod_policy is one of {', '.join(CLEAN_POD_POLICIES)}",
            clean_pod_policy=self.clean_pod_policy,
        )


def build(spec: PyTorchJobSpec) -> Manifest:
    """Write the manifest; Master and Workers come from one pod template.

    Returns:
        A dict as in YAML. Without spec.name it is a trial template: no name, no namespace.
    """
    replicas = {"Master": 1} | ({"Worker": spec.workers} if spec.workers else {})
    processes = spec.processes_per_worker
    metadata = present(
        name=spec.name,
        namespace=spec.namespace,
        labels=dict(spec.labels) or None,
        annotations=dict(spec.annotations) or None,
        ownerReferences=[{key: spec.owner[key] for key in _OWNER}] if spec.owner else None,
    )
    return present(
        apiVersion="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=metadata or None,
        spec=present(
            nprocPerNode=None if processes is None else str(processes),
            pytorchReplicaSpecs={
                kind: {"replicas": count, "restartPolicy": spec.restart_policy, "template": _template(spec)}
                for kind, count in replicas.items()
            },
            runPolicy=present(
                activeDeadlineSeconds=spec.active_deadline_seconds,
                backoffLimit=3 * (spec.workers + 1) + 1 if spec.backoff_limit is None else spec.backoff_limit,
                cleanPodPolicy=spec.clean_pod_policy,
                ttlSecondsAfterFinished=spec.ttl_seconds_after_finished,
            ),
        ),
    )


def as_pytorchjob(job: Workload, container: str) -> Workload:
    """Return a PyTorchJob whose Master, and Workers, run what a Job's pod or a TrainJob's nodes run.

    Args:
        job: A Job or TrainJob; stays as it is.
        container: Name of the container that trains; the operator wants it to be called CONTAINER.
    """
    draft = Draft.of(job.manifest)
    ((_, template),) = draft.templates
    for _, body in draft.containers(container):
        body["name"] = CONTAINER
    policy = template["spec"].pop("restartPolicy", job.replicas[0].restart_policy or "Never")
    master = {"replicas": 1, "restartPolicy": policy, "template": template}
    worker = {"replicas": job.workers, "restartPolicy": policy, "template": unshared(template)}
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": draft.body.get("metadata") or {},
        "spec": {
            **present(nprocPerNode=str(job.processes_per_replica) if job.processes_per_replica else None),
            "pytorchReplicaSpecs": {"Master": master, **({"Worker": worker} if job.workers else {})},
            "runPolicy": present(
                backoffLimit=job.backoff_limit, activeDeadlineSeconds=job.active_deadline_seconds,
                suspend=job.suspended or None,
            ),
        },
    }  # fmt: skip
    return Workload(manifest=manifest, path=job.path)


def _template(spec: PyTorchJobSpec) -> dict[str, Any]:
    container = present(
        args=list(spec.args) or None,
        command=list(spec.command),
        env=_env(spec) or None,
        image=spec.image,
        imagePullPolicy=spec.image_pull_policy,
        name=CONTAINER,
        resources=_resources(spec) or None,
    )
    # A label, not an annotation: current Istio reads only that, and its proxy would keep a trial's pod alive forever
    # (kubeflow/katib#2527).
    labels = dict(spec.labels) | {ISTIO_INJECT: "false"}
    return {
        "metadata": {"labels": labels},
        "spec": present(containers=[container], serviceAccountName=spec.service_account),
    }


def _env(spec: PyTorchJobSpec) -> list[dict[str, Any]]:
    plain = [{"name": name, "value": value} for name, value in spec.env.items()]
    return plain + [
        {"name": name, "valueFrom": {"secretKeyRef": {"key": secret.key, "name": secret.name}}}
        for name, secret in spec.secret_env.items()
    ]


def _resources(spec: PyTorchJobSpec) -> dict[str, Any]:
    gpus = {"nvidia.com/gpu": str(spec.gpus_per_worker)} if spec.gpus_per_worker else {}
    requests = dict(spec.resources) | gpus
    return present(limits=gpus or None, requests=requests or None)

"""The pods of a manifest: one view of a Job, a PyTorchJob and an Experiment's trial."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from podium.manifests.experiment.schema import default_primary_labels
from podium.manifests.labels import JOB_ROLE

OPERATOR_ENV = (
    "PYTHONUNBUFFERED",
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_NPROC_PER_NODE",
)
"""What the training operator sets (kubeflow/trainer release-1.9: pkg/controller.v1/pytorch/envvar.go)."""


_CREDENTIALS = re.compile(r"^AWS_|^MINIO_|^PODIUM_S3_")
_BUCKET = re.compile(r"\b(?:s3|minio)://")


def mapping(value: Any) -> Mapping[str, Any]:
    """Return an object, or an empty one in place of anything else: wrong types are reported by admission."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """Return a list, or an empty one in place of anything else."""
    return value if isinstance(value, list) else []


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container and where it stands."""

    path: str
    """Path of its field."""

    body: Mapping[str, Any]
    """As in the manifest."""

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body.get("name"))

    @property
    def words(self) -> list[str]:
        """Command and args."""
        return [str(word) for part in ("command", "args") for word in items(self.body.get(part))]

    @property
    def env(self) -> dict[str, Mapping[str, Any]]:
        """Its variables by name."""
        return {str(one.get("name")): one for one in map(mapping, items(self.body.get("env")))}


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod template, how many pods it makes, and where it stands."""

    replica: str
    """``Master``, ``Worker``; empty for a Job."""

    count: int
    """Pods made of it."""

    path: str
    """Path of the template."""

    template: Mapping[str, Any]
    """metadata and spec."""

    restart_policy: str | None
    """Of the replica, or of a Job's pod."""

    @property
    def labels(self) -> Mapping[str, Any]:
        """Labels of the pods, with the operator's role."""
        role = {JOB_ROLE: "master"} if self.replica == "Master" else {}
        return {**mapping(mapping(self.template.get("metadata")).get("labels")), **role}

    @property
    def annotations(self) -> Mapping[str, Any]:
        """Annotations of the pods."""
        return mapping(mapping(self.template.get("metadata")).get("annotations"))

    @property
    def spec(self) -> Mapping[str, Any]:
        """The pod's spec."""
        return mapping(self.template.get("spec"))

    @property
    def containers(self) -> list[Container]:
        """Its containers, without init containers."""
        found = enumerate(items(self.spec.get("containers")))
        return [Container(path=f"{self.path}.spec.containers[{at}]", body=mapping(one)) for at, one in found]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A Job or PyTorchJob: an object of its own, or the template of an Experiment's trials."""

    job: Mapping[str, Any]
    """The manifest."""

    path: str = ""
    """Where it stands in the file: empty, or ``spec.trialTemplate.trialSpec.``."""

    trial: Mapping[str, Any] | None = None
    """The admitted Experiment, if the job is a trial's."""

    pods: tuple[Pod, ...] = field(default=())
    """Its pod templates."""

    @property
    def kind(self) -> str:
        """``Job`` or ``PyTorchJob``."""
        return str(self.job.get("kind"))

    @property
    def spec(self) -> Mapping[str, Any]:
        """Its spec."""
        return mapping(self.job.get("spec"))

    @property
    def policy(self) -> Mapping[str, Any]:
        """Where deadlines and limits stand: a Job's spec, a PyTorchJob's runPolicy."""
        return mapping(self.spec.get("runPolicy")) if self.kind == "PyTorchJob" else self.spec

    @property
    def policy_path(self) -> str:
        """Path of the policy."""
        return f"{self.path}spec.runPolicy" if self.kind == "PyTorchJob" else f"{self.path}spec"

    @property
    def experiment(self) -> Mapping[str, Any]:
        """The Experiment's spec; empty for a job of its own."""
        return mapping(mapping(self.trial).get("spec"))

    @property
    def collector(self) -> str | None:
        """Kind of the metrics collector; None for a job of its own."""
        if self.trial is None:
            return None
        collecting = mapping(self.experiment.get("metricsCollectorSpec"))
        return str(mapping(collecting.get("collector")).get("kind") or "StdOut")

    def is_primary(self, pod: Pod) -> bool:
        """Tell whether Katib collects in a pod: all labels fit, or none are asked for."""
        template = mapping(self.experiment.get("trialTemplate"))
        wanted = mapping(template.get("primaryPodLabels")) or default_primary_labels(self.kind) or {}
        return self.trial is not None and all(pod.labels.get(key) == value for key, value in wanted.items())

    def wrapped(self) -> Iterator[tuple[Pod, Container]]:
        """Yield the containers whose command Katib hands to a shell."""
        if self.collector not in ("StdOut", "File", "TensorFlowEvent", "Custom"):
            return
        name = mapping(self.experiment.get("trialTemplate")).get("primaryContainerName")
        for pod in self.pods:
            if self.is_primary(pod):
                yield from ((pod, one) for one in pod.containers if one.name == name)

    def containers(self) -> Iterator[tuple[Pod, Container]]:
        """Yield every container."""
        for pod in self.pods:
            yield from ((pod, one) for one in pod.containers)


def workload(job: Mapping[str, Any], path: str = "", trial: Mapping[str, Any] | None = None) -> Workload:
    """View a Job or PyTorchJob; whatever has a wrong type is taken as not there."""
    spec, pods = mapping(job.get("spec")), []
    if job.get("kind") == "Job":
        template = mapping(spec.get("template"))
        policy = mapping(template.get("spec")).get("restartPolicy")
        count = spec.get("parallelism")
        place = f"{path}spec.template"
        number = count if isinstance(count, int) else 1
        pods.append(Pod(replica="", count=number, path=place, template=template, restart_policy=policy))
    else:
        for kind, replica in mapping(spec.get("pytorchReplicaSpecs")).items():
            count = mapping(replica).get("replicas")
            pods.append(
                Pod(
                    replica=str(kind).capitalize(),
                    count=count if isinstance(count, int) else 1,
                    path=f"{path}spec.pytorchReplicaSpecs.{kind}.template",
                    template=mapping(mapping(replica).get("template")),
                    restart_policy=mapping(replica).get("restartPolicy"),
                )
            )
    return Workload(job=job, path=path, trial=trial, pods=tuple(pods))


def job_in(manifest: Mapping[str, Any]) -> Workload:
    """View the job that a manifest is, or that an Experiment's trials are."""
    template = mapping(mapping(manifest.get("spec")).get("trialTemplate"))
    return workload(mapping(template.get("trialSpec")) if manifest.get("kind") == "Experiment" else manifest)


def bare(manifest: Mapping[str, Any]) -> bool:
    """Tell whether a container's command names s3:// and its pod is given neither credentials nor an identity."""
    for pod, container in job_in(manifest).containers():
        kinds = {kind for volume in items(pod.spec.get("volumes")) for kind in mapping(volume)}
        named = any(_CREDENTIALS.search(name) for name in container.env) or container.body.get("envFrom")
        given = named or kinds & {"secret", "projected", "csi"}
        account = pod.spec.get("serviceAccountName") or "default"
        if _BUCKET.search(" ".join(container.words)) and not given and account == "default":
            return True
    return False


def pod_of(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the first pod of an object, to be tried under a name of its own; None if it has none."""
    for pod in job_in(manifest).pods:
        spec = {"restartPolicy": "Never", **pod.spec}
        metadata = {
            "name": "podium-doctor-probe",
            "labels": dict(mapping(mapping(pod.template.get("metadata")).get("labels"))),
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return None

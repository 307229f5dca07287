"""Which pods a namespace would refuse: the API server is offered each as a dry run, as its controller would make it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podium.cluster.kubernetes.api import Api
from podium.doctor.snapshot import Offer
from podium.documents import load_yaml
from podium.errors import PodiumError, Unavailable
from podium.manifests.experiment import load
from podium.manifests.experiment.experiment import Experiment, job_of
from podium.manifests.fields import items, mapping, objects
from podium.manifests.pod_defaults import with_pod_defaults
from podium.manifests.pod_security import (
    COLLECTOR,
    EARLY_STOPPING_CONTAINER,
    ENFORCE,
    INIT_CONTAINER,
    SUGGESTION_CONTAINER,
    with_container,
)
from podium.manifests.pytorchjob import build
from podium.manifests.resource import Resource
from podium.manifests.workload import Pod, Replica, Workload

TEMPLATE_OPTION = "--pytorch-init-container-template-file"
TEMPLATE_FILE = "/etc/config/initContainer.yaml"
"""Where the training operator looks for the template of its init container unless it is told otherwise
(kubeflow/trainer v1.9.3: pkg/config)."""

KATIB_CONFIG = "katib-config"
"""ConfigMap beside Katib's controller, with one document of that name (katib v0.19.0: pkg/apis/config/v1beta1)."""

Named = Iterator[tuple[str, str, Pod]]
"""Name, level of a refusal, pod."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What decides about the containers that controllers add."""

    init_containers: Sequence[Mapping[str, Any]] = ({"name": INIT_CONTAINER, "image": "alpine:3.10"},)
    """What the training operator adds to the Workers of PyTorchJobs; empty if it is given a file that is not known."""

    katib: Mapping[str, Any] = field(default_factory=dict)
    """Katib's configuration; empty if it may not be read."""

    @property
    def injects_security(self) -> bool:
        """Whether Katib's metrics collector gets the securityContext of the pod's first container."""
        return mapping(mapping(self.katib.get("init")).get("controller")).get("injectSecurityContext") is True

    def suggestion(self, algorithm: str, *, early_stopping: bool = False) -> Pod:
        """Return the pod of an algorithm's suggestion service.

        Source: katib v0.19.0, pkg/controller.v1beta1/suggestion/composer.
        """
        services = map(mapping, items(mapping(self.katib.get("runtime")).get("suggestions")))
        configured = next((service for service in services if service.get("algorithmName") == algorithm), {})
        container = {"name": SUGGESTION_CONTAINER, "image": "suggestion", **configured}
        pod = with_container(Pod(manifest={}, path=""), container)
        return with_container(pod, {"name": EARLY_STOPPING_CONTAINER, "image": "rule"}) if early_stopping else pod


def offer_pods(
    api: Api,
    labels: Mapping[str, str] | None,
    controllers: Sequence[Any],
    manifests: Sequence[Mapping[str, Any]],
    unknown_kinds: Sequence[str],
) -> list[Offer] | None:
    """Offer the server pods where Pod Security is enforced; None if it is not, or if no pod may be created.

    Args:
        api: The API server, and the namespace.
        controllers: Deployments of the training operator and Katib, as far as they are known.
        manifests: Whose pods they are; if there are none, of each kind that podium launches.
        unknown_kinds: Kinds that the server does not know.
    """
    if (labels or {}).get(ENFORCE, "privileged") == "privileged":
        return None
    installed, offers = look_at_controllers(api, controllers), list[Offer]()
    for name, level, pod in written(installed, manifests) if manifests else usual(installed, unknown_kinds):
        try:
            api.call("try a pod", api.core.create_namespaced_pod, api.namespace, _probe(pod), dry_run="All")
            refusal = None
        except Unavailable as error:  # each further offer would wait as long for the same webhook
            return [*offers, Offer(name, error.message)]
        except PodiumError as error:
            _, violates, why = error.message.partition("violates PodSecurity")
            if not violates:
                continue
            refusal = f"it {violates}{why}"
        offers.append(Offer(name, refusal, level))
    return offers or None


def _probe(pod: Pod) -> dict[str, Any]:
    metadata = {"name": "podium-doctor-probe", "labels": pod.labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"restartPolicy": "Never", **pod.spec}}


def written(installed: Installed, manifests: Sequence[Mapping[str, Any]]) -> Named:
    """Yield the pods of objects as podium launches them, and those that podium changes for that as written."""
    for manifest in manifests:
        resource, job = Resource.parse(manifest), job_of(manifest)
        label = f"{resource.kind} {resource.name}".rstrip()
        experiment = Experiment.parse(manifest) if resource.kind == "Experiment" else None
        launched = with_pod_defaults(job)
        for given, replica in zip(job.replicas, launched.replicas, strict=True):
            name = f"{replica.role} of {label}" if replica.role else label
            pod = _with_init_container(installed, launched, replica)
            if experiment and experiment.template.is_primary(replica):
                pod = _with_collector(installed, pod)
            yield name, "fail", pod
            yield f"{name}, applied as written,", "note", given.pod
        if experiment:
            stops = experiment.early_stopping is not None
            service = installed.suggestion(experiment.algorithm.name, early_stopping=stops)
            yield f"Katib's suggestion service for {label}", "fail", service


def usual(installed: Installed, unknown_kinds: Sequence[str]) -> Named:
    """Yield a pod of every kind that podium launches and the server knows."""
    (trial,) = with_pod_defaults(job_of(load("random-job"))).replicas
    yield "a Job or TrainJob", "fail", trial.pod
    if "PyTorchJob" not in unknown_kinds:
        job = with_pod_defaults(Workload.parse(build(name="probe", image="probe", command=("true",), workers=1)))
        for replica in job.replicas:
            yield f"a PyTorchJob's {replica.role}", "warn", _with_init_container(installed, job, replica)
    if "Experiment" not in unknown_kinds:
        yield "a trial that Katib runs", "warn", _with_collector(installed, trial.pod)
        yield "Katib's suggestion service", "warn", installed.suggestion("random")
        yield "Katib's early stopping", "warn", installed.suggestion("random", early_stopping=True)


def _with_init_container(installed: Installed, job: Workload, replica: Replica) -> Pod:
    pod = replica.pod
    if job.kind == "PyTorchJob" and replica.role == "Worker" and job.replica("Master"):
        for container in installed.init_containers:
            pod = with_container(pod, container, "initContainers")
    return pod


def _with_collector(installed: Installed, pod: Pod) -> Pod:
    context = mapping(pod.containers[0].manifest.get("securityContext")) if pod.containers else {}
    injected = {"securityContext": context} if installed.injects_security else {}
    return with_container(pod, {"name": COLLECTOR, "image": "file-metrics-collector", **injected})


def look_at_controllers(api: Api, controllers: Sequence[Any]) -> Installed:
    """Read how the training operator and Katib are set up, as far as that may be read."""
    by_name = {deployment.metadata.name: deployment for deployment in controllers}
    operator, katib = by_name.get("training-operator"), by_name.get("katib-controller")
    template = _init_template(api, operator) if operator else None
    known = {} if template is None else {"init_containers": template}
    return Installed(katib=_katib_config(api, katib.metadata.namespace) if katib else {}, **known)


def _init_template(api: Api, operator: Any) -> Sequence[Mapping[str, Any]] | None:
    """Return the init containers of the operator's template; empty if it cannot be read, None if there is none."""
    spec = operator.spec.template.spec
    containers = (spec.containers if spec else None) or []
    words = [word for container in containers for word in (*(container.command or []), *(container.args or []))]
    options = [word.partition("=")[2] for word in words if word.startswith(TEMPLATE_OPTION)]
    folder, _, name = (options[-1] if options else TEMPLATE_FILE).rpartition("/")
    mounts = [mount for container in containers for mount in container.volume_mounts or []]
    mounted = next((mount.name for mount in mounts if mount.mount_path.rstrip("/") == folder), None)
    if mounted is None:
        return () if options else None
    volume = next((volume for volume in spec.volumes or [] if volume.name == mounted and volume.config_map), None)
    text = _config_map(api, operator.metadata.namespace, volume.config_map.name).get(name, "") if volume else ""
    try:
        documents = load_yaml(re.sub(r"{{.*?}}", "placeholder", text), name)
    except PodiumError:
        return ()
    return objects(documents[0]) if documents else ()


def _katib_config(api: Api, namespace: str) -> Mapping[str, Any]:
    text = _config_map(api, namespace, KATIB_CONFIG).get(f"{KATIB_CONFIG}.yaml", "")
    try:
        documents = load_yaml(text, KATIB_CONFIG)
    except PodiumError:
        return {}
    return mapping(documents[0]) if documents else {}


def _config_map(api: Api, namespace: str, name: str) -> Mapping[str, str]:
    """Return the data of a ConfigMap; empty if it may not be read."""
    try:
        config_map = api.call(f"read ConfigMap {name}", api.core.read_namespaced_config_map, name, namespace)
    except PodiumError:
        return {}
    return config_map.data or {}

"""Placement and resources of pods: set once, applied to every replica of a job and of every
trial."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from podium.errors import InvalidInput, require, suggestion
from podium.files.documents import TYPE_NAMES
from podium.manifests.fields import items, objects, quantity
from podium.manifests.job_editor import JobEditor, merge
from podium.manifests.labels import QUEUE, QUEUE_PRIORITY
from podium.manifests.names import is_label
from podium.manifests.resource import R

_THREADS = "OMP_NUM_THREADS"
_SECURITY = ("restricted", "baseline")


@dataclass(frozen=True, kw_only=True)
class Pods:
    """Settings of the launched pods, in Kubernetes' own shapes."""

    cpu: str = ""
    """Request, as ``2`` or ``500m``; also the trainer's threads: it would start one for each of the
    node's cores. Empty asks a cluster for 250m and leaves the threads alone."""

    memory: str = ""
    """Request and limit: memory beyond it would take the node's other pods along. Empty asks a
    cluster for 512Mi and sets no limit."""

    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    """Environment; no secrets."""

    secret_env: dict[str, str] = field(default_factory=dict)
    """Environment from Secrets: ``{"WANDB_API_KEY": "secret-name/key"}``."""

    claims: dict[str, str] = field(default_factory=dict)
    """Persistent volume claims by mount path: ``{"/data": "claim-name"}``."""

    queue: str = ""
    """Kueue's local queue; the job waits suspended until it is admitted."""

    queue_priority: str = ""
    """Kueue's WorkloadPriorityClass: who is admitted first, and who makes room. Without one, the
    pods' priority."""

    priority_class: str = ""
    """PriorityClass of the pods: which pod the scheduler places first, and which it evicts."""

    service_account: str = ""
    """Service account of the pods, for workload identity: they get its token. Without one they get
    none."""

    image_pull_secrets: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    security: str = "restricted"
    """``restricted`` keeps root out of the pods; ``baseline`` leaves users and capabilities to the
    image and the manifest, for images that run as root."""

    run_as_user: int = 0
    """User id of the pods, for images whose own user is root or has only a name; 0 leaves it to the
    image. Such a user has no home directory, so HOME is /tmp unless the environment names one."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            kind = setting.type if isinstance(setting.type, type) else setting.type.__origin__  # type: ignore[union-attr]
            if type(value := getattr(self, setting.name)) is not kind:
                raise InvalidInput(f"{setting.name} must be {TYPE_NAMES[kind]}, not {value!r:.80}")
        for name in ("env", "secret_env", "claims", "node_selector", "labels"):
            for key, value in getattr(self, name).items():
                if not isinstance(key, str) or not isinstance(value, str):
                    hint = f'put both in quotes: {name}: {{"{key}": "…"}}'
                    raise InvalidInput(
                        f"{name} holds texts by name, but {key!r} or its value is no text", hint
                    )
        for name in ("cpu", "memory"):
            _amount(name, getattr(self, name))
        for name, reference in self.secret_env.items():
            if not re.fullmatch(
                "[^/]+/[^/]+", reference
            ):  # which may be the secret itself: it is not repeated
                raise InvalidInput(
                    f"secret_env {name} is not secret-name/key", "the value itself never goes here"
                )
        if self.security not in _SECURITY:
            raise InvalidInput(
                f"security cannot be {self.security!r}", suggestion(self.security, _SECURITY)
            )
        require(self.run_as_user >= 0, "run_as_user >= 0", run_as_user=self.run_as_user)
        if self.queue_priority and not self.queue:
            problem = f"queue_priority needs queue, but queue_priority={self.queue_priority!r} is given alone"
            raise InvalidInput(problem, "name the local queue")
        labels = {**self.node_selector, **self.labels, QUEUE: self.queue}
        for name, value in {**labels, QUEUE_PRIORITY: self.queue_priority}.items():
            if not is_label(name, value):
                problem = f"no pod or node can have the label {name}={value!r}"
                raise InvalidInput(
                    problem, f'{name}: "vision", of at most 63 letters, digits, -, _ and .'
                )
        for path in self.claims:
            if not path.startswith("/"):
                raise InvalidInput(
                    f"a mount path is absolute, not {path!r}", f"did you mean /{path}?"
                )

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> "Pods":
        """Read settings as a pipeline parameter holds them.

        Raises:
            InvalidInput: A name is unknown, or a value of another type.
        """
        names = [setting.name for setting in fields(cls)]
        for name in settings:
            if name not in names:
                hint = "GPUs are gpus_per_worker" if "gpu" in name else f"one of {', '.join(names)}"
                raise InvalidInput(f"pods has no setting {name!r}", hint)
        return cls(**settings)


def _amount(name: str, value: str) -> float:
    """Parse a quantity such as ``2``, ``500m`` or ``4Gi``; 0 if empty."""
    if not value:
        return 0.0
    if (amount := quantity(value)) is None:
        raise InvalidInput(
            f"{name} is an amount of a resource, not {value!r}", "as in 500m, 2 or 4Gi"
        )
    return amount


def place(resource: R, pods: Pods) -> R:
    """Return a job, or an Experiment's trials, with the settings in every pod template."""
    return resource.changed_job(lambda editor: _place(editor, pods))


def _place(editor: JobEditor, pods: Pods) -> None:
    queue = {QUEUE: pods.queue, QUEUE_PRIORITY: pods.queue_priority}
    if labels := {name: value for name, value in queue.items() if value}:
        editor.label(labels)
    editor.label_pods(pods.labels)
    for _, template in editor.templates:
        _place_pod(template["spec"], pods)


def _place_pod(spec: dict[str, Any], pods: Pods) -> None:
    names = {path: f"claim-{number}" for number, path in enumerate(pods.claims)}
    volumes = [
        {"name": names[path], "persistentVolumeClaim": {"claimName": c}}
        for path, c in pods.claims.items()
    ]
    wanted = {
        "nodeSelector": pods.node_selector,
        "tolerations": pods.tolerations,
        "volumes": volumes,
        "imagePullSecrets": [{"name": name} for name in pods.image_pull_secrets],
        "priorityClassName": pods.priority_class,
        "serviceAccountName": pods.service_account,
    }
    for key, value in wanted.items():
        if isinstance(value, list) and value:
            spec[key] = [*(spec.get(key) or []), *value]
        elif isinstance(value, dict) and value:
            spec[key] = {**(spec.get(key) or {}), **value}
        elif value:
            spec[key] = value
    context = {"runAsUser": pods.run_as_user} if pods.run_as_user else {}
    if pods.security == "baseline":
        context["runAsNonRoot"] = (
            False  # by which podium.manifests.pod_security leaves the containers as they are
        )
    if context:
        merge(spec, ("securityContext",), context)
    for container in items(spec.get("containers")):
        if isinstance(container, dict):
            _place_container(container, pods, names)


def _place_container(container: dict[str, Any], pods: Pods, volumes: dict[str, str]) -> None:
    # An entry without a name stays: the checks of manifests speak of it.
    env: dict[Any, Any] = {
        entry.get("name", at): entry for at, entry in enumerate(objects(container.get("env")))
    }
    env |= {name: {"name": name, "value": value} for name, value in pods.env.items()}
    if pods.cpu and _THREADS not in env:
        env[_THREADS] = {"name": _THREADS, "value": str(max(1, round(_amount("cpu", pods.cpu))))}
    if pods.run_as_user and "HOME" not in env:
        env["HOME"] = {"name": "HOME", "value": "/tmp"}
    for name, reference in pods.secret_env.items():
        secret, key = reference.split("/")
        env[name] = {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
    mounts = [{"name": name, "mountPath": path} for path, name in volumes.items()]
    requests = {"cpu": pods.cpu, "memory": pods.memory}
    for key, more in (("requests", requests), ("limits", {"memory": pods.memory})):
        more = {name: value for name, value in more.items() if value}
        if more:
            merge(container, ("resources", key), more)
    if env:
        container["env"] = list(env.values())
    if mounts:
        container["volumeMounts"] = [*(container.get("volumeMounts") or []), *mounts]

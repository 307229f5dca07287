"""A Job, PyTorchJob, TFJob, XGBoostJob, JAXJob or TrainJob: replicas, their pod templates and containers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from podium.manifests import trainjob
from podium.manifests.draft import Draft
from podium.manifests.kinds import LEADERS, OPERATOR_KINDS, TRAINJOB, OperatorKind
from podium.manifests.labels import (
    COMPLETION_INDEX,
    CPU_SHARE,
    JOB_ROLE,
    QUEUE,
    REPLICA_INDEX,
    REPLICA_TYPE,
    REPLICATED_JOB,
)
from podium.manifests.resource import (
    Attribute,
    Resource,
    integer,
    items,
    mapping,
    objects,
    strings,
    text,
    texts,
    true,
)


@dataclass(frozen=True, kw_only=True)
class Variable:
    """An entry of a container's ``env``."""

    name: str
    value: str

    source: Mapping[str, Any]
    """``valueFrom``; empty if there is a value."""

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> "Variable":
        """Read an entry."""
        value = entry.get("value")
        source = mapping(entry.get("valueFrom"))
        return cls(name=text(entry.get("name")), value="" if value is None else str(value), source=source)


@dataclass(frozen=True, kw_only=True)
class Mount:
    """An entry of a container's ``volumeMounts``."""

    volume: str
    path: str
    sub_path: str

    fields: frozenset[str]
    """Fields with a value."""

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> "Mount":
        """Read an entry; slashes at the ends of paths are left out."""
        path, sub_path = text(entry.get("mountPath")).rstrip("/"), text(entry.get("subPath")).strip("/")
        return cls(volume=text(entry.get("name")), path=path, sub_path=sub_path, fields=fields_of(entry))


@dataclass(frozen=True, kw_only=True)
class Volume:
    """An entry of a pod's ``volumes``."""

    name: str

    sources: tuple[str, ...]
    """``emptyDir``, ``hostPath``, ``persistentVolumeClaim`` …; one, if it is valid."""

    host_path: str
    """Of a hostPath; else empty."""

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> "Volume":
        """Read an entry."""
        sources = tuple(key for key in entry if key != "name")
        host_path = text(mapping(entry.get("hostPath")).get("path"))
        return cls(name=text(entry.get("name")), sources=sources, host_path=host_path)


@dataclass(frozen=True, kw_only=True)
class ElasticPolicy:
    """``elasticPolicy`` of a PyTorchJob, for torchrun."""

    min_replicas: int | None
    max_replicas: int | None
    backend: str
    host_port: int | None
    id: str | None
    configuration: tuple[tuple[str, str], ...]
    """Keys and values of rdzvConf."""

    standalone: bool
    processes: int | None
    """nProcPerNode."""

    max_restarts: int | None
    scales: bool
    """Whether it names metrics to scale by."""

    @classmethod
    def parse(cls, policy: Mapping[str, Any]) -> "ElasticPolicy":
        """Read a policy."""
        pairs = objects(policy.get("rdzvConf"))
        return cls(
            min_replicas=integer(policy.get("minReplicas")),
            max_replicas=integer(policy.get("maxReplicas")),
            backend=text(policy.get("rdzvBackend")) or "c10d",
            host_port=integer(policy.get("rdzvPort")),
            id=text(policy.get("rdzvId")) if policy.get("rdzvId") is not None else None,
            configuration=tuple((text(pair.get("key")), text(pair.get("value"))) for pair in pairs),
            standalone=policy.get("standalone") is True,
            processes=integer(policy.get("nProcPerNode")),
            max_restarts=integer(policy.get("maxRestarts")),
            scales=bool(policy.get("metrics")),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Container:
    """A container of a pod template."""

    manifest: Mapping[str, Any] = field(repr=False)
    path: str
    """Where it stands, for messages."""

    name = Attribute("manifest.name", text)
    image = Attribute("manifest.image", text)
    command = Attribute("manifest.command", strings)
    """The program; empty leaves it to the image."""

    args = Attribute("manifest.args", strings)

    @property
    def words(self) -> tuple[str, ...]:
        """Command and args."""
        return (*self.command, *self.args)

    @cached_property
    def env(self) -> dict[str, Mapping[str, Any]]:
        """Entries of ``env`` by name: ``value`` or ``valueFrom``."""
        return {text(entry.get("name")): entry for entry in objects(self.manifest.get("env"))}

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """Entries of ``env`` in their order."""
        return tuple(Variable.parse(entry) for entry in objects(self.manifest.get("env")))

    @property
    def fields(self) -> frozenset[str]:
        """Fields with a value."""
        return fields_of(self.manifest)

    env_from = Attribute("manifest.envFrom", objects)
    """Entries of ``envFrom``: ConfigMaps and Secrets."""

    @property
    def numbered_words(self) -> Iterator[tuple[str, str]]:
        """Path and text of each word of command and args."""
        for part, words in (("command", self.command), ("args", self.args)):
            yield from ((f"{self.path}.{part}[{index}]", word) for index, word in enumerate(words))

    working_dir = Attribute("manifest.workingDir", text)

    @cached_property
    def mounts(self) -> tuple[Mount, ...]:
        """Entries of ``volumeMounts``."""
        return tuple(Mount.parse(entry) for entry in objects(self.manifest.get("volumeMounts")))

    requests = Attribute("manifest.resources.requests", mapping)
    limits = Attribute("manifest.resources.limits", mapping)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pod:
    """A pod template."""

    manifest: Mapping[str, Any] = field(repr=False)
    path: str
    """Where it stands, for messages."""

    main_path: str = ""
    """Where its first container stands if not in the template, for messages."""

    labels = Attribute("manifest.metadata.labels", texts)
    annotations = Attribute("manifest.metadata.annotations", texts)
    spec = Attribute("manifest.spec", mapping)

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """Its containers, without init containers."""
        return self._read("containers")

    @cached_property
    def init_containers(self) -> tuple[Container, ...]:
        """Run one after the other before the containers."""
        return self._read("initContainers")

    @cached_property
    def volumes(self) -> tuple[Volume, ...]:
        """Entries of ``volumes``."""
        return tuple(Volume.parse(entry) for entry in objects(self.spec.get("volumes")))

    @property
    def fields(self) -> frozenset[str]:
        """Fields of its spec with a value."""
        return fields_of(self.spec)

    grace_seconds = Attribute("spec.terminationGracePeriodSeconds", integer)

    def container(self, name: str) -> Container | None:
        """Return the container of a name."""
        return next((container for container in self.containers if container.name == name), None)

    def _read(self, part: str) -> tuple[Container, ...]:
        paths = {("containers", 0): self.main_path} if self.main_path else {}
        written = enumerate(items(self.spec.get(part)))
        return tuple(
            Container(manifest=mapping(body), path=paths.get((part, at), f"{self.path}.spec.{part}[{at}]"))
            for at, body in written
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Replica:
    """Pods of one role, made of one template."""

    role: str
    """``Master``, ``Worker``, ``PS`` …, ``Node`` of a TrainJob; empty for a Job."""

    count: int
    restart_policy: str
    """Of the replica, or of a Job's pod; empty if absent."""

    pod: Pod
    path: str
    """Where it stands, for messages."""

    leads: bool = False
    """Whether its first pod decides about the job: a Chief or Master, else the first Worker."""

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the first pod."""
        return self.labels_of(0)

    def labels_of(self, index: int) -> dict[str, str]:
        """Return the labels of a pod, those that the training operator or JobSet adds included."""
        if self.role == trainjob.ROLE:
            return self.pod.labels | {REPLICATED_JOB: trainjob.NODE, COMPLETION_INDEX: str(index)}
        operator = {REPLICA_TYPE: self.role.lower(), REPLICA_INDEX: str(index)} if self.role else {}
        leader = {JOB_ROLE: "master"} if self.leads and (index == 0 or self.role in LEADERS) else {}
        return self.pod.labels | operator | leader


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload(Resource):
    """A job of its own, or the job in an Experiment's trial template."""

    @property
    def operator(self) -> OperatorKind | None:
        """What the training operator knows of its kind; None for a Job, a TrainJob, and a kind podium does not know."""
        return OPERATOR_KINDS.get(self.kind)

    @property
    def has_roles(self) -> bool:
        """Whether its pods are known by role and number before they run; a Job's are numbered as they come."""
        return self.operator is not None or self.kind == TRAINJOB

    @cached_property
    def replicas(self) -> tuple[Replica, ...]:
        """By role as written; one without a role for a Job, the nodes of a TrainJob."""
        if self.kind == TRAINJOB:
            return (self._nodes(),)
        if self.kind == "Job":
            pod = Pod(manifest=mapping(self.spec.get("template")), path=f"{self.path}spec.template")
            count, policy = integer(self.spec.get("parallelism")), text(pod.spec.get("restartPolicy"))
            count = 1 if count is None else count
            return (Replica(role="", count=count, restart_policy=policy, pod=pod, path=f"{self.path}spec"),)
        return tuple(self._replica(str(role), mapping(replica)) for role, replica in self._replica_specs.items())

    def _nodes(self) -> Replica:
        pod = Pod(
            manifest=trainjob.node_template(self.spec),
            path=f"{self.path}spec.runtimePatches[{trainjob.NODE}]",
            main_path=f"{self.path}spec.trainer",
        )
        count, path = self.nodes, f"{self.path}spec.trainer"
        return Replica(role=trainjob.ROLE, leads=True, count=count, restart_policy="OnFailure", pod=pod, path=path)

    @property
    def nodes(self) -> int:
        """Nodes of a TrainJob; 1, as the runtime torch-distributed has it, where it does not say."""
        count = integer(mapping(self.spec.get("trainer")).get("numNodes"))
        return 1 if count is None else count

    runtime = Attribute("spec.runtimeRef.name", text)
    """Name of a TrainJob's runtime."""

    runtime_kind = Attribute("spec.runtimeRef.kind", text)
    """``ClusterTrainingRuntime``, the default, or ``TrainingRuntime``; empty if absent."""

    @property
    def has_initializer(self) -> bool:
        """Whether a TrainJob loads its data or model before its nodes start."""
        return bool(self.spec.get("initializer"))

    @property
    def replicas_path(self) -> str:
        """Where the replicas of an operator's job stand, for messages."""
        return f"{self.path}spec.{self.operator.replica_specs if self.operator else ''}"

    @cached_property
    def _replica_specs(self) -> Mapping[str, Any]:
        return mapping(self.spec.get(self.operator.replica_specs)) if self.operator else {}

    @cached_property
    def _leaders(self) -> tuple[str, ...]:
        roles = {str(role).capitalize() for role in self._replica_specs}
        return tuple(role for role in LEADERS if role in roles) or ("Worker",)

    def _replica(self, given: str, spec: Mapping[str, Any]) -> Replica:
        path, count = f"{self.replicas_path}.{given}", integer(spec.get("replicas"))
        role = role_of(given, self.operator)
        return Replica(
            role=role,
            leads=role in self._leaders,
            count=1 if count is None else count,
            restart_policy=text(spec.get("restartPolicy")),
            pod=Pod(manifest=mapping(spec.get("template")), path=f"{path}.template"),
            path=path,
        )

    def replica(self, role: str) -> Replica | None:
        """Return the replica of a role."""
        return next((replica for replica in self.replicas if replica.role == role), None)

    def containers(self) -> Iterator[tuple[Replica, Container]]:
        """Yield every container, without init containers."""
        for replica in self.replicas:
            yield from ((replica, container) for container in replica.pod.containers)

    @property
    def images(self) -> tuple[str, ...]:
        """Images of its containers."""
        return tuple(container.image for _, container in self.containers() if container.image)

    @property
    def in_template(self) -> bool:
        """Whether it is the job of an Experiment's trials."""
        return bool(self.path)

    @property
    def workers(self) -> int:
        """Worker replicas; of a TrainJob the nodes beside the first."""
        if self.kind == TRAINJOB:
            return max(self.nodes - 1, 0)
        worker = self.replica("Worker")
        return worker.count if worker else 0

    @cached_property
    def run_policy(self) -> Mapping[str, Any]:
        """Where deadlines and limits stand: the spec of a Job or TrainJob, another's runPolicy."""
        return self.spec if self.kind in ("Job", TRAINJOB) else mapping(self.spec.get("runPolicy"))

    @property
    def run_policy_path(self) -> str:
        """Path of the run policy, for messages."""
        return f"{self.path}spec" if self.kind in ("Job", TRAINJOB) else f"{self.path}spec.runPolicy"

    active_deadline_seconds = Attribute("run_policy.activeDeadlineSeconds", integer)
    ttl_seconds_after_finished = Attribute("run_policy.ttlSecondsAfterFinished", integer)
    backoff_limit = Attribute("run_policy.backoffLimit", integer)

    @property
    def parallelism(self) -> int:
        """Pods of a Job that run at once."""
        count = integer(self.spec.get("parallelism"))
        return 1 if count is None else count

    completions = Attribute("spec.completions", integer)
    """Pods of a Job that have to succeed; None for a work queue, done when one pod has succeeded."""

    @property
    def is_indexed(self) -> bool:
        """Whether each pod of a Job gets an index."""
        return self.spec.get("completionMode") == "Indexed"

    @property
    def processes_at_once(self) -> int:
        """How many processes run at once."""
        if self.kind == "Job":
            return max(1, min(self.parallelism, self.completions or self.parallelism))
        return self.pod_count * (self.processes_per_replica or 1)

    @property
    def pod_count(self) -> int:
        """Pods of an operator's job."""
        return sum(replica.count for replica in self.replicas)

    managed_by = Attribute("run_policy.managedBy", text)
    """Controller that runs an operator's job; empty if absent."""

    success_policy = Attribute("spec.successPolicy", text)
    """``AllWorkers``: a TFJob without a Chief or Master has succeeded with all its Workers, not with the first."""

    dynamic_workers = Attribute("spec.enableDynamicWorker", true)
    """Whether each process of a TFJob is told of itself and the parameter servers only."""

    @cached_property
    def elastic(self) -> ElasticPolicy | None:
        """elasticPolicy of a PyTorchJob."""
        policy = self.spec.get("elasticPolicy")
        return ElasticPolicy.parse(policy) if isinstance(policy, Mapping) else None

    @property
    def cpu_share(self) -> Any:
        """How many cores of one machine it may use, as annotated; None if it is not."""
        return mapping(self.metadata.get("annotations")).get(CPU_SHARE)

    suspended = Attribute("run_policy.suspend", true)
    """Whether it waits: for Kueue, or until it is resumed."""

    @property
    def queue(self) -> str:
        """Kueue's local queue; empty if it names none."""
        return self.labels.get(QUEUE, "")

    clean_pod_policy = Attribute("run_policy.cleanPodPolicy", text)
    """What an operator's job stops once it has succeeded; empty if absent."""

    @property
    def processes(self) -> str:
        """``nprocPerNode`` of a PyTorchJob: ``auto``, ``cpu``, ``gpu`` or a number; a TrainJob's ``numProcPerNode``."""
        if self.kind == TRAINJOB:
            return str(integer(mapping(self.spec.get("trainer")).get("numProcPerNode")) or "auto")
        return (text(self.spec.get("nprocPerNode")) if self.kind == "PyTorchJob" else "") or "auto"

    @property
    def processes_per_replica(self) -> int | None:
        """``nprocPerNode`` if it is a number; auto, cpu and gpu count as 1 in WORLD_SIZE."""
        return int(self.processes) if self.processes.isdecimal() else None

    def changed(self, change: "Callable[[Draft], None]") -> Self:
        """Return a copy that a function has altered."""
        draft = Draft.of(self.manifest)
        change(draft)
        return type(self)(manifest=draft.manifest, path=self.path)

    def changed_job(self, change: "Callable[[Draft], None]") -> Self:
        """Return a copy that a function has altered, as an Experiment does with the job of its trials."""
        return self.changed(change)


def role_of(given: str, operator: OperatorKind | None) -> str:
    """Return a role as the operator writes it; it takes any case."""
    return next((role for role in operator.roles if role.lower() == given.lower()), given) if operator else given


def fields_of(manifest: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of an object's fields with a value."""
    return frozenset(name for name, value in manifest.items() if value not in (None, [], {}, "", False))

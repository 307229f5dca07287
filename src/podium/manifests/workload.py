"""A Job, PyTorchJob, TFJob, XGBoostJob, JAXJob or TrainJob: replicas, their pod templates and
containers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

from podium.manifests import trainjob
from podium.manifests.fields import (
    Attribute,
    ManifestView,
    integer,
    mapping,
    numbered,
    objects,
    strings,
    text,
    texts,
    true,
    with_values,
)
from podium.manifests.job_editor import JobEditor
from podium.manifests.kinds import LEADERS, MPIJOB, OPERATOR_KINDS, TRAINJOB, OperatorKind
from podium.manifests.labels import (
    COMPLETION_INDEX,
    CPU_SHARE,
    JOB_ROLE,
    MPI_ROLE,
    QUEUE,
    REPLICA_INDEX,
    REPLICA_TYPE,
    REPLICATED_JOB,
)
from podium.manifests.resource import Resource


def _count(value: Any) -> int:
    number = integer(value)
    return 1 if number is None else number


class Variable(ManifestView):
    """An entry of a container's ``env``."""

    name = Attribute("manifest.name", text)

    value = Attribute("manifest.value", lambda value: "" if value is None else str(value))
    """Empty if there is none."""

    source = Attribute("manifest.valueFrom", mapping)
    """``valueFrom``; empty if there is a value."""


class Mount(ManifestView):
    """An entry of a container's ``volumeMounts``; slashes at the ends of paths are left out."""

    volume = Attribute("manifest.name", text)
    path = Attribute("manifest.mountPath", lambda value: text(value).rstrip("/"))
    sub_path = Attribute("manifest.subPath", lambda value: text(value).strip("/"))


class Volume(ManifestView):
    """An entry of a pod's ``volumes``."""

    name = Attribute("manifest.name", text)
    host_path = Attribute("manifest.hostPath.path", text)
    """Path of a hostPath volume; else empty."""

    claim = Attribute("manifest.persistentVolumeClaim.claimName", text)
    """Name of a PersistentVolumeClaim; else empty."""

    sources = Attribute("manifest", lambda volume: tuple(key for key in volume if key != "name"))
    """``emptyDir``, ``hostPath``, ``persistentVolumeClaim`` …; one, if it is valid."""


class ElasticPolicy(ManifestView):
    """``elasticPolicy`` of a PyTorchJob, for torchrun."""

    min_replicas = Attribute("manifest.minReplicas", integer)
    max_replicas = Attribute("manifest.maxReplicas", integer)
    backend = Attribute("manifest.rdzvBackend", lambda value: text(value) or "c10d")
    host_port = Attribute("manifest.rdzvPort", integer)
    id = Attribute("manifest.rdzvId", lambda value: None if value is None else text(value))
    standalone = Attribute("manifest.standalone", true)
    processes = Attribute("manifest.nProcPerNode", integer)
    max_restarts = Attribute("manifest.maxRestarts", integer)
    scales = Attribute("manifest.metrics", bool)

    configuration = Attribute(
        "manifest.rdzvConf",
        lambda value: tuple(
            (text(each.get("key")), text(each.get("value"))) for each in objects(value)
        ),
    )
    """Keys and values of rdzvConf."""


def uses_builtin_trainer(words: Sequence[str]) -> bool:
    """Return whether a command line runs podium's trainer: ``-m podium.trainer`` anywhere in it."""
    return ("-m", "podium.trainer") in pairwise(words)


@dataclass(frozen=True, kw_only=True, eq=False)
class Container(ManifestView):
    """A container of a pod template."""

    path: str

    name = Attribute("manifest.name", text)
    image = Attribute("manifest.image", text)
    command = Attribute("manifest.command", strings)
    """The program; empty leaves it to the image."""

    args = Attribute("manifest.args", strings)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.command, *self.args)

    uses_builtin_trainer = Attribute("words", uses_builtin_trainer)

    @property
    def numbered_words(self) -> Iterator[tuple[str, str]]:
        """Path and text of each word of command and args."""
        for part, words in (("command", self.command), ("args", self.args)):
            yield from ((f"{self.path}.{part}[{index}]", word) for index, word in enumerate(words))

    variables = Attribute("manifest.env", Variable.parse_all)
    """Entries of ``env`` in their order."""

    env = Attribute(
        "variables", lambda variables: {variable.name: variable for variable in variables}
    )

    env_from = Attribute("manifest.envFrom", objects)
    """Entries of ``envFrom``: ConfigMaps and Secrets."""

    working_dir = Attribute("manifest.workingDir", text)
    mounts = Attribute("manifest.volumeMounts", Mount.parse_all)
    requests = Attribute("manifest.resources.requests", mapping)
    limits = Attribute("manifest.resources.limits", mapping)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pod(ManifestView):
    """A pod template."""

    path: str

    main_path: str = ""
    """Path of its first container if that is outside the template, for messages."""

    labels = Attribute("manifest.metadata.labels", texts)
    annotations = Attribute("manifest.metadata.annotations", texts)
    spec = Attribute("manifest.spec", mapping)
    volumes = Attribute("spec.volumes", Volume.parse_all)
    grace_seconds = Attribute("spec.terminationGracePeriodSeconds", integer)

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """Its containers, without init containers."""
        return self._read("containers", self.main_path)

    @cached_property
    def init_containers(self) -> tuple[Container, ...]:
        """Run one after the other before the containers."""
        return self._read("initContainers")

    fields = Attribute("spec", with_values)

    def container(self, name: str) -> Container | None:
        return next((container for container in self.containers if container.name == name), None)

    def _read(self, part: str, first_path: str = "") -> tuple[Container, ...]:
        paths = numbered(f"{self.path}.spec.{part}", self.spec.get(part))
        containers = [Container(manifest=body, path=path) for path, body in paths]
        if containers and first_path:
            containers[0] = replace(containers[0], path=first_path)
        return tuple(containers)


@dataclass(frozen=True, kw_only=True, eq=False)
class Replica:
    """Pods of one role, made of one template."""

    role: str
    """``Master``, ``Worker``, ``PS`` …, ``Node`` or ``Launcher`` of a TrainJob; empty for a Job."""

    count: int
    restart_policy: str
    """The replica's, or that of a Job's pod; empty if absent."""

    pod: Pod
    path: str

    leads: bool = False
    """Whether its first pod decides about the job: a Chief or Master, else the first Worker."""

    replicated_job: str = ""

    def labels_of(self, index: int) -> dict[str, str]:
        """Return the labels of a pod, those that the training operator or JobSet adds included."""
        if self.replicated_job:
            jobset = {REPLICATED_JOB: self.replicated_job, COMPLETION_INDEX: str(index)}
            return self.pod.labels | jobset
        operator = {REPLICA_TYPE: self.role.lower(), REPLICA_INDEX: str(index)} if self.role else {}
        operator |= {MPI_ROLE: "launcher"} if self.role == "Launcher" else {}
        leader = {JOB_ROLE: "master"} if self.leads and (index == 0 or self.role in LEADERS) else {}
        return self.pod.labels | operator | leader


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload(Resource):
    """A job of its own, or the job in an Experiment's trial template."""

    operator = Attribute("kind", OPERATOR_KINDS.get)
    """The training operator's description of its kind; None for a Job, a TrainJob, and a kind
    podium does not know."""

    @property
    def operator_variables(self) -> Iterable[str]:
        """Names of the variables that the training operator sets in its containers."""
        return self.operator.environment if self.operator else ()

    @property
    def has_roles(self) -> bool:
        """Whether its pods have a role and number before they run; a Job's are numbered as they
        start."""
        return self.operator is not None or self.kind == TRAINJOB

    @cached_property
    def replicas(self) -> tuple[Replica, ...]:
        """By role as written; one without a role for a Job, the nodes of a TrainJob."""
        if self.kind == TRAINJOB:
            return (self._nodes(),)
        if self.kind == "Job":
            pod = Pod(manifest=mapping(self.spec.get("template")), path=f"{self.path}spec.template")
            policy = text(pod.spec.get("restartPolicy"))
            return (
                Replica(
                    role="",
                    count=self.parallelism,
                    restart_policy=policy,
                    pod=pod,
                    path=f"{self.path}spec",
                ),
            )
        return tuple(
            self._replica(str(role), mapping(replica))
            for role, replica in self._replica_specs.items()
        )

    def _nodes(self) -> Replica:
        """Return the nodes of a TrainJob, or its launcher: Node of ``node-0``, ``node-1`` …,
        Launcher of ``launcher-0``."""
        job, path = trainjob.training_job(self.spec), f"{self.path}spec.trainer"
        return Replica(
            role=job.capitalize(),
            replicated_job=job,
            leads=True,
            count=1 if self.uses_mpi else self.nodes,
            restart_policy="OnFailure",
            pod=Pod(
                manifest=trainjob.node_template(self.spec),
                path=f"{self.path}spec.runtimePatches[{job}]",
                main_path=path,
            ),
            path=path,
        )

    @property
    def uses_mpi(self) -> bool:
        """Whether mpirun starts the processes of a TrainJob, in its launcher."""
        return self.kind == TRAINJOB and trainjob.uses_mpi(self.spec)

    nodes = Attribute("spec.trainer.numNodes", _count)
    """Nodes of a TrainJob; 1, as the runtime torch-distributed has it, where it does not say."""

    runtime = Attribute("spec.runtimeRef.name", text)

    runtime_kind = Attribute("spec.runtimeRef.kind", text)
    """``ClusterTrainingRuntime``, the default, or ``TrainingRuntime``; empty if absent."""

    has_initializer = Attribute("spec.initializer", bool)
    """Whether a TrainJob loads its data or model before its nodes start."""

    trainer_status = Attribute("manifest.status.trainerStatus", mapping)
    """What the program of a TrainJob posted last: progress, metrics and the time."""

    @property
    def replicas_path(self) -> str:
        """Path of an operator's replicas in the manifest, for messages."""
        return f"{self.path}spec.{self.operator.replica_specs if self.operator else ''}"

    @cached_property
    def _replica_specs(self) -> Mapping[str, Any]:
        return mapping(self.spec.get(self.operator.replica_specs)) if self.operator else {}

    @cached_property
    def _leaders(self) -> tuple[str, ...]:
        roles = {str(role).capitalize() for role in self._replica_specs}
        return tuple(role for role in LEADERS if role in roles) or ("Worker",)

    def _replica(self, name: str, spec: Mapping[str, Any]) -> Replica:
        path, role = f"{self.replicas_path}.{name}", role_of(name, self.operator)
        return Replica(
            role=role,
            leads=role in self._leaders,
            count=_count(spec.get("replicas")),
            restart_policy=text(spec.get("restartPolicy")),
            pod=Pod(manifest=mapping(spec.get("template")), path=f"{path}.template"),
            path=path,
        )

    def replica(self, role: str) -> Replica | None:
        return next((replica for replica in self.replicas if replica.role == role), None)

    def containers(self) -> Iterator[tuple[Replica, Container]]:
        """Yield every container, without init containers."""
        for replica in self.replicas:
            yield from ((replica, container) for container in replica.pod.containers)

    @property
    def opens_store(self) -> bool:
        """Whether a command of its pods names an object store."""
        words = (word for _, container in self.containers() for word in container.words)
        return any("s3://" in word or "minio://" in word for word in words)

    @property
    def images(self) -> tuple[str, ...]:
        return tuple(container.image for _, container in self.containers() if container.image)

    in_template = Attribute("path", bool)
    """Whether it is the job of an Experiment's trials."""

    @property
    def workers(self) -> int:
        """Worker replicas; of a TrainJob the nodes beside the first."""
        if self.kind == TRAINJOB:
            return max(self.nodes - 1, 0)
        worker = self.replica("Worker")
        return worker.count if worker else 0

    @cached_property
    def run_policy(self) -> Mapping[str, Any]:
        """The mapping of deadlines and limits: the spec of a Job or TrainJob, else runPolicy."""
        return self.spec if self.kind in ("Job", TRAINJOB) else mapping(self.spec.get("runPolicy"))

    @property
    def run_policy_path(self) -> str:
        """Path of the run policy, for messages."""
        return (
            f"{self.path}spec" if self.kind in ("Job", TRAINJOB) else f"{self.path}spec.runPolicy"
        )

    active_deadline_seconds = Attribute("run_policy.activeDeadlineSeconds", integer)
    ttl_seconds_after_finished = Attribute("run_policy.ttlSecondsAfterFinished", integer)
    backoff_limit = Attribute("run_policy.backoffLimit", integer)

    parallelism = Attribute("spec.parallelism", _count)

    completions = Attribute("spec.completions", integer)
    """Pods of a Job that have to succeed; None for a work queue, done when one pod has
    succeeded."""

    is_indexed = Attribute("spec.completionMode", lambda mode: mode == "Indexed")

    @property
    def processes_at_once(self) -> int:
        """Number of processes that run at once."""
        if self.kind == "Job":
            return max(1, min(self.parallelism, self.completions or self.parallelism))
        if self.kind == MPIJOB:
            return max(1, self.workers) * (self.slots_per_worker or 1)
        if self.uses_mpi:
            hosts, slots = trainjob.mpi_slots(self.spec)
            return hosts * slots
        return self.pod_count * (self.processes_per_replica or 1)

    slots_per_worker = Attribute("spec.slotsPerWorker", integer)
    """Processes that mpirun may start in each Worker of an MPIJob; 1 if absent."""

    @property
    def pod_count(self) -> int:
        return sum(replica.count for replica in self.replicas)

    managed_by = Attribute("run_policy.managedBy", text)

    success_policy = Attribute("spec.successPolicy", text)
    """``AllWorkers``: a TFJob without a Chief or Master has succeeded with all its Workers, not
    with the first."""

    dynamic_workers = Attribute("spec.enableDynamicWorker", true)
    """Whether each process of a TFJob knows only itself and the parameter servers."""

    elastic = Attribute(
        "spec.elasticPolicy",
        lambda value: ElasticPolicy.parse(value) if isinstance(value, Mapping) else None,
    )

    cpu_share = Attribute(
        "metadata.annotations", lambda annotations: mapping(annotations).get(CPU_SHARE)
    )
    """Number of one machine's cores it may use, as annotated; None without the annotation."""

    suspended = Attribute("run_policy.suspend", true)
    """Whether it waits: for Kueue, or until it is resumed."""

    queue = Attribute("labels", lambda labels: text(labels.get(QUEUE)))
    """Kueue's local queue; empty if it names none."""

    clean_pod_policy = Attribute("run_policy.cleanPodPolicy", text)
    """Pods that an operator's job deletes once it has succeeded; empty if absent."""

    @property
    def processes(self) -> str:
        """``nprocPerNode`` of a PyTorchJob: ``auto``, ``cpu``, ``gpu`` or a number; a TrainJob's
        ``numProcPerNode``."""
        if self.kind == TRAINJOB:
            return str(integer(mapping(self.spec.get("trainer")).get("numProcPerNode")) or "auto")
        return (text(self.spec.get("nprocPerNode")) if self.kind == "PyTorchJob" else "") or "auto"

    @property
    def processes_per_replica(self) -> int | None:
        """``nprocPerNode`` if it is a number; auto, cpu and gpu count as 1 in WORLD_SIZE."""
        return int(self.processes) if self.processes.isdecimal() else None

    def changed_job(self, change: Callable[[JobEditor], None]) -> Self:
        editor = JobEditor.of(self.manifest)
        change(editor)
        return replace(self, manifest=editor.manifest)


def role_of(name: str, operator: OperatorKind | None) -> str:
    """Return a role as the operator writes it; it takes any case."""
    return (
        next((role for role in operator.roles if role.lower() == name.lower()), name)
        if operator
        else name
    )

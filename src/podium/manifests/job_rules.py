"""Rules about jobs that are accepted but would not run as meant: restarts, ends, and settings of
processes.

Source of those about TrainJobs: kubeflow/trainer v2.3.0,
pkg/runtime/framework/plugins/torch/torch.go and docs/operator-guides/runtime-patches.md;
kubernetes-sigs/kueue#12606.
"""

import re
from collections.abc import Iterator

from podium.errors import suggestion
from podium.manifests.admission import schema_of
from podium.manifests.fields import ManifestView, mapping, numbered, text
from podium.manifests.kinds import MIGRATED_KINDS, TRAINJOB
from podium.manifests.labels import ISTIO_INJECT, QUEUE
from podium.manifests.pod_security import violations, with_security
from podium.manifests.rules import Rules, Violation
from podium.manifests.structure import kubernetes_schema, unknown_fields
from podium.manifests.torchrun import launches, with_torchrun
from podium.manifests.trainjob import NODE, OTHER_RUNTIMES
from podium.manifests.workload import Container, Workload

JOB_RULES = Rules[Workload]()
rule = JOB_RULES.rule

_LONGEST_REPLICATED_JOB = 20

_SECRET = re.compile(
    r"(?!.*_(?:FILE|PATH|DIR)$).*(?:SECRET|PASSWORD|PASSWD|TOKEN(?!IZ|S)|API_?KEY|ACCESS_KEY)",
    re.IGNORECASE,
)
"""Names of variables that hold a secret, and no file with one; nor tokens of a text."""


@rule(
    "warn",
    "OnFailure restarts a replica in place forever: no backoffLimit, no activeDeadlineSeconds, no end.",
    hint="set runPolicy.backoffLimit: 3 and runPolicy.activeDeadlineSeconds",
)
def _restarts_without_end(job: Workload) -> Iterator[Violation]:
    if not job.operator or job.backoff_limit is not None or job.active_deadline_seconds is not None:
        return
    for replica in job.replicas:
        policy = replica.restart_policy or job.operator.restart_policy
        if policy in ("OnFailure", "Always"):
            problem = f"{replica.role} restarts {policy} without a limit"
            yield Violation(problem, job.run_policy_path)
            return


@rule(
    "note",
    "Processes that wait for each other wait forever; only a deadline ends them.",
    hint="set activeDeadlineSeconds",
)
def _no_deadline(job: Workload) -> Iterator[Violation]:
    if job.active_deadline_seconds is None and job.backoff_limit is not None:
        yield Violation("the job may hang forever", f"{job.run_policy_path}.activeDeadlineSeconds")


@rule(
    "warn",
    "A trial counts as failed only after the Job's own retries, six by default with growing pauses.",
    hint="set backoffLimit: 0",
)
def _retries_before_failing(job: Workload) -> Iterator[Violation]:
    if job.kind == "Job" and job.in_template and job.backoff_limit is None:
        yield Violation("a failing trial is repeated 6 times", f"{job.path}spec.backoffLimit")


@rule(
    "fail",
    "The operator sets WORLD_SIZE = replicas x nprocPerNode in every pod; that many processes must start.",
    hint="start with torchrun, or remove nprocPerNode",
)
def _fewer_processes_than_promised(job: Workload) -> Iterator[Violation]:
    processes = job.processes_per_replica
    if job.kind != "PyTorchJob" or not processes or processes < 2:
        return
    for replica, container in job.containers():
        if container.name == "pytorch" and container.words and not launches(container.words):
            size = f"WORLD_SIZE is {job.pod_count * processes}"
            problem = f"{size}, but {replica.role} starts one process a pod: they wait forever"
            yield Violation(problem, f"{job.path}spec.nprocPerNode")
            return


@rule(
    "warn",
    "torchrun's own flags overrule the PET_ variables that the operator sets.",
    hint="remove the flag: torchrun reads PET_NNODES, PET_NPROC_PER_NODE and PET_NODE_RANK",
)
def _launcher_disagrees(job: Workload) -> Iterator[Violation]:
    if job.kind != "PyTorchJob":
        return
    processes = job.processes_per_replica or job.spec.get("nprocPerNode") or 1
    flags = {
        r"--nproc[-_]per[-_]node[= ](\d+)": str(processes),
        r"--nnodes[= ](\d+)(?![\d:])": str(job.pod_count),
    }
    for _, container in job.containers():
        for pattern, declared in flags.items() if launches(container.words) else ():
            flag = re.search(pattern, " ".join(container.words))
            if flag and flag[1] != declared:
                problem = f"`{flag[0]}` says {flag[1]}, the manifest {declared}"
                yield Violation(problem, container.path)


@rule(
    "warn",
    "The training operator sets these variables itself, with the values of each pod.",
    hint="remove it",
)
def _operator_variables_overwritten(job: Workload) -> Iterator[Violation]:
    for _, container in job.containers():
        for name in container.env:
            if name in job.operator_variables and name != "PYTHONUNBUFFERED":
                yield Violation(f"{name} is set", f"{container.path}.env")


@rule(
    "warn",
    "Without a Master the operator sets neither RANK nor WORLD_SIZE.",
    hint="add a Master of one replica with the same template",
)
def _no_master(job: Workload) -> Iterator[Violation]:
    if job.kind == "PyTorchJob" and job.replicas and not job.replica("Master"):
        yield Violation("there are Workers only", job.replicas_path)


@rule(
    "warn",
    "The job has succeeded when the Master has; cleanPodPolicy None lets Workers run on.",
    hint="set cleanPodPolicy: Running",
)
def workers_outlive_the_master(job: Workload) -> Iterator[Violation]:
    both = {replica.role for replica in job.replicas} == {"Master", "Worker"}
    if job.kind == "PyTorchJob" and both and job.clean_pod_policy in ("", "None"):
        where = f"{job.run_policy_path}.cleanPodPolicy"
        yield Violation("Workers that hang outlive the job", where)


@rule(
    "note",
    "The operator gives Worker pods an init container that waits for the Master; it has an image too.",
    hint="on a cluster without internet, load the operator's --pytorch-init-container-image; "
    "where Pod Security is restricted, see docs/cluster-teams.md",
)
def _workers_need_an_init_image(job: Workload) -> Iterator[Violation]:
    if job.kind == "PyTorchJob" and job.replica("Worker"):
        yield Violation("Workers start after an init container", f"{job.replicas_path}.Worker")


@rule(
    "note",
    'A namespace that enforces Pod Security "restricted" takes no such pods, however podium launches them.',
    hint="remove it, or run it where Pod Security is off",
)
def _refused_where_restricted(job: Workload) -> Iterator[Violation]:
    first: dict[str, str] = {}
    for replica in with_security(job).replicas:
        first.setdefault("; ".join(violations(replica.pod)), replica.pod.path)
    yield from (Violation(reasons, path) for reasons, path in first.items() if reasons)


@rule(
    "note",
    "A tag that moves refers to other code tomorrow, and is pulled every time.",
    hint="name a version",
)
def _image_may_change(job: Workload) -> Iterator[Violation]:
    first: dict[str, str] = {}
    for _, container in job.containers():
        first.setdefault(container.image, f"{container.path}.image")
    for image, path in first.items():
        tag = image.rpartition("/")[2].partition(":")[2]
        if image and "@" not in image and tag in ("", "latest"):
            yield Violation(f"image {image} has no fixed tag", path)


@rule(
    "warn",
    "Whoever may read the manifest, the job or its pods reads the value.",
    hint="put it into a Secret and use valueFrom.secretKeyRef",
)
def _secret_in_plain_text(job: Workload) -> Iterator[Violation]:
    for _, container in job.containers():
        for name, variable in container.env.items():
            if _SECRET.match(name) and variable.value:
                yield Violation(f"{name} is written into the manifest", f"{container.path}.env")


@rule(
    "warn",
    "Current Istio reads the pod label; its proxy never ends and keeps the trial's pod alive (katib#2527).",
    hint=f'set the label {ISTIO_INJECT}: "false" beside it',
)
def _istio_annotation_alone(job: Workload) -> Iterator[Violation]:
    for pod in (replica.pod for replica in job.replicas):
        if ISTIO_INJECT in pod.annotations and ISTIO_INJECT not in pod.labels:
            where = f"{pod.path}.metadata.annotations"
            yield Violation(f"{ISTIO_INJECT} is an annotation, not a label", where)


def _plain(job: Workload) -> Container | None:
    """Return the container of a TrainJob's nodes if it starts plain Python, although Trainer has
    set up torchrun."""
    if job.kind != TRAINJOB or job.uses_mpi or job.runtime in OTHER_RUNTIMES:
        return None
    container = job.replicas[0].pod.container(NODE)
    return container if container and with_torchrun(container.words) else None


@rule(
    "warn",
    "Trainer sets PET_* for torchrun, but neither RANK nor WORLD_SIZE: each node trains alone, on all data.",
    hint="put torchrun in place of python, or python -m torch.distributed.run before the script",
)
def _separate_trainings(job: Workload) -> Iterator[Violation]:
    container = _plain(job)
    if container is None or job.nodes < 2:
        return
    reads_itself = container.uses_builtin_trainer or any("PET_" in word for word in container.words)
    if not reads_itself:
        problem = f"{job.nodes} nodes start python without torchrun: {job.nodes} separate trainings"
        yield Violation(problem, f"{container.path}.command")


@rule(
    "warn",
    "Only torchrun starts numProcPerNode processes on each node.",
    hint="start it with torchrun, or set numProcPerNode: 1",
)
def _one_process_a_node(job: Workload) -> Iterator[Violation]:
    container, processes = _plain(job), job.processes_per_replica
    if container is not None and processes and processes > 1:
        problem = f"numProcPerNode is {processes}, but python without torchrun is one process"
        yield Violation(problem, f"{container.path}.numProcPerNode")


@rule(
    "fail",
    "Trainer 2.2 replaced it by runtimePatches: kubectl refuses the field, other clients lose it unseen.",
    hint="write runtimePatches: [{manager: acme.com/team, trainingRuntimeSpec: {template: {spec: {replicatedJobs: "
    "[{name: node, template: {spec: {template: {spec: …}}}}]}}}}]",
)
def _old_overrides(job: Workload) -> Iterator[Violation]:
    versions = {"podTemplateOverrides": "Trainer 2.1", "podSpecOverrides": "Trainer 2.0"}
    for name, version in versions.items() if job.kind == TRAINJOB else ():
        if job.spec.get(name) is not None:
            yield Violation(f"{name} is of {version}", f"{job.path}spec.{name}")


@rule(
    "note",
    "A TrainJob's nodes restart OnFailure, up to the backoffLimit of the runtime's Job, six by default.",
    hint="a runtime of your own with backoffLimit: 0 for its Job, or activeDeadlineSeconds",
)
def _nodes_restart(job: Workload) -> Iterator[Violation]:
    if job.kind == TRAINJOB and job.in_template:
        yield Violation("a failing trial is tried again", f"{job.path}spec.runtimeRef")


@rule(
    "note",
    "Kueue 0.19 leaves the training operator's jobs out of its default configuration (kueue#12606).",
)
def _queue_may_be_ignored(job: Workload) -> Iterator[Violation]:
    if job.operator and QUEUE in job.labels:
        hint = f"switch kubeflow.org/{job.kind.lower()} on in Kueue's integrations.frameworks"
        hint += ", or make it a TrainJob: podium migrate" if job.kind in MIGRATED_KINDS else ""
        problem = f"Kueue 0.19 and later may ignore {QUEUE} of a {job.kind}"
        yield Violation(problem, f"{job.path}metadata.labels", hint)


RUNTIME_RULES = Rules[ManifestView]()
"""Rules about a TrainingRuntime or ClusterTrainingRuntime."""

RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime")


@RUNTIME_RULES.rule(
    "warn",
    "Trainer 2.4 takes names of replicated jobs of at most 20 characters; earlier ones take more.",
    hint="shorten it, also where jobs name it",
)
def _name_of_a_replicated_job_too_long(runtime: ManifestView) -> Iterator[Violation]:
    spec = mapping(mapping(mapping(runtime.manifest.get("spec")).get("template")).get("spec"))
    for path, job in numbered("spec.template.spec.replicatedJobs", spec.get("replicatedJobs")):
        name = text(job.get("name"))
        if len(name) > _LONGEST_REPLICATED_JOB:
            yield Violation(f"{name} has {len(name)} characters", f"{path}.name")


UNKNOWN_FIELDS = Rules[Workload]()


@UNKNOWN_FIELDS.rule(
    "warn", "Kubernetes drops a field that it does not know, or refuses the object with it."
)
def _unknown_field(job: Workload) -> Iterator[Violation]:
    if job.kind == "Job" and not job.path:  # that of a trial is refused for it
        yield from unknown_fields(job.spec, kubernetes_schema("V1JobSpec"), f"{job.path}spec")
    if job.operator:
        yield from _of_operator(job)
        for pod in (replica.pod for replica in job.replicas):
            yield from unknown_fields(
                pod.manifest, kubernetes_schema("V1PodTemplateSpec"), pod.path
            )


def _of_operator(job: Workload) -> Iterator[Violation]:
    schema = schema_of(job.kind)["spec"]
    policy = schema["runPolicy"]
    for field in job.spec:
        if field not in schema:
            below = f"{field} belongs below runPolicy" if field in policy else None
            hint = below or suggestion(str(field), schema)
            where = f"{job.path}spec.{field}"
            yield Violation(f"a {job.kind} has no field {field}", where, hint)
    for field in job.run_policy:
        if field not in policy:
            where, hint = f"{job.run_policy_path}.{field}", suggestion(str(field), policy)
            yield Violation(f"runPolicy has no field {field}", where, hint)

"""Rules about jobs that are accepted but would not run as meant: restarts, ends, and settings of
processes.

Source of those about TrainJobs: kubeflow/trainer v2.3.0,
pkg/runtime/framework/plugins/torch/torch.go and docs/operator-guides/runtime-patches.md;
kubernetes-sigs/kueue#12606.
"""

import re
from collections.abc import Iterator

from podium.manifests.admission import refusals
from podium.manifests.kinds import MIGRATED_KINDS, TRAINJOB
from podium.manifests.labels import ISTIO_INJECT, QUEUE
from podium.manifests.pod_security import violations, with_security
from podium.manifests.rules import Finding, Rules, Violation, apply, worst_first
from podium.manifests.torchrun import launches, starts_python
from podium.manifests.trainjob import NODE, OTHER_RUNTIMES
from podium.manifests.workload import Container, Workload

JOB_RULES = Rules[Workload]()
rule = JOB_RULES.rule

_OLD_FIELDS = {"podTemplateOverrides": "Trainer 2.1", "podSpecOverrides": "Trainer 2.0"}
_INSTEAD = (
    "write runtimePatches: [{manager: acme.com/team, trainingRuntimeSpec: {template: {spec: {replicatedJobs: "
    "[{name: node, template: {spec: {template: {spec: …}}}}]}}}}]"
)

_SECRET = re.compile(r"SECRET|PASSWORD|PASSWD|TOKEN|API_?KEY|ACCESS_KEY", re.IGNORECASE)


@rule(
    "warn",
    "OnFailure restarts a replica in place forever: no backoffLimit, no activeDeadlineSeconds, no end.",
)
def _restarts_without_end(job: Workload) -> Iterator[Violation]:
    if not job.operator or job.backoff_limit is not None or job.active_deadline_seconds is not None:
        return
    for replica in job.replicas:
        if (policy := replica.restart_policy or job.operator.restart_policy) in (
            "OnFailure",
            "Always",
        ):
            hint = "set runPolicy.backoffLimit: 3 and runPolicy.activeDeadlineSeconds"
            yield Violation(
                f"{replica.role} restarts {policy} without a limit", job.run_policy_path, hint
            )
            return


@rule("note", "Processes that wait for each other wait forever; only a deadline ends them.")
def _no_deadline(job: Workload) -> Iterator[Violation]:
    if job.active_deadline_seconds is None and job.backoff_limit is not None:
        where = f"{job.run_policy_path}.activeDeadlineSeconds"
        yield Violation("the job may hang forever", where, "set activeDeadlineSeconds")


@rule(
    "warn",
    "A trial counts as failed only after the Job's own retries, six by default with growing pauses.",
)
def _retries_before_failing(job: Workload) -> Iterator[Violation]:
    if job.kind == "Job" and job.in_template and job.backoff_limit is None:
        where = f"{job.path}spec.backoffLimit"
        yield Violation("a failing trial is repeated 6 times", where, "set backoffLimit: 0")


@rule(
    "fail",
    "The operator sets WORLD_SIZE = replicas x nprocPerNode in every pod; that many processes must start.",
)
def _fewer_processes_than_promised(job: Workload) -> Iterator[Violation]:
    processes = job.processes_per_replica
    if job.kind != "PyTorchJob" or not processes or processes < 2:
        return
    for replica, container in job.containers():
        if container.name == "pytorch" and container.words and not launches(container.words):
            size = job.pod_count * processes
            what = f"WORLD_SIZE is {size}, but {replica.role} starts one process a pod: they wait forever"
            hint = "start with torchrun, or remove nprocPerNode"
            yield Violation(what, f"{job.path}spec.nprocPerNode", hint)
            return


@rule("warn", "torchrun's own flags overrule the PET_ variables that the operator sets.")
def _launcher_disagrees(job: Workload) -> Iterator[Violation]:
    if job.kind != "PyTorchJob":
        return
    processes = job.processes_per_replica or job.spec.get("nprocPerNode") or 1
    given = {"nproc": str(processes), "nnodes": str(job.pod_count)}
    for _, container in job.containers():
        line = " ".join(container.words)
        for flag, pattern in (
            ("nproc", r"--nproc[-_]per[-_]node[= ](\d+)"),
            ("nnodes", r"--nnodes[= ](\d+)"),
        ):
            flagged = re.search(pattern, line)
            if flagged and launches(container.words) and flagged[1] != given[flag]:
                what = f"`{flagged[0]}` says {flagged[1]}, the manifest {given[flag]}"
                hint = "remove the flag: torchrun reads PET_NNODES, PET_NPROC_PER_NODE and PET_NODE_RANK"
                yield Violation(what, container.path, hint)


@rule("warn", "The training operator sets these variables itself, with the values of each pod.")
def _operator_variables_overwritten(job: Workload) -> Iterator[Violation]:
    for _, container in job.containers():
        for name in container.env:
            if name in job.operator_variables and name != "PYTHONUNBUFFERED":
                yield Violation(f"{name} is set", f"{container.path}.env", "remove it")


@rule("warn", "Without a Master the operator sets neither RANK nor WORLD_SIZE.")
def _no_master(job: Workload) -> Iterator[Violation]:
    if job.kind != "PyTorchJob" or not job.replicas or job.replica("Master"):
        return
    hint = "add a Master of one replica with the same template"
    yield Violation("there are Workers only", job.replicas_path, hint)


@rule("warn", "The job has succeeded when the Master has; cleanPodPolicy None lets Workers run on.")
def workers_outlive_the_master(job: Workload) -> Iterator[Violation]:
    roles = {replica.role for replica in job.replicas}
    if (
        job.kind == "PyTorchJob"
        and roles == {"Master", "Worker"}
        and job.clean_pod_policy in ("", "None")
    ):
        where = f"{job.run_policy_path}.cleanPodPolicy"
        yield Violation("Workers that hang outlive the job", where, "set cleanPodPolicy: Running")


@rule(
    "note",
    "The operator gives Worker pods an init container that waits for the Master; it has an image too.",
)
def _workers_need_an_init_image(job: Workload) -> Iterator[Violation]:
    if job.kind == "PyTorchJob" and job.replica("Worker"):
        hint = "on a cluster without internet, load the operator's --pytorch-init-container-image; "
        hint += "where Pod Security is restricted, see docs/cluster-teams.md"
        where = f"{job.replicas_path}.Worker"
        yield Violation("Workers start after an init container", where, hint)


@rule(
    "note",
    'A namespace that enforces Pod Security "restricted" takes no such pods, however podium launches them.',
)
def _refused_where_restricted(job: Workload) -> Iterator[Violation]:
    seen: set[str] = set()
    for replica in with_security(job).replicas:
        reasons = "; ".join(violations(replica.pod))
        if reasons and reasons not in seen:
            seen.add(reasons)
            yield Violation(
                reasons, replica.pod.path, "remove it, or run it where Pod Security is off"
            )


@rule("note", "A tag that moves refers to other code tomorrow, and is pulled every time.")
def _image_may_change(job: Workload) -> Iterator[Violation]:
    seen: set[str] = set()
    for _, container in job.containers():
        image = container.image
        tag = image.rpartition("/")[2].partition(":")[2]
        if image and image not in seen and "@" not in image and tag in ("", "latest"):
            seen.add(image)
            yield Violation(
                f"image {image} has no fixed tag", f"{container.path}.image", "name a version"
            )


@rule("warn", "Whoever may read the manifest, the job or its pods reads the value.")
def _secret_in_plain_text(job: Workload) -> Iterator[Violation]:
    for _, container in job.containers():
        for name, variable in container.env.items():
            if _SECRET.search(name) and variable.value:
                hint = "put it into a Secret and use valueFrom.secretKeyRef"
                yield Violation(
                    f"{name} is written into the manifest", f"{container.path}.env", hint
                )


@rule(
    "warn",
    "Current Istio reads the pod label; its proxy never ends and keeps the trial's pod alive (katib#2527).",
)
def _istio_annotation_alone(job: Workload) -> Iterator[Violation]:
    for pod in (replica.pod for replica in job.replicas):
        if ISTIO_INJECT in pod.annotations and ISTIO_INJECT not in pod.labels:
            where = f"{pod.path}.metadata.annotations"
            hint = f'set the label {ISTIO_INJECT}: "false" beside it'
            yield Violation(f"{ISTIO_INJECT} is an annotation, not a label", where, hint)


def _plain(job: Workload) -> Container | None:
    """Return the container of a TrainJob's nodes if it starts plain Python, although Trainer has
    set up torchrun."""
    if job.kind != TRAINJOB or job.uses_mpi or job.runtime in OTHER_RUNTIMES:
        return None
    container = job.replicas[0].pod.container(NODE)
    return container if container and starts_python(container.words) else None


@rule(
    "warn",
    "Trainer sets PET_* for torchrun, but neither RANK nor WORLD_SIZE: each node trains alone, on all data.",
)
def _separate_trainings(job: Workload) -> Iterator[Violation]:
    container = _plain(job)
    if container is None or job.nodes < 2:
        return
    reads_itself = container.uses_builtin_trainer or any("PET_" in word for word in container.words)
    if not reads_itself:
        what = f"{job.nodes} nodes start python without torchrun: {job.nodes} separate trainings"
        hint = (
            "put torchrun in place of python, or python -m torch.distributed.run before the script"
        )
        yield Violation(what, f"{container.path}.command", hint)


@rule("warn", "Only torchrun starts numProcPerNode processes on each node.")
def _one_process_a_node(job: Workload) -> Iterator[Violation]:
    container, processes = _plain(job), job.processes_per_replica
    if container is not None and processes and processes > 1:
        what = f"numProcPerNode is {processes}, but python without torchrun is one process"
        hint = "start it with torchrun, or set numProcPerNode: 1"
        yield Violation(what, f"{container.path}.numProcPerNode", hint)


@rule(
    "fail",
    "Trainer 2.2 replaced it by runtimePatches: kubectl refuses the field, other clients lose it unseen.",
)
def _old_overrides(job: Workload) -> Iterator[Violation]:
    for name, version in _OLD_FIELDS.items() if job.kind == TRAINJOB else ():
        if job.spec.get(name) is not None:
            yield Violation(f"{name} is of {version}", f"{job.path}spec.{name}", _INSTEAD)


@rule(
    "note",
    "A TrainJob's nodes restart OnFailure, up to the backoffLimit of the runtime's Job, six by default.",
)
def _nodes_restart(job: Workload) -> Iterator[Violation]:
    if job.kind == TRAINJOB and job.in_template:
        hint = "a runtime of your own with backoffLimit: 0 for its Job, or activeDeadlineSeconds"
        yield Violation("a failing trial is tried again", f"{job.path}spec.runtimeRef", hint)


@rule(
    "note",
    "Kueue 0.19 leaves the training operator's jobs out of its default configuration (kueue#12606).",
)
def _queue_may_be_ignored(job: Workload) -> Iterator[Violation]:
    if job.operator and QUEUE in job.labels:
        hint = f"switch kubeflow.org/{job.kind.lower()} on in Kueue's integrations.frameworks"
        hint += ", or make it a TrainJob: podium migrate" if job.kind in MIGRATED_KINDS else ""
        what = f"Kueue 0.19 and later may ignore {QUEUE} of a {job.kind}"
        yield Violation(what, f"{job.path}metadata.labels", hint)


def findings_of(job: Workload) -> list[Finding]:
    """Return all findings about a job: refusals and warnings."""
    return worst_first([*refusals(job.manifest), *apply(JOB_RULES, job)])

"""Rules about a job: how it restarts and ends, and which variables its processes get."""

import re
from collections.abc import Iterator

from podium.manifests.kinds import TRAINJOB
from podium.manifests.labels import ISTIO_INJECT
from podium.manifests.pod_security import violations, with_security
from podium.manifests.rules import Rule, Violation, rules_into
from podium.manifests.torchrun import launches
from podium.manifests.workload import Workload

JOB_RULES: list[Rule[Workload]] = []
rule = rules_into(JOB_RULES)

_SECRET = re.compile(r"SECRET|PASSWORD|PASSWD|TOKEN|API_?KEY|ACCESS_KEY", re.IGNORECASE)


_RANK = ("PYTHONUNBUFFERED", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
OPERATOR_ENV: dict[str, tuple[str, ...]] = {
    "PyTorchJob": (
        *_RANK,
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "PET_NNODES",
        "PET_NODE_RANK",
        "PET_NPROC_PER_NODE",
    ),
    "TFJob": ("TF_CONFIG",),
    "XGBoostJob": (*_RANK, "WORKER_PORT", "WORKER_ADDRS"),
    "JAXJob": ("PYTHONUNBUFFERED", "COORDINATOR_ADDRESS", "COORDINATOR_PORT", "NUM_PROCESSES", "PROCESS_ID"),
}
"""What the training operator sets by kind (kubeflow/trainer release-1.9: pkg/controller.v1)."""


@rule("warn", "OnFailure restarts a replica in place forever: no backoffLimit, no activeDeadlineSeconds, no end.")
def restarts_without_end(job: Workload) -> Iterator[Violation]:
    if not job.operator or job.backoff_limit is not None or job.active_deadline_seconds is not None:
        return
    for replica in job.replicas:
        if (policy := replica.restart_policy or job.operator.restart_policy) in ("OnFailure", "Always"):
            hint = "set runPolicy.backoffLimit: 3 and runPolicy.activeDeadlineSeconds"
            what = f"{replica.role} restarts {policy} without a limit"
            yield Violation(what=what, where=job.run_policy_path, hint=hint)
            return


@rule("note", "Processes that wait for each other wait forever; only a deadline ends them.")
def no_deadline(job: Workload) -> Iterator[Violation]:
    if job.active_deadline_seconds is None and job.backoff_limit is not None:
        where = f"{job.run_policy_path}.activeDeadlineSeconds"
        yield Violation(what="the job may hang forever", where=where, hint="set activeDeadlineSeconds")


@rule("warn", "A trial counts as failed only after the Job's own retries, six by default with growing pauses.")
def retries_before_failing(job: Workload) -> Iterator[Violation]:
    if job.kind == "Job" and job.in_template and job.backoff_limit is None:
        where = f"{job.path}spec.backoffLimit"
        yield Violation(what="a failing trial is repeated 6 times", where=where, hint="set backoffLimit: 0")


@rule("fail", "The operator sets WORLD_SIZE = replicas x nprocPerNode in every pod; that many processes must start.")
def fewer_processes_than_promised(job: Workload) -> Iterator[Violation]:
    processes = job.processes_per_replica
    if job.kind != "PyTorchJob" or not processes or processes < 2:
        return
    for replica, container in job.containers():
        if container.name == "pytorch" and container.words and not launches(container.words):
            size = job.pod_count * processes
            what = f"WORLD_SIZE is {size}, but {replica.role} starts one process a pod: they wait forever"
            hint = "start with torchrun, or remove nprocPerNode"
            yield Violation(what=what, where=f"{job.path}spec.nprocPerNode", hint=hint)
            return


@rule("warn", "torchrun's own flags overrule the PET_ variables that the operator sets.")
def launcher_disagrees(job: Workload) -> Iterator[Violation]:
    if job.kind != "PyTorchJob":
        return
    processes = job.processes_per_replica or job.spec.get("nprocPerNode") or 1
    given = {"nproc": str(processes), "nnodes": str(job.pod_count)}
    for _, container in job.containers():
        line = " ".join(container.words)
        for flag, pattern in (("nproc", r"--nproc[-_]per[-_]node[= ](\d+)"), ("nnodes", r"--nnodes[= ](\d+)")):
            flagged = re.search(pattern, line)
            if flagged and launches(container.words) and flagged[1] != given[flag]:
                what = f"`{flagged[0]}` says {flagged[1]}, the manifest {given[flag]}"
                hint = "remove the flag: torchrun reads PET_NNODES, PET_NPROC_PER_NODE and PET_NODE_RANK"
                yield Violation(what=what, where=container.path, hint=hint)


@rule("warn", "The training operator sets these variables itself, with the values of each pod.")
def operator_variables_overwritten(job: Workload) -> Iterator[Violation]:
    for _, container in job.containers():
        for name in container.env:
            if name in OPERATOR_ENV.get(job.kind, ()) and name != "PYTHONUNBUFFERED":
                yield Violation(what=f"{name} is set", where=f"{container.path}.env", hint="remove it")


@rule("warn", "Without a Master the operator sets neither RANK nor WORLD_SIZE.")
def no_master(job: Workload) -> Iterator[Violation]:
    if job.kind != "PyTorchJob" or not job.replicas or job.replica("Master"):
        return
    hint = "add a Master of one replica with the same template"
    yield Violation(what="there are Workers only", where=job.replicas_path, hint=hint)


@rule("warn", "The job has succeeded when the Master has; cleanPodPolicy None lets Workers run on.")
def workers_outlive_the_master(job: Workload) -> Iterator[Violation]:
    roles = {replica.role for replica in job.replicas}
    if job.kind == "PyTorchJob" and roles == {"Master", "Worker"} and job.clean_pod_policy in ("", "None"):
        where = f"{job.run_policy_path}.cleanPodPolicy"
        yield Violation(what="Workers that hang outlive the job", where=where, hint="set cleanPodPolicy: Running")


@rule("note", "The operator gives Worker pods an init container that waits for the Master; it has an image too.")
def workers_need_an_init_image(job: Workload) -> Iterator[Violation]:
    if job.kind == "PyTorchJob" and job.replica("Worker"):
        hint = "on a cluster without internet, load the operator's --pytorch-init-container-image; "
        hint += "where Pod Security is restricted, see docs/cluster.md"
        where = f"{job.replicas_path}.Worker"
        yield Violation(what="Workers start after an init container", where=where, hint=hint)


@rule("note", 'A namespace that enforces Pod Security "restricted" takes no such pods, however podium launches them.')
def refused_where_restricted(job: Workload) -> Iterator[Violation]:
    seen: set[str] = set()
    for replica in with_security(job).replicas:
        reasons = "; ".join(violations(replica.pod))
        if reasons and reasons not in seen:
            seen.add(reasons)
            yield Violation(what=reasons, where=replica.pod.path, hint="remove it, or run it where Pod Security is off")


@rule("fail", "A pod without an image cannot start.")
def no_image(job: Workload) -> Iterator[Violation]:
    for _, container in job.containers():
        if not container.image and job.kind != TRAINJOB:  # its runtime has one
            yield Violation(
                what=f"container {container.name} has no image", where=f"{container.path}.image", hint="set it"
            )


@rule("note", "A tag that moves gives other code tomorrow, and is pulled anew each time.")
def image_may_change(job: Workload) -> Iterator[Violation]:
    seen: set[str] = set()
    for _, container in job.containers():
        image = container.image
        tag = image.rpartition("/")[2].partition(":")[2]
        if image and image not in seen and "@" not in image and tag in ("", "latest"):
            seen.add(image)
            yield Violation(
                what=f"image {image} has no fixed tag", where=f"{container.path}.image", hint="name a version"
            )


@rule("warn", "Whoever may read the manifest, the job or its pods reads the value.")
def secret_in_plain_text(job: Workload) -> Iterator[Violation]:
    for _, container in job.containers():
        for name, variable in container.env.items():
            if _SECRET.search(name) and variable.value:
                hint = "put it into a Secret and use valueFrom.secretKeyRef"
                yield Violation(what=f"{name} is written into the manifest", where=f"{container.path}.env", hint=hint)


@rule("warn", "Current Istio reads the pod label; its proxy never ends and keeps the trial's pod alive (katib#2527).")
def istio_annotation_alone(job: Workload) -> Iterator[Violation]:
    for pod in (replica.pod for replica in job.replicas):
        if ISTIO_INJECT in pod.annotations and ISTIO_INJECT not in pod.labels:
            where = f"{pod.path}.metadata.annotations"
            hint = f'set the label {ISTIO_INJECT}: "false" beside it'
            yield Violation(what=f"{ISTIO_INJECT} is an annotation, not a label", where=where, hint=hint)

"""Rules about a Job or PyTorchJob: how it restarts, ends, and what its processes are told."""

import re
from collections.abc import Iterator

from podium.doctor.finding import Hit, Rule, rule
from podium.doctor.pods import OPERATOR_ENV, Container, Workload

_LAUNCHER = re.compile(r"torchrun|torch\.distributed\.(run|launch)|accelerate|deepspeed|mpirun|horovodrun")
_SECRET = re.compile(r"SECRET|PASSWORD|PASSWD|TOKEN|API_?KEY|ACCESS_KEY", re.IGNORECASE)


def _processes(job: Workload) -> int | None:
    """Return nprocPerNode if it is a number; auto, cpu and gpu count as 1 in WORLD_SIZE."""
    given = str(job.spec.get("nprocPerNode") or "")
    return int(given) if given.isdecimal() else None


def _launches(container: Container) -> bool:
    return bool(_LAUNCHER.search(" ".join(container.words)))


@rule("warn", "OnFailure restarts a replica in place for ever: no backoffLimit, no activeDeadlineSeconds, no end.")
def restarts_without_end(job: Workload) -> Iterator[Hit]:
    if job.kind != "PyTorchJob" or job.policy.get("backoffLimit") is not None:
        return
    if job.policy.get("activeDeadlineSeconds") is not None:
        return
    for pod in job.pods:
        if (pod.restart_policy or "OnFailure") in ("OnFailure", "Always"):
            what = f"{pod.replica} restarts {pod.restart_policy or 'OnFailure'} without a limit"
            mend = "set runPolicy.backoffLimit: 3 and runPolicy.activeDeadlineSeconds"
            yield Hit(what=what, where=job.policy_path, mend=mend)
            return


@rule("note", "Processes that wait for each other wait for ever; only a deadline ends them.")
def no_deadline(job: Workload) -> Iterator[Hit]:
    if job.policy.get("activeDeadlineSeconds") is None and job.policy.get("backoffLimit") is not None:
        where = f"{job.policy_path}.activeDeadlineSeconds"
        yield Hit(what="the job may hang for ever", where=where, mend="set activeDeadlineSeconds")


@rule("warn", "A trial counts as failed only after the Job's own retries, six by default with growing pauses.")
def retries_before_failing(job: Workload) -> Iterator[Hit]:
    if job.kind == "Job" and job.trial is not None and job.spec.get("backoffLimit") is None:
        where = f"{job.path}spec.backoffLimit"
        yield Hit(what="a failing trial is repeated 6 times", where=where, mend="set backoffLimit: 0")


@rule("fail", "The operator tells every process WORLD_SIZE = replicas x nprocPerNode; someone must start that many.")
def fewer_processes_than_promised(job: Workload) -> Iterator[Hit]:
    processes = _processes(job)
    if job.kind != "PyTorchJob" or not processes or processes < 2:
        return
    for pod, container in job.containers():
        if container.name == "pytorch" and container.words and not _launches(container):
            total = sum(one.count for one in job.pods)
            what = f"WORLD_SIZE is {total * processes}, but {pod.replica} starts one process a pod: they wait for ever"
            mend = "start with torchrun, or remove nprocPerNode"
            yield Hit(what=what, where=f"{job.path}spec.nprocPerNode", mend=mend)
            return


@rule(
    "warn",
    "torchrun's own flags overrule the PET_ variables with which the operator tells it the truth.",
)
def launcher_disagrees(job: Workload) -> Iterator[Hit]:
    if job.kind != "PyTorchJob":
        return
    nodes = sum(one.count for one in job.pods)
    given = {"nproc": str(_processes(job) or job.spec.get("nprocPerNode") or 1), "nnodes": str(nodes)}
    for _, container in job.containers():
        line = " ".join(container.words)
        for flag, pattern in (("nproc", r"--nproc[-_]per[-_]node[= ](\d+)"), ("nnodes", r"--nnodes[= ](\d+)")):
            found = re.search(pattern, line)
            if found and _launches(container) and found[1] != given[flag]:
                what = f"`{found[0]}` says {found[1]}, the manifest {given[flag]}"
                mend = "remove the flag: torchrun reads PET_NNODES, PET_NPROC_PER_NODE and PET_NODE_RANK"
                yield Hit(what=what, where=container.path, mend=mend)


@rule("warn", "The training operator sets these variables itself, with the values of each pod.")
def operator_variables_overwritten(job: Workload) -> Iterator[Hit]:
    if job.kind != "PyTorchJob":
        return
    for _, container in job.containers():
        for name in container.env:
            if name in OPERATOR_ENV and name != "PYTHONUNBUFFERED":
                yield Hit(what=f"{name} is set", where=f"{container.path}.env", mend="remove it")


@rule("warn", "Without a Master nobody is told RANK or WORLD_SIZE.")
def no_master(job: Workload) -> Iterator[Hit]:
    if job.kind != "PyTorchJob" or not job.pods or any(pod.replica == "Master" for pod in job.pods):
        return
    where = f"{job.path}spec.pytorchReplicaSpecs"
    level = "fail" if job.trial is not None else None
    what = "there are Workers only" + (": no pod bears the label that Katib collects from" if level else "")
    yield Hit(what=what, where=where, mend="add a Master of one replica with the same template", level=level)


@rule("warn", "The job has succeeded when the Master has; cleanPodPolicy None lets Workers run on.")
def workers_outlive_the_master(job: Workload) -> Iterator[Hit]:
    if job.kind != "PyTorchJob" or {pod.replica for pod in job.pods} != {"Master", "Worker"}:
        return
    deleted = job.trial is not None and not _template(job).get("retain")
    if job.policy.get("cleanPodPolicy") in (None, "None") and not deleted:
        where = f"{job.policy_path}.cleanPodPolicy"
        yield Hit(what="Workers that hang outlive the job", where=where, mend="set cleanPodPolicy: Running")


def _template(job: Workload) -> dict[str, object]:
    return dict(job.experiment.get("trialTemplate") or {})


@rule("note", "The operator gives Worker pods an init container that waits for the Master; it has an image too.")
def workers_need_an_init_image(job: Workload) -> Iterator[Hit]:
    if job.kind == "PyTorchJob" and any(pod.replica == "Worker" for pod in job.pods):
        mend = "on a cluster without internet, load the operator's --pytorch-init-container-image"
        where = f"{job.path}spec.pytorchReplicaSpecs.Worker"
        yield Hit(what="Workers start after an init container", where=where, mend=mend)


@rule("fail", "A pod without an image cannot start.")
def no_image(job: Workload) -> Iterator[Hit]:
    for _, container in job.containers():
        if not container.body.get("image"):
            yield Hit(what=f"container {container.name} has no image", where=f"{container.path}.image", mend="set it")


@rule("note", "A tag that moves gives other code tomorrow, and is pulled anew each time.")
def image_may_change(job: Workload) -> Iterator[Hit]:
    seen: set[str] = set()
    for _, container in job.containers():
        image = str(container.body.get("image") or "")
        tag = image.rpartition("/")[2].partition(":")[2]
        if image and image not in seen and "@" not in image and tag in ("", "latest"):
            seen.add(image)
            yield Hit(what=f"image {image} has no fixed tag", where=f"{container.path}.image", mend="name a version")


@rule("warn", "Whoever may read the manifest, the job or its pods reads the value.")
def secret_in_plain_text(job: Workload) -> Iterator[Hit]:
    for _, container in job.containers():
        for name, body in container.env.items():
            if _SECRET.search(name) and body.get("value"):
                mend = "put it into a Secret and use valueFrom.secretKeyRef"
                yield Hit(what=f"{name} is written into the manifest", where=f"{container.path}.env", mend=mend)


JOB_RULES: tuple[Rule[Workload], ...] = (
    no_image,
    fewer_processes_than_promised,
    launcher_disagrees,
    operator_variables_overwritten,
    no_master,
    restarts_without_end,
    workers_outlive_the_master,
    retries_before_failing,
    secret_in_plain_text,
    no_deadline,
    workers_need_an_init_image,
    image_may_change,
)

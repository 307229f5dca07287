"""Rules about the pod in which Katib collects: whether the collector gets there, sees the output and ever ends."""

import re
from collections.abc import Iterator

from podium.doctor.finding import Hit, Rule, rule
from podium.doctor.pods import Workload, items, mapping
from podium.manifests.labels import ISTIO_INJECT

_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")


@rule("fail", "Katib puts its collector into pods that bear all of primaryPodLabels, and nowhere else.")
def no_pod_is_primary(job: Workload) -> Iterator[Hit]:
    if job.trial is None or not job.pods or any(job.is_primary(pod) for pod in job.pods):
        return
    wanted = mapping(job.experiment.get("trialTemplate")).get("primaryPodLabels")
    if wanted and any(pod.replica in ("Master", "") for pod in job.pods):
        what = f"no pod bears {dict(mapping(wanted))}"
        mend = "leave primaryPodLabels out, or give the pods these labels"
        yield Hit(what=what, where="spec.trialTemplate.primaryPodLabels", mend=mend)


@rule("warn", "Each pod with a collector reports for the trial; values of several pods become one series.")
def several_pods_report(job: Workload) -> Iterator[Hit]:
    if job.trial is None:
        return
    reporting = [pod for pod in job.pods if job.is_primary(pod)]
    count = sum(pod.count for pod in reporting)
    if count > 1:
        mend = "set primaryPodLabels so that one pod bears them"
        yield Hit(what=f"{count} pods report metrics", where="spec.trialTemplate.primaryPodLabels", mend=mend)


@rule("warn", "Current Istio reads the pod label; its proxy never ends and keeps the trial's pod alive (katib#2527).")
def istio_annotation_alone(job: Workload) -> Iterator[Hit]:
    for pod in job.pods:
        if ISTIO_INJECT in pod.annotations and ISTIO_INJECT not in pod.labels:
            where = f"{pod.path}.metadata.annotations"
            mend = f'set the label {ISTIO_INJECT}: "false" beside it'
            yield Hit(what=f"{ISTIO_INJECT} is an annotation, not a label", where=where, mend=mend)


@rule("note", "Where Istio injects its proxy, the proxy never ends and keeps the trial's pod alive (katib#2527).")
def istio_not_switched_off(job: Workload) -> Iterator[Hit]:
    missing = [pod for pod in job.pods if ISTIO_INJECT not in pod.labels and ISTIO_INJECT not in pod.annotations]
    if job.trial is not None and missing:
        where = f"{missing[0].path}.metadata.labels"
        yield Hit(what=f"no label {ISTIO_INJECT}", where=where, mend=f'set the pod label {ISTIO_INJECT}: "false"')


@rule("warn", "The collector waits for every process of the pod; a second container that does not end holds the trial.")
def other_containers_hold_the_trial(job: Workload) -> Iterator[Hit]:
    for pod in job.pods:
        if job.trial is not None and job.is_primary(pod) and len(pod.containers) > 1:
            names = ", ".join(one.name for one in pod.containers)
            mend = "make it an init container, or set waitAllProcesses: false in katib-config"
            yield Hit(what=f"the pod has containers {names}", where=f"{pod.path}.spec.containers", mend=mend)


@rule("warn", "Katib's wrapper needs sh in the image.")
def image_without_shell(job: Workload) -> Iterator[Hit]:
    for _, container in job.wrapped():
        image = str(container.body.get("image") or "")
        if re.search(r"distroless|/static[:@-]|scratch", image):
            mend = "use an image with a shell, or the Push collector"
            yield Hit(what=f"{image} seems to have no shell", where=f"{container.path}.image", mend=mend)


@rule("warn", "Early stopping reads the output as it grows; Python keeps it back in blocks when it is no terminal.")
def buffered_while_stopping_early(job: Workload) -> Iterator[Hit]:
    if not job.experiment.get("earlyStopping") or job.kind == "PyTorchJob":  # the operator sets PYTHONUNBUFFERED
        return
    for _, container in job.wrapped():
        words = container.words
        python = bool(words) and _PYTHON.fullmatch(words[0])
        if python and "-u" not in words and "PYTHONUNBUFFERED" not in container.env:
            mend = "run python -u, set PYTHONUNBUFFERED=1, or print with flush=True"
            yield Hit(what="the output may come late", where=f"{container.path}.command", mend=mend)


@rule("warn", "A File collector reads the file only; the program must write it, stdout stays in the container's log.")
def nobody_writes_the_file(job: Workload) -> Iterator[Hit]:
    source = mapping(mapping(job.experiment.get("metricsCollectorSpec")).get("source"))
    path = str(mapping(source.get("fileSystemPath")).get("path") or "")
    if job.collector not in ("File", "TensorFlowEvent") or not path:
        return
    for _, container in job.wrapped():
        values = [str(one.get("value")) for one in container.env.values()]
        folder = path.rstrip("/").rpartition("/")[0]
        if not any(path.rstrip("/") in text or (folder and folder in text) for text in [*container.words, *values]):
            mend = "pass the path to the program, or make sure that it writes there by itself"
            yield Hit(what=f"{path} is not named by the command", where=container.path, mend=mend)


@rule("note", "Each trial's job is deleted when it has ended, and with it everything not stored elsewhere.")
def trials_share_a_place(job: Workload) -> Iterator[Hit]:
    template = mapping(job.experiment.get("trialTemplate"))
    references = [str(mapping(one).get("reference")) for one in items(template.get("trialParameters"))]
    if job.trial is None or any("trialSpec.Name" in one for one in references):
        return
    for _, container in job.wrapped():
        line = " ".join(container.words)
        kept = re.search(r"(--[\w-]*(?:output|model|save|checkpoint|export)[\w-]*)|\b(?:s3|minio|gs)://", line)
        if kept and "KATIB_TRIAL_NAME" not in line:
            what = f"`{kept[0]}` is the same for every trial: the last one overwrites the best one"
            mend = "add a trialParameter with reference ${trialSpec.Name} and put it into the path"
            yield Hit(what=what, where=container.path, mend=mend, level="warn")


TRIAL_RULES: tuple[Rule[Workload], ...] = (
    no_pod_is_primary,
    several_pods_report,
    istio_annotation_alone,
    other_containers_hold_the_trial,
    image_without_shell,
    buffered_while_stopping_early,
    nobody_writes_the_file,
    trials_share_a_place,
    istio_not_switched_off,
)

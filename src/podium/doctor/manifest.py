"""Examine YAML: Experiments, PyTorchJobs and Jobs, several to a file."""

from collections.abc import Mapping
from typing import Any

from podium.doctor.finding import Finding, Report, apply, worst_first
from podium.doctor.job_rules import JOB_RULES
from podium.doctor.pods import Workload, job_in, mapping, workload
from podium.doctor.shell import wrap
from podium.doctor.shell_rules import SHELL_RULES
from podium.doctor.sweep import Sweep
from podium.doctor.sweep_rules import NEVER_ON_KATIB, SWEEP_RULES
from podium.doctor.trial_rules import TRIAL_RULES
from podium.documents import load_yaml
from podium.errors import InvalidInput
from podium.manifests.admission import admit
from podium.manifests.experiment.checks import check, examine
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.rules import Finding as Broken
from podium.manifests.experiment.rules import Findings
from podium.manifests.experiment.schema import JOB_KINDS
from podium.manifests.experiment.shell import METRICS_FILE
from podium.manifests.experiment.space import read_space

KINDS = ("Experiment", "PyTorchJob", "Job")
_RULE = {
    "refused": ("refused-by-webhook", "fail", "Katib's webhook refuses the Experiment."),
    "stuck": (
        "accepted-but-stuck",
        "fail",
        "Katib accepts it and never ends, or ends without a trial; podium refuses it.",
    ),
    "unsupported": ("not-run-by-podium", "warn", "podium refuses it; whether it works on a cluster is not examined."),
    "warning": ("accepted-with-a-trap", "warn", "Katib accepts it."),
}
"""Rule, level and reason by the level of a manifest's finding."""


def documents(text: str, origin: str) -> list[dict[str, Any]]:
    """Read every object of a YAML file, or of a List.

    Raises:
        InvalidInput: It is no YAML, or holds something that is no object.
    """
    found = load_yaml(text, origin)
    for one in found:
        if not isinstance(one, dict):
            raise InvalidInput(f"`a manifest is an object` must hold, but {origin} holds {type(one).__name__}")
    return [item for one in found for item in (one.get("items") or [] if one.get("kind") == "List" else [one])]


def examine_manifest(manifest: Mapping[str, Any], origin: str) -> Report:
    """Examine one object.

    Args:
        manifest: As parsed.
        origin: The file it comes from.
    """
    kind = str(manifest.get("kind"))
    name = mapping(manifest.get("metadata")).get("name") or "without a name"
    subject = f"{origin}: {kind} {name}"
    if kind == "Experiment":
        findings, job = _experiment(manifest)
    elif kind in KINDS:
        findings, job = _job(manifest)
    else:
        return Report(subject=subject, kind=kind, findings=[not_examined(kind, "kind")], examined=False)
    return Report(subject=subject, kind=kind, findings=worst_first(findings), details={"commands": commands(job)})


def not_examined(what: str, where: str) -> Finding:
    """Say of what no rule knows anything.

    Args:
        what: A kind, or a description.
        where: The field.
    """
    why = f"The doctor has rules for {', '.join(KINDS)} only."
    return Finding(rule="not-examined", level="note", what=f"{what} was not examined", where=where, why=why)


def _job(manifest: Mapping[str, Any]) -> tuple[list[Finding], Workload]:
    job = workload(manifest)
    findings = apply(JOB_RULES, job)
    findings += apply((rule for rule in TRIAL_RULES if rule.name == "istio-annotation-alone"), job)
    return [*_refusals(manifest, findings), *findings], job


def _refusals(manifest: Mapping[str, Any], findings: list[Finding]) -> list[Finding]:
    """Return the refusals of the operator's webhook on fields that no rule has spoken about."""
    try:
        admit(dict(manifest))
    except InvalidInput as error:
        spoken = {finding.where for finding in findings}
        lines = [line.partition(": ") for line in error.message.splitlines()]
        why = "The operator's webhook or the API server refuses the job."
        return [
            Finding(rule="refused-by-operator", level="fail", what=law or field, where=field, why=why, mend=error.hint)
            for field, _, law in lines
            if field not in spoken
        ]
    return []


def _experiment(manifest: Mapping[str, Any]) -> tuple[list[Finding], Workload]:
    admitted, broken = examine(manifest)
    spec = mapping(admitted.get("spec"))
    template = mapping(spec.get("trialTemplate"))
    job = workload(mapping(template.get("trialSpec")), "spec.trialTemplate.trialSpec.", admitted)
    own: list[Finding] = []
    if not _is_misshapen(broken):
        space = read_space([one for one in spec.get("parameters") or [] if isinstance(one, Mapping)], Findings())
        own = apply(SWEEP_RULES, Sweep(given=manifest, admitted=admitted, space=space))
        if job.kind in JOB_KINDS and job.job.get("apiVersion") in (None, JOB_KINDS[job.kind]):
            own += apply((*SHELL_RULES, *TRIAL_RULES, *JOB_RULES), job)
            own += _trial_refusals(job, [*own, *map(_translate, broken)])
        elif job.job:
            own.append(not_examined(f"the trial's {job.kind}", "spec.trialTemplate.trialSpec.kind"))
        elif template.get("configMap"):
            own.append(not_examined("the trial's job, which is in a ConfigMap,", "spec.trialTemplate.configMap"))
    spoken = {finding.where for finding in own}
    theirs = [_translate(one) for one in broken if one.level != "warning" or one.field not in spoken]
    return [*theirs, *own], job


def check_for_katib(experiment: Experiment) -> Experiment:
    """Return an Experiment that Katib takes and ends; also where podium itself would run it.

    Raises:
        InvalidInput: With every reason.
    """
    check(experiment)
    admitted = {**experiment.manifest, "spec": experiment.spec}
    found = apply(NEVER_ON_KATIB, Sweep(given=experiment.manifest, admitted=admitted, space=experiment.space))
    if found:
        reasons = "\n".join(f"{one.where}: {one.what}. {one.why}" for one in found)
        raise InvalidInput(reasons, "; ".join(one.mend for one in found if one.mend))
    return experiment


def _is_misshapen(broken: list[Broken]) -> bool:
    """Tell whether types are wrong: nothing else can be said about such a manifest."""
    shapes = (" is an object`", " is a list`", " is text`", " is an integer`", " is a number`", " is true or false`")
    return any(shape in one.text for one in broken for shape in shapes)


def _trial_refusals(job: Workload, findings: list[Finding]) -> list[Finding]:
    """Admit one trial's job, named as Katib would name it."""
    name = str(mapping(mapping(job.trial).get("metadata")).get("name") or "experiment")[:40]
    metadata = {**mapping(job.job.get("metadata")), "name": f"{name}-{'x' * 8}"}
    spoken = [finding for finding in findings if finding.level == "fail"]
    if any(one.where == "metadata.name" for one in spoken):
        metadata["name"] = "trial"
    refused = _refusals({**job.job, "metadata": metadata}, [])
    known = {one.where for one in spoken} | {one.where.removeprefix(job.path) for one in spoken}
    container = any(one.where == "spec.trialTemplate.primaryContainerName" for one in spoken)
    return [
        Finding(**{**vars(one), "where": f"{job.path}{one.where}"})
        for one in refused
        if one.where not in known and not (container and one.where.endswith(".containers"))
    ]


def _translate(one: Broken) -> Finding:
    name, level, why = _RULE[one.level]
    return Finding(rule=name, level=level, what=one.sentence, where=one.field, why=why, mend=one.hint)


def commands(job: Workload) -> dict[str, tuple[str, str, str]]:
    """Return the command line of each wrapped container, as Katib makes it."""
    source = mapping(mapping(job.experiment.get("metricsCollectorSpec")).get("source"))
    path = str(mapping(source.get("fileSystemPath")).get("path") or METRICS_FILE)
    file = f"{path.rstrip('/')}/" if job.collector == "TensorFlowEvent" else path
    stdout, stops = job.collector == "StdOut", bool(job.experiment.get("earlyStopping"))
    return {
        f"{pod.replica or job.kind} of a trial": wrap(container.words, file=file, stdout=stdout, early_stopping=stops)
        for pod, container in job.wrapped()
        if container.body.get("command")
    }


def images_in(manifest: Mapping[str, Any]) -> list[str]:
    """Return the images that an object's pods need."""
    return [str(one.body["image"]) for _, one in job_in(manifest).containers() if one.body.get("image")]

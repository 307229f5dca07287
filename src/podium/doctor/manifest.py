"""Examine YAML: Experiments, PyTorchJobs, TrainJobs and Jobs, several to a file."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from podium.doctor.experiment_rules import EXPERIMENT_RULES, NEVER_ON_KATIB
from podium.doctor.job_rules import JOB_RULES, workers_outlive_the_master
from podium.doctor.report import Report
from podium.doctor.shell import wrap
from podium.doctor.shell_rules import SHELL_RULES
from podium.doctor.trainjob_rules import TRAINJOB_RULES
from podium.doctor.trial_rules import TRIAL_RULES, trainer_refuses
from podium.documents import load_yaml
from podium.errors import InvalidInput
from podium.manifests.admission import admit
from podium.manifests.experiment.checks import check, findings_of
from podium.manifests.experiment.config_maps import is_config_map, with_template
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.shell import METRICS_FILE
from podium.manifests.kinds import JOB_KINDS
from podium.manifests.resource import Resource
from podium.manifests.rules import BrokenRules, Finding, apply, worst_first
from podium.manifests.workload import Workload

KINDS = ("Experiment", *JOB_KINDS)
_ALL_JOB_RULES = (*JOB_RULES, *TRAINJOB_RULES)


def documents(text: str, origin: str) -> list[dict[str, Any]]:
    """Read every object of a YAML file, or of a List.

    Raises:
        InvalidInput: It is not YAML, or holds something that is not an object.
    """
    objects = load_yaml(text, origin)
    for manifest in objects:
        if not isinstance(manifest, dict):
            raise InvalidInput(f"a manifest is an object, but {origin} holds {type(manifest).__name__}")
    return [
        item
        for manifest in objects
        for item in (manifest.get("items") or [] if manifest.get("kind") == "List" else [manifest])
    ]


def with_templates(manifests: list[dict[str, Any]], origin: str) -> list[dict[str, Any]]:
    """Put trial templates of the ConfigMaps among a file's objects into its Experiments; leave those ConfigMaps out.

    Raises:
        InvalidInput: A template is not one object.
    """
    config_maps = [manifest for manifest in manifests if is_config_map(manifest)]
    filled = [with_template(manifest, config_maps, origin) for manifest in manifests]
    if filled == manifests:
        return manifests
    return [manifest for manifest in filled if not is_config_map(manifest)]


def examine_manifest(manifest: Mapping[str, Any], origin: str) -> Report:
    """Examine one object.

    Args:
        origin: The file it comes from.
    """
    kind = str(manifest.get("kind"))
    subject = f"{origin}: {kind} {Resource.parse(manifest).expected_name or 'without a name'}"
    if kind not in KINDS:
        return Report(subject=subject, kind=kind, findings=[not_examined(kind, "kind")], examined=False)
    lines: dict[str, tuple[str, str, str]] = {}
    if kind == "Experiment":
        try:
            experiment = Experiment.parse(manifest)
            findings, lines = _examine_experiment(experiment), commands(experiment)
        except BrokenRules as error:  # fields of wrong types: nothing else can be said about them
            findings = list(error.findings)
    else:
        findings = apply(_ALL_JOB_RULES, Workload.parse(manifest))
        findings = [*_refusals(manifest, {finding.where for finding in findings}), *findings]
    return Report(subject=subject, kind=kind, findings=worst_first(findings), details={"commands": lines})


def not_examined(what: str, where: str) -> Finding:
    """Return the note on what no rule knows anything about.

    Args:
        what: A kind, or a description.
    """
    why = f"The doctor has rules for {', '.join(KINDS)} only."
    return Finding(rule="not-examined", level="note", what=f"{what} was not examined", where=where, why=why)


def check_for_katib(experiment: Experiment) -> Experiment:
    """Return an Experiment that Katib accepts and ends, and whose trials can begin; also where podium itself runs it.

    Raises:
        BrokenRules: With every reason.
    """
    check(experiment)
    if findings := apply((*NEVER_ON_KATIB, trainer_refuses), experiment):
        raise BrokenRules(replace(finding, what=f"{finding.what}. {finding.why}") for finding in findings)
    return experiment


def commands(experiment: Experiment) -> dict[str, tuple[str, str, str]]:
    """Return the command line of each wrapped container, as Katib makes it."""
    collector, kind = experiment.collector, experiment.template.workload.kind
    path = collector.path or METRICS_FILE
    file = f"{path.rstrip('/')}/" if collector.kind == "TensorFlowEvent" else path
    stdout, stops = collector.kind == "StdOut", experiment.early_stopping is not None
    return {
        f"{replica.role or kind} of a trial": wrap(container.words, file=file, stdout=stdout, early_stopping=stops)
        for replica, container in experiment.wrapped_containers()
        if container.command
    }


def _examine_experiment(experiment: Experiment) -> list[Finding]:
    broken = findings_of(experiment)
    own = apply(EXPERIMENT_RULES, experiment)
    template = experiment.template
    job = template.workload
    if job.kind in JOB_KINDS and job.api_version in ("", JOB_KINDS[job.kind]):
        # A trial's job is deleted with its Workers unless it is retained.
        rules = [rule for rule in _ALL_JOB_RULES if template.retain or rule is not workers_outlive_the_master]
        own += [*apply((*SHELL_RULES, *TRIAL_RULES), experiment), *apply(rules, job)]
        own += _trial_refusals(experiment, [*own, *broken])
    elif job.manifest:
        own.append(not_examined(f"the trial's {job.kind}", "spec.trialTemplate.trialSpec.kind"))
    elif template.in_config_map:
        own.append(not_examined("the trial's job, which is in a ConfigMap,", "spec.trialTemplate.configMap"))
    known = {finding.where for finding in own}
    return [*(finding for finding in broken if finding.level != "warn" or finding.where not in known), *own]


def _trial_refusals(experiment: Experiment, findings: Iterable[Finding]) -> list[Finding]:
    """Admit one trial's job, named as Katib would name it; leave out fields that other findings are about."""
    job = experiment.template.workload
    failed = {finding.where for finding in findings if finding.shown == "fail"}
    name = "trial" if "metadata.name" in failed else f"{experiment.expected_name[:40] or 'experiment'}-{'x' * 8}"
    refused = _refusals({**job.manifest, "metadata": {**job.metadata, "name": name}}, failed)
    placed = (replace(finding, where=f"{job.path}{finding.where}") for finding in refused)
    misnamed = "spec.trialTemplate.primaryContainerName" in failed
    return [
        finding
        for finding in placed
        if finding.where not in failed and not (misnamed and finding.where.endswith(".containers"))
    ]


def _refusals(manifest: Mapping[str, Any], known: Iterable[str]) -> list[Finding]:
    """Return the refusals of the operator's webhook on fields that no finding is about."""
    try:
        admit(manifest)
    except BrokenRules as error:
        return [finding for finding in error.findings if finding.where not in known]
    return []

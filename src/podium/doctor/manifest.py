"""Examine YAML: Experiments, PyTorchJobs, TrainJobs and Jobs, several to a file."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from podium.doctor.report import Report
from podium.errors import InvalidInput
from podium.manifests.admission import refusals
from podium.manifests.experiment.experiment import Experiment, TrialTemplate
from podium.manifests.experiment.rules import examine
from podium.manifests.experiment.source import is_config_map, objects_of, with_template
from podium.manifests.fields import ManifestView
from podium.manifests.job_rules import JOB_RULES, RUNTIME_RULES, RUNTIMES, UNKNOWN_FIELDS
from podium.manifests.kinds import JOB_KINDS
from podium.manifests.resource import Resource
from podium.manifests.rules import BrokenRules, Finding, apply, worst_first
from podium.manifests.workload import Workload

KINDS = ("Experiment", *JOB_KINDS)


def documents(text: str, origin: str) -> list[dict[str, Any]]:
    """Read every object of a YAML file, or of a List.

    Raises:
        InvalidInput: It is not YAML, or holds something that is not an object.
    """
    found = objects_of(text, origin)
    for item in found:
        if not isinstance(item, dict):
            raise InvalidInput(f"a manifest is an object, but {origin} holds {type(item).__name__}")
    return found


def with_templates(manifests: list[dict[str, Any]], origin: str) -> list[dict[str, Any]]:
    """Put trial templates of the ConfigMaps among a file's objects into its Experiments; leave
    those ConfigMaps out.

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
    kind = str(manifest.get("kind") or "object of no kind")
    subject = f"{origin}: {kind} {Resource.parse(manifest).expected_name or 'without a name'}"
    if kind in RUNTIMES:
        found = [*apply(RUNTIME_RULES, ManifestView.parse(manifest))]
        return Report(
            subject=subject,
            kind=kind,
            findings=[*found, _not_examined(f"the rest of the {kind}", "spec")],
            examined=False,
        )
    if kind not in KINDS:
        return Report(
            subject=subject, kind=kind, findings=[_not_examined(kind, "kind")], examined=False
        )
    if kind != "Experiment":
        job = Workload.parse(manifest)
        found = [*refusals(job.manifest), *apply(JOB_RULES, job), *apply(UNKNOWN_FIELDS, job)]
        findings = worst_first(found)
        return Report(subject=subject, kind=kind, findings=findings, details={"commands": {}})
    findings = examine(manifest)
    lines: dict[str, tuple[str, str, str]] = {}
    with suppress(BrokenRules):  # fields of wrong types: the findings say so
        experiment = Experiment.parse(manifest)
        findings = [
            *worst_first([*findings, *apply(UNKNOWN_FIELDS, experiment.template.workload)]),
            *_not_examined_trial(experiment.template),
        ]
        lines = _commands(experiment)
    return Report(subject=subject, kind=kind, findings=findings, details={"commands": lines})


def _not_examined_trial(template: TrialTemplate) -> list[Finding]:
    if template.workload.manifest and not template.is_supported:
        return [
            _not_examined(
                f"the trial's {template.workload.kind}", "spec.trialTemplate.trialSpec.kind"
            )
        ]
    if template.in_config_map and not template.workload.manifest:
        return [
            _not_examined(
                "the trial's job, which is in a ConfigMap,", "spec.trialTemplate.configMap"
            )
        ]
    return []


def _not_examined(subject: str, where: str) -> Finding:
    why = f"The doctor has rules for {', '.join(KINDS)} only."
    return Finding(
        rule="not-examined", level="note", what=f"{subject} was not examined", where=where, why=why
    )


def _commands(experiment: Experiment) -> dict[str, tuple[str, str, str]]:
    kind, stops = experiment.template.workload.kind, experiment.early_stopping is not None
    return {
        f"{replica.role or kind} of a trial": experiment.collector.wrap(
            container.words, early_stopping=stops
        )
        for replica, container in experiment.wrapped_containers()
        if container.command
    }

"""What Katib's webhooks do with an Experiment: fill in defaults, refuse what breaks a rule.

Sources: katib 0.19, pkg/apis/controller/experiments/v1beta1/experiment_defaults.go and
pkg/webhook/v1beta1/experiment/validator; checked against answers of a real Katib in tests/golden/katib.
"""

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from podium.errors import InvalidInput
from podium.manifests.experiment.collector import check_collector
from podium.manifests.experiment.defaults import set_defaults
from podium.manifests.experiment.hints import OBJECTIVE, SPACE, TEMPLATE, nearest
from podium.manifests.experiment.rules import Findings, check_structure, raise_for
from podium.manifests.experiment.schema import EXPERIMENT
from podium.manifests.experiment.template import PLACEHOLDER, fill, meta_key

ALGORITHMS = (
    "random", "grid", "tpe", "multivariate-tpe", "cmaes", "sobol", "bayesianoptimization", "hyperband", "pbt",
    "enas", "darts",
)  # fmt: skip
"""Algorithms that Katib's default configuration knows."""

OURS = ("asha",)
"""Algorithms that only podium knows."""

_RFC1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def admit(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest with Katib's defaults filled in.

    Raises:
        InvalidInput: Katib's webhook would refuse it; every broken rule is named.
    """
    admitted, findings = review(manifest)
    raise_for(findings)
    return admitted


def check_shape(manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest in which some field is of another type than an Experiment's; what is missing passes.

    Raises:
        InvalidInput: Every such field is named.
    """
    findings = Findings()
    check_structure(manifest, EXPERIMENT, "", findings)
    raise_for(findings)


def review(manifest: Mapping[str, Any]) -> tuple[dict[str, Any], Findings]:
    """Fill in defaults and collect every rule of the webhook that the manifest breaks."""
    findings = Findings()
    if not isinstance(manifest, Mapping):
        raise InvalidInput(f"`an Experiment is an object` must hold, but got {type(manifest).__name__}")
    api = (manifest.get("apiVersion"), manifest.get("kind"))
    expected = ("kubeflow.org/v1beta1", "Experiment")
    hint = "write apiVersion: kubeflow.org/v1beta1 and kind: Experiment"
    law = "apiVersion and kind are kubeflow.org/v1beta1 Experiment"
    findings.require(api == expected, "kind", law, api, hint)
    check_structure(manifest, EXPERIMENT, "", findings)
    if findings:
        return dict(manifest), findings
    admitted = copy.deepcopy(dict(manifest))
    admitted["metadata"] = admitted.get("metadata") or {}
    spec = admitted["spec"] = admitted.get("spec") or {}
    set_defaults(spec)
    _check_name(admitted["metadata"].get("name"), findings)
    _check_counts(spec, findings)
    if _check_objective(spec.get("objective"), findings):
        _check_algorithms(spec, findings)
        _check_template(spec, findings)
        _check_parameters(spec, findings)
        check_collector(spec["metricsCollectorSpec"], findings)
    return admitted, findings


def _check_name(name: str | None, findings: Findings) -> None:
    hint = "lower case letters, digits and '-', beginning with a letter, at most 40 characters"
    law = "a name is lower case, begins with a letter and has at most 40 characters"
    fits = bool(name) and _RFC1123.fullmatch(name or "") is not None and (name or "")[0].isalpha()
    findings.require(fits and len(name or "") <= 40, "metadata.name", law, name, hint)


def _check_counts(spec: Mapping[str, Any], findings: Findings) -> None:
    most, failed, parallel = spec.get("maxTrialCount"), spec.get("maxFailedTrialCount"), spec["parallelTrialCount"]
    hint = "give a positive number, or leave it out"
    findings.require(
        failed is None or failed >= 0, "spec.maxFailedTrialCount", "maxFailedTrialCount >= 0", failed, hint
    )
    findings.require(most is None or most > 0, "spec.maxTrialCount", "maxTrialCount > 0", most, hint)
    findings.require(parallel > 0, "spec.parallelTrialCount", "parallelTrialCount > 0", parallel, hint)
    if most is not None:
        law, given = "maxFailedTrialCount <= maxTrialCount", f"{failed} > {most}"
        hint = "raise maxTrialCount, or lower the other"
        findings.require(failed is None or failed <= most, "spec.maxFailedTrialCount", law, given, hint)
        law, given = "parallelTrialCount <= maxTrialCount", f"{parallel} > {most}"
        findings.require(parallel <= most, "spec.parallelTrialCount", law, given, hint)


def _check_objective(objective: Mapping[str, Any] | None, findings: Findings) -> bool:
    path = "spec.objective"
    if not findings.require(objective is not None, path, "there is an objective", None, OBJECTIVE) or objective is None:
        return False
    before = len(findings)
    kind, name = objective.get("type"), objective.get("objectiveMetricName")
    findings.require(kind in ("minimize", "maximize"), f"{path}.type", "type is minimize or maximize", kind, OBJECTIVE)
    findings.require(bool(name), f"{path}.objectiveMetricName", "the objective has a name", name, OBJECTIVE)
    more = objective.get("additionalMetricNames") or []
    law = "the objective is not among the additional metrics"
    findings.require(name not in more, f"{path}.additionalMetricNames", law, more, f"remove {name} there")
    return len(findings) == before


def _check_algorithms(spec: Mapping[str, Any], findings: Findings) -> None:
    name = (spec.get("algorithm") or {}).get("algorithmName")
    known = (*ALGORITHMS, *OURS)
    law = f"algorithmName is one of {', '.join(known)}"
    findings.require(name in known, "spec.algorithm.algorithmName", law, name, nearest(name, known))
    if spec.get("earlyStopping") is not None:
        name = spec["earlyStopping"].get("algorithmName")
        where, hint = "spec.earlyStopping.algorithmName", "write medianstop, or remove earlyStopping"
        findings.require(name == "medianstop", where, "algorithmName is medianstop", name, hint)
    policy = spec["resumePolicy"]
    law, policies = "resumePolicy is Never, LongRunning or FromVolume", ("Never", "LongRunning", "FromVolume")
    findings.require(policy in policies, "spec.resumePolicy", law, policy, nearest(policy, policies))


def _check_template(spec: Mapping[str, Any], findings: Findings) -> None:
    path, template = "spec.trialTemplate", spec.get("trialTemplate")
    if not findings.require(template is not None, path, "there is a trialTemplate", None, TEMPLATE) or template is None:
        return
    name = template.get("primaryContainerName")
    findings.require(bool(name), f"{path}.primaryContainerName", "primaryContainerName is set", name, TEMPLATE)
    given = template.get("trialParameters")
    if not findings.require(bool(given), f"{path}.trialParameters", "there are trialParameters", given, TEMPLATE):
        return
    trial, config_map = template.get("trialSpec"), template.get("configMap")
    law = "there is either a trialSpec or a configMap"
    if (
        not findings.require((trial is None) != (config_map is None), path, law, (trial, config_map), TEMPLATE)
        or trial is None
    ):
        return
    for field in ("kind", "apiVersion"):
        findings.require(
            bool(trial.get(field)), f"{path}.trialSpec.{field}", f"a trialSpec has {field}", trial.get(field), TEMPLATE
        )
    both = template.get("successCondition") and template.get("failureCondition")
    hint = "a kind that Katib does not know needs both"
    findings.require(bool(both), path, "successCondition and failureCondition are set", trial.get("kind"), hint)
    metadata = trial.get("metadata") or {}
    fixed = {field: metadata[field] for field in ("name", "namespace") if metadata.get(field)}
    hint = "remove them: each trial gets a name of its own"
    findings.require(not fixed, f"{path}.trialSpec.metadata", "name and namespace are left out", fixed, hint)
    _check_placeholders(spec, template, findings)


def _check_placeholders(spec: Mapping[str, Any], template: Mapping[str, Any], findings: Findings) -> None:
    path, searched = "spec.trialTemplate.trialParameters", {p.get("name") for p in spec.get("parameters") or []}
    used = PLACEHOLDER.findall(json.dumps(template["trialSpec"], ensure_ascii=False, default=str))
    names: set[str] = set()
    references: set[str] = set()
    for place, parameter in enumerate(template["trialParameters"]):
        name, reference = parameter.get("name") or "", parameter.get("reference") or ""
        where = f"{path}[{place}]"
        law = "a trialParameter has a name without braces and a reference"
        fits = bool(name and reference) and not set(name) & set("{}")
        if not findings.require(fits, where, law, parameter, TEMPLATE):
            continue
        findings.require(name not in names, f"{where}.name", "names are unique", name, "remove one or rename it")
        law = "references are unique"
        findings.require(reference not in references, f"{where}.reference", law, reference, "remove one of the two")
        names.add(name)
        references.add(reference)
        if searched:
            law = f"a reference is a search parameter ({', '.join(map(str, searched))}) or ${{trialSpec.…}}"
            findings.require(
                reference in searched or meta_key(reference) is not None,
                f"{where}.reference",
                law,
                reference,
                nearest(reference, searched),
            )
        law = f"the trialSpec uses ${{trialParameters.{name}}}"
        findings.require(name in used, f"{where}.name", law, name, "use it or remove the trialParameter")
    unknown = sorted(set(used) - names)
    law, hint = "each placeholder is a trialParameter", "add it to spec.trialTemplate.trialParameters"
    findings.require(not unknown, "spec.trialTemplate.trialSpec", law, unknown, hint)
    if not unknown:
        try:
            fill(template["trialSpec"], dict.fromkeys(names, "test-value"))
        except InvalidInput as error:
            findings.require(False, "spec.trialTemplate.trialSpec", "the template stays readable", error.message)


def _check_parameters(spec: Mapping[str, Any], findings: Findings) -> None:
    parameters, nas = spec.get("parameters") or [], spec.get("nasConfig")
    law = "there are either parameters or a nasConfig"
    findings.require(bool(parameters) != (nas is not None), "spec.parameters", law, (parameters, nas), SPACE)
    for place, parameter in enumerate(parameters):
        path, kind = f"spec.parameters[{place}]", parameter.get("parameterType")
        space = parameter["feasibleSpace"]
        law = "parameterType is double, int, discrete or categorical"
        types = ("double", "int", "discrete", "categorical")
        findings.require(kind in types, f"{path}.parameterType", law, kind, nearest(kind, types))
        law, shape = "distribution is uniform, logUniform, normal or logNormal", space.get("distribution")
        shapes = ("uniform", "logUniform", "normal", "logNormal")
        where, hint = f"{path}.feasibleSpace.distribution", nearest(shape, shapes)
        findings.require(shape in shapes, where, law, shape, hint)
        if kind in ("double", "int"):
            law, listed = f"{kind} has min and max, no list", space.get("list")
            findings.require(not listed, f"{path}.feasibleSpace.list", law, listed, "remove the list")
            ends = {end: space.get(end) for end in ("min", "max") if not space.get(end)}
            findings.require(not ends, f"{path}.feasibleSpace", law, ends, 'as text: min: "0.1"')
        elif kind in ("discrete", "categorical"):
            ends = {end: space[end] for end in ("min", "max", "step") if space.get(end)}
            law, hint = f"{kind} has a list, no min, max or step", "remove them, or choose double or int"
            findings.require(not ends, f"{path}.feasibleSpace", law, ends, hint)

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
from podium.manifests.experiment.defaults import set_defaults
from podium.manifests.experiment.rules import Findings, check_structure, raise_for
from podium.manifests.experiment.schema import EXPERIMENT
from podium.manifests.experiment.template import PLACEHOLDER, fill, meta_key
from podium.metrics import compile_format

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
    findings.require(api == expected, "kind", "apiVersion and kind are kubeflow.org/v1beta1 Experiment", api)
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
        _check_collector(spec["metricsCollectorSpec"], findings)
    return admitted, findings


def _check_name(name: str | None, findings: Findings) -> None:
    hint = "lower case letters, digits and '-', beginning with a letter, at most 40 characters"
    law = "a name is lower case, begins with a letter and has at most 40 characters"
    fits = bool(name) and _RFC1123.fullmatch(name or "") is not None and (name or "")[0].isalpha()
    findings.require(fits and len(name or "") <= 40, "metadata.name", law, name, hint)


def _check_counts(spec: Mapping[str, Any], findings: Findings) -> None:
    most, failed, parallel = spec.get("maxTrialCount"), spec.get("maxFailedTrialCount"), spec["parallelTrialCount"]
    findings.require(failed is None or failed >= 0, "spec.maxFailedTrialCount", "maxFailedTrialCount >= 0", failed)
    findings.require(most is None or most > 0, "spec.maxTrialCount", "maxTrialCount > 0", most)
    findings.require(parallel > 0, "spec.parallelTrialCount", "parallelTrialCount > 0", parallel)
    if most is not None:
        law, given = "maxFailedTrialCount <= maxTrialCount", f"{failed} > {most}"
        findings.require(failed is None or failed <= most, "spec.maxFailedTrialCount", law, given)
        law, given = "parallelTrialCount <= maxTrialCount", f"{parallel} > {most}"
        findings.require(parallel <= most, "spec.parallelTrialCount", law, given)


def _check_objective(objective: Mapping[str, Any] | None, findings: Findings) -> bool:
    path = "spec.objective"
    if not findings.require(objective is not None, path, "there is an objective", None) or objective is None:
        return False
    before = len(findings)
    kind, name = objective.get("type"), objective.get("objectiveMetricName")
    findings.require(kind in ("minimize", "maximize"), f"{path}.type", "type is minimize or maximize", kind)
    findings.require(bool(name), f"{path}.objectiveMetricName", "the objective has a name", name)
    more = objective.get("additionalMetricNames") or []
    law = "the objective is not among the additional metrics"
    findings.require(name not in more, f"{path}.additionalMetricNames", law, more)
    return len(findings) == before


def _check_algorithms(spec: Mapping[str, Any], findings: Findings) -> None:
    name = (spec.get("algorithm") or {}).get("algorithmName")
    known = (*ALGORITHMS, *OURS)
    law = f"algorithmName is one of {', '.join(known)}"
    findings.require(name in known, "spec.algorithm.algorithmName", law, name)
    if spec.get("earlyStopping") is not None:
        name = spec["earlyStopping"].get("algorithmName")
        findings.require(name == "medianstop", "spec.earlyStopping.algorithmName", "algorithmName is medianstop", name)
    policy = spec["resumePolicy"]
    law = "resumePolicy is Never, LongRunning or FromVolume"
    findings.require(policy in ("Never", "LongRunning", "FromVolume"), "spec.resumePolicy", law, policy)


def _check_template(spec: Mapping[str, Any], findings: Findings) -> None:
    path, template = "spec.trialTemplate", spec.get("trialTemplate")
    if not findings.require(template is not None, path, "there is a trialTemplate", None) or template is None:
        return
    name = template.get("primaryContainerName")
    findings.require(bool(name), f"{path}.primaryContainerName", "primaryContainerName is set", name)
    given = template.get("trialParameters")
    if not findings.require(bool(given), f"{path}.trialParameters", "there are trialParameters", given):
        return
    trial, config_map = template.get("trialSpec"), template.get("configMap")
    law = "there is either a trialSpec or a configMap"
    if not findings.require((trial is None) != (config_map is None), path, law, (trial, config_map)) or trial is None:
        return
    for field in ("kind", "apiVersion"):
        findings.require(
            bool(trial.get(field)), f"{path}.trialSpec.{field}", f"a trialSpec has {field}", trial.get(field)
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
        if not findings.require(bool(name and reference) and not set(name) & set("{}"), where, law, parameter):
            continue
        findings.require(name not in names, f"{where}.name", "names are unique", name)
        findings.require(reference not in references, f"{where}.reference", "references are unique", reference)
        names.add(name)
        references.add(reference)
        if searched:
            law = f"a reference is a search parameter ({', '.join(map(str, searched))}) or ${{trialSpec.…}}"
            findings.require(
                reference in searched or meta_key(reference) is not None, f"{where}.reference", law, reference
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
    findings.require(bool(parameters) != (nas is not None), "spec.parameters", law, (parameters, nas))
    for place, parameter in enumerate(parameters):
        path, kind = f"spec.parameters[{place}]", parameter.get("parameterType")
        space = parameter["feasibleSpace"]
        law = "parameterType is double, int, discrete or categorical"
        findings.require(kind in ("double", "int", "discrete", "categorical"), f"{path}.parameterType", law, kind)
        law, shape = "distribution is uniform, logUniform, normal or logNormal", space.get("distribution")
        known = shape in ("uniform", "logUniform", "normal", "logNormal")
        findings.require(known, f"{path}.feasibleSpace.distribution", law, shape)
        if kind in ("double", "int"):
            law, listed = f"{kind} has min and max, no list", space.get("list")
            findings.require(not listed, f"{path}.feasibleSpace.list", law, listed)
            ends = {end: space.get(end) for end in ("min", "max") if not space.get(end)}
            findings.require(not ends, f"{path}.feasibleSpace", law, ends, 'as text: min: "0.1"')
        elif kind in ("discrete", "categorical"):
            ends = {end: space[end] for end in ("min", "max", "step") if space.get(end)}
            findings.require(not ends, f"{path}.feasibleSpace", f"{kind} has a list, no min, max or step", ends)


def _check_collector(collecting: Mapping[str, Any], findings: Findings) -> None:
    path, kind = "spec.metricsCollectorSpec", collecting["collector"].get("kind")
    known = ("StdOut", "File", "TensorFlowEvent", "PrometheusMetric", "Custom", "Push")
    law = f"a collector is one of {', '.join(known)}"
    findings.require(kind in known, f"{path}.collector.kind", law, kind)
    source = collecting.get("source") or {}
    where, place = f"{path}.source.fileSystemPath", source.get("fileSystemPath") or {}
    if kind in ("File", "TensorFlowEvent"):
        law = "an absolute path" + (" of a File" if kind == "File" else " of a Directory")
        wanted = "File" if kind == "File" else "Directory"
        fits = place.get("kind") == wanted and str(place.get("path")).startswith("/")
        findings.require(fits, where, law, place)
    if kind == "File":
        law = "format is TEXT or JSON"
        findings.require(place.get("format") in ("TEXT", "JSON"), f"{where}.format", law, place.get("format"))
        filtered = place.get("format") == "JSON" and source.get("filter") is not None
        findings.require(not filtered, f"{path}.source.filter", "JSON needs no filter", source.get("filter"))
    if kind == "TensorFlowEvent":
        findings.require(not place.get("format"), f"{where}.format", "format is left out", place.get("format"))
    if kind == "Custom":
        given = collecting["collector"].get("customCollector")
        findings.require(given is not None, f"{path}.collector.customCollector", "there is a customCollector", given)
    if kind not in ("StdOut", "Push"):  # there the webhook looks no further: see checks.py
        for pattern in (source.get("filter") or {}).get("metricsFormat") or []:
            try:
                compile_format(pattern)
            except InvalidInput as error:
                findings.require(False, f"{path}.source.filter", "a Go pattern with two groups", pattern, error.message)

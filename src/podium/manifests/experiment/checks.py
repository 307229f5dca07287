"""What Katib admits and then waits on for ever: refused here, each with the mend.

Observed on a real Katib 0.19: an unused search parameter, a quote in a value, a grid smaller than maxTrialCount, words
for numbers and more leave an Experiment in Created or Running for good (docs/katib-differences.md).
"""

from collections.abc import Mapping
from typing import Any

from podium.errors import InvalidInput
from podium.manifests.experiment.admission import review
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.expression import parse_condition
from podium.manifests.experiment.hints import PODS, nearest
from podium.manifests.experiment.rules import Finding, Findings, raise_for, shorten
from podium.manifests.experiment.schema import JOB_KINDS
from podium.manifests.experiment.settings import check_search, read_settings
from podium.manifests.experiment.space import read_space
from podium.manifests.experiment.template import fill, meta_key, meta_value
from podium.manifests.experiment.unknown import warn_of_unknown
from podium.manifests.workload import Workload
from podium.metrics import compile_format
from podium.search.space import Parameter, first_values


def check(experiment: Experiment) -> Experiment:
    """Return an Experiment that can run to its end.

    Raises:
        InvalidInput: Katib would refuse it, or take it and never end; every broken rule is named.
    """
    raise_for(examine(experiment.manifest)[1])
    return experiment


def examine(manifest: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Return the manifest with defaults and all findings: refusals, what would be stuck, warnings."""
    admitted, findings = review(manifest)
    if findings:
        return admitted, findings
    spec = admitted["spec"]
    _check_support(spec, findings)
    if findings:
        return admitted, findings
    space = read_space(spec["parameters"], findings)
    _check_objective(spec["objective"], findings)
    settings = read_settings(spec["algorithm"], "spec.algorithm", findings)
    if spec.get("earlyStopping"):
        read_settings(spec["earlyStopping"], "spec.earlyStopping", findings)
    _check_template(admitted, space, findings)
    _check_collector(spec["metricsCollectorSpec"], findings)
    if not findings:
        check_search(spec["algorithm"]["algorithmName"], settings, space, spec, findings)
    _warn(Experiment.parse(manifest), spec, findings)
    warn_of_unknown(manifest["spec"], findings)
    return admitted, findings


def _check_support(spec: Mapping[str, Any], findings: Findings) -> None:
    """Note what makes an Experiment another kind of thing than podium's sweeps; nothing else is checked of it then."""
    if spec.get("nasConfig") is not None:
        runs = "podium searches over spec.parameters"
        findings.unsupported("spec.nasConfig", runs, "over neural network architectures")
    template = spec["trialTemplate"]
    if template.get("trialSpec") is None:
        runs, given = "podium reads the trial's job from spec.trialTemplate.trialSpec", "from a ConfigMap"
        findings.unsupported("spec.trialTemplate.configMap", runs, given)


def _check_objective(objective: Mapping[str, Any], findings: Findings) -> None:
    metrics = [objective["objectiveMetricName"], *(objective.get("additionalMetricNames") or [])]
    for place, strategy in enumerate(objective["metricStrategies"]):
        path = f"spec.objective.metricStrategies[{place}]"
        name, value = strategy.get("name"), strategy.get("value")
        findings.require(
            name in metrics,
            f"{path}.name",
            f"a metric is one of {', '.join(metrics)}",
            name,
            nearest(name, metrics),
            "stuck",
        )
        known = ("min", "max", "latest")
        hint = nearest(value, known)
        findings.require(value in known, f"{path}.value", "a strategy is min, max or latest", value, hint, "stuck")


def _check_template(experiment: Mapping[str, Any], space: list[Parameter], findings: Findings) -> None:
    spec, path = experiment["spec"], "spec.trialTemplate"
    template = spec["trialTemplate"]
    trial = template["trialSpec"]
    if JOB_KINDS.get(trial["kind"]) != trial["apiVersion"]:
        kinds = " or ".join(f"{kind} ({version})" for kind, version in JOB_KINDS.items())
        given = f"{trial['kind']} ({trial['apiVersion']})"
        findings.unsupported(f"{path}.trialSpec.kind", f"podium runs trials of kind {kinds}", given)
        return
    for field in ("successCondition", "failureCondition"):
        try:
            parse_condition(template[field])
        except InvalidInput:
            runs = 'podium understands conditions of field names and #(field=="text") queries'
            findings.unsupported(f"{path}.{field}", runs, shorten(template[field]))
    _check_pods(template, trial, findings)
    referenced = {parameter["reference"] for parameter in template["trialParameters"]}
    unused = [parameter.name for parameter in space if parameter.name not in referenced]
    hint = "refer to it in trialParameters, or remove it"
    findings.require(not unused, "spec.parameters", "each search parameter has a trialParameter", unused, hint, "stuck")
    for place, given in enumerate(template["trialParameters"]):
        key = meta_key(given["reference"])
        where = f"{path}.trialParameters[{place}].reference"
        law, known = (
            "the trialSpec has this label or annotation",
            not key or meta_value(key, trial, "n", "n") is not None,
        )
        hint = "give it to trialSpec.metadata"
        findings.require(known, where, law, given["reference"], hint, "stuck")
    _check_values(template, space, findings)
    if trial["kind"] == "PyTorchJob":
        name = experiment["metadata"]["name"]
        findings.require("." not in name, "metadata.name", "the name has no dot", name, "pods need DNS labels", "stuck")


def _check_pods(template: Mapping[str, Any], trial: Mapping[str, Any], findings: Findings) -> None:
    path, name = "spec.trialTemplate.primaryContainerName", template["primaryContainerName"]
    replicas = Workload.parse(trial).replicas
    complete = bool(replicas) and all(isinstance(replica.pod.manifest.get("spec"), Mapping) for replica in replicas)
    law = "the job has a pod template" if trial["kind"] == "Job" else "every replica has a pod template"
    findings.require(complete, "spec.trialTemplate.trialSpec", law, trial.get("spec"), PODS, "stuck")
    for replica in replicas if complete else ():
        names = [container.name for container in replica.pod.containers]
        law = f"every pod{f' ({replica.role})' if replica.role else ''} has a container {name!r}"
        hint = f"call the container that trains {name}, or change primaryContainerName"
        findings.require(name in names, path, law, names, hint, "stuck")
    if trial["kind"] == "PyTorchJob":
        law, hint = "a PyTorchJob's container is called pytorch", "set primaryContainerName and the containers' names"
        findings.require(name == "pytorch", path, law, name, hint, "stuck")


def _check_values(template: Mapping[str, Any], space: list[Parameter], findings: Findings) -> None:
    by_reference = {given["reference"]: given["name"] for given in template["trialParameters"]}
    for place, parameter in enumerate(space):
        for value in first_values(parameter):
            try:
                fill(template["trialSpec"], {by_reference.get(parameter.name, ""): value})
            except InvalidInput as error:
                where = f"spec.parameters[{place}].feasibleSpace.list"
                law = "a value leaves the trial template readable"
                findings.require(False, where, law, value, error.hint, "stuck")


def _check_collector(collecting: Mapping[str, Any], findings: Findings) -> None:
    path, kind = "spec.metricsCollectorSpec", collecting["collector"]["kind"]
    if kind not in ("StdOut", "File", "TensorFlowEvent"):
        runs = "podium collects metrics from StdOut, File or TensorFlowEvent"
        findings.unsupported(f"{path}.collector.kind", runs, str(kind))
    for pattern in ((collecting.get("source") or {}).get("filter") or {}).get("metricsFormat") or []:
        try:
            compile_format(pattern)
        except InvalidInput as error:
            where = f"{path}.source.filter.metricsFormat"
            findings.require(False, where, "a Go pattern with two groups", pattern, error.message, "stuck")


def _warn(experiment: Experiment, spec: Mapping[str, Any], findings: Findings) -> None:
    template = spec["trialTemplate"]
    law = "early stopping comes with retain: true"
    hint = "without it the real Katib loses the stopped trial's metrics and waits for ever (kubeflow/katib#1377)"
    fine = not spec.get("earlyStopping") or template.get("retain") is True
    findings.require(fine, "spec.trialTemplate.retain", law, template.get("retain"), hint, "warning")
    for _, container in experiment.wrapped_containers():
        hint = "without it Katib must read the image's entrypoint from its registry"
        law, given = "the wrapped container has a command", container.command
        findings.require(bool(given), "spec.trialTemplate.trialSpec", law, given, hint, "warning")

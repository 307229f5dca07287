"""Defaults that Katib fills in (katib 0.19:
pkg/apis/controller/experiments/v1beta1/experiment_defaults.go)."""

from typing import Any

from podium.manifests.experiment.schema import default_conditions, default_primary_labels


def set_defaults(spec: dict[str, Any]) -> None:
    """Fill in an Experiment's spec in place; its structure must have been checked."""
    if spec.get("parallelTrialCount") is None:
        spec["parallelTrialCount"] = 3
    spec["resumePolicy"] = spec.get("resumePolicy") or "Never"
    if spec.get("objective"):
        _default_strategies(spec["objective"])
    template = spec.get("trialTemplate") or {}
    kind = (template.get("trialSpec") or {}).get("kind") or ""
    conditions = default_conditions(kind)
    if conditions:
        template["successCondition"] = template.get("successCondition") or conditions[0]
        template["failureCondition"] = template.get("failureCondition") or conditions[1]
        labels = default_primary_labels(kind)
        if labels and not template.get("primaryPodLabels"):
            template["primaryPodLabels"] = labels
    _default_collector(spec)
    for parameter in spec.get("parameters") or []:
        space = parameter["feasibleSpace"] = parameter.get("feasibleSpace") or {}
        space["distribution"] = space.get("distribution") or "uniform"


def _default_strategies(objective: dict[str, Any]) -> None:
    default = {"minimize": "min", "maximize": "max"}.get(objective.get("type") or "", "latest")
    strategies = objective["metricStrategies"] = objective.get("metricStrategies") or []
    known = {strategy.get("name") for strategy in strategies}
    for name in [
        objective.get("objectiveMetricName"),
        *(objective.get("additionalMetricNames") or []),
    ]:
        if name not in known:
            strategies.append({"name": name, "value": default})


def _default_collector(spec: dict[str, Any]) -> None:
    collecting = spec["metricsCollectorSpec"] = spec.get("metricsCollectorSpec") or {}
    collecting["collector"] = collecting.get("collector") or {"kind": "StdOut"}
    defaults = {
        "File": {"kind": "File", "path": "/var/log/katib/metrics.log", "format": "TEXT"},
        "TensorFlowEvent": {"kind": "Directory", "path": "/var/log/katib/tfevent/"},
    }.get(collecting["collector"].get("kind") or "")
    if defaults:
        source = collecting["source"] = collecting.get("source") or {}
        given = {
            name: value for name, value in (source.get("fileSystemPath") or {}).items() if value
        }
        source["fileSystemPath"] = {**defaults, **given}

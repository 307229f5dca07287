"""The shape of an Experiment: kubeflow.org/v1beta1, as far as types go (katib:
pkg/apis/controller)."""

from typing import Any

from podium.manifests.admission import schema_of
from podium.manifests.fields import mapping, text
from podium.manifests.kinds import OPERATOR_KINDS, TRAINJOB
from podium.manifests.labels import COMPLETION_INDEX, JOB_ROLE, REPLICATED_JOB
from podium.manifests.structure import BOOL, INT, NUMBER, OBJECT, TEXT, Schema

_PAIR = {"name": TEXT, "value": TEXT}
_ALGORITHM = {"algorithmName": TEXT, "algorithmSettings": [_PAIR]}


def _trial(job: Any) -> Schema:
    return {"apiVersion": TEXT, "kind": TEXT, **schema_of(text(mapping(job).get("kind")))}


EXPERIMENT: Schema = {
    "apiVersion": TEXT,
    "kind": TEXT,
    "metadata": {
        "name": TEXT,
        "namespace": TEXT,
        "labels": OBJECT,
        "annotations": OBJECT,
        "ownerReferences": [OBJECT],
    },
    "spec": {
        "objective": {
            "type": TEXT,
            "goal": NUMBER,
            "objectiveMetricName": TEXT,
            "additionalMetricNames": [TEXT],
            "metricStrategies": [_PAIR],
        },
        "algorithm": _ALGORITHM,
        "earlyStopping": _ALGORITHM,
        "parallelTrialCount": INT,
        "maxTrialCount": INT,
        "maxFailedTrialCount": INT,
        "resumePolicy": TEXT,
        "parameters": [
            {
                "name": TEXT,
                "parameterType": TEXT,
                "feasibleSpace": {
                    "min": TEXT,
                    "max": TEXT,
                    "step": TEXT,
                    "list": [TEXT],
                    "distribution": TEXT,
                },
            }
        ],
        "nasConfig": OBJECT,
        "metricsCollectorSpec": {
            "collector": {"kind": TEXT, "customCollector": OBJECT},
            "source": {
                "fileSystemPath": {"path": TEXT, "kind": TEXT, "format": TEXT},
                "filter": {"metricsFormat": [TEXT]},
                "httpGet": OBJECT,
            },
        },
        "trialTemplate": {
            "retain": BOOL,
            "primaryContainerName": TEXT,
            "primaryPodLabels": OBJECT,
            "successCondition": TEXT,
            "failureCondition": TEXT,
            "trialParameters": [{"name": TEXT, "description": TEXT, "reference": TEXT}],
            "trialSpec": _trial,
            "configMap": {"configMapName": TEXT, "configMapNamespace": TEXT, "templatePath": TEXT},
        },
    },
}

_KUBEFLOW_KINDS = (*OPERATOR_KINDS, "PaddleJob")
_CONDITION = 'status.conditions.#(type=="{}")#|#(status=="True")#'


def default_conditions(kind: str) -> tuple[str, str] | None:
    """Return Katib's success and failure condition for a kind of job; None for a kind it does not
    know."""
    if kind in ("Job", TRAINJOB):
        return _CONDITION.format("Complete"), _CONDITION.format("Failed")
    if kind in _KUBEFLOW_KINDS:
        return _CONDITION.format("Succeeded"), _CONDITION.format("Failed")
    return None


def default_primary_labels(kind: str) -> dict[str, str] | None:
    """Return the labels by which Katib finds the pod that reports metrics; None if every pod
    does."""
    if kind == TRAINJOB:
        return {REPLICATED_JOB: "node", COMPLETION_INDEX: "0"}
    return {JOB_ROLE: "master"} if kind in _KUBEFLOW_KINDS else None


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
    named = {strategy.get("name") for strategy in strategies}
    for name in [
        objective.get("objectiveMetricName"),
        *(objective.get("additionalMetricNames") or []),
    ]:
        if name not in named:
            strategies.append({"name": name, "value": default})


def _default_collector(spec: dict[str, Any]) -> None:
    collecting = spec["metricsCollectorSpec"] = spec.get("metricsCollectorSpec") or {}
    if collecting.get("collector") is None:
        collecting["collector"] = {"kind": "StdOut"}
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

"""An OptimizationJob of Kubeflow Trainer as an Experiment, and an Experiment as one.

Trainer has the kind, but no controller for it yet: podium runs it as the Experiment that says the
same. Source (read, not run): kubeflow/trainer master of 2026-08,
pkg/apis/trainer/v1alpha1/optimizationjob_types.go, and proposals/2605-optimization-job-crd.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from podium.errors import InvalidInput
from podium.files.documents import load_json
from podium.manifests.experiment.template import PLACEHOLDER, meta_key
from podium.manifests.fields import mapping, objects, present, text, unshared
from podium.manifests.kinds import JOB_KINDS, TRAINJOB
from podium.manifests.labels import (
    JOBSET_NAME,
    OPTIMIZATION_JOB,
    REPLICATED_JOB,
    SWEEP,
    TRAINER_API,
)
from podium.manifests.resource import Resource
from podium.manifests.rules import Violation, broken, one_of
from podium.manifests.structure import INT, OBJECT, TEXT, wrong_types
from podium.manifests.trainjob import LAUNCHER, NODE, uses_mpi

KIND = "OptimizationJob"
_MOST = 100
"""Trials, trials at a time, parameters, and choices of one."""

_RANGE = {"min": TEXT, "max": TEXT, "type": TEXT}
_SPEC = {
    "objectives": [{"metric": TEXT, "direction": TEXT}],
    "searchAlgorithm": {"random": {"seed": INT}, "grid": OBJECT},
    "parameters": [
        {
            "name": TEXT,
            "searchSpace": {
                "uniform": _RANGE,
                "logUniform": _RANGE,
                "categorical": {"choices": [TEXT]},
            },
        }
    ],
    "numTrials": INT,
    "parallelTrials": INT,
    "trainJobTemplate": {"metadata": OBJECT, "spec": {"trainer": {"env": [OBJECT]}}},
}
_DOUBLE = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_TRIAL_NAME: dict[str, Any] = {
    "name": "TRIAL_NAME",
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{JOBSET_NAME}']"}},
}
"""Variable with the name of a trial, which is its TrainJob's and that JobSet's."""

_ENDED = {"Succeeded": "Complete", "Failed": "Failed"}
_REASONS = {
    "ExperimentMaxTrialsReached": "MaxTrialsReached",
    "ExperimentSuggestionEndReached": "SearchSpaceExhausted",
}


def as_experiment(manifest: Mapping[str, Any], *, remember: bool = True) -> dict[str, Any]:
    """Return the Experiment that does what an OptimizationJob asks for; any other manifest as it
    is.

    A trial has its values as ``KUBEFLOW_TRAINER_OPT_<NAME>``, and its metric is what its TrainJob
    posts last; podium takes it from printed lines, too.

    Args:
        remember: Whether an annotation holds the OptimizationJob.

    Raises:
        InvalidInput: The API server would refuse it.
    """
    if manifest.get("kind") != KIND:
        return dict(manifest)
    for problem in _problems(mapping(manifest.get("spec"))):
        raise InvalidInput(f"{problem.where}: {problem.what}", problem.hint)
    spec, metadata = manifest["spec"], mapping(manifest.get("metadata"))
    (objective,) = spec["objectives"]
    metric, direction = objective["metric"], objective.get("direction", "Minimize")
    template = unshared(spec["trainJobTemplate"])
    trainer = template["spec"].setdefault("trainer", {})
    names = [parameter["name"] for parameter in spec["parameters"]]
    trainer["env"] = [
        *(trainer.get("env") or []),
        *({"name": _variable(name), "value": f"${{trialParameters.{name}}}"} for name in names),
    ]
    job = {"apiVersion": JOB_KINDS[TRAINJOB], "kind": TRAINJOB, **template}
    # Katib looks for the pods of ``node``, where no launcher is.
    labels = {REPLICATED_JOB: LAUNCHER} if uses_mpi(template["spec"]) else None
    original = json.dumps({key: manifest[key] for key in manifest if key != "status"})
    if remember:
        annotations = {**mapping(metadata.get("annotations")), OPTIMIZATION_JOB: original}
        metadata = {**metadata, "annotations": annotations}
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": dict(metadata),
        "spec": {
            "objective": {
                "type": direction.lower(),
                "objectiveMetricName": metric,
                "metricStrategies": [{"name": metric, "value": "latest"}],
            },
            "algorithm": _algorithm(mapping(spec.get("searchAlgorithm"))),
            "maxTrialCount": spec.get("numTrials", 1),
            "parallelTrialCount": spec.get("parallelTrials", 1),
            "parameters": [*map(_parameter, spec["parameters"])],
            "trialTemplate": {
                "primaryContainerName": NODE,
                **present(primaryPodLabels=labels),
                "trialParameters": [{"name": name, "reference": name} for name in names],
                "trialSpec": job,
            },
        },
    }


def experiment_of(job: Resource) -> Resource:
    """Return the Experiment of an OptimizationJob that a cluster stores; it goes with that.

    Raises:
        InvalidInput: The API server would refuse the OptimizationJob.
    """
    written = ("name", "namespace", "labels", "annotations")
    metadata = {name: job.metadata[name] for name in written if name in job.metadata}
    made = Resource.parse(as_experiment({**job.manifest, "metadata": metadata}))
    return made.with_metadata({**made.metadata, "ownerReferences": [job.as_owner]})


def status_of_job(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status that its controller would write into the OptimizationJob that an Experiment
    was made of."""
    status = mapping(experiment.get("status"))
    conditions = [*map(_condition, objects(status.get("conditions")))]
    best = mapping(status.get("currentOptimalTrial"))
    result = present(
        trainJobName=best.get("bestTrialName"), parameters=best.get("parameterAssignments")
    )
    return present(
        conditions=[*filter(None, conditions)] or None,
        result=result if best.get("bestTrialName") else None,
    )


def with_status(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OptimizationJob that an Experiment was made of, with its status.

    Raises:
        InvalidInput: The annotation that holds it was edited.
    """
    metadata = mapping(experiment.get("metadata"))
    held = text(mapping(metadata.get("annotations")).get(OPTIMIZATION_JOB))
    kept = ("name", "uid", "creationTimestamp")
    original = mapping(load_json(held, f"annotation {OPTIMIZATION_JOB}"))
    return {
        **original,
        "metadata": {
            **mapping(original.get("metadata")),
            **{key: metadata[key] for key in kept if key in metadata},
        },
        "status": status_of_job(experiment),
    }


def _condition(condition: Mapping[str, Any]) -> dict[str, Any] | None:
    kind, reason = text(condition.get("type")), text(condition.get("reason"))
    kind = _ENDED.get(kind, kind)
    if kind not in ("Created", "Complete", "Failed"):
        return None
    return {
        "type": kind,
        "status": condition.get("status"),
        "reason": _REASONS.get(reason, reason.replace("Experiment", KIND)),
        "message": text(condition.get("message")).replace("Experiment", KIND),
        "lastTransitionTime": condition.get("lastTransitionTime"),
    }


def _problems(spec: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield what the API server refuses, by the kind's schema and its expressions."""
    yield from wrong_types(spec, _SPEC, "spec")
    for name in ("numTrials", "parallelTrials"):
        if spec.get(name, 1) is None:
            hint = "write a number behind it, or leave the field out: it is 1 then"
            yield broken(f"spec.{name}", "must not be empty", None, hint)
    objectives = objects(spec.get("objectives"))
    if len(objectives) != 1 or not objectives[0].get("metric"):
        yield broken("spec.objectives", "must name one metric", spec.get("objectives"))
    for objective in objectives:
        direction = objective.get("direction", "Minimize")
        yield from one_of("spec.objectives[0].direction", direction, ("Minimize", "Maximize"))
    algorithms = mapping(spec.get("searchAlgorithm", {"random": {}}))
    if len(algorithms.keys() & {"random", "grid"}) != 1:
        yield broken("spec.searchAlgorithm", "must be random or grid", dict(algorithms))
    parameters = objects(spec.get("parameters"))
    if not 1 <= len(parameters) <= _MOST:
        yield broken("spec.parameters", f"must be 1 to {_MOST}", len(parameters))
    for number, parameter in enumerate(parameters):
        yield from _space_problems(parameter, f"spec.parameters[{number}]", "grid" in algorithms)
    yield from _shared_variables([text(parameter.get("name")) for parameter in parameters])
    trials, parallel = spec.get("numTrials", 1), spec.get("parallelTrials", 1)
    if not 1 <= parallel <= trials <= _MOST:
        rule = f"1 <= parallelTrials <= numTrials <= {_MOST}"
        yield broken("spec", rule, f"parallelTrials={parallel}, numTrials={trials}")
    template = mapping(spec.get("trainJobTemplate"))
    if not template.get("spec"):
        yield broken("spec.trainJobTemplate.spec", "must be given", None, "the spec of a TrainJob")
    job = mapping(template.get("spec"))
    if "trainer" in job and job["trainer"] is None:
        hint = "write the trainer's fields below it, or leave it out"
        yield broken("spec.trainJobTemplate.spec.trainer", "must not be empty", None, hint)
    for name in mapping(template.get("metadata")).keys() & {"name", "namespace"}:
        yield broken(f"spec.trainJobTemplate.metadata.{name}", "must be left out", template)


def _shared_variables(names: Sequence[str]) -> Iterator[Violation]:
    """Yield the names whose values a trial could not tell apart."""
    first: dict[str, str] = {}
    for number, name in enumerate(names):
        variable, where = _variable(name), f"spec.parameters[{number}].name"
        if variable in first:
            rule = f"must have a variable of its own, {first[variable]!r} has {variable}"
            yield broken(where, rule, name, "rename one of the two")
        first.setdefault(variable, name)


def _space_problems(parameter: Mapping[str, Any], path: str, is_grid: bool) -> Iterator[Violation]:
    space = mapping(parameter.get("searchSpace"))
    path = f"{path}.searchSpace"
    if len(space) != 1 or not parameter.get("name"):
        yield broken(path, "must be one of uniform, logUniform, categorical", dict(space))
    for kind, distribution in space.items():
        if kind == "categorical":
            choices = mapping(distribution).get("choices") or []
            if not 1 <= len(choices) <= _MOST:
                yield broken(f"{path}.categorical.choices", f"must be 1 to {_MOST}", choices)
            continue
        if is_grid:
            yield broken(path, "must be categorical for grid", kind, "list the values as choices")
        ends = [text(mapping(distribution).get(end)) for end in ("min", "max")]
        if not all(map(_DOUBLE.fullmatch, ends)) or float(ends[0]) >= float(ends[1]):
            yield broken(f"{path}.{kind}", "must have numbers min < max, in quotes", distribution)
        elif kind == "logUniform" and float(ends[0]) <= 0:
            yield broken(f"{path}.logUniform.min", "min > 0", ends[0])
        yield from one_of(
            f"{path}.{kind}.type", distribution.get("type", "Float"), ("Int", "Float")
        )


def _algorithm(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    if "grid" in algorithm:
        return {"algorithmName": "grid"}
    seed = mapping(algorithm.get("random")).get("seed")
    settings = [] if seed is None else [{"name": "random_state", "value": str(seed)}]
    return {"algorithmName": "random", **({"algorithmSettings": settings} if settings else {})}


def _parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    ((kind, space),) = parameter["searchSpace"].items()
    if kind == "categorical":
        return {
            "name": parameter["name"],
            "parameterType": "categorical",
            "feasibleSpace": {"list": list(space["choices"])},
        }
    ends = {"min": space["min"], "max": space["max"]}
    return {
        "name": parameter["name"],
        "parameterType": "int" if space.get("type") == "Int" else "double",
        "feasibleSpace": ends | ({"distribution": "logUniform"} if kind == "logUniform" else {}),
    }


def _variable(name: str) -> str:
    return "KUBEFLOW_TRAINER_OPT_" + re.sub(r"\W", "_", name, flags=re.ASCII).upper()


def as_optimization_job(experiment: Mapping[str, Any]) -> tuple[dict[str, Any], list[Violation]]:
    """Return an Experiment whose trials are TrainJobs as an OptimizationJob, and notes of what is
    lost.

    Args:
        experiment: One that can run, with Katib's defaults in its spec.

    Raises:
        InvalidInput: A value of the search is needed where an OptimizationJob cannot put it.
    """
    spec, metadata = experiment["spec"], mapping(experiment.get("metadata"))
    notes = list(_losses(spec, metadata))
    trials = min(spec.get("maxTrialCount") or _MOST, _MOST)
    template = spec["trialTemplate"]
    references = {
        parameter["name"]: parameter["reference"] for parameter in template["trialParameters"]
    }
    job = template["trialSpec"]
    annotations = mapping(metadata.get("annotations"))
    kept = {
        name: annotations[name] for name in annotations if name not in (SWEEP, OPTIMIZATION_JOB)
    }
    named = {name: metadata[name] for name in ("name", "namespace", "labels") if name in metadata}
    algorithm = spec["algorithm"]
    settings = {
        setting["name"]: setting["value"] for setting in algorithm.get("algorithmSettings") or ()
    }
    seed = {"seed": int(settings["random_state"])} if "random_state" in settings else {}
    is_grid = algorithm["algorithmName"] == "grid"
    written: dict[str, Any] = {
        "objectives": [
            {
                "metric": spec["objective"]["objectiveMetricName"],
                "direction": spec["objective"]["type"].capitalize(),
            }
        ],
        "searchAlgorithm": {"grid": {}} if is_grid else {"random": seed},
        "parameters": [
            {"name": each["name"], "searchSpace": _space(each)} for each in spec["parameters"]
        ],
        "numTrials": trials,
        "parallelTrials": min(spec.get("parallelTrialCount") or 1, trials),
        "trainJobTemplate": present(
            metadata=mapping(job.get("metadata")) or None,
            spec=_with_variables(job["spec"], references),
        ),
    }
    job_metadata = {**named, **({"annotations": kept} if kept else {})}
    manifest = {
        "apiVersion": f"{TRAINER_API}/v1alpha1",
        "kind": KIND,
        "metadata": job_metadata,
        "spec": written,
    }
    for problem in _problems(written):
        raise InvalidInput(f"as an {KIND}, {problem.where}: {problem.what}", problem.hint)
    return unshared(manifest), notes


def _space(parameter: Mapping[str, Any]) -> dict[str, Any]:
    space, kind = parameter["feasibleSpace"], parameter["parameterType"]
    if kind in ("categorical", "discrete"):
        return {"categorical": {"choices": list(space["list"])}}
    distribution = "logUniform" if space.get("distribution") == "logUniform" else "uniform"
    ends = {"min": space["min"], "max": space["max"], "type": "Int" if kind == "int" else "Float"}
    return {distribution: ends}


def _with_variables(spec: Mapping[str, Any], references: Mapping[str, str]) -> dict[str, Any]:
    """Return a TrainJob's spec whose command refers to variables in place of placeholders."""
    used: dict[str, dict[str, Any]] = {}

    def variable(match: re.Match[str]) -> str:
        reference = references[match[1]]
        if meta_key(reference) is None:
            return f"$({_variable(reference)})"
        if meta_key(reference) != ("Name", None):
            raise InvalidInput(
                f"spec.trialTemplate.trialParameters: {reference} has no place in an {KIND}",
                "of a trial's own metadata only its name is known to it: ${trialSpec.Name}",
            )
        used[_TRIAL_NAME["name"]] = _TRIAL_NAME
        return f"$({_TRIAL_NAME['name']})"

    changed: dict[str, Any] = unshared(spec)
    trainer: dict[str, Any] = changed.get("trainer") or {}  # the runtime's, where it has none
    for field in ("command", "args"):
        if field in trainer:
            trainer[field] = [PLACEHOLDER.sub(variable, word) for word in trainer[field] or ()]
    own = {_variable(name) for name in references.values()}  # which as_experiment has put there
    env = [entry for entry in trainer.pop("env", None) or () if entry.get("name") not in own]
    if env := [*env, *used.values()]:
        trainer["env"] = env
    if left := PLACEHOLDER.search(json.dumps(changed)):
        problem = f"spec.trialTemplate.trialSpec: {left[0]} stands outside of command and args"
        reference = references[left[1]]
        hint = f"an {KIND} hands values to a trial as variables only: read {_variable(reference)} there"
        if meta_key(reference) == ("Name", None):
            hint = f"a trial's pods have its name in their label {JOBSET_NAME}"
        raise InvalidInput(problem, hint)
    return changed


def _losses(spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Violation]:
    objective, algorithm = spec["objective"], spec["algorithm"]
    name = algorithm["algorithmName"]
    if name not in ("random", "grid"):
        hint = "an OptimizationJob knows random and grid"
        yield Violation(f"{name} becomes random", "spec.algorithm", hint)
    for setting in algorithm.get("algorithmSettings") or ():
        if setting["name"] != "random_state" or name == "grid":
            where = f"spec.algorithm.algorithmSettings.{setting['name']}"
            yield Violation("is left out", where)
    dropped = {
        "spec.objective.goal": objective.get("goal"),
        "spec.objective.additionalMetricNames": objective.get("additionalMetricNames"),
        "spec.earlyStopping": spec.get("earlyStopping"),
        "spec.maxFailedTrialCount": spec.get("maxFailedTrialCount"),
        f"metadata.annotations.{SWEEP}": mapping(metadata.get("annotations")).get(SWEEP),
    }
    for where, value in dropped.items():
        if value is not None:
            yield Violation("is left out: an OptimizationJob has no such field", where)
    strategies = {each["name"]: each["value"] for each in objective.get("metricStrategies") or ()}
    strategy = strategies.get(objective["objectiveMetricName"])
    if strategy != "latest":
        note = f"{strategy} becomes latest: a trial counts with the value that it posts last"
        yield Violation(note, "spec.objective.metricStrategies")
    hint = "call update_trainjob_status of Kubeflow's SDK; Hugging Face's Trainer posts by itself"
    yield Violation(
        "printed metrics are not read: a trial posts them to Trainer's status server",
        "spec.metricsCollectorSpec",
        hint,
    )
    most = spec.get("maxTrialCount")
    if most is None or most > _MOST:
        yield Violation(f"becomes {_MOST}, the most that there are", "spec.maxTrialCount")
    for number, parameter in enumerate(spec["parameters"]):
        space, where = parameter["feasibleSpace"], f"spec.parameters[{number}].feasibleSpace"
        if space.get("step") and parameter["parameterType"] in ("int", "double"):
            yield Violation("is left out: values between the steps are tried too", f"{where}.step")
        if space.get("distribution") not in (None, "uniform", "logUniform"):
            yield Violation(f"{space['distribution']} becomes uniform", f"{where}.distribution")
        if parameter["parameterType"] == "discrete":
            yield Violation("the numbers become choices without an order", f"{where}.list")

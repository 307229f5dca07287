"""Rules of Katib's webhooks for Experiments; ``Experiment.parse`` fills in its defaults.

Sources: katib 0.19, pkg/webhook/v1beta1/experiment/validator; checked against answers of a real
Katib in tests/golden/katib.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from podium.errors import InvalidInput, suggestion
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.lost_fields import lost_fields
from podium.manifests.experiment.space import LISTED, NUMERIC, OBJECTIVE, SPACE, TEMPLATE
from podium.manifests.experiment.template import fill, meta_key
from podium.manifests.fields import items, mapping, text
from podium.manifests.names import EXPERIMENT_NAME, is_experiment_name
from podium.manifests.rules import (
    Rules,
    Violation,
    apply,
    at_least,
    broken,
    one_of,
    raise_for,
)
from podium.metrics import compile_format
from podium.search.algorithms import ALGORITHMS, ARCHITECTURE_SEARCHES, MEDIAN_STOP
from podium.search.space import DISTRIBUTIONS

_COLLECTORS = ("StdOut", "File", "TensorFlowEvent", "PrometheusMetric", "Custom", "Push")

KIND = Rules[Experiment]()
WEBHOOK = Rules[Experiment]()


another_kind, refused = (
    table.rule(
        "fail", "Katib's webhook refuses the Experiment.", "refused-by-webhook", refuses=True
    )
    for table in (KIND, WEBHOOK)
)


def admit(manifest: Mapping[str, Any]) -> Experiment:
    """Return the Experiment that Katib's webhooks make of a manifest.

    Raises:
        BrokenRules: They would refuse it; every broken rule is named.
    """
    experiment = Experiment.parse(manifest)
    raise_for(apply(KIND, experiment) or apply(WEBHOOK, experiment))
    return experiment


@another_kind
def _kind(experiment: Experiment) -> Iterator[Violation]:
    api = (experiment.api_version, experiment.kind)
    if api != ("kubeflow.org/v1beta1", "Experiment"):
        hint = "write apiVersion: kubeflow.org/v1beta1 and kind: Experiment"
        if "v1alpha" in experiment.api_version:
            hint = (
                "Katib serves v1beta1 alone: feasible is feasibleSpace there, and the text of "
                "goTemplate a trialSpec with trialParameters"
            )
        yield broken("kind", "must be kubeflow.org/v1beta1 Experiment", " ".join(api).strip(), hint)


@refused
def _name(experiment: Experiment) -> Iterator[Violation]:
    name = experiment.expected_name
    if not is_experiment_name(name):
        yield broken("metadata.name", EXPERIMENT_NAME, name, "choose such a name")


@refused
def _counts(experiment: Experiment) -> Iterator[Violation]:
    most, failed, parallel = (
        experiment.spec.get(f"{part}TrialCount") for part in ("max", "maxFailed", "parallel")
    )
    hint = "give a positive number, or leave it out"
    yield from at_least("spec.maxFailedTrialCount", failed, 0, hint)
    for field, value in (("maxTrialCount", most), ("parallelTrialCount", parallel)):
        if value is not None and value <= 0:
            yield broken(f"spec.{field}", f"{field} > 0", value, hint)
    hint = "raise maxTrialCount, or lower the other"
    for field, value in (("maxFailedTrialCount", failed), ("parallelTrialCount", parallel)):
        if most is not None and value is not None and value > most:
            yield broken(f"spec.{field}", f"{field} <= maxTrialCount", f"{value} > {most}", hint)


@refused
def _objective(experiment: Experiment) -> Iterator[Violation]:
    path, objective = "spec.objective", experiment.spec.get("objective")
    if objective is None:
        yield broken(path, "must be given", None, OBJECTIVE)
        return
    metric, more = (
        objective.get("objectiveMetricName"),
        items(objective.get("additionalMetricNames")),
    )
    if objective.get("type") not in ("minimize", "maximize"):
        yield broken(
            f"{path}.type", "must be minimize or maximize", objective.get("type"), OBJECTIVE
        )
    if not metric:
        yield broken(f"{path}.objectiveMetricName", "must be given", metric, OBJECTIVE)
    if metric in more:
        must = "must not hold the objective's own metric"
        yield broken(f"{path}.additionalMetricNames", must, more, f"remove {metric} there")


@refused
def _algorithm(experiment: Experiment) -> Iterator[Violation]:
    name = experiment.algorithm.name
    if name not in ALGORITHMS:
        own = [each.name for each in ALGORITHMS.values() if not each.in_katib]
        names = [each for each in ALGORITHMS if each not in own]
        yield from one_of(
            "spec.algorithm.algorithmName", name, [*names, *ARCHITECTURE_SEARCHES, *own]
        )
    stopping, rule = experiment.spec.get("earlyStopping"), MEDIAN_STOP.name
    if stopping is not None and (chosen := stopping.get("algorithmName")) != rule:
        hint = f"write {rule}, or remove earlyStopping"
        yield broken("spec.earlyStopping.algorithmName", f"must be {rule}", chosen, hint)
    policies = ("Never", "LongRunning", "FromVolume")
    yield from one_of("spec.resumePolicy", experiment.resume_policy, policies)


@refused
def _template(experiment: Experiment) -> Iterator[Violation]:
    path, template = "spec.trialTemplate", experiment.template.manifest
    for field in ("primaryContainerName", "trialParameters"):
        if not template.get(field):
            yield broken(f"{path}.{field}", "must be given", template.get(field), TEMPLATE)
    job = template.get("trialSpec")
    if (job is None) == (template.get("configMap") is None):
        yield broken(
            path, "must hold either a trialSpec or a configMap", sorted(template), TEMPLATE
        )
    if job is None:
        return
    for field in ("kind", "apiVersion"):
        if not job.get(field):
            yield broken(f"{path}.trialSpec.{field}", "must be given", job.get(field), TEMPLATE)
    if not (template.get("successCondition") and template.get("failureCondition")):
        hint = "a kind that Katib does not know needs both"
        yield broken(path, "must have successCondition and failureCondition", job.get("kind"), hint)
    metadata = mapping(job.get("metadata"))
    fixed = {field: metadata[field] for field in ("name", "namespace") if metadata.get(field)}
    if fixed:
        hint = "remove them: each trial gets a name of its own"
        yield broken(f"{path}.trialSpec.metadata", "must leave out name and namespace", fixed, hint)


@refused
def _lost_fields(experiment: Experiment) -> Iterator[Violation]:
    if experiment.template.workload.kind == "Job":
        yield from lost_fields(experiment.template.workload)


@refused
def _trial_parameters(experiment: Experiment) -> Iterator[Violation]:
    path, parameters = "spec.trialTemplate.trialParameters", experiment.template.parameters
    searched = [parameter.name for parameter in experiment.written_space]
    for index, (name, reference) in enumerate(parameters):
        where, before = f"{path}[{index}]", parameters[:index]
        if not (name and reference) or set(name) & set("{}"):
            must = "must have a name without braces and a reference"
            yield broken(where, must, (name, reference), TEMPLATE)
            continue
        if name in [other for other, _ in before]:
            yield broken(f"{where}.name", "must be unique", name, "remove one or rename it")
        if reference in [other for _, other in before]:
            yield broken(f"{where}.reference", "must be unique", reference, "remove one of the two")
        if searched and reference not in searched and meta_key(reference) is None:
            must = f"must be a search parameter ({', '.join(searched)}) or ${{trialSpec.…}}"
            yield broken(f"{where}.reference", must, reference, suggestion(reference, searched))


@refused
def _placeholders(experiment: Experiment) -> Iterator[Violation]:
    template = experiment.template
    used, names = set(template.placeholders), {name for name, _ in template.parameters}
    if not names or not template.workload.manifest:
        return
    for index, (name, _) in enumerate(template.parameters):
        if name and name not in used:
            must = f"must be used as ${{trialParameters.{name}}} in the trialSpec"
            where = f"spec.trialTemplate.trialParameters[{index}].name"
            yield broken(where, must, name, "use it, or remove the trialParameter")
    if unknown := sorted(used - names):
        hint = "add it to spec.trialTemplate.trialParameters"
        yield broken("spec.trialTemplate.trialSpec", "must use trialParameters only", unknown, hint)
        return
    try:
        fill(template.workload.manifest, dict.fromkeys(names, "test-value"))
    except InvalidInput as error:
        yield Violation(error.message, "spec.trialTemplate.trialSpec", error.hint)


@refused
def _parameters(experiment: Experiment) -> Iterator[Violation]:
    parameters, nas = experiment.spec.get("parameters"), experiment.spec.get("nasConfig")
    if bool(parameters) == (nas is not None):
        must = "must be given, or a nasConfig instead"
        yield broken("spec.parameters", must, (parameters, nas), SPACE)
    for parameter in experiment.written_space:
        path, kind, space = parameter.path, parameter.kind, parameter.feasible
        where = f"{path}.feasibleSpace"
        yield from one_of(f"{path}.parameterType", kind, NUMERIC + LISTED)
        yield from one_of(f"{where}.distribution", space.get("distribution"), DISTRIBUTIONS)
        if kind in NUMERIC:
            if space.get("list"):
                yield broken(
                    f"{where}.list", f"must be empty for {kind}", space["list"], "remove it"
                )
            if not (space.get("min") and space.get("max")):
                yield broken(where, "must have min and max", dict(space), 'as text: min: "0.1"')
        elif kind in LISTED and any(space.get(end) for end in ("min", "max", "step")):
            must, hint = f"must have a list only for {kind}", "remove them, or choose double or int"
            yield broken(where, must, dict(space), hint)


@refused
def _collector(experiment: Experiment) -> Iterator[Violation]:
    path, kinds = "spec.metricsCollectorSpec", _COLLECTORS
    collecting = mapping(experiment.spec.get("metricsCollectorSpec"))
    collector, source = mapping(collecting.get("collector")), mapping(collecting.get("source"))
    kind, file = text(collector.get("kind")), mapping(source.get("fileSystemPath"))
    yield from one_of(f"{path}.collector.kind", kind, kinds)
    if kind in ("File", "TensorFlowEvent"):
        wanted = "File" if kind == "File" else "Directory"
        if file.get("kind") != wanted or not text(file.get("path")).startswith("/"):
            must = f"must be the absolute path of a {wanted}"
            hint = f"fileSystemPath: {{kind: {wanted}, path: /var/log/metrics}}"
            yield broken(f"{path}.source.fileSystemPath", must, file, hint)
    form, where = file.get("format"), f"{path}.source.fileSystemPath.format"
    if kind == "File" and form not in ("TEXT", "JSON"):
        hint = "TEXT reads name=value, JSON an object a line"
        yield broken(where, "must be TEXT or JSON", form, hint)
    lines = source.get("filter")
    if kind == "File" and form == "JSON" and lines is not None:
        must = "must be left out for JSON"
        yield broken(f"{path}.source.filter", must, lines, "remove the filter")
    if kind == "TensorFlowEvent" and form:
        yield broken(where, "must be left out", form, "remove the format")
    if kind == "Custom" and collector.get("customCollector") is None:
        hint = "give the container that collects"
        yield broken(f"{path}.collector.customCollector", "must be given", None, hint)
    if kind not in ("StdOut", "Push"):  # there the webhook looks no further: see stuck_rules.py
        yield from bad_patterns(experiment)


def bad_patterns(experiment: Experiment) -> Iterator[Violation]:
    for pattern in experiment.collector.filters:
        try:
            compile_format(pattern)
        except InvalidInput as error:
            where = "spec.metricsCollectorSpec.source.filter.metricsFormat"
            yield broken(where, "must be a Go pattern with two groups", pattern, error.message)

"""Rules of Katib's webhooks for Experiments; ``Experiment.parse`` fills in its defaults.

Sources: katib 0.19, pkg/webhook/v1beta1/experiment/validator; checked against answers of a real
Katib in tests/golden/katib.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from podium.errors import InvalidInput, suggestion
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.space import LISTED, NUMERIC, OBJECTIVE, SPACE, TEMPLATE
from podium.manifests.experiment.template import fill, meta_key
from podium.manifests.fields import items, mapping, numbered, text
from podium.manifests.names import EXPERIMENT_NAME, is_experiment_name
from podium.manifests.rules import (
    Finding,
    Look,
    Rule,
    Rules,
    Violation,
    apply,
    broken,
    one_of,
    raise_for,
)
from podium.metrics import compile_format
from podium.search.algorithms import ALGORITHMS, ARCHITECTURE_SEARCHES, MEDIAN_STOP
from podium.search.space import DISTRIBUTIONS

COLLECTORS = ("StdOut", "File", "TensorFlowEvent", "PrometheusMetric", "Custom", "Push")

KIND = Rules[Experiment]()
WEBHOOK = Rules[Experiment]()


def _refused(table: Rules[Experiment]) -> Callable[[Look[Experiment]], Rule[Experiment]]:
    return table.rule(
        "fail", "Katib's webhook refuses the Experiment.", "refused-by-webhook", refuses=True
    )


another_kind, refused = _refused(KIND), _refused(WEBHOOK)


def admit(manifest: Mapping[str, Any]) -> Experiment:
    """Return the Experiment that Katib's webhooks make of a manifest.

    Raises:
        BrokenRules: They would refuse it; every broken rule is named.
    """
    experiment = Experiment.parse(manifest)
    raise_for(_refusals(experiment))
    return experiment


@another_kind
def kind(experiment: Experiment) -> Iterator[Violation]:
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
def name(experiment: Experiment) -> Iterator[Violation]:
    given = experiment.expected_name
    if not is_experiment_name(given):
        yield broken("metadata.name", EXPERIMENT_NAME, given, "choose such a name")


@refused
def _counts(experiment: Experiment) -> Iterator[Violation]:
    spec = experiment.spec
    most, failed, parallel = (
        spec.get(f"{part}TrialCount") for part in ("max", "maxFailed", "parallel")
    )
    hint = "give a positive number, or leave it out"
    if failed is not None and failed < 0:
        yield broken("spec.maxFailedTrialCount", "maxFailedTrialCount >= 0", failed, hint)
    if most is not None and most <= 0:
        yield broken("spec.maxTrialCount", "maxTrialCount > 0", most, hint)
    if parallel is not None and parallel <= 0:
        yield broken("spec.parallelTrialCount", "parallelTrialCount > 0", parallel, hint)
    for field, value in (("maxFailedTrialCount", failed), ("parallelTrialCount", parallel)):
        if most is not None and value is not None and value > most:
            hint = "raise maxTrialCount, or lower the other"
            yield broken(f"spec.{field}", f"{field} <= maxTrialCount", f"{value} > {most}", hint)


@refused
def _objective(experiment: Experiment) -> Iterator[Violation]:
    path, given = "spec.objective", experiment.spec.get("objective")
    if given is None:
        yield broken(path, "must be given", None, OBJECTIVE)
        return
    metric, more = given.get("objectiveMetricName"), items(given.get("additionalMetricNames"))
    if given.get("type") not in ("minimize", "maximize"):
        yield broken(f"{path}.type", "must be minimize or maximize", given.get("type"), OBJECTIVE)
    if not metric:
        yield broken(f"{path}.objectiveMetricName", "must be given", metric, OBJECTIVE)
    if metric in more:
        must = "must not hold the objective's own metric"
        yield broken(f"{path}.additionalMetricNames", must, more, f"remove {metric} there")


@refused
def _algorithm(experiment: Experiment) -> Iterator[Violation]:
    if experiment.algorithm.name not in ALGORITHMS:
        own = [known.name for known in ALGORITHMS.values() if not known.in_katib]
        names = [name for name in ALGORITHMS if name not in own]
        yield from one_of(
            "spec.algorithm.algorithmName",
            experiment.algorithm.name,
            [*names, *ARCHITECTURE_SEARCHES, *own],
        )
    stopping, rule = experiment.spec.get("earlyStopping"), MEDIAN_STOP.name
    if stopping is not None and (given := stopping.get("algorithmName")) != rule:
        hint = f"write {rule}, or remove earlyStopping"
        yield broken("spec.earlyStopping.algorithmName", f"must be {rule}", given, hint)
    yield from one_of(
        "spec.resumePolicy", experiment.resume_policy, ("Never", "LongRunning", "FromVolume")
    )


@refused
def template(experiment: Experiment) -> Iterator[Violation]:
    path, given = "spec.trialTemplate", experiment.template.manifest
    for field in ("primaryContainerName", "trialParameters"):
        if not given.get(field):
            yield broken(f"{path}.{field}", "must be given", given.get(field), TEMPLATE)
    job = given.get("trialSpec")
    if (job is None) == (given.get("configMap") is None):
        yield broken(path, "must hold either a trialSpec or a configMap", sorted(given), TEMPLATE)
    if job is None:
        return
    for field in ("kind", "apiVersion"):
        if not job.get(field):
            yield broken(f"{path}.trialSpec.{field}", "must be given", job.get(field), TEMPLATE)
    if not (given.get("successCondition") and given.get("failureCondition")):
        hint = "a kind that Katib does not know needs both"
        yield broken(path, "must have successCondition and failureCondition", job.get("kind"), hint)
    metadata = mapping(job.get("metadata"))
    fixed = {field: metadata[field] for field in ("name", "namespace") if metadata.get(field)}
    if fixed:
        hint = "remove them: each trial gets a name of its own"
        yield broken(f"{path}.trialSpec.metadata", "must leave out name and namespace", fixed, hint)


@refused
def _trial_parameters(experiment: Experiment) -> Iterator[Violation]:
    path, given = "spec.trialTemplate.trialParameters", experiment.template.parameters
    searched = [
        text(parameter.get("name"))
        for _, parameter in numbered("", experiment.spec.get("parameters"))
    ]
    for index, (name, reference) in enumerate(given):
        where = f"{path}[{index}]"
        if not (name and reference) or set(name) & set("{}"):
            yield broken(
                where,
                "must have a name without braces and a reference",
                (name, reference),
                TEMPLATE,
            )
            continue
        if name in [other for other, _ in given[:index]]:
            yield broken(f"{where}.name", "must be unique", name, "remove one or rename it")
        if reference in [other for _, other in given[:index]]:
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
def parameters(experiment: Experiment) -> Iterator[Violation]:
    given, nas = experiment.spec.get("parameters"), experiment.spec.get("nasConfig")
    if bool(given) == (nas is not None):
        yield broken(
            "spec.parameters", "must be given, or a nasConfig instead", (given, nas), SPACE
        )
    for path, parameter in numbered("spec.parameters", given):
        kind, space = text(parameter.get("parameterType")), mapping(parameter.get("feasibleSpace"))
        yield from one_of(f"{path}.parameterType", kind, NUMERIC + LISTED)
        yield from one_of(
            f"{path}.feasibleSpace.distribution", space.get("distribution"), DISTRIBUTIONS
        )
        ends = {end: space.get(end) for end in ("min", "max", "step")}
        if kind in NUMERIC:
            if space.get("list"):
                yield broken(
                    f"{path}.feasibleSpace.list",
                    f"must be empty for {kind}",
                    space["list"],
                    "remove it",
                )
            if not (ends["min"] and ends["max"]):
                yield broken(
                    f"{path}.feasibleSpace",
                    "must have min and max",
                    dict(space),
                    'as text: min: "0.1"',
                )
        elif kind in LISTED and any(ends.values()):
            hint = "remove them, or choose double or int"
            yield broken(
                f"{path}.feasibleSpace", f"must have a list only for {kind}", dict(space), hint
            )


@refused
def _collector(experiment: Experiment) -> Iterator[Violation]:
    path, collecting = (
        "spec.metricsCollectorSpec",
        mapping(experiment.spec.get("metricsCollectorSpec")),
    )
    given, source = mapping(collecting.get("collector")), mapping(collecting.get("source"))
    kind, file = text(given.get("kind")), mapping(source.get("fileSystemPath"))
    yield from one_of(f"{path}.collector.kind", kind, COLLECTORS)
    if kind in ("File", "TensorFlowEvent"):
        wanted = "File" if kind == "File" else "Directory"
        if file.get("kind") != wanted or not text(file.get("path")).startswith("/"):
            hint = f"fileSystemPath: {{kind: {wanted}, path: /var/log/metrics}}"
            yield broken(
                f"{path}.source.fileSystemPath",
                f"must be the absolute path of a {wanted}",
                file,
                hint,
            )
    form, where = file.get("format"), f"{path}.source.fileSystemPath.format"
    if kind == "File" and form not in ("TEXT", "JSON"):
        yield broken(
            where, "must be TEXT or JSON", form, "TEXT reads name=value, JSON an object a line"
        )
    if kind == "File" and form == "JSON" and source.get("filter") is not None:
        yield broken(
            f"{path}.source.filter",
            "must be left out for JSON",
            source["filter"],
            "remove the filter",
        )
    if kind == "TensorFlowEvent" and form:
        yield broken(where, "must be left out", form, "remove the format")
    if kind == "Custom" and given.get("customCollector") is None:
        yield broken(
            f"{path}.collector.customCollector",
            "must be given",
            None,
            "give the container that collects",
        )
    if kind not in ("StdOut", "Push"):  # there the webhook looks no further: see checks.py
        yield from bad_patterns(experiment)


def bad_patterns(experiment: Experiment) -> Iterator[Violation]:
    """Yield the metricsFormats that Katib cannot use."""
    for pattern in experiment.collector.filters:
        try:
            compile_format(pattern)
        except InvalidInput as error:
            where = "spec.metricsCollectorSpec.source.filter.metricsFormat"
            yield broken(where, "must be a Go pattern with two groups", pattern, error.message)


def _refusals(experiment: Experiment) -> list[Finding]:
    """Return the findings of Katib's webhooks about an Experiment."""
    return apply(KIND, experiment) or apply(WEBHOOK, experiment)

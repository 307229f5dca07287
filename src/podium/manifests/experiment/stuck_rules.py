"""Rules for Experiments that Katib admits but never finishes, or that podium does not run, each
with a hint.

Observed on a real Katib 0.19: an unused search parameter, a quote in a value, a grid smaller than
maxTrialCount, words for numbers and more leave an Experiment in Created or Running for good
(docs/katib-differences.md).
"""

from collections.abc import Iterator, Mapping

from podium.errors import InvalidInput, suggestion
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.space import NUMERIC, PODS, SPACE
from podium.manifests.experiment.template import fill, meta_key, meta_value, parse_condition
from podium.manifests.experiment.webhook_rules import bad_patterns
from podium.manifests.fields import mapping, numbered, text
from podium.manifests.kinds import JOB_KINDS, MPIJOB, or_list
from podium.manifests.labels import SWEEP
from podium.manifests.options import OPTIONS, read_annotation
from podium.manifests.rules import (
    PODIUM,
    Rules,
    Violation,
    broken,
    one_of,
    shorten,
)
from podium.manifests.trainjob import NODE
from podium.search.algorithm import Algorithm, Setting
from podium.search.algorithms import ALGORITHMS
from podium.search.space import count_points

OTHER_SWEEPS = Rules[Experiment]()
STUCK = Rules[Experiment]()
SEARCH = Rules[Experiment]()


_STUCK = "Katib accepts it and never ends, or ends without a trial; podium refuses it."
_NOT_RUN = "podium refuses it; whether it works on a cluster is not examined."
stuck, stuck_search = (
    table.rule("fail", _STUCK, "accepted-but-stuck", refuses=True) for table in (STUCK, SEARCH)
)
not_run, other_sweep = (
    table.rule("warn", _NOT_RUN, "not-run-by-podium", runner=PODIUM, refuses=True)
    for table in (STUCK, OTHER_SWEEPS)
)


def _unsupported(where: str, runs: str, requested: str, hint: str | None = None) -> Violation:
    """Return the violation for a feature that podium does not run although a cluster may.

    Args:
        runs: A sentence about podium's own behavior: ``podium collects from StdOut, …``.
        requested: Text after ", not" in the sentence.
    """
    instead = f"podium cannot tell whether a cluster runs it; to run it here, change {where}"
    return Violation(f"{runs}, not {requested}", where, hint or instead)


@other_sweep
def _architectures(experiment: Experiment) -> Iterator[Violation]:
    if experiment.spec.get("nasConfig") is not None:
        runs = "podium runs Experiments that search over spec.parameters"
        requested = "one that searches for a neural network's architecture (nasConfig)"
        hint = "this kind of Experiment needs Katib and its service enas or darts; no parameter is missing"
        yield _unsupported("spec.nasConfig", runs, requested, hint)


@other_sweep
def _template_in_cluster(experiment: Experiment) -> Iterator[Violation]:
    template = experiment.template.manifest
    if template.get("trialSpec") is None:
        config_map = mapping(template.get("configMap"))
        runs = "podium reads the trial's job from the Experiment's own file or a ConfigMap that it is given"
        requested = f"from ConfigMap {text(config_map.get('configMapName'))} in a cluster"
        hint = "kubectl get configmap NAME -o yaml > templates.yaml, and --template templates.yaml"
        yield _unsupported("spec.trialTemplate.configMap", runs, requested, hint)


@stuck
def _search_space(experiment: Experiment) -> Iterator[Violation]:
    names: set[str] = set()
    for parameter in experiment.written_space:
        name, where = parameter.name, f"{parameter.path}.name"
        if not name:
            yield broken(where, "must be given", name, SPACE)
            continue
        if name in names:
            yield broken(where, "must be unique", name, "remove one")
        names.add(name)
        yield from parameter.problems()


@not_run
def _lists(experiment: Experiment) -> Iterator[Violation]:
    for parameter in experiment.written_space:
        choices = parameter.choices
        twice = sorted({value for value in choices if choices.count(value) > 1})
        if twice and parameter.kind not in NUMERIC:
            runs = "podium searches a list in which each value stands once"
            where = f"{parameter.path}.feasibleSpace.list"
            yield _unsupported(where, runs, f"{shorten(twice)} twice")


@stuck
def _strategies(experiment: Experiment) -> Iterator[Violation]:
    strategies = mapping(experiment.spec.get("objective")).get("metricStrategies")
    for path, strategy in numbered("spec.objective.metricStrategies", strategies):
        yield from one_of(f"{path}.value", strategy.get("value"), ("min", "max", "latest"))


def _each_setting(
    experiment: Experiment,
) -> Iterator[tuple[Algorithm, str, str, str, Setting | None]]:
    """Yield, for each setting of a known algorithm: the algorithm, the setting's path, name and
    value, and its declaration."""
    specs = {"algorithm": experiment.algorithm, "earlyStopping": experiment.early_stopping}
    for path, spec in specs.items():
        if spec and spec.facts.settings:
            for index, (name, value) in enumerate(spec.given):
                where = f"spec.{path}.algorithmSettings[{index}]"
                yield spec.facts, where, name, value, spec.facts.settings.get(name)


@stuck
def _settings(experiment: Experiment) -> Iterator[Violation]:
    for algorithm, where, name, value, setting in _each_setting(experiment):
        settings = algorithm.settings
        if setting is None and not algorithm.drops_unknown_settings:
            must = f"must be a setting of {algorithm.name}: {', '.join(settings)}"
            yield broken(f"{where}.name", must, name, suggestion(name, settings))
        elif setting and value not in setting.katib and setting.read(value) is None:
            hint = f"give {setting.kind}, in quotes"
            yield broken(f"{where}.value", f"must be {setting.kind} for {name}", value, hint)


@not_run
def _algorithms(experiment: Experiment) -> Iterator[Violation]:
    if experiment.algorithm.name not in ALGORITHMS:
        runs = f"podium searches with {', '.join(ALGORITHMS)}"
        yield _unsupported("spec.algorithm.algorithmName", runs, experiment.algorithm.name)
    for algorithm, where, name, value, setting in _each_setting(experiment):
        runs = f"podium runs {algorithm.name} with"
        if setting is None and algorithm.drops_unknown_settings:
            supported = f"{runs} settings {', '.join(algorithm.settings)}"
            yield _unsupported(f"{where}.name", supported, name)
        elif setting and value in setting.katib:
            supported = f"{runs} {name} {setting.kind.removeprefix('one of ')}"
            yield _unsupported(f"{where}.value", supported, value)


@not_run
def _other_jobs(experiment: Experiment) -> Iterator[Violation]:
    template, job = experiment.template, experiment.template.workload
    if not template.is_supported:
        kinds = or_list([f"{kind} ({version})" for kind, version in JOB_KINDS.items()])
        runs, requested = f"podium runs trials of kind {kinds}", f"{job.kind} ({job.api_version})"
        yield _unsupported("spec.trialTemplate.trialSpec.kind", runs, requested)
        return
    for field in ("successCondition", "failureCondition"):
        condition = text(template.manifest.get(field))
        try:
            parse_condition(condition)
        except InvalidInput:
            runs = 'podium understands conditions of field names and #(field=="text") queries'
            yield _unsupported(f"spec.trialTemplate.{field}", runs, shorten(condition))


@stuck
def _pods(experiment: Experiment) -> Iterator[Violation]:
    template, job = experiment.template, experiment.template.workload
    if not template.is_supported:
        return
    pods = [replica.pod.manifest.get("spec") for replica in job.replicas]
    if not pods or not all(isinstance(pod, Mapping) for pod in pods):
        must = "must have a pod template for every replica"
        yield broken("spec.trialTemplate.trialSpec", must, job.spec, PODS)
        return
    path, name = "spec.trialTemplate.primaryContainerName", template.primary_container
    required = job.operator.container if job.operator else NODE if job.has_roles else ""
    if required and name != required:
        yield broken(path, f"must be {required} for a {job.kind}", name, f"set it to {required}")
    wanted = required or name
    for replica in job.replicas:
        if job.kind == MPIJOB and replica.role == "Worker":
            continue  # mpirun starts it from the launcher's container, whatever its own is called
        if replica.pod.container(wanted) is None:
            names, role = (
                [container.name for container in replica.pod.containers],
                replica.role or "trial",
            )
            problem = f"the {role}'s pod has no container {wanted!r}, only {names}"
            hint = f"call the container that trains {wanted}"
            hint += "" if required else ", or change primaryContainerName"
            yield Violation(problem, path, hint)
    if job.has_roles and "." in experiment.name:
        yield broken("metadata.name", "must have no dot", experiment.name, "pods need DNS labels")


@stuck
def _references(experiment: Experiment) -> Iterator[Violation]:
    template = experiment.template
    if not template.is_supported:
        return
    referenced = {reference for _, reference in template.parameters}
    names = (parameter.name for parameter in experiment.space)
    if unused := [name for name in names if name not in referenced]:
        hint = "refer to it in trialParameters, or remove it"
        yield broken("spec.parameters", "must each have a trialParameter", unused, hint)
    for index, (_, reference) in enumerate(template.parameters):
        key = meta_key(reference)
        if key and meta_value(key, template.workload.manifest, "n", "n") is None:
            where = f"spec.trialTemplate.trialParameters[{index}].reference"
            must = "must be a label or annotation of the trialSpec"
            yield broken(where, must, reference, "give it to trialSpec.metadata")


@not_run
def _asked(experiment: Experiment) -> Iterator[Violation]:
    path = f"metadata.annotations[{SWEEP}]"
    try:
        values = read_annotation(experiment.annotations)
    except InvalidInput as error:
        yield Violation(error.message, path, error.hint)
        return
    for kind in OPTIONS:
        try:
            if option := kind.of(values):
                option.check(experiment)
        except InvalidInput as error:
            yield Violation(error.message, path, error.hint)


@stuck
def _values(experiment: Experiment) -> Iterator[Violation]:
    template = experiment.template
    names = {reference: name for name, reference in template.parameters}
    for written in experiment.written_space if template.is_supported else ():
        parameter = written.read()
        for value in parameter.samples() if parameter else ():
            try:
                fill(template.workload.manifest, {names.get(written.name, ""): value})
            except InvalidInput as error:
                must = "must leave the trial template readable"
                yield broken(f"{written.path}.feasibleSpace.list", must, value, error.hint)


@not_run
def _collectors(experiment: Experiment) -> Iterator[Violation]:
    kind, metric = experiment.collector.kind, experiment.objective.metric
    if kind in ("StdOut", "File", "TensorFlowEvent", "Push"):
        return
    hint = f"print {metric}=0.9 once an epoch, and collect from StdOut"
    if kind != "PrometheusMetric":
        path = experiment.collector.path or "/var/log/metrics"
        hint = (
            f"collect from File, fileSystemPath {{kind: File, path: {path}, format: TEXT}}, "
            "and say in filter.metricsFormat what the collector's container looks for"
        )
    runs = "podium collects metrics from StdOut, File, TensorFlowEvent or Push"
    yield _unsupported("spec.metricsCollectorSpec.collector.kind", runs, kind, hint)


stuck(bad_patterns)


@stuck_search
def _steps(experiment: Experiment) -> Iterator[Violation]:
    algorithm, most, space = (
        experiment.algorithm.facts,
        experiment.limits.max_trials,
        experiment.space,
    )
    bare = [each.name for each in space if each.numeric and each.step is None]
    if algorithm.needs_steps and bare:
        must = f"must each have a step for {algorithm.name}"
        hint = (
            f"give feasibleSpace.step, in podium tune --{bare[0]} LOW..HIGH:STEP, "
            "in Python podium.Float(LOW, HIGH, step=STEP)"
        )
        yield broken("spec.parameters", must, bare, hint)
    elif algorithm.is_finite and most is not None:
        points = count_points(space, beyond=most)
        if most > points:
            rule = f"maxTrialCount <= points of the {algorithm.name}"
            hint = f"set maxTrialCount to {points} or less"
            yield broken("spec.maxTrialCount", rule, f"{most} > {points}", hint)
    bounded = sum(parameter.numeric for parameter in space)
    if algorithm.needs_two_numbers and bounded < 2:
        must = f"must hold two double or int for {algorithm.name}"
        yield broken("spec.parameters", must, bounded, "use tpe or random")


@stuck_search
def _required_settings(experiment: Experiment) -> Iterator[Violation]:
    algorithm, settings = experiment.algorithm.facts, experiment.algorithm.settings
    path = "spec.algorithm.algorithmSettings"
    if missing := [name for name in algorithm.required if name not in settings]:
        problem = f"{algorithm.name} needs the settings {', '.join(missing)}"
        yield Violation(problem, path, algorithm.example)
    if algorithm.keeps_files and experiment.resume_policy != "FromVolume":
        must = f"must be FromVolume for {algorithm.name}, which keeps its trials' files on a volume"
        yield broken("spec.resumePolicy", must, experiment.resume_policy, "set it to FromVolume")
    if missing:
        return
    names = [parameter.name for parameter in experiment.space]
    if algorithm.has_resource and (resource := settings["resource_name"]) not in names:
        must = "must name a parameter as resource_name"
        yield broken(path, must, resource, suggestion(resource, names))
    least, reason = algorithm.at_once(settings) if algorithm.at_once else (1, "")
    parallel = experiment.limits.parallel
    if parallel < least:
        rule = f"parallelTrialCount >= {least} for {reason}"
        yield broken("spec.parallelTrialCount", rule, parallel, f"set it to {least}")

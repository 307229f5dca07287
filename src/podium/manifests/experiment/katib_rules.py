"""Rules about Experiments that Katib accepts but runs otherwise than meant, or never ends by
itself."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from podium.errors import PodiumError, suggestion
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.schema import EXPERIMENT
from podium.manifests.fields import mapping
from podium.manifests.kinds import MPIJOB
from podium.manifests.labels import SWEEP
from podium.manifests.options import OPTIONS, SweepOption
from podium.manifests.rules import KATIB, Rules, Violation
from podium.manifests.structure import Schema
from podium.metrics import STRICT_FORMAT, is_share, number, parse_line
from podium.search.space import DISTRIBUTIONS

EXPERIMENT_RULES = Rules[Experiment]()
rule = EXPERIMENT_RULES.rule
refused = partial(rule, runner=KATIB, refuses=True)
TRAP = "accepted-with-a-trap"
trap = rule("warn", "Katib accepts it.", TRAP)

_LOSS = re.compile(r"^loss$|batch|train", re.IGNORECASE)


@refused(
    "fail",
    "Without retain a stopped trial loses its metrics and the Experiment runs for good (katib#1377).",
)
def _early_stopping_without_retain(experiment: Experiment) -> Iterator[Violation]:
    if experiment.early_stopping and not experiment.template.retain:
        where = "spec.trialTemplate.retain"
        yield Violation("early stopping without retain: true", where, "set retain: true")


@rule(
    "warn",
    "Katib stores an empty text for `loss=nan`; the trial succeeds and can be named the best (katib#2723).",
)
def _bad_values_count(experiment: Experiment) -> Iterator[Violation]:
    if not experiment.collector.reads_text:
        return
    for name in experiment.objective.metrics[:1]:
        try:
            readings = parse_line(
                f"{name}=nan {name}=tensor(1)", [name], experiment.collector.filters or None
            )
        except (PodiumError, UnicodeError):
            return  # the pattern itself is reported by admission; half a character is in no line
        if any(number(reading.value) is None for reading in readings):
            goal = experiment.objective.goal
            ends = not experiment.objective.maximize and goal is not None and goal >= 0
            more = (
                "; the next number after it then ends the Experiment as goal reached"
                if ends
                else ""
            )
            where = "spec.metricsCollectorSpec.source.filter.metricsFormat"
            hint = r"let it ask for a digit: ([\w|-]+)\s*=\s*([+-]?\d+(\.\d+)?([Ee][+-]?\d+)?)"
            yield Violation(f"a line `{name}=nan` is taken as a value{more}", where, hint)


@trap
def _exponents(experiment: Experiment) -> Iterator[Violation]:
    """Yield the filter that reads 1.5e-05 as 1.5: such a trial is judged by a wrong value."""
    if not experiment.collector.reads_text or not experiment.collector.filters:
        return
    name = experiment.objective.metric
    try:
        found = parse_line(f"{name}=1.5e-05 ", [name], experiment.collector.filters)
    except (PodiumError, UnicodeError):
        return
    if any(number(reading.value) == 1.5 for reading in found):
        what = f"metricsFormat reads {name}=1.5e-05 as {name}=1.5"
        where = "spec.metricsCollectorSpec.source.filter.metricsFormat"
        yield Violation(what, where, f"let it read exponents: {STRICT_FORMAT}")


@rule("fail", "Katib's own pattern finds names of ASCII letters, digits, _, - and | only.")
def _metric_cannot_be_found(experiment: Experiment) -> Iterator[Violation]:
    if not experiment.collector.reads_text or experiment.collector.filters:
        return
    for index, name in enumerate(experiment.objective.metrics):
        if not re.fullmatch(r"[\w|-]+", name, re.ASCII):
            where = "spec.objective." + (
                "additionalMetricNames" if index else "objectiveMetricName"
            )
            hint = (
                "choose a name of letters, digits, _ and -, or write a metricsFormat that finds it"
            )
            level = "warn" if index else None
            yield Violation(f"no line can report {name!r}", where, hint, level=level)


@rule(
    "warn",
    "With the default strategy min, a loss printed for each batch makes the luckiest batch the objective.",
)
def _batch_loss_may_be_the_objective(experiment: Experiment) -> Iterator[Violation]:
    name = experiment.objective.metric
    explicit = name in experiment.written_objective.strategies
    lowest = experiment.objective.strategy == "min" and not explicit
    if experiment.collector.reads_text and _LOSS.search(name) and lowest:
        hint = f"print batches under another name (train_loss=…), and write the strategy of {name} down"
        where = "spec.objective.metricStrategies"
        yield Violation(f"{name} is minimized over everything printed", where, hint)


@rule(
    "warn",
    "A trial's value is the strategy's: with the opposite one, trials are judged by their worst epoch.",
)
def _strategy_against_the_objective(experiment: Experiment) -> Iterator[Violation]:
    name = experiment.objective.metric
    against = "min" if experiment.objective.maximize else "max"
    if experiment.objective.strategies.get(name) == against:
        what = f"{experiment.objective.direction} {name} with strategy {against}"
        hint = "use the objective's own direction, or latest"
        yield Violation(what, "spec.objective.metricStrategies", hint)


@rule(
    "warn", "Goals are on the scale of what is printed: accuracy=0.95 never reaches a goal of 95."
)
def _goal_on_another_scale(experiment: Experiment) -> Iterator[Violation]:
    name, goal = experiment.objective.metric, experiment.objective.goal
    if goal is not None and goal > 1 and is_share(name):
        what = f"the goal {goal:g} is above 1 for {name}"
        yield Violation(
            what, "spec.objective.goal", "print and compare fractions, or percent, not both"
        )


@rule(
    "warn",
    "Without maxTrialCount trials are made until the goal is reached or the algorithm has no more.",
)
def _trials_without_end(experiment: Experiment) -> Iterator[Violation]:
    if experiment.limits.max_trials is None and not experiment.algorithm.facts.is_finite:
        yield Violation("no maxTrialCount", "spec.maxTrialCount", "set it")


@rule("warn", "Without maxFailedTrialCount an Experiment all of whose trials failed is Succeeded.")
def _failures_without_limit(experiment: Experiment) -> Iterator[Violation]:
    if experiment.limits.max_failed is None:
        yield Violation(
            "no maxFailedTrialCount", "spec.maxFailedTrialCount", "set it, for example to 3"
        )


@rule("note", "maxFailedTrialCount 0 acts as 1: the first failure ends the Experiment.")
def _no_failures_allowed(experiment: Experiment) -> Iterator[Violation]:
    if experiment.limits.max_failed == 0:
        yield Violation("maxFailedTrialCount is 0", "spec.maxFailedTrialCount", "write 1, or more")


@rule("warn", "A search service that does not know a distribution drops it without a word.")
def _distribution_ignored(experiment: Experiment) -> Iterator[Violation]:
    for index, parameter in enumerate(experiment.space):
        shape = parameter.distribution
        known = DISTRIBUTIONS[1:]  # all algorithms draw uniformly
        if (
            not parameter.numeric
            or shape not in known
            or shape in experiment.algorithm.facts.distributions
        ):
            continue
        where = f"spec.parameters[{index}].feasibleSpace.distribution"
        hint = "use random or tpe (any distribution) or multivariate-tpe (logUniform); or search the exponent"
        yield Violation(
            f"{experiment.algorithm.name} ignores {shape} of {parameter.name}", where, hint
        )


@refused(
    "fail",
    "bayesianoptimization samples every double on a log scale, whatever the distribution says.",
)
def _bayesian_from_zero(experiment: Experiment) -> Iterator[Violation]:
    for index, parameter in enumerate(experiment.space):
        if (
            experiment.algorithm.facts.always_log
            and parameter.kind == "double"
            and parameter.low <= 0
        ):
            where = f"spec.parameters[{index}].feasibleSpace.min"
            yield Violation(f"{parameter.name} begins at {parameter.low:g}", where, "begin above 0")


@rule("warn", "Trials that run at once cannot learn from each other.")
def _nothing_to_learn_from(experiment: Experiment) -> Iterator[Violation]:
    parallel, most = experiment.limits.parallel, experiment.limits.max_trials
    if experiment.algorithm.facts.warm_trials and most is not None and 1 < most <= parallel:
        what = (
            f"all {most} trials run at once: {experiment.algorithm.name} is no better than random"
        )
        yield Violation(what, "spec.parallelTrialCount", "run fewer in parallel")


@refused(
    "fail",
    "Katib asks again for as many trials as before, gets a third of them, refuses the answer and never ends.",
)
def _hyperband_past_its_first_rung(experiment: Experiment) -> Iterator[Violation]:
    parallel, most, algorithm = (
        experiment.limits.parallel,
        experiment.limits.max_trials,
        experiment.algorithm.facts,
    )
    if not algorithm.at_once or (most is not None and most <= parallel):
        return
    count = f"maxTrialCount is {most}" if most else "there is no maxTrialCount"
    what = (
        f"{count}, but Katib's {algorithm.name} stops answering after the first {parallel} trials"
    )
    hint = f"set maxTrialCount to parallelTrialCount, {parallel}; podium experiment run continues with the other rungs"
    yield Violation(what, "spec.maxTrialCount", hint)


@refused("warn", "asha is podium's own; Katib's webhook refuses it.")
def _only_podium_knows_it(experiment: Experiment) -> Iterator[Violation]:
    if not experiment.algorithm.facts.in_katib:
        what = f"{experiment.algorithm.name} runs on this machine only"
        yield Violation(what, "spec.algorithm.algorithmName", "use random or tpe on a cluster")


def _without_podium(option: type[SweepOption]) -> None:
    """Add the rule about an option that Katib ignores when it runs the Experiment."""
    katib = option.katib
    if katib is None:
        return

    def look(experiment: Experiment) -> Iterator[Violation]:
        asked = [f"{name}: {experiment.asked[name]}" for name in names if name in experiment.asked]
        if asked:
            path = f"metadata.annotations[{SWEEP}]"
            yield Violation(f"{katib.what} ({', '.join(asked)})", path, katib.hint)

    names = [setting.name for setting in option.settings]
    name = f"{option.title.replace(' ', '-')}-without-podium"
    rule(katib.level, katib.why, name, runner=KATIB, refuses=katib.refuses)(look)


for _option in OPTIONS:
    _without_podium(_option)


@refused(
    "fail", "Katib gives the search service the Experiment's name; a Service's name has no dot."
)
def _name_with_a_dot(experiment: Experiment) -> Iterator[Violation]:
    if (
        "." in experiment.name and not experiment.template.workload.has_roles
    ):  # of those the checks of manifests speak
        yield Violation(f"the name {experiment.name} has a dot", "metadata.name", "use a dash")


@rule(
    "note",
    "With LongRunning Katib keeps the Deployment of the search service until the Experiment is deleted.",
)
def _search_service_stays(experiment: Experiment) -> Iterator[Violation]:
    if experiment.resume_policy == "LongRunning":
        what = "a pod of the search service stays after the end"
        yield Violation(what, "spec.resumePolicy", "set Never unless you will raise maxTrialCount")


@rule(
    "note",
    "The JSON format wants one object a line whose values are texts; numbers are passed over without a word.",
)
def _json_values_are_texts(experiment: Experiment) -> Iterator[Violation]:
    if experiment.collector.reads_json:
        name = experiment.objective.metric or "loss"
        where = "spec.metricsCollectorSpec.source.fileSystemPath.format"
        yield Violation(
            f'write {{"{name}": "0.9"}}, not {{"{name}": 0.9}}', where, "quote the values"
        )


@rule("warn", "Katib's default configuration has no collector image for PrometheusMetric.")
def _collector_without_image(experiment: Experiment) -> Iterator[Violation]:
    if experiment.collector.kind == "PrometheusMetric":
        where = "spec.metricsCollectorSpec.collector.kind"
        yield Violation("the collector is PrometheusMetric", where, "use StdOut")


@rule(
    "fail",
    "Katib's webhook refuses every pod of a trial that lacks the primary container: they never start.",
)
def _workers_lack_the_container(experiment: Experiment) -> Iterator[Violation]:
    job, name = experiment.template.workload, experiment.template.primary_container
    worker = job.replica("Worker") if job.kind == MPIJOB else None
    if worker and worker.pod.container(name) is None:
        names = [container.name for container in worker.pod.containers]
        what = f"the Worker's pod has no container {name!r}, only {names}"
        where = "spec.trialTemplate.primaryContainerName"
        yield Violation(what, where, f"call the Worker's container {name}, too")


@trap
def _strategies_of_no_metric(experiment: Experiment) -> Iterator[Violation]:
    """Yield names that no metric has: Katib passes them over, and takes its default instead."""
    metrics = experiment.objective.metrics
    for index, name in enumerate(experiment.written_objective.strategies):
        if name not in metrics:
            where = f"spec.objective.metricStrategies[{index}].name"
            what = f"{name} is no metric of this objective: Katib passes the strategy over"
            yield Violation(what, where, suggestion(name, metrics))


@trap
def _commands(experiment: Experiment) -> Iterator[Violation]:
    for _, container in experiment.wrapped_containers():
        if not container.command:
            hint = "without it Katib must read the image's entrypoint from its registry"
            yield Violation(
                "the wrapped container has no command", f"{container.path}.command", hint
            )


@trap
def _unknown_fields(experiment: Experiment) -> Iterator[Violation]:
    """Yield fields that no Experiment has: Katib drops them without a word."""
    return _unknown(mapping(experiment.manifest.get("spec")), EXPERIMENT["spec"], "spec")


def _unknown(value: Any, schema: Schema, path: str) -> Iterator[Violation]:
    if isinstance(schema, list):
        for index, item in enumerate(value or []):
            yield from _unknown(item, schema[0], f"{path}[{index}]")
    elif isinstance(schema, dict):
        for field, inner in (value or {}).items():
            where = f"{path}.{field}"
            if field not in schema:
                hint = suggestion(str(field), schema)
                yield Violation(f"{path} has no field {field}: Katib drops it", where, hint)
            elif where != "spec.trialTemplate.trialSpec":  # its own kind knows its fields
                yield from _unknown(inner, schema[field], where)

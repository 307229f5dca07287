"""Rules about Experiments that Katib accepts but runs otherwise than meant, or never ends by
itself."""

import re
from collections.abc import Iterator
from functools import partial

from podium.errors import PodiumError, suggestion
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.schema import EXPERIMENT
from podium.manifests.fields import mapping
from podium.manifests.kinds import MPIJOB
from podium.manifests.labels import SWEEP
from podium.manifests.options import OPTIONS, SweepOption
from podium.manifests.options.base import UnderKatib
from podium.manifests.rules import KATIB, Rules, Violation
from podium.manifests.structure import unknown_fields
from podium.metrics import STRICT_FORMAT, number, parse_line
from podium.metrics.goals import is_share, less_is_better
from podium.search.space import DISTRIBUTIONS

EXPERIMENT_RULES = Rules[Experiment]()
rule = EXPERIMENT_RULES.rule
refused = partial(rule, runner=KATIB, refuses=True)
TRAP, BY_ANOTHER_USER = "accepted-with-a-trap", "early-stopping-by-another-user"
trap = rule("warn", "Katib accepts it.", TRAP)

_LOSS = re.compile(r"^loss$|batch|train", re.IGNORECASE)
_SPENT = re.compile(r"peak|memory|time|seconds|duration", re.IGNORECASE)
"""Names of what grows while a trial runs: its largest value is that of the whole trial."""

_FORMATS = "spec.metricsCollectorSpec.source.filter.metricsFormat"
_STRATEGIES = "spec.objective.metricStrategies"


@refused(
    "fail",
    "Without retain a stopped trial loses its metrics and the Experiment runs for good (katib#1377).",
    where="spec.trialTemplate.retain",
    hint="set retain: true",
)
def _early_stopping_without_retain(experiment: Experiment) -> Iterator[Violation]:
    if experiment.early_stopping and not experiment.template.retain:
        yield Violation("early stopping without retain: true")


@rule(
    "warn",
    "Its collector, root by default, marks a stopped trial in a file closed to the trial's user: it never ends.",
    BY_ANOTHER_USER,
    hint="set runAsUser in the securityContext of the trial's pod, 1000 with podium's image: its collector gets that"
    " user, too",
    runner=KATIB,
)
def _early_stopping_by_another_user(experiment: Experiment) -> Iterator[Violation]:
    stops = experiment.early_stopping and experiment.collector.kind in ("StdOut", "File")
    for replica, container in experiment.wrapped_containers() if stops else ():
        pod = mapping(replica.pod.spec.get("securityContext"))
        context = {**pod, **mapping(container.manifest.get("securityContext"))}
        user = context.get("runAsUser", context.get("runAsNonRoot"))
        if user and user != pod.get("runAsUser"):
            problem = "Katib stops only trials that run as its collector's user"
            yield Violation(problem, f"{container.path}.securityContext")


def _taken(experiment: Experiment, line: str) -> list[float | None]:
    """Return the values of the objective that the collector takes from a line with NAME for it.

    A pattern that does not work is reported by admission; half a character is in no line.
    """
    name, filters = experiment.objective.metric, experiment.collector.filters
    if not experiment.collector.reads_text or not name:
        return []
    try:
        readings = parse_line(line.replace("NAME", name), [name], filters or None)
    except (PodiumError, UnicodeError):
        return []
    return [number(reading.value) for reading in readings]


@rule(
    "warn",
    "Katib stores an empty text for `loss=nan`; the trial succeeds and can be named the best (katib#2723).",
    where=_FORMATS,
    hint=r"let it ask for a digit: ([\w|-]+)\s*=\s*([+-]?\d*\.?\d+([Ee][+-]?\d+)?)",
)
def _bad_values_count(experiment: Experiment) -> Iterator[Violation]:
    if None in _taken(experiment, "NAME=nan NAME=tensor(1)"):
        name, goal = experiment.objective.metric, experiment.objective.goal
        problem = f"a line `{name}=nan` is taken as a value"
        if not experiment.objective.maximize and goal is not None and goal >= 0:
            problem += "; the next number after it then ends the Experiment as goal reached"
        yield Violation(problem)


@rule(
    "warn",
    "Katib accepts it.",
    TRAP,
    where=_FORMATS,
    hint=f"let it read exponents: {STRICT_FORMAT}",
)
def _exponents(experiment: Experiment) -> Iterator[Violation]:
    name = experiment.objective.metric
    if experiment.collector.filters and 1.5 in _taken(experiment, "NAME=1.5e-05 "):
        yield Violation(f"metricsFormat reads {name}=1.5e-05 as {name}=1.5")


@rule(
    "fail",
    "Katib's own pattern finds names of ASCII letters, digits, _, - and | only.",
    hint="choose a name of letters, digits, _ and -, or write a metricsFormat that finds it",
)
def _metric_cannot_be_found(experiment: Experiment) -> Iterator[Violation]:
    if not experiment.collector.reads_text or experiment.collector.filters:
        return
    for index, name in enumerate(experiment.objective.metrics):
        if not re.fullmatch(r"[\w|-]+", name, re.ASCII):
            field = "additionalMetricNames" if index else "objectiveMetricName"
            level = "warn" if index else None
            yield Violation(f"no line can report {name!r}", f"spec.objective.{field}", level=level)


@rule(
    "warn",
    "With the default strategy min, a loss printed for each batch makes the luckiest batch the objective.",
    where=_STRATEGIES,
)
def _batch_loss_may_be_the_objective(experiment: Experiment) -> Iterator[Violation]:
    name = experiment.objective.metric
    explicit = name in experiment.written_objective.strategies
    lowest = experiment.objective.strategy == "min" and not explicit
    if experiment.collector.reads_text and _LOSS.search(name) and lowest:
        hint = f"print batches under another name (train_loss=…), and write the strategy of {name} down"
        yield Violation(f"{name} is minimized over everything printed", hint=hint)


@rule(
    "warn",
    "A trial's value is the strategy's: with the opposite one, trials are judged by their worst epoch.",
    where=_STRATEGIES,
    hint="use the objective's own direction, or latest",
)
def _strategy_against_the_objective(experiment: Experiment) -> Iterator[Violation]:
    objective = experiment.objective
    against = "min" if objective.maximize else "max"
    if objective.strategies.get(objective.metric) == against:
        yield Violation(f"{objective.direction} {objective.metric} with strategy {against}")


@rule(
    "warn",
    "Without a strategy an additional metric has the objective's: the max of a loss is its worst epoch.",
    where=_STRATEGIES,
)
def _additional_metric_at_its_worst(experiment: Experiment) -> Iterator[Violation]:
    objective, written = experiment.objective, experiment.written_objective.strategies
    for name in objective.additional:
        less = less_is_better(name)
        against = less if objective.maximize else is_share(name) and not less
        if against and name not in written and not _SPENT.search(name):
            own, other = ("min", "max") if less else ("max", "min")
            hint = f"{{name: {name}, value: latest}}, or {own}"
            yield Violation(f"of {name} the {other} is recorded", hint=hint)


@rule(
    "warn",
    "Goals are on the scale of what is printed: accuracy=0.95 never reaches a goal of 95.",
    where="spec.objective.goal",
    hint="print and compare fractions, or percent, not both",
)
def _goal_on_another_scale(experiment: Experiment) -> Iterator[Violation]:
    name, goal = experiment.objective.metric, experiment.objective.goal
    if goal is not None and goal > 1 and is_share(name):
        yield Violation(f"the goal {goal:g} is above 1 for {name}")


@rule(
    "warn",
    "Without maxTrialCount trials are made until the goal is reached or the algorithm has no more.",
    where="spec.maxTrialCount",
    hint="set it",
)
def _trials_without_end(experiment: Experiment) -> Iterator[Violation]:
    if experiment.limits.max_trials is None and not experiment.algorithm.facts.is_finite:
        yield Violation("no maxTrialCount")


@rule(
    "warn",
    "Without maxFailedTrialCount an Experiment all of whose trials failed is Succeeded.",
    where="spec.maxFailedTrialCount",
    hint="set it, for example to 3",
)
def _failures_without_limit(experiment: Experiment) -> Iterator[Violation]:
    if experiment.limits.max_failed is None:
        yield Violation("no maxFailedTrialCount")


@rule(
    "note",
    "maxFailedTrialCount 0 acts as 1: the first failure ends the Experiment.",
    where="spec.maxFailedTrialCount",
    hint="write 1, or more",
)
def _no_failures_allowed(experiment: Experiment) -> Iterator[Violation]:
    if experiment.limits.max_failed == 0:
        yield Violation("maxFailedTrialCount is 0")


@rule(
    "warn",
    "A search service that does not know a distribution drops it without a word.",
    hint="use random or tpe (any distribution) or multivariate-tpe (logUniform); or search the exponent",
)
def _distribution_ignored(experiment: Experiment) -> Iterator[Violation]:
    algorithm = experiment.algorithm
    ignored = {*DISTRIBUTIONS[1:]} - {*algorithm.facts.distributions}  # all draw uniformly
    for index, parameter in enumerate(experiment.space):
        if parameter.numeric and parameter.distribution in ignored:
            where = f"spec.parameters[{index}].feasibleSpace.distribution"
            problem = f"{algorithm.name} ignores {parameter.distribution} of {parameter.name}"
            yield Violation(problem, where)


@refused(
    "fail",
    "bayesianoptimization samples every double on a log scale, whatever the distribution says.",
    hint="begin above 0",
)
def _bayesian_from_zero(experiment: Experiment) -> Iterator[Violation]:
    for index, parameter in enumerate(
        experiment.space if experiment.algorithm.facts.always_log else ()
    ):
        if parameter.kind == "double" and parameter.low <= 0:
            where = f"spec.parameters[{index}].feasibleSpace.min"
            yield Violation(f"{parameter.name} begins at {parameter.low:g}", where)


@rule(
    "warn",
    "Trials that run at once cannot learn from each other.",
    where="spec.parallelTrialCount",
    hint="run fewer in parallel",
)
def _nothing_to_learn_from(experiment: Experiment) -> Iterator[Violation]:
    parallel, most = experiment.limits.parallel, experiment.limits.max_trials
    if experiment.algorithm.facts.warm_trials and most is not None and 1 < most <= parallel:
        name = experiment.algorithm.name
        yield Violation(f"all {most} trials run at once: {name} is no better than random")


@refused(
    "fail",
    "Katib asks again for as many trials as before, gets a third of them, refuses the answer and never ends.",
    where="spec.maxTrialCount",
)
def _hyperband_past_its_first_rung(experiment: Experiment) -> Iterator[Violation]:
    limits, algorithm = experiment.limits, experiment.algorithm.facts
    parallel, most = limits.parallel, limits.max_trials
    if not algorithm.at_once or (most is not None and most <= parallel):
        return
    count = f"maxTrialCount is {most}" if most else "there is no maxTrialCount"
    yield Violation(
        f"{count}, but Katib's {algorithm.name} stops answering after the first {parallel} trials",
        hint=(
            f"set maxTrialCount to parallelTrialCount, {parallel}; "
            "podium experiment run continues with the other rungs"
        ),
    )


@refused(
    "warn",
    "asha is podium's own; Katib's webhook refuses it.",
    where="spec.algorithm.algorithmName",
    hint="use random or tpe on a cluster",
)
def _only_podium_knows_it(experiment: Experiment) -> Iterator[Violation]:
    if not experiment.algorithm.facts.in_katib:
        yield Violation(f"{experiment.algorithm.name} runs on this machine only")


def _without_podium(option: type[SweepOption], katib: UnderKatib) -> None:
    names = [setting.name for setting in option.settings]

    @rule(
        katib.level,
        katib.why,
        f"{option.title.replace(' ', '-')}-without-podium",
        where=f"metadata.annotations[{SWEEP}]",
        hint=katib.hint,
        runner=KATIB,
        refuses=katib.refuses,
    )
    def _look(experiment: Experiment) -> Iterator[Violation]:
        asked = [f"{name}: {experiment.asked[name]}" for name in names if name in experiment.asked]
        if asked:
            yield Violation(f"{katib.what} ({', '.join(asked)})")


for _option in OPTIONS:
    if _option.katib:
        _without_podium(_option, _option.katib)


@refused(
    "fail",
    "Katib gives the search service the Experiment's name; a Service's name has no dot.",
    where="metadata.name",
    hint="use a dash",
)
def _name_with_a_dot(experiment: Experiment) -> Iterator[Violation]:
    # Of jobs with roles the checks of manifests speak.
    if "." in experiment.name and not experiment.template.workload.has_roles:
        yield Violation(f"the name {experiment.name} has a dot")


@rule(
    "note",
    "With LongRunning Katib keeps the Deployment of the search service until the Experiment is deleted.",
    where="spec.resumePolicy",
    hint="set Never unless you will raise maxTrialCount",
)
def _search_service_stays(experiment: Experiment) -> Iterator[Violation]:
    if experiment.resume_policy == "LongRunning":
        yield Violation("a pod of the search service stays after the end")


@rule(
    "note",
    "The JSON format wants one object a line whose values are texts; numbers are passed over without a word.",
    where="spec.metricsCollectorSpec.source.fileSystemPath.format",
    hint="quote the values",
)
def _json_values_are_texts(experiment: Experiment) -> Iterator[Violation]:
    if experiment.collector.reads_json:
        name = experiment.objective.metric or "loss"
        yield Violation(f'write {{"{name}": "0.9"}}, not {{"{name}": 0.9}}')


@rule(
    "warn",
    "Katib's default configuration has no collector image for PrometheusMetric.",
    where="spec.metricsCollectorSpec.collector.kind",
    hint="use StdOut",
)
def _collector_without_image(experiment: Experiment) -> Iterator[Violation]:
    if experiment.collector.kind == "PrometheusMetric":
        yield Violation("the collector is PrometheusMetric")


@rule(
    "fail",
    "Katib's webhook refuses every pod of a trial that lacks the primary container: they never start.",
    where="spec.trialTemplate.primaryContainerName",
)
def _workers_lack_the_container(experiment: Experiment) -> Iterator[Violation]:
    job, name = experiment.template.workload, experiment.template.primary_container
    worker = job.replica("Worker") if job.kind == MPIJOB else None
    if worker and worker.pod.container(name) is None:
        names = [container.name for container in worker.pod.containers]
        problem = f"the Worker's pod has no container {name!r}, only {names}"
        yield Violation(problem, hint=f"call the Worker's container {name}, too")


@trap
def _strategies_of_no_metric(experiment: Experiment) -> Iterator[Violation]:
    metrics = experiment.objective.metrics
    for index, name in enumerate(experiment.written_objective.strategies):
        if name not in metrics:
            problem = f"{name} is no metric of this objective: Katib passes the strategy over"
            yield Violation(problem, f"{_STRATEGIES}[{index}].name", suggestion(name, metrics))


@trap
def _commands(experiment: Experiment) -> Iterator[Violation]:
    for _, container in experiment.wrapped_containers():
        if not container.command:
            problem, where = "the wrapped container has no command", f"{container.path}.command"
            hint = "without it Katib must read the image's entrypoint from its registry"
            yield Violation(problem, where, hint)


@trap
def _unknown_fields(experiment: Experiment) -> Iterator[Violation]:
    spec = mapping(experiment.manifest.get("spec"))
    return unknown_fields(spec, EXPERIMENT["spec"], "spec", ": Katib drops it")

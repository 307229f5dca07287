"""Rules about an Experiment: what Katib accepts and then does otherwise than meant, or never ends."""

import re
from collections.abc import Iterator

from podium.doctor.finding import Hit, Rule, rule
from podium.doctor.pods import items, mapping
from podium.doctor.sweep import Sweep
from podium.errors import PodiumError
from podium.metrics import number, parse_line

HYPEROPT, OPTUNA = ("random", "tpe"), ("grid", "multivariate-tpe")
LEARNING = ("tpe", "multivariate-tpe", "bayesianoptimization", "cmaes")
_LOSS = re.compile(r"^loss$|batch|train", re.IGNORECASE)
_FRACTION = re.compile(r"acc|precision|recall|f1|auc|iou", re.IGNORECASE)


@rule(
    "fail",
    "Without retain a stopped trial loses its metrics and the Experiment runs for good (katib#1377).",
)
def early_stopping_without_retain(sweep: Sweep) -> Iterator[Hit]:
    if sweep.spec.get("earlyStopping") and mapping(sweep.spec.get("trialTemplate")).get("retain") is not True:
        where = "spec.trialTemplate.retain"
        yield Hit(what="early stopping without retain: true", where=where, mend="set retain: true")


@rule("warn", "Katib stores an empty text for `loss=nan`; the trial succeeds and can be named the best (katib#2723).")
def bad_values_count(sweep: Sweep) -> Iterator[Hit]:
    if not sweep.is_text:
        return
    for name in sweep.metrics[:1]:
        try:
            readings = parse_line(f"{name}=nan {name}=tensor(1)", [name], sweep.formats or None)
        except (PodiumError, UnicodeError):
            return  # the pattern itself is reported by admission; half a character is in no line
        if any(number(one.value) is None for one in readings):
            goal = sweep.objective.get("goal")
            ends = sweep.objective.get("type") == "minimize" and goal is not None and goal >= 0
            more = "; the next number after it then ends the Experiment as goal reached" if ends else ""
            where = "spec.metricsCollectorSpec.source.filter.metricsFormat"
            mend = r"let it ask for a digit: ([\w|-]+)\s*=\s*([+-]?\d+(\.\d+)?([Ee][+-]?\d+)?)"
            yield Hit(what=f"a line `{name}=nan` is taken as a value{more}", where=where, mend=mend)


@rule("fail", "Katib's own pattern finds names of ASCII letters, digits, _, - and | only.")
def metric_cannot_be_found(sweep: Sweep) -> Iterator[Hit]:
    for place, name in enumerate(sweep.metrics):
        if sweep.is_text and not sweep.formats and not re.fullmatch(r"[\w|-]+", name, re.ASCII):
            where = "spec.objective." + ("additionalMetricNames" if place else "objectiveMetricName")
            mend = "choose a name of letters, digits, _ and -, or write a metricsFormat that finds it"
            level = "warn" if place else None
            yield Hit(what=f"no line can report {name!r}", where=where, mend=mend, level=level)


@rule("warn", "With the default strategy min, a loss printed for each batch makes the luckiest batch the objective.")
def batch_loss_may_be_the_objective(sweep: Sweep) -> Iterator[Hit]:
    name = (sweep.metrics or [""])[0]
    written = mapping(mapping(sweep.given.get("spec")).get("objective")).get("metricStrategies")
    explicit = any(mapping(one).get("name") == name for one in items(written))
    if sweep.is_text and _LOSS.search(name) and not explicit and sweep.strategies.get(name) == "min":
        mend = f"print batches under another name (train_loss=…), and write the strategy of {name} down"
        where = "spec.objective.metricStrategies"
        yield Hit(what=f"{name} is minimized over everything printed", where=where, mend=mend)


@rule("warn", "A trial's value is the strategy's: with the opposite one, trials are judged by their worst epoch.")
def strategy_against_the_objective(sweep: Sweep) -> Iterator[Hit]:
    name = (sweep.metrics or [""])[0]
    against = {"minimize": "max", "maximize": "min"}.get(str(sweep.objective.get("type")))
    if against and sweep.strategies.get(name) == against:
        what = f"{sweep.objective.get('type')} {name} with strategy {against}"
        mend = "use the objective's own direction, or latest"
        yield Hit(what=what, where="spec.objective.metricStrategies", mend=mend)


@rule("warn", "Goals are on the scale of what is printed: accuracy=0.95 never reaches a goal of 95.")
def goal_on_another_scale(sweep: Sweep) -> Iterator[Hit]:
    name, goal = (sweep.metrics or [""])[0], sweep.objective.get("goal")
    if isinstance(goal, int | float) and goal > 1 and _FRACTION.search(name):
        what = f"the goal {goal:g} is above 1 for {name}"
        yield Hit(what=what, where="spec.objective.goal", mend="print and compare fractions, or percent, not both")


@rule("warn", "Without maxTrialCount trials are made until the goal is reached or the algorithm has no more.")
def trials_without_end(sweep: Sweep) -> Iterator[Hit]:
    if sweep.spec.get("maxTrialCount") is None and sweep.algorithm != "grid":
        yield Hit(what="no maxTrialCount", where="spec.maxTrialCount", mend="set it")


@rule("warn", "Without maxFailedTrialCount an Experiment all of whose trials failed is Succeeded.")
def failures_without_limit(sweep: Sweep) -> Iterator[Hit]:
    if sweep.spec.get("maxFailedTrialCount") is None:
        yield Hit(what="no maxFailedTrialCount", where="spec.maxFailedTrialCount", mend="set it, for example to 3")


@rule("note", "maxFailedTrialCount 0 acts as 1: the first failure ends the Experiment.")
def no_failures_allowed(sweep: Sweep) -> Iterator[Hit]:
    if sweep.spec.get("maxFailedTrialCount") == 0:
        yield Hit(what="maxFailedTrialCount is 0", where="spec.maxFailedTrialCount", mend="write 1, or more")


@rule("warn", "A search service that does not know a distribution drops it without a word.")
def distribution_ignored(sweep: Sweep) -> Iterator[Hit]:
    for place, parameter in enumerate(sweep.space):
        shape = parameter.distribution
        if not parameter.numeric or shape == "uniform" or sweep.algorithm in HYPEROPT:
            continue
        if sweep.algorithm in OPTUNA and shape == "logUniform":
            continue
        where = f"spec.parameters[{place}].feasibleSpace.distribution"
        mend = "use random or tpe (any distribution) or multivariate-tpe (logUniform); or search the exponent"
        yield Hit(what=f"{sweep.algorithm} ignores {shape} of {parameter.name}", where=where, mend=mend)


@rule("fail", "bayesianoptimization samples every double on a log scale, whatever the distribution says.")
def bayesian_from_zero(sweep: Sweep) -> Iterator[Hit]:
    for place, parameter in enumerate(sweep.space):
        if sweep.algorithm == "bayesianoptimization" and parameter.kind == "double" and parameter.low <= 0:
            where = f"spec.parameters[{place}].feasibleSpace.min"
            yield Hit(what=f"{parameter.name} begins at {parameter.low:g}", where=where, mend="begin above 0")


@rule("warn", "Trials that run at once cannot learn from each other.")
def nothing_to_learn_from(sweep: Sweep) -> Iterator[Hit]:
    parallel, most = sweep.spec.get("parallelTrialCount"), sweep.spec.get("maxTrialCount")
    if sweep.algorithm in LEARNING and isinstance(most, int) and isinstance(parallel, int) and 1 < most <= parallel:
        what = f"all {most} trials run at once: {sweep.algorithm} is no better than random"
        yield Hit(what=what, where="spec.parallelTrialCount", mend="run fewer in parallel")


@rule("fail", "Katib asks again for as many trials as before, gets a third of them, refuses the answer and never ends.")
def hyperband_past_its_first_rung(sweep: Sweep) -> Iterator[Hit]:
    parallel, most = sweep.spec.get("parallelTrialCount"), sweep.spec.get("maxTrialCount")
    if sweep.algorithm != "hyperband" or not isinstance(parallel, int) or (isinstance(most, int) and most <= parallel):
        return
    count = f"maxTrialCount is {most}" if most else "there is no maxTrialCount"
    what = f"{count}, but Katib's hyperband stops answering after the first {parallel} trials"
    hint = f"set maxTrialCount to parallelTrialCount, {parallel}; podium experiment run goes on to the other rungs"
    yield Hit(what=what, where="spec.maxTrialCount", mend=hint)


@rule("warn", "asha is podium's own; Katib's webhook refuses it.")
def only_podium_knows_it(sweep: Sweep) -> Iterator[Hit]:
    if sweep.algorithm == "asha":
        where = "spec.algorithm.algorithmName"
        yield Hit(what="asha runs on this machine only", where=where, mend="use random or tpe on a cluster")


@rule("fail", "Katib gives the search service the Experiment's name; a Service's name has no dot.")
def name_with_a_dot(sweep: Sweep) -> Iterator[Hit]:
    name = str(mapping(sweep.admitted.get("metadata")).get("name") or "")
    kind = mapping(mapping(sweep.spec.get("trialTemplate")).get("trialSpec")).get("kind")
    if "." in name and kind != "PyTorchJob":  # of a PyTorchJob the checks of manifests speak
        yield Hit(what=f"the name {name} has a dot", where="metadata.name", mend="use a dash")


@rule("note", "With LongRunning Katib keeps the Deployment of the search service until the Experiment is deleted.")
def search_service_stays(sweep: Sweep) -> Iterator[Hit]:
    if sweep.spec.get("resumePolicy") == "LongRunning":
        what = "a pod of the search service stays after the end"
        yield Hit(what=what, where="spec.resumePolicy", mend="set Never unless you will raise maxTrialCount")


@rule("note", "The JSON format wants one object a line whose values are texts; numbers are passed over without a word.")
def json_values_are_texts(sweep: Sweep) -> Iterator[Hit]:
    if sweep.collector == "File" and not sweep.is_text:
        name = (sweep.metrics or ["loss"])[0]
        where = "spec.metricsCollectorSpec.source.fileSystemPath.format"
        yield Hit(what=f'write {{"{name}": "0.9"}}, not {{"{name}": 0.9}}', where=where, mend="quote the values")


@rule("warn", "Katib's default configuration has no collector image for PrometheusMetric.")
def collector_without_image(sweep: Sweep) -> Iterator[Hit]:
    if sweep.collector == "PrometheusMetric":
        where = "spec.metricsCollectorSpec.collector.kind"
        yield Hit(what="the collector is PrometheusMetric", where=where, mend="use StdOut")


SWEEP_RULES: tuple[Rule[Sweep], ...] = (
    early_stopping_without_retain,
    metric_cannot_be_found,
    bayesian_from_zero,
    name_with_a_dot,
    hyperband_past_its_first_rung,
    bad_values_count,
    batch_loss_may_be_the_objective,
    strategy_against_the_objective,
    goal_on_another_scale,
    trials_without_end,
    failures_without_limit,
    distribution_ignored,
    nothing_to_learn_from,
    only_podium_knows_it,
    collector_without_image,
    no_failures_allowed,
    search_service_stays,
    json_values_are_texts,
)

NEVER_ON_KATIB: tuple[Rule[Sweep], ...] = (
    early_stopping_without_retain,
    bayesian_from_zero,
    name_with_a_dot,
    hyperband_past_its_first_rung,
    only_podium_knows_it,
)
"""Rules about what podium runs to its end and Katib refuses or never ends."""

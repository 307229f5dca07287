"""What Katib admits and can never end is refused, each time with the field and a hint."""

import copy
from typing import Any

import pytest

from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, check, examine, load
from podium.manifests.experiment.template import matches, parse_condition
from podium.manifests.rules import RUNNERS
from podium.manifests.structure import INT, wrong_types


def settings(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def space(**fields: Any) -> dict[str, Any]:
    return {"feasibleSpace": fields}


PARAMETER = ("parameters", 0)
CASES: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "min above max": ((*PARAMETER, "feasibleSpace"), {"min": "2", "max": "1"}, "min <= max"),
    "words for numbers": ((*PARAMETER, "feasibleSpace"), {"min": "low", "max": "1"}, "must be a number"),
    "nan as a bound": ((*PARAMETER, "feasibleSpace"), {"min": "nan", "max": "1"}, "must be a number"),
    "log scale from zero": ((*PARAMETER, "feasibleSpace", "min"), "0", "min > 0 for logUniform"),
    "a step of zero": ((*PARAMETER, "feasibleSpace", "step"), "0", "step > 0"),
    "half an epoch": (("parameters", 3, "feasibleSpace", "min"), "1.5", "must be an integer"),
    "an empty list": (("parameters", 1, "feasibleSpace", "list"), [], "at least one value"),
    "a value twice": (("parameters", 1, "feasibleSpace", "list"), ["32", "32"], "in which each value stands once"),
    "an unknown setting": (("algorithm", "algorithmSettings"), settings(magic="1"), "must be a setting of random"),
    "a bad seed": (("algorithm", "algorithmSettings"), settings(random_state="-1"), "must be an integer >= 0 for random_state"),
    "an unknown strategy": (("objective", "metricStrategies", 0, "value"), "mean", "must be one of min, max, latest"),
    "a quote in a value": (("parameters", 2, "feasibleSpace", "list"), ['"q"'], "must leave the trial template readable"),
    "no such container": (("trialTemplate", "primaryContainerName"), "main", "must be pytorch for a PyTorchJob"),
    "a kind the cluster lacks": (("trialTemplate", "trialSpec", "kind"), "PaddleJob", "podium runs trials of kind"),
    "a condition beyond us": (("trialTemplate", "successCondition"), "status.@this", "podium understands conditions"),
    "a pattern Go refuses": (
        ("metricsCollectorSpec", "source", "filter", "metricsFormat"), ["(?=a)(b)(c)"], "must be a Go pattern with two groups",
    ),
    "an unused search parameter": (
        ("trialTemplate", "trialParameters"), None, "must each have a trialParameter",
    ),
    "a missing label": (
        ("trialTemplate", "trialParameters", 4, "reference"), "${trialSpec.Labels[team]}", "must be a label or annotation",
    ),
    "a grid of doubles without step": (("algorithm",), {"algorithmName": "grid"}, "in podium tune --lr LOW..HIGH:STEP"),
    "cmaes in one dimension": (("algorithm",), {"algorithmName": "cmaes"}, "must hold two double or int for cmaes"),
    "hyperband without resource": (("algorithm",), {"algorithmName": "hyperband"}, "hyperband needs the settings r_l, resource_name"),
    "hyperband with too few at a time": (
        ("algorithm",),
        {"algorithmName": "hyperband", "algorithmSettings": settings(r_l="27", resource_name="epochs")},
        "parallelTrialCount >= 27",
    ),
    "pbt without a volume": (("algorithm",), {"algorithmName": "pbt"}, "must be FromVolume for pbt, which keeps its trials' files on a volume"),
    "a collector that scrapes": (
        ("metricsCollectorSpec",), {"collector": {"kind": "PrometheusMetric"}}, "podium collects",
    ),
    "a collector of one's own": (
        ("metricsCollectorSpec",),
        {"collector": {"kind": "Custom", "customCollector": {"name": "c", "image": "i"}}},
        "podium collects",
    ),
    "a template in a ConfigMap": (
        ("trialTemplate", "configMap"),
        {"configMapName": "c", "configMapNamespace": "n", "templatePath": "t"},
        "not from ConfigMap c in a cluster",
    ),
    "enas": (("algorithm",), {"algorithmName": "enas"}, "podium searches with"),
    "darts": (("algorithm",), {"algorithmName": "darts"}, "podium searches with"),
    "a search over architectures": (("nasConfig",), {"graphConfig": {"numLayers": 1}}, "podium runs Experiments that search over spec.parameters"),
    "another base estimator": (
        ("algorithm",),
        {"algorithmName": "bayesianoptimization", "algorithmSettings": settings(base_estimator="RF")},
        "podium runs bayesianoptimization with base_estimator GP, not RF",
    ),
    "another acquisition function": (
        ("algorithm",),
        {"algorithmName": "bayesianoptimization", "algorithmSettings": settings(acq_func="LCB")},
        "with acq_func gp_hedge, EI, not LCB",
    ),
    "a restart strategy Katib lacks": (
        ("algorithm",),
        {"algorithmName": "cmaes", "algorithmSettings": settings(restart_strategy="None")},
        "must be one of none, ipop, bipop for restart_strategy",
    ),
    "another early stopping": (
        ("earlyStopping",),
        {"algorithmName": "medianstop", "algorithmSettings": settings(start_step="0")},
        "must be an integer > 0 for start_step",
    ),
}  # fmt: skip


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    manifest = copy.deepcopy(load("random"))
    spec = manifest["spec"]
    if value is None:  # drop lr from the template
        template = spec["trialTemplate"]
        template["trialParameters"] = [
            parameter for parameter in template["trialParameters"] if parameter["name"] != "lr"
        ]
        for replica in template["trialSpec"]["spec"]["pytorchReplicaSpecs"].values():
            container = replica["template"]["spec"]["containers"][0]
            container["args"] = [word for word in container["args"] if not word.startswith("--lr=")]
        return manifest
    holder = spec
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return manifest


@pytest.mark.parametrize("name", CASES)
def test_what_can_never_end_is_refused_with_its_rule(name: str) -> None:
    path, value, rule = CASES[name]
    if name == "cmaes in one dimension":
        manifest = load("random-job")
        manifest["spec"]["algorithm"] = value
    else:
        manifest = changed(path, value)
    if name == "a template in a ConfigMap":
        del manifest["spec"]["trialTemplate"]["trialSpec"]
    if name == "a search over architectures":
        del manifest["spec"]["parameters"]
        manifest["spec"]["trialTemplate"]["trialParameters"] = [
            {"name": "trial", "reference": "architecture"}
        ]
        container = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["pytorchReplicaSpecs"]
        for replica in container.values():
            replica["template"]["spec"]["containers"][0]["args"] = [
                "--graph=${trialParameters.trial}"
            ]
    with pytest.raises(InvalidInput) as caught:
        check(Experiment.parse(manifest))
    assert rule in str(caught.value)
    assert "spec." in caught.value.message


def test_a_parameter_twice_is_refused() -> None:
    manifest = load("random")
    manifest["spec"]["parameters"].append(manifest["spec"]["parameters"][0])
    with pytest.raises(InvalidInput, match="must be unique"):
        check(Experiment.parse(manifest))


def test_all_broken_rules_are_named_at_once() -> None:
    manifest = load("random")
    manifest["spec"]["objective"]["type"] = "best"
    manifest["spec"]["maxTrialCount"] = 0
    with pytest.raises(InvalidInput) as caught:
        check(Experiment.parse(manifest))
    assert "spec.objective.type" in caught.value.message
    assert "spec.maxTrialCount" in caught.value.message


def test_early_stopping_without_retain_is_refused_for_katib_alone() -> None:
    manifest = load("medianstop")
    del manifest["spec"]["trialTemplate"]["retain"]
    assert check(Experiment.parse(manifest))
    with pytest.raises(InvalidInput, match="the Experiment runs for good") as caught:
        check(Experiment.parse(manifest), RUNNERS)
    (finding,) = [finding for finding in examine(manifest) if finding.level == "fail"]
    assert caught.value.message == finding.text
    assert (finding.rule, finding.hint) == ("early-stopping-without-retain", "set retain: true")


CONDITIONS = [
    {"type": "Complete", "status": "False"},
    {"type": "Complete", "status": "True", "reason": "R"},
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('status.conditions.#(type=="Complete")#|#(status=="True")#', True),
        ('status.conditions.#(type=="Failed")#|#(status=="True")#', False),
        ('status.conditions.#(type=="Complete")', True),
        ('status.conditions.#(type!="Complete")#', False),
        ("status.conditions", True),
        ("status.phase", False),
        ("status.nothing.there", False),
    ],
)
def test_conditions_find_what_gjson_finds(text: str, found: bool) -> None:
    assert (
        matches(text, {"status": {"conditions": CONDITIONS, "phase": "Succeeded"}}) is not None
    ) == found


@pytest.mark.parametrize(
    "text", ["", ".", "a..b", "a.#", 'a.#(b>"c")', "a.@reverse", "a|", 'a.#(b=="c"', "{a,b}"]
)
def test_other_gjson_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="a condition is a path"):
        parse_condition(text)


def test_a_refused_trial_job_is_refused_before_it_starts() -> None:
    manifest = load("random-job")
    pod = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    del pod["restartPolicy"]
    with pytest.raises(InvalidInput) as caught:
        check(Experiment.parse(manifest), ())
    (finding,) = [finding for finding in examine(manifest) if finding.level == "fail"]
    assert (finding.rule, caught.value.message) == ("refused-by-operator", finding.text)
    assert finding.where == "spec.trialTemplate.trialSpec.spec.template.spec.restartPolicy"


def test_a_placeholder_is_judged_by_its_first_value() -> None:
    manifest = load("random-job")
    spec = manifest["spec"]
    name = spec["parameters"][2]["name"]
    spec["parameters"][2]["feasibleSpace"]["list"] = ["Never", "OnFailure"]
    job = spec["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    job |= {"restartPolicy": f"${{trialParameters.{name}}}"}
    job["containers"][0]["command"] = ["train"]
    assert check(Experiment.parse(manifest))


def test_podium_alone_refuses_what_a_cluster_may_run() -> None:
    manifest = changed(("metricsCollectorSpec",), {"collector": {"kind": "PrometheusMetric"}})
    assert check(Experiment.parse(manifest), ())
    with pytest.raises(InvalidInput, match="podium collects metrics from"):
        check(Experiment.parse(manifest))


def test_asha_runs_here_and_is_refused_for_katib() -> None:
    settings = [{"name": "r_l", "value": "9"}, {"name": "resource_name", "value": "epochs"}]
    manifest = changed(("algorithm",), {"algorithmName": "asha", "algorithmSettings": settings})
    assert check(Experiment.parse(manifest))
    with pytest.raises(InvalidInput, match="asha runs on this machine only"):
        check(Experiment.parse(manifest), RUNNERS)


@pytest.mark.parametrize(("value", "fits"), [(2**31 - 1, True), (2**31, False), (True, False)])
def test_a_whole_number_has_31_bits(value: int, fits: bool) -> None:
    assert (list(wrong_types(value, INT, "spec.maxTrialCount")) == []) is fits

"""What the doctor finds in Experiments, PyTorchJobs and Jobs. Outcomes were observed on a real Katib 0.19."""

import copy
import json
import random
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from podium.cli import app
from podium.doctor.manifest import documents, examine_manifest
from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, bundled, check, load
from podium.manifests.experiment.experiment import job_of
from podium.manifests.kinds import OPERATOR_KINDS
from podium.manifests.rules import Finding, Rules
from podium.metrics import STRICT_FORMAT

GOOD = f"""
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {{name: sweep}}
spec:
  objective:
    type: maximize
    objectiveMetricName: accuracy
    additionalMetricNames: [loss]
    metricStrategies: [{{name: accuracy, value: max}}, {{name: loss, value: min}}]
  algorithm: {{algorithmName: random}}
  parallelTrialCount: 2
  maxTrialCount: 4
  maxFailedTrialCount: 2
  resumePolicy: Never
  metricsCollectorSpec:
    collector: {{kind: StdOut}}
    source: {{filter: {{metricsFormat: ['{STRICT_FORMAT}']}}}}
  parameters:
    - {{name: lr, parameterType: double, feasibleSpace: {{min: "0.01", max: "0.1"}}}}
    - {{name: units, parameterType: int, feasibleSpace: {{min: "4", max: "8"}}}}
  trialTemplate:
    primaryContainerName: main
    trialParameters:
      - {{name: lr, reference: lr}}
      - {{name: units, reference: units}}
      - {{name: trial, reference: "${{trialSpec.Name}}"}}
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      spec:
        backoffLimit: 0
        activeDeadlineSeconds: 600
        template:
          metadata: {{labels: {{sidecar.istio.io/inject: "false"}}}}
          spec:
            restartPolicy: Never
            containers:
              - name: main
                image: trainer:1.0
                command: [python, -u, train.py]
                args:
                  - "--lr=${{trialParameters.lr}}"
                  - "--units=${{trialParameters.units}}"
                  - "--output=s3://b/${{trialParameters.trial}}"
"""
PYTORCHJOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  runPolicy: {backoffLimit: 3, activeDeadlineSeconds: 600, cleanPodPolicy: Running}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: &template
        spec:
          containers: [{name: pytorch, image: "trainer:1.0", command: [python, -m, podium.trainer]}]
    Worker: {replicas: 2, template: *template}
"""
Change = Callable[[dict[str, Any]], object]


def experiment(*changes: Change) -> dict[str, Finding]:
    """Examine the good Experiment with some changes; findings by rule."""
    return examine(GOOD, *changes)


def pytorchjob(*changes: Change) -> dict[str, Finding]:
    """Examine the good PyTorchJob with some changes; notes left out."""
    return {
        name: report
        for name, report in examine(PYTORCHJOB, *changes).items()
        if report.level != "note"
    }


def examine(text: str, *changes: Change) -> dict[str, Finding]:
    manifest = copy.deepcopy(yaml.safe_load(text))
    for change in changes:
        change(manifest)
    return {finding.rule: finding for finding in examine_manifest(manifest, "test").findings}


def trial(manifest: dict[str, Any]) -> Any:
    """Return the trial's job."""
    return manifest["spec"]["trialTemplate"]["trialSpec"]


def pod(manifest: dict[str, Any]) -> Any:
    """Return the pod spec of the trial's Job."""
    return trial(manifest)["spec"]["template"]["spec"]


def container(manifest: dict[str, Any]) -> Any:
    """Return the trial's container."""
    return pod(manifest)["containers"][0]


def master(manifest: dict[str, Any]) -> Any:
    """Return the container of the PyTorchJob's Master (and of its Workers, they share the template)."""
    return manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]


def as_pytorchjob(manifest: dict[str, Any]) -> None:
    """Make the trial a PyTorchJob of a Master and a Worker."""
    template = trial(manifest)["spec"]["template"]
    template["spec"].pop("restartPolicy")
    template["spec"]["containers"][0]["name"] = "pytorch"
    policy = {"backoffLimit": 3, "activeDeadlineSeconds": 600, "cleanPodPolicy": "Running"}
    replicas = {
        "Master": {"replicas": 1, "template": template},
        "Worker": {"replicas": 1, "template": template},
    }
    manifest["spec"]["trialTemplate"]["primaryContainerName"] = "pytorch"
    manifest["spec"]["trialTemplate"]["trialSpec"] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {"runPolicy": policy, "pytorchReplicaSpecs": replicas},
    }


def test_a_careful_experiment_has_no_findings() -> None:
    assert experiment() == {}


def test_a_warning_hides_no_refusal_of_the_trainer() -> None:
    def wrong_flag(manifest: dict[str, Any]) -> None:
        container(manifest)["command"] = [
            "python",
            "-m",
            "podium.trainer",
            "--bogus=1",
            "--lr=${trialParameters.lr}",
        ]
        manifest["spec"]["metricsCollectorSpec"]["collector"]["kind"] = "PrometheusMetric"

    found = experiment(wrong_flag)
    assert {found[rule].level for rule in ("trainer-refuses", "not-run-by-podium")} == {
        "fail",
        "warn",
    }


def test_a_replica_without_a_pod_hides_no_wrong_role() -> None:
    def chief(manifest: dict[str, Any]) -> None:
        as_pytorchjob(manifest)
        trial(manifest)["spec"]["pytorchReplicaSpecs"]["Chief"] = {"replicas": 1}

    manifest = yaml.safe_load(GOOD)
    chief(manifest)
    found = [finding.what for finding in examine_manifest(manifest, "test").findings]
    assert "must be a Master or a Worker, but got 'Chief'" in found


def test_an_unknown_distribution_is_only_called_unknown() -> None:
    found = experiment(
        lambda manifest: manifest["spec"]["parameters"][0]["feasibleSpace"].update(
            distribution="log"
        )
    )
    assert list(found) == ["refused-by-webhook"]


def test_reports_about_jobs_have_the_keys_of_others() -> None:
    assert examine_manifest(yaml.safe_load(PYTORCHJOB), "test").as_dict()["commands"] == {}


def test_a_careful_pytorchjob_has_no_findings_but_notes() -> None:
    assert pytorchjob() == {}


@pytest.mark.parametrize("name", bundled())
def test_our_own_experiments_avoid_every_trap(name: str) -> None:
    report = examine_manifest(load(name), name)
    assert {finding.rule for finding in report.findings} <= {
        "workers-need-an-init-image",
        "nodes-restart",
        "conditions-without-podium",
        "first-without-podium",
    }
    assert {finding.level for finding in report.findings} <= {"note"}


def test_the_wrapped_command_is_shown() -> None:
    shown = examine_manifest(yaml.safe_load(GOOD), "test").details["commands"]
    assert list(shown) == ["Job of a trial"]
    assert shown["Job of a trial"][2].startswith("python -u train.py --lr=${trialParameters.lr} ")
    assert " 1>/var/log/katib/metrics.log 2>&1 && echo completed > " in shown["Job of a trial"][2]


def test_only_the_master_of_a_pytorchjob_is_wrapped() -> None:
    manifest = yaml.safe_load(GOOD)
    as_pytorchjob(manifest)
    assert list(examine_manifest(manifest, "test").details["commands"]) == ["Master of a trial"]


def test_what_the_webhook_refuses_fails() -> None:
    finding = experiment(lambda m: m["spec"].update(parallelTrialCount=9))["refused-by-webhook"]
    assert finding.level == "fail"
    assert finding.where == "spec.parallelTrialCount"


def test_an_unused_search_parameter_fails_though_katib_accepts_it() -> None:
    extra = {"name": "extra", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "2"}}
    assert (
        experiment(lambda m: m["spec"]["parameters"].append(extra))["accepted-but-stuck"].level
        == "fail"
    )


def test_a_grid_smaller_than_the_number_of_trials_fails() -> None:
    def grid(manifest: dict[str, Any]) -> None:
        manifest["spec"]["algorithm"]["algorithmName"] = "grid"
        manifest["spec"]["parameters"][0]["feasibleSpace"]["step"] = "0.09"
        manifest["spec"]["parameters"][1]["feasibleSpace"] = {"min": "4", "max": "4"}

    assert experiment(grid)["accepted-but-stuck"].where == "spec.maxTrialCount"


def test_a_pattern_that_katib_would_split_fails() -> None:
    source = {"filter": {"metricsFormat": [r"(\w+);=(\d+)"]}}
    assert experiment(lambda m: m["spec"]["metricsCollectorSpec"].update(source=source))[
        "accepted-but-stuck"
    ]


def of_kind(kind: str, version: str) -> Change:
    """Make the trial a job of a kind that podium does not run."""

    def change(manifest: dict[str, Any]) -> None:
        template = manifest["spec"]["trialTemplate"]
        template["successCondition"] = template["failureCondition"] = "status.phase"
        template["trialSpec"].update(apiVersion=version, kind=kind)

    return change


def from_config_map(manifest: dict[str, Any]) -> None:
    """Put the trial's template into a ConfigMap."""
    template = manifest["spec"]["trialTemplate"]
    del template["trialSpec"]
    template["configMap"] = {
        "configMapName": "c",
        "configMapNamespace": "n",
        "templatePath": "t.yaml",
    }


def over_architectures(manifest: dict[str, Any]) -> None:
    """Search over architectures, as enas and darts do."""
    spec = manifest["spec"]
    del spec["parameters"]
    spec["algorithm"]["algorithmName"] = "enas"
    spec["nasConfig"] = {"graphConfig": {"numLayers": 1}, "operations": []}
    names = {"lr": "architecture", "units": "nn_config"}
    spec["trialTemplate"]["trialParameters"] = [
        {"name": name, "reference": to} for name, to in names.items()
    ]
    container(manifest)["args"].pop()


def with_custom_collector(manifest: dict[str, Any]) -> None:
    """Collect by a container of one's own."""
    collector = {"kind": "Custom", "customCollector": {"name": "c", "image": "i:1"}}
    manifest["spec"]["metricsCollectorSpec"] = {"collector": collector}


def with_a_value_twice(manifest: dict[str, Any]) -> None:
    """Search a list that repeats itself, as Katib does without complaint."""
    manifest["spec"]["parameters"][1] = {
        "name": "units",
        "parameterType": "categorical",
        "feasibleSpace": {"list": ["4", "8", "4"]},
    }


def with_a_setting_katib_drops(manifest: dict[str, Any]) -> None:
    """Give cmaes a setting that its service does not look at."""
    manifest["spec"]["algorithm"] = {
        "algorithmName": "cmaes",
        "algorithmSettings": [{"name": "magic", "value": "1"}],
    }


NOT_OURS: dict[str, tuple[Change, str]] = {
    "PaddleJob": (of_kind("PaddleJob", "kubeflow.org/v1"), "not PaddleJob (kubeflow.org/v1)"),
    "Workflow": (of_kind("Workflow", "argoproj.io/v1alpha1"), "not Workflow"),
    "Custom": (
        with_custom_collector,
        "podium collects metrics from StdOut, File, TensorFlowEvent or Push, not Custom",
    ),
    "a value twice": (with_a_value_twice, "in which each value stands once, not ['4'] twice"),
    "a dropped setting": (with_a_setting_katib_drops, "restart_strategy, not magic"),
    "architectures": (
        over_architectures,
        "not one that searches for a neural network's architecture (nasConfig)",
    ),
    "ConfigMap": (from_config_map, "not from ConfigMap c in a cluster"),
}


@pytest.mark.parametrize("name", NOT_OURS)
def test_what_podium_does_not_run_is_not_called_broken(name: str) -> None:
    change, said = NOT_OURS[name]
    manifest = copy.deepcopy(yaml.safe_load(GOOD))
    change(manifest)
    report = examine_manifest(manifest, "test")
    (finding,) = [finding for finding in report.findings if finding.rule == "not-run-by-podium"]
    assert said in finding.what
    assert (finding.level, report.verdict) == ("warn", "warn"), report.findings
    with pytest.raises(InvalidInput) as refused:
        check(Experiment.parse(manifest))
    assert said in refused.value.message


@pytest.mark.parametrize("name", ["PaddleJob", "Workflow", "ConfigMap"])
def test_a_trial_without_rules_is_said_to_be_unexamined(name: str) -> None:
    assert experiment(NOT_OURS[name][0])["not-examined"].what.startswith("the trial's")


def test_early_stopping_without_retain_fails() -> None:
    stopping = {"algorithmName": "medianstop"}
    found = experiment(lambda m: m["spec"].update(earlyStopping=stopping))
    assert found["early-stopping-without-retain"].level == "fail"
    assert "accepted-with-a-trap" not in found, "said once"


@pytest.mark.parametrize(
    ("pod", "container", "warned"),
    [
        ({}, {"runAsNonRoot": True}, True),
        ({}, {"runAsUser": 1000}, True),
        ({"runAsUser": 1000}, {"runAsUser": 2000}, True),
        ({"runAsUser": 1000}, {"runAsNonRoot": True}, False),  # the collector has this user, too
        ({"runAsUser": 1000}, {"runAsUser": 0}, False),
        ({}, {}, False),
    ],
)
def test_a_trial_stopped_early_needs_the_user_of_katibs_collector(
    pod: dict[str, Any], container: dict[str, Any], warned: bool
) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["spec"]["earlyStopping"] = {"algorithmName": "medianstop"}
        spec = job_of(manifest).manifest["spec"]["template"]["spec"]
        spec["securityContext"], spec["containers"][0]["securityContext"] = pod, container

    found = experiment(change)
    assert ("early-stopping-by-another-user" in found) == warned
    assert not warned or "securityContext of the trial's pod" in str(
        found["early-stopping-by-another-user"].hint
    )


def test_early_stopping_with_buffered_output_is_pointed_out() -> None:
    def stop(manifest: dict[str, Any]) -> None:
        manifest["spec"]["earlyStopping"] = {"algorithmName": "medianstop"}
        manifest["spec"]["trialTemplate"]["retain"] = True

    def buffer(manifest: dict[str, Any]) -> None:
        container(manifest)["command"] = ["python", "train.py"]

    assert experiment(stop) == {}
    assert experiment(stop, buffer)["buffered-while-stopping-early"].level == "warn"
    assert "buffered-while-stopping-early" not in experiment(stop, buffer, as_pytorchjob)


SPEC = "spec.trialTemplate.trialSpec.spec"
POD = f"{SPEC}.template.spec"
CONTAINER = f"{POD}.containers.0"
MASTER = "spec.pytorchReplicaSpecs.Master.template.spec.containers.0"
MPIJOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "MPIJob",
    "spec": {
        "mpiReplicaSpecs": {
            role: {"replicas": 1, "template": {"spec": {"containers": [container]}}}
            for role, container in (
                (
                    "Launcher",
                    {
                        "name": "main",
                        "image": "trainer:1.0",
                        "command": ["mpirun", "python", "train.py"],
                        "args": [
                            f"${{trialParameters.{name}}}" for name in ("lr", "units", "trial")
                        ],
                    },
                ),
                ("Worker", {"name": "worker", "image": "trainer:1.0"}),
            )
        }
    },
}
ASHA = [{"name": "r_l", "value": "8"}, {"name": "resource_name", "value": "units"}]


def holder_of(manifest: Any, path: str) -> tuple[Any, Any]:
    """Return what holds the field of a path, and the field's name or number."""
    *above, last = (int(name) if name.isdigit() else name for name in path.split("."))
    for name in above:
        manifest = manifest[name]
    return manifest, last


def put(path: str, value: Any) -> Change:
    """Set a field."""

    def change(manifest: dict[str, Any]) -> None:
        holder, name = holder_of(manifest, path)
        holder[name] = value

    return change


def drop(path: str) -> Change:
    """Remove a field."""

    def change(manifest: dict[str, Any]) -> None:
        holder, name = holder_of(manifest, path)
        holder.pop(name)

    return change


@pytest.mark.parametrize(
    ("rule", "level", "changes"),
    [
        ("bad-values-count", "warn", [drop("spec.metricsCollectorSpec")]),
        ("metric-cannot-be-found", "fail",
         [drop("spec.metricsCollectorSpec"),
          put("spec.objective", {"type": "maximize", "objectiveMetricName": "val/accuracy"})]),
        ("batch-loss-may-be-the-objective", "warn",
         [put("spec.objective", {"type": "minimize", "objectiveMetricName": "loss"})]),
        ("strategy-against-the-objective", "warn",
         [put("spec.objective.metricStrategies", [{"name": "accuracy", "value": "min"}])]),
        ("additional-metric-at-its-worst", "warn", [drop("spec.objective.metricStrategies")]),
        ("additional-metric-at-its-worst", "warn",
         [put("spec.objective", {"type": "minimize", "objectiveMetricName": "rmse",
                                 "additionalMetricNames": ["accuracy"]})]),
        ("goal-on-another-scale", "warn", [put("spec.objective.goal", 95)]),
        ("trials-without-end", "warn", [drop("spec.maxTrialCount")]),
        ("failures-without-limit", "warn", [drop("spec.maxFailedTrialCount")]),
        ("no-failures-allowed", "note", [put("spec.maxFailedTrialCount", 0)]),
        ("search-service-stays", "note", [put("spec.resumePolicy", "LongRunning")]),
        ("bayesian-from-zero", "fail",
         [put("spec.algorithm.algorithmName", "bayesianoptimization"),
          put("spec.parameters.0.feasibleSpace.min", "0")]),
        ("nothing-to-learn-from", "warn",
         [put("spec.algorithm.algorithmName", "tpe"), put("spec.parallelTrialCount", 4)]),
        ("only-podium-knows-it", "warn",
         [put("spec.algorithm", {"algorithmName": "asha", "algorithmSettings": ASHA})]),
        ("budget-without-podium", "warn", [put("metadata.annotations", {"podium.dev/sweep": "max_time: 2h"})]),
        ("deterministic-without-podium", "warn", [put("metadata.annotations", {"podium.dev/sweep": "deterministic: 4"})]),
        ("objectives-without-podium", "warn", [put("metadata.annotations", {"podium.dev/sweep": "constraints: [size_mb<5]"})]),
        ("conditions-without-podium", "note",
         [put("metadata.annotations", {"podium.dev/sweep": "conditions: [momentum if optimizer=sgd]"})]),
        ("first-without-podium", "note", [put("metadata.annotations", {"podium.dev/sweep": "first: [lr=0.1 optimizer=sgd]"})]),
        ("confirm-without-podium", "warn", [put("metadata.annotations", {"podium.dev/sweep": "confirm: 2x2"})]),
        ("name-with-a-dot", "fail", [put("metadata.name", "a.b")]),
        ("collector-without-image", "warn", [put("spec.metricsCollectorSpec.collector.kind", "PrometheusMetric")]),
        ("workers-lack-the-container", "fail", [put("spec.trialTemplate.trialSpec", MPIJOB)]),
        ("no-pod-is-primary", "fail", [put("spec.trialTemplate.primaryPodLabels", {"role": "chief"})]),
        ("several-pods-report", "warn", [put(f"{SPEC}.parallelism", 2)]),
        ("istio-annotation-alone", "warn",
         [put(f"{SPEC}.template.metadata", {"annotations": {"sidecar.istio.io/inject": "false"}})]),
        ("istio-not-switched-off", "note", [drop(f"{SPEC}.template.metadata")]),
        ("other-containers-hold-the-trial", "warn", [put(f"{POD}.containers", [
            {"name": "main", "image": "trainer:1.0", "command": ["train"]}, {"name": "proxy", "image": "proxy:1"}])]),
        ("trainer-refuses", "fail", [put(f"{CONTAINER}.command", ["python", "-m", "podium.trainer"]),
                                     put(f"{CONTAINER}.args", ["--data=d", "--lr=${trialParameters.lr}", "--batch-size=${trialParameters.units}", "--output=${trialParameters.trial}", "--netwrk=fast"])]),
        ("accepted-with-a-trap", "warn", [drop(f"{CONTAINER}.command")]),
        ("retries-before-failing", "warn", [drop(f"{SPEC}.backoffLimit")]),
    ],
)  # fmt: skip
def test_a_trap_in_an_experiment_is_pointed_out(
    rule: str, level: str, changes: list[Change]
) -> None:
    assert experiment(*changes)[rule].level == level


@pytest.mark.parametrize(
    ("rule", "level", "change"),
    [
        ("restarts-without-end", "warn", drop("spec.runPolicy")),
        ("workers-outlive-the-master", "warn", drop("spec.runPolicy")),
        ("no-deadline", "note", drop("spec.runPolicy.activeDeadlineSeconds")),
        (
            "launcher-disagrees",
            "warn",
            put(f"{MASTER}.command", ["torchrun", "--nproc_per_node=4", "train.py"]),
        ),
        (
            "operator-variables-overwritten",
            "warn",
            put(f"{MASTER}.env", [{"name": "WORLD_SIZE", "value": "1"}]),
        ),
        (
            "secret-in-plain-text",
            "warn",
            put(f"{MASTER}.env", [{"name": "AWS_SECRET_ACCESS_KEY", "value": "hush"}]),
        ),
        ("workers-need-an-init-image", "note", put("metadata.name", "train")),
        ("image-may-change", "note", put(f"{MASTER}.image", "trainer")),
    ],
)
def test_a_trap_in_a_pytorchjob_is_pointed_out(rule: str, level: str, change: Change) -> None:
    assert examine(PYTORCHJOB, change)[rule].level == level


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (
            "secret-in-plain-text",
            put(
                f"{MASTER}.env",
                [
                    {"name": "TOKENIZERS_PARALLELISM", "value": "false"},
                    {"name": "MAX_NEW_TOKENS", "value": "256"},
                    {"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": "/var/run/token"},
                ],
            ),
        ),
        ("launcher-disagrees", put(f"{MASTER}.command", ["torchrun", "--nnodes=1:4", "t.py"])),
    ],
)
def test_what_only_looks_like_a_trap_is_not_pointed_out(rule: str, change: Change) -> None:
    assert rule not in examine(PYTORCHJOB, change)


@pytest.mark.parametrize("name", ["peak_memory", "train_seconds", "epoch", "f1"])
def test_what_grows_is_not_recorded_at_its_worst(name: str) -> None:
    objective = {
        "type": "maximize",
        "objectiveMetricName": "accuracy",
        "additionalMetricNames": [name],
    }
    found = examine(GOOD, put("spec.objective", objective))
    assert "additional-metric-at-its-worst" not in found


@pytest.mark.parametrize(
    "path",
    sorted((Path(__file__).parents[2] / "examples").rglob("*experiment.yaml")),
    ids=lambda path: path.parent.name,
)
def test_no_example_records_a_metric_at_its_worst(path: Path) -> None:
    report = examine_manifest(yaml.safe_load(path.read_text()), path.name)
    assert "additional-metric-at-its-worst" not in {finding.rule for finding in report.findings}


@pytest.mark.parametrize(
    ("algorithm", "distribution", "ignored"),
    [
        ("random", "logNormal", False),
        ("tpe", "logUniform", False),
        ("multivariate-tpe", "logUniform", False),
        ("multivariate-tpe", "normal", True),
        ("cmaes", "logUniform", True),
        ("sobol", "logUniform", True),
        ("bayesianoptimization", "normal", True),
    ],
)
def test_a_distribution_that_the_algorithm_drops_is_pointed_out(
    algorithm: str, distribution: str, ignored: bool
) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["spec"]["algorithm"]["algorithmName"] = algorithm
        manifest["spec"]["parameters"][0]["feasibleSpace"]["distribution"] = distribution

    assert ("distribution-ignored" in experiment(change)) is ignored


@pytest.mark.parametrize(("most", "level"), [(None, "fail"), (5, "fail"), (4, None)])
def test_hyperband_past_its_first_rung_fails(most: int | None, level: str | None) -> None:
    settings = [{"name": "r_l", "value": "4"}, {"name": "eta", "value": "2"}]
    settings.append({"name": "resource_name", "value": "units"})

    def change(manifest: dict[str, Any]) -> None:
        manifest["spec"].update(parallelTrialCount=4, maxTrialCount=most)
        manifest["spec"]["algorithm"] = {
            "algorithmName": "hyperband",
            "algorithmSettings": settings,
        }

    finding = experiment(change).get("hyperband-past-its-first-rung")
    assert (finding and finding.level) == level


def test_the_json_format_is_explained() -> None:
    def change(manifest: dict[str, Any]) -> None:
        path = {"path": "/out/m.json", "kind": "File", "format": "JSON"}
        manifest["spec"]["metricsCollectorSpec"] = {
            "collector": {"kind": "File"},
            "source": {"fileSystemPath": path},
        }

    found = experiment(change)
    assert found["json-values-are-texts"].level == "note"
    assert found["nobody-writes-the-file"].level == "warn"
    named = experiment(change, lambda m: container(m)["args"].append("--metrics=/out/m.json"))
    assert "nobody-writes-the-file" not in named


def kept(*words: str, **pod: Any) -> Change:
    """Let each trial keep what it makes where the words say, without a name of its own."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["spec"]["trialTemplate"]["trialParameters"].pop()
        container(manifest)["args"][-1:] = words
        trial(manifest)["spec"]["template"]["spec"] |= pod
        container(manifest)["volumeMounts"] = (
            [{"name": "shared", "mountPath": "/models"}] if pod else []
        )

    return change


SHARED = {"volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "models"}}]}


@pytest.mark.parametrize(
    ("change", "level"),
    [
        (kept("--output=s3://b/model"), "warn"),
        (kept("--save-path", "s3://b/model"), "warn"),
        (kept("--output=/models/best", **SHARED), "warn"),
        (kept("--output=/elsewhere", **SHARED), "note"),
        (kept("--export-dir=./out"), "note"),
    ],
)
def test_trials_that_overwrite_each_other_are_pointed_out(change: Change, level: str) -> None:
    assert experiment(change)["trials-share-a-path"].level == level


@pytest.mark.parametrize(
    "word", ["--data=s3://b/mnist", "--save_binary=false", "--save-model", "--model=resnet18"]
)
def test_what_keeps_nothing_is_not_called_shared(word: str) -> None:
    assert "trials-share-a-path" not in experiment(kept(word))


def test_a_populations_own_directory_is_not_called_shared() -> None:
    def change(manifest: dict[str, Any]) -> None:
        kept("--checkpoint=/family/")(manifest)
        settings = [{"name": "suggestion_trial_dir", "value": "/family/"}]
        manifest["spec"]["algorithm"] = {"algorithmName": "pbt", "algorithmSettings": settings}

    assert "trials-share-a-path" not in experiment(change)


@pytest.mark.parametrize(
    ("change", "where", "hint"),
    [
        (put(f"{CONTAINER}.resurces", {}), f"{CONTAINER}.resurces", "did you mean resources?"),
        (
            put(f"{CONTAINER}.imagePullSecrets", [{"name": "x"}]),
            f"{CONTAINER}.imagePullSecrets",
            "did you mean imagePullPolicy?",
        ),
        (
            put(f"{SPEC}.template.spec.imagePullSecrets", [{"name": "x", "command": ["a"]}]),
            f"{SPEC}.template.spec.imagePullSecrets[0].command",
            "one of name",
        ),
        (
            put(f"{CONTAINER}.env", [{"name": "A", "valeu": "b"}]),
            f"{CONTAINER}.env[0].valeu",
            "did you mean value?",
        ),
        (
            put(f"{SPEC}.completons", 2),
            f"{SPEC}.completons",
            "did you mean completions?",
        ),
    ],
)
def test_a_field_that_no_job_has_is_named_once(change: Change, where: str, hint: str) -> None:
    found = experiment(change)
    refused, dotted = found["refused-by-webhook"], where.replace("containers.0", "containers[0]")
    assert (refused.level, refused.where, refused.hint) == ("fail", dotted, hint)
    assert "unknown-field" not in found

    def as_job(manifest: dict[str, Any]) -> None:
        job = {**trial(manifest), "metadata": {"name": "train"}}
        manifest.clear()
        manifest.update(job)

    alone = experiment(change, as_job)["unknown-field"]
    where = dotted.removeprefix("spec.trialTemplate.trialSpec.")
    assert (alone.level, alone.where, alone.hint) == ("warn", where, hint)


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (put("spec.cleanPodPolicy", "None"), "cleanPodPolicy belongs below runPolicy"),
        (put("spec.runPolicy.backofLimit", 1), "did you mean backoffLimit?"),
        (put(f"{MASTER}.comand", ["x"]), "did you mean command?"),
    ],
)
def test_a_field_that_no_pytorchjob_has_is_named(change: Change, hint: str) -> None:
    assert examine(PYTORCHJOB, change)["unknown-field"].hint == hint


@pytest.mark.parametrize(
    "change",
    [
        put(f"{POD}.resourceClaims", [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]),
        put(f"{CONTAINER}.lifecycle", {"stopSignal": "SIGTERM"}),
        put(f"{POD}.securityContext", {"supplementalGroupsPolicy": "Merge"}),
        put(f"{POD}.volumes", [{"name": "a", "image": {"reference": "x"}}]),
    ],
)
def test_no_field_of_a_newer_kubernetes_is_called_unknown(change: Change) -> None:
    assert "unknown-field" not in experiment(change)


def test_an_experiment_of_an_old_katib_has_one_finding() -> None:
    found = experiment(put("apiVersion", "kubeflow.org/v1alpha3"))
    assert list(found) == ["refused-by-webhook"]
    assert "Katib serves v1beta1 alone" in str(found["refused-by-webhook"].hint)


@pytest.mark.parametrize(
    "text", ["name: {{ .Values.name }}", "{{- if .Values.on }}\nkind: Job\n{{ end }}"]
)
def test_a_template_of_helm_is_named_as_such(text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        documents(f"metadata:\n  {text}\n", "chart.yaml")
    assert "helm template CHART" in str(error.value.hint)


def test_a_filter_without_exponents_is_a_trap() -> None:
    cut = r"([\w|-]+)\s*=\s*((-?\d+)(\.\d+)?)"
    where = "spec.metricsCollectorSpec.source.filter.metricsFormat"
    found = experiment(put(where, [cut]))["accepted-with-a-trap"]
    assert found.what == "metricsFormat reads accuracy=1.5e-05 as accuracy=1.5"
    assert "accepted-with-a-trap" not in experiment()


def test_a_strategy_of_no_metric_is_a_trap() -> None:
    strategies = [{"name": "accurracy", "value": "latest"}]
    found = experiment(put("spec.objective.metricStrategies", strategies))["accepted-with-a-trap"]
    assert found.hint == "did you mean accuracy?"


def test_the_name_of_a_primary_container_is_the_operators() -> None:
    def change(manifest: dict[str, Any]) -> None:
        template = manifest["spec"]["trialTemplate"]
        template["trialSpec"] = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "spec": {
                "pytorchReplicaSpecs": {
                    "Master": {
                        "template": template["trialSpec"]["spec"]["template"],
                        "restartPolicy": "Never",
                    }
                }
            },
        }
        pods = template["trialSpec"]["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
        pods["containers"][0]["name"] = "pytorch"
        template["primaryContainerName"] = "training"

    assert experiment(change)["accepted-but-stuck"].hint == "set it to pytorch"


def test_a_missing_primary_container_fails() -> None:
    found = experiment(lambda m: m["spec"]["trialTemplate"].update(primaryContainerName="training"))
    assert found["accepted-but-stuck"].where == "spec.trialTemplate.primaryContainerName"


def test_a_trial_s_job_that_the_api_refuses_fails() -> None:
    found = experiment(lambda m: pod(m).pop("restartPolicy"))["refused-by-operator"]
    assert found.level == "fail"
    assert found.where == "spec.trialTemplate.trialSpec.spec.template.spec.restartPolicy"


def test_processes_that_wait_for_others_that_nobody_starts_fail() -> None:
    finding = pytorchjob(lambda m: m["spec"].update(nprocPerNode="2"))[
        "fewer-processes-than-promised"
    ]
    assert finding.level == "fail"
    assert "WORLD_SIZE is 6" in finding.what
    started = pytorchjob(
        lambda m: m["spec"].update(nprocPerNode="2"),
        lambda m: master(m).update(command=["torchrun", "train.py"]),
    )
    assert started == {}


def test_without_a_master_no_process_knows_its_rank() -> None:
    assert (
        pytorchjob(lambda m: m["spec"]["pytorchReplicaSpecs"].pop("Master"))["no-master"].level
        == "warn"
    )

    def drop(manifest: dict[str, Any]) -> None:
        trial(manifest)["spec"]["pytorchReplicaSpecs"].pop("Master")

    found = experiment(as_pytorchjob, drop)
    assert found["no-master"].level == "warn"
    assert "no-pod-is-primary" not in found, "the operator calls the first Worker the master"


def test_a_container_without_an_image_is_refused() -> None:
    found = pytorchjob(lambda m: master(m).pop("image"))
    assert found["refused-by-operator"].what == "must be given, but got ''"
    assert found["refused-by-operator"].where.endswith(".containers[0].image")


def test_a_mount_of_a_missing_volume_is_refused() -> None:
    found = examine(
        PYTORCHJOB, put(f"{MASTER}.volumeMounts", [{"name": "data", "mountPath": "/data"}])
    )
    assert found["refused-by-operator"].what == "must be a volume of the pod, but got 'data'"
    assert found["refused-by-operator"].where.endswith("containers[0].volumeMounts[0].name")


def test_a_name_too_long_for_pods_fails() -> None:
    finding = pytorchjob(lambda m: m["metadata"].update(name="a" * 60))["refused-by-operator"]
    assert finding.where == "metadata.name"


def test_a_kind_without_rules_does_not_pass() -> None:
    report = examine_manifest({"kind": "ConfigMap", "metadata": {"name": "c"}}, "test")
    assert report.verdict == "not examined"
    assert [finding.rule for finding in report.findings] == ["not-examined"]
    assert examine_manifest({}, "x.yaml").subject == "x.yaml: object of no kind without a name"


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
def test_a_replicated_jobs_name_too_long_is_named(kind: str) -> None:
    jobs = [{"name": "node"}, {"name": "a" * 20}, {"name": "a" * 21}, "no object"]
    manifest = {"kind": kind, "spec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    report = examine_manifest(manifest, "test")
    assert [(finding.rule, finding.where) for finding in report.findings[:-1]] == [
        ("name-of-a-replicated-job-too-long", "spec.template.spec.replicatedJobs[2].name")
    ]
    assert report.verdict == "warn"
    jobs.pop(2)
    assert examine_manifest(manifest, "test").verdict == "not examined"


def test_a_file_may_hold_several_objects() -> None:
    kinds = [
        document["kind"] for document in documents(f"{GOOD}\n---\n{PYTORCHJOB}\n---\n", "test")
    ]
    assert kinds == ["Experiment", "PyTorchJob"]
    listed = yaml.safe_dump({"kind": "List", "items": [yaml.safe_load(GOOD)]})
    assert [document["kind"] for document in documents(listed, "test")] == ["Experiment"]
    with pytest.raises(InvalidInput, match="not readable as YAML at line"):
        documents("a: [", "test")
    for wrong in ("- a", "kind: List\nitems: [1]", "kind: List\nitems: 5"):
        with pytest.raises(InvalidInput, match="is an object"):
            documents(wrong, "test")


def test_the_images_of_a_manifest_are_known() -> None:
    assert job_of(yaml.safe_load(GOOD)).images == ("trainer:1.0",)
    assert job_of(yaml.safe_load(PYTORCHJOB)).images == ("trainer:1.0", "trainer:1.0")


def test_no_mutation_of_a_manifest_ends_in_a_traceback() -> None:
    rng = random.Random(7)
    junk = [
        None,
        [],
        {},
        "x",
        "",
        0,
        -1,
        1.5,
        True,
        ["x"],
        {"a": 1},
        [None],
        [[]],
        "a b",
        "${trialParameters.x}",
    ]
    for whole in map(yaml.safe_load, (GOOD, PYTORCHJOB)):
        for _ in range(300):
            manifest = copy.deepcopy(whole)
            for _ in range(rng.randint(1, 3)):
                holder, key = rng.choice(places(manifest))
                if rng.random() < 0.3 and isinstance(holder, dict):
                    holder.pop(key)
                else:
                    holder[key] = copy.deepcopy(rng.choice(junk))
            examine_manifest(manifest, "mutated")


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (holder, key) in a tree."""
    pairs = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [pair for key, inner in pairs for pair in [(value, key), *places(inner)]]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"hostNetwork": True}, "hostNetwork is true"),
        (
            {"volumes": [{"name": "data", "hostPath": {"path": "/data"}}]},
            "volume data is of type hostPath",
        ),
        ({"securityContext": {"runAsUser": 0}}, "runAsUser is 0"),
    ],
)
def test_pods_that_no_restricted_namespace_takes_are_noted(spec: dict[str, Any], said: str) -> None:
    finding = experiment(lambda manifest: pod(manifest).update(spec))["refused-where-restricted"]
    assert finding.level == "note"
    assert said in finding.what
    assert "refused-where-restricted" not in experiment(), "podium adds what is only missing"


def test_every_rule_has_a_test_and_is_listed() -> None:
    from podium import doctor, manifests
    from podium.doctor.rules import TABLES

    modules = [
        import_module(found.name)
        for package in (doctor, manifests)
        for found in walk_packages(package.__path__, f"{package.__name__}.")
    ]
    tables = [
        value for module in modules for value in vars(module).values() if isinstance(value, Rules)
    ]
    names = {rule.name for table in tables for rule in table}
    assert len(names) > 80
    tested = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in sorted(names) if name not in tested] == []
    assert {rule.name for table in TABLES.values() for rule in table} >= names
    listed = CliRunner().invoke(app, ["doctor", "--rules"]).output
    told = json.loads(CliRunner().invoke(app, ["doctor", "--rules", "--json"]).output)
    assert {rule["rule"] for found in told.values() for rule in found} >= names
    assert all(f"\n{name} " in listed for name in names)


def test_half_a_character_in_a_name_is_examined() -> None:
    def rename(manifest: dict[str, Any]) -> None:
        manifest["spec"]["objective"] = {"type": "maximize", "objectiveMetricName": "\ud800"}

    assert "failures-without-limit" not in experiment(rename)


def operator_job(kind: str, **container: Any) -> dict[str, Any]:
    """A job of the training operator with one Worker."""
    operator = OPERATOR_KINDS[kind]
    pod = {
        "spec": {
            "containers": [
                {"name": operator.container, "image": "i:1", "command": ["run"], **container}
            ]
        }
    }
    replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": pod}
    spec = {operator.replica_specs: {"Worker": replica}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "job"},
        "spec": spec,
    }


def test_a_dot_in_the_name_is_said_once() -> None:
    manifest = load("random-trainjob")
    manifest["metadata"]["name"] = "a.b"
    said = [
        finding.rule
        for finding in examine_manifest(manifest, "test").findings
        if finding.where == "metadata.name"
    ]
    assert said == ["accepted-but-stuck"]


@pytest.mark.parametrize(
    ("kind", "variable"),
    [("TFJob", "TF_CONFIG"), ("JAXJob", "PROCESS_ID"), ("XGBoostJob", "WORKER_ADDRS")],
)
def test_jobs_of_every_operator_kind_are_examined(kind: str, variable: str) -> None:
    report = examine_manifest(operator_job(kind, env=[{"name": variable, "value": "1"}]), "test")
    found = {finding.rule for finding in report.findings}
    assert report.examined
    assert {"restarts-without-end", "operator-variables-overwritten"} <= found
    assert ("refused-by-operator" in found) == (kind == "XGBoostJob"), "it needs a Master"


def test_a_file_read_by_lines_needs_no_unbuffered_output() -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["spec"]["earlyStopping"] = {"algorithmName": "medianstop"}
        source = {"fileSystemPath": {"kind": "File", "path": "/out/log"}}
        manifest["spec"]["metricsCollectorSpec"] = {"collector": {"kind": "File"}, "source": source}

    assert "buffered-while-stopping-early" not in experiment(change)

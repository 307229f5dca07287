"""Experiments made from the bundled ones stay valid and say what was asked."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, bundled, check, customize, examine, load
from podium.metrics import STRICT_FORMAT
from podium.trainer.config import TrainConfig
from podium.trainer.networks import recipe as recipe_of


@pytest.mark.parametrize("name", bundled())
def test_every_bundled_experiment_is_valid_and_avoids_katibs_traps(name: str) -> None:
    assert [finding for finding in examine(load(name)) if finding.level != "note"] == []
    experiment = Experiment.load(name)
    spec = experiment.spec
    assert spec["metricsCollectorSpec"]["source"]["filter"]["metricsFormat"] == [STRICT_FORMAT]
    assert {
        strategy["name"] for strategy in load(name)["spec"]["objective"]["metricStrategies"]
    } == {
        "accuracy",
        "loss",
    }
    assert "${trialSpec.Name}" in {
        given["reference"] for given in spec["trialTemplate"]["trialParameters"]
    }
    for _, container in experiment.template.primary_containers():
        command = " ".join(container.words)
        assert not set(command) & set("'\"\\;|&<>()*?`~#\n"), (
            "the command survives an unquoted sh -c"
        )


def learning_rates(experiment: dict[str, Any]) -> tuple[float, float]:
    (space,) = (
        parameter["feasibleSpace"]
        for parameter in experiment["spec"]["parameters"]
        if parameter["name"] == "lr"
    )
    return float(space["min"]), float(space["max"])


@pytest.mark.parametrize("name", [name for name in bundled() if name != "tables"])
@pytest.mark.parametrize("network", ["tutorial", "fast", "best", "mlp", "resnet18", "swin_t"])
def test_bundled_learning_rates_suit_the_networks_optimizer(name: str, network: str) -> None:
    recipe = replace(TrainConfig(), **recipe_of(network))
    experiment = load(name, network)
    least, most = learning_rates(experiment)
    scale = (
        128 / recipe.batch_size if recipe.optimizer == "sgd" else 1
    )  # 128 is the largest batch that is searched
    assert least <= recipe.lr * scale / 2 < most <= 2 * recipe.lr * min(scale, 1)
    assert check(Experiment.parse(experiment)).space[1:] == check(Experiment.load(name)).space[1:]
    if recipe.optimizer == "adadelta":
        assert experiment == load(name)


def test_learning_rates_of_ones_own_are_never_changed(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(load("random")))
    assert load(str(file), "fast") == load(file.read_text(), "fast") == load("random")


def test_master_and_worker_run_the_same_program() -> None:
    replicas = load("random")["spec"]["trialTemplate"]["trialSpec"]["spec"]["pytorchReplicaSpecs"]
    assert replicas["Master"]["template"] == replicas["Worker"]["template"]


@pytest.mark.parametrize("count", [0, -1])
def test_only_a_template_without_trials_is_refused(count: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        customize(Experiment.load("random"), max_trials=count)
    assert caught.value.message == f"`max_trials >= 1` must hold, but got max_trials={count}"


def test_customising_changes_what_was_asked_and_nothing_else() -> None:
    template = Experiment.load("tpe")
    before = copy.deepcopy(template.manifest)
    made = check(
        customize(
            template,
            name="sweep-1",
            namespace="team",
            image="mine:1",
            flags={"--data": "file:///d", "--epochs": "3", "--model": "fast"},
            max_trials=2,
            goal=0.99,
            seed=7,
            workers=2,
            resources={"limits": {"nvidia.com/gpu": "1"}},
            env=[{"name": "A", "value": "1"}],
            labels={"podium.dev/run": "r"},
            owner={
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Workflow",
                "name": "w",
                "uid": "u",
            },
        )
    )
    assert template.manifest == before
    spec = made.spec
    assert (made.name, made.namespace) == ("sweep-1", "team")
    assert (spec["maxTrialCount"], spec["parallelTrialCount"], spec["maxFailedTrialCount"]) == (
        2,
        2,
        2,
    )
    assert spec["objective"]["goal"] == 0.99
    assert {"name": "random_state", "value": "7"} in spec["algorithm"]["algorithmSettings"]
    trial = spec["trialTemplate"]["trialSpec"]
    assert trial["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
    assert trial["metadata"]["labels"] == made.labels == {"podium.dev/run": "r"}
    for _, container in made.template.primary_containers():
        assert container.image == "mine:1"
        assert container.limits == {"nvidia.com/gpu": "1"}
        assert container.manifest["env"] == [{"name": "A", "value": "1"}]
        assert container.args.count("--epochs=3") == 1
        assert "--epochs=1" not in container.args
        assert container.args[-3:] == ("--data=file:///d", "--epochs=3", "--model=fast")


def test_a_flag_that_is_given_is_searched_no_more() -> None:
    made = check(customize(Experiment.load("random"), flags={"--epochs": "1"}))
    assert "epochs" not in {parameter.name for parameter in made.space}
    assert "trialParameters.epochs" not in json.dumps(made.manifest)


def test_without_workers_the_worker_is_gone() -> None:
    job = customize(Experiment.load("random"), workers=0).template.workload
    assert [replica.role for replica in job.replicas] == ["Master"]


def test_a_path_with_a_blank_is_quoted_for_shells_only() -> None:
    made = check(customize(Experiment.load("random"), flags={"--data": "file:///my data"}))
    args = {
        replica.role: container.args for replica, container in made.template.workload.containers()
    }
    assert "'--data=file:///my data'" in args["Master"]
    assert "--data=file:///my data" in args["Worker"]
    again = customize(made, flags={"--data": "file:///d"})
    assert sum("--data" in argument for argument in json.dumps(again.manifest).split('"')) == 2


def test_a_program_with_variables_gets_no_flags_for_them() -> None:
    manifest = load("random-job")
    (container,) = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
        "containers"
    ]
    container |= {
        "command": ["train", "--lr=${trialParameters.lr}", "--data=$(PODIUM_DATA)"],
        "args": [],
    }
    names = ("PODIUM_DATA", "PODIUM_OUTPUT")
    container["env"] = [{"name": name, "value": "/home/me"} for name in names]
    made = customize(Experiment.parse(manifest), flags={"--data": "s3://d"}, output="s3://o")
    job = made.render("t", {"lr": "0.1", "batch-size": "64", "schedule": "step"})
    (trained,) = job.replicas[0].pod.containers
    assert trained.words == ("train", "--lr=0.1", "--data=s3://d")
    assert [variable.value for variable in trained.variables] == ["s3://d", "s3://o/t"]


def test_a_trial_gets_its_values_and_its_own_name() -> None:
    values = {"lr": "0.1", "batch-size": "64", "schedule": "step"}
    job = check(Experiment.load("random-job")).render("random-job-abc", values)
    assert job.metadata == {"name": "random-job-abc", "namespace": "default"}
    args = job.replicas[0].pod.containers[0].args
    assert args[:3] == ("--lr=0.1", "--batch-size=64", "--schedule=step")
    assert args[-1] == "--output=s3://podium/trials/random-job-abc"


def test_trial_metadata_may_be_referred_to() -> None:
    experiment = load("random-job")
    template = experiment["spec"]["trialTemplate"]
    template["trialSpec"]["metadata"] = {"labels": {"team": "blue"}, "annotations": {"note": "n1"}}
    template["trialSpec"]["spec"]["template"]["spec"]["containers"][0]["command"] = ["train"]
    references = ("Namespace", "Kind", "APIVersion", "Labels[team]", "Annotations[note]")
    for place, reference in enumerate(references):
        template["trialParameters"].append(
            {"name": f"m{place}", "reference": f"${{trialSpec.{reference}}}"}
        )
        template["trialSpec"]["spec"]["template"]["spec"]["containers"][0]["args"].append(
            f"${{trialParameters.m{place}}}"
        )
    job = check(Experiment.parse(experiment)).render(
        "t", {"lr": "0.1", "batch-size": "64", "schedule": "step"}
    )
    args = job.replicas[0].pod.containers[0].args
    assert args[-5:] == ("default", "Job", "batch/v1", "blue", "n1")
    template["trialSpec"]["metadata"] = {}
    with pytest.raises(InvalidInput, match="label or annotation"):
        check(Experiment.parse(experiment))


def test_values_are_not_searched_for_placeholders_again() -> None:
    experiment = load("random-job")
    experiment["spec"]["parameters"][2]["feasibleSpace"]["list"] = [
        "${trialParameters.lr}",
        "a\\nb",
        "tab\tc",
    ]
    experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0][
        "command"
    ] = ["train"]
    checked = check(Experiment.parse(experiment))
    for value, expected in (
        ("${trialParameters.lr}", "${trialParameters.lr}"),
        ("a\\nb", "a\nb"),
        ("tab\tc", "tab\tc"),
    ):
        job = checked.render("t", {"lr": "0.1", "batch-size": "64", "schedule": value})
        assert f"--schedule={expected}" in job.replicas[0].pod.containers[0].args


@pytest.mark.parametrize(
    "text", ["a: [", "a: 1\n---\nb: 2\n", "just words\n", "- 1\n- 2\n", "a: .nan\n", "a: &x [*x]\n"]
)
def test_text_that_is_not_one_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        load(text + "\n")


def test_numbers_are_read_as_kubectl_reads_them() -> None:
    read = load("goal: 1e-3\nday: 2026-01-02\nversion: 1.2.3\nname: e5\nsmall: .5\n")
    assert read == {
        "goal": 0.001,
        "day": "2026-01-02",
        "version": "1.2.3",
        "name": "e5",
        "small": 0.5,
    }


def test_a_name_nobody_knows_is_answered_with_the_nearest() -> None:
    with pytest.raises(InvalidInput) as caught:
        load("randon")
    assert caught.value.hint == "did you mean random?"


def test_what_render_prints_can_be_loaded_again() -> None:
    made = customize(Experiment.load("medianstop"), name="m1", image="x:2")
    assert load(yaml.safe_dump(made.manifest, sort_keys=False)) == made.manifest


@pytest.mark.parametrize(
    "setting", [{"workers": 1}, {"flags": {"--lr": "1"}}, {"env": [{"name": "A", "value": "1"}]}]
)
def test_settings_of_a_job_in_a_configmap_are_refused(setting: dict[str, Any]) -> None:
    manifest = load("random")
    del manifest["spec"]["trialTemplate"]["trialSpec"]
    manifest["spec"]["trialTemplate"]["configMap"] = {
        "configMapName": "jobs",
        "templatePath": "job.yaml",
    }
    with pytest.raises(InvalidInput, match="need a trialSpec"):
        customize(Experiment.parse(manifest), **setting)

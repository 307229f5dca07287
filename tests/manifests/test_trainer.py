"""What a trainer of one's own is given: placeholders, variables, or two flags."""

from typing import Any

import pytest

from podium.manifests.experiment import Experiment
from podium.manifests.experiment.build import adapt, locate
from podium.manifests.workload import Container

PARAMETERS = [{"name": name, "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}
              for name in ("rate", "data")]  # fmt: skip


def experiment(container: dict[str, Any], *, searched: tuple[str, ...] = ("rate",)) -> Experiment:
    names = [{"name": name, "reference": name} for name in searched]
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "training", **container}]}}
    return Experiment.parse({
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "own"},
        "spec": {
            "objective": {"type": "maximize", "objectiveMetricName": "score"},
            "algorithm": {"algorithmName": "random"},
            "parameters": [parameter for parameter in PARAMETERS if parameter["name"] in searched],
            "trialTemplate": {
                "primaryContainerName": "training",
                "trialParameters": names,
                "trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": pod}},
            },
        },
    })  # fmt: skip


def trial_of(given: Experiment, data: str = "/data", root: str = "/trials") -> Container:
    """Return the container of a trial of the sweep."""
    fixed = {"epochs": 3, "seed": 1, "model": "fast"}
    adapted = locate(
        adapt(given, fixed=fixed, name="sweep", image_for=lambda own: own), data=data, root=root
    )
    job = adapted.render("sweep-1", {parameter.name: "0.5" for parameter in adapted.space})
    ((_, container),) = job.containers()
    assert container.env["PODIUM_DATA"].value == data
    assert container.env["PODIUM_OUTPUT"].value == f"{root}/sweep-1"
    return container


def test_a_command_without_any_mention_gets_two_flags() -> None:
    own = experiment(
        {
            "image": "mine",
            "command": ["python", "fit.py"],
            "args": ["--rate=${trialParameters.rate}"],
        }
    )
    assert trial_of(own).words == (
        "python", "fit.py", "--rate=0.5", "--data=/data", "--output=/trials/sweep-1",
    )  # fmt: skip


@pytest.mark.parametrize("word", ["--in=${podium.data}", "$PODIUM_DATA", "--to=${podium.output}"])
def test_a_placeholder_or_variable_replaces_the_flags(word: str) -> None:
    own = experiment({"image": "mine", "command": ["fit", word, "${trialParameters.rate}"]})
    filled = word.replace("${podium.data}", "/data").replace("${podium.output}", "/trials/sweep-1")
    assert trial_of(own).words == ("fit", filled, "0.5")


def test_a_placeholder_in_the_environment_counts() -> None:
    env = [
        {"name": "INPUT", "value": "${podium.data}/x"},
        {"name": "RATE", "value": "${trialParameters.rate}"},
    ]
    container = trial_of(experiment({"image": "mine", "command": ["fit"], "env": env}))
    assert container.words == ("fit",)
    assert (container.env["INPUT"].value, container.env["RATE"].value) == ("/data/x", "0.5")


def test_a_shell_gets_the_variables_alone() -> None:
    own = experiment({"image": "mine", "command": ["/bin/sh", "-c", "fit ${trialParameters.rate}"]})
    assert trial_of(own).words == ("/bin/sh", "-c", "fit 0.5")


@pytest.mark.parametrize(
    ("command", "last"),
    [
        (["sh", "-c", "fit ${trialParameters.rate} ${podium.data}"], "fit 0.5 '/my data'"),
        (["fit", "${trialParameters.rate}", "${podium.data}"], "'/my data'"),  # Katib's shell
    ],
)
def test_a_path_with_blanks_is_quoted_for_a_shell(command: list[str], last: str) -> None:
    own = experiment({"image": "mine", "command": command})
    assert trial_of(own, data="/my data").words[-1] == last


def test_a_search_parameter_called_data_keeps_its_flag() -> None:
    words = ["fit", "--data=${trialParameters.data}", "--rate", "${trialParameters.rate}"]
    own = experiment({"image": "mine", "command": words}, searched=("rate", "data"))
    assert trial_of(own).words == ("fit", "--data=0.5", "--rate", "0.5", "--output=/trials/sweep-1")


def test_fixed_places_in_a_users_flags_give_way() -> None:
    words = ["fit", "--data", "s3://old/data", "--output=s3://old/out", "${trialParameters.rate}"]
    own = experiment({"image": "mine", "command": words})
    assert trial_of(own).words == ("fit", "0.5", "--data=/data", "--output=/trials/sweep-1")


def test_podiums_trainer_behind_torchrun_gets_its_flags() -> None:
    words = ["torchrun", "-m", "podium.trainer", "--lr=${trialParameters.rate}"]
    own = trial_of(experiment({"image": "mine", "command": words}))
    assert own.words == (
        *("torchrun", "-m", "podium.trainer", "--lr=0.5", "--epochs=3", "--seed=1", "--model=fast"),
        *("--data=/data", "--output=/trials/sweep-1"),
    )

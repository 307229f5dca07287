"""Somebody's Experiment becomes part of a run."""

from typing import Any

from podium.manifests.experiment import Experiment, load
from podium.manifests.experiment.build import adapt, flags_of
from podium.manifests.experiment.webhook_rules import admit

RUN: dict[str, Any] = {"name": "sweep-1", "image_for": lambda own: own}


def test_a_finished_sweep_keeps_no_suggestion_service() -> None:
    template = Experiment.load("random").changed(
        lambda manifest: manifest["spec"].update(resumePolicy="LongRunning")
    )
    assert adapt(template, fixed={}, **RUN).resume_policy == "Never"
    assert template.resume_policy == "LongRunning"


def test_every_replica_gets_gpus_beside_its_own_requests() -> None:
    template = load("random")
    for replica in template["spec"]["trialTemplate"]["trialSpec"]["spec"][
        "pytorchReplicaSpecs"
    ].values():
        replica["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    adapted = adapt(Experiment.parse(template), fixed={}, gpus=2, workers=3, **RUN)
    replicas = adapted.manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"}
    for replica in replicas.values():
        assert replica["template"]["spec"]["containers"][0]["resources"] == {
            "requests": {"cpu": "2", "nvidia.com/gpu": "2"},
            "limits": {"nvidia.com/gpu": "2"},
        }


def test_what_the_run_decides_is_searched_no_longer() -> None:
    searched = [parameter["name"] for parameter in load("random")["spec"]["parameters"]]
    name = next(flag for flag in searched if flag != "lr")
    adapted = adapt(Experiment.load("random"), fixed={name: "7", "epochs": 0}, **RUN)
    assert [parameter.name for parameter in adapted.space] == [
        flag for flag in searched if flag != name
    ]
    admit(adapted.manifest)
    left = {parameter.name: "0.1" for parameter in adapted.space}
    flags = flags_of(adapted, "sweep-1-abc", left)
    assert flags[name] == "7"
    assert not {"data", "output"} & set(flags)


def test_what_a_network_does_not_take_is_searched_no_longer() -> None:
    def change(manifest: dict[str, Any]) -> None:
        dropout = {"name": "dropout", "parameterType": "double"}
        dropout["feasibleSpace"] = {"min": "0.0", "max": "0.3"}  # type: ignore[assignment]
        manifest["spec"]["parameters"].append(dropout)
        template = manifest["spec"]["trialTemplate"]
        template["trialParameters"].append({"name": "dropout", "reference": "dropout"})
        for replica in template["trialSpec"]["spec"]["pytorchReplicaSpecs"].values():
            words = replica["template"]["spec"]["containers"][0]["args"]
            words.append("--dropout=${trialParameters.dropout}")

    searched = Experiment.load("random").changed(change)
    kept = adapt(searched, fixed={"model": "mlp"}, **RUN)
    assert "dropout" in {parameter.name for parameter in kept.space}
    linear = adapt(searched, fixed={"model": "linear"}, **RUN)
    assert "dropout" not in {parameter.name for parameter in linear.space}
    values = {parameter.name: "0.1" for parameter in linear.space}
    assert flags_of(linear, "sweep-1-abc", values)["dropout"] == "0"

"""Somebody's Experiment becomes part of a run."""

from podium.manifests.experiment import admit, load
from podium.steps.adapt import adapt, flags_of

RUN = {"data": "s3://bucket/data", "root": "s3://bucket/trials", "name": "sweep-1", "image": "trainer:1"}


def test_a_sweep_of_a_run_keeps_no_suggestion_service_when_it_is_over() -> None:
    template = load("random")
    template["spec"]["resumePolicy"] = "LongRunning"
    assert adapt(template, fixed={}, **RUN)["spec"]["resumePolicy"] == "Never"
    assert template["spec"]["resumePolicy"] == "LongRunning"


def test_every_replica_of_a_trial_gets_its_gpus_beside_what_it_asks_for() -> None:
    template = load("random")
    for replica in template["spec"]["trialTemplate"]["trialSpec"]["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    adapted = adapt(template, fixed={}, gpus=2, workers=3, **RUN)
    replicas = adapted["spec"]["trialTemplate"]["trialSpec"]["spec"]["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"}
    for replica in replicas.values():
        assert replica["template"]["spec"]["containers"][0]["resources"] == {
            "requests": {"cpu": "2", "nvidia.com/gpu": "2"},
            "limits": {"nvidia.com/gpu": "2"},
        }


def test_what_the_run_decides_is_searched_no_longer() -> None:
    searched = [one["name"] for one in load("random")["spec"]["parameters"]]
    name = next(one for one in searched if one != "lr")
    adapted = adapt(load("random"), fixed={name: "7", "epochs": 0}, **RUN)
    assert [one["name"] for one in adapted["spec"]["parameters"]] == [one for one in searched if one != name]
    admit(adapted)
    left = {one["name"]: "0.1" for one in adapted["spec"]["parameters"]}
    flags = flags_of(adapted, "sweep-1-abc", left)
    assert flags[name] == "7"
    assert not {"data", "output"} & set(flags)

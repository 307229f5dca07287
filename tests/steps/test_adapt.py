"""Somebody's Experiment becomes part of a run."""

from podium.manifests.experiment import admit, load
from podium.steps.adapt import adapt, flags_of

RUN = {"data": "s3://bucket/data", "root": "s3://bucket/trials", "name": "sweep-1", "image": "trainer:1"}


def test_a_sweep_of_a_run_keeps_no_suggestion_service_when_it_is_over() -> None:
    template = load("random")
    assert template["spec"]["resumePolicy"] == "LongRunning"
    assert adapt(template, fixed={}, **RUN)["spec"]["resumePolicy"] == "Never"
    assert template["spec"]["resumePolicy"] == "LongRunning"


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

"""Experiment, Trial and Workload: one reading of a manifest, which stays what it was."""

import copy
import json
from typing import Any

import pytest
from katibcases import CASES, NASTY, experiment_of

from podium.errors import InvalidInput
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.source import bundled, load
from podium.manifests.experiment.trial import Trial, best_trial, leaderboard
from podium.manifests.names import named
from podium.manifests.workload import Workload


def a_trial(name: str, value: str, phase: str = "Succeeded", kind: str = "maximize") -> Trial:
    return Trial(
        manifest={
            "kind": "Trial",
            "metadata": {"name": name, "labels": {"katib.kubeflow.org/experiment": "sweep"}},
            "spec": {
                "objective": {"type": kind, "objectiveMetricName": "accuracy"},
                "parameterAssignments": [{"name": "lr", "value": "0.1"}],
                "runSpec": {"kind": "Job"},
            },
            "status": {
                "startTime": "2026-01-01T00:00:00Z",
                "completionTime": "2026-01-01T00:00:02.5Z",
                "conditions": [{"type": phase, "status": "True", "message": "done"}],
                "observation": {
                    "metrics": [{"name": "accuracy", "min": value, "max": value, "latest": value}]
                },
            },
        }
    )


@pytest.mark.parametrize("name", bundled())
def test_parsing_leaves_the_manifest_as_it_was(name: str) -> None:
    manifest = load(name)
    before = copy.deepcopy(manifest)
    experiment = Experiment.parse(manifest)
    assert manifest == before == experiment.manifest
    assert experiment.limits.parallel >= 1
    assert experiment.collector.kind == "StdOut"
    assert {parameter.name for parameter in experiment.space} == {
        parameter["name"] for parameter in manifest["spec"]["parameters"]
    }


@pytest.mark.parametrize("name", bundled())
def test_a_rendered_trial_has_no_placeholder_left(name: str) -> None:
    experiment = Experiment.parse(load(name))
    values = {parameter.name: parameter.nth(0) if parameter.choices else parameter.text(parameter.low)
              for parameter in experiment.space}  # fmt: skip
    job = experiment.render("sweep-abcd1234", values)
    assert job.name == "sweep-abcd1234"
    assert "${trialParameters" not in json.dumps(job.manifest)
    assert any(
        value in word
        for value in values.values()
        for _, container in job.containers()
        for word in container.words
    )


def test_an_unknown_field_survives_a_change() -> None:
    manifest = load("random")
    manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["futureField"] = {"kept": True}

    def rename(draft: dict[str, Any]) -> None:
        draft["metadata"]["name"] = "other"

    changed = Experiment.parse(manifest).changed(rename)
    assert changed.name == "other"
    assert changed.template.workload.spec["futureField"] == {"kept": True}
    assert "resumePolicy" in changed.spec


def test_wrong_types_are_refused_by_field() -> None:
    with pytest.raises(InvalidInput, match=r"spec\.parallelTrialCount"):
        Experiment.parse({"kind": "Experiment", "spec": {"parallelTrialCount": "two"}})


def test_an_empty_experiment_reads_as_defaults() -> None:
    experiment = Experiment.parse({"kind": "Experiment"})
    assert experiment.objective.metrics == ()
    assert experiment.limits.parallel == 3
    assert experiment.template.primary_containers() == []


def test_a_pytorchjob_reads_as_master_and_workers() -> None:
    pod = {
        "spec": {
            "containers": [
                {"name": "pytorch", "image": "i", "command": ["python"], "args": ["a.py"]}
            ]
        }
    }
    replicas = {
        "Master": {"replicas": 1, "template": pod},
        "Worker": {"replicas": 2, "template": pod},
    }
    job = Workload.parse({"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": replicas, "nprocPerNode": "4",
                                                         "runPolicy": {"activeDeadlineSeconds": 60}}})  # fmt: skip
    assert [(replica.role, replica.count) for replica in job.replicas] == [
        ("Master", 1),
        ("Worker", 2),
    ]
    assert job.workers == 2
    assert job.active_deadline_seconds == 60
    assert job.processes_per_replica == 4
    assert [container.words for _, container in job.containers()] == [("python", "a.py")] * 2
    worker = job.replica("Worker")
    assert worker is not None
    assert (
        worker.pod.containers[0].path
        == "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]"
    )


def test_changing_one_replica_leaves_its_twin_alone() -> None:
    pod = {
        "spec": {"containers": [{"name": "pytorch"}]}
    }  # one object twice, as YAML anchors make it
    job = Workload.parse({"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Master": {"template": pod},
                                                                                 "Worker": {"template": pod}}}})  # fmt: skip
    changed = job.changed_job(lambda editor: next(iter(editor.containers()))[1].update(image="new"))
    assert [container.image for _, container in changed.containers()] == ["new", ""]
    assert [container.image for _, container in job.containers()] == ["", ""]


def test_roles_in_lower_case_get_workers_like_their_master() -> None:
    pod = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    job = Workload.parse(
        {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"master": {"template": pod}}}}
    )
    more = job.changed_job(lambda editor: editor.set_workers(2))
    fewer = more.changed_job(lambda editor: editor.set_workers(1))
    assert [(more.workers, fewer.workers), len(fewer.replicas)] == [(2, 1), 2]
    assert fewer.images == ("i", "i")


@pytest.mark.parametrize(("tries", "scaled"), [(3, 12), (0, 0), (None, None), ("three", "three")])
def test_each_of_more_workers_may_restart_as_often(tries: Any, scaled: Any) -> None:
    pod = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    policy = {} if tries is None else {"runPolicy": {"backoffLimit": tries}}
    job = Workload(
        manifest={"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Master": {"template": pod}}} | policy}
    )  # fmt: skip
    more = job.changed_job(lambda editor: editor.set_workers(3))
    assert more.manifest["spec"].get("runPolicy", {}).get("backoffLimit") == scaled
    fewer = more.changed_job(lambda editor: editor.set_workers(0))
    assert fewer.manifest["spec"].get("runPolicy", {}).get("backoffLimit") == tries


def test_a_job_with_fewer_workers_may_still_restart() -> None:
    pod = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    replicas = {"Master": {"template": pod}, "Worker": {"replicas": 3, "template": pod}}
    spec = {"pytorchReplicaSpecs": replicas, "runPolicy": {"backoffLimit": 1}}
    job = Workload(manifest={"kind": "PyTorchJob", "spec": spec})
    alone = job.changed_job(lambda editor: editor.set_workers(0))
    assert alone.manifest["spec"]["runPolicy"]["backoffLimit"] == 1


@pytest.mark.parametrize("given", ["../a-", ".a-", "a/"])
def test_a_generated_name_is_a_name_too(given: str) -> None:
    with pytest.raises(InvalidInput, match=r"metadata\.name must be a name"):
        named(Workload.parse({"kind": "Job", "metadata": {"generateName": given}}))


@pytest.mark.parametrize("wrong", [7, "x", ["a"], {"containers": 5}, {"containers": [3]}, None])
def test_a_pod_of_the_wrong_shape_reads_as_empty(wrong: Any) -> None:
    job = Workload.parse({"kind": "Job", "spec": {"template": {"spec": wrong}}})
    assert [container.name for _, container in job.containers() if container.name] == []


def test_a_number_for_a_key_leaves_a_variable_readable() -> None:
    body = {"env": [{"name": "A", 1: 2}, {"name": "B", "value": None}, {"name": "C", "value": 0}]}
    job = Workload.parse({"kind": "Job", "spec": {"template": {"spec": {"containers": [body]}}}})
    ((_, container),) = job.containers()
    assert [variable.value for variable in container.variables] == ["", "", "0"]


def test_a_trial_tells_value_time_and_state() -> None:
    trial = a_trial("sweep-1", "0.9")
    assert trial.experiment == "sweep"
    assert trial.value == 0.9
    assert trial.seconds == 2.5
    assert trial.phase == "Succeeded"
    assert trial.assignments == {"lr": "0.1"}
    assert trial.to_json()["metrics"]["accuracy"]["latest"] == "0.9"


def test_the_best_trial_has_a_number_and_ended_well() -> None:
    trials = [
        a_trial("a", "0.5"),
        a_trial("b", "nan"),
        a_trial("c", "0.99", phase="Failed"),
        a_trial("d", "0.7"),
    ]
    assert [trial.name for trial in leaderboard(trials)] == ["c", "d", "a", "b"]
    best = best_trial(trials)
    assert best is not None
    assert best.name == "d"


def test_less_is_better_where_the_objective_minimizes() -> None:
    best = best_trial([a_trial("a", "0.5", kind="minimize"), a_trial("b", "0.7", kind="minimize")])
    assert best is not None
    assert best.name == "a"


@pytest.mark.parametrize("case", sorted(CASES))
def test_what_a_real_katib_ran_reads_in_full(case: str) -> None:
    manifest = experiment_of(CASES[case])
    experiment = Experiment.parse(manifest)
    assert (
        experiment.template.workload.kind == manifest["spec"]["trialTemplate"]["trialSpec"]["kind"]
    )
    assert experiment.template.success_condition
    assert all(container.command for _, container in experiment.wrapped_containers())
    wraps = experiment.collector.kind in ("StdOut", "File", "TensorFlowEvent", "Custom")
    assert bool(experiment.wrapped_containers()) == wraps


@pytest.mark.parametrize("value", NASTY, ids=repr)
def test_nonsense_in_a_job_reads_as_something(value: Any) -> None:
    for job in ({"kind": value}, {"kind": "Job", "spec": value}, {"kind": "PyTorchJob", "metadata": value,
                "spec": {"pytorchReplicaSpecs": {"Master": value}, "nprocPerNode": value}}):  # fmt: skip
        workload = Workload.parse(job)
        assert all(
            isinstance(container.name, str) and isinstance(container.words, tuple)
            for _, container in workload.containers()
        )
        assert workload.workers >= 0
        assert workload.processes_per_replica is None or workload.kind == "PyTorchJob"

"""OptimizationJobs of Kubeflow Trainer, which has no controller for them yet."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from trainjobs import POST

from podium.errors import InvalidInput
from podium.manifests.experiment import check
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.optimization_job import (
    as_experiment,
    as_optimization_job,
    with_status,
)
from podium.manifests.experiment.rules import examine
from podium.manifests.experiment.source import load
from podium.manifests.labels import OPTIMIZATION_JOB

SCRIPT = (
    POST
    + """
import os
lr = float(os.environ["KUBEFLOW_TRAINER_OPT_LEARNING_RATE"])
batch = int(os.environ["KUBEFLOW_TRAINER_OPT_BATCH_SIZE"])
post(50, val_loss=9)
post(100, val_loss=lr + batch)
"""
)


def optimization_job(script: str = "train.py", **spec: Any) -> dict[str, Any]:
    """Write the proposal's example."""
    parameters = [
        {"name": "learning_rate", "searchSpace": {"logUniform": {"min": "0.0001", "max": "0.1"}}},
        {"name": "batch_size", "searchSpace": {"categorical": {"choices": ["1", "2"]}}},
    ]
    trainer = {"image": "python", "command": ["python", script]}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "OptimizationJob",
        "metadata": {"name": "tuning"},
        "spec": {
            "objectives": [{"metric": "val_loss", "direction": "Minimize"}],
            "searchAlgorithm": {"random": {"seed": 3}},
            "parameters": parameters,
            "numTrials": 3,
            "parallelTrials": 1,
            "trainJobTemplate": {
                "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
            },
            **spec,
        },
    }


def test_an_optimizationjob_runs_to_its_best_trial(
    tmp_path: Path, podium: Callable[..., Result]
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(optimization_job(str(tmp_path / "train.py"))))
    podium("experiment", "run", str(file), "--dir", str(tmp_path / "cluster"))
    written = json.loads((tmp_path / "cluster/experiments/tuning/optimizationjob.json").read_text())
    assert (written["kind"], written["spec"]) == (
        "OptimizationJob",
        optimization_job(str(tmp_path / "train.py"))["spec"],
    )
    last = written["status"]["conditions"][-1]
    assert (last["type"], last["reason"]) == ("Complete", "MaxTrialsReached")
    values = []
    for trial in (tmp_path / "cluster/trials").glob("*/object.json"):
        given = json.loads(trial.read_text())
        (metric,) = given["status"]["observation"]["metrics"]
        values.append(
            (
                float(metric["latest"]),
                given["metadata"]["name"],
                given["spec"]["parameterAssignments"],
            )
        )
    _, name, assignments = min(values)
    assert written["status"]["result"] == {"trainJobName": name, "parameters": assignments}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"objectives": []}, "spec.objectives: must name one metric"),
        ({"objectives": [{"metric": "a", "direction": "minimize"}]}, "must be one of Minimize, Maximize"),
        ({"searchAlgorithm": {"grid": {}}}, "must be categorical for grid"),
        ({"searchAlgorithm": {"tpe": {}}}, "must be random or grid"),
        ({"numTrials": 101}, "numTrials <= 100"),
        ({"parallelTrials": 4}, "parallelTrials <= numTrials"),
        ({"parameters": [{"name": "a", "searchSpace": {"uniform": {"min": "2", "max": "1"}}}]}, "min < max"),
        ({"parameters": [{"name": "a", "searchSpace": {"logUniform": {"min": "0", "max": "1"}}}]}, "min > 0"),
        ({"trainJobTemplate": {}}, "trainJobTemplate.spec: must be given"),
        ({"trainJobTemplate": {"metadata": {"name": "a"}, "spec": {"trainer": {}}}}, "must be left out"),
    ],
)  # fmt: skip
def test_an_optimizationjob_is_refused_as_by_its_schema(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        as_experiment(optimization_job(**change))
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"numTrials": None}, "spec.numTrials"),
        ({"parallelTrials": None}, "spec.parallelTrials"),
        *(
            (
                {"trainJobTemplate": {"spec": {"trainer": given}}},
                "spec.trainJobTemplate.spec.trainer",
            )
            for given in (None, "text", 7, [], ["a"], {"env": "A=1"}, {"env": ["A=1"]})
        ),
    ],
)
def test_a_field_of_another_shape_is_refused_with_its_path(
    change: dict[str, Any], where: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        as_experiment(optimization_job(**change))
    assert refused.value.message.startswith(where)
    assert refused.value.hint


@pytest.mark.parametrize("names", [("a-b", "a_b"), ("a-b", "A-B"), ("a-b", "a-b")])
def test_two_parameters_with_one_variable_are_refused(names: tuple[str, str]) -> None:
    space = {"uniform": {"min": "0", "max": "1"}}
    parameters = [{"name": name, "searchSpace": space} for name in names]
    with pytest.raises(InvalidInput) as refused:
        as_experiment(optimization_job(parameters=parameters))
    assert refused.value.message == (
        "spec.parameters[1].name: must have a variable of its own, 'a-b' has "
        f"KUBEFLOW_TRAINER_OPT_A_B, but got {names[1]!r}"
    )
    assert refused.value.hint == "rename one of the two"


def test_an_optimizationjob_comes_back_as_it_was() -> None:
    experiment = Experiment.parse(as_experiment(optimization_job()))
    check(experiment)
    back, notes = as_optimization_job({**experiment.manifest, "spec": experiment.defaulted})
    given = optimization_job()["spec"]
    given["parameters"][0]["searchSpace"]["logUniform"]["type"] = "Float"
    assert back["spec"] == given
    assert [note.where for note in notes] == ["spec.metricsCollectorSpec"]


def test_katib_reads_the_launcher_of_an_mpi_runtime() -> None:
    job = optimization_job()
    job["spec"]["trainJobTemplate"]["spec"]["runtimeRef"]["name"] = "deepspeed-distributed"
    made = as_experiment(job)
    rules = {finding.rule: finding for finding in examine(made)}
    assert "no-pod-is-primary" not in rules
    launcher = made["spec"]["trialTemplate"].pop("primaryPodLabels")
    rules = {finding.rule: finding for finding in examine(made)}
    ((name, value),) = launcher.items()
    assert rules["no-pod-is-primary"].hint.endswith(f"primaryPodLabels: {{{name}: {value}}}")


def as_job_with(env: Any) -> dict[str, Any]:
    manifest = load("random-trainjob")
    manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["trainer"]["env"] = env
    experiment = check(Experiment.parse(manifest))
    return as_optimization_job({**experiment.manifest, "spec": experiment.defaulted})[0]


def test_an_empty_environment_is_none() -> None:
    assert as_job_with(None) == as_job_with([])


def test_a_name_outside_of_the_command_is_refused() -> None:
    with pytest.raises(InvalidInput, match="outside of command and args") as refused:
        as_job_with([{"name": "OUT", "value": "s3://a/${trialParameters.trial}"}])
    assert "jobset.sigs.k8s.io/jobset-name" in str(refused.value.hint)


def test_an_edited_annotation_is_refused_with_its_name() -> None:
    made = as_experiment(optimization_job())
    made["metadata"]["annotations"][OPTIMIZATION_JOB] = "oops"
    with pytest.raises(InvalidInput, match=OPTIMIZATION_JOB):
        with_status(made)


def test_migrate_names_what_an_optimizationjob_loses(
    tmp_path: Path, podium: Callable[..., Result]
) -> None:
    source = Path(__file__).parents[2] / "experiments/tpe.yaml"
    done = podium("migrate", str(source), "--to", "optimizationjob")
    job = yaml.safe_load(done.stdout)
    assert job["kind"] == "OptimizationJob"
    assert job["spec"]["searchAlgorithm"] == {"random": {"seed": 1}}
    args = job["spec"]["trainJobTemplate"]["spec"]["trainer"]["args"]
    assert args[0] == "--lr=$(KUBEFLOW_TRAINER_OPT_LR)"
    assert args[-1].endswith("/$(TRIAL_NAME)")
    for lost in ("spec.algorithm: tpe becomes random", "spec.metricsCollectorSpec"):
        assert lost in done.stderr
    (tmp_path / "job.yaml").write_text(done.stdout)
    back = yaml.safe_load(
        podium("migrate", str(tmp_path / "job.yaml"), "--to", "experiment").stdout
    )
    assert check(Experiment.parse(back))


def test_migrate_leaves_other_kinds_than_those_it_is_asked_for(
    tmp_path: Path, podium: Callable[..., Result]
) -> None:
    source = Path(__file__).parents[2] / "experiments/tpe.yaml"
    both = [*yaml.safe_load_all(source.read_text()), optimization_job()]
    (tmp_path / "both.yaml").write_text(yaml.safe_dump_all(both))
    done = podium("migrate", str(tmp_path / "both.yaml"), "--to", "experiment")
    kinds = [document["kind"] for document in yaml.safe_load_all(done.stdout)]
    assert kinds == ["Experiment", "Experiment"]
    assert "Experiment tpe stays as it is" in done.stderr

"""What the doctor finds in TrainJobs, and in jobs that they replace."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from podium.doctor.manifest import examine_manifest
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.migrate import migrate
from podium.manifests.rules import Finding

ROOT = Path(__file__).parent.parent.parent


def examine(
    *, runtime: str = "torch-distributed", spec: Any = None, **trainer: Any
) -> dict[str, Finding]:
    """Examine a TrainJob of three nodes; findings by rule."""
    given = {"numNodes": 3, "image": "train:1", "command": ["torchrun", "train.py"], **trainer}
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "train"},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": given, **(spec or {})},
    }  # fmt: skip
    return {finding.rule: finding for finding in examine_manifest(manifest, "test").findings}


def test_a_trainjob_under_torchrun_is_fine() -> None:
    assert examine() == {}
    assert examine(image=None) == {}, "the runtime has an image"


@pytest.mark.parametrize(
    "command", [["python", "train.py"], ["sh", "-c", "cd /app && python -m train"]]
)
def test_a_plain_python_on_several_nodes_is_separate_trainings(command: list[str]) -> None:
    finding = examine(command=command)["separate-trainings"]
    assert (finding.level, finding.where) == ("warn", "spec.trainer.command")
    assert finding.what == "3 nodes start python without torchrun: 3 separate trainings"
    assert "torchrun" in str(finding.hint)
    assert "separate-trainings" not in examine(command=command, numNodes=1)


@pytest.mark.parametrize(
    ("runtime", "command"),
    [
        ("torch-distributed", ["python", "-m", "podium.trainer"]),
        ("torch-distributed", ["sh", "-c", "RANK=$PET_NODE_RANK python train.py"]),
        ("torch-distributed", ["./train.sh"]),
        ("jax-distributed", ["python", "train.py"]),
    ],
)
def test_a_command_that_may_know_its_nodes_is_fine(runtime: str, command: list[str]) -> None:
    assert "separate-trainings" not in examine(runtime=runtime, command=command)


def test_processes_that_nobody_starts_are_found() -> None:
    found = examine(numNodes=1, numProcPerNode=2, command=["python", "-m", "podium.trainer"])
    assert "numProcPerNode is 2" in found["one-process-a-node"].what
    assert examine(numProcPerNode=4) == {}


def test_variables_that_trainer_sets_are_refused() -> None:
    finding = examine(env=[{"name": "PET_NNODES", "value": "3"}])["refused-by-trainer"]
    assert (finding.level, finding.where) == ("fail", "spec.trainer.env[0]")


@pytest.mark.parametrize(
    ("field", "version"), [("podTemplateOverrides", "2.1"), ("podSpecOverrides", "2.0")]
)
def test_overrides_of_older_trainers_are_found(field: str, version: str) -> None:
    override = [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"gpu": "a100"}}}]
    finding = examine(spec={field: override})["old-overrides"]
    assert (finding.level, finding.where) == ("fail", f"spec.{field}")
    assert version in finding.what
    assert "runtimePatches: [{manager: " in str(finding.hint)


def test_the_hint_for_old_overrides_is_valid_itself() -> None:
    hint = str(examine(spec={"podSpecOverrides": []})["old-overrides"].hint)
    written = yaml.safe_load(
        hint.removeprefix("write ").replace("…", "{nodeSelector: {gpu: a100}}")
    )
    assert examine(spec=written) == {}


def pytorchjob(kind: str = "PyTorchJob", field: str = "pytorchReplicaSpecs") -> dict[str, Finding]:
    name = "pytorch" if kind == "PyTorchJob" else "tensorflow"
    pod = {
        "spec": {
            "containers": [{"name": name, "image": "train:1", "command": ["torchrun", "train.py"]}]
        }
    }
    role = "Master" if kind == "PyTorchJob" else "Worker"
    metadata = {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "team"}}
    spec = {field: {role: {"replicas": 1, "template": pod}}, "runPolicy": {"backoffLimit": 1}}
    manifest = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": metadata, "spec": spec}
    return {finding.rule: finding for finding in examine_manifest(manifest, "test").findings}


def test_a_queue_of_a_pytorchjob_is_noted() -> None:
    finding = pytorchjob()["queue-may-be-ignored"]
    assert (finding.level, finding.where) == ("note", "metadata.labels")
    assert "kubeflow.org/pytorchjob" in str(finding.hint)
    assert "podium migrate" in str(finding.hint)
    assert "podium migrate" not in str(
        pytorchjob("TFJob", "tfReplicaSpecs")["queue-may-be-ignored"].hint
    )


def test_trials_that_are_trainjobs_are_examined() -> None:
    manifest = yaml.safe_load((ROOT / "experiments/random.yaml").read_text())
    trials = migrate(Experiment.parse(manifest))[0].manifest
    found = {finding.rule: finding for finding in examine_manifest(trials, "test").findings}
    assert found["nodes-restart"].where == "spec.trialTemplate.trialSpec.spec.runtimeRef"
    assert {finding.level for finding in found.values()} == {"note"}

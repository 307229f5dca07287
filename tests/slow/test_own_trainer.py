"""A script that knows nothing of podium, as it stands, in a PyTorchJob and in a sweep."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "examples" / "spirals.py"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def podium(*words: str) -> str:
    command = [str(Path(sys.executable).with_name("podium")), *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_script_imports_nothing_of_podium_and_is_short() -> None:
    text = SCRIPT.read_text()
    assert "podium" not in text.replace(text.partition("\n")[0], "")
    assert len([line for line in text.splitlines() if line.strip()]) <= 50


def test_it_runs_in_two_processes_and_one_reports(tmp_path: Path) -> None:
    out = podium("job", "run", "examples/spirals-pytorchjob.yaml", "--dir", str(tmp_path))
    assert len([line for line in out.splitlines() if " accuracy=0." in line]) == 8, out


def test_a_sweep_tunes_it_by_what_it_prints(tmp_path: Path) -> None:
    source, place = "examples/spirals-experiment.yaml", ("--dir", str(tmp_path))
    podium("experiment", "run", source, "--max-trials", "3", *place)
    trials = json.loads(podium("experiment", "trials", "spirals", "--json", *place))
    assert len(trials) == 3
    best = json.loads(podium("experiment", "best", "spirals", "--json", *place))
    text = json.dumps(best)
    assert "accuracy" in text
    assert "hidden" in text


def test_two_steps_do_what_the_old_launchers_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    outputs = json.loads(podium("run", "examples/launchers.py", "--json"))["step_outputs"]
    assert {"lr", "hidden"} == outputs["launch-experiment"]["Output"].keys()
    assert " accuracy=0.9" in outputs["launch-pytorchjob"]["Output"]


SOFTMAX = ROOT / "tests" / "trainers" / "softmax.py"
COMMANDS: dict[str, dict[str, Any]] = {
    "flags of its own": {
        "command": [
            "python",
            str(SOFTMAX),
            "--pictures",
            "${podium.data}",
            "--put-into=${podium.output}",
        ],
        "args": ["--rate=${trialParameters.rate}"],
    },
    "a shell": {
        "command": [
            "sh",
            "-c",
            f'python {SOFTMAX} --pictures "$PODIUM_DATA" --rate ${{trialParameters.rate}}',
        ]
    },
    "variables only": {
        "command": ["python", str(SOFTMAX)],
        "env": [
            {"name": "RATE", "value": "${trialParameters.rate}"},
            {"name": "PODIUM_DATA", "value": "${podium.data}"},
        ],
    },
}


def experiment(folder: Path, container: dict[str, Any]) -> str:
    """Write an Experiment whose trials are Jobs of one container."""
    # Beside the Experiment: a shell would split a path of this checkout that has spaces.
    script = shutil.copy(SOFTMAX, folder)
    container = json.loads(json.dumps(container).replace(str(SOFTMAX), script))
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "anything", **container}],
    }
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump({
        "apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": {"name": "softmax"},
        "spec": {
            "objective": {"type": "maximize", "objectiveMetricName": "accuracy"},
            "algorithm": {"algorithmName": "random"},
            "parameters": [{"name": "rate", "parameterType": "double", "feasibleSpace": {"min": "0.01", "max": "0.5"}}],
            "trialTemplate": {
                "primaryContainerName": "main", "trialParameters": [{"name": "rate", "reference": "rate"}],
                "trialSpec": {"apiVersion": "batch/v1", "kind": "Job",
                              "spec": {"backoffLimit": 0, "template": {"spec": pod}}},
            },
        },
    }))  # fmt: skip
    return str(file)


@pytest.mark.parametrize("way", COMMANDS)
def test_a_trainer_of_ones_own_reaches_the_registry(
    way: str, tmp_path: Path, tiny_dataset: Path
) -> None:
    outcome = run_pipeline(tmp_path, tiny_dataset, COMMANDS[way])
    assert outcome["decision"]["outcome"] == "promoted"
    assert outcome["test"]["metrics"]["accuracy"] > 0.9
    assert len(outcome["sweep"]["trials"]) == 2
    (job,) = (tmp_path / "home" / "runs" / outcome["run"] / "cluster" / "jobs").glob("train-*")
    assert "saved after training in 1 processes" in next((job / "logs").iterdir()).read_text()
    assert json.loads((job / "object.json").read_text())["kind"] == "Job"


def test_a_trainer_of_ones_own_is_distributed(tmp_path: Path, tiny_dataset: Path) -> None:
    outcome = run_pipeline(tmp_path, tiny_dataset, COMMANDS["flags of its own"], "workers=1")
    assert outcome["decision"]["outcome"] == "promoted"
    (job,) = (tmp_path / "home" / "runs" / outcome["run"] / "cluster" / "pytorchjobs").glob(
        "train-*"
    )
    assert "saved after training in 2 processes" in (job / "logs" / "master-0.log").read_text()
    assert "saved" not in (job / "logs" / "worker-0.log").read_text()


def run_pipeline(folder: Path, data: Path, container: dict[str, Any], *more: str) -> dict[str, Any]:
    words = [
        f"dataset={data}",
        f"experiment={experiment(folder, container)}",
        "max_trials=2",
        *more,
        "--json",
    ]
    command = [str(Path(sys.executable).with_name("podium")), "run", "tune_and_promote", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PODIUM_HOME": str(folder / "home")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome

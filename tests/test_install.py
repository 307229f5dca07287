"""podium is found wherever it is started: also next to a clone, which is a directory called podium."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A directory that holds a clone called podium, with a trainer that must not run."""
    (tmp_path / "podium/src/podium").mkdir(parents=True)
    (tmp_path / "podium/README.md").write_text("# podium\n")
    (tmp_path / "podium/trainer").mkdir()
    (tmp_path / "podium/trainer/__init__.py").write_text("raise SystemExit('not this one')\n")
    return tmp_path


def test_a_directory_called_podium_does_not_hide_the_trainer(beside: Path) -> None:
    command = [sys.executable, "-m", "podium.trainer", "--help"]
    result = subprocess.run(command, cwd=beside, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage: python -m podium.trainer")


def test_a_job_next_to_a_clone_runs_the_installed_trainer(beside: Path) -> None:
    container: dict[str, object] = {"name": "pytorch", "image": "any", "workingDir": str(beside)}
    container |= {"command": ["sh", "-c", "python -m podium.trainer --help && pwd"]}
    template = {"spec": {"containers": [container]}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
    }
    (beside / "job.yaml").write_text(json.dumps(job))
    command = [str(Path(sys.executable).with_name("podium")), "job", "run", "job.yaml"]
    result = subprocess.run(command, cwd=beside, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "usage: python -m podium.trainer" in result.stdout + result.stderr

"""A home of its own, and a small Experiment, for what `import podium` offers."""

from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import pathlib, sys, time
x, output, seconds = sys.argv[1:]
pathlib.Path(output).mkdir(parents=True, exist_ok=True)
pathlib.Path(output, "model.onnx").write_text("weights")
time.sleep(float(seconds))
print(f"loss={(float(x) - 0.5) ** 2}")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where everything of a test goes; the working directory beside it is empty."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def parabola(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An Experiment over x = 0, 0.5, 1 by grid search; each trial leaves a model."""
    folder = tmp_path_factory.mktemp("parabola")
    program, output = folder / "program.py", f"{folder}/models/${{trialParameters.own}}"
    program.write_text(PROGRAM)
    container = {
        "name": "training",
        "image": "any",
        "command": ["python", str(program), "${trialParameters.x}", output, "0"],
        "env": [{"name": "PODIUM_OUTPUT", "value": output}],
    }
    job = {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    space = {"min": "0", "max": "1", "step": "0.5"}
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "parabola"},
        "spec": {
            "objective": {"type": "minimize", "objectiveMetricName": "loss"},
            "algorithm": {"algorithmName": "grid"},
            "parallelTrialCount": 1,
            "maxTrialCount": 3,
            "maxFailedTrialCount": 1,
            "resumePolicy": "LongRunning",
            "parameters": [{"name": "x", "parameterType": "double", "feasibleSpace": space}],
            "trialTemplate": {
                "primaryContainerName": "training",
                "trialParameters": [
                    {"name": "x", "reference": "x"},
                    {"name": "own", "reference": "${trialSpec.Name}"},
                ],
                "trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": job},
            },
        },
    }

"""A home of its own, and a small Experiment, for what `import podium` offers."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import job, space, write_experiment

PROGRAM = """
import pathlib, sys, time
x, output, seconds = sys.argv[1:]
pathlib.Path(output).mkdir(parents=True, exist_ok=True)
pathlib.Path(output, "model.onnx").write_text("weights")
time.sleep(float(seconds))
print(f"loss={(float(x) - 0.5) ** 2}")
"""


@pytest.fixture(scope="module")
def parabola(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An Experiment over x = 0, 0.5, 1 by grid search; each trial leaves a model."""
    folder = tmp_path_factory.mktemp("parabola")
    program, output = folder / "program.py", f"{folder}/models/${{trialParameters.own}}"
    program.write_text(PROGRAM)
    command = ["python", str(program), "${trialParameters.x}", output, "0"]
    parameters = [
        {"name": "x", "reference": "x"},
        {"name": "own", "reference": "${trialSpec.Name}"},
    ]
    return write_experiment(
        job(command, env=[{"name": "PODIUM_OUTPUT", "value": output}]), name="parabola",
        algorithm={"algorithmName": "grid"}, maxTrialCount=3, maxFailedTrialCount=1, resumePolicy="LongRunning",
        parameters=[space("x", min="0", max="1", step="0.5")], template={"trialParameters": parameters},
    )  # fmt: skip


@pytest.fixture
def kernel(home: Path) -> Iterator[Any]:
    """A kernel whose working directory is the test's own."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    manager.kernel_spec.argv[0] = sys.executable  # type: ignore[union-attr]
    manager.start_kernel(cwd=str(Path.cwd()))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)

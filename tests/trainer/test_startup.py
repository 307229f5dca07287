"""Start-up counts: a trial may last a second, so nothing is imported that it does not need."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import podium.trainer
from podium.trainer import models

pytestmark = pytest.mark.whole

PROGRAM = """
import pathlib, sys
from podium.trainer.__main__ import main
code = main(sys.argv[1:])
heavy = {"torchvision", "PIL", "kfp", "kubernetes", "kubeflow", "minio", "boto3", "optuna", "scipy", "pandas",
         "torch._dynamo", "torch._inductor", "sympy", "click", "rich", "wandb", "mlflow"}
print(sorted(heavy & sys.modules.keys()), code)
tasks = pathlib.Path("/proc/self/task")
print(len(list(tasks.iterdir())) if tasks.exists() else 1)
"""


def test_a_training_imports_nothing_that_it_does_not_need(
    tiny_dataset: Path, tmp_path: Path
) -> None:
    output = ["--output", str(tmp_path / "out")]
    argv = [
        "--data",
        str(tiny_dataset),
        *output,
        "--model",
        "fast",
        "--epochs",
        "1",
        "--threads",
        "1",
        "--no-cuda",
    ]
    run = [sys.executable, "-c", PROGRAM, *argv]
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    out = subprocess.run(
        run, capture_output=True, text=True, check=True, timeout=200, env=env
    ).stdout
    assert out.splitlines()[-2] == "[] 0"
    assert out.splitlines()[-1] == "1", "one thread computes, and none reports to anybody"


def test_the_trainer_uses_no_private_names_of_torch() -> None:
    private = re.compile(
        r"\b(?:torch|dist|nn|F)(?:\.\w+)*\._\w+\s*\(|__dynamo|\bsetattr\((?:torch|nn|dist)"
    )
    for file in Path(models.__file__).parent.glob("*.py"):
        assert not private.search(file.read_text()), file.name


def test_the_package_says_what_each_module_is_for() -> None:
    modules = {file.stem for file in Path(podium.trainer.__file__).parent.glob("*.py")} - {
        "__init__"
    }
    assert set(re.findall(r"``(\w+)``", podium.trainer.__doc__ or "")) == modules

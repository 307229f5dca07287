"""examples/native and examples/densities, whole: models that predict by a command of their own."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
BIN = Path(sys.executable).parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2000)]


def call(folder: Path, *command: str) -> str:
    env = {**os.environ, "PODIUM_HOME": str(folder / "home"), "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(folder: Path, *words: str) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads(
        call(folder, "podium", "run", "max_trials=4", "--json", *words)
    )
    return outcome


@pytest.mark.parametrize(("example", "model", "new", "metric", "bound"), [
    ("native", "native-digits", "new-digits.csv", "accuracy", 0.9), ("densities", "cells", "new-cells.csv", "accuracy", 0.85),
])  # fmt: skip
def test_a_model_that_predicts_itself_is_tuned_promoted_and_challenged(
    example: str, model: str, new: str, metric: str, bound: float, tmp_path: Path
) -> None:
    if example == "native" and not (shutil.which("cc") or os.environ.get("CC")):
        pytest.skip("needs a C compiler")
    folder = tmp_path / example
    shutil.copytree(
        EXAMPLES / example, folder, ignore=shutil.ignore_patterns("*.csv", "__pycache__")
    )
    call(folder, "python", "make_data.py")
    first = run(folder)
    trials = list(
        (folder / "home" / "runs" / first["run"] / "cluster").glob("trials/*/object.json")
    )
    assert len(trials) == 4
    assert first["decision"]["outcome"] == "promoted"
    assert first["test"]["metrics"][metric] > bound
    second = run(folder, "seed=2")
    assert second["decision"]["compared_with"] == first["run"]
    assert second["decision"]["outcome"] in ("promoted", "kept")
    call(folder, "podium", "predict", new, "--model", model, "-o", "answers.csv")
    with open(folder / new) as questions, open(folder / "answers.csv") as answers:
        assert len(list(csv.DictReader(answers))) == len(list(csv.DictReader(questions)))

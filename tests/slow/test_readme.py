"""The commands of the README's terminal sessions, and of two pages, as they stand, on a small dataset."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ELSEWHERE = {
    "make demo": "test_whole_pipeline",
    "podium init penguins --from table": "test_projects",
    "cd penguins": "test_projects",
    "python make_data.py": "test_projects",
    "podium run": "test_projects",
    "podium predict data.csv": "test_projects",
}
"""Commands that take long, or need what another test sets up, and where they run, some with less data and fewer trials."""

OF_PAGES = {
    "docs/experiments.md": (
        "podium experiment run random --data podium-work/data/mnist --max-trials 6",
        "podium experiment render tpe --image example/trainer:1 --data s3://datasets/mnist | "
        "kubectl -n kubeflow apply -f -",
        "podium doctor experiments/tpe.yaml",
    ),
    "docs/trainer.md": (
        "podium job run examples/spirals-pytorchjob.yaml",
        "podium experiment run examples/spirals-experiment.yaml",
        "python -m podium.trainer --data podium-work/data/mnist --output model --epochs 1",
    ),
}
"""Commands of other pages that belong to the first hour."""

REMOTE = (
    "make ",
    "kubectl ",
    "export ",
    "pip ",
    "podium upload",
    "podium submit",
    "podium schedule",
)
"""Commands for a cluster, a server or another environment: tests marked cluster, and tests/server, have them."""


SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--batch-size", type=int)
given = parser.parse_args()
print(f"accuracy={1 - given.lr - given.batch_size / 1000:.4f}")
"""
"""What the README tunes."""

BEFORE = """
import numpy as np

def train(lr, layers):
    return {"accuracy": 1 - lr - layers / 10}

images = np.zeros((2, 28, 28), np.uint8)
"""
"""What the README's Python has already."""


def session() -> list[str]:
    """Return the commands of the README that run on this machine, in order."""
    blocks = re.findall(
        r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [
        words
        for line in lines
        if not (words := line.partition("  #")[0].strip()).startswith(REMOTE)
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_of_the_readme_run(tiny_dataset: Path, tmp_path: Path) -> None:
    for name in ("examples", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copytree(tiny_dataset, tmp_path / "podium-work/data/mnist")
    shutil.copytree(f"{tiny_dataset}_test", tmp_path / "podium-work/data/mnist_test")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "kubectl").write_text("#!/bin/sh\ncat >applied.yaml\n")
    (tmp_path / "kubectl").chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    env.pop("PODIUM_HOME")
    more = [line for lines in OF_PAGES.values() for line in lines]
    run = [*(line for line in session() if line not in ELSEWHERE), *more]
    assert len(run) > len(more)
    for line in run:
        words = ["bash", "-o", "pipefail", "-c", line]
        done = subprocess.run(
            words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert (tmp_path / "model/model.onnx").exists()
    assert "kind: Experiment" in (tmp_path / "applied.yaml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_python_of_the_readme_runs(tiny_dataset: Path, tmp_path: Path) -> None:
    (block,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    small = f'dataset="{tiny_dataset}", max_trials=2, epochs=1, network="fast"'
    shown = block.replace('dataset="fashion-mnist"', small).replace('"fashion-mnist"', '"tiny"')
    assert shown != block
    (tmp_path / "readme.py").write_text(f"{BEFORE}\n{shown}\nassert len(sweep.trials) == 20\n")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "readme.py"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr


def test_the_commands_of_other_pages_stand_there() -> None:
    for page, lines in OF_PAGES.items():
        assert {f"$ {line}" for line in lines} <= {*(ROOT / page).read_text().splitlines()}


def test_what_runs_elsewhere_is_in_the_readme_and_there() -> None:
    assert ELSEWHERE.keys() - set(session()) - {"make demo"} == set()
    for module in ELSEWHERE.values():
        assert [*(ROOT / "tests").rglob(f"{module}.py")], module

"""Real, small candidates for the steps that judge models."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from podium.prediction import ModelDirectory
from podium.trainer.__main__ import main
from podium.training.origin import Origin


@pytest.fixture(autouse=True)
def in_a_run(monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> None:
    monkeypatch.setenv("PODIUM_RUN_ID", "20260102-030405-abcd")


def train_tiny(data: Path, output: Path, lr: float) -> None:
    threads = torch.get_num_threads()
    words = [
        f"--data={data}",
        f"--output={output}",
        f"--lr={lr}",
        "--epochs=1",
        "--batch-size=32",
        "--threads=1",
        "--model=fast",
    ]
    assert main(words) == 0
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def trained_tiny(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two real model directories: a weak one that hardly moved and a better one. Read only."""
    place = tmp_path_factory.mktemp("models")
    for name, lr in (("weak", 0.001), ("strong", 0.05)):
        train_tiny(tiny_dataset, place / name, lr)
    return {name: place / name for name in ("weak", "strong")}


@pytest.fixture
def candidates(trained_tiny: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """Copies of both with an origin, as the sweep and the training leave them."""
    kinds = {"weak": ("trial", "sweep-1-aaaa"), "strong": ("training", "train-1")}
    found = {}
    for name, directory in trained_tiny.items():
        target = tmp_path / "candidates" / name
        shutil.copytree(directory, target)
        kind, job = kinds[name]
        origin = Origin(kind=kind, name=job, run_id="20260102-030405-abcd", uri=str(target),
                        hyperparameters={"lr": "1.0"}, image="trainer:1", experiment="sweep-1" if kind == "trial" else None)  # fmt: skip
        origin.write(ModelDirectory(target))
        found[name] = target
    return found


@pytest.fixture
def sweep_table(tmp_path: Path) -> Path:
    """A table of twelve trials as the sweep writes it, best first, one without a result."""
    rows: list[dict[str, Any]] = []
    for number in range(1, 13):
        value = None if number == 4 else round(0.9 + 0.007 * number, 4)
        parameters = {"lr": str(round(0.05 * number, 3)), "batch-size": ("32", "64", "128")[number % 3],
                      "schedule": ("step", "onecycle")[number % 2]}  # fmt: skip
        epochs = [
            {"epoch": 1, "accuracy": 0.8, "loss": 0.5},
            {"epoch": 2, "accuracy": value or 0.1, "loss": 0.4},
        ]
        rows.append({"name": f"sweep-1-{number:04x}", "state": "Succeeded" if value else "Failed", "number": number,
                     "parameters": parameters, "metrics": {}, "value": value, "seconds": 3.5, "message": "",
                     "model": f"file:///store/trials/{number}", "epochs": epochs if value else []})  # fmt: skip
    rows.sort(key=lambda row: -(row["value"] or 0))
    spaces = [
        {"name": "lr", "parameterType": "double",
         "feasibleSpace": {"min": "0.01", "max": "1.0", "distribution": "logUniform"}},
        {"name": "batch-size", "parameterType": "discrete", "feasibleSpace": {"list": ["32", "64", "128"]}},
        {"name": "schedule", "parameterType": "categorical", "feasibleSpace": {"list": ["step", "onecycle"]}},
    ]  # fmt: skip
    table = {"experiment": "sweep-1", "algorithm": "random", "objective": {"metric": "accuracy", "maximize": True},
             "parameters": spaces, "best": rows[0]["name"], "trials": rows,
             "note": "Katib's currentOptimalTrial is another"}  # fmt: skip
    (tmp_path / "trials").write_text(json.dumps(table))
    return tmp_path / "trials"

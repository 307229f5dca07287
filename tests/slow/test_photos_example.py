"""examples/photos, whole: color photographs, a sweep, a champion, a challenger, new photographs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "photos"
PODIUM = str(Path(sys.executable).with_name("podium"))
QUICK = ("max_trials=4", "trial_epochs=8", "epochs=16", "--json")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


def call(folder: Path, *command: str) -> str:
    env = {**os.environ, "PODIUM_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=1400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, with 200 photographs of each kind."""
    copy = tmp_path_factory.mktemp("photos") / "photos"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("data"))
    call(copy, sys.executable, "make_photos.py", "--count", "200")
    return copy


@pytest.fixture(scope="module")
def first(folder: Path) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads(call(folder, PODIUM, "run", *QUICK))
    return outcome


def test_the_best_of_four_trials_becomes_champion(folder: Path, first: dict[str, Any]) -> None:
    trials = list(
        (folder / "home" / "runs" / first["run"] / "cluster").glob("trials/*/object.json")
    )
    assert len(trials) == 4
    assert first["decision"]["outcome"] == "promoted"
    assert first["test"]["metrics"]["accuracy"] > 0.8


def test_new_photographs_are_named_by_the_champion(folder: Path, first: dict[str, Any]) -> None:
    pictures = sorted(str(file) for file in folder.glob("data/new/*/*.jpg"))
    answers = json.loads(call(folder, PODIUM, "predict", *pictures, "--model", "signs", "--json"))[
        "predictions"
    ]
    named = [(Path(answer["picture"]).parent.name, answer["class"]) for answer in answers]
    assert len(named) == 40
    assert sum(kind == answer for kind, answer in named) >= 28


def test_a_second_run_challenges_the_champion(folder: Path, first: dict[str, Any]) -> None:
    second = json.loads(call(folder, PODIUM, "run", *QUICK, "seed=2"))
    assert second["run"] != first["run"]
    assert second["decision"]["compared_with"] == first["run"]
    assert second["decision"]["outcome"] in ("promoted", "kept")

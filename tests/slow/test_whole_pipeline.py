"""The whole main job, as `podium run` does it: real MNIST, a sweep, two ranks, a champion."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from handmade import score

from podium.data import artifact
from podium.models import Version, open_registry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

PODIUM = str(Path(sys.executable).with_name("podium"))
COMMON = ("limit=12000", "network=fast", "--json")


def podium_run(home: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [PODIUM, "run", *words], capture_output=True, text=True, timeout=700, check=False,
        env={**os.environ, "PODIUM_HOME": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def champion(home: Path) -> Version:
    found = open_registry(home / "store").model("mnist").find_champion()
    assert found is not None
    return found


def processes_that_know(home: Path) -> list[bytes]:
    marker, found = str(home).encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes())
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole") / "home"


@pytest.fixture(scope="module")
def first(home: Path) -> dict[str, Any]:
    """Three trials, two at a time, then one master and one worker; the first run on an empty registry."""
    return podium_run(
        home,
        "tune_and_promote",
        "max_trials=3",
        "parallel_trials=2",
        "epochs=2",
        "workers=1",
        *COMMON,
    )


def run_directory(home: Path, outcome: dict[str, Any]) -> Path:
    return home / "runs" / str(outcome["run"])


def winners_own_file(home: Path, outcome: dict[str, Any], name: str) -> Path:
    """Where the winning candidate's own training left the file: in the store, not in a copy that a step made."""
    folder = outcome["winner"]["uri"].removeprefix("file://")
    assert Path(folder).is_relative_to(home / "store" / "runs")
    return Path(folder) / name


def test_three_trials_and_two_ranks_really_ran(home: Path, first: dict[str, Any]) -> None:
    cluster = run_directory(home, first) / "cluster"
    trials = [json.loads(file.read_text()) for file in cluster.glob("trials/*/object.json")]
    assert len(trials) == 3
    for trial in trials:
        assert any(
            condition["type"] == "Succeeded" and condition["status"] == "True"
            for condition in trial["status"]["conditions"]
        )
    (job,) = (file.parent for file in cluster.glob("pytorchjobs/train-*/object.json"))
    assert {file.name for file in (job / "logs").glob("*.log")} == {"master-0.log", "worker-0.log"}
    environment = home / "store" / "runs" / first["run"] / job.name / "environment.json"
    assert json.loads(environment.read_text())["processes"] == 2
    assert "accuracy=" not in (job / "logs" / "worker-0.log").read_text()


def test_the_promoted_bytes_are_the_winning_candidates(home: Path, first: dict[str, Any]) -> None:
    version = champion(home)
    assert first["decision"]["outcome"] == "promoted"
    assert version.version == first["run"]
    for name in ("model.onnx", "model.safetensors"):
        assert version.read(name) == winners_own_file(home, first, name).read_bytes()
    best = max(
        first["candidates"],
        key=lambda candidate: (
            candidate["validation"]["metrics"]["accuracy"],
            -candidate["validation"]["metrics"]["log_loss"],
        ),
    )
    assert first["winner"]["name"] == best["name"]
    assert len(first["candidates"]) == 2


def test_the_reported_accuracy_is_what_the_champions_bytes_do(
    home: Path, first: dict[str, Any], mnist: Path
) -> None:
    part = artifact.load(mnist, "test")
    assert len(part.target) == 10000
    folder = home / "champion"
    open_registry(home / "store").model("mnist").version("champion").fetch(folder)
    again = score(folder / "model.onnx", part.inputs, part.target, classes=10)
    assert (
        again.metrics["accuracy"]
        == first["test"]["metrics"]["accuracy"]
        == champion(home).metadata["metrics"]["accuracy"]
    )
    assert again.metrics["accuracy"] > 0.9  # the best of three short trials is not a good one


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_no_process_is_left(home: Path, first: dict[str, Any]) -> None:
    assert first["test"]
    assert processes_that_know(home) == []


def test_a_later_run_promotes_only_what_is_better(home: Path, first: dict[str, Any]) -> None:
    worse = podium_run(
        home, "train_and_promote", "epochs=1", "workers=0", 'hyperparameters={"lr": 1e-05}', *COMMON
    )
    assert worse["test"]["metrics"]["accuracy"] < first["test"]["metrics"]["accuracy"]
    assert worse["decision"]["outcome"] == "kept"
    assert champion(home).version == first["run"]
    better = podium_run(
        home, "train_and_promote", "epochs=3", "limit=40000", "network=fast", "workers=1", "--json"
    )
    assert better["test"]["metrics"]["accuracy"] > first["test"]["metrics"]["accuracy"]
    assert better["decision"]["outcome"] == "promoted"
    assert champion(home).version == better["run"]

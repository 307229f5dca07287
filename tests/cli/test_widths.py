"""Narrow terminals: marks, names and durations stay, whatever else has to go."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click import unstyle
from terminals import on_terminal

from podium.cluster.local.store import Store
from podium.manifests.experiment import load
from podium.runner.record import RunRecord, StepRecord
from podium.tables import Row, table

NAME = "sweep-0449dbba0d-a-long-name"
PARAMETERS = {"lr": "0.09756", "batch-size": "128", "schedule": "onecycle", "weight-decay": "0.0001"}


def write_trial(store: Store, name: str, phase: str, accuracy: str) -> None:
    """Store a trial that took 754 seconds."""
    assignments = [{"name": name, "value": value} for name, value in PARAMETERS.items()]
    metrics = [{"name": "accuracy", "min": accuracy, "max": accuracy, "latest": accuracy}]
    conditions = [{"type": phase, "status": "True", "reason": f"Trial{phase}", "message": ""}]
    store.create({
        "apiVersion": "kubeflow.org/v1beta1", "kind": "Trial",
        "metadata": {"name": name, "labels": {"katib.kubeflow.org/experiment": NAME}},
        "spec": {"parameterAssignments": assignments, "objective": {"objectiveMetricName": "accuracy", "type": "maximize"}},
        "status": {"conditions": conditions, "observation": {"metrics": metrics},
                   "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:12:34Z"},
    })  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a stopped run, whose cluster holds an Experiment with two trials."""
    home = tmp_path_factory.mktemp("home")
    directory = home / "runs" / "20260101-010101-aaaa"
    (directory / "logs").mkdir(parents=True)
    steps = {
        "prepare-data": StepRecord(title="Prepare the data", state="succeeded", seconds=2.0),
        "train": StepRecord(title="Train with the best hyperparameters of all", state="stopped", seconds=754.2),
    }
    RunRecord(id=directory.name, pipeline="tune_and_promote", directory=directory, steps=steps, state="stopped").save()
    store = Store(directory / "cluster")
    store.create({**load("random-job"), "metadata": {"name": NAME}})
    write_trial(store, f"{NAME}-aaaa", "Succeeded", "0.9876")
    write_trial(store, f"{NAME}-bbbb", "EarlyStopped", "0.5432")
    store.close()
    return home


def shown(home: Path, monkeypatch: pytest.MonkeyPatch, width: int, words: Sequence[str]) -> list[str]:
    """Run podium on a terminal of this width, and check that no row of a table is longer."""
    monkeypatch.setenv("PODIUM_HOME", str(home))
    lines = [line for line in unstyle(on_terminal(*words, width=width)).replace("\r", "").splitlines() if line]
    assert [line for line in lines if line[0] in "✓◂■✗·" and len(line) > width] == []
    return lines


@pytest.mark.parametrize("width", [80, 60, 40])
def test_a_narrow_list_of_trials_keeps_marks_and_durations(
    home: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = shown(home, monkeypatch, width, ["experiment", "trials", NAME, "--run", "latest"])
    best, other = lines[-2:]
    assert (best[0], other[0]) == ("✓", "◂")
    assert "aaaa" in best
    assert best.split()[-2:] == ["0.9876", "754.0"]
    assert other.split()[-2:] == ["0.5432", "754.0"]


@pytest.mark.parametrize("width", [60, 40])
def test_narrow_lists_of_runs_and_steps_keep_marks_and_durations(
    home: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    listed = shown(home, monkeypatch, width, ["runs", "list"])
    assert listed[-1].startswith("■  20260101-010101-aaaa")
    assert "12 min 36 s" in listed[-1]
    steps = [line for line in shown(home, monkeypatch, width, ["runs", "show", "latest"]) if line[0] in "✓■"]
    assert steps[0].startswith("✓  Prepare the data")
    assert steps[1].startswith("■  Train with")
    assert steps[1].endswith("  12 min 34 s")


@pytest.mark.parametrize("width", [60, 40])
def test_narrow_lists_of_experiments_keep_marks_and_names(
    home: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    listed = shown(home, monkeypatch, width, ["experiment", "list", "--run", "latest"])
    assert listed[-1].startswith(f"✗  {NAME}")
    status = shown(home, monkeypatch, width, ["experiment", "status", NAME, "--run", "latest"])
    assert NAME in status[0]


def test_a_pipe_gets_every_column_and_no_marks() -> None:
    rows = [Row(phase="Failed", cells=["a" * 50, "b" * 50, "1.0 s"])]
    head, line = unstyle(table(("NAME", "STATE", ">TOOK"), rows, drop=["STATE"], shorten="NAME")).splitlines()
    assert head.split() == ["NAME", "STATE", "TOOK"]
    assert line == f"{'a' * 50}  {'b' * 50}  1.0 s"


def test_a_shortened_cell_keeps_both_ends() -> None:
    rows = [Row(phase="Running", cells=["sweep-0449dbba0d-jg77zbnl", "0.9876"])]
    drawn = unstyle(table(("TRIAL", ">accuracy"), rows, width=30, shorten="TRIAL")).splitlines()
    assert drawn[1] == "▸  sweep-04…jg77zbnl    0.9876"

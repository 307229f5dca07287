"""Narrow terminals: marks, names and durations stay, whatever else has to go."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click import unstyle
from terminals import on_terminal

from podium.cli.runs import _drawn
from podium.cluster.local.store import Store
from podium.display.tables import Row, table
from podium.manifests.experiment import load
from podium.runner.record import Annotations, RunRecord, StepRecord

NAME = "sweep-0449dbba0d-a-long-name"
PARAMETERS = {
    "lr": "0.09756",
    "batch-size": "128",
    "schedule": "onecycle",
    "weight-decay": "0.0001",
}


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
        "train": StepRecord(
            title="Train with the best hyperparameters of all", state="stopped", seconds=754.2
        ),
    }
    RunRecord(
        id=directory.name,
        pipeline="tune_and_promote",
        directory=directory,
        steps=steps,
        state="stopped",
    ).save()
    store = Store(directory / "cluster")
    store.create({**load("random-job"), "metadata": {"name": NAME}})
    write_trial(store, f"{NAME}-aaaa", "Succeeded", "0.9876")
    write_trial(store, f"{NAME}-bbbb", "EarlyStopped", "0.5432")
    store.supervision.close()
    return home


def shown(
    home: Path, monkeypatch: pytest.MonkeyPatch, width: int, words: Sequence[str]
) -> list[str]:
    """Run podium on a terminal of this width, and check that no row of a table is longer."""
    monkeypatch.setenv("PODIUM_HOME", str(home))
    lines = [
        line
        for line in unstyle(on_terminal(*words, width=width)).replace("\r", "").splitlines()
        if line
    ]
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


def test_eighty_columns_show_what_came_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.cli.runs.screen_width", lambda: 80)
    long = {"kind": "sweep", "sweep": "a" * 40, "algorithm": "tpe", "state": "succeeded"}
    began = datetime.now(UTC).isoformat()
    row = {**long, "began": began, "seconds": 9.0, "result": "loss 0.0000, 300 trials"}
    head, line = unstyle(_drawn([row])).splitlines()[-2:]
    assert {"NAME", "ABOUT", "STATE", "RESULT"} <= set(head.split())
    assert line.endswith("loss 0.0000, 300 trials")
    assert len(line) <= 80


@pytest.mark.parametrize("width", [60, 40])
def test_narrow_lists_of_runs_and_steps_keep_marks_and_durations(
    home: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    listed = shown(home, monkeypatch, width, ["runs", "list"])
    assert listed[-1].startswith("■  20260101-010101-aaaa")
    assert "12 min 36 s" in listed[-1]
    steps = [
        line
        for line in shown(home, monkeypatch, width, ["runs", "show", "latest"])
        if line[0] in "✓■"
    ]
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
    head, line = unstyle(
        table(("NAME", "STATE", ">TOOK"), rows, drop=["STATE"], shorten="NAME")
    ).splitlines()
    assert head.split() == ["NAME", "STATE", "TOOK"]
    assert line == f"{'a' * 50}  {'b' * 50}  1.0 s"


def test_a_shortened_cell_keeps_both_ends() -> None:
    rows = [Row(phase="Running", cells=["sweep-0449dbba0d-jg77zbnl", "0.9876"])]
    drawn = unstyle(table(("TRIAL", ">accuracy"), rows, width=30, shorten="TRIAL")).splitlines()
    assert drawn[1] == "▸  sweep-04…jg77zbnl    0.9876"


@pytest.fixture
def two_runs(tmp_path: Path) -> Path:
    """A home with two runs that differ in long parameters; the second has a note, tags and long outputs."""
    for number, name in enumerate(("20260101-010101-aaaa", "20260102-010101-bbbb")):
        directory = tmp_path / "runs" / name
        (directory / "logs").mkdir(parents=True)
        parameters = {
            "dataset": f"table:s3://a-bucket/some/long/folder/of/tables/another/folder/number-{number}.parquet",
            "data_options": {"group": "patient", "test": 0.2, "validation": 0.1, "split_seed": number, "weights": [1, 2, 3]},
            "cluster": f"local://{directory}/cluster", "epochs": number + 3, "network": f"fast{number}",
        }  # fmt: skip
        RunRecord(id=name, pipeline="own.py", directory=directory, parameters=parameters, state="succeeded",
                  steps={"train": StepRecord(title="Train", state="succeeded", seconds=2.0)},
                  outputs={"summary": "a result in many words, " * 8}).save()  # fmt: skip
    Annotations.edit(
        directory,
        lambda written: written.noted("a note of many words " * 9).tagged(
            f"a-long-tag-{n}" for n in range(8)
        ),
    )
    return tmp_path


@pytest.mark.parametrize("width", [80, 60])
def test_a_shown_run_is_no_wider_than_the_terminal(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = shown(two_runs, monkeypatch, width, ["runs", "show", "latest"])
    path = f"  run      {two_runs}/runs/20260102-010101-bbbb"
    assert lines[-1] == path, "a path is to be copied, and stays whole"
    assert [line for line in lines[:-1] if len(line) > width] == []
    assert " ".join(" ".join(lines).split()).count("a note of many words") == 9
    assert "a-long-tag-7" in "".join(lines)
    assert any(
        line.startswith("  dataset=table:s3://a-bucket/") and line.endswith("…") for line in lines
    )
    monkeypatch.chdir(two_runs)
    assert (
        shown(two_runs, monkeypatch, width, ["runs", "show", "latest"])[-1]
        == "  run      runs/20260102-010101-bbbb"
    )


@pytest.mark.parametrize("width", [80, 60, 40])
def test_a_narrow_comparison_leaves_no_parameter_out(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = shown(two_runs, monkeypatch, width, ["runs", "compare", "20260101", "20260102"])
    assert [line for line in lines if len(line) > width] == []
    assert lines[0].startswith("20260101-010101-aaaa  succeeded")
    names = [line.partition("=")[0].strip() for line in lines if "=" in line]
    assert names == ["data_options", "dataset", "epochs", "network"] * 2
    assert "  epochs=4" in lines


def test_a_comparison_with_room_is_a_table(two_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, *rows = shown(two_runs, monkeypatch, 500, ["runs", "compare", "20260101", "20260102"])
    assert head.split() == [
        "RUN",
        "STATE",
        "data_options",
        "dataset",
        "epochs",
        "network",
        "RESULT",
    ]
    assert len(rows) == 2


@pytest.mark.parametrize("width", [80, 40])
def test_the_verdict_folds_at_the_terminals_width(
    width: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reason = "no: better than the champion: accuracy 0.8667 (95 % 0.6970 to 0.9530, n = 30) against 0.8667, McNemar p = 1"
    candidate = {
        "kind": "trial",
        "name": "sweep-782c097da7-xpz5nknh",
        "epochs": [{}],
        "validation": {"metrics": {"accuracy": 0.9}},
    }
    decision = {
        "outcome": "kept",
        "model_name": "flowers",
        "version": "20260102-010101-bbbb",
        "champion": "20260101-010101-aaaa",
        "reasons": [reason],
    }
    outcome = {"sweep": None, "candidates": [candidate], "metric": {"name": "accuracy"}, "decision": decision, "storage": "file:///s",
               "test": {"metrics": {"accuracy": 0.8667}, "count": 30}, "report": "r", "directory": "d"}  # fmt: skip
    program = [
        sys.executable,
        "-c",
        "import json, sys; from podium.runner.outcome import show; print(show(json.loads(sys.argv[1])))",
    ]
    lines = (
        unstyle(on_terminal(json.dumps(outcome), width=width, program=program))
        .replace("\r", "")
        .splitlines()
    )
    assert [line for line in lines if len(line) > width and "/" not in line] == []
    assert reason in " ".join(" ".join(lines).split())

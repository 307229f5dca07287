"""`podium runs`: what is on this machine of earlier runs, and what can go."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from podium import open_sweep
from podium.api.sweep_list import list_sweeps, sweep_row
from podium.cli import app
from podium.cluster.local.store import Store
from podium.errors import Conflict, InvalidInput, NotFound
from podium.manifests.experiment import load
from podium.runner.record import Annotations, RunRecord, StepRecord, locked
from podium.runner.runs import Runs

EVIL = "\x1b]0;owned\x07\x1b[2J"


COMMAND = ("runs",)
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a stopped run of ten days ago, a killed one of yesterday and candidates of both."""
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    for days, name, state, lr in (
        (10, "20260101-010101-aaaa", "stopped", 0.1),
        (1, "20260110-010101-bbbb", "running", 0.5),
    ):
        directory = tmp_path / "runs" / name
        (directory / "logs").mkdir(parents=True)
        (tmp_path / "store" / "runs" / name / "trials").mkdir(parents=True)
        (tmp_path / "store" / "runs" / name / "trials" / "model.onnx").write_bytes(b"12345")
        began = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")
        steps = {
            "prepare-data": StepRecord(title="Prepare the data", state="succeeded", seconds=2.0),
            "train": StepRecord(title="Train the model", state=state, started=time.time() - 120),
        }
        parameters = {"lr": lr, "storage": f"file://{tmp_path}/store"}
        RunRecord(id=name, pipeline="train_and_promote", directory=directory, steps=steps, state=state, began=began,
            parameters=parameters).save()  # fmt: skip
        (directory / "logs" / "prepare-data.log").write_text(f"prepared with {lr}\n")
    return tmp_path


def test_runs_are_listed_with_the_state_they_are_in(podium: Callable[..., Result]) -> None:
    rows = json.loads(podium("list", "--json").stdout)
    assert [(row["run"], row["state"]) for row in rows] == [
        ("20260101-010101-aaaa", "stopped"),
        ("20260110-010101-bbbb", "killed"),  # nobody holds its lock
    ]
    assert "mnist  killed" in podium("list").stdout


def test_the_newest_runs_are_listed_alone(podium: Callable[..., Result]) -> None:
    rows = json.loads(podium("list", "--last", "1", "--json").stdout)
    assert [row["run"] for row in rows] == ["20260110-010101-bbbb"]


def test_a_run_is_named_by_its_beginning_or_latest(home: Path) -> None:
    known = Runs()
    assert known["latest"].id == "20260110-010101-bbbb"
    assert known["20260101"].id == "20260101-010101-aaaa"
    with pytest.raises(InvalidInput, match="2 runs begin with '2026'"):
        known["2026"]
    with pytest.raises(NotFound, match="no run 'x'"):
        known["x"]
    for number in range(6):
        folder = home / "runs" / f"20260111-01010{number}-cccc"
        folder.mkdir()
        RunRecord(id=folder.name, pipeline="own.py", directory=folder).save()
    named = ", ".join(f"20260111-01010{number}-cccc" for number in range(1, 6))
    with pytest.raises(InvalidInput, match=rf"8 runs begin with '2026': {named}\n"):
        known["2026"]


def test_a_run_is_listed_by_its_model_and_data(home: Path, podium: Callable[..., Result]) -> None:
    for name, model in (("20260101-010101-aaaa", "digits"), ("20260110-010101-bbbb", "mnist")):
        run = Runs()[name].record
        run.parameters["model_name"] = model
        run.save()
    listed = podium("list").stdout
    assert "digits from mnist" in listed
    assert "mnist from mnist" not in listed


def test_an_unfinished_run_shows_the_command_that_goes_on(podium: Callable[..., Result]) -> None:
    shown = podium("show", "latest").stdout
    assert "run 20260110-010101-bbbb of train_and_promote: killed" in shown
    assert "lr=0.5" in shown
    assert shown.endswith("continue with: podium run --resume 20260110-010101-bbbb\n")


def test_a_killed_step_ran_until_its_last_sign(home: Path, podium: Callable[..., Result]) -> None:
    log = home / "runs" / "20260110-010101-bbbb" / "logs" / "train.log"
    log.write_text("training\n")
    (row,) = json.loads(podium("list", "--json").stdout)[1:]
    assert row["seconds"] == pytest.approx(122, abs=30)
    assert Runs()["latest"].record.steps["prepare-data"].seconds == 2.0


def test_a_stopped_step_ran_until_the_stop(home: Path) -> None:
    run = Runs()["20260101"].record
    run.steps["train"].state = "running"
    run.end(-signal.SIGINT, stopped=True)
    assert Runs()["20260101"].seconds == pytest.approx(122, abs=30)


def test_a_value_from_a_file_is_shown_by_its_name(
    home: Path, podium: Callable[..., Result]
) -> None:
    text = "".join(f"key{number}: value\n" for number in range(38))
    for name, words in (
        ("20260101-010101-aaaa", []),
        ("20260110-010101-bbbb", ["experiment=sweep.yaml"]),
    ):
        run = Runs()[name].record
        run.parameters["experiment"], run.words = text, words
        run.save()
    assert "\n  experiment=sweep.yaml\n" in podium("show", "latest").stdout
    (line,) = [
        line for line in podium("show", "20260101").stdout.splitlines() if "experiment=" in line
    ]
    assert line.endswith("… (38 lines)")
    assert json.loads(podium("show", "latest", "--json").stdout)["parameters"]["experiment"] == text


def test_a_repeated_step_takes_all_after_it_along(home: Path) -> None:
    run = Runs()["20260101"].record
    run.steps["promote"] = StepRecord(title="Promote", state="succeeded", seconds=1.0)
    run.repeat("train")
    assert [(step.state, step.attempt) for step in run.steps.values()] == [
        ("succeeded", 1), ("pending", 2), ("pending", 2),
    ]  # fmt: skip
    assert (run.identity(1), run.identity()) == (run.id, f"{run.id}.2")
    run.repeat("prepare-data")
    assert {step.attempt for step in run.steps.values()} == {3}


@pytest.mark.parametrize(
    "words",
    [
        ["runs", "resume", "20260101"],
        ["run", "--resume", "20260101"],
        ["run", "--resume", "20260101", "code=own"],
    ],
)
def test_an_unknown_step_to_begin_from_names_the_steps(
    home: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    Path("own").mkdir()
    Path("own", "train.py").write_text("print('accuracy=1')\n")
    before = (home / "runs" / "20260101-010101-aaaa" / "run.json").read_bytes()
    refused: Any = CliRunner().invoke(app, [*words, "--from", "trian"]).exception
    assert refused.message.endswith("has no step 'trian': it has prepare-data, train")
    assert refused.hint == "did you mean train?"
    assert (home / "runs" / "20260101-010101-aaaa" / "run.json").read_bytes() == before


def test_a_damaged_record_hides_no_other_run(
    home: Path, podium: Callable[..., Result], caplog: pytest.LogCaptureFixture
) -> None:
    (home / "runs" / "20260101-010101-aaaa" / "run.json").write_text("{")
    assert [row["run"] for row in json.loads(podium("list", "--json").stdout)] == [
        "20260110-010101-bbbb"
    ]
    assert "run 20260101-010101-aaaa is left out: " in caplog.text
    failed: Any = podium("show", "20260101").exception
    assert "run.json" in failed.message


def test_a_record_that_cannot_be_opened_hides_no_other(
    home: Path, podium: Callable[..., Result], caplog: pytest.LogCaptureFixture
) -> None:
    for refused in ("runs/20260101-010101-aaaa/run.json", "cluster/experiments/old/object.json"):
        (home / refused).unlink(missing_ok=True)
        (home / refused).mkdir(parents=True)  # refused as a file of another user's is
    listed = podium("list", "--json")
    assert [row["run"] for row in json.loads(listed.stdout)] == ["20260110-010101-bbbb"]
    assert "Experiment old is left out: " in caplog.text


def test_what_a_step_printed_can_be_read_again(podium: Callable[..., Result]) -> None:
    assert podium("logs", "latest", "prepare-data").stdout == "prepared with 0.5\n"
    assert podium("logs", "latest").stdout == "== prepare-data\nprepared with 0.5\n"
    refused: Any = podium("logs", "latest", "prepare").exception
    assert "no step, trial or job 'prepare'" in refused.message
    assert refused.hint == "did you mean prepare-data?"


def test_escape_sequences_of_a_step_are_shown_nowhere(
    home: Path, podium: Callable[..., Result]
) -> None:
    name = "20260101-010101-aaaa"
    (home / "runs" / name / "logs" / "prepare-data.log").write_text(f"a{EVIL}b\n")
    record = Runs()[name].record
    record.pipeline, record.state, record.outputs = f"own{EVIL}.py", "succeeded", {"best": EVIL}
    record.save()
    assert podium("logs", name, "prepare-data").output == "ab\n"
    run = Runs()[name]
    for shown in (
        repr(run),
        run._repr_html_(),
        repr(run.logs()),
        run.logs()._repr_html_(),
        Runs()._repr_html_(),
    ):
        assert "\x1b" not in shown
        assert "own.py" in shown or "ab" in shown


def test_compared_runs_show_only_the_parameters_that_differ(podium: Callable[..., Result]) -> None:
    first, second = json.loads(podium("compare", "20260101", "latest", "--json").stdout)
    assert (first["parameters"], second["parameters"]) == ({"lr": 0.1}, {"lr": 0.5})
    assert podium("compare", "20260101", "latest").stdout.splitlines()[0].split() == [
        "RUN",
        "STATE",
        "lr",
        "RESULT",
    ]


def test_a_deleted_run_takes_its_candidates_along(
    home: Path, podium: Callable[..., Result]
) -> None:
    run = Runs()["20260101"].record
    run.repeat("train")
    run.save()
    (home / "store" / "runs" / run.identity()).mkdir()
    deleted = podium("delete", "20260101", "20260101-010101-aaaa")
    assert deleted.exit_code == 0
    assert deleted.stdout.count("deleted 20260101-010101-aaaa") == 1
    assert [path.name for path in (home / "runs").iterdir()] == ["20260110-010101-bbbb"]
    assert [path.name for path in (home / "store" / "runs").iterdir()] == ["20260110-010101-bbbb"]


AS_ANOTHER_USER = """
import os, podium, podium.models
from podium.errors import PodiumError
run = podium.runs()["20260101"]
run.size, run.record.candidates
if os.geteuid() == 0:
    os.setuid(65534)
try:
    run.delete()
except PodiumError as error:
    print(error)
"""


@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_run_of_another_user_stays_whole(home: Path, mode: int) -> None:
    with tempfile.TemporaryDirectory() as outside:  # whose parents others may enter
        moved = Path(outside, "home")
        shutil.copytree(home, moved)
        logs = moved / "runs/20260101-010101-aaaa/logs"
        record = logs.parent / "run.json"
        record.write_text(record.read_text().replace(str(home), str(moved)))
        for path in (Path(outside), *Path(outside).rglob("*")):
            path.chmod(0o777)
        logs.chmod(mode)
        done = subprocess.run(
            [sys.executable, "-c", AS_ANOTHER_USER],
            capture_output=True,
            text=True,
            env={**os.environ, "PODIUM_HOME": str(moved)},
        )
        logs.chmod(0o777)
        assert done.stdout.splitlines() == [
            f"run 20260101-010101-aaaa cannot be deleted: {logs} may not be changed",
            f"hint: `ls -ld {logs}` shows whose it is",
        ], done.stderr
        assert record.is_file()
        assert (moved / "store/runs/20260101-010101-aaaa/trials/model.onnx").is_file()


def test_a_run_that_is_running_is_not_deleted(home: Path, podium: Callable[..., Result]) -> None:
    with locked(home / "runs" / "20260110-010101-bbbb"):
        refused = podium("delete", "20260101", "latest").exception
        assert isinstance(refused, Conflict)
        assert refused.hint == "podium runs stop 20260110-010101-bbbb"
        assert (home / "runs" / "20260101-010101-aaaa").is_dir()
        assert (
            json.loads(podium("prune", "--keep", "0", "--json").stdout)[0]["run"]
            == "20260101-010101-aaaa"
        )
    assert (home / "runs" / "20260110-010101-bbbb").is_dir()


def test_pruning_keeps_the_newest_and_the_young(home: Path, podium: Callable[..., Result]) -> None:
    assert "would delete 20260101-010101-aaaa" in podium("prune", "--keep", "1", "--dry-run").stdout
    assert len(list((home / "runs").iterdir())) == 2
    assert "nothing to delete" in podium("prune", "--older-than", "30").stdout
    podium("prune", "--older-than", "5")
    assert [path.name for path in (home / "runs").iterdir()] == ["20260110-010101-bbbb"]
    for wrong in ([], ["--keep", "-1"], ["--older-than", "99999999999"]):
        assert isinstance(podium("prune", *wrong).exception, InvalidInput)
    assert "--keep N" in str(podium("prune").exception)


def test_a_runs_sweep_is_found_by_the_runs_name(home: Path) -> None:
    store = Store(Runs()["latest"].record.cluster)
    store.create({**load("random-job"), "metadata": {"name": "sweep-1"}})
    store.supervision.close()
    done = CliRunner().invoke(app, ["experiment", "list", "--run", "latest", "--json"])
    assert [row["sweep"] for row in json.loads(done.stdout)] == ["sweep-1"]
    two: Any = (
        CliRunner().invoke(app, ["experiment", "list", "--run", "latest", "--dir", "x"]).exception
    )
    assert two.message == "--dir and --run name 2 clusters"


@pytest.mark.parametrize("began", ["yesterday", "2026-01-10T01:01:01"])
def test_a_time_that_is_damaged_is_named(
    home: Path, podium: Callable[..., Result], began: str
) -> None:
    record = home / "runs" / "20260110-010101-bbbb" / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "began": began}))
    assert "began must be a time with time zone" in str(podium("show", "latest").exception)
    for words in (["list"], ["list", "--json"], ["prune", "--keep", "0", "--dry-run"]):
        listed = podium(*words)
        assert listed.exit_code == 0
        assert "20260101-010101-aaaa" in listed.stdout, "a damaged run hides no other"
        assert "20260110-010101-bbbb" not in listed.stdout


def test_a_run_from_a_clock_ahead_costs_no_newer_one(
    home: Path, podium: Callable[..., Result]
) -> None:
    record = home / "runs/20260110-010101-bbbb/run.json"
    content = json.loads(record.read_text())
    record.write_text(json.dumps(content | {"began": "2099-01-10T01:01:01+00:00"}))
    assert "nothing to delete" in podium("prune", "--keep", "1").stdout
    assert "deleted 20260101-010101-aaaa" in podium("prune", "--keep", "0").stdout
    assert record.is_file()


def test_pruning_goes_on_after_a_run_that_stays(
    home: Path, podium: Callable[..., Result], tmp_path: Path
) -> None:
    runs, others = home / "runs", ("20250101-010101-cccc", "20250101-010101-dddd")
    for name in others:  # the oldest ones
        shutil.copytree(runs / "20260101-010101-aaaa", elsewhere := tmp_path / name)
        record = elsewhere / "run.json"
        record.write_text(record.read_text().replace("20260101-010101-aaaa", name))
        (runs / name).symlink_to(elsewhere)
    pruned = podium("prune", "--older-than", "0", "--json")
    assert {row["run"]: row["deleted"] for row in json.loads(pruned.stdout)} == {
        "20260101-010101-aaaa": True,
        "20260110-010101-bbbb": True,
        **dict.fromkeys(others, False),
    }
    assert sorted(path.name for path in runs.iterdir()) == [*others]
    assert f"2 of 4 runs could not be deleted: {', '.join(others)}" in str(pruned.exception)
    (runs / others[0]).unlink()
    again = podium("prune", "--keep", "0")
    assert again.stdout == ""
    assert f"{others[1]} is a link to" in str(again.exception)


def test_a_run_is_its_directory_whatever_its_record_says(
    home: Path, podium: Callable[..., Result]
) -> None:
    victim = home / "store/runs/victim"
    victim.mkdir(parents=True)
    record = home / "runs/20260101-010101-aaaa/run.json"
    content = json.loads(record.read_text())
    for change in ({"id": "victim"}, {"id": "../../victim"}, {"attempt": 10**12}, {"attempt": 0},
                   {"steps": {"../../../escape": content["steps"]["train"]}}):  # fmt: skip
        record.write_text(json.dumps(content | change))
        error = podium("delete", "20260101-010101-aaaa").exception
        assert isinstance(error, InvalidInput), change
        assert "run.json is damaged" in error.message
        assert podium("prune", "--keep", "0").exit_code == 0
        assert victim.is_dir()
        assert record.is_file()


def test_a_linked_run_is_not_followed(
    home: Path, podium: Callable[..., Result], tmp_path: Path
) -> None:
    (home / "runs/20260101-010101-aaaa").rename(elsewhere := tmp_path / "20260101-010101-aaaa")
    (home / "runs/20260101-010101-aaaa").symlink_to(elsewhere)
    error = podium("delete", "20260101").exception
    assert isinstance(error, InvalidInput)
    assert f"is a link to {elsewhere}" in error.message
    assert (elsewhere / "run.json").is_file()


@pytest.fixture
def sweep(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A sweep of three trials that has run on this machine, after both runs of the home."""
    monkeypatch.chdir(home)
    (home / "train.py").write_text(
        "import sys\nx = float(sys.argv[1].removeprefix('--x='))\nprint(f'loss={(x - 0.5) ** 2}')\n"
    )
    words = [
        "tune",
        "train.py",
        "--x",
        "0..1:0.5",
        "--algorithm",
        "grid",
        "--objective",
        "min:loss",
        "--trials",
        "3",
        "--name",
        "parabola",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return "parabola"


def test_sweeps_are_listed_among_the_runs(sweep: str, podium: Callable[..., Result]) -> None:
    *runs, row = json.loads(podium("list", "--json").stdout)
    assert [(found["kind"], found["run"]) for found in runs] == [
        ("run", "20260101-010101-aaaa"), ("run", "20260110-010101-bbbb"),
    ]  # fmt: skip
    assert 0 < row.pop("seconds") < 120
    assert row.pop("best_trial").startswith("parabola-")
    began = datetime.fromisoformat(row.pop("began"))
    assert datetime.now(UTC) - began < timedelta(minutes=5)
    assert (row["kind"], row["sweep"], row["algorithm"]) == ("sweep", sweep, "grid")
    assert (row["state"], row["trials"], row["counts"]) == ("succeeded", 3, {"succeeded": 3})
    assert (row["metric"], row["best"], row["result"]) == ("loss", 0.0, "loss 0.0000, 3 trials")
    head, *lines = podium("list").stdout.splitlines()
    assert head.split()[:4] == ["NAME", "KIND", "ABOUT", "STATE"]
    assert [line.split()[1] for line in lines] == ["run", "run", "sweep"]
    assert lines[-1].endswith("loss 0.0000, 3 trials")
    assert list(Runs()) == ["20260101-010101-aaaa", "20260110-010101-bbbb"]


def test_a_sweep_without_a_result_is_no_success(sweep: str) -> None:
    (known,) = list_sweeps()
    assert (known["state"], known["result"]) == ("succeeded", "loss 0.0000, 3 trials")
    cluster = open_sweep(sweep).cluster
    status = {**cluster.experiment(sweep).status, "currentOptimalTrial": {}}
    empty = sweep_row(cluster, cluster.experiment(sweep).with_status(status))
    assert (empty["state"], empty["result"]) == ("failed", "none of 3 trials has a result")


def test_a_sweeps_name_shows_its_status(sweep: str, podium: Callable[..., Result]) -> None:
    shown = podium("show", sweep).stdout
    status = CliRunner().invoke(app, ["experiment", "status", sweep]).stdout
    assert shown == f"{status}its trials: podium experiment trials {sweep}\n"
    assert "parabola: Succeeded, 3 trials" in shown
    shown_as_json = json.loads(podium("show", sweep, "--json").stdout)
    assert shown_as_json == json.loads(
        CliRunner().invoke(app, ["experiment", "status", sweep, "--json"]).stdout
    )
    refused: Any = podium("show", "parabol").exception
    assert "there is no run 'parabol'" in refused.message


def test_a_sweep_whose_process_died_ended_with_its_trials(
    sweep: str, home: Path, podium: Callable[..., Result]
) -> None:
    store = Store(home / "cluster")

    def forget_end(manifest: dict[str, Any]) -> None:
        status = manifest["status"]
        del status["completionTime"]
        status["startTime"] = "2026-01-01T00:00:00Z"
        status["conditions"] = [
            {"type": "Running", "status": "True", "reason": "ExperimentRunning", "message": ""}
        ]

    store.update("Experiment", sweep, forget_end)
    ended = max(
        datetime.fromisoformat(trial["status"]["completionTime"]) for trial in store.list("Trial")
    )
    store.supervision.close()
    (row,) = [row for row in json.loads(podium("list", "--json").stdout) if row["kind"] == "sweep"]
    assert row["state"] == "failed"
    assert row["seconds"] == pytest.approx(
        (ended - datetime(2026, 1, 1, tzinfo=UTC)).total_seconds(), abs=0.01
    )


def test_a_damaged_sweep_hides_no_run(
    sweep: str, home: Path, podium: Callable[..., Result], caplog: pytest.LogCaptureFixture
) -> None:
    (home / "cluster" / "experiments" / sweep / "object.json").write_text("{")
    listed = podium("list", "--json")
    assert [row["run"] for row in json.loads(listed.stdout)] == [
        "20260101-010101-aaaa",
        "20260110-010101-bbbb",
    ]
    assert f"Experiment {sweep} is left out: " in caplog.text


def test_notes_and_tags_are_shown_and_found(home: Path, podium: Callable[..., Result]) -> None:
    assert (
        "run 20260101-010101-aaaa has a note"
        in podium("note", "20260101", "warmup was\ntoo short").stderr
    )
    assert json.loads(podium("tag", "20260101", "baseline", "lr-0.1", "baseline", "--json").stdout)[
        "tags"
    ] == [
        "baseline",
        "lr-0.1",
    ]
    podium("tag", "latest", "lr-0.1")
    assert (
        "\ntags: baseline, lr-0.1\nnote: warmup was\ntoo short\n"
        in podium("show", "20260101").stdout
    )
    first, second = json.loads(podium("list", "--json").stdout)
    assert (first["note"], first["tags"], second["note"], second["tags"]) == (
        "warmup was\ntoo short",
        ["baseline", "lr-0.1"],
        "",
        ["lr-0.1"],
    )
    for words, found in (
        ("--tag lr-0.1", 2),
        ("--tag lr-0.1 --tag baseline", 1),
        ("--tag nothing", 0),
    ):
        assert len(json.loads(podium("list", "--json", *words.split()).stdout)) == found, words
    assert podium("list").stdout.splitlines()[0].split()[:3] == ["NAME", "KIND", "TAGS"]
    podium("tag", "20260101", "baseline", "--remove")
    podium("note", "20260101", "")
    run = Runs()["20260101"]
    assert (run.note, run.tags, run.state) == ("", ("lr-0.1",), "stopped")


def test_tags_that_no_list_finds_are_refused(home: Path, podium: Callable[..., Result]) -> None:
    for wrong in ("two words", "", "a,b", "-", "a" * 41):
        refused: Any = podium("tag", "--", "latest", wrong).exception
        assert isinstance(refused, InvalidInput), wrong
        assert repr(wrong) in refused.message
    missing: Any = podium("tag", "latest", "good", "--remove").exception
    assert (missing.message, missing.hint) == ("there is no tag 'good'", "its tags: none")
    long: Any = podium("note", "latest", "x" * 10_001).exception
    assert "at most 10000 characters, but this one has 10001" in long.message
    server: Any = podium("list", "--host", "http://127.0.0.1:9", "--tag", "good").exception
    assert "runs of a server have no tags" in server.message


def test_a_running_run_keeps_what_others_noted(home: Path, podium: Callable[..., Result]) -> None:
    with locked(home / "runs" / "20260110-010101-bbbb"):
        record = Runs()["latest"].record
        podium("note", "latest", "halfway")
        podium("tag", "latest", "night")
        record.steps["train"].state = "succeeded"
        record.save()
        again = RunRecord.read(record.directory)
    assert (again.note, again.tags, again.state) == ("halfway", ["night"], "running")
    assert (record.note, again.steps["train"].state) == ("halfway", "succeeded")


def test_tags_of_many_writers_are_all_kept(home: Path) -> None:
    run, record = Runs()["20260101"], Runs()["20260101"].record

    def write(number: int) -> None:
        for turn in range(5):
            Annotations.edit(
                run.directory, lambda written, tag=f"t{number}-{turn}": written.tagged([tag])
            )  # type: ignore[misc]
            record.save()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert sorted(run.tags) == sorted(
        f"t{number}-{turn}" for number in range(8) for turn in range(5)
    )


def test_records_without_notes_and_with_hostile_ones_read(
    home: Path, podium: Callable[..., Result]
) -> None:
    path = home / "runs" / "20260101-010101-aaaa" / "run.json"
    content = json.loads(path.read_text())
    path.write_text(
        json.dumps({name: value for name, value in content.items() if name not in ("note", "tags")})
    )
    assert (Runs()["20260101"].note, Runs()["20260101"].tags) == ("", ())
    path.write_text(json.dumps(content | {"note": f"a{EVIL}b", "tags": [EVIL]}))
    for words in (["list"], ["show", "20260101"]):
        assert "\x1b" not in podium(*words).output
    path.write_text(json.dumps(content | {"tags": "baseline"}))
    assert "tags must be" in str(podium("show", "20260101").exception)


def test_python_sets_notes_and_tags(home: Path) -> None:
    run = Runs()["20260101"]
    run.note, run.tags = "the first", ["baseline"]  # type: ignore[assignment]
    run.tags += ("kept",)
    assert (run.note, run.tags) == ("the first", ("baseline", "kept"))
    row = Runs().frame.to_dict("records")[0]
    assert (row["note"], row["tags"]) == ("the first", "baseline, kept")
    run.tags = "night"  # type: ignore[assignment]
    assert run.tags == ("night",)
    run.delete()
    with pytest.raises(NotFound, match="there is no run '20260101-010101-aaaa'"):
        run.note = "too late"
    assert not run.directory.exists()

"""A run that goes on takes the code of today, and says what it takes and what it does not."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_changed_data import until_ended
from test_hidden_test_part import digits, trained

from podium.data.fingerprint import list_contents
from podium.kfp.parameters import pairs
from podium.runner.record import RunRecord, StepRecord
from podium.runner.run import Run
from podium.runner.today import take_today
from podium.system.settings import Settings

pytestmark = pytest.mark.whole


def test_a_resumed_run_takes_the_code_that_was_mended(tmp_path: Path) -> None:
    digits(tmp_path)
    assert trained(tmp_path, "raise SystemExit('a slip')\n").returncode == 1
    mended = (tmp_path / "code/train.py").read_text().partition("\n")[2]
    (tmp_path / "code/train.py").write_text(mended)
    said = until_ended(tmp_path, "Train the model", "--resume", "latest")
    assert "Train the model: succeeded" in said
    assert (
        "code has changed (train.py): train-distributed begins anew, and it and later steps "
        "take that of today"
    ) in said.replace(f"code={tmp_path / 'code'}", "code")
    assert "Prepare the data: succeeded" in said, "finished steps are kept"


def failed_run(folder: Path, *, prepared: bool) -> RunRecord:
    """Return the record of a run whose training failed, or its preparation."""
    (folder / "code").mkdir(parents=True)
    (folder / "code/train.py").write_text("1")
    (folder / "cells.csv").write_text("x,y\n1,2\n")
    states = {
        "fingerprint-data": "succeeded",
        "prepare-data": "succeeded" if prepared else "failed",
    }
    states |= {"train-distributed": "failed" if prepared else "pending"}
    steps = {name: StepRecord(title=name, state=state) for name, state in states.items()}
    run = RunRecord(id="run-1", pipeline="train_and_promote", directory=folder / "run", steps=steps, state="failed",
                    parameters={"storage": str(folder / "store"), "dataset": f"table:{folder}/cells.csv",
                                "target": "y", "code": "packed"}, packed={"code": str(folder / "code")})  # fmt: skip
    first, _ = take_today(run, "", {})
    assert first, "what was packed before is another"
    listing = run.directory / "artifacts/a/fingerprint-data/listing"
    listing.parent.mkdir(parents=True)
    write_listing(listing, folder)
    assert take_today(run, "", {}) == ("", [])
    return run


def write_listing(listing: Path, folder: Path) -> None:
    listing.write_text(json.dumps(list_contents([f"{folder}/cells.csv"])))


def test_files_that_begin_a_step_anew_are_named(tmp_path: Path) -> None:
    run = failed_run(tmp_path, prepared=True)
    (tmp_path / "code/train.log").write_text("epoch 1")
    assert "has changed (train.log): train-distributed and" in take_today(run, "", {})[1][0]
    run.steps["train-distributed"].started = 1.0
    for number in range(9):
        (tmp_path / f"code/{number}.py").touch()
    (tmp_path / "code/train.log").unlink()
    (tmp_path / "code/train.py").chmod(0o755)
    said = take_today(run, "", {})[1][0]
    assert "has changed (0.py, 1.py, 2.py, 3.py and 7 more): train-distributed begins anew" in said


def test_changed_data_are_mentioned_with_the_command_that_takes_them(tmp_path: Path) -> None:
    run = failed_run(tmp_path, prepared=True)
    (tmp_path / "cells.csv").write_text("x,y\n1,3\n")
    first, (said,) = take_today(run, "", {})
    assert first == ""
    assert said.endswith("to take them: podium run --resume run-1 --from fingerprint-data")


def test_data_are_looked_at_again_where_they_were_not_prepared(tmp_path: Path) -> None:
    run = failed_run(tmp_path, prepared=False)
    (tmp_path / "cells.csv").write_text("x,y\n1,3\n")
    assert take_today(run, "", {})[0] == "fingerprint-data"


def test_other_code_may_be_named_where_a_run_goes_on(tmp_path: Path) -> None:
    run = failed_run(tmp_path, prepared=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/train.py").write_text("2")
    before = run.parameters["code"]
    first, (said,) = take_today(run, "", dict(pairs([f"code={tmp_path / 'other'}"])))
    assert (first, run.packed["code"]) == ("train-distributed", str(tmp_path / "other"))
    assert run.parameters["code"] != before
    assert "and later steps take that of today" in said


def test_new_values_name_files_from_where_they_are_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = failed_run(tmp_path, prepared=True)
    record.id, record.folder = "run", str(tmp_path)
    record.save()
    typed = {
        "dataset": ("table:new.csv", "table:HERE/new.csv"),
        "storage": ("store", "HERE/store"),
        "source": ("http://host/idx", "http://host/idx"),
        "weights": ("my.pt", "HERE/my.pt"),
        "data_options": ('{"test": "late.csv"}', {"test": "HERE/late.csv"}),
    }
    (tmp_path / "elsewhere/prepared").mkdir(parents=True)
    (tmp_path / "elsewhere/prepared/dataset.json").touch()
    begun = list[RunRecord]()

    def go_on(record: RunRecord, settings: Settings) -> SimpleNamespace:
        begun.append(record)
        return SimpleNamespace(run=record)

    monkeypatch.setattr("podium.runner.run.go_on", go_on)
    for words in ([f"{name}={value}" for name, (value, _) in typed.items()], ["dataset=prepared"]):
        for folder in (tmp_path / "elsewhere", tmp_path):
            monkeypatch.chdir(folder)
            Run(record).rerun(words)
    there, here, prepared, _ = (run.parameters for run in begun)
    for name, (value, found) in typed.items():
        wanted = json.dumps(found).replace("HERE", str(tmp_path / "elsewhere"))
        assert there[name] == json.loads(wanted)
        assert here[name] == (json.loads(value) if name == "data_options" else value)
    assert prepared["dataset"] == str(tmp_path / "elsewhere/prepared")

"""What a person sees of a running pipeline, on terminals of any width."""

import io
import time
from pathlib import Path

import pytest

from podium.display import terminal
from podium.display.terminal import console
from podium.runner.progress import _LiveSteps, progress
from podium.runner.record import RunRecord, StepRecord
from podium.training.base import PROGRESS


@pytest.mark.parametrize("width", [100, 60, 40])
def test_every_mark_and_duration_fits_the_terminal(width: int) -> None:
    steps = {
        "prepare": StepRecord(
            title="Prepare the data", state="succeeded", started=1.0, seconds=3.4
        ),
        "sweep": StepRecord(
            title="Search hyperparameters with Katib", state="running", started=1.0, seconds=754.2
        ),
        "train": StepRecord(
            title="Train the model with the best of them", state="failed", started=1.0, seconds=99.9
        ),
        "promote": StepRecord(title="Compare with the champion", state="pending"),
    }
    run = RunRecord(id="r", pipeline="tune_and_promote", directory=Path("r"), steps=steps)
    view = _LiveSteps()
    for number in range(3):
        view.update(
            run,
            "sweep",
            f"{PROGRESS}trial sweep-9129a940c8-{number} succeeded in 19.0 s: 0.9 {'lr=0.1 ' * 30}",
        )
    screen = io.StringIO()
    console(file=screen, width=width, force_terminal=True, color_system=None).print(view)
    shown = screen.getvalue().splitlines()
    assert all(len(line) <= width for line in shown)
    title, heading, *rows = shown
    assert title.startswith("run r of tune_and_promote")
    assert heading.split() == ["STEP", "TOOK"]
    heads = [line for line in rows if line[0] != " "]
    assert [line[0] for line in heads] == ["✓", "▸", "✗", "·"]
    assert [line.rstrip().rpartition("  ")[2] for line in heads[:3]] == [
        "3.4 s",
        "12 min 34 s",
        "99.9 s",
    ]
    assert len(rows) == len(heads) + 3
    assert all("trial sweep" in line for line in rows if line not in heads)


def test_a_log_file_hears_of_a_step_that_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal._heartbeat, "every", 0.05)
    step = StepRecord(title="Sweep hyperparameters", state="running", started=time.time())
    run = RunRecord(id="r", pipeline="tune_and_promote", directory=Path("r"), steps={"sweep": step})
    with progress() as update:
        update(run, "sweep", "")
        update(run, "sweep", f"{PROGRESS}trial 1: loss=0.5")
        time.sleep(0.5)
        step.state = "succeeded"
        update(run, "sweep", "")
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "[1/1] Sweep hyperparameters"
    assert "      trial 1: loss=0.5" in said
    said.remove("      trial 1: loss=0.5")
    assert len(said) >= 4
    assert all(
        line.startswith("      Sweep hyperparameters: ") and line.endswith("so far")
        for line in said[1:-1]
    )
    assert said[-1].startswith("[1/1] Sweep hyperparameters: succeeded")


def test_a_run_begins_with_how_long_the_last_one_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, state: str, seconds: float = 61.3, **parameters: object) -> RunRecord:
        steps = {"sweep": StepRecord(title="Sweep", state="succeeded", seconds=seconds)}
        made = RunRecord(id=name, pipeline="p", directory=tmp_path / name, steps=steps, state=state)
        made.parameters = {"cluster": f"local://{name}", **parameters}
        made.directory.mkdir()
        made.save()
        return made

    run("1", "succeeded", seconds=9.0, seed=1)
    run("2", "succeeded", seed=1)
    run("3", "failed", seconds=9.0, seed=1)
    run("4", "succeeded", seconds=9.0, seed=1, epochs=9)
    for made, said in (
        (run("5", "running", seed=2), "the last run like it took 61.3 s"),
        (run("0", "running"), ""),
    ):
        with progress() as update:
            update(made, "", "")
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(
            f"run {made.id} of p: 1 step{'; ' if said else ''}{said}, everything under "
        )

"""An Experiment's file goes to the server as text and code as a URI, whichever command sends them."""

from pathlib import Path

import pytest
from kfp_server import KfpWorld

from podium.errors import InvalidInput
from podium.kfp import schedule_files
from podium.kfp.client import Server
from podium.kfp.compiling import compile_pipeline
from podium.kfp.runs import ServerRuns
from podium.kfp.schedules import Schedules
from podium.kfp.versions import ServerPipelines

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]
SCHEDULE = "name: nightly\npipeline: tune-and-promote\ncron: '@daily'\nparameters: {experiment: mine/sweep.yaml}\n"


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An Experiment's file below the working directory, at mine/sweep.yaml."""
    monkeypatch.chdir(tmp_path)
    file = Path("mine/sweep.yaml")
    file.parent.mkdir()
    file.write_text((ROOT / "experiments/sobol.yaml").read_text())
    return file


def test_a_submitted_run_gets_the_text_of_the_experiment(
    server: Server, world: KfpWorld, sweep: Path
) -> None:
    version = ServerPipelines(server).upload(compile_pipeline("tune_and_promote"))
    run = ServerRuns(server).submit(version, [f"experiment={sweep}"], group="podium")
    assert world.runs[run.run_id]["runtime_config"]["parameters"] == {
        "experiment": sweep.read_text()
    }
    with pytest.raises(InvalidInput, match=r"no file mine/swep\.yaml"):
        ServerRuns(server).submit(version, ["experiment=mine/swep.yaml"], group="podium")
    assert len(world.runs) == 1


def test_a_schedule_sends_the_experiment_beside_its_file(
    server: Server, world: KfpWorld, sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ServerPipelines(server).upload(compile_pipeline("tune_and_promote"))
    file = tmp_path / "nightly.yaml"
    file.write_text(SCHEDULE)
    text = sweep.read_text()
    monkeypatch.chdir("/")
    for action in ("create", "keep"):
        (change,) = Schedules(server).plan(schedule_files.load([file]))
        Schedules(server).apply([change], "podium")
        assert change.action == action
    (there,) = world.recurring.values()
    assert there["runtime_config"]["parameters"] == {"experiment": text}
    (tmp_path / "mine/sweep.yaml").write_text(f"{text}\n# another")
    (change,) = Schedules(server).plan(schedule_files.load([file]))
    assert change.action == "replace"
    assert len(change.differences[0]) < 250
    (tmp_path / "mine/sweep.yaml").unlink()
    with pytest.raises(InvalidInput, match=r"nightly: no file .*mine/sweep\.yaml"):
        Schedules(server).plan(schedule_files.load([file]))


def test_a_schedules_values_are_checked_like_a_runs(server: Server, tmp_path: Path) -> None:
    ServerPipelines(server).upload(compile_pipeline("tune_and_promote"))
    file = tmp_path / "nightly.yaml"
    file.write_text(SCHEDULE.replace("experiment: mine/sweep.yaml", "max_trials: 0"))
    with pytest.raises(InvalidInput, match=r"nightly: .*max_trials >= 1"):
        Schedules(server).plan(schedule_files.load([file]))


def test_a_compiled_path_is_refused_before_the_upload(
    server: Server, world: KfpWorld, sweep: Path
) -> None:
    compiled = compile_pipeline("tune_and_promote")
    with pytest.raises(InvalidInput, match="experiment is a file's path"):
        ServerPipelines(server).upload(
            compiled.replace("defaultValue: auto\n", f"defaultValue: {sweep}\n")
        )
    assert not world.pipelines
    assert (
        ServerPipelines(server)
        .upload(compile_pipeline("tune_and_promote", [f"experiment={sweep}"]))
        .new
    )


def test_code_is_stored_when_it_is_sent_and_not_before(
    server: Server, world: KfpWorld, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print(1)\n")
    version = ServerPipelines(server).upload(
        compile_pipeline("tune_and_promote", [f"storage={tmp_path}/store"])
    )
    file = tmp_path / "nightly.yaml"
    file.write_text(SCHEDULE.replace("experiment: mine/sweep.yaml", "code: src"))
    (change,) = Schedules(server).plan(schedule_files.load([file]))
    assert not (tmp_path / "store").exists(), "a plan changes nothing"
    Schedules(server).apply([change], "podium")
    (scheduled,) = world.recurring.values()
    uri = scheduled["runtime_config"]["parameters"]["code"]
    assert Path(uri.removeprefix("file://")).is_file()
    run = ServerRuns(server).submit(version, [f"code={tmp_path / 'src'}"], group="podium")
    assert world.runs[run.run_id]["runtime_config"]["parameters"] == {"code": uri}
    (tmp_path / "src/train.py").write_text("print(2)\n")
    (change,) = Schedules(server).plan(schedule_files.load([file]))
    assert change.action == "replace", "the schedule keeps its code until it is applied again"
    run = ServerRuns(server).submit(version, [f"code={tmp_path / 'src'}"], group="podium")
    sent = world.runs[run.run_id]["runtime_config"]["parameters"]["code"]
    assert sent != uri
    assert Path(sent.removeprefix("file://")).is_file()

"""Trackers write what was measured, on this machine, and can never stop a training."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from podium.trainer.config import TrainConfig, parse
from podium.trainer.tracking import Tracking

RECORDS = [{"epoch": 1, "accuracy": 0.5, "loss": 1.5}, {"epoch": 2, "accuracy": 0.75, "loss": 1.25}]
THEIR_WARNINGS = pytest.mark.filterwarnings("ignore")  # other people's deprecations


def follow(directory: Path, *kinds: str) -> None:
    config = TrainConfig(track=kinds, track_dir=str(directory), lr=0.25)
    with Tracking(config, {"KATIB_TRIAL_NAME": "sweep-of-mine-x7k2p9qz"}) as tracking:
        for record in RECORDS:
            tracking.log(record)


def test_the_flag_is_repeatable() -> None:
    assert parse(["--track", "wandb", "--track", "mlflow"]).track == ("wandb", "mlflow")


@THEIR_WARNINGS
def test_mlflow_holds_parameters_and_metrics_of_every_epoch(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    follow(tmp_path, "mlflow")
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("sweep-of-mine")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "sweep-of-mine-x7k2p9qz"
    assert (run.info.status, run.data.params["lr"]) == ("FINISHED", "0.25")
    history = [
        (point.step, point.value)
        for point in client.get_metric_history(run.info.run_id, "accuracy")
    ]
    assert history == [(1, 0.5), (2, 0.75)]


@THEIR_WARNINGS
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_documented_mlflow_ui_shows_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    follow(tmp_path / TrainConfig().track_dir, "mlflow")
    page = (Path(__file__).parent.parent.parent / "docs" / "trainer.md").read_text()
    words = shlex.split(re.findall(r"`(mlflow ui [^`]+)`", page)[0])
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", *words, "--port", str(port)]
    server = subprocess.Popen(command, start_new_session=True)
    try:
        search = urllib.request.Request(f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/search",
                                        json.dumps({"max_results": 10}).encode(), {"Content-Type": "application/json"})  # fmt: skip
        assert "sweep-of-mine" in answer(search, server)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def answer(request: urllib.request.Request, server: subprocess.Popen[bytes]) -> str:
    """Return what a server that is starting answers."""
    while server.poll() is None:
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return str(response.read().decode())
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the server ended with {server.returncode}")


@THEIR_WARNINGS
def test_tensorboard_holds_metrics_of_every_epoch(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    follow(tmp_path, "tensorboard")
    events = EventAccumulator(
        str(tmp_path / "tensorboard" / "sweep-of-mine" / "sweep-of-mine-x7k2p9qz")
    )
    events.Reload()
    assert [(point.step, point.value) for point in events.Scalars("loss")] == [(1, 1.5), (2, 1.25)]


@THEIR_WARNINGS
def test_wandb_writes_an_offline_run_of_the_sweeps_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    follow(tmp_path, "wandb")
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    blob = file.read_bytes()
    for text in (b"accuracy", b"sweep-of-mine-x7k2p9qz", b"sweep-of-mine"):
        assert text in blob


def test_a_tracker_that_is_not_installed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    follow(tmp_path, "wandb")
    err = capsys.readouterr().err
    assert err == "notice: --track wandb is left out: pip install 'podium-ml[wandb]'\n"


def test_a_tracker_that_breaks_is_reported_once_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium.trainer import tracking

    seen = []

    class Breaks:
        def __init__(self, *_: object) -> None: ...

        def log(self, epoch: int, values: object) -> None:
            raise OSError("no space left")

        def close(self, succeeded: bool) -> None:
            seen.append("never: it is out")

    class Works(Breaks):
        def log(self, epoch: int, values: object) -> None:
            seen.append(epoch)

        def close(self, succeeded: bool) -> None:
            seen.append(succeeded)

    monkeypatch.setitem(tracking.TRACKERS, "wandb", Breaks)
    monkeypatch.setitem(tracking.TRACKERS, "mlflow", Works)
    follow(tmp_path, "wandb", "mlflow")
    assert seen == [1, 2, True]
    assert capsys.readouterr().err == "notice: --track wandb is left out: OSError: no space left\n"


def test_a_directory_that_cannot_be_written_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    follow(tmp_path / "file" / "below", "tensorboard")
    assert "--track tensorboard is left out: NotADirectoryError" in capsys.readouterr().err


def test_trials_that_begin_at_once_share_a_new_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'all.db'}")
    code = """
import pathlib, sys
from podium.trainer.tracking import _MLflow
_MLflow({"lr": 0.1}, sys.argv[1], "sweep", pathlib.Path(".")).close(True)
"""
    begun = [
        subprocess.Popen([sys.executable, "-c", code, f"trial-{number}"]) for number in range(3)
    ]
    assert [process.wait(120) for process in begun] == [0, 0, 0]
    client = MlflowClient()
    (sweep,) = client.search_experiments(filter_string="name = 'sweep'")
    assert len(client.search_runs([sweep.experiment_id])) == 3

"""Progress of a training arrives at a status server over HTTPS, and no server can harm the training."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from statusserver import StatusServer, status_server

from podium.trainer import trainjob_status
from podium.trainer.__main__ import main
from podium.trainer.trainjob_status import StatusReporter, _described

FLAGS = ["--no-cuda", "--threads", "1", "--model", "fast"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StatusServer]:
    """A status server that takes statuses of the TrainJob train-1 in the namespace team."""
    directory = tmp_path / "trainer"
    directory.mkdir()
    with status_server(directory) as server:
        yield server


@pytest.fixture
def in_a_trainjob(server: StatusServer, monkeypatch: pytest.MonkeyPatch) -> StatusServer:
    """The server, named in this process's environment as in a TrainJob's node."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


def test_the_trainer_posts_a_status_each_epoch(
    tiny_dataset: Path, tmp_path: Path, in_a_trainjob: StatusServer
) -> None:
    assert (
        main(
            [
                "--data",
                str(tiny_dataset),
                "--output",
                str(tmp_path / "out"),
                "--epochs",
                "2",
                *FLAGS,
            ]
        )
        == 0
    )
    first, last = in_a_trainjob.posts
    assert (first["progressPercentage"], last["progressPercentage"]) == (50, 100)
    assert first["estimatedRemainingSeconds"] > 0 == last["estimatedRemainingSeconds"]
    assert [metric["name"] for metric in last["metrics"]] == ["accuracy", "loss", "train_loss"]
    assert all(
        float(metric["value"]) >= 0 and isinstance(metric["value"], str)
        for metric in last["metrics"]
    )
    assert datetime.fromisoformat(last["lastUpdatedTime"]).tzinfo


def test_a_refused_status_does_not_stop_the_trainer(
    tiny_dataset: Path,
    tmp_path: Path,
    in_a_trainjob: StatusServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    in_a_trainjob.accepted = "another-token"
    assert (
        main(
            [
                "--data",
                str(tiny_dataset),
                "--output",
                str(tmp_path / "out"),
                "--epochs",
                "2",
                *FLAGS,
            ]
        )
        == 0
    )
    err = capsys.readouterr().err
    assert err.count("warning: progress does not reach the TrainJob: 403") == 1
    assert "-token" not in err
    assert (tmp_path / "out/metrics.json").exists()


def report_once(environ: dict[str, str]) -> StatusReporter:
    status = StatusReporter(environ)
    status.report(1, 4, {"accuracy": 0.5})
    status.close()
    return status


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("KUBEFLOW_TRAINER_SERVER_TOKEN", "/nowhere/token", "No such file"),
        ("KUBEFLOW_TRAINER_SERVER_CA_CERT", "/nowhere/ca.crt", "No such file"),
        ("KUBEFLOW_TRAINER_SERVER_URL", "https://127.0.0.1:1/status", "refused"),
        ("KUBEFLOW_TRAINER_SERVER_URL", "http://127.0.0.1:1/status", "not an address of HTTPS"),
    ],
)
def test_what_keeps_progress_away_is_one_warning(
    server: StatusServer, capsys: pytest.CaptureFixture[str], variable: str, value: str, reason: str
) -> None:
    report_once({**server.environment, variable: value})
    err = capsys.readouterr().err
    assert reason in err
    assert err.count("\n") == 1


def test_a_server_nobody_vouches_for_gets_no_token(
    server: StatusServer,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with status_server(tmp_path_factory.mktemp("other")) as other:
        stranger = {"KUBEFLOW_TRAINER_SERVER_CA_CERT": str(other.certificate)}
        report_once({**server.environment, **stranger})
    assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err
    assert server.posts == []


def test_a_token_that_was_renewed_is_read_again(server: StatusServer) -> None:
    status = report_once(server.environment)
    server.token.write_text("second-token")
    server.accepted = "second-token"
    status.report(2, 4, {})
    status.close()
    assert [post["progressPercentage"] for post in server.posts] == [25, 50]


def test_a_silent_server_does_not_slow_the_training(
    server: StatusServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trainjob_status, "TIMEOUT", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"https://127.0.0.1:{silent.getsockname()[1]}/status"
        status = StatusReporter({**server.environment, "KUBEFLOW_TRAINER_SERVER_URL": address})
        start = time.monotonic()
        for epoch in range(1, 1001):
            status.report(epoch, 1000, {"accuracy": 0.5})
        assert time.monotonic() - start < 1.9
        status.close()
    assert "timed out" in capsys.readouterr().err


@pytest.mark.parametrize(("rank", "posts"), [("0", [25]), ("1", [])])
def test_the_kit_reports_progress_from_the_first_node(
    server: StatusServer, rank: str, posts: list[int], behind_a_proxy: dict[str, str]
) -> None:
    code = "from podium.trainer import kit; kit.report(epoch=1, epochs=4, accuracy=0.5)"
    environ = {**behind_a_proxy, **server.environment, "PET_NODE_RANK": rank, "PET_NNODES": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [post["progressPercentage"] for post in server.posts] == posts


@pytest.fixture
def behind_a_proxy() -> dict[str, str]:
    """This environment with a proxy that does not exist: nothing may be sent through it."""
    return {**os.environ, "HTTPS_PROXY": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}


def test_without_a_known_end_there_is_no_percentage() -> None:
    status = _described(3, None, {"loss": 12345678.9}, 1.5)
    assert status.keys() == {"metrics", "lastUpdatedTime"}
    assert status["metrics"] == [{"name": "loss", "value": "1.23457e+07"}]


def test_what_is_left_is_counted_in_whole_seconds() -> None:
    status = _described(1, 3, {}, 0.6)
    assert (status["progressPercentage"], status["estimatedRemainingSeconds"]) == (33, 2)
    stopped_early = _described(2, 10, {}, 0.6, done=True)
    assert (stopped_early["progressPercentage"], stopped_early["estimatedRemainingSeconds"]) == (
        100,
        0,
    )

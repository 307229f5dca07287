"""A killed training ends with the same numbers when the command is repeated. Real processes, real signals."""

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from podium.cluster.local.processes.client import Command, LauncherPool, Process
from podium.trainer.__main__ import main

pytestmark = pytest.mark.whole


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    torch.set_num_threads(before)


def flags(dataset: Path, output: Path, model: str = "fast") -> list[str]:
    """Two epochs of 50 steps: long enough to be hit in the middle."""
    return ["--data", str(dataset), "--output", str(output), "--epochs", "2", "--batch-size", "8",
            "--precision", "fp32", "--log-interval", "1", "--no-cuda", "--lr", "0.1", "--dropout", "0",
            "--model", model, "--optimizer", "adadelta"]  # fmt: skip


NOTICED = 30.0
"""Seconds in which the loss of a rank is noticed."""


class Ranks:
    """Starts the processes of a training as a cluster on this machine does: forks of one that has imported torch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.launchers, self.place = folder, LauncherPool(), dict[str, str]()

    def start(self, argv: list[str], **env: str) -> tuple[Process, Path]:
        log = self.folder / f"{len(list(self.folder.iterdir()))}.log"
        log.touch()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        command = Command(argv=("python", "-m", "podium.trainer", *argv), env={**os.environ, "PATH": path, **env},
                          cwd=self.folder, log=log, own_python=True)  # fmt: skip
        return self.launchers.start(command, lambda: None), log

    def job(self, argv: list[str], size: int) -> list[tuple[Process, Path]]:
        """Start all processes of a job with the environment that the PyTorch operator gives them."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = str(probe.getsockname()[1])
        self.place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
        return [self.rank(argv, rank) for rank in range(size)]

    def rank(self, argv: list[str], rank: int) -> tuple[Process, Path]:
        """Start a process of the last job, maybe again."""
        return self.start(argv, **self.place, RANK=str(rank))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.launchers.close()


def wait_for(text: str, process: Process, log: Path) -> None:
    deadline = time.monotonic() + 120
    while text not in log.read_text():
        assert process.running, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.005)


def results(output: Path) -> dict[str, object]:
    """Return metrics.json without the times."""
    metrics = json.loads((output / "metrics.json").read_text())
    for epoch in metrics["epochs"]:
        del epoch["seconds"]
    return metrics  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def unbroken(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("unbroken")
    assert main([*flags(tiny_dataset, output), "--threads", "1"]) == 0
    return output


@pytest.mark.parametrize(("kill", "code"), [(signal.SIGKILL, 137), (signal.SIGTERM, 143)])
def test_a_killed_process_resumes_to_the_same_bits(
    tiny_dataset: Path, tmp_path: Path, unbroken: Path, ranks: Ranks, capsys: pytest.CaptureFixture[str],
    kill: int, code: int,
) -> None:  # fmt: skip
    argv = flags(tiny_dataset, tmp_path)
    process, log = ranks.start(argv)
    wait_for("Train Epoch: 2 [40/400", process, log)
    os.kill(process.pid, kill)
    assert process.wait(60) == code
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "Train Epoch: 1 " not in out  # the first epoch is not repeated
    assert out.startswith("resumed: epoch 2 after step ")
    assert (
        len(re.findall(r"^\S+Z accuracy=", out, re.MULTILINE)) == 2
    )  # but its metrics are printed again
    assert ("Train Epoch: 2 [0/400" in out) == (
        kill == signal.SIGKILL
    )  # SIGTERM loses not even a step
    assert results(tmp_path) == results(unbroken)
    assert (tmp_path / "model.onnx").read_bytes() == (unbroken / "model.onnx").read_bytes()


def test_a_job_with_a_killed_worker_ends_like_one_process(
    tiny_dataset: Path, tmp_path: Path, ranks: Ranks
) -> None:
    """Of a network without batch normalization, which sees half of each batch in either process."""
    assert main([*flags(tiny_dataset, tmp_path / "unbroken", "mlp"), "--threads", "1"]) == 0
    argv = flags(tiny_dataset, tmp_path / "job", "mlp")
    (master, log), (worker, _) = ranks.job(argv, 2)
    wait_for("Train Epoch: 2 [40/400", master, log)
    os.kill(worker.pid, signal.SIGKILL)
    assert master.wait(60) == 144, (
        log.read_text()
    )  # 128..255: restartPolicy ExitCode starts it again
    assert "another process of the training is gone" in log.read_text()
    assert "Traceback" not in log.read_text()
    (master, log), (worker, silent) = ranks.job(argv, 2)
    assert (worker.wait(120), master.wait(60)) == (0, 0), log.read_text() + silent.read_text()
    assert silent.read_text() == ""  # rank 0 alone speaks
    assert "Train Epoch: 1 " not in log.read_text()
    # Two processes add the same gradients in another order: equal up to rounding, not to the last bit.
    two, one = results(tmp_path / "job"), results(tmp_path / "unbroken")
    for mine, other in zip(two["epochs"], one["epochs"], strict=True):  # type: ignore[call-overload]
        assert mine == pytest.approx(other, rel=1e-3)


def test_a_stopped_job_resumes_to_the_same_bits(
    tiny_dataset: Path, tmp_path: Path, ranks: Ranks
) -> None:
    stopped, straight = (
        flags(tiny_dataset, tmp_path / name, "mlp") for name in ("stopped", "straight")
    )
    (master, log), (worker, _) = ranks.job(stopped, 2)
    wait_for("Train Epoch: 2 [40/400", master, log)
    for process in (worker, master):
        os.kill(process.pid, signal.SIGTERM)
    assert {master.wait(60), worker.wait(60)} <= {143, 144}, log.read_text()
    for argv in (stopped, straight):
        (master, log), (worker, _) = ranks.job(argv, 2)
        assert (worker.wait(120), master.wait(60)) == (0, 0), log.read_text()
        assert ("Train Epoch: 2 [0/400" in log.read_text()) == (argv == straight)
    assert results(tmp_path / "stopped") == results(tmp_path / "straight")


@pytest.mark.parametrize("silent", [1, 0])
def test_a_silent_rank_is_missed_within_half_a_minute(
    silent: int, tiny_dataset: Path, tmp_path: Path, ranks: Ranks
) -> None:
    """A stopped process closes no connection: gloo notices nothing."""
    job = ranks.job([*flags(tiny_dataset, tmp_path / "job", "mlp"), "--epochs", "2000"], 2)
    wait_for("Train Epoch: 1 [40/400", *job[0])
    (other, log), (stopped, _) = job[1 - silent], job[silent]
    os.kill(stopped.pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        assert other.wait(60) == 144, log.read_text()
    finally:
        os.kill(stopped.pid, signal.SIGKILL)
    assert time.monotonic() - began < NOTICED
    assert "error: another process of the training is gone (" in log.read_text()
    # Rank 0 saves the steps that all have finished.
    assert silent == 0 or (tmp_path / "job" / "checkpoint.pt").exists()


def test_a_restarted_rank_ends_the_attempt_before(
    tiny_dataset: Path, tmp_path: Path, ranks: Ranks
) -> None:
    argv = flags(tiny_dataset, tmp_path / "job", "mlp")
    (master, log), (stopped, _) = ranks.job(argv, 2)
    wait_for("Train Epoch: 1 [40/400", master, log)
    os.kill(stopped.pid, signal.SIGSTOP)  # gone for all but gloo
    worker, silent = ranks.rank(argv, 1)
    assert master.wait(60) == 144, log.read_text()
    assert "(a rank was started again)" in log.read_text()
    os.kill(stopped.pid, signal.SIGKILL)
    master, log = ranks.rank(argv, 0)
    assert (worker.wait(60), master.wait(60)) == (0, 0), log.read_text() + silent.read_text()
    assert log.read_text().startswith("resumed: epoch ")


def test_a_damaged_checkpoint_is_named_and_the_training_starts_anew(
    tiny_dataset: Path, tmp_path: Path, unbroken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"PK\x03\x04 half of a checkpoint")
    assert main(flags(tiny_dataset, tmp_path)) == 0
    assert "checkpoint.pt cannot be read" in capsys.readouterr().err
    assert results(tmp_path) == results(unbroken)

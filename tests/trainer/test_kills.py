"""Whatever is killed, the same command ends with the same numbers. Real processes, real signals."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from podium.trainer.__main__ import main


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    torch.set_num_threads(before)


def flags(dataset: Path, output: Path) -> list[str]:
    """Two epochs of 50 steps: long enough to be hit in the middle."""
    return ["--data", str(dataset), "--output", str(output), "--epochs", "2", "--batch-size", "8",
            "--precision", "fp32", "--log-interval", "1", "--no-cuda", "--lr", "0.1", "--dropout", "0"]  # fmt: skip


def start(argv: list[str], **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "podium.trainer", *argv], env={**os.environ, **env}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip


@contextmanager
def job(argv: list[str], size: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the processes of a job with the environment that the PyTorch operator gives them."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
    ranks = [start(argv, **place, RANK=str(rank)) for rank in range(size)]
    try:
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return
    pytest.fail(f"{text!r} was never printed:\n{''.join(lines)}")


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


@pytest.mark.parametrize(("kill", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_process_killed_in_the_middle_of_an_epoch_goes_on_to_the_same_numbers(
    tiny_dataset: Path, tmp_path: Path, unbroken: Path, capsys: pytest.CaptureFixture[str], kill: int, code: int
) -> None:
    argv = flags(tiny_dataset, tmp_path)
    with start(argv) as process:
        read_until(process, "Train Epoch: 2 [120/400")
        process.send_signal(kill)
        process.communicate()
    assert process.returncode == code
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "Train Epoch: 1 " not in out  # the first epoch is not repeated
    assert ("Train Epoch: 2 [0/400" in out) == (kill == signal.SIGKILL)  # SIGTERM loses not even a step
    assert results(tmp_path) == results(unbroken)
    assert (tmp_path / "model.onnx").read_bytes() == (unbroken / "model.onnx").read_bytes()


def test_a_job_whose_worker_was_killed_ends_as_one_process_alone_would(
    tiny_dataset: Path, tmp_path: Path, unbroken: Path
) -> None:
    argv = flags(tiny_dataset, tmp_path)
    with job(argv, 2) as (master, worker):
        read_until(master, "Train Epoch: 2 [120/400")
        worker.kill()
        talk, _ = master.communicate(timeout=60)
    assert master.returncode == 144, talk  # 128..255: restartPolicy ExitCode starts it again
    assert "another process of the training is gone" in talk
    assert "Traceback" not in talk
    with job(argv, 2) as (master, worker):
        silent, _ = worker.communicate(timeout=120)
        talk, _ = master.communicate(timeout=60)
    assert (master.returncode, worker.returncode) == (0, 0), talk + silent
    assert silent == ""  # rank 0 alone speaks
    assert "Train Epoch: 1 " not in talk
    # Two processes add the same gradients in another order: equal up to rounding, not to the last bit.
    two, one = results(tmp_path), results(unbroken)
    for mine, other in zip(two["epochs"], one["epochs"], strict=True):  # type: ignore[call-overload]
        assert mine == pytest.approx(other, abs=0.02)


def test_a_damaged_checkpoint_is_named_and_the_training_starts_anew(
    tiny_dataset: Path, tmp_path: Path, unbroken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"PK\x03\x04 half of a checkpoint")
    assert main(flags(tiny_dataset, tmp_path)) == 0
    assert "checkpoint.pt cannot be read" in capsys.readouterr().err
    assert results(tmp_path) == results(unbroken)

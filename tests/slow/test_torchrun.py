"""Elastic: a lost worker is replaced and the training goes on from its last checkpoint."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks import free_port, of_trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def children(pid: int) -> list[int]:
    """Return the processes that a process started, from /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def rank_of(pid: int) -> str | None:
    environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    match = re.search(r"(?:^|\0)RANK=(\d+)", environment)
    return match and match[1]


def test_torchrun_on_two_nodes_of_a_trainjob_trains_once(
    tiny_dataset: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "-m", "podium.trainer", "--data", str(tiny_dataset),
               "--output", str(tmp_path / "out"), "--epochs", "1", "--no-cuda", "--threads", "1"]  # fmt: skip
    nodes = [
        subprocess.Popen(command, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True)
        for environ in of_trainer(free_port())
    ]
    try:
        said = [node.communicate(timeout=200)[0] for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert [node.returncode for node in nodes] == [0, 0]
    assert [len(re.findall(r"Z accuracy=", text)) for text in said] == [1, 0]
    assert json.loads((tmp_path / "out/environment.json").read_text())["processes"] == 2


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the worker through /proc")
def test_torchrun_replaces_a_killed_worker_and_repeats_no_epoch(
    tiny_dataset: Path, tmp_path: Path
) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "2",
                "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "-m", "podium.trainer"]  # fmt: skip
    flags = ["--data", str(tiny_dataset), "--output", str(tmp_path / "out"), "--epochs", "3", "--batch-size", "4",
             "--log-interval", "1", "--no-cuda", "--lr", "0.1"]  # fmt: skip
    log = tmp_path / "log"
    with open(log, "w") as stream:
        process = subprocess.Popen([*launcher, *flags], stdout=stream, stderr=subprocess.STDOUT,
                                   env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    try:
        deadline = time.monotonic() + 200
        while "Train Epoch: 2 [120/400" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        (victim,) = [pid for pid in children(process.pid) if rank_of(pid) == "1"]
        os.kill(victim, signal.SIGKILL)
        assert process.wait(timeout=200) == 0, log.read_text()
    finally:
        process.kill()
    text = log.read_text()
    assert text.count("Train Epoch: 1 [0/400") == 1
    before, after = text.split("resumed: epoch 2 after step ")
    assert before.count("Z accuracy=") == 1
    assert after.count("Z accuracy=") == 3, "the metrics so far are repeated: each log is whole"
    assert len(json.loads((tmp_path / "out" / "metrics.json").read_text())["epochs"]) == 3

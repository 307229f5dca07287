"""Distributed training as a PyTorchJob on this machine: real gloo, real torchrun, real kills."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytorchjobs import write_pytorchjob

from podium.manifests.conditions import State, status_of
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SUM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.tensor(dist.get_rank() + 1)
dist.all_reduce(one)
print("sum", int(one), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalSweeps]:
    with LocalSweeps(tmp_path / "cluster") as there:
        yield there


def run(cluster: LocalSweeps, name: str, command: tuple[str, ...], **changes: Any) -> State:
    cluster.create(typed(write_pytorchjob(name=name, image="any", command=command, **changes)))
    return wait(cluster, name)


def wait(cluster: LocalSweeps, name: str) -> State:
    *_, last = (stored.manifest for stored in cluster.watch("PyTorchJob", name, timeout=600))
    return status_of(last)


def test_three_replicas_meet_at_the_masters_address(cluster: LocalSweeps) -> None:
    state = run(cluster, "sum", ("python", "-c", SUM), workers=2, restart_policy="Never")
    assert state.phase == "Succeeded", list(cluster.logs("PyTorchJob", "sum"))
    assert list(cluster.logs("PyTorchJob", "sum")) == ["sum 6 of 3"]


def test_torchrun_starts_the_processes_of_each_replica(
    cluster: LocalSweeps, tmp_path: Path
) -> None:
    (tmp_path / "sum.py").write_text(SUM)
    command = ("torchrun", str(tmp_path / "sum.py"))
    state = run(
        cluster, "elastic", command, workers=1, processes_per_worker=2, restart_policy="Never"
    )
    assert state.phase == "Succeeded", list(cluster.logs("PyTorchJob", "elastic"))
    lines = [line for line in cluster.logs("PyTorchJob", "elastic") if line.startswith("sum")]
    assert lines == ["sum 10 of 4"] * 2


@pytest.mark.parametrize("policy", ["OnFailure", "ExitCode"])
def test_a_killed_rank_costs_nothing_but_time(
    policy: str, cluster: LocalSweeps, tiny_dataset: Path, tmp_path: Path
) -> None:
    def command(output: str) -> tuple[str, ...]:
        flags = f"--data {tiny_dataset} --output {tmp_path / output} --epochs 3 --batch-size 4 --log-interval 1 --no-cuda"
        return ("python", "-m", "podium.trainer", *flags.split(), "--precision", "fp32")

    assert run(cluster, "whole", command("whole"), workers=1).phase == "Succeeded"
    broken = write_pytorchjob(
        name="broken", image="any", command=command("broken"), workers=1, restart_policy=policy
    )
    cluster.create(typed(broken))
    for line in cluster.logs("PyTorchJob", "broken", follow=True):
        if line.startswith("Train Epoch: 2"):
            os.kill(_pid(cluster, "worker-0"), signal.SIGKILL)
            break
    assert wait(cluster, "broken").phase == "Succeeded", list(cluster.logs("PyTorchJob", "broken"))
    results = [
        json.loads((tmp_path / kind / "metrics.json").read_text()) for kind in ("whole", "broken")
    ]
    for result in results:
        for epoch in result["epochs"]:
            epoch.pop("seconds")
    assert results[0]["epochs"] == results[1]["epochs"]


def _pid(cluster: LocalSweeps, replica: str) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        records = json.loads((cluster.store.path("PyTorchJob", "broken") / "pods.json").read_text())
        for record in records:
            if record["replica"] == replica and record["pid"]:
                return int(record["pid"])
    raise AssertionError(f"{replica} has no process")

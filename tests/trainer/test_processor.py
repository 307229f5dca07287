"""Threads and precision are chosen on purpose."""

from pathlib import Path

import pytest
import torch

from podium.system.machine import cores
from podium.trainer import processor
from podium.trainer.config import TrainConfig
from podium.trainer.world import World


@pytest.fixture(autouse=True)
def same_threads_afterwards() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_flag_overrides_the_environment_which_overrides_the_cores() -> None:
    available = cores()
    assert processor.set_threads(TrainConfig(threads=3), {"OMP_NUM_THREADS": "2"}) == 3
    assert processor.set_threads(TrainConfig(), {"OMP_NUM_THREADS": "2"}) == 2
    assert processor.set_threads(TrainConfig(), {"OMP_NUM_THREADS": "2,1"}) == 2
    assert processor.set_threads(TrainConfig(), {"OMP_NUM_THREADS": "many"}) == available
    assert processor.set_threads(TrainConfig(), {}) == available
    assert torch.get_num_threads() == available


def test_processes_on_one_machine_share_its_cores() -> None:
    assert processor.set_threads(TrainConfig(), {"LOCAL_WORLD_SIZE": "1000"}) == 1


@pytest.mark.parametrize(
    ("text", "most"), [("100000 100000", 1), ("150000 100000", 2), ("max 100000", 4096), ("", 4096)]
)
def test_a_containers_quota_limits_the_cores(tmp_path: Path, text: str, most: int) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert 1 <= cores(tmp_path / "cpu.max") <= most


def test_precision_follows_the_flag_or_the_hardware() -> None:
    alone = World()
    assert processor.pick_precision(TrainConfig(precision="fp32"), alone) == "fp32"
    assert processor.pick_precision(TrainConfig(precision="bf16"), alone) == "bf16"
    assert processor.pick_precision(TrainConfig(), alone) == (
        "bf16" if processor._has_bf16(alone.device) else "fp32"
    )

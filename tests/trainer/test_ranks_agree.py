"""What each process decides or computes for itself is the same in all of them. This file is also their program."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks
from torch import nn

from podium.trainer import data, processor
from podium.trainer import world as worlds
from podium.trainer.config import TrainConfig
from podium.trainer.loop import Training


def train(dataset: str, here: worlds.World) -> dict[str, Any]:
    """Train with a processor and an order of sets that are another in each process; return what came out."""
    torch.set_num_threads(1)
    processor.has_bf16 = lambda device: here.rank == 0
    config = TrainConfig(data=dataset, model="fast", epochs=2, batch_size=8, average=20, no_cuda=True)
    training = Training(config, data.load(config), here, lambda line: None)
    places = {id(training.model): here.rank, id(training.average.model): 1 - here.rank}
    nn.Sequential.__hash__ = lambda module: places.get(id(module), 2)  # type: ignore[assignment,method-assign]
    training.run(lambda state: None)
    return {
        "precision": training.precision,
        "model": training.model.state_dict(),
        "average": training.average.model.state_dict(),
    }


@pytest.fixture(scope="module")
def together(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What came out of each of two processes."""
    return run_ranks(__file__, tiny_dataset, tmp_path_factory.mktemp("ranks"))


def test_bf16_is_used_only_if_all_processors_have_it(together: list[dict[str, Any]]) -> None:
    assert [found["precision"] for found in together] == ["fp32", "fp32"]


def test_weights_and_running_statistics_are_equal_in_all_processes(together: list[dict[str, Any]]) -> None:
    first, second = together
    for network in ("model", "average"):
        for name, value in first[network].items():
            assert torch.equal(value, second[network][name]), f"{network} {name}"
    name = "3.running_mean"
    assert not torch.equal(first["model"][name], first["average"][name]), "one of them says nothing about the other"


if __name__ == "__main__":
    with worlds.join(TrainConfig(no_cuda=True)) as here:
        torch.save(train(sys.argv[1], here), f"{sys.argv[2]}/{here.rank}")

"""What each rank decides, computes or receives is the same in all of them. This file is also their program."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks
from torch import nn

from podium.errors import InvalidInput
from podium.trainer import data, processor, world as worlds
from podium.trainer.config import TrainConfig
from podium.trainer.loop import TrainingLoop

VALUES = {"text": "ü", "none": None, "list": [1.5, True], "by number": {3: "three"}}
TENSORS = {"weights": torch.arange(6.0).view(2, 3), "empty": torch.empty(0, dtype=torch.bfloat16),
           "channels last": torch.arange(16).view(1, 2, 2, 4).permute(0, 3, 1, 2)}  # fmt: skip


def receive(here: worlds.World) -> dict[str, Any]:
    """Return what arrives in this rank from rank 0, which alone has something: a value, then an error."""

    def fail() -> None:
        raise InvalidInput("nothing there", "look elsewhere")

    received: dict[str, Any] = {
        "value": here.broadcast(lambda: [VALUES, TENSORS] if here.rank == 0 else here.rank)
    }
    try:
        here.broadcast(fail if here.rank == 0 else lambda: None)
    except worlds.PodiumError as error:
        received |= {"error": str(error), "exit_code": error.exit_code}
    return received


def train(dataset: str, here: worlds.World) -> dict[str, Any]:
    """Train with a processor and an order of sets that are another in each process; return what came out."""
    torch.set_num_threads(1)
    processor._has_bf16 = lambda device: here.rank == 0
    config = TrainConfig(
        data=dataset, model="fast", epochs=2, batch_size=8, average=20, no_cuda=True
    )
    training = TrainingLoop(config, data.load(config), here, lambda line: None)
    places = {id(training.model): here.rank, id(training.average.model): 1 - here.rank}
    nn.Sequential.__hash__ = lambda module: places.get(id(module), 2)  # type: ignore[assignment,method-assign]
    training.run(lambda state: None)
    return {
        "precision": training.precision,
        "model": training.model.state_dict(),
        "average": training.average.model.state_dict(),
        "device": str(here.device),
        "received": receive(here),
    }


@pytest.fixture(scope="module")
def together(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What came out of each of two processes."""
    return run_ranks(__file__, tiny_dataset, tmp_path_factory.mktemp("ranks"))


def test_bf16_is_used_only_if_all_processors_have_it(together: list[dict[str, Any]]) -> None:
    assert [result["precision"] for result in together] == ["fp32", "fp32"]


def test_a_gpu_is_used_only_if_all_ranks_have_one(together: list[dict[str, Any]]) -> None:
    assert [result["device"] for result in together] == ["cpu", "cpu"]


def test_values_of_rank_0_arrive_unchanged_everywhere(together: list[dict[str, Any]]) -> None:
    for result in together:
        values, tensors = result["received"]["value"]
        assert (values, tensors.keys()) == (VALUES, TENSORS.keys())
        for name, tensor in TENSORS.items():
            assert torch.equal(tensors[name], tensor), name
            assert tensors[name].dtype == tensor.dtype, name


def test_an_error_of_rank_0_ends_every_rank(together: list[dict[str, Any]]) -> None:
    for result in together:
        assert result["received"]["error"] == "nothing there\nhint: look elsewhere"
        assert result["received"]["exit_code"] == 2


def test_nothing_between_ranks_can_run_code() -> None:
    pickled = re.compile(r"_object(_list)?\(|import pickle|weights_only=False")
    for file in Path(worlds.__file__).parent.glob("*.py"):
        assert not pickled.search(file.read_text()), (
            f"{file.name} sends or reads pickles that can run code"
        )


def test_weights_and_running_statistics_are_equal_in_all_processes(
    together: list[dict[str, Any]],
) -> None:
    first, second = together
    for network in ("model", "average"):
        for name, value in first[network].items():
            assert torch.equal(value, second[network][name]), f"{network} {name}"
    name = "3.running_mean"
    assert not torch.equal(first["model"][name], first["average"][name]), (
        "one of them says nothing about the other"
    )


if __name__ == "__main__":
    worlds._pick_device = lambda config, local_rank: torch.device(
        "cuda" if local_rank == 0 else "cpu"
    )
    with worlds.join(TrainConfig()) as here:
        torch.save(train(sys.argv[1], here), f"{sys.argv[2]}/{here.rank}")

"""What is saved when a process dies depends on where in a step it died. This file is also the processes' program."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks

from podium.trainer import data, recipe
from podium.trainer import world as worlds
from podium.trainer.config import TrainConfig
from podium.trainer.in_memory import InMemory
from podium.trainer.loop import Training

LAST = 5


def train(dataset: str, here: worlds.World) -> list[Any]:
    """Lose rank 1 in its last step; return the error that rank 0 ends with, the steps it saved, and what they left."""
    torch.set_num_threads(1)
    config = TrainConfig(data=dataset, batch_size=8, no_cuda=True, precision="fp32")
    training = Training(config, data.load(config), here, lambda line: None)
    assert isinstance(training.exchange, InMemory)
    dies = {"backward": training.exchange.backward, "update": recipe.apply}[os.environ["DIES"]]
    calls: list[torch.Tensor] = []

    def die(*arguments: Any) -> Any:
        calls.append(training.model[8].weight.detach().clone())
        if here.rank == 1 and len(calls) == LAST:
            torch.save([], f"{sys.argv[2]}/1")
            os._exit(0)
        return dies(*arguments)

    if os.environ["DIES"] == "update":
        recipe.apply = die
    else:
        training.exchange.backward = die  # type: ignore[method-assign]
    saved: list[dict[str, Any]] = []
    try:
        training.run(saved.append)
    except worlds.PeerLost as error:
        steps = [state["step"] for state in saved]
        return [type(error).__name__, steps, *(torch.equal(state["model"]["8.weight"], calls[-1]) for state in saved)]
    return ["nobody was missed"]


def test_steps_before_the_one_that_a_process_died_in_are_saved(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIES", "backward")
    assert run_ranks(__file__, tiny_dataset, tmp_path)[0] == ["PeerLost", [LAST - 1], True]


def test_nothing_is_saved_of_weights_that_were_being_changed(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIES", "update")
    assert run_ranks(__file__, tiny_dataset, tmp_path)[0] == ["Torn", []]


def test_running_statistics_are_never_left_as_half_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(values: torch.Tensor) -> None:
        values[: len(values) // 2] += 3  # as a process leaves them, one time in four, that is killed while it adds
        raise RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer")

    monkeypatch.setattr(torch.distributed, "all_reduce", break_off)
    network = torch.nn.BatchNorm2d(8)
    with pytest.raises(worlds.PeerLost):
        worlds.World(size=2).mean_buffers(network)
    assert network.running_mean.tolist() == [0] * 8


if __name__ == "__main__":
    with worlds.join(TrainConfig(no_cuda=True)) as here:
        torch.save(train(sys.argv[1], here), f"{sys.argv[2]}/{here.rank}")
        os._exit(0)  # nobody is there to say goodbye to

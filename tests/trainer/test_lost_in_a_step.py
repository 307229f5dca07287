"""The steps that all ranks finished are saved when a rank dies in the next one. This file is also their program."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks
from torch import distributed

from podium.trainer import data, world as worlds
from podium.trainer.config import TrainConfig
from podium.trainer.loop import TrainingLoop

LAST = 5


def train(dataset: str, here: worlds.World) -> list[Any]:
    """Lose rank 1 in its last step; return the error that rank 0 ends with, the steps it saved, and what they left."""
    torch.set_num_threads(1)
    config = TrainConfig(data=dataset, batch_size=8, no_cuda=True, precision="fp32")
    training = TrainingLoop(config, data.load(config), here, lambda line: None)
    owner, method = (
        (training.gradients, "backward")
        if os.environ["DIES"] == "backward"
        else (training.optimizer, "step")
    )
    works = getattr(owner, method)
    calls: list[None] = []

    def die(*arguments: Any) -> Any:
        if here.rank == 1 and len(calls) == LAST - 1:
            torch.save([], f"{sys.argv[2]}/1")
            os._exit(0)
        calls.append(None)
        return works(*arguments)

    def update(*arguments: Any, **options: Any) -> None:
        average(*arguments, **options)
        weights.append(training.model[8].weight.detach().clone())

    setattr(owner, method, die)
    average, weights = training.average.update, list[torch.Tensor]()
    training.average.update = update  # type: ignore[method-assign]
    saved: list[dict[str, Any]] = []
    try:
        training.run(saved.append)
    except worlds.PeerLost as error:
        steps = [state["step"] for state in saved]
        return [
            type(error).__name__,
            steps,
            *(torch.equal(state["model"]["8.weight"], weights[-1]) for state in saved),
        ]
    return ["nobody was missed"]


@pytest.mark.parametrize(("dies", "finished"), [("backward", LAST - 1), ("update", LAST)])
def test_the_finished_steps_are_saved_when_a_rank_dies(
    dies: str, finished: int, tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIES", dies)
    error, steps, is_whole = run_ranks(__file__, tiny_dataset, tmp_path)[0]
    assert (error, steps) == ("PeerLost", [finished])
    assert is_whole


def test_running_statistics_are_never_left_as_half_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(values: torch.Tensor, async_op: bool) -> None:
        values[: len(values) // 2] += (
            3  # as a process leaves them, one time in four, that is killed while it adds
        )
        raise RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer")

    monkeypatch.setattr(torch.distributed, "all_reduce", break_off)
    network = torch.nn.BatchNorm2d(8)
    with pytest.raises(worlds.PeerLost):
        worlds.World(size=2).mean_buffers(network)
    assert network.running_mean.tolist() == [0] * 8


def test_an_error_of_this_rank_is_not_a_lost_one() -> None:
    unsupported = torch.ones(2).to_sparse()
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(NotImplementedError, match="broadcast"):
            worlds.World(size=2).broadcast_tensors([unsupported])
    finally:
        distributed.destroy_process_group()


if __name__ == "__main__":
    with worlds.join(TrainConfig(no_cuda=True)) as here:
        torch.save(train(sys.argv[1], here), f"{sys.argv[2]}/{here.rank}")
        os._exit(0)  # the other rank cannot answer a goodbye

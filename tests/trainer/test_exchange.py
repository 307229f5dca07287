"""Two processes make the steps of one: real processes, real gloo. This file is also their program."""

import sys
from pathlib import Path

import pytest
import torch
from ranks import run_two_ranks

from podium.trainer import data, exchange, in_memory
from podium.trainer import world as worlds
from podium.trainer.config import TrainConfig
from podium.trainer.in_memory import InMemory
from podium.trainer.loop import Training

Changes = list[dict[str, torch.Tensor]]

CASES = {
    "in memory, the dense layer divided": ("divided", 8, "fp32", 1e-5),
    "in memory, the dense layer divided, bf16": ("divided", 8, "bf16", 3e-2),
    "in memory, all gradients summed": ("summed", 8, "fp32", 1e-5),
    "in memory, all gradients summed, bf16": ("summed", 8, "bf16", 3e-2),
    "by messages, the inputs of the dense layer travel": ("messages", 8, "fp32", 1e-5),
    "by messages, its gradient travels": ("messages", 300, "fp32", 1e-5),
    "by messages, its gradient travels as bf16": ("messages", 300, "bf16", 3e-2),
}
# Even shares, uneven shares, fewer images than processes.
BATCHES = torch.arange(16).split([8, 7, 1])


def find_changes(dataset: str, here: worlds.World, way: str, batch_size: int, precision: str) -> Changes:
    """Return the loss of a step with each batch, and how it changes the weights: always the same ones."""
    torch.set_num_threads(1)
    if here.size > 1:
        in_memory.LARGE = 1 << (16 if way == "divided" else 62)
        in_memory.MOST = 8 if way != "messages" else 0  # as between machines
    config = TrainConfig(data=dataset, dropout=0.0, batch_size=batch_size, no_cuda=True, precision=precision,
                         optimizer="sgd", lr=1.0, momentum=0.0)  # fmt: skip
    training = Training(config, data.load(config), here, print)
    if here.size > 1:
        kind = exchange.ByMessages if way == "messages" else InMemory
        assert isinstance(training.exchange, kind)
        assert len(getattr(training.exchange, "layers", ())) == (way == "divided")
    before = {name: value.clone() for name, value in training.model.state_dict().items()}
    found = []
    for batch in BATCHES:
        here.all(True)  # nobody looks at weights any more
        training.model.load_state_dict(before)
        loss = training.step(batch)
        found.append({"loss": loss, **{n: before[n] - after for n, after in training.model.state_dict().items()}})
    return found


@pytest.fixture(scope="module")
def together(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[Changes]]:
    """What each of two processes found in each case."""
    return run_two_ranks(__file__, tiny_dataset, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("case", CASES)
def test_two_processes_change_weights_as_one_does_however_a_batch_is_shared(
    tiny_dataset: Path, together: list[list[Changes]], case: str
) -> None:
    *how, tolerance = CASES[case]
    before = torch.get_num_threads()
    alone = find_changes(str(tiny_dataset), worlds.World(), *how)
    torch.set_num_threads(before)
    ranks = [found[list(CASES).index(case)] for found in together]
    for one, first, second in zip(alone, *ranks, strict=True):
        assert one.keys() == first.keys() == second.keys()
        for name, value in one.items():
            assert torch.equal(first[name], second[name]), name
            scale = max(value.abs().max().item(), 1e-3)
            assert (first[name] - value).abs().max().item() <= tolerance * scale, name


if __name__ == "__main__":
    with worlds.join(TrainConfig(no_cuda=True)) as here:
        cases = [find_changes(sys.argv[1], here, *how) for *how, _ in CASES.values()]
        torch.save(cases, f"{sys.argv[2]}/{here.rank}")

"""Two processes compute the gradients of one: real processes, real gloo. This file is also their program."""

import sys
from pathlib import Path

import pytest
import torch
from ranks import run_two_ranks

from podium.trainer import data, gradients
from podium.trainer import world as worlds
from podium.trainer.config import TrainConfig
from podium.trainer.loop import Training

Gradients = list[dict[str, torch.Tensor]]

CASES = {
    "they are summed in shared memory": (True, 8, "fp32", 1e-5),
    "they are summed in shared memory, bf16": (True, 8, "bf16", 3e-2),
    "the inputs of the dense layer travel": (False, 8, "fp32", 1e-5),
    "its gradient travels": (False, 300, "fp32", 1e-5),
    "its gradient travels as bf16": (False, 300, "bf16", 3e-2),
}
# Even shares, uneven shares, fewer images than processes.
BATCHES = torch.arange(16).split([8, 7, 1])


def find_gradients(dataset: str, here: worlds.World, memory: bool, batch_size: int, precision: str) -> Gradients:
    """Return loss and gradients of a step with each batch, always from the same weights."""
    torch.set_num_threads(1)
    if here.size > 1 and not memory:  # as between machines
        gradients.shared_memory.allocate = lambda world, count: None  # type: ignore[attr-defined]
    config = TrainConfig(data=dataset, dropout=0.0, batch_size=batch_size, no_cuda=True, precision=precision)
    training = Training(config, data.load(config), here, print)
    if here.size > 1:
        assert isinstance(training.gradients, gradients.InMemory if memory else gradients.ByMessages)
    weights = {name: value.clone() for name, value in training.model.state_dict().items()}
    found = []
    for batch in BATCHES:
        training.model.load_state_dict(weights)
        loss = training.step(batch)
        grads = {name: value.grad for name, value in training.model.named_parameters()}
        values = {name: grad.clone() for name, grad in grads.items() if grad is not None}
        found.append({"loss": loss, **values})
    return found


@pytest.fixture(scope="module")
def together(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[Gradients]]:
    """What each of two processes found in each case."""
    return run_two_ranks(__file__, tiny_dataset, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("case", CASES)
def test_two_processes_have_the_gradients_of_one_however_a_batch_is_shared(
    tiny_dataset: Path, together: list[list[Gradients]], case: str
) -> None:
    *how, tolerance = CASES[case]
    before = torch.get_num_threads()
    alone = find_gradients(str(tiny_dataset), worlds.World(), *how)
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
        cases = [find_gradients(sys.argv[1], here, *how) for *how, _ in CASES.values()]
        torch.save(cases, f"{sys.argv[2]}/{here.rank}")

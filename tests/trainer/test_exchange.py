"""Three processes make the steps of one: real processes, real gloo. This file is also their program."""

import copy
import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks

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
OPTIMIZERS = {"adadelta": 1.0, "adamw": 0.01, "sgd": 0.05}
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


def go_on(dataset: str, here: worlds.World, optimizer: str) -> tuple[Changes, Any, int]:
    """Take three steps, and three more as a training that goes on there; return weights, memory, bytes of a state."""
    torch.set_num_threads(1)
    in_memory.LARGE, in_memory.MOST = 1 << 16, 8
    config = TrainConfig(data=dataset, dropout=0.0, batch_size=8, no_cuda=True, precision="fp32",
                         optimizer=optimizer, lr=OPTIMIZERS[optimizer], weight_decay=0.01)  # fmt: skip
    first, second = (Training(config, data.load(config), here, print) for _ in range(2))
    for batch in BATCHES:
        first.step(batch)
    state = copy.deepcopy(first.state())
    torch.save(first.state(), saved := io.BytesIO())
    here.all(True)
    second.resume(state)
    for batch in BATCHES:
        first.step(batch)
        second.step(batch)
    one, other = (training.optimizer.state_dict()["state"] for training in (first, second))
    for index, values in one.items():
        for name, value in values.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other[index][name])), f"{index} {name}"
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))
    return [dict(second.model.state_dict())], {index: dict(values) for index, values in other.items()}, saved.tell()


@pytest.fixture(scope="module")
def together(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each of three processes found in each case, and how each went on."""
    return run_ranks(__file__, tiny_dataset, tmp_path_factory.mktemp("ranks"), size=3)


@pytest.mark.parametrize("case", CASES)
def test_three_processes_change_weights_as_one_does_however_a_batch_is_shared(
    tiny_dataset: Path, together: list[Any], case: str
) -> None:
    *how, tolerance = CASES[case]
    before = torch.get_num_threads()
    alone = find_changes(str(tiny_dataset), worlds.World(), *how)
    torch.set_num_threads(before)
    ranks = [found[list(CASES).index(case)] for found, _ in together]
    for one, first, *others in zip(alone, *ranks, strict=True):
        assert all(one.keys() == found.keys() for found in (first, *others))
        for name, value in one.items():
            assert all(torch.equal(first[name], found[name]) for found in others), name
            scale = max(value.abs().max().item(), 1e-3)
            assert (first[name] - value).abs().max().item() <= tolerance * scale, name


def assert_close(theirs: torch.Tensor, ours: torch.Tensor, name: str) -> None:
    """Fail if tensors differ by more than a thousandth as wholes: AdamW makes much of single gradients near zero."""
    assert (theirs - ours).float().norm() <= 1e-3 * ours.float().norm(), name


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_is_saved_is_what_one_process_saves_and_whole_in_each(
    tiny_dataset: Path, together: list[Any], optimizer: str
) -> None:
    before = torch.get_num_threads()
    [weights], memory, size = go_on(str(tiny_dataset), worlds.World(), optimizer)
    torch.set_num_threads(before)
    for _, went_on in together:
        [theirs], remembered, their_size = went_on[list(OPTIMIZERS).index(optimizer)]
        for name, value in weights.items():
            assert_close(theirs[name], value, name)
        assert their_size == pytest.approx(size, rel=0.001), "torch saves all of the storage that a tensor is a part of"
        assert remembered.keys() == memory.keys()
        for index, values in memory.items():
            for name, value in values.items():
                assert_close(remembered[index][name], value, f"{index} {name}")


if __name__ == "__main__":
    with worlds.join(TrainConfig(no_cuda=True)) as here:
        cases = [find_changes(sys.argv[1], here, *how) for *how, _ in CASES.values()]
        went_on = [go_on(sys.argv[1], here, optimizer) for optimizer in OPTIMIZERS]
        torch.save((cases, went_on), f"{sys.argv[2]}/{here.rank}")

"""Three ranks take the steps of one: real processes, real gloo. This file is also their program."""

import copy
import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks

from podium.trainer import data, world as worlds
from podium.trainer.config import TrainConfig
from podium.trainer.loop import TrainingLoop

pytestmark = pytest.mark.whole

Changes = list[dict[str, torch.Tensor]]

PRECISIONS = {"fp32": 1e-5, "bf16": 3e-2}  # and how much rounding may differ
OPTIMIZERS = {"adadelta": 1.0, "adamw": 0.01, "sgd": 0.05}
# Even shares, uneven shares, fewer images than ranks.
BATCHES = torch.arange(16).split([8, 7, 1])


def find_changes(dataset: str, here: worlds.World, precision: str) -> Changes:
    """Return the loss of a step with each batch, and how it changes the weights: always the same ones."""
    torch.set_num_threads(1)
    config = TrainConfig(data=dataset, dropout=0.0, batch_size=8, no_cuda=True, precision=precision,
                         optimizer="sgd", lr=1.0, momentum=0.0)  # fmt: skip
    training = TrainingLoop(config, data.load(config), here, print)
    before = {name: value.clone() for name, value in training.model.state_dict().items()}
    changes = []
    for batch in BATCHES:
        training.model.load_state_dict(before)
        loss = training.step(batch)
        changes.append(
            {
                "loss": loss,
                **{n: before[n] - after for n, after in training.model.state_dict().items()},
            }
        )
    return changes


def go_on(dataset: str, here: worlds.World, optimizer: str) -> tuple[Any, Any, int]:
    """Take three steps, then three more, also as a resumed training; return weights, optimizer state and its size."""
    torch.set_num_threads(1)
    config = TrainConfig(data=dataset, dropout=0.0, batch_size=8, no_cuda=True, precision="fp32",
                         optimizer=optimizer, lr=OPTIMIZERS[optimizer], weight_decay=0.01)  # fmt: skip
    first, second = (TrainingLoop(config, data.load(config), here, print) for _ in range(2))
    for batch in BATCHES:
        first.step(batch)
    torch.save(first.state(), saved := io.BytesIO())
    second.resume(copy.deepcopy(first.state()))
    for batch in BATCHES:
        first.step(batch)
        second.step(batch)
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True)
    )
    for mine, other in zip(
        first.optimizer.state_dict(), second.optimizer.state_dict(), strict=True
    ):
        assert all(
            torch.equal(a, b) for name in mine for a, b in zip(mine[name], other[name], strict=True)
        )
    return dict(second.model.state_dict()), second.optimizer.state_dict(), saved.tell()


@pytest.fixture(scope="module")
def together(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each of three ranks computed with each precision, and with each optimizer."""
    return run_ranks(__file__, tiny_dataset, tmp_path_factory.mktemp("ranks"), size=3)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_three_ranks_change_weights_as_one_does(
    tiny_dataset: Path, together: list[Any], precision: str
) -> None:
    before = torch.get_num_threads()
    alone = find_changes(str(tiny_dataset), worlds.World(), precision)
    torch.set_num_threads(before)
    ranks = [changes[list(PRECISIONS).index(precision)] for changes, _ in together]
    for mine, first, *others in zip(alone, *ranks, strict=True):
        assert all(mine.keys() == other.keys() for other in (first, *others))
        for name, value in mine.items():
            assert all(torch.equal(first[name], other[name]) for other in others), name
            scale = max(value.abs().max().item(), 1e-3)
            assert (first[name] - value).abs().max().item() <= PRECISIONS[precision] * scale, name


def assert_close(theirs: torch.Tensor, ours: torch.Tensor, name: str) -> None:
    """Fail if tensors differ by more than a thousandth as wholes: AdamW makes much of single gradients near zero."""
    assert (theirs - ours).float().norm() <= 1e-3 * ours.float().norm(), name


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_rank_saves_what_one_process_saves(
    tiny_dataset: Path, together: list[Any], optimizer: str
) -> None:
    before = torch.get_num_threads()
    weights, states, size = go_on(str(tiny_dataset), worlds.World(), optimizer)
    torch.set_num_threads(before)
    for _, went_on in together:
        their_weights, their_states, their_size = went_on[list(OPTIMIZERS).index(optimizer)]
        for name, value in weights.items():
            assert_close(their_weights[name], value, name)
        assert their_size == pytest.approx(size, rel=0.001), (
            "torch saves all of the storage that a tensor is a part of"
        )
        for state, their_state in zip(states, their_states, strict=True):
            assert state.keys() == their_state.keys()
            for name, tensors in state.items():
                for mine, theirs in zip(tensors, their_state[name], strict=True):
                    assert_close(theirs, mine, name)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_equal_those_of_the_classes_in_torch_optim(
    tiny_dataset: Path, optimizer: str
) -> None:
    config = TrainConfig(data=str(tiny_dataset), dropout=0.0, no_cuda=True, precision="fp32", average=0,
                         optimizer=optimizer, lr=OPTIMIZERS[optimizer], weight_decay=0.01)  # fmt: skip
    training = TrainingLoop(config, data.load(config), worlds.World(), print)
    reference = copy.deepcopy(training.model)
    groups = [{"params": [p for p in reference.parameters() if p.ndim > 1], "weight_decay": 0.01},
              {"params": [p for p in reference.parameters() if p.ndim <= 1], "weight_decay": 0.0}]  # fmt: skip
    theirs: torch.optim.Optimizer = {
        "adadelta": lambda: torch.optim.Adadelta(groups, lr=1.0),
        "adamw": lambda: torch.optim.AdamW(groups, lr=0.01, fused=True),
        "sgd": lambda: torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=True, fused=True),
    }[optimizer]()
    for batch in BATCHES:
        training.step(batch)
        for mine, other in zip(training.model.parameters(), reference.parameters(), strict=True):
            other.grad = mine.grad.clone()  # type: ignore[union-attr]
        theirs.step()
    for mine, other in zip(training.model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(mine, other)


if __name__ == "__main__":
    with worlds.join(TrainConfig(no_cuda=True)) as here:
        changes = [find_changes(sys.argv[1], here, precision) for precision in PRECISIONS]
        went_on = [go_on(sys.argv[1], here, optimizer) for optimizer in OPTIMIZERS]
        torch.save((changes, went_on), f"{sys.argv[2]}/{here.rank}")

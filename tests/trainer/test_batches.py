"""Which rank sees which image, and when."""

import pytest
import torch

from podium.trainer import data


def test_every_epoch_shows_all_images_in_a_new_order() -> None:
    first, again, second = (
        torch.cat(data.batches(103, 10, data.stream(1, epoch))) for epoch in (1, 1, 2)
    )
    assert first.sort().values.tolist() == list(range(103))
    assert first.equal(again)
    assert not first.equal(second)
    assert not first.equal(torch.cat(data.batches(103, 10, data.stream(2, 1))))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_processes_split_every_global_batch_between_them(size: int) -> None:
    for batch in data.batches(103, 10, data.stream(1, 1)):
        shares = [data.share(batch, rank, size) for rank in range(size)]
        seen = torch.cat([mine for mine, weight in shares if weight])
        assert seen.sort().values.equal(batch.sort().values)
        total = sum(len(mine) * weight for mine, weight in shares)
        assert total == pytest.approx(
            1
        )  # so the summed gradients are those of the mean over the global batch


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [1, 5, 100, 101])
def test_evaluation_counts_each_image_exactly_once(count: int, size: int) -> None:
    pieces = [piece for rank in range(size) for piece in data.in_order(count, 8, rank, size)]
    seen = torch.cat([torch.arange(count)[piece] for piece in pieces])
    assert seen.sort().values.tolist() == list(range(count))
    assert all(0 < piece.stop - piece.start <= 8 for piece in pieces)

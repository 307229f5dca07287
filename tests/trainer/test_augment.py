"""Distorted images are still the images, and the same for every process."""

import pytest
import torch

from podium.trainer import augment
from podium.trainer.config import TrainConfig


def dot(row: int, column: int) -> torch.Tensor:
    image = torch.zeros(28, 28, dtype=torch.uint8)
    image[row, column] = 200
    return image


def distorted(config: TrainConfig, image: torch.Tensor, count: int = 500) -> torch.Tensor:
    draws = augment.draw(config, count, torch.Generator().manual_seed(1))
    assert draws is not None
    return augment.augment(config, image.repeat(count, 1, 1), draws)


def test_nothing_is_drawn_when_nothing_is_wanted() -> None:
    assert augment.draw(TrainConfig(), 10, torch.Generator()) is None


def test_a_shift_moves_images_up_to_the_given_pixels() -> None:
    places = distorted(TrainConfig(shift=2), dot(14, 10)).nonzero()[:, 1:]
    assert len(places) == 500
    assert sorted(set(places[:, 0].tolist())) == [12, 13, 14, 15, 16]
    assert sorted(set(places[:, 1].tolist())) == [8, 9, 10, 11, 12]


def test_pixels_shifted_over_the_edge_do_not_wrap_around() -> None:
    places = distorted(TrainConfig(shift=3), dot(0, 14)).nonzero()[:, 1:]
    assert 0 < len(places) < 500
    assert places[:, 0].max() <= 3


def test_a_flip_mirrors_about_half_of_the_images() -> None:
    out = distorted(TrainConfig(flip=True), dot(5, 3))
    mirrored = (out[:, 5, 24] == 200).sum().item()
    assert 200 < mirrored < 300
    assert (out[:, 5, 3] == 200).sum().item() == 500 - mirrored


def test_erased_squares_reach_every_part_of_the_image() -> None:
    out = distorted(TrainConfig(erase=8), torch.full((28, 28), 9, dtype=torch.uint8), 2000)
    blank = out == 0
    assert blank.any(0).all()
    assert blank.flatten(1).sum(1).max().item() == 64


def test_a_turn_keeps_the_middle_and_moves_the_rim() -> None:
    image = torch.zeros(28, 28, dtype=torch.uint8)
    image[:, 13:15] = 200  # an upright bar
    out = distorted(TrainConfig(rotate=20), image).float()
    assert out[:, 13:15, 13:15].mean().item() == pytest.approx(200, rel=0.05)
    assert out[:, 2, 13:15].mean().item() < 150
    assert out.flatten(1).sum(1).mean().item() == pytest.approx(image.sum().item(), rel=0.1)


@pytest.mark.parametrize(
    "config", [TrainConfig(shift=3, flip=True), TrainConfig(rotate=15), TrainConfig(erase=6)], ids=str
)
def test_all_channels_of_a_picture_change_alike(config: TrainConfig) -> None:
    gray = torch.randint(0, 256, (40, 20, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    draws = augment.draw(config, 40, torch.Generator().manual_seed(1))
    assert draws is not None
    color = augment.augment(config, gray[..., None].expand(-1, -1, -1, 3), draws)
    alone = augment.augment(config, gray, draws)
    assert color.shape == (40, 20, 32, 3)
    assert not torch.equal(alone, gray)
    for channel in range(3):
        assert torch.equal(color[..., channel], alone)


def test_a_turn_of_a_wide_picture_keeps_its_shapes() -> None:
    image = torch.zeros(40, 80, dtype=torch.uint8)
    image[10:30, 30:50] = 200  # a square in the middle
    out = distorted(TrainConfig(rotate=30), image, 200)
    up, across = ((out > 100).any(axis).sum(1).float() for axis in (2, 1))
    assert (up - across).abs().max().item() <= 2  # turned squares are as high as they are wide
    assert up.max().item() > 24

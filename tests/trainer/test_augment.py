"""Distorted images are still the images, and the same for every process."""

from typing import Any

import pytest
import torch
from tasks import pictures, striped_pictures

from podium.trainer.augment import Augmentation
from podium.trainer.config import CHOICES, TrainConfig
from podium.trainer.data import stream

PICTURES = torch.from_numpy(striped_pictures(12, 24, 32)[0])
EVERY = ",".join(CHOICES["augment"])


def dot(row: int, column: int) -> torch.Tensor:
    image = torch.zeros(28, 28, dtype=torch.uint8)
    image[row, column] = 200
    return image


def changed(images: torch.Tensor, seed: int = 1, epoch: int = 1, **flags: Any) -> torch.Tensor:
    """Return what an epoch makes of all images."""
    return begun(images, seed, epoch, **flags).apply(images, torch.arange(len(images)))


def begun(images: torch.Tensor, seed: int, epoch: int, **flags: Any) -> Augmentation:
    task = pictures(*images.shape[1:3])
    augmentation = Augmentation(TrainConfig(**flags), task, torch.device("cpu"))
    augmentation.begin_epoch(len(images), stream(seed, epoch))
    return augmentation


def distorted(image: torch.Tensor, count: int = 500, **flags: Any) -> torch.Tensor:
    return changed(image.repeat(count, 1, 1), **flags)


def test_images_stay_as_they_are_without_augmentation() -> None:
    assert changed(PICTURES) is PICTURES


def test_a_shift_moves_images_up_to_the_given_pixels() -> None:
    places = distorted(dot(14, 10), shift=2).nonzero()[:, 1:]
    assert len(places) == 500
    assert sorted(set(places[:, 0].tolist())) == [12, 13, 14, 15, 16]
    assert sorted(set(places[:, 1].tolist())) == [8, 9, 10, 11, 12]


def test_pixels_shifted_over_the_edge_do_not_wrap_around() -> None:
    places = distorted(dot(0, 14), shift=3).nonzero()[:, 1:]
    assert 0 < len(places) < 500
    assert places[:, 0].max() <= 3


def test_a_flip_mirrors_about_half_of_the_images() -> None:
    out = distorted(dot(5, 3), flip=True)
    mirrored = (out[:, 5, 24] == 200).sum().item()
    assert 200 < mirrored < 300
    assert (out[:, 5, 3] == 200).sum().item() == 500 - mirrored


def test_erased_squares_reach_every_part_of_the_image() -> None:
    out = distorted(torch.full((28, 28), 9, dtype=torch.uint8), 2000, erase=8)
    blank = out == 0
    assert blank.any(0).all()
    assert blank.flatten(1).sum(1).max().item() == 64


def test_a_turn_keeps_the_middle_and_moves_the_rim() -> None:
    image = torch.zeros(28, 28, dtype=torch.uint8)
    image[:, 13:15] = 200  # an upright bar
    out = distorted(image, rotate=20).float()
    assert out[:, 13:15, 13:15].mean().item() == pytest.approx(200, rel=0.05)
    assert out[:, 2, 13:15].mean().item() < 150
    assert out.flatten(1).sum(1).mean().item() == pytest.approx(image.sum().item(), rel=0.1)


def test_a_picture_turned_any_way_keeps_about_its_size() -> None:
    image = torch.zeros(28, 28, dtype=torch.uint8)
    image[11:17, 11:17] = 200
    areas = (distorted(image, rotate=180) > 100).flatten(1).sum(1)
    assert 36 / 4 <= areas.min().item() < areas.max().item() <= 5 * 36


@pytest.mark.parametrize(
    "flags", [{"shift": 3, "flip": True}, {"rotate": 15.0}, {"erase": 6}], ids=str
)
def test_all_channels_of_a_picture_change_alike(flags: dict[str, Any]) -> None:
    gray = torch.randint(
        0, 256, (40, 20, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    color = changed(gray[..., None].expand(-1, -1, -1, 3), **flags)
    alone = changed(gray, **flags)
    assert color.shape == (40, 20, 32, 3)
    assert not torch.equal(alone, gray)
    for channel in range(3):
        assert torch.equal(color[..., channel], alone)


def test_a_turn_of_a_wide_picture_keeps_its_shapes() -> None:
    image = torch.zeros(40, 80, dtype=torch.uint8)
    image[10:30, 30:50] = 200  # a square in the middle
    out = distorted(image, 200, rotate=30)
    up, across = ((out > 100).any(axis).sum(1).float() for axis in (2, 1))
    assert (up - across).abs().max().item() <= 2  # turned squares are as high as they are wide
    assert up.max().item() > 24


@pytest.mark.parametrize("augment", [*CHOICES["augment"], EVERY])
@pytest.mark.parametrize("images", [PICTURES, PICTURES[..., 0]], ids=["color", "gray"])
def test_pictures_keep_size_and_type_but_change(augment: str, images: torch.Tensor) -> None:
    out = changed(images, augment=augment)
    assert (out.shape, out.dtype) == (images.shape, torch.uint8)
    different = [not torch.equal(old, new) for old, new in zip(images, out, strict=True)]
    assert sum(different) >= 6  # the choice of `trivial` may be not to change a picture


@pytest.mark.parametrize(
    "flags", [{"augment": EVERY}, {"shift": 3, "rotate": 9.0, "flip": True, "erase": 6}], ids=str
)
def test_a_picture_changes_alike_in_any_batch_and_rank(flags: dict[str, Any]) -> None:
    augmentation = begun(PICTURES, 1, 1, **flags)
    whole = augmentation.apply(PICTURES, torch.arange(12))
    for some in (torch.tensor([7]), torch.tensor([11, 2, 7, 0])):
        torch.manual_seed(int(some[0]))  # whatever was drawn before
        assert torch.equal(augmentation.apply(PICTURES[some], some), whole[some])


def test_pictures_of_16_bits_change_as_those_of_8() -> None:
    flags = {"shift": 3, "rotate": 9.0, "flip": True, "erase": 6}
    deep = changed(PICTURES.to(torch.uint16), **flags)
    assert deep.dtype == torch.uint16
    assert torch.equal(deep.int(), changed(PICTURES, **flags).int())


@pytest.mark.parametrize("flags", [{"augment": "crop"}, {"shift": 3}], ids=str)
def test_each_epoch_and_seed_has_other_changes(flags: dict[str, Any]) -> None:
    first, second, other = (
        changed(PICTURES, *which, **flags) for which in ((1, 1), (1, 2), (2, 1))
    )
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)

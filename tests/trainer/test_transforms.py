"""torchvision's transforms: what happens to a picture follows from its seed alone."""

import pytest
import torch
from tasks import striped_pictures

from podium.trainer import data, transforms
from podium.trainer.config import AUGMENTATIONS, parse

PICTURES = torch.from_numpy(striped_pictures(12, 24, 32)[0])
EVERY = ",".join(AUGMENTATIONS)


def changed(words: str, pictures: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    transform = transforms.build(parse(["--augment", words]), (pictures.shape[1], pictures.shape[2]))
    return transforms.apply(transform, pictures, seeds)


@pytest.mark.parametrize("words", [*AUGMENTATIONS, EVERY])
@pytest.mark.parametrize("pictures", [PICTURES, PICTURES[..., 0]], ids=["color", "gray"])
def test_pictures_keep_size_and_type_but_change(words: str, pictures: torch.Tensor) -> None:
    out = changed(words, pictures, torch.arange(12))
    assert (out.shape, out.dtype) == (pictures.shape, torch.uint8)
    different = [not torch.equal(old, new) for old, new in zip(pictures, out, strict=True)]
    assert sum(different) >= 6  # the choice of `trivial` may be not to change a picture


def test_a_picture_changes_alike_in_any_batch_and_rank() -> None:
    seeds = transforms.draw(parse(["--augment", EVERY]), 12, data.stream(1, 1))
    assert seeds is not None
    whole = changed(EVERY, PICTURES, seeds)
    for some in (torch.tensor([7]), torch.tensor([11, 2, 7, 0])):
        torch.manual_seed(int(some[0]))  # whatever was drawn before
        assert torch.equal(changed(EVERY, PICTURES[some], seeds[some]), whole[some])


def test_each_epoch_and_seed_has_other_changes() -> None:
    config = parse(["--augment", "crop"])
    draws = [transforms.draw(config, 12, data.stream(*which)) for which in ((1, 1), (1, 2), (2, 1))]
    first, second, other = (changed("crop", PICTURES, seeds) for seeds in draws if seeds is not None)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)


def test_nothing_is_drawn_without_augment() -> None:
    assert transforms.draw(parse([]), 12, data.stream(1, 1)) is None

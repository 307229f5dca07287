from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from podium.data import artifact, look
from podium.errors import Damaged, InvalidInput, PodiumError


def test_statistics_are_measured_from_the_pixels(tiny_dataset: Path) -> None:
    found = look.statistics(tiny_dataset)
    images = {part: artifact.load(tiny_dataset, part).inputs["images"] for part in artifact.PARTS}
    test = found["parts"]["test"]
    assert test["count"] == 100
    assert (test["min"], test["max"]) == (images["test"].min(), images["test"].max())
    assert test["class_counts"] == [10] * 10
    both = np.concatenate([images["train"], images["validation"]]) / 255
    assert found["parts"]["train+validation"]["mean"] == pytest.approx(both.mean())
    assert found["parts"]["train+validation"]["std"] == pytest.approx(both.std())


def test_inspecting_verifies_every_part(tiny_dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tiny_dataset.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (copy / "test-target.npy").write_bytes(b"\0" * 228)
    with pytest.raises(Damaged, match="test-target"):
        look.statistics(copy)


def test_the_grid_has_a_row_for_each_class(tiny_dataset: Path, tmp_path: Path) -> None:
    look.save_picture_grid(tiny_dataset, "train", tmp_path / "grid.png")
    sheet = np.asarray(Image.open(tmp_path / "grid.png"))
    part = artifact.load(tiny_dataset, "train")
    cell = 28 * look.SCALE + look.GAP
    left = sheet.shape[1] - 12 * cell
    for label in range(10):
        top = look.GAP + label * cell
        shown = sheet[top : top + 56 : 2, left + cell : left + cell + 56 : 2]
        np.testing.assert_array_equal(255 - shown, part.inputs["images"][part.target == label][1])


def test_a_picture_that_cannot_be_written_is_an_error(tiny_dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"ends in \.png"):
        look.save_picture_grid(tiny_dataset, "train", tmp_path / "grid.xyz")
    with pytest.raises(PodiumError, match="cannot be written"):
        look.save_picture_grid(tiny_dataset, "train", tmp_path / "nowhere" / "grid.png")


def test_braille_sets_the_right_dot() -> None:
    dots = np.zeros((8, 4), bool)
    dots[0, 0] = dots[7, 3] = True
    assert look.braille(dots) == ["⠁⠀", "⠀⢀"]
    assert look.braille(np.ones((4, 2), bool)) == ["⣿"]


def test_the_terminal_view_fits_eighty_columns(tiny_dataset: Path) -> None:
    lines = look.terminal_view(artifact.load(tiny_dataset, "train"), 10).splitlines()
    assert len(lines) == 14
    assert max(map(len, lines)) <= 80

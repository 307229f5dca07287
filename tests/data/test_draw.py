from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from podium.data import artifact, look
from podium.errors import InvalidInput, PodiumError
from podium.steps.prepare_data import DataSettings, prepare_data

RNG = np.random.default_rng(0)


def made(tmp_path: Path, **arrays: Any) -> tuple[Path, artifact.DatasetInfo]:
    np.savez(tmp_path / "made.npz", **arrays)
    return tmp_path / "d", prepare_data(
        DataSettings(dataset=f"npz:{tmp_path}/made.npz"), tmp_path / "d"
    )


def sheet_of(data: Path, tmp_path: Path) -> np.ndarray:
    look.save_picture(artifact.load(data, "train"), tmp_path / "sheet.png")
    return np.asarray(Image.open(tmp_path / "sheet.png"))


def test_the_grid_has_a_row_for_each_class(tiny_dataset: Path, tmp_path: Path) -> None:
    sheet = sheet_of(tiny_dataset, tmp_path)
    part = artifact.load(tiny_dataset, "train")
    cell = look.CELL + look.GAP
    left = sheet.shape[1] - look.ACROSS * cell
    for label in range(10):
        top = look.GAP + label * cell
        shown = sheet[top : top + 56 : 2, left + cell : left + cell + 56 : 2]
        image = part.inputs["images"][part.target == label][1]
        np.testing.assert_array_equal(255 - shown, np.repeat(image[:, :, None], 3, axis=2))


def test_a_color_picture_of_any_size_keeps_its_colors(tmp_path: Path) -> None:
    red = np.zeros((40, 90, 120, 3), np.uint8)
    red[..., 0] = 200
    red[:, 0, 0, 1] = np.arange(40)
    data, _ = made(tmp_path, picture=red, y=np.arange(40) % 2)
    sheet = sheet_of(data, tmp_path)
    left = sheet.shape[1] - look.ACROSS * (look.CELL + look.GAP)
    assert sheet[look.GAP + 20, left + 30].tolist() == [200, 0, 0]
    assert sheet[look.GAP + 50, left + 30].tolist() == [255, 255, 255], (
        "the picture is wider than high"
    )


def test_pictures_of_a_regression_are_sorted_by_target(tmp_path: Path) -> None:
    bright = np.arange(100)
    pictures = np.repeat(bright, 64).astype(np.uint8).reshape(100, 8, 8)
    data, _ = made(tmp_path, picture=pictures, y=bright.astype(np.float32))
    sheet = sheet_of(data, tmp_path)
    cell = look.CELL + look.GAP
    left = sheet.shape[1] - look.ACROSS * cell
    shades = [int(sheet[look.GAP + row * cell + 20, left + 20, 0]) for row in range(look.BANDS)]
    assert shades == sorted(shades)
    assert shades[-1] > 70


@pytest.mark.parametrize("y", [np.arange(60) % 3, np.arange(60) / 7])
def test_arrays_are_drawn_as_histograms(tmp_path: Path, y: np.ndarray) -> None:
    data, _ = made(tmp_path, signal=RNG.random((60, 9)), y=y)
    sheet = sheet_of(data, tmp_path)
    assert sheet.shape == (look.PANEL[1], 2 * look.PANEL[0])
    for panel in np.split(sheet, 2, axis=1):
        assert (panel == look.BAR).sum() > 1000


def test_a_picture_that_cannot_be_written_is_an_error(tiny_dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not the name of a PNG"):
        look.save_picture(artifact.load(tiny_dataset, "train"), tmp_path / "grid.xyz")
    with pytest.raises(PodiumError, match="cannot be written"):
        look.save_picture(artifact.load(tiny_dataset, "train"), tmp_path / "nowhere" / "grid.png")


def test_braille_sets_the_right_dot() -> None:
    dots = np.zeros((8, 4), bool)
    dots[0, 0] = dots[7, 3] = True
    assert look._braille(dots) == ["⠁⠀", "⠀⢀"]
    assert look._braille(np.ones((4, 2), bool)) == ["⣿"]


def test_the_terminal_view_fits_eighty_columns(tiny_dataset: Path) -> None:
    view = look.terminal_view(artifact.load(tiny_dataset, "train"), artifact.describe(tiny_dataset))
    assert len(view.splitlines()) == 14
    assert max(map(len, view.splitlines())) <= 80


@pytest.mark.parametrize(("shape", "lines"), [((90, 120, 3), 6), ((5, 7), 2)])
def test_the_terminal_view_takes_any_size(
    tmp_path: Path, shape: tuple[int, ...], lines: int
) -> None:
    data, info = made(
        tmp_path, picture=RNG.integers(0, 256, (40, *shape), np.uint8), y=np.arange(40) / 3
    )
    assert len(look.terminal_view(artifact.load(data, "train"), info).splitlines()) == 2 * lines

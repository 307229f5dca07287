"""Look at a dataset: statistics recomputed from the pixels, a picture grid, a view in the terminal."""

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from podium.data import artifact
from podium.data.artifact import PARTS, DatasetInfo, Part
from podium.data.blocks import blocks, mean_and_std
from podium.errors import PodiumError, require

if TYPE_CHECKING:
    from PIL.Image import Image

SCALE = 2  # screen pixels for one of 28x28
GAP = 4


def statistics(uri: str | Path) -> dict[str, Any]:
    """Read every part of a dataset, verify it, and measure it.

    Args:
        uri: The dataset.

    Returns:
        ``dataset.json`` without its files, and in ``parts`` for each part ``count``, ``bytes``, ``min``, ``max``,
        ``mean``, ``std`` (pixels scaled to 0..1) and ``class_counts``; ``train+validation`` are measured together as
        well, since the published mean and deviation are those of all training images.

    Raises:
        NotFound, InvalidInput, Damaged: As artifact.load.
    """
    info = artifact.describe(uri)
    loaded = {name: artifact.load(uri, name) for name in PARTS}
    parts = {name: [part] for name, part in loaded.items()}
    parts["train+validation"] = [loaded["train"], loaded["validation"]]
    facts = {key: value for key, value in info.to_json().items() if key != "parts"}
    return {**facts, "parts": {name: _measure(part, len(info.classes)) for name, part in parts.items()}}


def _measure(parts: list[Part], classes: int) -> dict[str, Any]:
    images = [part.inputs["images"] for part in parts]
    target = np.concatenate([part.target for part in parts])
    (mean,), (std,) = mean_and_std(chain.from_iterable(map(blocks, images)), "image")
    return {
        "count": len(target),
        "bytes": sum(array.nbytes for array in images) + target.nbytes,
        "min": min(int(array.min()) for array in images),
        "max": max(int(array.max()) for array in images),
        "mean": mean,
        "std": std,
        "class_counts": np.bincount(target, minlength=classes).tolist(),
    }


def picture_grid(part: Part, info: DatasetInfo, *, columns: int = 12) -> "Image":
    """Draw the first images of each class, one row per class, labeled with its name."""
    from PIL import Image, ImageDraw, ImageFont

    require(columns >= 1, "columns >= 1", columns=columns)
    cell = 28 * SCALE + GAP
    font = ImageFont.load_default(size=16)
    left = GAP * 3 + int(max(font.getlength(name) for name in info.classes))
    sheet = Image.new("L", (left + columns * cell, GAP + len(info.classes) * cell), 255)
    draw = ImageDraw.Draw(sheet)
    for row, name in enumerate(info.classes):
        top = GAP + row * cell
        draw.text((GAP, top + 14 * SCALE), name, fill=0, font=font, anchor="lm")
        for column, image in enumerate(part.inputs["images"][np.flatnonzero(part.target == row)[:columns]]):
            large = Image.fromarray(255 - image).resize((28 * SCALE, 28 * SCALE), Image.Resampling.NEAREST)
            sheet.paste(large, (left + column * cell, top))
    return sheet


def save_picture_grid(uri: str | Path, part: str, target: Path) -> None:
    """Write the picture grid of a part as PNG.

    Raises:
        InvalidInput: The name does not end in .png, or there is no such part.
        PodiumError: It cannot be written.
    """
    require(target.suffix.lower() == ".png", "the picture ends in .png", picture=str(target))
    sheet = picture_grid(artifact.load(uri, part), artifact.describe(uri))
    try:
        sheet.save(target)
    except OSError as error:
        raise PodiumError(f"{target} cannot be written: {error.strerror or error}") from error


def terminal_view(part: Part, classes: int, *, across: int = 5) -> str:
    """Draw one image of each class in braille characters, 14 columns and 7 lines each."""
    firsts = [np.flatnonzero(part.target == label)[:1] for label in range(classes)]
    blocks = [braille(part.inputs["images"][first[0]] > 100) for first in firsts if len(first)]
    rows = [blocks[at : at + across] for at in range(0, len(blocks), across)]
    return "\n".join("  ".join(lines) for row in rows for lines in zip(*row, strict=True))


def braille(dots: NDArray[np.bool_]) -> list[str]:
    """Return lines of braille characters for dots [h, w]; h must divide by 4 and w by 2."""
    height, width = dots.shape
    cells = dots.reshape(height // 4, 4, width // 2, 2).transpose(0, 2, 1, 3).reshape(height // 4, width // 2, 8)
    bits = np.array([0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80])  # the bits of a cell in Unicode
    return ["".join(chr(0x2800 + int(code)) for code in line) for line in cells @ bits]

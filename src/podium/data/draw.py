"""Pictures of a dataset: its images as a grid, its columns as histograms; images in the
terminal."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from podium.data.blocks import blocks
from podium.data.look import Numbers, input_numbers, target_numbers
from podium.data.schema import Array, Column, DatasetInfo
from podium.display.text import digits
from podium.errors import InvalidInput, PodiumError

if TYPE_CHECKING:
    from PIL.Image import Image

    from podium.data.split import Split

CELL = 56
"""Pixels of a picture in the grid: smaller ones are enlarged by a whole number, larger ones are
reduced."""
GAP = 4
_MOST_ROWS = 30
"""Classes in the grid: the first ones."""
ACROSS = 12
"""Pictures in a row."""
BANDS = 6
"""Rows of the grid of a regression: from the smallest to the largest target."""
PANEL, PANELS = (260, 150), 4
"""Pixels of a histogram, and how many go beside each other."""
_MOST_PANELS = 40
INK, PAPER, BAR = 0, 255, 96


def save_picture(part: "Split", target: Path) -> None:
    """Write a picture of a part as PNG: a grid of its images, or histograms of all columns and of
    the target.

    Raises:
        InvalidInput: The name does not end in .png.
        PodiumError: It cannot be written.
    """
    if target.suffix.lower() != ".png":
        raise InvalidInput(f"{target} is not the name of a PNG", "end it in .png")
    try:
        part.picture.save(target)
    except OSError as error:
        raise PodiumError(f"{target} cannot be written: {error.strerror or error}") from error


def image_input(info: DatasetInfo) -> str | None:
    """Return the name of the first input that is an image."""
    return next(
        (name for name, described in info.inputs.items() if described.meaning == "image"), None
    )


def draw_split(part: "Split", info: DatasetInfo) -> "Image":
    """Draw the first images of each class, or histograms of all columns and of the target."""
    return _picture_grid(part, info) if image_input(info) else _histogram_sheet(part, info)


def _picture_grid(part: "Split", info: DatasetInfo) -> "Image":
    """Draw the first images of each class, one row per class, labeled with its name; of a
    regression, one row for each range of targets."""
    from PIL import Image, ImageDraw, ImageFont

    name = image_input(info)
    assert name is not None
    rows = _rows(part, info)
    font = ImageFont.load_default(size=16)
    cell = CELL + GAP
    left = GAP * 3 + int(max(font.getlength(label) for label in rows))
    sheet = Image.new("RGB", (left + ACROSS * cell, GAP + len(rows) * cell), "white")
    draw = ImageDraw.Draw(sheet)
    for row, (label, items) in enumerate(rows.items()):
        top = GAP + row * cell
        draw.text((GAP, top + CELL // 2), label, fill="black", font=font, anchor="lm")
        for column, item in enumerate(items):
            picture = _fit(_to_picture(part.inputs[name][item], info))
            sheet.paste(picture, (left + column * cell, top))
    return sheet


def _rows(part: "Split", info: DatasetInfo) -> Mapping[str, NDArray[np.int64]]:
    target = np.asarray(part.target)
    if info.kind == "classification":
        return {
            name: np.flatnonzero(target == at)[:ACROSS]
            for at, name in enumerate(info.classes[:_MOST_ROWS])
        }
    first = target.reshape(len(target), -1)[:, 0]
    bands = [band for band in np.array_split(np.argsort(first, kind="stable"), BANDS) if len(band)]
    return {
        f"{digits(first[band[0]])} … {digits(first[band[-1]])}": np.sort(band)[:ACROSS]
        for band in bands
    }


def _to_picture(item: Array, info: DatasetInfo) -> "Image":
    """Return an image of the dataset as a picture; those of ink on black turn into ink on white."""
    from PIL import Image

    pixels = item
    if pixels.dtype != np.uint8:
        low, span = float(item.min()), float(np.ptp(item)) or 1.0
        pixels = ((item.astype(np.float64) - low) / span * 255).astype(np.uint8)
    if info.preprocessing.get("recipe") in ("digit", "garment"):
        pixels = 255 - pixels
    return Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB")


def _fit(picture: "Image", side: int = CELL) -> "Image":
    """Enlarge a picture by a whole number, or reduce it, so that it fits into a square."""
    from PIL import Image

    longest = max(picture.size)
    if longest <= side:
        times = side // longest
        return picture.resize(
            (picture.width * times, picture.height * times), Image.Resampling.NEAREST
        )
    picture = picture.copy()
    picture.thumbnail((side, side))
    return picture


def _histogram_sheet(part: "Split", info: DatasetInfo) -> "Image":
    """Draw a histogram of each column of each input, and of the target."""
    from PIL import Image, ImageDraw, ImageFont

    charts = list(_charts(part, info))[:_MOST_PANELS]
    across = min(PANELS, len(charts))
    width, height = PANEL
    sheet = Image.new("L", (across * width, -(-len(charts) // across) * height), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=13)
    for at, (title, low, high, counts) in enumerate(charts):
        left, top = at % across * width + 10, at // across * height + 8
        base, right = top + height - 40, left + width - 20
        draw.text((left, top), _shorten(title, 32), fill=INK, font=font)
        draw.line((left, base, right, base), fill=INK)
        step = (right - left) / len(counts)
        for column, count in enumerate(counts):
            tall = max(1, (base - top - 22) * count / max(counts))
            if count:
                draw.rectangle(
                    (left + column * step, base - tall, left + (column + 1) * step - 1, base), BAR
                )
        draw.text((left, base + 4), _shorten(low, 16), fill=INK, font=font)
        draw.text((right, base + 4), _shorten(high, 16), fill=INK, font=font, anchor="ra")
    return sheet


def _charts(part: "Split", info: DatasetInfo) -> "list[tuple[str, str, str, Sequence[int]]]":
    """Return title, text at the left and right end, and counts of each histogram, the target
    first."""
    charts: list[tuple[str, str, str, Sequence[int]]] = []

    def add(title: str, numbers: Numbers, at: int, column: Column | None = None) -> None:
        digits = 12 if column and column.center else 4
        low, high = f"{numbers.min[at]:.{digits}g}", f"{numbers.max[at]:.{digits}g}"
        categories = column.categories if column else ()
        ends = (categories[0], categories[-1]) if categories else (low, high)
        charts.append((title, *ends, numbers.histograms[at]))

    if info.kind == "classification":
        counts = np.bincount(part.target, minlength=len(info.classes)).tolist()
        charts.append((info.target.name, info.classes[0], info.classes[-1], counts))
    else:
        numbers = target_numbers(part)
        for at in range(len(numbers.mean)):
            add(info.target.name + (f" {at}" if len(numbers.mean) > 1 else ""), numbers, at)
    for name, described in info.inputs.items():
        if described.meaning == "image":
            continue
        numbers = input_numbers(partial(blocks, part.inputs[name]), described)
        title = f"{name}: length" if described.meaning == "tokens" else name
        for at, column in enumerate(described.columns or (Column(name=title, kind="number"),)):
            add(column.name, numbers, at, column)
    return charts


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def terminal_view(part: "Split", info: DatasetInfo) -> str:
    """Draw one image of each of the first ten classes in braille characters, at most 14 columns and
    7 lines each; of a regression, the first ten images."""
    name = image_input(info)
    assert name is not None
    chosen = [int(items[0]) for items in list(_rows(part, info).values())[:10] if len(items)]
    if info.kind == "regression":
        chosen = list(range(min(10, len(part))))
    pictures = [braille(_dots(part.inputs[name][item], info)) for item in chosen]
    rows = [pictures[:5], pictures[5:]]
    return "\n".join("  ".join(lines) for row in rows for lines in zip(*row, strict=True))


def _dots(item: Array, info: DatasetInfo) -> NDArray[np.bool_]:
    """Return an image as at most 28 x 28 dots: bright ones are set; large pictures are dithered."""
    picture = _to_picture(item, info).convert("L")
    inverted = info.preprocessing.get("recipe") in ("digit", "garment")
    large = max(picture.size) > 28
    picture.thumbnail((28, 28))
    dots = np.asarray(picture.convert("1")) if large else np.asarray(picture) > 155
    height, width = dots.shape
    return np.pad(dots != inverted, ((0, -height % 4), (0, -width % 2)))


def braille(dots: NDArray[np.bool_]) -> list[str]:
    """Return lines of braille characters for dots [h, w]; h must divide by 4 and w by 2."""
    height, width = dots.shape
    cells = (
        dots.reshape(height // 4, 4, width // 2, 2)
        .transpose(0, 2, 1, 3)
        .reshape(height // 4, width // 2, 8)
    )
    bits = np.array(
        [0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80]
    )  # the bits of a cell in Unicode
    return ["".join(chr(0x2800 + int(code)) for code in line) for line in cells @ bits]

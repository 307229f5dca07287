"""Look at a dataset: everything measured again from the arrays, a few megabytes at a time; its
images as a grid or in the terminal, its columns as histograms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from podium.data.blocks import blocks, mean_and_std
from podium.data.schema import PARTS, Array, Column, DatasetInfo, InputInfo
from podium.data.split import Split
from podium.display.text import cut, digits
from podium.errors import InvalidInput, PodiumError, file_hint

BINS = 16
"""Bars of a histogram, from the smallest number to the largest."""

Read = Callable[[], Iterator[Array]]
"""Yields blocks; called once for each pass over the data."""


@dataclass(frozen=True, kw_only=True)
class _Numbers:
    """Statistics of numeric columns, one entry per column."""

    min: list[float]
    max: list[float]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    histograms: list[list[int]]
    """Counts from the smallest to the largest value, or of each category."""

    def moved(self, by: Sequence[float]) -> "_Numbers":
        """Return what they are of columns to each of which a number is added."""
        low, high, mean = (
            [value + more for value, more in zip(of, by, strict=True)]
            for of in (self.min, self.max, self.mean)
        )
        return replace(self, min=low, max=high, mean=tuple(mean))


def statistics(info: DatasetInfo, load: "Callable[[str], Split]") -> dict[str, Any]:
    """Read every part of a dataset and measure it.

    Args:
        load: Returns the part of a name, verified.

    Returns:
        ``dataset.json`` without its files, and in ``parts`` for each part ``count``, ``bytes``,
        ``class_counts``, ``inputs`` by name and ``target``. An input has lists ``min``, ``max``,
        ``mean`` and ``std``: a number for each channel of an image (mean and std of uint8 pixels
        scaled to 0..1) or column of a table, else one; ``histograms`` of a table and an array, of a
        category one count for each; ``lengths`` of tokens. ``train+validation`` has the sums of
        both, and of images mean and std, since published ones are those of both.
    """
    parts = {name: _measure(load(name), info) for name in PARTS}
    parts["train+validation"] = _merge(parts["train"], parts["validation"], info)
    facts = {key: value for key, value in info.to_json().items() if key != "parts"}
    return {**facts, "parts": parts}


def _measure(part: Split, info: DatasetInfo) -> dict[str, Any]:
    measured: dict[str, Any] = {
        "count": len(part),
        "bytes": sum(array.nbytes for array in (*part.inputs.values(), part.target)),
        "class_counts": [],
        "inputs": {
            name: _measure_input(partial(blocks, part.inputs[name]), described)
            for name, described in info.inputs.items()
        },
        "target": {},
    }
    if info.kind == "classification":
        counts = (np.bincount(block, minlength=len(info.classes)) for block in blocks(part.target))
        measured["class_counts"] = sum(counts, np.zeros(len(info.classes), np.int64)).tolist()
    else:
        measured["target"] = vars(_target_numbers(part))
    return measured


def _target_numbers(part: Split) -> _Numbers:
    return _measure_numbers(
        lambda: (block.reshape(len(block), -1) for block in blocks(part.target))
    )


def _merge(first: dict[str, Any], second: dict[str, Any], info: DatasetInfo) -> dict[str, Any]:
    """Add up two measured parts; of inputs, only images have what both together have."""
    share = first["count"] / (first["count"] + second["count"])
    inputs = {}
    for name, described in info.inputs.items():
        if described.meaning == "image":
            mine, theirs = (
                {key: np.array(value) for key, value in part["inputs"][name].items()}
                for part in (first, second)
            )
            mean = share * mine["mean"] + (1 - share) * theirs["mean"]
            square = share * (mine["std"] ** 2 + mine["mean"] ** 2) + (1 - share) * (
                theirs["std"] ** 2 + theirs["mean"] ** 2
            )
            inputs[name] = {
                "min": np.minimum(mine["min"], theirs["min"]).tolist(),
                "max": np.maximum(mine["max"], theirs["max"]).tolist(),
                "mean": mean.tolist(),
                "std": np.sqrt(square - mean**2).tolist(),
            }
    counts = [sum(pair) for pair in zip(first["class_counts"], second["class_counts"], strict=True)]
    return {
        "count": first["count"] + second["count"],
        "bytes": first["bytes"] + second["bytes"],
        "class_counts": counts,
        "inputs": inputs,
        "target": {},
    }


def _measure_input(read: Read, described: InputInfo) -> dict[str, Any]:
    if described.meaning == "image":
        mean, std = mean_and_std(read(), "image")
        low, high = _extremes(read, len(mean))
        return {"min": low.tolist(), "max": high.tolist(), "mean": mean, "std": std}
    numbers = vars(_input_numbers(read, described))
    if described.meaning == "tokens":
        low, high = _extremes(read, 1)
        return {"min": low.tolist(), "max": high.tolist(), "lengths": numbers}
    return numbers


def _input_numbers(read: Read, described: InputInfo) -> _Numbers:
    """Measure the columns of a table, the lengths of tokens, or all values of an array as one
    column."""
    if described.meaning == "table":
        numbers = _measure_numbers(read, [len(column.categories) for column in described.columns])
        return numbers.moved([column.center for column in described.columns])
    if described.meaning == "tokens":
        return _measure_numbers(
            lambda: (np.count_nonzero(block, axis=1)[:, None] for block in read())
        )
    return _measure_numbers(lambda: (block.reshape(-1, 1) for block in read()))


def _measure_numbers(read: Read, categories: Sequence[int] = ()) -> _Numbers:
    """Measure columns.

    Args:
        read: Yields blocks [n, columns].
        categories: How many categories each column has, 0 for numbers; empty if all are numbers.
    """
    mean, std = mean_and_std(read(), "table")
    low, high = _extremes(read, len(mean))
    whole = np.all([(block == np.rint(block)).all(0) for block in read()], axis=0)
    bins, ranges = [], []
    for at in range(len(mean)):
        first, last = float(low[at]), float(high[at])
        if categories and categories[at]:
            first, last = 0.0, categories[at] - 1.0
        each = bool(whole[at]) and (
            last - first < BINS or bool(categories and categories[at])
        )  # a bar for each number
        bins.append(int(last - first) + 1 if each else BINS)
        ranges.append((first - 0.5, last + 0.5) if each else (first, last))
    histograms = [np.zeros(count, np.int64) for count in bins]
    for block in read():
        for at, histogram in enumerate(histograms):
            histogram += np.histogram(block[:, at].astype(np.float64), bins[at], ranges[at])[0]
    return _Numbers(
        min=low.tolist(),
        max=high.tolist(),
        mean=mean,
        std=std,
        histograms=[histogram.tolist() for histogram in histograms],
    )


def _extremes(read: Read, columns: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = (block.reshape(-1, columns) for block in read())
    low, high = zip(*((row.min(0), row.max(0)) for row in rows), strict=True)
    return np.min(low, axis=0), np.max(high, axis=0)


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


def save_picture(part: Split, target: Path) -> None:
    """Write a picture of a part as PNG: a grid of its images, or histograms of all columns and of
    the target.

    Raises:
        InvalidInput: The name does not end in .png.
        PodiumError: It cannot be written.
    """
    if target.suffix.lower() != ".png":
        raise InvalidInput(f"{target} is not the name of a PNG", "end it in .png")
    assert part.info
    try:
        draw_split(part, part.info).save(target)
    except OSError as error:
        problem = f"{target} cannot be written: {error.strerror or error}"
        raise PodiumError(problem, file_hint(error)) from error


def image_input(info: DatasetInfo) -> str | None:
    """Return the name of the first input that is an image."""
    return next(
        (name for name, described in info.inputs.items() if described.meaning == "image"), None
    )


def draw_split(part: Split, info: DatasetInfo) -> Image.Image:
    """Draw the first images of each class, or histograms of all columns and of the target."""
    return _picture_grid(part, info) if image_input(info) else _histogram_sheet(part, info)


def _picture_grid(part: Split, info: DatasetInfo) -> Image.Image:
    """Draw the first images of each class, one row per class, labeled with its name; of a
    regression, one row for each range of targets."""
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


def _rows(part: Split, info: DatasetInfo) -> Mapping[str, NDArray[np.int64]]:
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


def _to_picture(item: Array, info: DatasetInfo) -> Image.Image:
    """Return an image of the dataset as a picture; those of ink on black turn into ink on white."""
    pixels = item
    if pixels.dtype != np.uint8:
        low, span = float(item.min()), float(np.ptp(item)) or 1.0
        pixels = ((item.astype(np.float64) - low) / span * 255).astype(np.uint8)
    if info.preprocessing.get("recipe") in ("digit", "garment"):
        pixels = 255 - pixels
    return Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB")


def _fit(picture: Image.Image, side: int = CELL) -> Image.Image:
    longest = max(picture.size)
    if longest <= side:
        times = side // longest
        return picture.resize(
            (picture.width * times, picture.height * times), Image.Resampling.NEAREST
        )
    picture = picture.copy()
    picture.thumbnail((side, side))
    return picture


def _histogram_sheet(part: Split, info: DatasetInfo) -> Image.Image:
    charts = list(_charts(part, info))[:_MOST_PANELS]
    across = min(PANELS, len(charts))
    width, height = PANEL
    sheet = Image.new("L", (across * width, -(-len(charts) // across) * height), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=13)
    for at, (title, low, high, counts) in enumerate(charts):
        left, top = at % across * width + 10, at // across * height + 8
        base, right = top + height - 40, left + width - 20
        draw.text((left, top), cut(title, 32), fill=INK, font=font)
        draw.line((left, base, right, base), fill=INK)
        step = (right - left) / len(counts)
        for column, count in enumerate(counts):
            tall = max(1, (base - top - 22) * count / max(counts))
            if count:
                draw.rectangle(
                    (left + column * step, base - tall, left + (column + 1) * step - 1, base), BAR
                )
        draw.text((left, base + 4), cut(low, 16), fill=INK, font=font)
        draw.text((right, base + 4), cut(high, 16), fill=INK, font=font, anchor="ra")
    return sheet


def _charts(part: Split, info: DatasetInfo) -> "list[tuple[str, str, str, Sequence[int]]]":
    """Return title, text at the left and right end, and counts of each histogram, the target
    first."""
    charts: list[tuple[str, str, str, Sequence[int]]] = []

    def add(title: str, numbers: _Numbers, at: int, column: Column | None = None) -> None:
        digits = 12 if column and column.center else 4
        low, high = f"{numbers.min[at]:.{digits}g}", f"{numbers.max[at]:.{digits}g}"
        categories = column.categories if column else ()
        ends = (categories[0], categories[-1]) if categories else (low, high)
        charts.append((title, *ends, numbers.histograms[at]))

    if info.kind == "classification":
        counts = np.bincount(part.target, minlength=len(info.classes)).tolist()
        charts.append((info.target.name, info.classes[0], info.classes[-1], counts))
    else:
        numbers = _target_numbers(part)
        for at in range(len(numbers.mean)):
            add(info.target.name + (f" {at}" if len(numbers.mean) > 1 else ""), numbers, at)
    for name, described in info.inputs.items():
        if described.meaning == "image":
            continue
        numbers = _input_numbers(partial(blocks, part.inputs[name]), described)
        title = f"{name}: length" if described.meaning == "tokens" else name
        for at, column in enumerate(described.columns or (Column(name=title, kind="number"),)):
            add(column.name, numbers, at, column)
    return charts


def terminal_view(part: Split, info: DatasetInfo) -> str:
    """Draw one image of each of the first ten classes in braille characters, at most 14 columns and
    7 lines each; of a regression, the first ten images."""
    name = image_input(info)
    assert name is not None
    chosen = [int(items[0]) for items in list(_rows(part, info).values())[:10] if len(items)]
    if info.kind == "regression":
        chosen = list(range(min(10, len(part))))
    pictures = [_braille(_dots(part.inputs[name][item], info)) for item in chosen]
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


def _braille(dots: NDArray[np.bool_]) -> list[str]:
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

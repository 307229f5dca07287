"""Prepare a picture of a digit as the MNIST authors did: crop, fit into 20x20, center of mass in
the middle of 28x28.

The recipe is theirs (yann.lecun.com/exdb/mnist); the part before it finds the ink on any
background: paper under uneven light, a blackboard, color on color.
"""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from podium.errors import InvalidInput

BOX = 20  # the digit fits into 20x20 …
SIDE = 28  # … of 28x28
STRONG = 40  # pixels that decide how strong the ink is: more than a speck, fewer than a small digit
LEAST_CONTRAST = 12  # of 255: a faint pencil line; JPEG noise on an empty page is below

Floats = NDArray[np.float64]


def prepare_digit(picture: Image.Image) -> NDArray[np.uint8]:
    """Turn a picture of a digit into an image like those of the training data.

    Args:
        picture: RGB, the digit darker, lighter or of another color than its background.

    Returns:
        uint8 [28, 28], ink 255 on background 0.

    Raises:
        InvalidInput: Nothing stands out from the background.
    """
    pixels = np.asarray(picture, np.float64)
    background, noise = background_light(pixels)
    ink, peak = _ink(pixels - background)
    if peak < max(LEAST_CONTRAST, 4 * noise):
        found = f"{peak:.0f} of 255" + (
            f" on one that varies by {noise:.0f}" if peak >= LEAST_CONTRAST else ""
        )
        raise InvalidInput(
            f"the digit must stand out from its background, but the contrast is {found}",
            "use a well-lit picture that one digit fills",
        )
    strokes = _strokes(ink, peak, noise)
    floor = min(2 * noise, peak / 4)
    values = np.where(strokes, ((ink - floor) / (0.9 * peak - floor)).clip(0, 1), 0)
    return place(values)


def background_light(pixels: Floats) -> tuple[Floats, float]:
    """Return the background [h, w, 3], a smooth surface through the frame of the picture, and its
    noise in levels.

    A third of the frame is background, however tight the cut: the surface is fitted again without
    the other pixels. It follows a lamp at one side or the dark corners of a lens, and cannot follow
    a stroke.
    """
    height, width = pixels.shape[:2]
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    terms = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=-1)
    rim = max(1, round(0.05 * min(height, width)))
    frame = np.ones((height, width), bool)
    frame[rim:-rim, rim:-rim] = False
    colors = pixels[frame]
    distance = np.abs(colors.mean(1) - _commonest(colors.mean(1)))
    for _ in range(4):
        near = distance <= np.quantile(distance, 1 / 3)
        factors = np.linalg.lstsq(terms[frame][near], colors[near], rcond=1e-6)[0]
        distance = _distance(colors - terms[frame] @ factors)
    return terms @ factors, max(1.5, 2.3 * float(np.quantile(distance, 1 / 3)))


def _commonest(gray: Floats) -> float:
    """Return the middle of the densest third of the values."""
    order, third = np.sort(gray), len(gray) // 3
    start = int(np.argmin(order[third:] - order[: len(order) - third]))
    return float(np.median(order[start : start + third + 1]))


def _distance(difference: Floats) -> Floats:
    """Return the root mean square over the color channels."""
    return np.sqrt(np.einsum("...c,...c->...", difference, difference) / difference.shape[-1])


def _ink(difference: Floats) -> tuple[Floats, float]:
    """Return how far each pixel is from the background toward the color of the ink, darker or
    lighter."""
    distance = _distance(difference)
    few = min(STRONG, math.ceil(0.002 * distance.size))
    strong = distance >= 0.6 * np.partition(distance, -few, axis=None)[-few]
    color = difference[strong].mean(0)
    ink = (difference @ (color / max(np.linalg.norm(color), 1e-9)) / math.sqrt(3)).clip(0, None)
    return ink, float(np.quantile(ink[strong], 0.5))


def _strokes(ink: Floats, peak: float, noise: float) -> NDArray[np.bool_]:
    """Select the connected strokes of the digit: no specks, no page edges."""
    labels, count = label_regions(ink > max(0.25 * peak, 3 * noise))
    numbers = np.arange(1, count + 1)
    mass = np.bincount(labels.ravel(), weights=ink.ravel(), minlength=count + 1)[1:]
    top = np.zeros(count + 1)
    np.maximum.at(top, labels.ravel(), ink.ravel())
    edge = np.unique(np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]]))
    inside = ~np.isin(numbers, edge)
    good = top[1:] > 0.5 * peak
    if mass[good & inside].sum() > 0.2 * mass[good].sum():
        good &= inside
    good &= mass > 0.05 * mass[good].max()
    return dilate(np.isin(labels, numbers[good]))


def label_regions(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], int]:
    """Number the regions of true pixels, which touch at sides or corners, from 1; return the
    numbers and how many.

    It is what scipy.ndimage.label does, which is too large for the image of the server.
    """
    width = mask.shape[1] + 2
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)  # runs of true pixels, row by row
    ends = np.nonzero(edges == -1)[1]
    first = np.searchsorted(
        rows * width + ends, (rows + 1) * width + starts
    )  # of the runs below that touch one
    last = np.searchsorted(rows * width + starts, (rows + 1) * width + ends, side="right")
    parents = list(range(len(rows)))

    def root(run: int) -> int:
        while parents[run] != run:
            parents[run] = run = parents[parents[run]]
        return run

    for run, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        for below in range(low, high):
            parents[root(below)] = root(run)
    roots, regions = np.unique([root(run) for run in parents], return_inverse=True)
    labels = np.zeros(mask.shape, np.int64)
    labels[mask] = np.repeat(regions + 1, ends - starts)
    return labels, len(roots)


def dilate(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return where a pixel or one of its eight neighbors is true."""
    padded = np.pad(mask, 1)
    wide = padded[:-2] | padded[1:-1] | padded[2:]
    return wide[:, :-2] | wide[:, 1:-1] | wide[:, 2:]


def place(values: Floats) -> NDArray[np.uint8]:
    """Fit strokes (0..1) into 20x20, keeping their proportions, and put their center of mass in the
    middle of 28x28."""
    rows, columns = np.flatnonzero(values.max(1) > 0.2), np.flatnonzero(values.max(0) > 0.2)
    cropped = values[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = BOX / max(cropped.shape)
    size = [max(1, round(side * scale)) for side in reversed(cropped.shape)]
    small = Image.fromarray(cropped.astype(np.float32)).resize(
        (size[0], size[1]), Image.Resampling.HAMMING
    )
    digit = np.asarray(small, np.float64).clip(0, None)
    digit /= digit.max()
    sheet = np.zeros((3 * SIDE, 3 * SIDE))
    centre = [(digit.sum(1 - axis) @ np.arange(digit.shape[axis])) / digit.sum() for axis in (0, 1)]
    top, left = (SIDE + SIDE // 2 - round(middle) for middle in centre)
    sheet[top : top + digit.shape[0], left : left + digit.shape[1]] = digit
    return np.asarray(sheet[SIDE : 2 * SIDE, SIDE : 2 * SIDE] * 255).round().astype(np.uint8)

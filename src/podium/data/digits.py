"""Prepare a picture of a digit as the MNIST authors did: crop, fit into 20x20, center of mass in
the middle of 28x28.

The recipe is theirs (yann.lecun.com/exdb/mnist). Ink is what differs from the color of the frame,
darker, lighter or of another color: a page under uneven light has to be cropped first.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from podium.errors import InvalidInput

BOX = 20  # the digit fits into 20x20 …
SIDE = 28  # … of 28x28
LEAST_CONTRAST = 12  # of 255: a faint pencil line; JPEG noise on an empty page is below
STRONG = 20  # pixels, fewer than a small digit has, of which the weakest says how strong ink is

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
    frame = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    order, third = frame[np.argsort(frame.mean(1))], max(1, len(frame) // 3)
    spread = order[third:].mean(1) - order[: len(order) - third].mean(1)
    densest = order[spread.argmin() :][:third] if len(spread) else order
    background = np.median(densest, axis=0)  # a third of the frame, however tight the cut
    ink = np.sqrt(np.mean((pixels - background) ** 2, axis=2))
    noise = 3 * max(1.0, float(np.median(np.sqrt(np.mean((densest - background) ** 2, axis=1)))))
    strongest = float(np.sort(ink, axis=None)[-STRONG:].min())
    peak = float(np.median(ink[ink >= 0.6 * strongest]))
    if peak < max(LEAST_CONTRAST, 2 * noise):
        raise InvalidInput(
            f"the digit must stand out from its background, but the contrast is {peak:.0f} of 255",
            "use a well-lit picture that one digit fills",
        )
    return _place(((ink - noise) / (0.9 * peak - noise)).clip(0, 1))


def _place(values: Floats) -> NDArray[np.uint8]:
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

"""Pictures as one uint8 array of one size."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from podium.data.pictures import SIDE, as_colors, open_whole, prepare_picture
from podium.data.rows import Applied, Fitted, Problem
from podium.errors import InvalidInput, NotFound, require, suggestion
from podium.system.machine import cores

_RECIPES = ("digit", "garment")
"""Those of MNIST and Fashion-MNIST, with rules of their own."""

PICTURE, FOLDER = "picture", "folder"
"""Column of the bytes of pictures in a Parquet file."""


@dataclass(frozen=True, kw_only=True)
class ImagePreprocessing(Fitted):
    """Preprocessing of pictures to the input ``images``: uint8 [n, height, width], or [n, height,
    width, 3] in color.

    ``resize`` scales a picture to the size, whatever its proportions; ``digit`` and ``garment`` are
    the recipes of MNIST and Fashion-MNIST.
    """

    size: tuple[int, ...]
    """Height and width."""

    channels: int
    """1 for gray, 3 for color."""

    recipe: str = "resize"
    """``digit``, ``garment`` or ``resize``."""

    input: str = "images"

    bits: int = 16
    """Bits of a white pixel in 16-bit pictures: 12 where a scanner wrote 0 to 4095."""

    kind: str = "image"

    def __post_init__(self) -> None:
        require(self.channels in (1, 3), "channels in (1, 3)", channels=self.channels)
        require(8 <= self.bits <= 16, "8 <= bits <= 16", bits=self.bits)
        if len(self.size) != 2 or not all(1 <= side <= 8192 for side in self.size):
            raise InvalidInput(
                f"not a size of pictures: {list(self.size)}", "[height, width], each 1 to 8192"
            )
        if self.recipe not in ("resize", *_RECIPES):
            raise InvalidInput(
                f"there is no recipe {self.recipe!r}",
                suggestion(self.recipe, ("resize", *_RECIPES)),
            )
        if self.recipe != "resize" and (tuple(self.size), self.channels) != ((SIDE, SIDE), 1):
            raise InvalidInput(
                f"recipe {self.recipe} makes [{SIDE}, {SIDE}] in gray, not {list(self.size)}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one picture."""
        return (*self.size, 3) if self.channels == 3 else tuple(self.size)

    def apply(self, pictures: Sequence[Path], names: Sequence[str] = ()) -> Applied:
        """Turn picture files into the input; what cannot be read is left out and reported.

        Args:
            names: Those of the pictures, for errors; the paths if empty.
        """
        kept, images, problems = [], [], []
        with ThreadPoolExecutor(cores()) as pool:
            for at, result in enumerate(pool.map(self._try, pictures)):
                if isinstance(result, str):
                    problems.append(
                        Problem(row=at + 1, where=str((names or pictures)[at]), reason=result)
                    )
                else:
                    kept.append(at)
                    images.append(result)
        stacked = np.stack(images) if images else np.empty((0, *self.shape), np.uint8)
        return Applied(
            kept=np.array(kept, np.int64), inputs={self.input: stacked}, problems=tuple(problems)
        )

    def _image(self, picture: Path) -> NDArray[np.uint8]:
        if self.recipe in _RECIPES:
            return prepare_picture(picture, self.recipe)
        height, width = self.size
        colored = as_colors(open_whole(picture, (width, height)), self.channels, self.bits)
        if colored.size != (width, height):
            colored = colored.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(colored)

    def _try(self, picture: Path) -> NDArray[np.uint8] | str:
        try:
            return self._image(picture)
        except (InvalidInput, NotFound) as error:
            return error.message

"""Any .png or .jpg as the 28x28 image a network was trained on.

What that means depends on the dataset. A digit is prepared as the MNIST authors did
(yann.lecun.com/exdb/mnist): cropped, fit into 20x20, its center of mass in the middle; ink is what
differs from the color of the frame, so a page under uneven light has to be cropped first. A piece
of clothing fills the 28x28 as in Fashion-MNIST.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from podium.errors import InvalidInput, NotFound, PodiumError

_BOX = 20  # the digit fits into 20x20 …
SIDE = 28  # … of 28x28
_LEAST_CONTRAST = 12  # of 255: a faint pencil line; JPEG noise on an empty page is below
_STRONG = 20  # pixels, fewer than a small digit has, of which the weakest says how strong ink is

_Floats = NDArray[np.float64]


def _prepare_digit(picture: Image.Image) -> NDArray[np.uint8]:
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
    strongest = float(np.sort(ink, axis=None)[-_STRONG:].min())
    peak = float(np.median(ink[ink >= 0.6 * strongest]))
    if peak < max(_LEAST_CONTRAST, 2 * noise):
        raise InvalidInput(
            f"the digit must stand out from its background, but the contrast is {peak:.0f} of 255",
            "use a well-lit picture that one digit fills",
        )
    return _place(((ink - noise) / (0.9 * peak - noise)).clip(0, 1))


def _place(values: _Floats) -> NDArray[np.uint8]:
    """Fit strokes (0..1) into 20x20, keeping their proportions, and put their center of mass in the
    middle of 28x28."""
    digit = _scaled(values, values > 0.2, _BOX).clip(0, None)
    digit /= digit.max()
    sheet = np.zeros((3 * SIDE, 3 * SIDE))
    centre = [(digit.sum(1 - axis) @ np.arange(digit.shape[axis])) / digit.sum() for axis in (0, 1)]
    top, left = (SIDE + SIDE // 2 - round(middle) for middle in centre)
    sheet[top : top + digit.shape[0], left : left + digit.shape[1]] = digit
    return np.asarray(sheet[SIDE : 2 * SIDE, SIDE : 2 * SIDE] * 255).round().astype(np.uint8)


def _scaled(values: _Floats, shown: NDArray[np.bool_], side: int) -> _Floats:
    """Cut out what is shown, and scale it so that its longer side has so many pixels."""
    rows, columns = np.flatnonzero(shown.any(1)), np.flatnonzero(shown.any(0))
    cropped = values[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = side / max(cropped.shape)
    width, height = (max(1, round(length * scale)) for length in reversed(cropped.shape))
    small = Image.fromarray(cropped.astype(np.float32))
    return np.asarray(small.resize((width, height), Image.Resampling.HAMMING), np.float64)


_HEIF_ENDINGS = (".heic", ".heif")
ENDINGS = (
    *(".png", ".jpg", ".jpeg", ".jfif", ".jpe", ".webp", ".avif", ".gif", ".bmp", ".tif", ".tiff"),
    *(".ppm", ".pgm", *_HEIF_ENDINGS),
)
_FORMATS = ("PNG", "JPEG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM")  # none runs a program
INSTALL_HEIF = "pip install pillow-heif"
_LARGEST = 480  # pixels per side; a digit needs no more
_MOST_BEYOND = 0.01
"""Share of the pixels that may be whiter than white in the training pictures: some are hot."""
_MAX_PIXELS = 50_000_000
"""Per picture, checked before decoding, which then needs less than 1 GB."""


def find_pictures(paths: Iterable[Path]) -> list[Path]:
    """Return the pictures among files and folders, a folder's in order of name.

    Raises:
        NotFound: A file or folder is not there, or a folder has no picture.
        InvalidInput: The name of a file does not end as a picture's does.
    """
    pictures: list[Path] = []
    for path in paths:
        if not path.exists():
            raise NotFound(f"there is no picture {path}")
        inside = [path]
        if path.is_dir():
            inside = sorted(
                file
                for file in path.iterdir()
                if is_picture(file) and not is_hidden(PurePath(file.name))
            )
        if not inside:
            raise NotFound(f"there is no {' or '.join(ENDINGS)} in {path}")
        if path.is_file() and not is_picture(path):
            raise InvalidInput(f"a picture ends in {' or '.join(ENDINGS)}, but got {path}")
        pictures += inside
    return pictures


def is_picture(path: PurePath) -> bool:
    """Return whether a file's name ends as a picture's does."""
    return path.suffix.lower() in ENDINGS


def is_hidden(path: PurePath) -> bool:
    """Return whether it is a program's own: checkpoints of notebooks, previews of file servers.

    Args:
        path: Relative to the folder that the user named, which may itself be hidden.
    """
    return any(part.startswith(".") or part in ("__MACOSX", "@eaDir") for part in path.parts)


def prepare_picture(picture: Path | Image.Image, recipe: str = "digit") -> NDArray[np.uint8]:
    """Turn a picture into an image of MNIST or Fashion-MNIST.

    Args:
        picture: A file, or an opened picture of any mode and size.
        recipe: ``digit`` for MNIST, ``garment`` for Fashion-MNIST.

    Returns:
        uint8 [28, 28], background 0.

    Raises:
        NotFound: There is no such file.
        InvalidInput: It is not a picture, or damaged, or empty.
    """
    flat = _flatten(_open_picture(picture) if isinstance(picture, Path) else picture)
    return _prepare_garment(flat) if recipe == "garment" else _prepare_digit(flat)


def _open_picture(path: Path) -> Image.Image:
    """Read a picture file completely, reduced to about twice _LARGEST, turned the way the camera
    was held.

    Raises:
        NotFound: There is no such file.
        InvalidInput: It is not a picture, damaged, or of absurd size.
    """
    with _opened(path) as picture:
        picture.draft(
            "RGB", (2 * _LARGEST, 2 * _LARGEST)
        )  # large photos decode at a fraction of their size
        return ImageOps.exif_transpose(_reduce(picture))


def open_whole(path: Path, size: tuple[int, int]) -> Image.Image:
    """Read a picture file completely, turned the way the camera was held; raises like
    _open_picture.

    Args:
        size: Width and height needed; a larger photo may be decoded at a fraction of its size, not
            below twice this.
    """
    with _opened(path) as picture:
        picture.draft(None, (2 * size[0], 2 * size[1]))
        return ImageOps.exif_transpose(picture)


@dataclass(frozen=True, kw_only=True)
class Look:
    """Facts of a picture file."""

    size: tuple[int, int]
    """Width and height as the picture is shown."""

    channels: int
    """1 for gray or 3 for color."""

    color: str
    """``gray``, or as Pillow names it: RGB, CMYK, P for a palette."""

    bits: int
    """Of a picture of 16 bits, how many of them its brightest pixel needs, 8 to 16, else 0: such
    files often hold a camera's 10, 12 or 14."""

    format: str
    """As Pillow names it: PNG."""

    frames: int
    """Pages or frames; those of a phone's MPO, which are views of one picture, count as one."""

    @classmethod
    def of(cls, path: Path) -> "Look":
        """Read a picture file's header, and a deep one's pixels; raises like _open_picture."""
        with _opened(path) as picture:
            turned = picture.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            turned &= picture.format != "TIFF"  # of which Pillow gives the size as it is shown
            size = (picture.height, picture.width) if turned else picture.size
            deep = picture.mode.startswith("I")
            bits = int(np.asarray(picture).max()).bit_length() if deep else 0
            channels = 1 if picture.mode in ("1", "L", "LA") or deep else 3
            kind, mode = picture.format or "", picture.mode
            return cls(
                size=size,
                channels=channels,
                color="16 bit gray"
                if deep
                else {"L": "gray", "1": "black and white"}.get(mode, mode),
                bits=min(max(bits, 8), 16) if deep else 0,
                format="JPEG" if kind == "MPO" else kind,
                frames=1 if kind == "MPO" else getattr(picture, "n_frames", 1),
            )


def as_colors(picture: Image.Image, channels: int, bits: int = 16) -> Image.Image:
    """Return an opened picture in gray (1) or RGB (3): deep pixels scaled to 8 bits, transparency
    on white.

    Args:
        bits: Of a pixel that is white in a picture of 16 bits.

    Raises:
        InvalidInput: Its pixels are fractions, whose range nobody knows, or many are below zero or
            beyond white.
    """
    if picture.mode == "F":
        raise InvalidInput(
            "the pixels of this picture are fractions", "save it with 8 or 16 bits, or use npz:FILE"
        )
    if picture.mode.startswith("I"):
        white, values = 2**bits - 1, np.asarray(picture, np.float64)
        if (values < 0).mean() > _MOST_BEYOND:
            raise InvalidInput(
                f"this picture has pixels below zero, down to {values.min():.0f}",
                "add what makes them 0 or more before saving it, or use npz:FILE",
            )
        if (values > white).mean() > _MOST_BEYOND:
            raise InvalidInput(
                f"this picture has pixels up to {values.max():.0f}, but {white} was white in the training data",
                "scale it as the training pictures were, or train on such pictures too",
            )
        pixels = (values * (255 / white)).clip(0, 255).round()
        picture = Image.fromarray(pixels.astype(np.uint8))
    if picture.has_transparency_data:
        paper = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(paper, picture.convert("RGBA"))
    return picture.convert("L" if channels == 1 else "RGB")


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        with warnings.catch_warnings(category=Image.DecompressionBombWarning, action="error"):
            picture = Image.open(path, formats=_formats(path))
        with picture:
            if picture.width * picture.height > _MAX_PIXELS:
                raise _too_large(f"{picture.width:,} x {picture.height:,} pixels")
            yield picture
    except FileNotFoundError as error:
        raise NotFound(f"there is no picture {path}") from error
    except UnidentifiedImageError as error:
        raise InvalidInput("this is not a picture", "use a .png or .jpg") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large("more") from None
    except (PodiumError, MemoryError):
        raise
    except Exception as error:  # a decoder of damaged bytes may raise anything
        raise InvalidInput(
            f"this picture cannot be read: {error}", "save it again as .png"
        ) from error


def _formats(path: Path) -> tuple[str, ...]:
    """Return the formats that a file may have; that of iPhones takes a package of its own."""
    if path.suffix.lower() not in _HEIF_ENDINGS:
        return _FORMATS
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise InvalidInput(
            f"a picture in {path.suffix} cannot be read without the package pillow-heif",
            INSTALL_HEIF,
        ) from None
    register_heif_opener()
    return (*_FORMATS, "HEIF")


def _too_large(size: str) -> InvalidInput:
    return InvalidInput(
        f"a picture has at most {_MAX_PIXELS:,} pixels, but this one has {size}",
        "scale it down first",
    )


def _reduce(picture: Image.Image) -> Image.Image:
    """Average blocks of pixels of a large picture before anything copies it."""
    factor = max(picture.size) // (2 * _LARGEST)
    if factor < 2:
        return picture
    if picture.mode.startswith("I"):
        picture = picture.convert("I")
    elif picture.has_transparency_data:
        picture = picture.convert("RGBA")
    elif picture.mode in ("1", "P"):
        picture = picture.convert("L" if picture.mode == "1" else "RGB")
    return picture.reduce(factor)


def _flatten(picture: Image.Image) -> Image.Image:
    """Return an RGB picture of sensible size, transparency replaced by a contrasting background."""
    if picture.mode.startswith(
        ("I", "F")
    ):  # 16 bits and more, which Pillow would cut instead of scale
        values = np.asarray(picture, np.float64)
        span = max(float(np.ptp(values)), 1e-9)
        picture = Image.fromarray(((values - values.min()) / span * 255).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        gray, alpha = (
            np.asarray(band, np.float64) for band in (picture.convert("L"), picture.getchannel("A"))
        )
        dark = (gray * alpha).sum() < 128 * alpha.sum()
        paper = Image.new("RGBA", picture.size, "white" if dark else "black")
        picture = Image.alpha_composite(paper, picture)
    picture = picture.convert("RGB")
    picture.thumbnail((_LARGEST, _LARGEST))
    return picture


def _prepare_garment(picture: Image.Image) -> NDArray[np.uint8]:
    """Prepare clothing as in Fashion-MNIST: trimmed, longest side 28, centered, light background
    turned to black.

    The steps are those of the dataset's paper (arXiv 1708.07747, table 1) without its sharpening.
    """
    gray = np.asarray(picture.convert("L"), np.float64)
    rim = np.concatenate([gray[0], gray[-1], gray[:, 0], gray[:, -1]])
    paper = float(np.median(rim))
    values = 255 * (1 - gray / paper).clip(0, 1) if paper >= 128 else (gray - paper).clip(0, None)
    item = np.abs(gray - paper) > 0.05 * 255
    if not item.any():
        raise InvalidInput(
            "the piece must stand out from its background, but nothing does",
            "is the picture empty?",
        )
    small = _scaled(values, item, SIDE)
    height, width = small.shape
    sheet = np.zeros((SIDE, SIDE))
    top, left = (SIDE - height) // 2, (SIDE - width) // 2
    sheet[top : top + height, left : left + width] = small
    return sheet.clip(0, 255).round().astype(np.uint8)

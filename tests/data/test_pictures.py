"""One digit drawn in many ways must become one image: the same whatever paper, ink and size."""

import functools
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from drawing import FONTS, as_jpeg, draw, tight
from PIL import Image, ImageDraw

from podium.data.pictures import as_colors, find_pictures, prepare_picture
from podium.errors import InvalidInput, NotFound

Drawing = Callable[[int, str], Image.Image]
WAYS: dict[str, Drawing] = {
    "white on black": lambda digit, font: draw(digit, font, ink=(255, 255, 255), paper=(0, 0, 0)),
    "blue on yellow": lambda digit, font: draw(
        digit, font, ink=(40, 60, 200), paper=(240, 220, 90)
    ),
    "red on a green as bright": lambda digit, font: draw(
        digit, font, ink=(200, 60, 60), paper=(60, 128, 60)
    ),
    "gray pencil in a JPEG": lambda digit, font: as_jpeg(
        draw(digit, font, ink=(150,) * 3, paper=(210,) * 3)
    ),
    "in a corner": lambda digit, font: draw(digit, font, size=(300, 300), at=(230, 60)),
    "large": lambda digit, font: draw(digit, font, size=(700, 900), height=500),
    "cut tight": lambda digit, font: tight(draw(digit, font)),
    "black on nothing": lambda digit, font: draw(
        digit, font, ink=(0, 0, 0, 255), paper=(0, 0, 0, 0)
    ),
    "white on nothing": lambda digit, font: draw(
        digit, font, ink=(255,) * 4, paper=(255, 255, 255, 0)
    ),
    "gray with alpha": lambda digit, font: draw(digit, font).convert("LA"),
    "few colours": lambda digit, font: draw(digit, font).quantize(16),
    "16 bits": lambda digit, font: Image.fromarray(
        np.asarray(draw(digit, font).convert("L")).astype(np.uint16) * 257
    ),
}


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Correlate two images; the recipe rounds the centre to whole pixels, so one pixel of shift is no difference."""
    moved = [np.roll(second, (down, right), (0, 1)) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    return max(
        float(np.corrcoef(first.ravel().astype(float), image.ravel().astype(float))[0, 1])
        for image in moved
    )


@functools.cache
def plain(digit: int, font: str) -> np.ndarray:
    """Return the image that a drawing without difficulties becomes."""
    return prepare_picture(draw(digit, font))


@pytest.mark.parametrize("way", WAYS)
def test_a_digit_becomes_the_same_image_however_it_is_drawn(way: str) -> None:
    for font, digit in zip(FONTS, (2, 3, 4, 5, 6, 8, 9), strict=True):
        assert correlation(plain(digit, font), prepare_picture(WAYS[way](digit, font))) > 0.93, (
            f"{digit} in {font}"
        )


@pytest.mark.parametrize("digit", range(10))
def test_a_digit_lies_as_in_mnist(digit: int) -> None:
    image = prepare_picture(draw(digit, "Caladea", ink=(80, 80, 90)))
    assert (image.shape, image.dtype, image.max()) == ((28, 28), np.uint8, 255)
    rows, columns = np.flatnonzero(image.max(1) > 50), np.flatnonzero(image.max(0) > 50)
    assert 19 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 20
    weights = image / image.sum()
    centre = [(weights.sum(1 - axis) * np.arange(28)).sum() for axis in (0, 1)]
    assert centre == pytest.approx([14, 14], abs=0.51)
    assert np.median(image) == 0


def test_an_image_of_mnist_size_passes_almost_unchanged() -> None:
    once = prepare_picture(draw(5))
    again = prepare_picture(Image.fromarray(once))
    assert correlation(once, again) > 0.98


def test_a_photo_is_turned_the_way_it_was_taken(tmp_path: Path) -> None:
    upright = draw(4, size=(200, 150))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held turned by a quarter
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "photo.jpg", exif=exif, quality=95)
    assert correlation(prepare_picture(upright), prepare_picture(tmp_path / "photo.jpg")) > 0.97


@pytest.mark.parametrize("empty", ["blank", "noise", "one pixel"])
def test_an_empty_picture_is_refused(empty: str, tmp_path: Path) -> None:
    pixels = np.full((90, 120, 3), 200, np.uint8)
    if empty == "noise":
        pixels = np.random.default_rng(1).normal(128, 8, pixels.shape).clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels[:1, :1] if empty == "one pixel" else pixels).save(tmp_path / "p.png")
    with pytest.raises(InvalidInput, match=r"the digit must stand out from its background"):
        prepare_picture(tmp_path / "p.png")


def test_what_is_no_picture_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_text("hello")
    with pytest.raises(InvalidInput, match=r"this is not a picture"):
        prepare_picture(tmp_path / "p.png")
    draw(3).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:300])
    with pytest.raises(InvalidInput, match=r"this picture cannot be read"):
        prepare_picture(tmp_path / "cut.png")
    with pytest.raises(NotFound, match="there is no picture"):
        prepare_picture(tmp_path / "nowhere.png")


def test_a_folder_gives_its_pictures_in_order(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpg", "c.jpeg", "notes.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in find_pictures([tmp_path])] == ["a.jpg", "b.PNG", "c.jpeg"]
    with pytest.raises(InvalidInput, match=r"notes\.txt"):
        find_pictures([tmp_path / "notes.txt"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match=r"in .*empty"):
        find_pictures([tmp_path / "empty"])


def test_clothing_fills_the_image_whichever_way_its_background_is() -> None:
    garment = np.zeros((28, 28), np.uint8)
    garment[:, 8:20] = np.linspace(60, 250, 28)[:, None]
    for background in (Image.fromarray(garment), Image.fromarray(255 - garment)):
        large = background.resize((280, 280), Image.Resampling.BICUBIC)
        found = prepare_picture(large, "garment")
        assert correlation(found, garment) > 0.95
        assert abs(float(found.mean()) - garment.mean()) < 10, (
            "grey levels are kept: fabric is not ink"
        )
    with pytest.raises(InvalidInput, match="stand out"):
        prepare_picture(Image.new("L", (50, 50), 200), "garment")


def png_of_size(width: int, height: int) -> bytes:
    """Return the beginning of a PNG: its header alone says the size."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"")
    chunks = [
        struct.pack(">I", len(block) - 4) + block + struct.pack(">I", zlib.crc32(block))
        for block in (header, data)
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize("side", [7100, 13_000, 100_000])
def test_too_many_pixels_are_refused_from_the_header(side: int, tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(png_of_size(side, side))
    with pytest.raises(InvalidInput, match=r"a picture has at most 50,000,000 pixels"):
        prepare_picture(tmp_path / "p.png")


@pytest.mark.whole
def test_fifty_million_pixels_need_less_than_a_gigabyte(tmp_path: Path) -> None:
    picture = Image.new("RGBA", (7000, 7100), (0, 0, 0, 0))
    ImageDraw.Draw(picture).rectangle((2000, 1500, 3500, 5500), fill=(0, 0, 0, 255))
    picture.save(tmp_path / "p.png", compress_level=1)
    script = """if True:
        import re, sys
        from pathlib import Path
        from podium.data.pictures import prepare_picture
        image = prepare_picture(Path(sys.argv[1]))
        own = Path("/proc/self/status").read_text()  # ru_maxrss begins with the memory of the process that forked
        print(image.max(), int(re.search(r"VmHWM:\\s+(\\d+)", own)[1]) // 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "p.png")],
        capture_output=True,
        text=True,
        timeout=200,
    )
    highest, megabytes = map(int, done.stdout.split())
    assert highest == 255
    assert megabytes < 1000, "about 600; 1340 if it is scaled after it is converted"


def test_a_large_picture_gives_the_same_image(tmp_path: Path) -> None:
    small = draw(4, size=(400, 500), height=300)
    small.resize((3200, 4000)).save(tmp_path / "large.png", compress_level=1)
    assert correlation(prepare_picture(small), prepare_picture(tmp_path / "large.png")) > 0.98


def test_a_folder_above_the_pictures_may_be_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (".cache/photos", "work"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".cache/photos/a.png").touch()
    (tmp_path / ".cache/photos/.hidden.png").touch()
    monkeypatch.chdir(tmp_path / "work")
    assert [path.name for path in find_pictures([Path("../.cache/photos")])] == ["a.png"]


def test_a_picture_much_whiter_than_training_is_refused() -> None:
    deep = np.full((8, 8), 60_000, np.uint16)
    with pytest.raises(
        InvalidInput, match="pixels up to 60000, but 4095 was white in the training data"
    ):
        as_colors(Image.fromarray(deep), 1, bits=12)
    hot = np.full((10, 10), 2000, np.uint16)
    hot[0, 0] = 60_000
    assert np.asarray(as_colors(Image.fromarray(hot), 1, bits=12)).max() == 255, "1 % are hot"
    deep[:] = 2000
    assert np.asarray(as_colors(Image.fromarray(deep), 1, bits=12)).max() == round(
        2000 * 255 / 4095
    )


def test_pixels_below_zero_are_refused() -> None:
    scan = np.full((8, 8), -1000, np.int16)
    with pytest.raises(InvalidInput, match="pixels below zero, down to -1000"):
        as_colors(Image.fromarray(scan), 1, bits=12)

"""Pictures as cameras, scanners and drawing programs write them, from a folder to `podium predict`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import Nights
from PIL import Image, ImageOps
from sklearn.linear_model import LogisticRegression

from podium.data import artifact

pytestmark = pytest.mark.whole

SIZE = (24, 16)


def drawn(seed: int, bright: bool) -> Image.Image:
    """Draw noise; the left half of a bright picture is light, that of a dark one dark."""
    random = np.random.default_rng(seed)
    pixels = random.integers(60, 180, (SIZE[1], SIZE[0], 3), np.int64)
    pixels[:, :12] += 70 if bright else -60
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def turned(picture: Image.Image, path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.rotate(90, expand=True).save(path, "JPEG", quality=95, exif=exif)


def transparent(picture: Image.Image, path: Path) -> None:
    picture.putalpha(Image.fromarray(np.full((SIZE[1], SIZE[0]), 200, np.uint8)))
    picture.save(path, "PNG")


def deep(picture: Image.Image, path: Path) -> None:
    gray = np.asarray(picture.convert("L"), np.uint16)
    values = gray * 257
    values[0, 0] = 65535
    Image.fromarray(values).save(path, "PNG")


def animated(picture: Image.Image, path: Path) -> None:
    picture.save(
        path,
        "GIF",
        save_all=True,
        append_images=[picture.transpose(Image.Transpose.ROTATE_180)] * 3,
    )


def keyed(picture: Image.Image, path: Path) -> None:
    """A palette one of whose colors is transparent."""
    picture.quantize(32).save(path, "PNG", transparency=3)


def printed(picture: Image.Image, path: Path) -> None:
    picture.convert("CMYK").save(path, "JPEG", quality=95)


KINDS: dict[str, tuple[str, Callable[[Image.Image, Path], None]]] = {
    "plain": ("png", lambda picture, path: picture.save(path)),
    "turned": ("jpg", turned),
    "transparent": ("png", transparent),
    "deep": ("png", deep),
    "animated": ("gif", animated),
    "palette": ("png", lambda picture, path: picture.quantize(64).save(path)),
    "keyed": ("png", keyed),
    "print": ("jpg", printed),
    "gray": ("png", lambda picture, path: picture.convert("LA").save(path)),
    "scan": ("tif", lambda picture, path: picture.convert("CMYK").save(path)),
    "web": ("webp", lambda picture, path: picture.convert("RGBA").save(path, lossless=True)),
}  # fmt: skip


def shown(path: Path) -> np.ndarray[Any, Any]:
    """Return what Pillow shows of a file on white paper."""
    with Image.open(path) as opened:
        picture = ImageOps.exif_transpose(opened)
    if picture.mode.startswith("I"):
        picture = Image.fromarray(np.round(np.asarray(picture, np.float64) / 257).astype(np.uint8))
    if picture.has_transparency_data:
        picture = Image.alpha_composite(
            Image.new("RGBA", picture.size, "white"), picture.convert("RGBA")
        )
    return np.asarray(picture.convert("RGB"))


def folder(place: Path, kinds: list[str], each: int, seed: int = 0) -> Path:
    for label, name in enumerate(("dark", "light")):
        (place / name / ".ipynb_checkpoints").mkdir(parents=True)
        drawn(1, not label).save(place / name / ".ipynb_checkpoints" / "copy.png")
        for kind in kinds:
            ending, write = KINDS[kind]
            for at in range(each):
                number = seed + 1000 * label + 10 * at + list(KINDS).index(kind) * 100_000
                write(drawn(number, bool(label)), place / name / f"{kind}-{at:03}.{ending}")
    return place


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_has_the_pixels_that_pillow_shows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None
) -> None:
    source = folder(tmp_path / "pets", ["plain", kind] if kind != "plain" else ["plain"], 6)
    nights = Nights(tmp_path, monkeypatch)
    data = nights.prepare(f"images:{source}", model_name="", test=0.2, validation=0.2)
    prepared = [
        picture.tobytes()
        for part in artifact.PARTS
        for picture in artifact.load(data, part).inputs["images"]
    ]
    files = [path for path in source.rglob("*") if path.is_file() and ".ipynb" not in str(path)]
    assert sorted(prepared) == sorted(shown(path).tobytes() for path in files)


def test_pictures_hold_through_two_nights_and_predict(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clean_environment: None,
    typed: Callable[..., Any],
) -> None:
    nights = Nights(tmp_path, monkeypatch)
    nights.prepare(f"images:{folder(tmp_path / 'first', ['plain', 'gray'], 60)}")
    assert nights.train(LogisticRegression())["outcome"] == "promoted"
    nights.prepare(f"images:{folder(tmp_path / 'second', list(KINDS), 12, seed=5_000)}")
    nights.train(LogisticRegression())
    source = folder(tmp_path / "new", list(KINDS), 3, seed=7_000)
    broken = source / "light" / "broken.jpg"
    drawn(3, True).save(broken, quality=90)
    broken.write_bytes(broken.read_bytes()[:-400])
    for name in ("dark", "light"):
        done = typed("predict", "--model", "real", "--storage", nights.storage, str(source / name))
        said = [line.split()[1] for line in done.stdout.splitlines()]
        assert said == [name] * 3 * len(KINDS), done.stderr
        assert ("broken.jpg: this picture cannot be read" in done.stderr) == (name == "light")
        assert done.returncode == (1 if name == "light" else 0)

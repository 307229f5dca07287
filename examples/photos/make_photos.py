"""Draw road signs in front of real photographs, in a folder for each kind.

    python make_photos.py --output data

Each sign is turned, lit, blurred and stained at random, stands anywhere before a crop of one of scikit-learn's two
bundled photographs, and is stored as JPEG of 80 to 160 pixels. The backgrounds of `new/`, for predictions, are of parts
of the photographs that no other picture shows.
"""

import argparse
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont
from sklearn.datasets import load_sample_images

RED, BLUE, YELLOW, WHITE, BLACK = (
    (190, 20, 30),
    (20, 70, 170),
    (240, 190, 30),
    (240, 240, 235),
    (20, 20, 20),
)
SIZE = 128
"""Signs are drawn at this size."""

Draw = Callable[[ImageDraw.ImageDraw], None]


def text(draw: ImageDraw.ImageDraw, words: str, size: int, color: tuple[int, int, int]) -> None:
    """Write into the middle."""
    draw.text(
        (SIZE / 2, SIZE / 2),
        words,
        font=ImageFont.load_default(size),
        fill=color,
        anchor="mm",
        stroke_width=2,
    )


def polygon(
    draw: ImageDraw.ImageDraw, sides: int, turn: float, radius: float, color: tuple[int, int, int]
) -> None:
    """Draw a regular polygon."""
    angles = [math.radians(turn) + 2 * math.pi * side / sides for side in range(sides)]
    points = [
        (SIZE / 2 + radius * math.cos(angle), SIZE / 2 + radius * math.sin(angle))
        for angle in angles
    ]
    draw.polygon(points, fill=color)


def stop(draw: ImageDraw.ImageDraw) -> None:
    polygon(draw, 8, 22.5, 62, WHITE)
    polygon(draw, 8, 22.5, 57, RED)
    text(draw, "STOP", 38, WHITE)


def give_way(draw: ImageDraw.ImageDraw) -> None:
    polygon(draw, 3, 90, 62, RED)
    polygon(draw, 3, 90, 36, WHITE)


def no_entry(draw: ImageDraw.ImageDraw) -> None:
    draw.ellipse((4, 4, 124, 124), fill=RED)
    draw.rectangle((22, 52, 106, 76), fill=WHITE)


def priority(draw: ImageDraw.ImageDraw) -> None:
    polygon(draw, 4, 0, 62, WHITE)
    polygon(draw, 4, 0, 44, YELLOW)


def parking(draw: ImageDraw.ImageDraw) -> None:
    draw.rectangle((10, 10, 118, 118), fill=BLUE)
    text(draw, "P", 84, WHITE)


def limit(number: str) -> Draw:
    def draw_limit(draw: ImageDraw.ImageDraw) -> None:
        draw.ellipse((4, 4, 124, 124), fill=RED)
        draw.ellipse((20, 20, 108, 108), fill=WHITE)
        text(draw, number, 56, BLACK)

    return draw_limit


SIGNS: dict[str, Draw] = {
    "stop": stop, "give-way": give_way, "no-entry": no_entry, "priority": priority, "parking": parking,
    "limit-30": limit("30"), "limit-50": limit("50"), "limit-80": limit("80"),
}  # fmt: skip


def photograph(kind: str, backgrounds: list[Image.Image], rng: random.Random) -> Image.Image:
    """Return a picture of a sign, 80 to 160 pixels wide and high."""
    side = rng.randint(80, 160)
    scene = background(rng.choice(backgrounds), side, rng)
    sign = Image.new("RGBA", (SIZE, SIZE))
    SIGNS[kind](ImageDraw.Draw(sign))
    stain(sign, rng)
    width = int(side * rng.uniform(0.4, 0.8))
    sign = sign.resize((width, int(width * rng.uniform(0.85, 1.1))), Image.Resampling.LANCZOS)
    sign = sign.rotate(rng.uniform(-15, 15), Image.Resampling.BICUBIC, expand=True)
    sign = Image.merge("RGBA", (*ImageEnhance.Brightness(sign.convert("RGB")).enhance(rng.uniform(0.4, 1.2)).split(),
                                sign.getchannel("A")))  # fmt: skip
    scene.paste(
        sign,
        (rng.randint(-4, side - sign.width + 4), rng.randint(-4, side - sign.height + 4)),
        sign,
    )
    scene = scene.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.6)))
    scene = ImageEnhance.Color(scene).enhance(rng.uniform(0.3, 1.3))
    noise = np.random.default_rng(rng.getrandbits(32)).normal(
        0, rng.uniform(2, 14), (side, side, 3)
    )
    return Image.fromarray((np.asarray(scene) + noise).clip(0, 255).astype(np.uint8))


def background(photo: Image.Image, side: int, rng: random.Random) -> Image.Image:
    """Return a square part of a photograph, larger or smaller and perhaps mirrored."""
    part = rng.randint(60, min(photo.size))
    left, top = rng.randint(0, photo.width - part), rng.randint(0, photo.height - part)
    scene = photo.crop((left, top, left + part, top + part)).resize(
        (side, side), Image.Resampling.BICUBIC
    )
    return scene.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else scene


def stain(sign: Image.Image, rng: random.Random) -> None:
    """Cover a part of a sign, as branches and stickers do."""
    draw = ImageDraw.Draw(sign)
    for _ in range(rng.randint(0, 3)):
        x, y = rng.randint(0, SIZE), rng.randint(0, SIZE)
        gray = rng.randint(30, 160)
        draw.line(
            (x, y, x + rng.randint(-50, 50), y + rng.randint(-50, 50)),
            (gray, gray + 20, gray),
            rng.randint(3, 14),
        )


def write(folder: Path, count: int, backgrounds: list[Image.Image], rng: random.Random) -> None:
    """Write pictures of every kind, with random quality."""
    for kind in SIGNS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            picture = photograph(kind, backgrounds, rng)
            picture.save(folder / kind / f"{number:04}.jpg", quality=rng.randint(40, 92))


def main() -> None:
    """Write the pictures to learn from, and some new ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("data"), help="gets signs/ and new/")
    parser.add_argument(
        "--count", type=int, default=350, help="pictures of each kind (default: 350)"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    photos = [Image.fromarray(image) for image in load_sample_images().images]
    known, unseen = (
        [photo.crop(box) for photo in photos] for box in ((0, 0, 440, 427), (440, 0, 640, 427))
    )
    rng = random.Random(args.seed)
    write(args.output / "signs", args.count, known, rng)
    write(args.output / "new", 5, unseen, rng)


if __name__ == "__main__":
    main()

"""Draw digits as people photograph them, in fonts that come with Python packages."""

import io

import font_caladea
import font_intuitive
import font_roboto
from PIL import Image, ImageDraw, ImageFont

FONTS = {
    "Aileron": None,  # the one inside Pillow
    "Roboto": font_roboto.Roboto,
    "Roboto Bold": font_roboto.RobotoBold,
    "Roboto Italic": font_roboto.RobotoItalic,
    "Caladea": font_caladea.Caladea,
    "Caladea Bold Italic": font_caladea.CaladeaBoldItalic,
    "Intuitive": font_intuitive.Intuitive,  # as written by hand
}
Colour = tuple[int, ...]


def draw(
    digit: int,
    font: str = "Roboto",
    *,
    size: tuple[int, int] = (150, 120),
    height: int = 80,
    ink: Colour = (30, 30, 40),
    paper: Colour = (235, 232, 225),
    at: tuple[int, int] | None = None,
) -> Image.Image:
    """Draw a digit around a point, the middle if none is given."""
    path = FONTS[font]
    face = ImageFont.truetype(path, height) if path else ImageFont.load_default(height)
    picture = Image.new("RGB" if len(paper) == 3 else "RGBA", size, paper)
    middle = at or (size[0] // 2, size[1] // 2)
    ImageDraw.Draw(picture).text(middle, str(digit), fill=ink, font=face, anchor="mm")
    return picture


def as_jpeg(picture: Image.Image, quality: int = 40) -> Image.Image:
    """Save and open again, with everything JPEG does to edges."""
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=quality)
    return Image.open(stream)


def tight(picture: Image.Image) -> Image.Image:
    """Cut away everything around a dark digit on light paper."""
    return picture.crop(
        Image.eval(picture.convert("L"), lambda value: 255 * (value < 225)).getbbox()
    )

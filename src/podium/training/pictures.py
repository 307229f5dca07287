"""Pictures that a trainer left beside its model, for the report of the run."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from podium.training.base import say

MOST, LARGEST, ALTOGETHER = 8, 512 * 2**10, 2 * 2**20
"""Pictures, bytes of one and bytes of all: the report is one file that is opened whole and handed
around."""

PNG, JPEG = "image/png", "image/jpeg"

_BEGINNINGS = {PNG: b"\x89PNG\r\n\x1a\n", JPEG: b"\xff\xd8\xff"}
_NAMED_SO = (".png", ".jpg", ".jpeg", ".svg", ".gif", ".webp")


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture as it goes into the report."""

    name: str

    media: str
    """PNG or JPEG; an SVG may hold scripts, and is never shown."""

    base64: str


def pictures_among(directory: Path, names: Iterable[str]) -> list[Picture]:
    """Read the PNG and JPEG files of a model directory, and say which pictures are left out, and
    why.

    What a file is its first bytes say, whatever its name is.

    Args:
        directory: Where the files are.
        names: Of the files; those in folders below are a matter of the model, such as its items.
    """
    pictures, total = list[Picture](), 0
    for name in sorted(name for name in names if "/" not in name):
        path = directory / name
        media, size = _media(path), path.stat().st_size
        if media is None:
            if name.lower().endswith(_NAMED_SO):
                _left_out(name, "it is neither a PNG nor a JPEG")
        elif size > LARGEST:
            _left_out(name, f"it has {size:,} bytes, and at most {LARGEST:,} are shown")
        elif len(pictures) == MOST:
            _left_out(name, f"there are {MOST} already")
        elif total + size > ALTOGETHER:
            _left_out(name, f"all together would have more than {ALTOGETHER:,} bytes")
        else:
            total += size
            pictures.append(
                Picture(name=name, media=media, base64=base64.b64encode(path.read_bytes()).decode())
            )
    return pictures


def _media(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(max(map(len, _BEGINNINGS.values())))
    return next(
        (media for media, beginning in _BEGINNINGS.items() if head.startswith(beginning)), None
    )


def _left_out(name: str, why: str) -> None:
    say(f"the picture {name} is not in the report: {why}")

"""The templates of pages, and what is kept of them from one process to the next."""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from podium.display.text import brief, duration, figure, iso, plural, size, when
from podium.errors import PodiumError
from podium.files.documents import write_file
from podium.system.settings import Settings

if TYPE_CHECKING:
    from jinja2 import Environment


def _share(value: float | None) -> str:
    """Format a share as a percentage: 0.98765 is 98.77 %."""
    return "–" if value is None else f"{value * 100:.2f} %"


def _chance(value: float) -> str:
    """Format a probability: 0.0000029 is "less than 0.01 %"."""
    return (
        "less than 0.01 %"
        if value < 1e-4
        else f"{value * 100:.2g} %"
        if value < 0.1
        else f"{value * 100:.0f} %"
    )


_FILTERS = {
    "chance": _chance,
    "duration": duration,
    "figure": figure,
    "iso": iso,
    "number": brief,
    "plural": plural,
    "share": _share,
    "size": size,
    "when": when,
}


@cache
def environment(*rooms: str) -> "Environment":
    """Return the templates of some rooms; a name that several have is that of the first.

    Compiled they are kept in podium's cache: to compile those of a report takes as long as to fill
    them in.
    """
    from jinja2 import (
        ChoiceLoader,
        Environment,
        FileSystemBytecodeCache,
        PackageLoader,
        StrictUndefined,
    )
    from jinja2.bccache import Bucket

    class Kept(FileSystemBytecodeCache):
        def dump_bytecode(self, bucket: Bucket) -> None:
            with suppress(OSError):  # a page without a cache is a page too
                super().dump_bytecode(bucket)

    folder = _folder()
    made = Environment(
        loader=ChoiceLoader([PackageLoader(f"podium.{room}", ".") for room in rooms]),
        bytecode_cache=Kept(str(folder)) if folder else None,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= _FILTERS
    return made


def kept(name: str, make: Callable[[], bytes]) -> bytes:
    """Return what is kept under a name in podium's cache, and make it where there is none."""
    folder = _folder()
    if folder and (folder / name).is_file():
        with suppress(OSError):
            return (folder / name).read_bytes()
    made = make()
    if folder:
        with suppress(PodiumError):
            write_file(folder / name, made)
    return made


def _folder() -> Path | None:
    """Return the directory; None where it is another user's, whose code would run here."""
    folder = Settings.from_environment().cache / "pages"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid == os.geteuid() and not found.st_mode & 0o022:
            return folder
    return None

"""What stands for a container image on this machine: this Python, or a directory."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from podium.errors import require


@dataclass(frozen=True, kw_only=True)
class Image:
    """A local environment for a container image."""

    name: str
    """The image as the manifest says it."""

    root: Path | None = None
    """A directory that stands for the image's root and working directory; None is this Python."""

    def search_path(self, inherited: str) -> str:
        """Return the PATH: the root's programs first, then this Python's, then what the caller has."""
        folders = ["bin", "usr/local/bin", "usr/bin"] if self.root else []
        own = [str(self.root / one) for one in folders if self.root and (self.root / one).is_dir()]
        return os.pathsep.join([*own, str(Path(sys.executable).parent), inherited or os.defpath])

    def resolve(self, argument: str) -> str:
        """Return an absolute path of the image as it is called here, and anything else unchanged."""
        if self.root and argument.startswith("/"):
            here = self.root / argument.lstrip("/")
            if here.exists():
                return str(here)
        return argument

    def furnish(self, directory: Path) -> None:
        """Make a working directory; what lies in the root appears there as links, new files stay apart."""
        directory.mkdir(parents=True, exist_ok=True)
        for found in self.root.iterdir() if self.root else ():
            link = directory / found.name
            if not link.is_symlink() and not link.exists() and directory not in (found, *found.parents):
                link.symlink_to(found)

    def find_program(self, program: str, inherited: str) -> str | None:
        """Return where a program is, or None."""
        return shutil.which(self.resolve(program), path=self.search_path(inherited))


def find_image(name: str, images: Mapping[str, Path]) -> Image:
    """Return the environment for an image: mapped by its full name, else by its name without tag and digest."""
    untagged = name.partition("@")[0]
    if ":" in untagged.rpartition("/")[2]:
        untagged = untagged.rpartition(":")[0]
    return Image(name=name, root=images.get(name, images.get(untagged)))


def check_images(images: Mapping[str, str | Path]) -> dict[str, Path]:
    """Return the mapping with absolute directories.

    Raises:
        InvalidInput: A directory does not exist.
    """
    found = {name: Path(directory).absolute() for name, directory in images.items()}
    for name, directory in found.items():
        require(directory.is_dir(), "an image is mapped to a directory", image=name, directory=str(directory))
    return found

"""What stands for a container image on this machine: this Python, or a directory."""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from podium.errors import require


@dataclass(frozen=True, kw_only=True)
class Image:
    """A local environment for a container image."""

    name: str
    """The image as the manifest says it."""

    root: Path | None
    """A directory that stands for the image's root; None is this Python."""

    workdir: Path
    """What stands for the image's working directory: the root, else where the caller is."""

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

    def is_named(self, argv: Sequence[str]) -> bool:
        """Return whether a command needs what lies in the working directory: the root, or a file or module there."""
        words = [word for argument in argv for word in re.split(r"[\s='\"]+", argument)]
        parts = {word.removeprefix("./").partition("/")[0] for word in words} - {"", ".", ".."}
        modules = {f"{following.partition('.')[0]}.py" for word, following in pairwise(words) if word == "-m"}
        return self.root is not None or any((self.workdir / part).exists() for part in parts | modules)

    def furnish(self, directory: Path, argv: Sequence[str]) -> None:
        """Make a directory to work in.

        Files that the command needs of the working directory appear there as links, all of them, as they would in the
        image; new files stay apart. Without need it is empty: no file of the caller's gets in the way of an import.
        """
        directory.mkdir(parents=True, exist_ok=True)
        for found in self.workdir.iterdir() if self.is_named(argv) else ():
            link = directory / found.name
            if not link.is_symlink() and not link.exists() and found not in directory.parents:
                link.symlink_to(found)

    def find_program(self, program: str, inherited: str) -> str | None:
        """Return where a program is, or None."""
        return shutil.which(self.resolve(program), path=self.search_path(inherited))


@dataclass(frozen=True, kw_only=True)
class Images:
    """Which directory stands for which image."""

    roots: Mapping[str, Path]
    """Directories by image name, with or without tag."""

    workdir: Path
    """Working directory of any other image."""


def find_image(name: str, images: Images) -> Image:
    """Return the environment for an image: mapped by its full name, else by its name without tag and digest."""
    untagged = name.partition("@")[0]
    if ":" in untagged.rpartition("/")[2]:
        untagged = untagged.rpartition(":")[0]
    root = images.roots.get(name, images.roots.get(untagged))
    return Image(name=name, root=root, workdir=root or images.workdir)


def check_images(images: Mapping[str, str | Path]) -> Images:
    """Return the mapping with absolute directories; any other image works where this process is.

    Raises:
        InvalidInput: A directory does not exist.
    """
    found = {name: Path(directory).absolute() for name, directory in images.items()}
    for name, directory in found.items():
        require(directory.is_dir(), "an image is mapped to a directory", image=name, directory=str(directory))
    return Images(roots=found, workdir=Path.cwd())

"""Local environments for container images: this Python, or a directory."""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from podium.cluster.local.supplies import Supplies
from podium.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Image:
    """A local environment for a container image."""

    name: str
    """The image as the manifest says it."""

    root: Path | None
    """Directory used as the image's root; None for this Python."""

    workdir: Path
    """The image's working directory on this machine: the root, else the caller's working
    directory."""

    def search_path(self, inherited: str) -> str:
        """Return the PATH: the root's programs first, then this Python's, then the caller's."""
        folders = ["bin", "usr/local/bin", "usr/bin"] if self.root else []
        own = [
            str(self.root / folder)
            for folder in folders
            if self.root and (self.root / folder).is_dir()
        ]
        return os.pathsep.join([*own, str(Path(sys.executable).parent), inherited or os.defpath])

    def resolve(self, argument: str) -> str:
        """Return an absolute path of the image as it is called here, and anything else
        unchanged."""
        if self.root and argument.startswith("/"):
            here = self.root / argument.lstrip("/")
            if here.exists():
                return str(here)
        return argument

    def is_named(self, argv: Sequence[str]) -> bool:
        """Return whether a command needs the content of the working directory: the root, or a file
        or module there."""
        words = [word for argument in argv for word in re.split(r"[\s='\"]+", argument)]
        parts = {word.removeprefix("./").partition("/")[0] for word in words} - {"", ".", ".."}
        modules = {
            f"{following.partition('.')[0]}.py"
            for word, following in pairwise(words)
            if word == "-m"
        }
        return self.root is not None or any(
            (self.workdir / part).exists() for part in parts | modules
        )

    def furnish(self, directory: Path, argv: Sequence[str]) -> None:
        """Make a directory to work in.

        Files that the command needs of the working directory appear there as links, all of them, as
        they would in the image; new files stay apart. Without need it is empty: no file of the
        caller's gets in the way of an import.
        """
        directory.mkdir(parents=True, exist_ok=True)
        for file in self.workdir.iterdir() if self.is_named(argv) else ():
            link = directory / file.name
            if not link.is_symlink() and not link.exists() and file not in directory.parents:
                link.symlink_to(file)

    def find_program(self, program: str, inherited: str) -> str | None:
        """Return where a program is, or None."""
        return shutil.which(self.resolve(program), path=self.search_path(inherited))


@dataclass(frozen=True, kw_only=True)
class Images:
    """Local environments by image; images are named with or without tag and digest."""

    roots: Mapping[str, Path]
    """Directory by image."""

    entrypoints: Mapping[str, tuple[str, ...]]
    """Entrypoint by image."""

    workdir: Path
    """Working directory of any other image."""

    supplies: Supplies
    """What stands in for volumes, Secrets and ConfigMaps."""

    def entrypoint(self, name: str) -> tuple[str, ...]:
        """Return the entrypoint of an image, for a container without a command; empty if
        unknown."""
        return self.entrypoints.get(name, self.entrypoints.get(_untagged(name), ()))

    def find(self, name: str) -> Image:
        """Return the environment for an image: mapped by its full name, else by its name without
        tag and digest."""
        root = self.roots.get(name, self.roots.get(_untagged(name)))
        return Image(name=name, root=root, workdir=root or self.workdir)

    @classmethod
    def read(
        cls,
        images: Mapping[str, str | Path] | None,
        entrypoints: Mapping[str, Sequence[str]] | None = None,
        supplies: Supplies | None = None,
    ) -> "Images":
        """Return the mapping with absolute directories; any other image works where this process
        is.

        Raises:
            InvalidInput: A directory does not exist, or an entrypoint has no words.
        """
        roots = {name: Path(directory).absolute() for name, directory in (images or {}).items()}
        for name, directory in roots.items():
            if not directory.is_dir():
                raise InvalidInput(
                    f"image {name} is mapped to {directory}, which is not a directory"
                )
        commands = {name: tuple(words) for name, words in (entrypoints or {}).items()}
        for name, words in commands.items():
            if not words:
                raise InvalidInput(f"the entrypoint of image {name} is empty")
        return cls(
            roots=roots, entrypoints=commands, workdir=Path.cwd(), supplies=supplies or Supplies()
        )


def _untagged(name: str) -> str:
    name = name.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name

"""Volumes, Secrets and ConfigMaps, which a cluster would give to a pod, by the places that a
command names for them.

A Secret or ConfigMap is a directory with a file for each key, a file, or ``env``, the environment
of podium. A file is a manifest of that kind, lines ``KEY=VALUE``, or the value of one key that has
the file's name.
"""

import base64
import binascii
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from podium.errors import InvalidInput
from podium.files.documents import load_yaml, read_text
from podium.manifests.fields import mapping

ENVIRONMENT = "env"
"""Stands for podium's own environment, in place of a file."""

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={1,2}")
_LINE = re.compile(r"(?:export\s+)?([\w.-]+)=(?:(['\"])(.*)\2|(.*))")


@dataclass(frozen=True, kw_only=True)
class Supplies:
    """Places by the name of a volume, a Secret and a ConfigMap; of a volume also its claim's
    name."""

    volume: Mapping[str, str] = field(default_factory=dict)
    secret: Mapping[str, str] = field(default_factory=dict)
    config_map: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> list[str]:
        """The options as they are written."""
        return [
            f"{_option(kind)} {name}={place}"
            for kind, places in vars(self).items()
            for name, place in places.items()
        ]

    def checked(self) -> Self:
        """Return these with absolute places.

        Raises:
            InvalidInput: One is not there, or cannot be read.
        """
        for name, place in self.volume.items():
            if not Path(place).is_dir():
                raise InvalidInput(f"--volume {name}={place} is not a directory", "create it")
        for kind in ("secret", "config_map"):
            for name in getattr(self, kind):
                self._keys(kind, name)
        return replace(
            self, **{kind: _absolute(places) for kind, places in vars(self).items() if places}
        )

    def directory(self, name: str, field: str) -> Path:
        """Return the directory of a volume.

        Args:
            field: The field that asks for it, for the error.

        Raises:
            InvalidInput: No option names one.
        """
        if name not in self.volume:
            raise _missing(field, "volume", name, f"--volume {name}=DIR")
        return Path(self.volume[name])

    def value(
        self, kind: str, name: str, key: str, *, field: str, variable: str = "", optional: Any = ()
    ) -> str | None:
        """Return the value of a key, None where it is optional and not there.

        Args:
            kind: ``secret`` or ``config_map``.
            field: The field that asks for it, for the error.
            variable: Name that the value gets in the environment, which podium's own environment
                may have it under.

        Raises:
            InvalidInput: No option names such a Secret or ConfigMap, or it has no such key.
        """
        keys = self.values(kind, name, field=field, variable=variable, optional=optional)
        if variable and getattr(self, kind).get(name) == ENVIRONMENT and variable in keys:
            return keys[variable]
        if key not in keys and not optional:
            source = getattr(self, kind)[name]
            held = "" if source == ENVIRONMENT else f": it has {', '.join(keys) or 'none'}"
            raise InvalidInput(
                f"{field}: {_option(kind)} {name}={source} has no key {key!r}{held}",
                f"export {variable or key}=…" if source == ENVIRONMENT else "add it",
            )
        return keys.get(key)

    def values(
        self, kind: str, name: str, *, field: str, variable: str = "", optional: Any = ()
    ) -> Mapping[str, str]:
        """Return all keys of a Secret or ConfigMap; none where it is optional and not named.

        Args and errors as of value.
        """
        if name not in getattr(self, kind):
            if optional:
                return {}
            places = f"{_option(kind)} {name}=FILE, a directory, or env"
            places += f"; or export {variable}=…" if variable else ""
            raise _missing(field, kind.replace("_", " "), name, places)
        return self._keys(kind, name)

    def files(self, kind: str, name: str, *, field: str, optional: Any = ()) -> Mapping[str, str]:
        """Return the content of a file for each key, to be mounted.

        Args and errors as of value.
        """
        keys = self.values(kind, name, field=field, optional=optional)
        if self.is_environment(kind, name):
            hint = f"{_option(kind)} {name}=DIR, with a file for each key"
            raise InvalidInput(f"{field}: the environment cannot be mounted for {name!r}", hint)
        return keys

    def folder(self, kind: str, name: str, into: Path, *, field: str, optional: Any = ()) -> Path:
        """Return a directory with a file for each key: its own, else ``into``, which is filled.

        Args and errors as of value.
        """
        place = getattr(self, kind).get(name, ENVIRONMENT)
        if place != ENVIRONMENT and Path(place).is_dir():
            return Path(place)
        write_files(into, self.files(kind, name, field=field, optional=optional))
        return into

    def is_environment(self, kind: str, name: str) -> bool:
        """Return whether podium's own environment stands for a Secret or ConfigMap."""
        return getattr(self, kind).get(name) == ENVIRONMENT

    def _keys(self, kind: str, name: str) -> Mapping[str, str]:
        place = getattr(self, kind)[name]
        if place == ENVIRONMENT:
            return os.environ
        path = Path(place)
        try:
            if path.is_dir():
                return {
                    file.name: file.read_text()
                    for file in sorted(path.iterdir())
                    if file.is_file() and not file.name.startswith(".")
                }
            return _in_file(path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise InvalidInput(
                f"{_option(kind)} {name}={place} cannot be read: {why}",
                "name a file, a directory with a file for each key, or env",
            ) from None


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files of a Secret or ConfigMap, for this user alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(content, encoding="utf-8")


def _in_file(path: Path) -> Mapping[str, str]:
    text = read_text(path)
    with suppress(InvalidInput):
        for document in load_yaml(text, str(path), kubectl=True):
            if isinstance(document, dict) and document.get("kind") in ("Secret", "ConfigMap"):
                return dict(_in_manifest(document))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [_LINE.fullmatch(line) for line in lines if not line.startswith("#")]
    keys = {match[1]: match[3] or match[4] or "" for match in found if match}
    # A single value in base64 ends with =, too, and no message may show it.
    is_base64 = len(lines) == 1 and len(lines[0]) % 4 == 0 and _BASE64.fullmatch(lines[0])
    return keys if keys and all(found) and not is_base64 else {path.name: text}


def _in_manifest(document: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for key, value in mapping(document.get("data")).items():
        try:
            coded = document["kind"] == "Secret"
            lines = b"".join(value.encode().split()) if coded else b""  # as base64 folds them
            yield key, base64.b64decode(lines, validate=True).decode() if coded else str(value)
        except (binascii.Error, AttributeError):
            raise ValueError(f"data.{key} is not base64; stringData takes plain text") from None
    for key, value in mapping(document.get("stringData")).items():
        yield key, str(value)


def _absolute(places: Mapping[str, str]) -> dict[str, str]:
    return {
        name: place if place == ENVIRONMENT else str(Path(place).absolute())
        for name, place in places.items()
    }


def _option(kind: str) -> str:
    return f"--{kind.replace('_', '-')}"


def _missing(field: str, kind: str, name: str, options: str) -> InvalidInput:
    return InvalidInput(f"{field}: there is no {kind} {name!r} on this machine", options)


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
        """Return whether a command needs the content of the working directory: the root, a file or
        module there, also below src/, a command that its project installs, or a target of its
        Makefile."""
        words = [word for argument in argv for word in re.split(r"[\s='\"]+", argument)]
        parts = {word.removeprefix("./").partition("/")[0] for word in words} - {"", ".", ".."}
        modules = {
            following.partition(".")[0] for word, following in pairwise(words) if word == "-m"
        }
        named = parts | {f"{folder}{module}" for module in modules for folder in ("", "src/")}
        named |= {f"{module}.py" for module in modules}
        named |= {*_MAKEFILES} if "make" in words else set()
        if self.root is not None or any(os.path.exists(self.workdir / name) for name in named):
            return True
        if {os.path.basename(word) for word in words} & _scripts(self.workdir / "pyproject.toml"):
            return True
        odd = [file.name for file in self.workdir.glob("*[ \t\n='\"]*")]  # no words of its own
        forms = [form for name in odd for form in (name, shlex.quote(name))]
        return any(form in argument for form in forms for argument in argv)

    def furnish(self, directory: Path, argv: Sequence[str]) -> None:
        """Make a directory to work in.

        Files that the command needs of the working directory appear there as links, all of them, as
        they would in the image; new files stay apart. Without need it is empty: no file of the
        caller's gets in the way of an import.
        """
        directory.mkdir(parents=True, exist_ok=True)
        around = {*map(str, directory.parents)}
        for name in os.listdir(self.workdir) if self.is_named(argv) else ():
            link, file = os.path.join(directory, name), os.path.join(self.workdir, name)
            if not os.path.lexists(link) and file not in around:
                os.symlink(file, link)


_MAKEFILES = ("Makefile", "makefile", "GNUmakefile")


def _scripts(project: Path) -> set[str]:
    """Return the names of the commands that a project installs; none of a file that is not there or
    is damaged."""
    with suppress(OSError, ValueError, AttributeError):
        document = tomllib.loads(project.read_text(encoding="utf-8"))
        poetry = document.get("tool", {}).get("poetry", {})
        return {*document.get("project", {}).get("scripts", {}), *poetry.get("scripts", {})}
    return set()


@dataclass(frozen=True, kw_only=True)
class Images:
    """Local environments by image; images are named with or without tag and digest."""

    roots: Mapping[str, Path]
    entrypoints: Mapping[str, tuple[str, ...]]
    workdir: Path
    """Working directory of any other image."""

    supplies: Supplies

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

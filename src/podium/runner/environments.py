"""Environments of components: what one installs before it runs is installed once, in a virtual
environment of its own, which is kept by its content."""

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from podium.errors import Failed
from podium.files.drafts import appearing
from podium.runner.compiled import EXECUTOR
from podium.runner.steps import OWN_IMAGES, installing

_VALUED = {"--index-url", "-i", "--extra-index-url", "--trusted-host", "--find-links", "-f"}
_QUIET = {"--quiet", "-q", "--no-warn-script-location", "--user", "--disable-pip-version-check"}
_EXECUTORS_OWN = re.compile(r"(kfp|typing[-_]extensions)\b(?![-_.])")
_OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_DAY = 86400.0
_BUILDING = threading.Lock()

Say = Callable[[str], object]
"""Takes a line for the log of a step."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """An environment that a component asks for."""

    installs: tuple[tuple[str, ...], ...]
    """Arguments of each ``pip install``, in order."""

    python: str
    """Its Python: a path."""

    sees_ours: bool
    """Whether packages of podium's environment stand in for those of the image, of which nothing is
    known."""

    @property
    def seeds(self) -> tuple[tuple[str, ...], ...]:
        """Arguments that install what an image of Python holds: pip, and before 3.12 setuptools,
        with pkg_resources."""
        if self.sees_ours:
            return ()
        return (("pip", "setuptools<80; python_version<'3.12'", "wheel; python_version<'3.12'"),)

    @property
    def key(self) -> str:
        """Digest of all that is in it."""
        parts = [
            self.seeds,
            self.installs,
            self.python,
            sysconfig.get_path("purelib") * self.sees_ours,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]

    @classmethod
    def of(cls, container: Mapping[str, Any]) -> Self | None:
        """Return the environment that a container asks for; None for podium's own.

        A component in a plain image of Python sees what it installs, and nothing else, with the
        Python of its image where this machine has that. One that installs nothing runs in podium's
        own environment.
        """
        image, installs = str(container.get("image", "")), tuple(_installs(installing(container)))
        packages = [package for install in installs for package in _named(install)]
        words = " ".join(map(str, container.get("command", ())))
        only_kfp = all(map(_EXECUTORS_OWN.match, packages)) and EXECUTOR in words
        if not packages or only_kfp or image in OWN_IMAGES:
            return None
        plain = re.search(r"(?:^|/)python:(\d+\.\d+)", image)
        if plain and any("kfp" in package for package in packages):
            python = _python(plain[1]) or sys.executable
            return cls(installs=installs, python=python, sees_ours=False)
        return cls(installs=installs, python=sys.executable, sees_ours=True)

    def made(self, folder: Path, component: str, say: Say) -> Path:
        """Return the directory with its programs; it is made unless it is kept.

        Args:
            folder: Where environments are kept.
            component: Name of the step, for the error.

        Raises:
            Failed: Something cannot be installed; nothing of it is kept.
        """
        place = folder / self.key
        folder.mkdir(parents=True, exist_ok=True)
        with _BUILDING, _locked(folder):
            if not place.is_dir():
                _sweep(folder)
                with appearing(place) as draft:
                    _make(self, draft, component, say)
                    _move_scripts(draft, place)
        return place / "bin"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait for another run that makes an environment, maybe the same one."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _make(environment: Environment, draft: Path, component: str, say: Say) -> None:
    uv, python = shutil.which("uv", path=_search_path()), str(draft / "bin/python")
    make = [uv, "venv", "--no-project"] if uv else [sys.executable, "-m", "venv"]
    if not uv and environment.python != sys.executable:
        make[0] = environment.python
    make += ["--python", environment.python] if uv else []
    _run([*make, str(draft)], component, say)
    pip = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    for install in (*environment.seeds, *environment.installs):
        _run([*pip, *install], component, say)
    if environment.sees_ours:
        (packages,) = draft.glob("lib/python*/site-packages")
        folders = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        lines = [f"import site; site.addsitedir({folder!r})\n" for folder in folders]
        (packages / "image.pth").write_text("".join(lines))


def _run(command: Sequence[str], component: str, say: Say) -> None:
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    if "PIP_INDEX_URL" in env:
        env.setdefault("UV_DEFAULT_INDEX", env["PIP_INDEX_URL"])
    if "PIP_FIND_LINKS" in env:
        env.setdefault("UV_FIND_LINKS", env["PIP_FIND_LINKS"].replace(" ", ","))
    say(f"installing: {shlex.join(command)}")
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=env, stdin=subprocess.DEVNULL
    )
    printed = f"{done.stdout}{done.stderr}".rstrip()
    if printed:
        say(printed)
    if done.returncode:
        raise Failed(
            f"the environment of step {component} cannot be made: {_reason(printed)}",
            "its packages_to_install say what it needs",
        )


def _reason(printed: str) -> str:
    """Return in one sentence why uv or pip failed."""
    lines = [re.sub(r"[│╰├─▶×╭]+|^ *cause:", " ", line).strip() for line in printed.splitlines()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    because = next((at for at, line in enumerate(lines) if line.startswith("Because")), None)
    if because is not None:
        said = " ".join(lines[because:]).partition(" hint:")[0]
    else:
        said = errors[-1] if errors else " ".join(lines[-4:]).partition("error: ")[2]
    return " ".join(said.split())[:400].rstrip(". ") or "it printed nothing"


def _installs(script: str) -> Iterator[tuple[str, ...]]:
    """Yield the arguments of each ``pip install`` in a script that KFP's compiler wrote."""
    for text in re.findall(r"-m\s+pip\s+install\s+(.*?)(?:&&|\|\||\n|$)", script):
        words = iter(shlex.split(text))
        kept: list[str] = []
        for word in words:
            if word == "--trusted-host":
                host = next(words, "")
                kept += [word, urlsplit(host).netloc or host]
            elif word not in _QUIET:
                kept.append(word)
        if kept:
            yield tuple(kept)


def _named(install: Sequence[str]) -> Iterator[str]:
    words = iter(install)
    for word in words:
        if word in _VALUED:
            next(words, None)
        elif not word.startswith("-"):
            yield word


def _python(version: str) -> str:
    """Return another Python of this machine; empty for podium's own version, or where there is
    none."""
    if version == _OWN_VERSION:
        return ""
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
        return found
    if uv := shutil.which("uv", path=_search_path()):
        command = [uv, "python", "find", "--no-python-downloads", "--no-project", version]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def _search_path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _move_scripts(draft: Path, place: Path) -> None:
    for file in (draft / "bin").iterdir():
        if file.is_file() and not file.is_symlink() and file.read_bytes()[:2] == b"#!":
            file.write_bytes(file.read_bytes().replace(os.fsencode(draft), os.fsencode(place), 1))


def _sweep(folder: Path) -> None:
    for left in folder.glob(".podium-*.tmp"):
        if time.time() - left.stat().st_mtime > _DAY:
            shutil.rmtree(left, ignore_errors=True)

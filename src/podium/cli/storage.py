"""`podium storage`: check a bucket or directory, copy into it and out of it, list it; the cache on
this machine."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path

import click

from podium.cli.options import Commands, json_option
from podium.display.terminal import Styled, echo, echo_json, output, progress_bar, styled
from podium.display.text import harmless, plural, size
from podium.errors import NotFound
from podium.storage import Entry, connect, local_path
from podium.storage.transfer import bytes_in, get, put
from podium.system.settings import Settings


@click.group(cls=Commands)
def storage() -> None:
    """Check a bucket or directory, copy data into it and out of it; empty the cache on this
    machine."""


@storage.command("check")
@click.argument("url", required=False)
@click.option("--create", is_flag=True, help="Create the bucket or directory if it does not exist.")
@json_option
def _check(url: str | None, create: bool, as_json: bool) -> None:
    """Test everything podium needs of a storage, and suggest fixes.

    URL is a directory, s3://bucket/prefix or minio://bucket/prefix; without it the default storage
    is tested.
    The server's address and the credentials are read from the environment: see docs/registry.md.

    \b
    Examples:
      podium storage check
      MINIO_ENDPOINT=http://localhost:9000 podium storage check minio://models --create
    """
    from podium.storage.check import check as run

    directory = local_path(url) if url else None
    if directory and not create and not directory.exists():
        raise NotFound(
            f"there is no directory {directory}",
            f"podium storage check {shlex.quote(str(url))} --create",
        )
    opened = connect(url or Settings.from_environment().storage, create=create)
    results = []
    for result in run(opened):
        results.append(result)
        if not as_json:
            mark = styled("ok  ", fg="green") if result.ok else styled("FAIL", fg="red")
            echo(Styled(f"{mark}  {result.name:<22}  {harmless(result.detail)}"))
            if result.hint:
                echo(f"      hint: {result.hint}")
    if as_json:
        echo_json({"url": opened.url, "checks": [asdict(result) for result in results]})
    if not all(result.ok for result in results):
        sys.exit(1)


@storage.command("put")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("url")
@click.option("--create", is_flag=True, help="Create the bucket if it does not exist.")
@click.option("--overwrite", is_flag=True, help="Replace existing objects.")
@json_option
def _put(source: Path, url: str, create: bool, overwrite: bool, as_json: bool) -> None:
    """Copy a file, or the content of a directory, to URL.

    A file keeps its name below URL, unless URL itself ends in that name, as in s3://raw/rows.csv.
    The content of a directory goes directly below URL. The server's address and the credentials are
    read from the environment: see docs/registry.md.

    \b
    Examples:
      podium storage put podium-work/data/mnist s3://datasets/mnist --create
      podium storage put houses.csv s3://raw/houses.csv
    """
    folder, _, last = url.rpartition("/")
    names_file = (
        bool(source.suffix)
        and Path(last).suffix.lower() == source.suffix.lower()
        and source.is_file()
    )
    folder, name = (folder, last) if names_file else (url.rstrip("/"), source.name)
    with progress_bar(bytes_in(source), "copying") as moved:
        entries = put(
            source, connect(folder, create=create), name=name, overwrite=overwrite, progress=moved
        )
    _report(entries, f"to {folder}/{name}" if source.is_file() else f"to {url}", as_json)


@storage.command("get")
@click.argument("url")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@json_option
def _get(url: str, directory: Path, as_json: bool) -> None:
    """Copy everything below URL into a directory; existing files are not replaced.

    \b
    Example:
      podium storage get s3://models/runs/nightly/trials/random-k2f9 model
    """
    opened = connect(url)
    with progress_bar(sum(entry.size for entry in opened.list()), "copying") as moved:
        entries = get(opened, directory, progress=moved)
    _report(entries, f"to {directory}", as_json)


@storage.command("list")
@click.argument("url", required=False)
@json_option
def _list(url: str | None, as_json: bool) -> None:
    """List the objects below URL, or in the default storage: time, bytes, key.

    \b
    Example:
      podium storage list s3://datasets
    """
    entries = connect(url or Settings.from_environment().storage).list()
    if as_json:
        echo_json([_row(entry) for entry in entries])
        return
    for entry in entries:
        echo(f"{entry.modified:%Y-%m-%d %H:%M}  {entry.size:>15,}  {entry.key}")


@storage.command("cache")
@click.option("--empty", is_flag=True, help="Remove everything that no running process uses.")
@json_option
def _cache(empty: bool, as_json: bool) -> None:
    """Show the size and place of the cache of remote datasets; --empty clears it.

    A dataset in a bucket is fetched once into the directory PODIUM_CACHE. Beyond PODIUM_CACHE_GB
    (10) gigabytes, the least recently used files make room for new ones.

    \b
    Examples:
      podium storage cache
      podium storage cache --empty
    """
    from podium.data.cache import ObjectCache

    opened = ObjectCache.of(Settings.from_environment())
    removed = opened.evict(0) if empty else []
    kept, freed = (
        {"files": len(files), "bytes": sum(file.bytes for file in files)}
        for files in (opened.files(), removed)
    )
    report = {"directory": str(opened.directory), "limit": opened.limit, **kept, "removed": freed}
    held = f"{plural(kept['files'], 'file')}, {size(kept['bytes'])}"
    lines = [
        *([f"removed {plural(freed['files'], 'file')}, {size(freed['bytes'])}"] if empty else []),
        f"{held} of at most {opened.limit / 1e9:g} GB, in {opened.directory}",
    ]
    output(as_json, report, lambda: "\n".join(lines))


def _report(entries: list[Entry], where: str, as_json: bool) -> None:
    text = f"copied {plural(len(entries), 'file')}, {sum(entry.size for entry in entries):,} bytes, {where}"
    output(as_json, [_row(entry) for entry in entries], lambda: text)


def _row(entry: Entry) -> dict[str, str | int]:
    return {"key": entry.key, "bytes": entry.size, "modified": entry.modified.isoformat()}

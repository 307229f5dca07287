"""Logs of replicas: files, readable while they grow and from any process."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from podium.cluster.base import MOST_LINE
from podium.cluster.local.store import Store, read_json
from podium.display.text import last_said
from podium.errors import NotFound
from podium.manifests.conditions import status_of
from podium.manifests.kinds import JOB_KINDS
from podium.manifests.workload import Workload

_LOOK = 0.1
"""Seconds between checks of a growing file."""

_CHUNK = 1 << 20
_TAIL = 4096


def read_log(
    store: Store, kind: str, name: str, replica: str | None, follow: bool
) -> Iterator[str]:
    """Yield the lines of a replica's log, without line ends.

    Args:
        kind: A kind of job, or Trial.
        replica: None is the one that reports metrics: that of the role which decides about
            the job, such as master-0; of a Job the last pod.
        follow: Go on until the replica has ended.

    Raises:
        NotFound: There is no such object or replica.
    """
    manifest, directory = store.read(kind, name), store.path(kind, name)
    if kind == "Trial" and not (directory / "logs").exists():
        kind = next((job for job in JOB_KINDS if store.exists(job, name)), "Job")
        manifest, directory = store.read(kind, name), store.path(kind, name)
    names = _replica_names(Workload.parse(manifest), directory)
    chosen = replica or names[0]
    if chosen not in names:
        raise NotFound(f"{kind} {name} has no replica {chosen}", f"there are: {', '.join(names)}")
    log = directory / "logs" / f"{chosen}.log"
    return _follow(store, kind, name, log) if follow else _lines(log)


def read_last_run(
    store: Store, kind: str, name: str, replicas: Sequence[str] = (), holding: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the lines that replicas of a job printed since their last start.

    Katib's collector sees no others: the shell around the command begins its file anew.

    Args:
        replicas: The one that reports metrics if empty.
        holding: Lines without any of these texts may be left out.
    """
    directory = store.path(kind, name)
    records = read_json(directory / "pods.json", list)
    for chosen in replicas or _replica_names(Workload.parse(store.read(kind, name)), directory)[:1]:
        start = next((record["logFrom"] for record in records if record["replica"] == chosen), 0)
        yield from _lines(directory / "logs" / f"{chosen}.log", start, holding)


def last_line(store: Store, kind: str, name: str) -> str:
    """Return the last line of a job's output: of the replica that reports metrics, else of another;
    empty if there is none."""
    directory = store.path(kind, name)
    for chosen in _replica_names(Workload.parse(store.read(kind, name)), directory):
        path = directory / "logs" / f"{chosen}.log"
        if not path.is_file():
            continue
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _TAIL))
            lines = log.read().decode(errors="replace").splitlines()
        if said := last_said(lines):
            return said
    return ""


def _replica_names(job: Workload, directory: Path) -> list[str]:
    """Return the replicas of a job; the one that reports metrics is first."""
    if job.has_roles:
        replicas = sorted(job.replicas, key=lambda replica: not replica.leads)
        return [
            f"{replica.role.lower()}-{index}"
            for replica in replicas
            for index in range(replica.count)
        ]
    names = [path.stem for path in (directory / "logs").glob("*.log") if "." not in path.stem]
    return sorted(names, key=lambda name: (-int(name.rpartition("-")[2]), name)) or ["pod-0"]


class GrowingFile:
    """The lines of a file, in bounded memory whatever it holds: long lines are cut.

    Args:
        start: Offset to begin at.
        holding: If given, lines without any of these texts may be left out.
    """

    def __init__(self, path: Path, start: int = 0, holding: Sequence[str] = ()) -> None:
        self._path, self._at, self._rest = path, start, b""
        self._holding = [text.encode() for text in holding]

    def lines(self) -> Iterator[str]:
        """Yield the whole lines that were written since the last call."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            while chunk := file.read(_CHUNK):
                self._at += len(chunk)
                whole, newline, rest = (self._rest + chunk).rpartition(b"\n")
                self._rest = rest[:MOST_LINE]
                if newline and (not self._holding or any(text in whole for text in self._holding)):
                    for line in whole.split(b"\n"):
                        yield line[:MOST_LINE].decode(errors="replace")

    def last(self) -> str:
        """Return the text after the last line end."""
        return self._rest.decode(errors="replace")


def _lines(log: Path, start: int = 0, holding: Sequence[str] = ()) -> Iterator[str]:
    file = GrowingFile(log, start, holding)
    yield from file.lines()
    if rest := file.last():
        yield rest


def _follow(store: Store, kind: str, name: str, log: Path) -> Iterator[str]:
    while not log.exists() and not _has_ended(store, kind, name, log.stem):
        time.sleep(_LOOK)
    if not log.exists():
        return
    file, ended = GrowingFile(log), False
    while not ended:
        # Asked before reading: what was written before the end is in the file then.
        ended, count = _has_ended(store, kind, name, log.stem), 0
        for line in file.lines():
            count += 1
            yield line
        if not count and not ended:
            time.sleep(_LOOK)
    if rest := file.last():
        yield rest


def _has_ended(store: Store, kind: str, name: str, replica: str) -> bool:
    try:
        finished = status_of(store.read(kind, name)).finished
        records = read_json(store.path(kind, name) / "pods.json", list)
    except NotFound:
        return True
    except FileNotFoundError:
        return finished
    record = next((record for record in records if record["replica"] == replica), None)
    if record is None:
        return finished
    ended = record["phase"] in ("Succeeded", "Failed", "Stopped") and not record["pid"]
    return finished and (ended or not store.is_supervised(kind, name))

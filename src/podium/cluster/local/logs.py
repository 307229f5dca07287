"""Logs of replicas: files, readable while they grow and from any process."""

import time
from collections.abc import Iterator
from pathlib import Path

from podium.cluster.base import Manifest
from podium.cluster.local.jsonfile import read_json
from podium.cluster.local.store import Store
from podium.errors import NotFound
from podium.manifests.conditions import status_of

_LOOK = 0.1
"""Seconds between looks at a growing file."""


def read_log(store: Store, kind: str, name: str, replica: str | None, follow: bool) -> Iterator[str]:
    """Yield the lines of a replica's log, without line ends.

    Args:
        store: The objects.
        kind: PyTorchJob, Job or Trial.
        name: The object's name.
        replica: None is the one that reports metrics: master-0, without a Master worker-0, of a Job the last pod.
        follow: Go on until the replica has ended.

    Raises:
        NotFound: There is no such object or replica.
    """
    manifest = store.read(kind, name)
    if kind == "Trial" and not (store.place(kind, name) / "logs").exists():
        kind = next((one for one in ("PyTorchJob", "Job") if store.exists(one, name)), "PyTorchJob")
        manifest = store.read(kind, name)
    place = store.place(kind, name)
    names = replica_names(manifest, place)
    chosen = replica or names[0]
    if chosen not in names:
        raise NotFound(f"{kind} {name} has no replica {chosen}", f"there are: {', '.join(names)}")
    log = place / "logs" / f"{chosen}.log"
    return _follow(store, kind, name, log) if follow else _lines(log)


def read_last_run(store: Store, kind: str, name: str) -> Iterator[str]:
    """Yield the lines that the reporting replica of a PyTorchJob or Job printed since its last start.

    Katib's collector sees no others: the shell around the command begins its file anew.
    """
    place = store.place(kind, name)
    chosen = replica_names(store.read(kind, name), place)[0]
    records = read_json(place / "pods.json", list)
    start = next((one["logFrom"] for one in records if one["replica"] == chosen), 0)
    return _lines(place / "logs" / f"{chosen}.log", start)


def replica_names(manifest: Manifest, place: Path) -> list[str]:
    """Return the replicas of an object; the one that reports metrics is first."""
    if manifest["kind"] == "PyTorchJob":
        specs = {str(kind).lower(): spec for kind, spec in manifest["spec"]["pytorchReplicaSpecs"].items()}
        counts = {kind: 1 if one.get("replicas") is None else one["replicas"] for kind, one in sorted(specs.items())}
        return [f"{kind}-{index}" for kind, count in counts.items() for index in range(count)]
    found = [path.stem for path in (place / "logs").glob("*.log") if "." not in path.stem]
    return sorted(found, key=lambda stem: (-int(stem.rpartition("-")[2]), stem)) or ["pod-0"]


def _lines(log: Path, start: int = 0) -> Iterator[str]:
    if log.exists():
        with log.open(encoding="utf-8", errors="replace", newline="\n") as file:
            file.seek(start)
            for line in file:
                yield line.rstrip("\n")


def _follow(store: Store, kind: str, name: str, log: Path) -> Iterator[str]:
    while not log.exists() and not _has_ended(store, kind, name, log.stem):
        time.sleep(_LOOK)
    if not log.exists():
        return
    with log.open(encoding="utf-8", errors="replace", newline="\n") as file:
        rest = ""
        while True:
            # Asked before reading: what was written before the end is in the file then.
            ended = _has_ended(store, kind, name, log.stem)
            *lines, rest = (rest + file.read()).split("\n")
            yield from lines
            if ended:
                break
            if not lines:
                time.sleep(_LOOK)
        if rest:
            yield rest


def _has_ended(store: Store, kind: str, name: str, replica: str) -> bool:
    try:
        finished = status_of(store.read(kind, name)).finished
        records = read_json(store.place(kind, name) / "pods.json", list)
    except NotFound:
        return True
    except FileNotFoundError:
        return finished
    found = [one for one in records if one["replica"] == replica]
    ended = bool(found) and found[0]["phase"] in ("Succeeded", "Failed", "Stopped") and not found[0]["pid"]
    return finished and (ended or not found or not store.is_supervised(kind, name))

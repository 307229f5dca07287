"""Objects of the embedded cluster as readable files, with the metadata that an API server fills in.

``<dir>/<plural>/<name>/object.json`` is replaced atomically, so any process may read it at any
time. Only the process that supervises an object writes it; another process asks for a deletion by
leaving a file beside it.
"""

import fcntl
import json
import math
import os
import secrets
import shlex
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from podium.cluster.base import KINDS
from podium.display.terminal import readable
from podium.display.text import cut
from podium.errors import Conflict, Damaged, Failed, InvalidInput, NotFound
from podium.files.documents import write_json
from podium.manifests.conditions import LOST, Conditions, Manifest, status_of, timestamp
from podium.manifests.labels import EXPERIMENT
from podium.manifests.names import is_dns_1123
from podium.system.settings import Settings

T = TypeVar("T")


def read_json(path: Path, kind: type[T]) -> T:
    """Read a file that holds JSON of one type.

    Raises:
        FileNotFoundError, NotADirectoryError: There is none.
        Damaged: It holds something else.
    """
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):  # also bytes that are not UTF-8
        value = None
    return value if isinstance(value, kind) else _refuse(path)


def _read_object(path: Path) -> dict[str, Any]:
    value = read_json(path, dict)
    return value if _is_object(value) else _refuse(path)


_NEEDED = {
    "objective": {"type", "objectiveMetricName"},
    "algorithm": {"algorithmName"},
    "trialTemplate": set[str](),
}


def _is_object(value: dict[str, Any]) -> bool:
    metadata, spec, status = value.get("metadata"), value.get("spec"), value.get("status", {})
    if (
        not all(isinstance(part, dict) for part in (metadata, spec, status))
        or value.get("kind") not in KINDS
    ):
        return False
    assert isinstance(metadata, dict)
    assert isinstance(spec, dict)
    named = all(isinstance(metadata.get(name), str) for name in ("name", "uid")) and all(
        isinstance(metadata.get(name) or {}, dict) for name in ("labels", "annotations")
    )
    moments = status.get("startTime"), status.get("completionTime")
    dated = all(map(_is_time, (metadata.get("creationTimestamp"), *filter(None, moments))))
    conditions = status.get("conditions", [])
    whole = isinstance(conditions, list) and all(
        isinstance(part, dict) and {"type", "status"} <= part.keys() for part in conditions
    )
    needed = _NEEDED if value["kind"] == "Experiment" else {}
    parts = [(spec.get(part), names) for part, names in needed.items()]
    return (
        named
        and dated
        and whole
        and all(isinstance(part, dict) and names <= part.keys() for part, names in parts)
    )


def _is_time(value: object) -> bool:
    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(value).tzinfo is not None  # type: ignore[arg-type]
    return False


def _refuse(path: Path) -> NoReturn:
    raise Damaged(f"{path} is damaged", f"restore its content, or remove {path.parent}")


def new_metadata(metadata: Mapping[str, Any]) -> Manifest:
    """Return the metadata that a new object has beside its own."""
    # The uid begins with the time, so that objects of the same second still sort by age.
    uid = uuid.UUID(int=time.time_ns() << 64 | secrets.randbits(64))
    return {
        "namespace": metadata.get("namespace") or "default",
        "uid": str(uid),
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": timestamp(),
    }


class _Lease:
    """A lock held as long as this process lives or until it is released."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._path = directory / self.name
        self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        """Let go and remove the file; on a disk that has become read-only it stays, held by nobody."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def _is_held(path: Path) -> bool:
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _drop_dead(directory: Path) -> None:
    # To be called alone: a new one is not held for a moment.
    for path in directory.glob("*"):
        if not _is_held(path):
            path.unlink(missing_ok=True)


PLURALS = {kind: f"{kind.lower()}s" for kind in KINDS}
"""Folder of each kind, which is also its name in the Kubernetes API."""

POLL_SECONDS = 0.2
"""Seconds between checks of a file that another process may change."""

Token = tuple[int, int] | None


@lru_cache(maxsize=1024)
def _joined(folder: Path, name: str) -> Path:
    # Making a path takes longer than looking at the file, several times a trial for each.
    return folder / name


class _Supervision:
    """The processes that supervise objects: a file beside each object names its supervisor's lease.

    Args:
        path: Returns the directory of an object by kind and name.
        lock: The store's, between the threads of this process.
    """

    def __init__(
        self, directory: Path, path: Callable[[str, str], Path], lock: threading.RLock
    ) -> None:
        self.directory, self._path, self._lock = directory, path, lock
        self._lease: _Lease | None = None
        self._given_up: set[tuple[str, str]] = set()

    def claim(self, kind: str, name: str) -> None:
        """Record that this process supervises an object now; to be called alone."""
        with self._lock:
            if self._lease is None:
                _drop_dead(self.directory / "supervisors")
                for grave in self.directory.glob(
                    "*/.*.????????/"
                ):  # of a removal whose process was killed
                    shutil.rmtree(grave, ignore_errors=True)
                self._lease = _Lease(self.directory / "supervisors")
            self._given_up.discard((kind, name))
            write_json(
                self._path(kind, name) / "supervisor.json",
                {"lease": self._lease.name, "pid": os.getpid()},
            )

    def disown(self, kind: str, name: str) -> None:
        """Take that record back: any process may delete the object now; if it has not ended, it
        reads as lost.

        Possible even on a full disk, and within this process on one that has become read-only. A
        record that another process has written meanwhile stays.
        """
        if not self._path(
            kind, name
        ).exists():  # to be alone would make the directory of a cluster that was removed
            return
        try:
            with self.alone():
                if self._lease and self._lease_of(kind, name) == self._lease.name:
                    (self._path(kind, name) / "supervisor.json").unlink(missing_ok=True)
        except OSError:
            self._given_up.add((kind, name))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes and threads from taking an object over meanwhile; not to be entered
        twice."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def is_supervised(self, kind: str, name: str) -> bool:
        """Return whether a process that is alive supervises an object."""
        lease = self._lease_of(kind, name)
        if self._lease and lease == self._lease.name:
            return (kind, name) not in self._given_up
        return lease is not None and _is_held(self.directory / "supervisors" / lease)

    def is_supervised_elsewhere(self, kind: str, name: str) -> bool:
        """Return whether another store than this one supervises an object and is alive."""
        own = self._lease.name if self._lease else None
        return self._lease_of(kind, name) != own and self.is_supervised(kind, name)

    def _lease_of(self, kind: str, name: str) -> str | None:
        try:
            record = read_json(self._path(kind, name) / "supervisor.json", dict)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return str(record.get("lease"))

    def close(self) -> None:
        """Give up the claim on everything this process supervised."""
        with self._lock:
            if self._lease:
                self._lease.release()
                self._lease = None


class Store:
    """The objects under one directory; safe to use from several threads, readable from several
    processes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._folders = {kind: directory / plural for kind, plural in PLURALS.items()}
        self.option = ""  # of a command that is to find its Experiments, where that is not --dir
        self.runs_elsewhere: Callable[[str], bool] = lambda name: (
            False
        )  # an Experiment, by a process without this store
        self.trials_go_on = (
            False  # without the process that began them, where their jobs are a namespace's
        )
        self._lock = threading.RLock()
        self._changed: dict[tuple[str, str], threading.Condition] = {}
        self.supervision = _Supervision(directory, self.path, self._lock)

    def path(self, kind: str, name: str) -> Path:
        """Return the directory of an object, whether it exists or not.

        Raises:
            InvalidInput: The cluster knows no such kind.
            NotFound: No object can have this name.
        """
        if kind not in PLURALS:
            raise InvalidInput(
                f"a cluster on this machine has no {kind!r}", f"one of {', '.join(PLURALS)}"
            )
        if not is_dns_1123(name):
            raise NotFound(
                f"no {kind} {cut(name, 100)} in {self.directory}", _names_hint(self, kind)
            )
        return _joined(self._folders[kind], name)

    def _file(self, kind: str, name: str) -> Path:
        return _joined(self.path(kind, name), "object.json")

    def create(self, manifest: Manifest) -> Manifest:
        """Store a new object, supervised by this process from now on; metadata is filled in as an
        API server would.

        Raises:
            Conflict: An object of this kind and name exists.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        stored = manifest | {"metadata": metadata | new_metadata(metadata)}
        directory = self.path(kind, metadata["name"])
        with self.supervision.alone(), self._lock:
            if (directory / "object.json").exists():
                raise Conflict(
                    f"{kind} {metadata['name']} exists in {self.directory}",
                    "choose another name, or delete it first",
                )
            # For the owner alone: a manifest and its logs may hold passwords as plain environment
            # values.
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.supervision.claim(kind, metadata["name"])
            write_json(directory / "object.json", stored)
            self._notify(kind, metadata["name"])
        return stored

    def exists(self, kind: str, name: str) -> bool:
        return is_dns_1123(name) and self._file(kind, name).exists()

    def read(self, kind: str, name: str) -> Manifest:
        """Return an object; one that had not ended when its process died is Failed.

        Raises:
            NotFound: There is none.
            Damaged: Its file is.
        """
        return self._settle(self._load(kind, name))

    def _settle(self, manifest: Manifest) -> Manifest:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if not self._is_lost(manifest):
            return manifest
        manifest = self._load(
            kind, name
        )  # its end is written before its supervisor gives it up: maybe just now
        if self._is_lost(manifest):
            message = f"{kind} {name} was stopped: the process that ran it ended."
            if kind == "Experiment":
                message += f" Resume it with: {self.resume_command(name)}"
            Conditions(manifest.setdefault("status", {}), "operator").add(
                "Failed", f"{kind}{LOST}", message
            )
        return manifest

    def _is_lost(self, manifest: Manifest) -> bool:
        if (
            self.trials_go_on
            and manifest["kind"] == "Trial"
            and not self._was_stopped_with_its_experiment(manifest)
        ):
            return False
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if status_of(manifest).finished or self.supervision.is_supervised(kind, name):
            return False
        return kind != "Experiment" or not self.runs_elsewhere(name)

    def _was_stopped_with_its_experiment(self, trial: Manifest) -> bool:
        try:
            experiment = self._load("Experiment", trial["metadata"]["labels"][EXPERIMENT])
        except NotFound:
            return False
        return status_of(experiment).phase == "Stopped"

    def resume_command(self, experiment: str) -> str:
        """Return the command that resumes an Experiment of this cluster."""
        command = f"podium experiment resume {experiment}"
        if self.option:
            return f"{command} {self.option}"
        if self.directory == Settings.from_environment().cluster:
            return command
        return f"{command} --dir {shlex.quote(str(self.directory))}"

    def _load(self, kind: str, name: str) -> Manifest:
        try:
            return _read_object(self._file(kind, name))
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(
                f"no {kind} {name} in {self.directory}",
                _of_run(self, kind, name) or _names_hint(self, kind),
            ) from None

    def update(self, kind: str, name: str, change: Callable[[Manifest], None]) -> Manifest:
        """Apply a change to an object, write it and wake everyone who watches.

        Args:
            change: Alters the manifest in place. Nothing is written if it alters nothing.

        Raises:
            NotFound: There is none, or it was deleted meanwhile.
        """
        with self._lock:
            manifest = self._load(kind, name)
            before = json.dumps(manifest)
            change(manifest)
            if json.dumps(manifest) != before:
                metadata = manifest["metadata"]
                metadata["resourceVersion"] = str(int(metadata.get("resourceVersion", "0")) + 1)
                write_json(self._file(kind, name), manifest)
                self._notify(kind, name)
        return manifest

    def list(self, kind: str, labels: dict[str, str] | None = None) -> list[Manifest]:
        """Return the objects of a kind that carry all given labels, oldest first; one that cannot
        be read costs a warning.

        Raises:
            Damaged: It is a Trial: without it another would be the best of its sweep.
        """
        wanted = (labels or {}).items()
        folder = self.path(kind, "any").parent
        # A directory may hold the trials of hundreds of sweeps; their names begin with their
        # sweep's.
        sweep = (labels or {}).get(EXPERIMENT) if kind == "Trial" else None
        start = f"{sweep}-" if sweep else ""
        names = os.listdir(folder) if folder.exists() else ()

        def read(name: str) -> Manifest | None:
            manifest = _read_object(folder / name / "object.json")
            meant = wanted <= (manifest["metadata"].get("labels") or {}).items()
            return self._settle(manifest) if meant else None

        there = [name for name in names if name.startswith(start) and not name.startswith(".")]
        found = readable(there, read, lambda name: f"{kind} {name}", strict=kind == "Trial")
        return sorted(
            (manifest for manifest in found if manifest),
            key=lambda manifest: (
                manifest["metadata"]["creationTimestamp"],
                manifest["metadata"]["uid"],
            ),
        )

    def remove(self, kind: str, name: str) -> None:
        """Remove an object and its files; a missing object is not an error."""
        directory = self.path(kind, name)
        grave = directory.with_name(f".{name}.{secrets.token_hex(4)}")
        with self._lock:
            with suppress(FileNotFoundError):
                directory.rename(grave)
            self._notify(kind, name)
            self._changed.pop((kind, name), None)
        shutil.rmtree(grave, ignore_errors=True)

    def ask(self, action: str, kind: str, name: str) -> None:
        """Ask the supervising process, whichever it is, to ``stop`` an object and keep it, or to
        ``delete`` it."""
        if self.exists(kind, name):  # else the file would end the next object of this name
            with suppress(FileNotFoundError):
                (self.path(kind, name) / action).touch()

    def asked(self, kind: str, name: str) -> str:
        """Return what the supervising process is asked: ``delete``, ``stop`` or nothing."""
        # Asked many times a trial, and a Path costs more than the look.
        directory = str(self.path(kind, name))
        files = ((action, f"{directory}/{action}") for action in ("delete", "stop"))
        return next((action for action, file in files if os.path.exists(file)), "")

    def forget_stop(self, kind: str, name: str) -> None:
        """Take a stop back: the object continues."""
        (self.path(kind, name) / "stop").unlink(missing_ok=True)

    def _wait_for_change(self, kind: str, name: str, seen: Token, timeout: float) -> Token:
        """Wait until an object differs from what was seen, and return the new token.

        Args:
            seen: The token of the state already seen; None for "not there".
            timeout: Seconds at most; the same token comes back then.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            changed = self._changed.setdefault((kind, name), threading.Condition(self._lock))
            while (token := self._token(kind, name)) == seen and (
                left := deadline - time.monotonic()
            ) > 0:
                changed.wait(min(left, POLL_SECONDS))
        return token

    def changes(self, kind: str, name: str, timeout: float | None = None) -> Iterator[Manifest]:
        """Yield an object now and after every change; end when it was removed.

        Raises:
            NotFound: There is none at the start.
            Failed: The timeout passed.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        token, manifest = self._token(kind, name), self.read(kind, name)
        yield manifest
        while True:
            new = self._token(kind, name)
            if new != token or self._is_lost(manifest):
                token = new
                try:
                    manifest = self.read(kind, name)
                except NotFound:
                    return
                yield manifest
            if time.monotonic() >= deadline:
                raise Failed(
                    f"{kind} {name} did not end within {timeout:g} s",
                    "raise the timeout or look at its logs",
                )
            left = max(0.0, deadline - time.monotonic())
            self._wait_for_change(kind, name, token, min(POLL_SECONDS * 5, left))

    def _notify(self, kind: str, name: str) -> None:
        if changed := self._changed.get((kind, name)):
            changed.notify_all()

    def _token(self, kind: str, name: str) -> Token:
        try:
            file = os.stat(self._file(kind, name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return file.st_ino, file.st_mtime_ns


def _of_run(store: Store, kind: str, name: str) -> str:
    """Return which run has an object that the cluster outside of runs lacks; empty if none has."""
    settings = Settings.from_environment()
    if store.directory == settings.cluster:
        for place in settings.runs.glob(f"*/cluster/{PLURALS[kind]}/{name}/object.json"):
            run = place.relative_to(settings.runs).parts[0]
            return f"run {run} has it: --run {run}, in Python podium.runs()[{run!r}]"
    return ""


def _names_hint(store: Store, kind: str) -> str:
    names = [manifest["metadata"]["name"] for manifest in store.list(kind)][-5:]
    return f"there are: {', '.join(names)}" if names else f"there is no {kind} at all"

"""Experiments and trials in the files of a local cluster's store, and a copy of them in a storage."""

import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from podium.cluster.local.cluster import LocalCluster
from podium.errors import InvalidInput, NotFound, PodiumError
from podium.files.documents import load_json, write_json
from podium.files.drafts import replace
from podium.manifests.experiment import Experiment, Trial
from podium.manifests.experiment.optimization_job import with_status
from podium.manifests.labels import OPTIMIZATION_JOB
from podium.metrics import Reading
from podium.sweeps.base import AWAY_SECONDS, Documents

if TYPE_CHECKING:
    from podium.cluster.kubernetes.leadership import Leadership
    from podium.storage import Storage

OBJECT, _READINGS = "object.json", "readings.json"
"""Files in a trial's directory: the Trial, and every value it reported, as [name, value, time]."""


class FileDocuments(Documents):
    """An Experiment and its trials in files.

    Args:
        cluster: Cluster with the store.
        experiment: Its name.
        copy: Writes a copy of a file's content, before the file itself: nobody sees here an end
            that another process could not see, should this one end in between. None for no copy.
    """

    keeps_all_readings = True

    def __init__(
        self,
        cluster: LocalCluster,
        experiment: str,
        copy: Callable[[Path, bytes], None] | None = None,
    ) -> None:
        self._cluster, self._store, self._copy = cluster, cluster.store, copy
        self.directory = self._store.path("Experiment", experiment)
        self.resume_command = self._store.resume_command(experiment)

    def trials(self, experiment: str) -> Sequence[Trial]:
        return [
            trial if trial.has_ended else self._claimed(trial.name)
            for trial in self._cluster.trials(experiment)
        ]

    def _claimed(self, name: str) -> Trial:
        """Return a trial without the end that the store shows of one that nobody supervises."""
        self._store.supervision.claim("Trial", name)
        return self._cluster.trial(name)

    def create(self, trial: Trial) -> Trial:
        stored = Trial(manifest=self._store.create(trial.manifest))
        if self._copy:  # before its job begins: else nobody with the copy would know whose that is
            file = self._file(trial, OBJECT)
            self._copy(file, file.read_bytes())
        return stored

    def write(self, resource: Experiment | Trial, readings: Sequence[Reading] = ()) -> None:
        if readings:
            file, content = self._file(resource, _READINGS), self.written(readings).encode()
            if self._copy:
                self._copy(file, content)
            replace(file, content)  # on a full disk it is whole or not there
        parts = {"status": dict(resource.status), "spec": dict(resource.spec)}
        if self._copy:
            manifest = self._store.read(resource.kind, resource.name) | parts
            self._copy(self._file(resource, OBJECT), json.dumps(manifest).encode())
        self._store.update(resource.kind, resource.name, lambda manifest: manifest.update(parts))
        if OPTIMIZATION_JOB in resource.annotations and isinstance(resource, Experiment):
            write_json(self.directory / "optimizationjob.json", with_status(resource.manifest))

    def _rows(self, trial: Trial) -> str:
        try:
            return self._file(trial, _READINGS).read_text()
        except FileNotFoundError:
            return "[]"

    def asked(self, kind: str, name: str) -> str:
        return self._store.asked(kind, name)

    def close(self, experiment: str, asked: str) -> None:
        if asked == "delete":
            self._cluster.remove("Experiment", experiment)
        elif asked != "leave":
            self._store.supervision.disown("Experiment", experiment)

    def _file(self, resource: Experiment | Trial, name: str) -> Path:
        return self._store.path(resource.kind, resource.name) / name


class StateCopy:
    """A copy of Experiments and trials in a storage, for a process that does not have their files.

    Args:
        storage: Storage of the copy; None for no copy.
        directory: Directory of the store of objects.
    """

    def __init__(self, storage: "Storage | None", directory: Path) -> None:
        self._storage, self._directory = storage, directory
        self._known: dict[str, object] = {}
        self._read = -math.inf

    def read(self, age: float = 0.0) -> None:
        """Copy new objects from the storage into the directory, and drop those that another process
        has deleted there.

        Args:
            age: Nothing is read if it was read within so many seconds.
        """
        if self._storage is None or time.monotonic() - self._read < age:
            return
        self._read = time.monotonic()
        previous = set(self._known)  # before the list: what is written beside it is not missed
        entries = list(self._storage.list())
        for key in previous - {entry.key for entry in entries}:
            if key.endswith(f"/{OBJECT}"):
                shutil.rmtree(self._directory / Path(key).parent, ignore_errors=True)
            self._known.pop(key, None)
        for entry in entries:
            if self._known.get(entry.key) == entry:
                continue
            file = self._directory / entry.key
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._storage.fetch(entry.key, file)
            self._known[entry.key] = entry

    def write(self, file: Path, content: bytes, leadership: "Leadership | None") -> None:
        """Write what a file is to hold to the storage; while it is away, wait for it as long as
        this process leads. Nothing is written of an object that was removed.

        Raises:
            PodiumError: The storage stays away, or refuses.
        """
        if self._storage is None:
            return
        key, end = str(file.relative_to(self._directory)), time.monotonic() + AWAY_SECONDS
        if key in self._known:
            self._known[key] = None  # if this fails, the next read brings the storage's back
        while True:
            if leadership:
                leadership.check()
            if not file.parent.is_dir():
                return
            try:
                self._storage.put(key, content)
                self._known[key] = None
                return
            except PodiumError:
                if time.monotonic() > end or leadership is None:
                    raise
                leadership.lost.wait(1.0)

    def holds(self, directory: Path, uid: str) -> bool:
        """Return whether the storage has no other object in a directory's place than this one."""
        key = str((directory / OBJECT).relative_to(self._directory))
        try:
            stored = load_json(self._storage.get(key), key) if self._storage else None
        except (NotFound, InvalidInput):
            stored = None
        return stored is None or Experiment.parse(stored).uid == uid

    def drop(self, directories: Sequence[Path]) -> None:
        if self._storage is None:
            return
        for directory in directories:
            for entry in list(self._storage.list(f"{directory.relative_to(self._directory)}/")):
                self._storage.delete(entry.key)

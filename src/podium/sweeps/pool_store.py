"""Files that an engine and the workers of its pool exchange through the storage, below one URL per
Experiment.

``experiment.json`` is the Experiment as workers run it; ``slots/UID`` the trial that the worker in
the pod of this uid is to run; ``inbox/TRIAL/UID`` what it left; ``trials/TRIAL`` a trial as the
engine stores it; ``logs/TRIAL`` what it printed; ``files/TRIAL`` what it left for later generations
of a population, by number, and their names. The engine alone writes slots and trials, a worker the
rest.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from podium.cluster.local.store import new_metadata
from podium.errors import Conflict, NotFound
from podium.files.documents import load_json, parse
from podium.manifests.experiment import Experiment, Trial
from podium.manifests.labels import READINGS
from podium.metrics import Reading
from podium.storage import connect
from podium.sweeps.base import Documents, not_handed_on

_EXPERIMENT = "experiment.json"


@dataclass(frozen=True, kw_only=True)
class TrialEnd:
    """End of a trial, as reported to the engine by the worker that ran it."""

    status: dict[str, Any]
    readings: list[list[str]]
    """Name, value and time (ISO 8601) of each reading."""

    refused: str = ""
    """Reason why no trial of the Experiment can run there; empty if this one ran."""

    @classmethod
    def of(cls, trial: Trial, readings: Sequence[Reading], refused: str = "") -> "TrialEnd":
        rows = [reading.row for reading in readings]
        return cls(status=dict(trial.status), readings=rows, refused=refused)

    @property
    def reported(self) -> list[Reading]:
        return [*map(Reading.of, self.readings)]


class PoolStore(Documents):
    """The storage of one Experiment's pool.

    Args:
        url: URL of the storage.

    Raises:
        InvalidInput: No storage has such a URL.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._storage = connect(url)
        self._read: dict[
            str, tuple[str, Trial]
        ] = {}  # etag and content by key: few of many trials have changed

    def write_experiment(self, experiment: Experiment) -> None:
        self._storage.put(_EXPERIMENT, _json(experiment.manifest))

    def experiment(self) -> Experiment:
        """Return the Experiment as workers run it.

        Raises:
            NotFound: It is not there, or no longer.
        """
        return Experiment.parse(load_json(self._storage.get(_EXPERIMENT), _EXPERIMENT))

    def give(self, uid: str, trial: Trial) -> str:
        """Let the worker in the pod of a uid run a trial, when it has ended the one before; return
        the etag of its slot."""
        return self._storage.put(f"slots/{uid}", _json(trial.manifest)).etag

    def slots(self) -> dict[str, str]:
        """Return the etag of each worker's slot by uid."""
        return {entry.key.rpartition("/")[2]: entry.etag for entry in self._storage.list("slots/")}

    def given(self, uid: str) -> Trial | None:
        """Return the trial that a worker is to run or has run last; None if it never had one."""
        try:
            return Trial(manifest=load_json(self._storage.get(f"slots/{uid}"), f"slots/{uid}"))
        except NotFound:
            return None

    def all_given(self) -> dict[str, str]:
        """Return the name of the trial by uid of the worker that has it, or had it last."""
        found = self._storage.get_many([f"slots/{uid}" for uid in self.slots()])
        texts = {key: read for key, read in found if isinstance(read, bytes)}
        return {
            key.rpartition("/")[2]: Trial(manifest=load_json(text, key)).name
            for key, text in texts.items()
        }

    def dismiss(self, uid: str) -> None:
        self._storage.delete(f"slots/{uid}")

    def put_end(self, trial: str, uid: str, end: TrialEnd, log: bytes) -> None:
        """Store the end of a trial, and its output.

        Raises:
            NotFound: The Experiment was deleted, and nothing of the trial is left.
        """
        self._storage.put(f"logs/{trial}", log)
        self._storage.put(f"inbox/{trial}/{uid}", _json(asdict(end)))
        if self._storage.head(_EXPERIMENT) is None:  # nobody clears up after this any more
            self._storage.delete(f"logs/{trial}")
            self._remove(f"inbox/{trial}/", f"files/{trial}/")
            raise NotFound(f"the Experiment of trial {trial} was deleted")

    def inbox(self) -> list[tuple[str, str]]:
        """Return trial and uid of results that no engine has handled yet."""
        keys = [entry.key.split("/") for entry in self._storage.list("inbox/")]
        return [(key[1], key[2]) for key in keys if len(key) == 3]

    def ends(self, left: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, TrialEnd]]:
        """Yield trial, uid and end of each result that can be read."""
        keys = {f"inbox/{trial}/{uid}": (trial, uid) for trial, uid in left}
        for key, read in self._storage.get_many(keys):
            if isinstance(read, bytes):
                yield (*keys[key], parse(TrialEnd, load_json(read, key), key))

    def drop(self, trial: str, uid: str) -> None:
        """Remove a worker's result, which has been handled."""
        self._storage.delete(f"inbox/{trial}/{uid}")

    def create(self, trial: Trial) -> Trial:
        """Return a new trial; it is stored when a worker gets it."""
        return trial.with_metadata({**trial.metadata, **new_metadata(trial.metadata)})

    def write(self, resource: Experiment | Trial, readings: Sequence[Reading] = ()) -> None:
        if readings:
            annotations = {**resource.annotations, READINGS: self.written(readings)}
            resource = resource.with_metadata({**resource.metadata, "annotations": annotations})
        ended = resource.state.finished
        with suppress(Conflict):  # an engine that no longer leads is late: it has ended meanwhile
            self._storage.put(
                f"trials/{resource.name}", _json(resource.manifest), if_absent=not ended
            )

    def trial(self, name: str) -> Trial:
        """Return a trial.

        Raises:
            NotFound: There is none.
        """
        return Trial(manifest=load_json(self._storage.get(f"trials/{name}"), f"trials/{name}"))

    def trials(self, experiment: str = "") -> Sequence[Trial]:
        """Return all trials, oldest first; reads only those that have changed since the last
        call."""
        etags = {entry.key: entry.etag for entry in self._storage.list("trials/")}
        # Replaced whole, never altered: several threads may look at once.
        cache = {key: read for key, read in self._read.items() if key in etags}
        changed = [key for key, etag in etags.items() if cache.get(key, ("",))[0] != etag]
        for key, read in self._storage.get_many(changed):
            if isinstance(read, bytes):
                cache[key] = etags[key], Trial(manifest=load_json(read, key))
        self._read = cache
        return sorted(
            (trial for _, trial in cache.values()),
            key=lambda trial: (trial.created, trial.name),
        )

    def log(self, trial: str) -> list[str]:
        """Return the last lines that a trial printed.

        Raises:
            NotFound: It has not ended.
        """
        return self._storage.get(f"logs/{trial}").decode(errors="replace").splitlines()

    def keep_files(self, trial: str, directory: Path) -> None:
        """Keep a trial's files for trials that start from them."""
        files = list[Path]()
        for folder, folders, names in os.walk(directory, followlinks=True):
            left = not_handed_on(folder, [*folders, *names])
            folders[:] = [name for name in folders if name not in left]
            files += [Path(folder, name) for name in names if name not in left]
        files.sort()
        for number, path in enumerate(files):  # a key may not be what a file's name may
            self._storage.put(f"files/{trial}/{number}", path)
        names = [str(path.relative_to(directory)) for path in files]
        self._storage.put(f"files/{trial}/names", json.dumps(names).encode())

    def fetch_files(self, trial: str, directory: Path) -> None:
        """Fetch what a trial left; a directory that is empty if it left nothing."""
        directory.mkdir(parents=True, exist_ok=True)
        try:
            names = json.loads(self._storage.get(f"files/{trial}/names"))
        except NotFound:
            return
        for number, name in enumerate(names):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            self._storage.fetch(f"files/{trial}/{number}", directory / name)

    def close(self, experiment: str, asked: str) -> None:
        if asked == "delete":
            self.clear(whole=True)

    def clear(self, *, whole: bool) -> None:
        """Remove everything that workers and engine exchanged; with whole the trials and their
        logs, too."""
        if whole:
            self._storage.delete(
                _EXPERIMENT
            )  # first: from here on a worker that comes late clears up after itself
        self._remove(*("",) if whole else ("slots/", "inbox/"))

    def _remove(self, *prefixes: str) -> None:
        for prefix in prefixes:
            for entry in list(self._storage.list(prefix)):
                self._storage.delete(entry.key)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()

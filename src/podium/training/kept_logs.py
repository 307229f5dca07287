"""Logs of a run's steps, trials and trainings in its storage: the pods are gone soon after the
run.

Katib deletes a trial's job with its pods as soon as the trial has ended, unless it is told to
retain them. So a sweep lets it retain them, keeps their logs, and deletes the job itself: of a
good trial at once, of a failed one when the sweep is over, for until then its pod says why.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property

from podium.cluster.base import Cluster
from podium.errors import NotFound, PodiumError, suggestion
from podium.files.documents import load_json, parse
from podium.manifests.experiment import Experiment, Trial
from podium.storage import connect

LIMIT = 2**21
"""Characters kept of a log; of a longer one its first half and its last are kept."""

_SECRET_NAME = re.compile(
    r"(SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)"
)
_NOT_SECRET = re.compile(
    r"(_FILE|_DIR|_PATH|_URI|_URL)$|^PODIUM_S3_SECRET$|ACCESS_KEY_ID$|^MINIO_ACCESS_KEY$"
)
_IN_URL = re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)")
_HIDDEN = "********"


@dataclass(frozen=True, kw_only=True)
class _StepError:
    """Error of a failed step, for whoever follows its run."""

    error: str = ""
    hint: str = ""


class KeptLogs:
    """The logs of a run under ``<storage>/runs/<run id>/logs/``.

    They are called ``steps/<step>``, ``trials/<trial>/<replica>`` and ``train/<step>/<replica>``.

    Args:
        storage: URL of the storage that keeps the run's models.
        run: The run's id.

    Raises:
        InvalidInput: The URL is not one of a storage.
    """

    def __init__(self, storage: str, run: str) -> None:
        self.storage, self.run = connect(storage), run
        self.prefix = f"runs/{run}/logs"

    def names(self) -> list[str]:
        """Return the names of all logs, those of the steps first, in the order in which they
        ended."""
        entries = [
            entry for entry in self.storage.list(f"{self.prefix}/") if entry.key.endswith(".log")
        ]
        kept = {
            entry.key.removeprefix(f"{self.prefix}/").removesuffix(".log"): entry.modified
            for entry in entries
        }
        steps = sorted(
            (name for name in kept if name.startswith("steps/")),
            key=lambda name: (kept[name], name),
        )
        return [*steps, *sorted(kept.keys() - {*steps})]

    def of(self, source: str | None) -> list[str]:
        """Return the names of the logs of a step, a trial or a training; those of all steps for
        None.

        Args:
            source: A step, a trial, ``train/<step>``, ``train`` for every training, or a log's
                name.

        Raises:
            NotFound: None is kept.
        """
        names = self.names()
        matching = [name for name in names if _is_of(name, source)]
        if matching:  # a training is called as its step, whose own log comes first
            return [name for name in matching if name.startswith("steps/")] or matching
        choices = sorted({part for name in names for part in (name, name.split("/")[1])})
        if source is None or not names:
            hint = "a run keeps them in the storage of its models: --storage URL"
            raise NotFound(f"no log of run {self.run} is kept in {self.storage.url}", hint)
        raise NotFound(
            f"no log of {source!r} is kept with run {self.run}", suggestion(source, choices)
        )

    def read(self, name: str) -> str:
        """Return a log.

        Raises:
            NotFound: It is not kept.
        """
        return self.storage.get(self._key(name)).decode(errors="replace")

    def lines(self, source: str | None) -> Iterator[str]:
        """Yield the lines of all logs that `of` names, of several each below its name.

        Raises:
            NotFound: None is kept.
        """
        names = self.of(source)
        for name in names:
            if len(names) > 1:
                yield f"== {name.removeprefix('steps/')}"
            yield from self.read(name).splitlines()

    def keep(self, name: str, text: str) -> None:
        """Write a log anew; secret values that this process knows are replaced by asterisks."""
        self.storage.put(self._key(name), hide(text, self._secrets).encode(errors="replace"))

    def keep_error(self, name: str, error: PodiumError) -> None:
        """Write why the step of a log failed; a log holds what programs print, too."""
        said = _StepError(
            error=hide(error.message, self._secrets), hint=hide(error.hint or "", self._secrets)
        )
        self.storage.put(self._error_key(name), json.dumps(asdict(said)).encode(errors="replace"))

    def forget_error(self, name: str) -> None:
        """Remove the error of an earlier attempt."""
        with suppress(NotFound):
            self.storage.delete(self._error_key(name))

    def error(self, name: str) -> _StepError:
        """Return why the step of a log failed; nothing where it left no word.

        Raises:
            InvalidInput: It is damaged.
        """
        key = self._error_key(name)
        try:
            return parse(_StepError, load_json(self.storage.get(key), key), key)
        except NotFound:
            return _StepError()

    def delete(self) -> None:
        """Remove all logs of the run."""
        for entry in list(self.storage.list(f"{self.prefix}/")):
            self.storage.delete(entry.key)

    @property
    def size(self) -> int:
        """Bytes of all logs."""
        return sum(entry.size for entry in self.storage.list(f"{self.prefix}/"))

    @cached_property
    def _secrets(self) -> Sequence[str]:
        """Secret values of the environment, which a program that prints it would show, and of the
        storage."""
        named = [
            value
            for name, value in os.environ.items()
            if _SECRET_NAME.search(name.upper()) and not _NOT_SECRET.search(name)
        ]
        return [value for value in (*named, *self.storage.secrets()) if len(value) >= 6]

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}.log"

    def _error_key(self, name: str) -> str:
        return f"{self.prefix}/{name}.error.json"

    def keep_replicas(self, cluster: Cluster, kind: str, name: str, folder: str) -> None:
        """Keep the logs of all replicas of a job that ended; a log that cannot be read is a
        warning.

        Args:
            folder: ``trials/<trial>`` or ``train/<step>``.
        """
        with only_warned(f"the log of {kind} {name}"):
            for replica in cluster.replicas(kind, name):
                with only_warned(f"the log of {kind} {name} {replica.name}"):
                    excerpt = Excerpt()
                    for line in cluster.logs(kind, name, replica.name):
                        excerpt.add(f"{line}\n")
                    self.keep(f"{folder}/{replica.name}", str(excerpt))


def _is_of(name: str, source: str | None) -> bool:
    kind, owner = name.split("/")[:2]
    if source is None:
        return kind == "steps"
    return source in (owner, f"{kind}/{owner}", name) or source == kind == "train"


class Excerpt:
    """Text of any length, of which the first and the last half of LIMIT are kept."""

    def __init__(self) -> None:
        self._head, self._tail, self._lost = "", "", 0

    def add(self, text: str) -> None:
        """Append text."""
        room = LIMIT // 2 - len(self._head)
        self._head += text[:room]
        self._tail += text[room:]
        if len(self._tail) > LIMIT:
            self._lost += len(self._tail) - LIMIT // 2
            self._tail = self._tail[-LIMIT // 2 :]

    def __str__(self) -> str:
        more = max(0, len(self._tail) - LIMIT // 2)
        gap = f"\n[{self._lost + more} characters are left out here]\n" if self._lost + more else ""
        return f"{self._head}{gap}{self._tail[more:]}"


def hide(text: str, secrets: Iterable[str]) -> str:
    """Replace secret values, and passwords in URLs, by asterisks."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _IN_URL.sub(rf"\1{_HIDDEN}", text)


@contextmanager
def only_warned(doing: str) -> Iterator[None]:
    """Turn an error into a warning: a log that cannot be kept never fails a step."""
    try:
        yield
    except (PodiumError, OSError) as error:
        text = error.message if isinstance(error, PodiumError) else str(error)
        print(f"warning: {doing} is not kept: {text}", file=sys.stderr, flush=True)


COMPLETE = ("Succeeded", "EarlyStopped", "Failed")
"""Phases in which Katib does not start a deleted job again (katib: trial_controller.go,
reconcileJob)."""


class TrialLogs:
    """Keeps the logs of trials that ended on a remote cluster.

    Args:
        delete_jobs: Whether a trial's job goes once its logs are kept.
    """

    def __init__(self, cluster: Cluster, kept: KeptLogs, *, delete_jobs: bool) -> None:
        self.cluster, self.kept, self.delete_jobs = cluster, kept, delete_jobs
        self._done: set[str] = set()
        self._failed: list[Trial] = []

    def update(self, trials: Iterable[Trial]) -> None:
        """Keep the logs of those trials that ended since the last call."""
        for trial in trials:
            if trial.state.finished and trial.name not in self._done:
                self._done.add(trial.name)
                job = trial.workload
                self.kept.keep_replicas(self.cluster, job.kind, trial.name, f"trials/{trial.name}")
                if trial.phase == "Failed":
                    self._failed.append(trial)
                elif trial.phase in COMPLETE:
                    self._delete(trial)

    def close(self) -> None:
        """Delete the jobs of failed trials."""
        for trial in self._failed:
            self._delete(trial)

    def _delete(self, trial: Trial) -> None:
        if not self.delete_jobs:
            return
        try:
            self.cluster.abandon(trial.workload.kind, trial.name)
        except PodiumError as error:  # it goes with the Experiment
            print(
                f"warning: the job of trial {trial.name} stays: {error.message}",
                file=sys.stderr,
                flush=True,
            )


@contextmanager
def trial_logs(
    cluster: Cluster, storage: str, run: str, experiment: Experiment
) -> Iterator[TrialLogs | None]:
    """Keep the logs of an Experiment's trials as they end; None where they stay on this machine
    anyway.

    Args:
        storage: URL of the storage that keeps the run's models.
        experiment: As its author wrote it; the jobs of one that retains them are not deleted.
    """
    logs: TrialLogs | None = None
    if not cluster.traits.keeps_logs:
        with only_warned("what the trials print"):
            logs = TrialLogs(
                cluster, KeptLogs(storage, run), delete_jobs=not experiment.template.retain
            )
    try:
        yield logs
    finally:
        if logs:
            logs.close()

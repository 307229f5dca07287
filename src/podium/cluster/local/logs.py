"""Logs of replicas: files, readable while they grow and from any process."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from podium.cluster.base import MOST_LINE, divided
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


class Logs:
    """The output of a job's replicas, or of a trial's job."""

    def __init__(self, store: Store, kind: str, name: str) -> None:
        self._store, self._kind, self._name = store, kind, name

    def lines(self, replica: str | None, follow: bool) -> Iterator[str]:
        """Yield the lines of a replica's log, without line ends.

        Args:
            replica: None is the one that reports metrics: that of the role which decides about
                the job, such as master-0; of a Job the last pod.
            follow: Go on until the replica has ended.

        Raises:
            NotFound: There is no such object or replica.
        """
        if self._kind == "Trial" and not self.folder.exists():
            self._store.read(self._kind, self._name)
            kinds = (kind for kind in JOB_KINDS if self._store.exists(kind, self._name))
            self._kind = next(kinds, "Job")
        names = self.replicas()
        chosen = replica or names[0]
        if chosen not in names:
            problem = f"{self._kind} {self._name} has no replica {chosen}"
            raise NotFound(problem, f"there are: {', '.join(names)}")
        return self._follow(chosen, replica is None) if follow else _lines(self._file(chosen))

    def last_run(self, replicas: Sequence[str] = (), holding: Sequence[str] = ()) -> Iterator[str]:
        """Yield the lines that replicas printed since their last start.

        Katib's collector sees no others: the shell around the command begins its file anew.

        Args:
            replicas: The one that reports metrics if empty.
            holding: Lines without any of these texts may be left out.
        """
        starts = {record["replica"]: record["logFrom"] for record in self._records()}
        for chosen in replicas or self.replicas()[:1]:
            yield from _lines(self._file(chosen), starts.get(chosen, 0), holding)

    def last_line(self) -> str:
        """Return the last line: of the replica that reports metrics, else of another, or of an init
        container where none began; empty if there is none."""
        begun = [path for path in map(self._file, self.replicas()) if path.is_file()]
        for path in begun or sorted(self.folder.glob("*.log")):
            with path.open("rb") as log:
                log.seek(max(0, path.stat().st_size - _TAIL))
                lines = log.read().decode(errors="replace").splitlines()
            if said := last_said(lines):
                return said
        return ""

    def exit_code(self) -> int:
        """Return the exit code of the first replica that failed, 128 and the number for a signal; 0
        where none did."""
        codes = (record["exitCode"] for record in self._records() if record["phase"] == "Failed")
        return next(filter(None, codes), 0)

    @property
    def folder(self) -> Path:
        """Their directory, a file for each replica."""
        return self._store.path(self._kind, self._name) / "logs"

    def _file(self, replica: str) -> Path:
        return self.folder / f"{replica}.log"

    def _records(self) -> list[Any]:
        try:
            return read_json(self.folder.with_name("pods.json"), list)
        except FileNotFoundError:
            return []

    def replicas(self) -> list[str]:
        """Return the replicas; the one that reports metrics is first."""
        job = Workload.parse(self._store.read(self._kind, self._name))
        if job.has_roles:
            replicas = sorted(job.replicas, key=lambda replica: not replica.leads)
            return [
                f"{replica.role.lower()}-{index}"
                for replica in replicas
                for index in range(replica.count)
            ]
        names = [path.stem for path in self.folder.glob("*.log") if "." not in path.stem]
        return sorted(names, key=lambda name: (-int(name.rpartition("-")[2]), name)) or ["pod-0"]

    def _follow(self, replica: str, goes_on: bool) -> Iterator[str]:
        """Yield the lines of a replica until the object has ended, and of the pods that a Job
        begins after it."""
        log = self._file(replica)
        while not log.exists() and not self._has_ended(replica):
            time.sleep(_LOOK)
        if not log.exists():
            return
        file, ended, last = GrowingFile(log), False, replica
        while not ended and last == replica:
            # Asked before reading: what was written before the end is in the file then.
            ended, count = self._has_ended(replica), 0
            last = self._after(replica) if goes_on else replica
            for line in file.lines():
                count += 1
                yield line
            if not count and not ended:
                time.sleep(_LOOK)
        if rest := file.last():
            yield rest
        if last != replica:
            yield from self._follow(last, goes_on)

    def _has_ended(self, replica: str) -> bool:
        try:
            finished = status_of(self._store.read(self._kind, self._name)).finished
        except NotFound:
            return True
        ended = self._is_over(replica)
        if ended is None:
            return finished
        return finished and (
            ended or not self._store.supervision.is_supervised(self._kind, self._name)
        )

    def _is_over(self, replica: str) -> bool | None:
        # None: nothing is recorded of it.
        record = next((each for each in self._records() if each["replica"] == replica), None)
        ended = ("Succeeded", "Failed", "Stopped")
        return record and record["phase"] in ended and not record["pid"]

    def _after(self, replica: str) -> str:
        with suppress(NotFound):
            names = [*self.replicas(), replica]  # its log may have gone to the trial meanwhile
            later = names[: names.index(replica)]
            return later[-1] if later and self._is_over(replica) else replica
        return replica


class GrowingFile:
    """The lines of a file, in bounded memory whatever it holds: long lines are divided, or cut.

    Args:
        start: Offset to begin at.
        holding: If given, lines without any of these texts may be left out.
    """

    def __init__(self, path: Path, start: int = 0, holding: Sequence[str] = ()) -> None:
        self._path, self._at, self._rest = path, start, b""
        self._holding = [text.encode() for text in holding]

    def lines(self) -> Iterator[str]:
        """Yield the whole lines that were written since the last call, and states of a progress bar
        that is too long for one."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._at:  # the program began the file anew
                self._at, self._rest = 0, b""
            file.seek(self._at)
            while chunk := file.read(_CHUNK):
                self._at += len(chunk)
                whole, newline, rest = (self._rest + chunk).rpartition(b"\n")
                *states, self._rest = divided(rest)
                if newline and (not self._holding or any(text in whole for text in self._holding)):
                    for line in whole.split(b"\n"):
                        line = line.removesuffix(b"\r")  # else it would not seem to end
                        parts = divided(line) if len(line) > MOST_LINE else (line,)
                        for part in parts:
                            yield part.decode(errors="replace")
                yield from (state.decode(errors="replace") for state in states)

    def last(self) -> str:
        """Return the text after the last line end."""
        return self._rest.decode(errors="replace")


def _lines(log: Path, start: int = 0, holding: Sequence[str] = ()) -> Iterator[str]:
    file = GrowingFile(log, start, holding)
    yield from file.lines()
    if rest := file.last():
        yield rest

"""Faults that podium had, or would have without a line that guards against them, planted again."""

import inspect
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from podium.cluster.kubernetes import logs
from podium.cluster.kubernetes.api import Api
from podium.cluster.kubernetes.leadership import Leadership
from podium.cluster.local.store import _Supervision
from podium.kfp.schedules import Schedules
from podium.models import upkeep, upload
from podium.models.championship import Championship
from podium.models.ledger import Ledger, State
from podium.models.upload import Upload
from podium.runner import child, process
from podium.runner.interpreter import Interpreter
from podium.runner.process import RunningPipeline
from podium.runner.record import RunRecord, StepRecord
from podium.runner.step_process import Process as StepProcess
from podium.runner.steps import Cache
from podium.storage.s3 import conditional, lock
from podium.storage.s3.conditional import ConditionalWrites
from podium.sweeps.controller import ExperimentController
from podium.sweeps.engine import Engine
from podium.sweeps.file_documents import StateCopy
from podium.sweeps.namespace import _Loop, _Loops
from podium.sweeps.pod_trial import _PodTrial
from podium.sweeps.pool import Pool
from podium.sweeps.records import Records
from podium.sweeps.worker import _Worker


@dataclass(frozen=True)
class Bug:
    """A change of a function's text."""

    owner: Any
    name: str
    old: str
    new: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Let the function have the fault."""
        right = inspect.getattr_static(self.owner, self.name)
        held = getattr(right, "__func__", getattr(right, "fget", right))
        function: FunctionType = inspect.unwrap(held)
        source = textwrap.dedent(inspect.getsource(function))
        source = source.replace("super()", f"super({self.owner.__name__}, self)")
        assert source.count(self.old) == 1, f"{self.name} has not once: {self.old}"
        scope: dict[str, Any] = {}
        exec(source.replace(self.old, self.new), function.__globals__, scope)
        setattr(self.owner, self.name, scope[self.name])
        try:
            yield
        finally:
            setattr(self.owner, self.name, right)


REGISTRY: Mapping[str, Bug] = {
    "the document is written without a condition": Bug(
        Ledger, "change", "if_absent=etag is None, if_match=etag", "if_absent=False"
    ),
    "a lost answer is not recognized": Bug(
        State, "has", "any(entry.id == record.id for entry in self.history)", "False"
    ),
    "a challenger beats a champion that it was not compared with": Bug(
        Ledger, "move", "if expect and target not in expect and not gone:", "if False:"
    ),
    "the etag is that of a later read": Bug(
        Ledger,
        "read",
        "content, entry = self.storage.read(self.key, limit=MAX_BYTES + 1)",
        "content = self.storage.get(self.key); entry = self.storage.head(self.key)",
    ),
    "a document that was read is never read again": Bug(
        Ledger,
        "read",
        "if self._seen and (entry := self.storage.head(self.key)) and entry.etag == self._seen[1]:",
        "if self._seen:",
    ),
    "clocks that differ turn the history around": Bug(
        Ledger,
        "_following",
        "max(move.time, _just_after(current.time)) if current else move.time",
        "move.time",
    ),
    "an alias may point at a version that is being deleted": Bug(
        Ledger, "move", "if version not in state.versions:", "if False:"
    ),
    "a version is named before its files are there": Bug(
        Upload,
        "run",
        "    for file in self.files:\n        self._put(file, self.progress, over_leftovers=token is not None)\n"
        "    return self._publish(state.versions.get(name), token)",
        "    published = self._publish(state.versions.get(name), token)\n"
        "    for file in self.files:\n        self._put(file, self.progress, over_leftovers=True)\n"
        "    return published",
    ),
    "what a collector took during an upload stays away": Bug(
        Upload, "_publish", "if state.collected != looked:", "if False:"
    ),
    "an upload is named beside a deletion that is under way": Bug(
        Upload, "_publish", "if there.deleting.get(name) != token:", "if False:"
    ),
    "an upload begins beside a deletion that goes on": Bug(
        upload, "_is_recent", "return abs(now - moment(began)) < _SETTLED", "return False"
    ),
    "an upload over leftovers does not stop their collector": Bug(
        Upload, "run", "token = old and self._take_over(old)", "token = old"
    ),
    "a collector that slept deletes what was uploaded again": Bug(
        upkeep,
        "_clear",
        "if ledger.read()[0].deleting.get(name) != token:\n                return False\n"
        "            ledger.storage.delete(entry.key, if_match=entry.etag)",
        "ledger.storage.delete(entry.key)",
    ),
    "a version that is needed is deleted": Bug(
        upkeep, "delete_version", "if version in _protected(state):", "if False:"
    ),
    "garbage is collected without a word in the document": Bug(
        upkeep, "collect", "if delete and (old or versions or done):", "if False:"
    ),
    "a killed deletion leaves its token for ever": Bug(
        upkeep, "collect", "if (name, held) not in done}", "}"
    ),
    "half a version that nobody names stays for ever": Bug(
        upkeep,
        "_reason",
        'return "unfinished deletion" if version and _lacks(version, entries) else None',
        "return None",
    ),
    "a version is added again though a part of it is missing": Bug(
        upkeep,
        "_whole",
        "return version if version and not _lacks(version, ledger.entries(name)) else None",
        "return version",
    ),
    "a version becomes champion unverified": Bug(
        Championship, "require_intact", "complete.verify()", "pass"
    ),
    "a segment of the history is named and never written": Bug(
        Ledger,
        "_moved_out",
        "self.storage.put(self.segment_key(name), content, if_absent=True)",
        "pass",
    ),
    "a deletion leaves no record": Bug(
        upkeep, "delete_version", "history=(*state.history, event),", ""
    ),
}

SWEEPS: Mapping[str, Bug] = {
    "a late event begins a sweep that has ended": Bug(
        Engine, "_see", "(stored := self._stored(seen))", "(stored := experiment)"
    ),
    "an object that a lost request created is another's": Bug(
        Api,
        "create",
        'if (present["metadata"].get("annotations") or {}).get(_CREATION) != creation:',
        "if True:",
    ),
    "a leader leads until others may": Bug(
        Leadership, "left", "_STOP_SECONDS / DURATION_SECONDS", "1.2"
    ),
    "a Lease is taken before it has run out": Bug(
        Leadership, "_is_free", "> patience", "> patience / 4"
    ),
    "a Lease is taken that somebody else took": Bug(
        Leadership,
        "_take",
        "except Conflict:  # somebody else was faster\n        return False",
        "except Conflict:\n        pass",
    ),
    "a job that an earlier engine created is refused": Bug(
        _PodTrial, "start", "if self._trial.uid not in uids:", "if True:"
    ),
    "who does not lead any more writes on": Bug(
        Records, "_check", "if self._leadership:", "if False:"
    ),
    "a version that is too old ends a watch": Bug(
        Api, "broken_watch", "not in (401, 403, 410)", "not in (401, 403)"
    ),
    "a log that was cut counts as read": Bug(
        logs,
        "logs",
        "complete, tries = False, tries + over",
        "complete, tries = True, tries + over",
    ),
    "a request is sent once": Bug(Api, "call", "if not passing or left <= 0:", "if True:"),
    "a server that has just started denies for good": Bug(
        Api, "call", "is_passing(failed) or self._denies_for_a_moment(failed)", "is_passing(failed)"
    ),
    "trials that began before are forgotten": Bug(
        ExperimentController, "_begin", "self._recall(trials)", "self._recall([])"
    ),
}

POOLS: Mapping[str, Bug] = {
    "a storage that is away for a moment refuses a trial": Bug(
        _Worker,
        "_patiently",
        "if self._stopping.wait(_PAUSE_SECONDS) or time.monotonic() > end:",
        "if True:",
    ),
    "a storage that is away for a moment fails a sweep": Bug(
        Records,
        "_patiently",
        "if self._leadership is None or self.asked or time.monotonic() > end:",
        "if True:",
    ),
    "a sweep has ended before its pool is gone": Bug(
        ExperimentController, "_reconcile", "if not self._is_clearing:", "if True:"
    ),
    "the trial of a pod that is gone waits for ever": Bug(
        Pool, "_look_at_pods", "if uid not in alive and trial not in self._taken", "if False"
    ),
}

BUCKETS: Mapping[str, Bug] = {
    "a store that checks, then stores, counts as one where one wins": Bug(
        conditional, "_probe", "if len(winners) != 1:", "if not winners:"
    ),
    "a store that ignores conditions counts as one that keeps them": Bug(
        conditional,
        "_probe",
        'honored=False, atomic=False, seen="the server ignores conditions"',
        'honored=True, atomic=True, seen="the server"',
    ),
    "two hold a lock": Bug(
        lock, "_alone", "return not times.keys() - {ticket, *expired}", "return True"
    ),
    "a killed writer holds its lock for ever": Bug(
        lock, "_alone", "if now - written > timedelta(seconds=LEASE)", "if False"
    ),
    "a condition is not looked at again under the lock": Bug(
        ConditionalWrites,
        "write",
        "as renew:\n        self._check(key, if_absent, if_match)",
        "as renew:\n        pass",
    ),
}

RUNS: Mapping[str, Bug] = {
    "a run that another process has stopped counts as killed": Bug(
        RunRecord, "read", '"stopped" if (directory / STOP).exists() else "killed"', '"killed"'
    ),
    "a step of the wall clock lengthens a step": Bug(
        StepRecord,
        "elapsed",
        "time.monotonic() - self._since",
        "time.time() - self.started",
    ),
    "a child that is killed as it starts breaks a pipe": Bug(
        process, "_start_child", "with suppress(BrokenPipeError):", "if True:"
    ),
    "half a report ends a command in a traceback": Bug(
        RunningPipeline, "_record", 'if line.endswith("\\n"):', "if True:"
    ),
    "who lost a run writes its record": Bug(
        RunRecord, "save", "if self.process and", "if False and"
    ),
    "a result of other inputs serves": Bug(
        Cache, "get", 'inputs not in ("", entry["inputs"]) or ', ""
    ),
    "outputs of a try that failed count": Bug(
        StepProcess, "prepare", "shutil.rmtree(step.folder, ignore_errors=True)", "pass"
    ),
    "no exit handler runs after a failure": Bug(
        Interpreter, "_is_over", "(self.failed and not exempt)", "self.failed"
    ),
    "a step that goes on outlives a run whose command was killed": Bug(
        child, "_end_with_caller", "reporter.end(grace=2 * GRACE)", "pass"
    ),
}

SCHEDULES: Mapping[str, Bug] = {
    "two who apply at once leave two schedules": Bug(
        Schedules,
        "_replace",
        "if ids == new[-1:]:",
        "if not set(ids) & set(change.present):",
    ),
    "two who apply at once delete each other's schedule": Bug(
        Schedules, "_replace", "self._create(change, group)", "return"
    ),
    "a schedule that is gone already ends a command": Bug(
        Schedules, "_remove", "with suppress(NotFound):", "if True:"
    ),
}

FILES: Mapping[str, Bug] = {
    "who leads again does not look what another process did": Bug(
        _Loop, "_has_more", "self._loops.copy.read()", "pass"
    ),
    "a sweep begins that another process has run meanwhile": Bug(
        _Loops, "create", "self.copy.read()", "pass"
    ),
    "a resumed sweep is not as another process left it": Bug(
        _Loops, "resume", "self.copy.read()", "pass"
    ),
    "a storage that is away for a moment fails a sweep with a copy": Bug(
        StateCopy, "write", "if time.monotonic() > end or leadership is None:", "if True:"
    ),
    "a job that an earlier process created is refused": Bug(
        _PodTrial, "start", "if self._trial.uid not in uids:", "if True:"
    ),
    "the process that runs a sweep counts as alive after it was killed": Bug(
        _Supervision,
        "is_supervised",
        "and _is_held(",
        "and bool(",
    ),
}

"""Sweeps kept in files, in a universe: of a step in a namespace that serves none, with a copy in a
storage, and of one machine; who runs them is killed, and resumes them."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event as Stopping
from typing import Any, ClassVar

from pool_universe import ProcessOfTrial
from simulated_stores import DELETES, WRITES, Disk as Objects, MemoryStorage
from simulation import Crash, Fault, Life, Lock, Outcome, Process, Violation, here
from sweep_universe import (
    KINDS as API_KINDS,
    LEASE_SECONDS,
    SweepUniverse,
    experiment,
    modules as sweep_modules,
)

from podium.cluster.base import Cluster
from podium.cluster.local import store
from podium.errors import Failed, PodiumError
from podium.files.documents import load_json
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.status import created
from podium.manifests.experiment.trial import Trial
from podium.sweeps import file_documents, local_trial, namespace
from podium.sweeps.base import Executor, Save
from podium.sweeps.local import LocalSweeps
from podium.sweeps.namespace import NamespaceSweeps
from podium.sweeps.trials import TrialRun
from podium.training import target

KINDS = (*API_KINDS, "fail", "space")
_FILE = ("hitch", "crash", "died")


class _Lease:
    """A lock of a store that is held while its simulated process lives."""

    held: ClassVar[dict[str, Life]] = {}

    def __init__(self, directory: Path) -> None:
        self.name = f"lease-{here().ids.getrandbits(32):x}"
        self.held[self.name] = here().task().life

    def release(self) -> None:
        self.held.pop(self.name, None)


def _is_held(path: Path) -> bool:
    life = _Lease.held.get(path.name)
    return life is not None and not life.dead and bool(life.tasks)


class _Storage(MemoryStorage):
    """A storage whose writes come in time."""

    def _before(self, what: str, key: str, possible: tuple[str, ...]) -> str:
        if possible in (WRITES, DELETES):
            possible = tuple(kind for kind in possible if kind != "lag")
        return super()._before(what, key, possible)


class FilesUniverse(SweepUniverse):
    """One or two processes that run the same sweep, and go on after they were killed.

    Args:
        seed: Decides everything.
        only: Only these faults strike; None for all that the seed has.
    """

    KINDS = KINDS
    LONGEST, CALM = 2500.0, 1120.0
    LEAVING = (*SweepUniverse.LEAVING, "partition", "unanswered")

    PATIENCE = 60_000  # a Lease is read each second of an outage

    def __init__(self, seed: int, only: frozenset[Fault] | None = None) -> None:
        super().__init__(seed, only)
        self.wish, self.is_local = "", self.plan.random() < 0.3
        self.objects = Objects(self.universe, by_content=self.plan.random() < 0.6)
        self.directory = Path(tempfile.mkdtemp())
        self.begun: list[str] = []
        self.locks: dict[Path, Lock] = {}
        self.unfinished = 0

    def run(self) -> Outcome:
        universe = self

        class Processes(Executor):
            """Runs trials as the executor of a local cluster does."""

            def __init__(self, cluster: object, experiment: Experiment) -> None:
                pass

            def begin(self, experiment: Experiment, trials: Sequence[Trial]) -> Sequence[Trial]:
                return [trial if trial.has_ended else created(trial) for trial in trials]

            def run(
                self, experiment: Experiment, trial: Trial, save: Save, stopping: Stopping
            ) -> TrialRun:
                return TrialRun(
                    lambda: ProcessOfTrial(trial, universe),
                    experiment,
                    trial,
                    save=save,
                    stopping=stopping,
                    removes_failed=True,
                )

        replaced: list[tuple[Any, str, Any]] = [
            (store._Supervision, "alone", lambda kept: self._alone(kept.directory)),
            (store, "_Lease", _Lease),
            (store, "_is_held", _is_held),
            (store, "write_json", _handing_over(store.write_json)),
            (file_documents, "write_json", _handing_over(file_documents.write_json)),
            (local_trial, "ProcessExecutor", Processes),
            (namespace, "connect", lambda url: _Storage(self.objects)),
            (target, "say", lambda text: None),
        ]
        usual = [(module, name, getattr(module, name)) for module, name, _ in replaced]
        _Lease.held = {}
        for module, name, new in replaced:
            setattr(module, name, new)
        try:
            return super().run()
        finally:
            for module, name, old in usual:
                setattr(module, name, old)

    @contextmanager
    def _alone(self, directory: Path) -> Iterator[None]:
        directory.mkdir(parents=True, exist_ok=True)
        with self.locks.setdefault(directory, Lock()):
            if here().task().life.dead:
                raise Crash
            yield

    def _use(self) -> None:
        universe = self.universe
        while universe.now < self.LONGEST and self.unfinished:
            universe.quiet = universe.now > self.CALM
            universe.sleep(1.0)
        universe.quiet = True
        universe.sleep(3 * LEASE_SECONDS)
        self.over = True
        for process in universe.processes.values():
            if process.life and process.name != "user":
                universe.kill(process.life)

    def _live(self, process: Process) -> None:
        universe = self.universe

        def life() -> None:
            try:
                while not self.over:
                    try:
                        with self._cluster() as cluster:
                            self._step(cluster)
                        self.unfinished -= 1
                        return
                    except PodiumError as error:  # its step is tried again
                        self.ends.append(error.message)
                        universe.sleep(2.0)
                        process.silent_at = -1e9  # the next try is another process
            except Crash:
                if not self.over:
                    self._again(process, life)
                raise

        if process.name in ("engine0", "engine1"):
            self.unfinished += 1
            universe.begin(process, life)

    def _cluster(self) -> Cluster:
        if self.is_local:
            return LocalSweeps(self.directory, fork_server=False)
        url = "kubernetes://team?engine=here"
        return NamespaceSweeps(url, "memory://state", lease_seconds=LEASE_SECONDS)

    def _step(self, cluster: Cluster) -> None:
        manifest = experiment(self.trials, self.parallel, self.trials)
        del manifest["metadata"]["namespace"]
        resource = Experiment.parse(manifest)
        # What ends a step that fails would also run as a killed one unwinds here.
        with nullcontext() if self.is_local else target.launched(cluster, resource):
            if self.is_local:
                target.launch(cluster, resource)
            for _ in cluster.watch("Experiment", "sweep"):
                pass
            if cluster.experiment("sweep").is_resumable:
                raise Failed("the process that ran it has ended")

    def _written(self, plural: str, name: str) -> None:
        pass

    def _files(self) -> Mapping[str, bytes]:
        if not self.is_local:
            return {key: content for key, (content, _) in self.objects.objects.items()}
        files = (path for path in self.directory.glob("*/*/object.json"))
        return {str(path.relative_to(self.directory)): path.read_bytes() for path in files}

    def _stored(self) -> dict[str, Any] | None:
        content = self._files().get("experiments/sweep/object.json")
        return dict(load_json(content, "sweep")) if content else None

    def _trials(self) -> Mapping[str, dict[str, Any]]:
        return {
            key.split("/")[1]: dict(load_json(content, key))
            for key, content in self._files().items()
            if key.startswith("trials/") and key.endswith("object.json")
        }

    def _check(self) -> None:
        super()._check()
        killed = any(fault.kind in ("crash", "died") for fault in self.universe.struck)
        twice = [name for name in self.begun if self.begun.count(name) > 1]
        if twice and not killed:
            raise Violation(f"trial {twice[0]} ran {self.begun.count(twice[0])} times")
        for (plural, name), item in self.server.objects.items():
            if plural == "leases" and item["spec"]["holderIdentity"] and not self.universe.struck:
                raise Violation(f"lease {name} outlives its sweep")


def _handing_over(write: Callable[[Path, object], None]) -> Callable[[Path, object], None]:
    """Let others go on before a file is written, and its writer be killed before or after."""

    def written(path: Path, value: object) -> None:
        kind = here().operation(f"write file {path.parent.name}/{path.name}", _FILE)
        write(path, value)
        if kind == "died":
            here().crash()

    return written


def modules(name: str) -> bool:
    """Return whether a module of podium takes part in this universe."""
    rooms = ("podium.storage", "podium.cluster.local", "podium.training.target")
    return sweep_modules(name) or name.startswith(rooms)

"""Pools in a universe: the pods of one Job run the trials of an Experiment, and speak to its engine
through a storage."""

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Event as Stopping
from typing import Any

from simulated_api import Server
from simulated_stores import DELETES, WRITES, Disk, MemoryStorage
from simulation import Event, Fault, Life, Outcome, Scratch, Violation, here
from sweep_universe import (
    KINDS as API_KINDS,
    LEASE_SECONDS,
    Operator,
    SweepUniverse,
    experiment,
    loss,
    modules as sweep_modules,
    words_of,
)

from podium.files.documents import load_json
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.trial import Trial
from podium.manifests.options import annotation
from podium.manifests.workload import Workload
from podium.metrics import Reading
from podium.sweeps import pool_store, worker
from podium.sweeps.base import Save, TrialIO
from podium.sweeps.metrics_collector import observe
from podium.sweeps.trials import TrialRun

KINDS = (*API_KINDS, "fail", "space", "drain", "away", "isolated")
_FATES = ("drain", "away", "isolated")
_STORAGE = "/universe"


class Pods(Operator):
    """Keeps the pods of the pool's Job, each with a worker."""

    def __init__(self, server: Server, plan: random.Random, failing: float, disk: Disk) -> None:
        super().__init__(server, plan, failing)
        self.disk, self.count = disk, 0

    def _created(self, plural: str, item: dict[str, Any]) -> None:
        if plural != "jobs":
            return
        for index in range(item["spec"]["completions"]):
            self.server.universe.spawn(self.life, lambda: self._keep(item), f"index {index}")

    def _keep(self, job: dict[str, Any]) -> None:
        """Have a pod of an index run, and another after it."""
        universe, name, uid = self.server.universe, job["metadata"]["name"], job["metadata"]["uid"]
        while True:
            universe.sleep(universe.random.choice((0.01, 0.3, 3.0)))
            if not self._is_there(name, uid):
                return
            self.count += 1
            pod = f"{name}-{self.count}"
            self._pod(pod, job, "Running", {"running": {"startedAt": "2027-01-01T00:00:00Z"}})
            self._look_after(pod, job, _Pod(self, self.server.objects["pods", pod]))

    def _look_after(self, pod: str, job: dict[str, Any], held: "_Pod") -> None:
        universe, draw = self.server.universe, self.server.universe.random
        while not held.ended.wait(1.0):
            fate = "" if ("pods", pod) in self.server.objects else "drain"
            fate = fate or universe.operation(f"look after {pod}", _FATES)
            if fate == "drain":
                self._mark_leaving(pod)
                held.end(draw.choice((0.0, 0.5, 5.0)))
            elif fate == "away":  # its node lost power; who asks learns of it later
                universe.kill(held.life)
                universe.sleep(draw.choice((1.0, 8.0, 30.0)))
            elif fate == "isolated":  # its node runs on without the cluster
                universe.sleep(draw.choice((1.0, 8.0)))
                self.server.remove("pods", pod)
                held.end_later(draw.choice((1.0, 8.0, 60.0)))
            else:
                continue
            self.server.remove("pods", pod)
            return
        if ("pods", pod) in self.server.objects:
            self._pod(pod, job, "Failed", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}})

    def _mark_leaving(self, pod: str) -> None:
        if item := self.server.objects.get(("pods", pod)):
            metadata = {**item["metadata"], "deletionTimestamp": self.server.stamp()}
            self.server.put("pods", {**item, "metadata": metadata})


class _Storage(MemoryStorage):
    """A storage whose writes come in time, but those of slots: a client tries for a minute."""

    def _before(self, what: str, key: str, possible: tuple[str, ...]) -> str:
        if possible in (WRITES, DELETES) and not key.startswith("slots/"):
            possible = tuple(kind for kind in possible if kind != "lag")
        return super()._before(what, key, possible)


class _Pod:
    """The process of a worker in a pod."""

    def __init__(self, pods: Pods, pod: dict[str, Any]) -> None:
        self.pods, self.ended = pods, Event()
        universe = pods.server.universe
        self.process = universe.process(f"worker{pods.count}")
        self.worker: worker._Worker | None = None
        self.uid = pod["metadata"]["uid"]
        self.life: Life = universe.begin(self.process, self._run)

    def _run(self) -> None:
        try:
            with Scratch() as directory:
                store = pool_store.PoolStore(_STORAGE)
                self.worker = worker._Worker(store, self.uid, Path(directory))
                self.worker.work()
        finally:
            self.ended.set()

    def end(self, grace: float) -> None:
        """Ask it to end, as SIGTERM does, and kill it after so many seconds."""
        if self.worker:
            self.worker.stop()
        if not self.ended.wait(grace):
            here().kill(self.life)

    def end_later(self, seconds: float) -> None:
        """Let it go on for a while."""

        def later() -> None:
            here().sleep(seconds)
            here().kill(self.life)

        here().spawn(self.pods.life, later, "kubelet of a node that is apart")


class _Machine:
    """Where a worker runs its trials, in place of a local cluster."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.store = directory, self

    def path(self, kind: str, name: str) -> Path:
        return self.directory / kind / name

    def __enter__(self) -> "_Machine":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class ProcessOfTrial(TrialIO):
    """The process of a trial.

    Args:
        run: The universe; it knows which trials begin to fail, and notes which have begun.
    """

    def __init__(self, trial: Trial, run: Any) -> None:
        self._trial, self._universe, self._stopped = trial, run, Event()

    def start(self) -> None:
        self._universe.begun.append(self._trial.name)

    def changes(self) -> Iterator[Workload]:
        draw = here().random
        yield self._job()
        if not self._stopped.wait(draw.choice((0.05, 0.3, 1.0, 3.0, 10.0))):
            yield self._job("Failed" if draw.random() < self._universe.failing else "Complete")

    def _job(self, end: str = "") -> Workload:
        conditions = [{"type": end, "status": "True"}] if end else []
        return Workload(
            manifest={**self._trial.workload.manifest, "status": {"conditions": conditions}}
        )

    def lines(self) -> Iterator[str]:
        return iter(())

    def stop(self) -> None:
        self._stopped.set()

    def collect(self) -> tuple[dict[str, Any], list[Reading]]:
        value = f"{loss(str(self._trial.workload.manifest))}"
        return observe([Reading("loss", value, datetime(2027, 1, 15, tzinfo=UTC))], ["loss"])

    def remove(self) -> None:
        pass


class PoolUniverse(SweepUniverse):
    """One to three engines, and an Experiment with a pool.

    Args:
        seed: Decides everything.
        only: Only these faults strike; None for all that the seed has.
    """

    KINDS = KINDS
    LONGEST, CALM = 2000.0, 1120.0

    def __init__(self, seed: int, only: frozenset[Fault] | None = None) -> None:
        super().__init__(seed, only)
        self.begun: list[str] = []

    def _operator(self) -> Operator:
        self.disk = Disk(self.universe, by_content=self.plan.random() < 0.6)
        self.storage = _STORAGE
        return Pods(self.server, self.plan, self.failing, self.disk)

    def _manifest(self) -> dict[str, Any]:
        manifest = experiment(self.trials, self.parallel, self.trials)
        manifest["metadata"]["annotations"] = annotation({"pool": self.parallel})
        return manifest

    def run(self) -> Outcome:
        universe = self

        class Executor:
            """Runs trials as the executor of a local cluster does."""

            def __init__(self, cluster: object, experiment: Experiment) -> None:
                pass

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

        usual = pool_store.connect, worker.LocalCluster, worker.ProcessExecutor
        pool_store.connect = lambda url: _Storage(self.disk)
        worker.LocalCluster, worker.ProcessExecutor = _Machine, Executor
        worker.print = lambda *_, **__: None
        try:
            return super().run()
        finally:
            pool_store.connect, worker.LocalCluster, worker.ProcessExecutor = usual
            del worker.print

    def _end(self) -> None:
        self.universe.sleep(3 * LEASE_SECONDS)
        for process in self.universe.processes.values():
            if process.life and process.name != "user":
                self.universe.kill(process.life)

    def _trials(self) -> Mapping[str, dict[str, Any]]:
        contents = {key: content for key, (content, _) in self.disk.objects.items()}
        return {
            key.removeprefix("trials/"): dict(load_json(content, key))
            for key, content in contents.items()
            if key.startswith("trials/")
        }

    def _check(self) -> None:
        super()._check()
        jobs = [name for plural, name in self.server.objects if plural == "jobs"]
        if jobs:
            raise Violation(f"job {jobs[0]} outlives its sweep")
        if self.wish == "delete" and not self.universe.struck and self.disk.objects:
            raise Violation(f"{next(iter(self.disk.objects))} is left for ever")
        twice = [name for name in self.begun if self.begun.count(name) > 1]
        if twice and not self.universe.struck:
            raise Violation(f"trial {twice[0]} ran {self.begun.count(twice[0])} times")

    def _may_fail(self, trials: Sequence[dict[str, Any]]) -> bool:
        if not trials and any(
            fault.kind in ("fail", "lost", "space") for fault in self.universe.struck
        ):
            return True  # a storage that has never worked is told at once
        said = [words_of(each) for each in trials]
        return self.failing > 0 or any(
            "pods ended while they ran it" in message for message in said
        )


def modules(name: str) -> bool:
    """Return whether a module of podium takes part in this universe."""
    return sweep_modules(name) or name.startswith(("podium.storage", "podium.cluster.local.json"))

"""Sweeps in a universe: engines that may lead run an Experiment's trials as jobs of an API server."""

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulated_api import Server
from simulation import Crash, Fault, Outcome, Process, Universe, Violation

from podium.cluster.kubernetes import cluster as kubernetes_cluster
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import PodiumError
from podium.sweeps import controller
from podium.sweeps.engine import Engine

KINDS = (
    "lag",
    "hitch",
    "slow",
    "broken",
    "unanswered",
    "lost",
    "crash",
    "died",
    "partition",
    "denied",
    "gone",
    "cut",
    "jump",
)
LEASE_SECONDS = 3.0


def experiment(trials: int, parallel: int, failing: int) -> dict[str, Any]:
    """Return an Experiment whose trials are jobs of one pod."""
    container = {
        "name": "training",
        "image": "python",
        "command": ["train", "--x=${trialParameters.x}"],
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
    space = {"min": "0", "max": "1"}
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "sweep", "namespace": "team"},
        "spec": {
            "objective": {"type": "minimize", "objectiveMetricName": "loss"},
            "algorithm": {"algorithmName": "random"},
            "parallelTrialCount": parallel,
            "maxTrialCount": trials,
            "maxFailedTrialCount": failing,
            "parameters": [{"name": "x", "parameterType": "double", "feasibleSpace": space}],
            "trialTemplate": {
                "primaryContainerName": "training",
                "trialParameters": [{"name": "x", "reference": "x"}],
                "trialSpec": job,
            },
        },
    }


class Operator:
    """Runs the jobs of a server: makes their pods, prints their metric and ends them."""

    def __init__(self, server: Server, plan: random.Random, failing: float) -> None:
        self.server, self.plan, self.failing = server, plan, failing
        self.life = server.universe.begin(server.universe.process("operator"), lambda: None)
        self.begun: dict[str, int] = {}
        server.on_create = self._created

    def _created(self, plural: str, item: dict[str, Any]) -> None:
        if plural == "jobs":
            self.server.universe.spawn(self.life, lambda: self._run(item), "job")

    def _run(self, job: dict[str, Any]) -> None:
        universe, server, draw = self.server.universe, self.server, self.server.universe.random
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        universe.sleep(draw.choice((0.01, 0.1, 0.5)))
        if not self._is_there(name, uid):
            return
        self.begun[name] = self.begun.get(name, 0) + 1
        pod = f"{name}-{self.begun[name]}"
        self._pod(pod, job, "Running", {"running": {"startedAt": "2027-01-01T00:00:00Z"}})
        universe.sleep(draw.choice((0.05, 0.3, 1.0, 3.0)))
        fails = draw.random() < self.failing
        if not fails:
            value = loss(str(job))
            server.logs.setdefault(pod, []).append(f"2027-01-15T08:00:01.000000000Z loss={value}")
        universe.wake(server.watchers)
        universe.sleep(draw.choice((0.01, 0.1, 1.0)))
        if not self._is_there(name, uid):
            return
        ended = {"exitCode": int(fails), "startedAt": "2027-01-01T00:00:00Z"}
        ended |= {"finishedAt": "2027-01-01T00:00:01Z", "reason": "Error" if fails else "Completed"}
        self._pod(pod, job, "Failed" if fails else "Succeeded", {"terminated": ended})
        condition = {"type": "Failed" if fails else "Complete", "status": "True"}
        job = server.objects["jobs", name]
        server.put("jobs", {**job, "status": {"conditions": [condition]}})

    def _is_there(self, name: str, uid: str) -> bool:
        found = self.server.objects.get(("jobs", name))
        return bool(found) and found["metadata"]["uid"] == uid

    def _pod(self, name: str, job: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        owner = {"uid": job["metadata"]["uid"]}
        metadata = {
            "name": name,
            "labels": {"job-name": job["metadata"]["name"]},
            "ownerReferences": [owner],
        }
        container = {"name": "training", "image": "i", "imageID": "i", "ready": True}
        container |= {"restartCount": 0, "state": state}
        pod = {
            "metadata": metadata,
            "spec": {"containers": [{"name": "training"}]},
            "status": {"phase": phase, "containerStatuses": [container]},
        }
        known = self.server.objects.get(("pods", name))
        if known:
            pod["metadata"] = known["metadata"]
        self.server.put("pods", pod, "MODIFIED" if known else "ADDED")


def loss(text: str) -> float:
    """Return what a trial reports, by the parameter in its command."""
    found = re.search(r"--x=([0-9.e-]+)", text)
    assert found, text
    return round((float(found[1]) - 0.3) ** 2 + 0.01, 9)


class SweepUniverse:
    """One to three engines and an Experiment.

    Args:
        seed: Decides everything.
        only: Only these faults strike; None for all that the seed has.
    """

    KINDS = KINDS
    LONGEST, CALM = 3 * 3600.0, math.inf
    PATIENCE = 8_000
    """Operations of which most take some hundreds; who asks more often asks in vain, again and
    again."""

    LEAVING = ("crash", "died")
    """Faults after which the ended job of a trial may be left."""

    def __init__(self, seed: int, only: frozenset[Fault] | None = None) -> None:
        plan = random.Random(seed * 2654435761 % 2**32)
        rate = plan.choice((0, 10, 30, 80))
        kinds = frozenset(kind for kind in self.KINDS if plan.random() < 0.6)
        self.universe = Universe(seed, rate=rate, kinds=kinds, only=only, patience=self.PATIENCE)
        self.plan = plan
        self.server = Server(self.universe)
        self.server.on_write = self._written
        self.failing = plan.choice((0.0, 0.0, 0.3))
        self.storage = ""
        self.operator = self._operator()
        self.trials, self.parallel = plan.choice((1, 2, 3, 4)), plan.choice((1, 2, 3))
        self.parallel = min(self.parallel, self.trials)
        self.wish = plan.choice(("", "", "", "delete", "more"))
        self.engines: dict[str, Engine] = {}
        self.over = False
        self.ends: list[str] = []

    def run(self) -> Outcome:
        """Run it to its end and check what must hold."""
        usual = kubernetes_cluster.api_of, controller._LOOK_SECONDS
        kubernetes_cluster.api_of = lambda url: self.server.api()
        controller._LOOK_SECONDS = 1.0
        problem = ""
        try:
            for number in range(self.plan.choice((1, 1, 2, 3))):
                self._live(self.universe.process(f"engine{number}"))
            self.universe.begin(self.universe.process("user"), self._use)
            self.universe.run()
            self._check()
        except Violation as violation:
            problem = str(violation)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        finally:
            kubernetes_cluster.api_of, controller._LOOK_SECONDS = usual
        return self.universe.outcome(problem)

    def _operator(self) -> Operator:
        return Operator(self.server, self.plan, self.failing)

    def _manifest(self) -> dict[str, Any]:
        return experiment(self.trials, self.parallel, self.trials)

    def _trials(self) -> Mapping[str, dict[str, Any]]:
        return {name: item for (of, name), item in self.server.objects.items() if of == "trials"}

    def _may_fail(self, trials: Sequence[dict[str, Any]]) -> bool:
        """Return whether trials, and so the sweep, have failed for a good reason."""
        return self.failing > 0

    def _use(self) -> None:
        """Create the Experiment, wait for its end, then end the engines."""
        universe = self.universe
        manifest = self._manifest()
        universe.sleep(self.plan.choice((0.0, 0.5, 5.0)))
        self.server.put("experiments", manifest, "ADDED")
        if self.wish:
            universe.sleep(self.plan.choice((0.01, 1.0, 3.0, 6.0)))
            self._wish_it()
        while universe.now < self.LONGEST and not self._phase():
            universe.quiet = universe.now > self.CALM
            universe.block(self.server.watchers, 60.0)
        universe.quiet = True
        universe.sleep(3 * LEASE_SECONDS)
        self.over = True
        for engine in self.engines.values():
            engine.stop()
        self._end()

    def _end(self) -> None:
        """End what would go on for ever."""

    def _wish_it(self) -> None:
        """Delete the Experiment, or ask for one trial more."""
        if self.wish == "delete":
            self.server.remove("experiments", "sweep")
            return
        stored = self.server.objects["experiments", "sweep"]
        spec = {**stored["spec"], "maxTrialCount": self.trials + 1}
        self.server.put("experiments", {**stored, "spec": spec})

    def _stored(self) -> dict[str, Any] | None:
        return self.server.objects.get(("experiments", "sweep"))

    def _phase(self) -> str:
        """Return the last state of the Experiment; empty until it has one."""
        stored = self._stored()
        if not stored:
            return "Deleted"
        conditions = (stored.get("status") or {}).get("conditions") or ()
        kinds = [each["type"] for each in conditions if each["status"] == "True"]
        return next((kind for kind in kinds if kind in ("Succeeded", "Failed")), "")

    def _live(self, process: Process) -> None:
        universe, lives = self.universe, [0]

        def life() -> None:
            lives[0] += 1
            holder = f"{process.name}-{lives[0]}"
            try:
                while not self.over:
                    engine = Engine(
                        KubernetesCluster("kubernetes://team"),
                        holder=holder,
                        image="podium",
                        storage=self.storage,
                        report=lambda line: None,
                        lease_seconds=LEASE_SECONDS,
                    )
                    self.engines[process.name] = engine
                    try:
                        engine.run()
                    except PodiumError as error:  # as its Deployment does, it begins again
                        self.ends.append(error.message)
                        universe.sleep(2.0)
                        process.silent_at = -1e9
            except Crash:
                self.engines.pop(process.name, None)
                if not self.over:
                    self._again(process, life)
                raise

        universe.begin(process, life)

    def _again(self, process: Process, life: Callable[[], None]) -> None:
        universe = self.universe

        def later() -> None:
            universe.sleep((0.1, 2.0, 10.0)[universe.draw(process.number, process.operations) % 3])
            if not self.over:
                process.skew, process.silent_at = 0.0, -1e9
                universe.begin(process, life)

        keeper = universe.process("kubelet")
        if keeper.life is None:
            universe.begin(keeper, later)
        else:
            universe.spawn(keeper.life, later, "restart")

    def _written(self, plural: str, name: str) -> None:
        """Only one engine believes that it leads, and nobody else writes."""
        leading = [each for each, engine in self.engines.items() if engine._leads()]
        if len(leading) > 1:
            raise Violation(f"{' and '.join(leading)} lead at once")
        writer = self.universe.task().life.process.name
        if leading and writer != leading[0]:
            raise Violation(f"{writer} writes {plural} {name} while {leading[0]} leads")

    def _check(self) -> None:
        if self.wish == "delete":
            kinds = ("experiments", "trials", "jobs", "pods")
            if left := [name for plural, name in self.server.objects if plural in kinds]:
                raise Violation(f"{left[0]} outlives its sweep")
            return
        stored = self._stored()
        if not stored:
            raise Violation(f"the sweep is gone: {self.ends[-3:]}")
        phase, status = self._phase(), stored.get("status") or {}
        if not phase:
            raise Violation(f"the sweep does not end: {status}")
        trials = self._trials()
        ended = {name: _phase_of(trial) for name, trial in trials.items()}
        if phase == "Succeeded":
            self._check_counts(status, ended)
            self._check_best(status, trials)
        elif not any(
            each.get("message") for each in status.get("conditions", ()) if each["type"] == phase
        ):
            raise Violation("the sweep fails without a sentence")
        elif not self._may_fail([*trials.values()]):
            said = [words_of(each) for each in trials.values()]
            raise Violation(f"the sweep fails: {status['conditions'][-1]['message']}: {said}")
        for name, count in self.operator.begun.items():
            if count > 1:
                raise Violation(f"trial {name} ran {count} times")
        for (plural, name), item in self.server.objects.items():
            if plural == "jobs" and not item.get("status"):
                raise Violation(f"job {name} outlives its sweep")
            killed = any(fault.kind in self.LEAVING for fault in self.universe.struck)
            if plural == "jobs" and ended.get(name) == "Succeeded" and not killed:
                raise Violation(f"job {name} of a trial that succeeded is left")

    def _check_counts(self, status: dict[str, Any], ended: dict[str, str]) -> None:
        most = (self.trials, self.trials + 1) if self.wish else (self.trials,)
        if sum(phase != "MetricsUnavailable" for phase in ended.values()) not in most:
            raise Violation(f"{len(ended)} trials of {self.trials}: {ended}")
        if open_ones := [name for name, phase in ended.items() if not phase]:
            raise Violation(f"trial {open_ones[0]} has no end")
        for phase, count in (("Succeeded", "trialsSucceeded"), ("Failed", "trialsFailed")):
            told = status.get(count, 0)
            real = sum(each == phase for each in ended.values())
            if told != real:
                raise Violation(f"{told} trials are told to have {phase.lower()}, {real} have")

    def _check_best(self, status: dict[str, Any], trials: Mapping[str, dict[str, Any]]) -> None:
        values = {
            name: loss(str(trial["spec"]["runSpec"]))
            for name, trial in trials.items()
            if _phase_of(trial) == "Succeeded"
        }
        for name, value in values.items():
            metrics = trials[name]["status"]["observation"]["metrics"]
            if float(metrics[0]["latest"]) != value:
                raise Violation(f"trial {name} reported {value}, and has {metrics[0]}")
        best = status["currentOptimalTrial"].get("bestTrialName")
        if values and best != min(values, key=lambda name: values[name]):
            raise Violation(f"the best trial is {best}, not the one with {min(values.values())}")


def _phase_of(trial: dict[str, Any]) -> str:
    conditions = (trial.get("status") or {}).get("conditions") or ()
    kinds = [each["type"] for each in conditions if each["status"] == "True"]
    ends = ("Succeeded", "Failed", "MetricsUnavailable", "EarlyStopped", "Killed")
    return next((kind for kind in kinds if kind in ends), "")


def words_of(trial: dict[str, Any]) -> str:
    """Return a trial's last sentence."""
    conditions = (trial.get("status") or {}).get("conditions") or ()
    return str(conditions[-1]["message"]) if conditions else ""


def modules(name: str) -> bool:
    """Return whether a module of podium takes part in this universe."""
    rooms = ("sweeps", "cluster.kubernetes", "system", "manifests", "search")
    return name.startswith(tuple(f"podium.{room}" for room in rooms))

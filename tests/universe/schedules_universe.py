"""Schedules of a Kubeflow Pipelines server in a universe: people and their CI apply, pause and
delete them at once, over a network that loses answers and sends requests twice."""

import json
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import kfp_server_api
from kfp_server_api import ApiException, RecurringRunMode
from simulation import EPOCH, Crash, Fault, Outcome, Universe, Violation, here
from urllib3.exceptions import ProtocolError

from podium.cli import schedule as commands
from podium.errors import NotFound, PodiumError
from podium.kfp import client, schedules
from podium.kfp.schedule_files import Schedule

KINDS = ("lag", "hitch", "unanswered", "lost", "doubled", "broken", "crash", "died")
_READS = ("lag", "hitch", "unanswered", "lost", "broken", "crash")
_WRITES = (*_READS, "doubled", "died")
_APIS = (
    "RunServiceApi",
    "PipelineServiceApi",
    "PipelineUploadServiceApi",
    "RecurringRunServiceApi",
    "ExperimentServiceApi",
)
_SPEC = {
    "pipelineInfo": {"name": "hello"},
    "root": {
        "inputDefinitions": {
            "parameters": {"rounds": {"parameterType": "NUMBER_INTEGER", "defaultValue": 3}}
        }
    },
}


def _refused(status: int, message: str) -> ApiException:
    error = ApiException(status=status, reason=message)
    error.body = json.dumps({"message": message})
    return error


class Services:
    """As the generated client's of a server; each call is a request over the network."""

    host = "http://universe"

    def __init__(self, universe: Universe) -> None:
        self.universe, self.count = universe, 0
        self.recurring: dict[str, Any] = {}
        self.runs: dict[str, Any] = {}
        self.groups: dict[str, Any] = {}
        self.cancelled: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        name = name.partition("_service_")[2]
        work, reads = getattr(type(self), f"_{name}"), name.startswith("list")

        def call(**given: Any) -> Any:
            kind = here().operation(name, _READS if reads else _WRITES)
            if kind == "unanswered":
                raise ProtocolError("no answer")
            if kind == "broken":
                raise _refused(500, "the database is away")
            answer = work(self, **given)
            if kind == "doubled":
                here().pause()
                answer = work(self, **given)
            if kind == "died":
                here().crash()
            if kind == "lost":
                raise ProtocolError("the answer was lost")
            return answer

        return call

    def _new(self, kind: str, **fields: Any) -> Any:
        self.count += 1
        number = self.universe.ids.getrandbits(32)  # no order
        now = datetime.fromtimestamp(int(EPOCH + self.universe.now), UTC)
        return SimpleNamespace(id=f"{kind}-{number:08x}", created_at=now, **fields)

    def _list_experiments(self, filter: str, **_: Any) -> Any:
        name = json.loads(filter)["predicates"][0]["stringValue"]
        found = [self.groups[name]] if name in self.groups else []
        return SimpleNamespace(experiments=found)

    def _create_experiment(self, experiment: Any) -> Any:
        name = experiment.display_name
        if name in self.groups:
            raise _refused(409, f"the name {name} already exists")
        self.groups[name] = self._new("group", experiment_id="1")
        return self.groups[name]

    def _page(self, field: str, items: list[Any]) -> Any:
        return SimpleNamespace(**{field: items, "next_page_token": ""})

    def _list_pipelines(self, **_: Any) -> Any:
        pipeline = SimpleNamespace(pipeline_id="p", display_name="hello")
        return self._page("pipelines", [pipeline])

    def _list_pipeline_versions(self, **_: Any) -> Any:
        version = SimpleNamespace(
            display_name="v1-1", pipeline_version_id="v", created_at=None, pipeline_spec=_SPEC
        )
        return self._page("pipeline_versions", [version])

    def _list_recurring_runs(self, **_: Any) -> Any:
        return self._page("recurring_runs", [*self.recurring.values()])

    def _list_runs(self, **_: Any) -> Any:
        return self._page("runs", [*self.runs.values()])

    def _terminate_run(self, run_id: str) -> None:
        self.runs[run_id].state = "CANCELED"
        self.cancelled.append(run_id)

    def _create_recurring_run(self, recurring_run: Any) -> Any:
        made = copy(recurring_run)
        new = self._new("recurring")
        made.recurring_run_id, made.created_at = new.id, new.created_at
        made.status = "ENABLED" if made.mode == RecurringRunMode.ENABLE else "DISABLED"
        self.recurring[new.id] = made
        return made

    def _there(self, recurring_run_id: str) -> Any:
        if recurring_run_id not in self.recurring:
            raise _refused(404, f"recurring run {recurring_run_id} not found")
        return self.recurring[recurring_run_id]

    def _enable_recurring_run(self, recurring_run_id: str) -> None:
        self._there(recurring_run_id).status = "ENABLED"

    def _disable_recurring_run(self, recurring_run_id: str) -> None:
        self._there(recurring_run_id).status = "DISABLED"

    def _delete_recurring_run(self, recurring_run_id: str) -> None:
        self._there(recurring_run_id)
        del self.recurring[recurring_run_id]
        for run in self.runs.values():  # the workflow goes with it
            if run.recurring_run_id == recurring_run_id and run.state == "RUNNING":
                self.cancelled.append(run.run_id)
                run.state = "CANCELED"

    def fire(self) -> None:
        """Let a schedule that is enabled begin a run."""
        enabled = [each for each in self.recurring.values() if each.status == "ENABLED"]
        if enabled:
            of = self.universe.random.choice(enabled).recurring_run_id
            run = self._new("run", recurring_run_id=of, state="RUNNING")
            run.run_id = run.id
            self.runs[run.id] = run


@dataclass(kw_only=True)
class Wish:
    """A command that somebody repeats until it is done.

    Args:
        kind: apply, delete or pause.
    """

    kind: str
    schedule: Schedule
    began: float = 0.0
    ended: float = -1.0


class SchedulesUniverse:
    """One to three people with the schedules of one server.

    Args:
        seed: Decides everything.
        only: Only these faults strike; None for all that the seed has.
    """

    def __init__(self, seed: int, only: frozenset[Fault] | None = None) -> None:
        plan = random.Random(seed * 2654435761 % 2**32)
        kinds = frozenset(kind for kind in KINDS if plan.random() < 0.6)
        rate = plan.choice((0, 20, 60))
        self.universe = Universe(seed, rate=rate, kinds=kinds, only=only, patience=20_000)
        self.services, self.plan = Services(self.universe), plan
        self.wishes: list[Wish] = []
        self.open = 0

    def run(self) -> Outcome:
        """Run it to its end and check what must hold."""
        problem = ""
        replaced: list[tuple[Any, str, Any]] = [
            (client, "_require_listener", lambda _: None),
            (client, "_quiet", nullcontext),  # which is for a whole process
            (client, "_is_plain", lambda *_: True),
            (client, "_plain", lambda *_: (SimpleNamespace(configuration=self.services), "")),
            (commands, "load", lambda paths: list(paths)),
            (commands, "output", lambda *_: None),
            (commands, "echo", lambda *_, **__: None),
            *[(kfp_server_api, name, lambda _: self.services) for name in _APIS],
        ]
        usual = [(module, name, getattr(module, name)) for module, name, _ in replaced]
        for module, name, new in replaced:
            setattr(module, name, new)
        try:
            for number in range(self.plan.choice((1, 2, 2, 3))):
                self._live(f"person{number}")
            self.universe.begin(self.universe.process("server"), self._serve)
            self.universe.run()
            self._check()
        except Violation as violation:
            problem = str(violation)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        finally:
            for module, name, old in usual:
                setattr(module, name, old)
        return self.universe.outcome(problem)

    def _serve(self) -> None:
        while self.open:
            self.universe.sleep(self.universe.random.choice((0.3, 3.0)))
            if self.universe.random.random() < 0.2:
                self.services.fire()
            for run in self.services.runs.values():
                if run.state == "RUNNING" and self.universe.random.random() < 0.3:
                    run.state = "SUCCEEDED"

    def _live(self, name: str) -> None:
        self.open += 1
        process, left = self.universe.process(name), [self._wish() for _ in range(3)]

        def life() -> None:
            try:
                while left:
                    if self._carried_out(left[0]):
                        del left[0]
                    self.universe.sleep(self.universe.random.choice((0.0, 0.4, 2.0, 60.0)))
            except Crash:
                here().spawn(keeper.life, again, "again")  # type: ignore[arg-type]
                raise
            self.open -= 1

        def again() -> None:
            self.universe.sleep(1.0)
            self.universe.begin(process, life)

        keeper = self.universe.process("keeper")
        if keeper.life is None:
            self.universe.begin(keeper, lambda: None)
        self.universe.begin(process, life)

    def _wish(self) -> Wish:
        draw = self.plan
        schedule = Schedule(
            name=draw.choice(("nightly", "nightly", "weekly")),
            pipeline="hello",
            cron=draw.choice(("0 0 3 * * *", "0 0 4 * * *")),
            parameters={"rounds": draw.choice((1, 2))},
            enabled=draw.random() < 0.8,
        )
        return Wish(
            kind=draw.choice(("apply", "apply", "apply", "delete", "pause")), schedule=schedule
        )

    def _carried_out(self, wish: Wish) -> bool:
        """Try a command; return whether it is done."""
        name = wish.schedule.name
        server = {"host": self.services.host, "namespace": None, "token": None}
        if wish not in self.wishes:
            self.wishes.append(wish)
            wish.began = self.universe.now
        alone, now = self.open == 1, self.universe.random.random() < 0.5
        running = [run for run in self.services.runs.values() if run.state == "RUNNING"]
        before, cancelled = [run.run_id for run in running], len(self.services.cancelled)
        try:
            if wish.kind == "apply":
                call = commands.schedule.commands["apply"].callback
                call(paths=(wish.schedule,), group="g", now=now, as_json=False, **server)
            elif wish.kind == "delete":
                commands.schedule.commands["delete"].callback(name=name, now=now, **server)
            else:
                commands.schedule.commands["pause"].callback(name=name, **server)
        except NotFound as error:
            if "cannot delete" in error.message:
                raise Violation(f"a command minds that it is gone: {error.message}") from None
            if f"no schedule {name!r}" not in error.message:
                return False
        except PodiumError as error:
            if not error.message:
                raise Violation("a command fails without a sentence") from None
            return False
        if alone and not now:
            for run in self.services.cancelled[cancelled:]:
                if run in before:
                    raise Violation(f"{run} was cancelled, which nobody has allowed")
        wish.ended = self.universe.now
        return True

    def _check(self) -> None:
        for name in ("nightly", "weekly"):
            there = [each for each in self.services.recurring.values() if each.display_name == name]
            if len(there) > 1:
                raise Violation(f"{len(there)} schedules are called {name}")
            asked = {
                kind: [
                    wish for wish in self.wishes if wish.schedule.name == name and wish.kind == kind
                ]
                for kind in ("apply", "delete", "pause")
            }
            applied, deleted = asked["apply"], asked["delete"]
            if not there and any(_is_last(wish, deleted) for wish in applied):
                raise Violation(f"the schedule {name} is lost")
            if there and any(_is_last(wish, applied) for wish in deleted):
                raise Violation(f"the schedule {name} was deleted and is there")
            if there and not any(
                self._is(there[0], wish, asked["pause"])
                for wish in applied
                if not any(other.began >= wish.ended for other in applied)
            ):
                raise Violation(f"the schedule {name} is not as anybody asked for")
            paused = any(_is_last(wish, applied) for wish in asked["pause"])
            if there and paused and there[0].status != "DISABLED":
                raise Violation(f"the schedule {name} was paused and fires")

    def _is(self, recurring: Any, wish: Wish, paused: Sequence[Wish]) -> bool:
        found, wanted = schedules._settings_of(recurring), wish.schedule
        enabled = wanted.enabled if _is_last(wish, paused) else found["enabled"]
        return (found["cron"], found["enabled"], found["parameters"]) == (
            wanted.cron,
            enabled,
            wanted.parameters,
        )


def _is_last(wish: Wish, others: Sequence[Wish]) -> bool:
    """Return whether a command began after all others had ended."""
    return all(other.ended < wish.began for other in others)


def modules(name: str) -> bool:
    """Return whether a module of podium takes part in this universe."""
    return name == "podium.kfp.client"

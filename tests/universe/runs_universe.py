"""Runs of pipelines in a universe: commands, their children and the programs of their steps are
simulated processes, which are killed at any moment; whoever comes next resumes."""

import json
import os as real_os
import random
import shutil
import signal as real_signal
import subprocess as real_subprocess
import sys as real_sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from simulated_machine import Machine, Pipe, Running
from simulation import Event, Fault, Future, Outcome, SimpleQueue, Universe, Violation, here

from podium.errors import Conflict, PodiumError
from podium.kfp import definition
from podium.runner import child, interpreter, process, record, run as runs, step_process
from podium.runner.messages import Order
from podium.runner.record import RunRecord
from podium.system import processes
from podium.system.settings import FAILURE

KINDS = (
    "hitch",
    "lag",
    "stall",
    "space",
    "io",
    "torn",
    "crash",
    "died",
    "interrupt",
    "jump",
    "killed",
)
_HOME = ("PODIUM_HOME", "PODIUM_STORAGE", "PODIUM_CLUSTER")
_COMPONENT = ("python3", "-c", "ephemeral_component.py kfp.dsl.executor_main")


def value(function: str, inputs: Mapping[str, Any]) -> int:
    """Return what a program computes."""
    return zlib.crc32(json.dumps([function, inputs], sort_keys=True).encode()) % 100


@dataclass(kw_only=True)
class Execution:
    """One execution of a step's program."""

    step: str
    function: str
    inputs: dict[str, Any]
    """Values; of an artifact what is in it."""

    started_by: Running
    manners: str = ""
    """What it does when it is asked to end: ends, cleans up first, or goes on."""

    ended: bool = False
    good: bool = False


@dataclass(kw_only=True)
class Shape:
    """A pipeline.

    Args:
        plan: Decides what it has.
    """

    plan: random.Random
    handled: bool = field(init=False)
    """Whether it has an exit handler."""

    options: dict[str, dict[str, Any]] = field(init=False)
    """By function: its caching and retries."""

    limits: dict[str, int] = field(init=False)
    """Seconds that a step may take, of functions that have a limit."""

    def __post_init__(self) -> None:
        draw = self.plan
        self.handled = draw.random() < 0.5
        functions = ("gen", "body", "extra", "total", "side", "use", "tell")
        self.options = {
            function: {
                "cachingOptions": {"enableCache": True} if draw.random() < 0.5 else {},
                **(
                    {
                        "retryPolicy": {
                            "maxRetryCount": draw.choice((1, 2)),
                            "backoffDuration": draw.choice(("0s", "1s", "30s")),
                            "backoffFactor": 2.0,
                            "backoffMaxDuration": "3600s",
                        }
                    }
                    if draw.random() < 0.4
                    else {}
                ),
            }
            for function in functions
        }
        self.limits = {each: draw.choice((2, 30)) for each in functions if draw.random() < 0.2}
        self.parallel = draw.choice((0, 1, 2))

    def documents(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return it as KFP compiles it, and its settings for Kubernetes."""
        number, numbers = {"parameterType": "NUMBER_INTEGER"}, {"parameterType": "LIST"}
        some = {
            "artifactType": {"schemaTitle": "system.Artifact", "schemaVersion": "0.0.1"},
        }
        by = {"parameterType": "STRING"}
        known: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
            "gen": ({"x": number}, numbers, False),
            "body": ({"item": number}, number, True),
            "extra": ({"item": number}, number, False),
            "total": ({"values": numbers}, number, False),
            "side": ({"y": number}, number, True),
            "use": ({"n": number}, number, False),
        }
        components: dict[str, Any] = {
            f"comp-{name}": {
                "executorLabel": f"exec-{name}",
                "inputDefinitions": {"parameters": inputs},
                "outputDefinitions": {
                    "parameters": {"Output": output, "by": by},
                    "artifacts": {"maybe": some, **({"art": some} if art else {})},
                },
            }
            for name, (inputs, output, art) in known.items()
        }
        components["comp-use"]["inputDefinitions"]["artifacts"] = {"art": some}
        status = {"parameterType": "TASK_FINAL_STATUS", "isOptional": True}
        components["comp-tell"] = {
            "executorLabel": "exec-tell",
            "inputDefinitions": {"parameters": {"status": status}},
        }
        tasks = {
            "gen": self._task("gen", x=_of_group("x")),
            "loop": {
                "componentRef": {"name": "comp-loop"},
                "dependentTasks": ["gen"],
                "inputs": {"parameters": {"items": _of_task("gen", "Output")}},
                "iteratorPolicy": {"parallelismLimit": self.parallel},
                "parameterIterator": {"itemInput": "item", "items": {"inputParameter": "items"}},
                "taskInfo": {"name": "for-loop-1"},
            },
            "total": self._task("total", values=_of_task("loop", "outs")),
            "side": self._task("side", y=_of_group("y")),
            "use": self._task("use", n=_of_task("total", "Output")),
        }
        art = {"taskOutputArtifact": {"outputArtifactKey": "art", "producerTask": "side"}}
        tasks["use"]["inputs"]["artifacts"] = {"art": art}
        loop = {
            "body": self._task("body", item=_of_group("item")),
            "condition-2": {
                "componentRef": {"name": "comp-condition-2"},
                "dependentTasks": ["body"],
                "inputs": {"parameters": {"out": _of_task("body", "Output")}},
                "taskInfo": {"name": "condition-2"},
                "triggerPolicy": {"condition": "int(inputs.parameter_values['out']) > 49"},
            },
        }
        outs = {"valueFromParameter": {"outputParameterKey": "Output", "producerSubtask": "body"}}
        components["comp-loop"] = {
            "dag": {"tasks": loop, "outputs": {"parameters": {"outs": outs}}},
            "inputDefinitions": {"parameters": {"items": numbers, "item": number}},
        }
        components["comp-condition-2"] = {
            "dag": {"tasks": {"extra": self._task("extra", item=_of_group("out"))}},
            "inputDefinitions": {"parameters": {"out": number}},
        }
        root: dict[str, Any] = {"dag": {"tasks": tasks}}
        given = {"x": {**number, "defaultValue": 1.0}, "y": {**number, "defaultValue": 1.0}}
        if self.handled:
            components["comp-exit-handler-3"] = {
                "dag": {"tasks": tasks},
                "inputDefinitions": {"parameters": {"x": number, "y": number}},
            }
            handler = {
                "componentRef": {"name": "comp-exit-handler-3"},
                "inputs": {"parameters": {name: _of_group(name) for name in given}},
                "taskInfo": {"name": "exit-handler-3"},
            }
            told = {"taskFinalStatus": {"producerTask": "exit-handler-3"}}
            tell = self._task("tell", status=told)
            tell |= {"dependentTasks": ["exit-handler-3"]}
            tell["triggerPolicy"] = {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
            root = {"dag": {"tasks": {"exit-handler-3": handler, "tell": tell}}}
        else:
            last = {"outputParameterKey": "Output", "producerSubtask": "use"}
            root["dag"]["outputs"] = {"parameters": {"last": {"valueFromParameter": last}}}
        root["inputDefinitions"] = {"parameters": given}
        executors = {f"exec-{name}": {"container": _container(name)} for name in (*known, "tell")}
        spec = {
            "components": components,
            "deploymentSpec": {"executors": executors},
            "pipelineInfo": {"name": "p"},
            "root": root,
            "schemaVersion": "2.1.0",
        }
        limited = {
            f"exec-{name}": {"activeDeadlineSeconds": str(seconds)}
            for name, seconds in self.limits.items()
        }
        kubernetes = {"kubernetes": {"deploymentSpec": {"executors": limited}}}
        return spec, {"platforms": kubernetes}

    def _task(self, name: str, **parameters: Any) -> dict[str, Any]:
        before = [
            source[kind]["producerTask"]
            for source in parameters.values()
            for kind in source
            if "producerTask" in str(source[kind])
        ]
        return {
            "componentRef": {"name": f"comp-{name}"},
            "dependentTasks": before,
            "inputs": {"parameters": parameters},
            "taskInfo": {"name": name},
            **self.options[name],
        }

    def inputs(self, x: int, y: int) -> dict[str, dict[str, Any]]:
        """Return the inputs that each step must have got, for the pipeline's own."""
        found = {"gen": {"x": x}, "side": {"y": y}}
        items = generated(found["gen"])
        outs = []
        for at, item in enumerate(items):
            found[f"body.{at}"] = {"item": item}
            outs.append(value("body", found[f"body.{at}"]))
            if outs[-1] > 49:
                found[f"extra.{at}"] = {"item": outs[-1]}
        found["total"] = {"values": outs}
        found["use"] = {
            "n": value("total", found["total"]),
            "art": value("side", found["side"]),
        }
        return found


def generated(inputs: Mapping[str, Any]) -> list[int]:
    """Return the list that gen puts out."""
    first = value("gen", inputs)
    return [first + at for at in range(first % 4)]


def _of_group(name: str) -> dict[str, Any]:
    return {"componentInputParameter": name}


def _of_task(task: str, key: str) -> dict[str, Any]:
    return {"taskOutputParameter": {"outputParameterKey": key, "producerTask": task}}


def _container(name: str) -> dict[str, Any]:
    args = ["--executor_input", "{{$}}", "--function_to_execute", name]
    return {"image": "python:3.11", "command": [*_COMPONENT], "args": args}


class _Events:
    """Standard output of a child: a line arrives whole, unless its writer is killed."""

    def __init__(self, machine: Machine, pipe: Pipe, told: list[dict[str, Any]]) -> None:
        self.machine, self.pipe, self.text, self.told = machine, pipe, "", told

    def __enter__(self) -> "_Events":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        content, self.text = self.text.encode(), ""
        self.told.append(json.loads(content))
        kind = self.machine.operation("report", ("hitch", "crash", "torn", "died"))
        self.pipe.write(content[: len(content) // 2] if kind == "torn" else content)
        if kind in ("torn", "died"):
            here().crash()


class _Stdin:
    """The writing end of a child's stdin."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def write(self, text: str) -> None:
        self.pipe.write(text.encode())

    def flush(self) -> None:
        here().pause()

    def close(self) -> None:
        self.pipe.end_writing()


class _Lines:
    """The reading end of a child's stdout."""

    def __init__(self, machine: Machine, pipe: Pipe) -> None:
        self.machine, self.pipe = machine, pipe

    def __iter__(self) -> Iterator[str]:
        while line := self.pipe.take(line=True):
            self.machine.operation("take a report", ("hitch", "stall", "crash"))
            yield line.decode()

    def close(self) -> None:
        self.pipe.end_reading()


class _Printed:
    """The reading end of what a step prints."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def __enter__(self) -> "_Printed":
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.end_reading()

    def read1(self) -> bytes:
        return self.pipe.take()


class Popen:
    """A process that another started: ends with it, as its supervisor sees to it."""

    def __init__(self, machine: Machine, running: Running) -> None:
        self._running, self.pid = running, running.number
        parent = machine.current()
        parent.closing += [running.stdin.end_writing, running.stdout.end_reading]
        running.closing += [running.stdin.end_reading, running.stdout.end_writing]

    def wait(self, timeout: float | None = None) -> int:
        if not self._running.over.wait(timeout):
            raise real_subprocess.TimeoutExpired("step", timeout or 0.0)
        return self._running.code

    def terminate(self) -> None:
        here().pause()
        self._running.send(real_signal.SIGTERM)


class _Child(Popen):
    def __init__(self, machine: Machine, running: Running) -> None:
        super().__init__(machine, running)
        self.stdin, self.stdout = _Stdin(running.stdin), _Lines(machine, running.stdout)


class _Step(Popen):
    """A step with its supervisor, which kills it once its stdin is closed."""

    def __init__(self, machine: Machine, running: Running) -> None:
        super().__init__(machine, running)
        self.stdout, self.stdin = _Printed(running.stdout), self
        machine.current().closing.append(self.close)

    def close(self) -> None:
        if Universe.current:
            self._running.send(real_signal.SIGKILL)


class _Os:
    """Python's os as a child has it: its descriptors are pipes."""

    def __init__(self, machine: Machine, told: dict[Running, list[dict[str, Any]]]) -> None:
        self._machine, self._told = machine, told

    def __getattr__(self, name: str) -> Any:
        return getattr(real_os, name)

    @property
    def environ(self) -> dict[str, str]:
        return self._machine.current().environ

    def dup(self, number: int) -> int:
        return number

    def dup2(self, number: int, other: int) -> None:
        pass

    def open(self, path: str, flags: int) -> int:
        return 0

    def fdopen(self, number: int, mode: str, encoding: str = "") -> _Events:
        me = self._machine.current()
        return _Events(self._machine, me.stdout, self._told.setdefault(me, []))

    def read(self, number: int, count: int) -> bytes:
        return self._machine.current().stdin.take()

    def getpid(self) -> int:
        return self._machine.current().number

    def killpg(self, group: int, number: int) -> None:
        self._machine.send(group or self.getpid(), number)


class _Replaced:
    """A module with some names replaced, of which those that are called here depend on who asks."""

    def __init__(self, real: Any, **names: Any) -> None:
        self._real = real
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Sys(_Replaced):
    @property
    def stdin(self) -> Any:
        pipe = self.machine.current().stdin
        return _Replaced(pipe, readline=lambda: pipe.take(line=True).decode())


class RunsUniverse:
    """Runs of one pipeline by one or two commands, which somebody else stops and resumes too.

    Args:
        seed: Decides everything.
        only: Only these faults strike; None for all that the seed has.
    """

    PATIENCE = 60_000

    def __init__(self, seed: int, only: frozenset[Fault] | None = None) -> None:
        plan = random.Random(seed * 2654435761 % 2**32)
        rate = plan.choice((0, 2, 5, 15))
        kinds = frozenset(kind for kind in KINDS if plan.random() < 0.6)
        self.universe = Universe(seed, rate=rate, kinds=kinds, only=only, patience=self.PATIENCE)
        self.plan, self.shape = plan, Shape(plan=plan)
        self.home = Path(tempfile.mkdtemp())
        self.machine = Machine(self.universe, self.home)
        self.documents = self.shape.documents()
        self.failing = plan.choice((0.0, 0.1, 0.3))
        self.cores = plan.choice((2, 2, 4))
        self.executions: list[Execution] = []
        self.orders: dict[Running, Order] = {}
        self.done: dict[Running, dict[str, Execution]] = {}
        """What a child must not repeat, by step."""

        self.told: dict[Running, list[dict[str, Any]]] = {}
        """What each child has reported."""

        self.starters: dict[Running, Running] = {}

        self.beside: dict[Running, set[Running]] = {}
        """The other children of its run as a child began."""

        self.by: dict[Path, str] = {}
        """Who has begun a run."""

        self.children, self.open_users = 0, 0
        self.begun, self.resuming = 0, 0
        """How often somebody has begun or resumed a run, and is about to."""

    def run(self) -> Outcome:
        """Run it to its end and check what must hold."""
        machine, problem = self.machine, ""
        os = _Os(machine, self.told)
        replaced: list[tuple[Any, str, Any]] = [
            (process, "os", os),
            (processes, "os", os),
            (process, "subprocess", _Replaced(real_subprocess, Popen=self._start_child)),
            (process, "SimpleQueue", SimpleQueue),
            (process, "atexit", _Replaced(None, register=self._at_exit, unregister=self._no_exit)),
            (process, "doing", lambda _: nullcontext()),
            (child, "os", os),
            (child, "sys", _Sys(real_sys, machine=machine)),
            (child, "signal", _Replaced(real_signal, signal=self._handle)),
            (interpreter, "Future", Future),
            (interpreter, "cores", lambda: self.cores),
            (step_process, "subprocess", _Replaced(real_subprocess, Popen=self._start_step)),
            (
                step_process,
                "supervised",
                _Replaced(step_process.supervised, outlived=lambda started: started),
            ),
            (record, "fcntl", _Replaced(record.fcntl, flock=machine.flock)),
            (record, "datetime", datetime),  # which documents know by its name
            (runs, "progress", lambda: nullcontext(lambda *_: None)),
            (runs, "say", lambda _: None),
            (definition, "_read", lambda file: self.documents),
        ]
        usual = [(module, name, getattr(module, name)) for module, name, _ in replaced]
        environ = {name: real_os.environ.get(name) for name in _HOME}
        for name in _HOME[1:]:
            real_os.environ.pop(name, None)
        real_os.environ["PODIUM_HOME"] = str(self.home)
        for module, name, new in replaced:
            setattr(module, name, new)
        try:
            with machine.disk():
                for number in range(self.plan.choice((1, 1, 2))):
                    self._live(f"user{number}", self._finish_one)
                if self.plan.random() < 0.6:
                    self._live("user of them", self._meddle)
                self.universe.begin(self.universe.process("end"), self._end)
                self.universe.run()
        except Violation as violation:
            problem = str(violation)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        finally:
            for module, name, old in usual:
                setattr(module, name, old)
            for name, text in environ.items():
                real_os.environ.pop(name, None)
                if text is not None:
                    real_os.environ[name] = text
            shutil.rmtree(self.home, ignore_errors=True)
        return self.universe.outcome(problem)

    # Processes

    def _at_exit(self, function: Callable[[], object]) -> None:
        self.machine.current().at_exit.append(function)

    def _no_exit(self, function: Callable[[], object]) -> None:
        with suppress(ValueError):
            self.machine.current().at_exit.remove(function)

    def _handle(self, number: int, function: Callable[..., object]) -> None:
        self.machine.current().handlers[number] = function

    def _start_child(self, command: Sequence[str], **_: Any) -> _Child:
        self.children += 1

        def main() -> int:
            here().sleep(self.universe.random.choice((0.2, 1.0, 3.0)))  # imports
            me = self.machine.current()
            line = me.stdin.take(line=True)
            me.stdin.content = line + me.stdin.content
            if line:
                self.orders[me] = order = Order.of_line(line.decode())
                self.done[me] = self._known_done(order)
                self.beside[me] = self._others(order.run, me)
            code = child._main()
            self._check_end(me, code)
            return code

        kind = self.machine.operation("start a child", ("hitch", "crash", "killed"))
        running = Running(self.machine, f"child{self.children}", main)
        self.starters[running] = self.machine.current()
        started = _Child(self.machine, running)
        if kind == "killed":
            self.machine.send(started.pid, real_signal.SIGKILL)
            here().sleep(0.0)
        return started

    def _start_step(self, command: Sequence[str], env: Mapping[str, str], **_: Any) -> _Step:
        by = self.machine.current()
        kind = self.machine.operation("start a step", ("hitch", "crash", "killed"))
        words = list(command)
        given = json.loads(words[words.index("--executor_input") + 1])
        function = words[words.index("--function_to_execute") + 1]
        execution = Execution(
            step=Path(given["outputs"]["outputFile"]).parent.name,
            function=function,
            inputs=dict(given.get("inputs", {}).get("parameterValues", {})),
            started_by=by,
        )
        for name, held in given.get("inputs", {}).get("artifacts", {}).items():
            text = Path(held["artifacts"][0]["uri"]).read_text()
            execution.inputs[name] = int(text.split()[1])
        self._check_start(execution)
        self.executions.append(execution)
        number = len(self.executions)
        program = _Program(self, number, given["outputs"], env)
        running = Running(self.machine, f"step{number}", program.main)
        running.handlers[real_signal.SIGTERM] = program.terminated
        running.closing.append(lambda: setattr(execution, "ended", True))
        program.running = running
        if kind == "killed":
            here().spawn(by.life, lambda: self._run_out(running), "oom")
        return _Step(self.machine, running)

    def _run_out(self, running: Running) -> None:
        here().sleep(1.0)
        running.send(real_signal.SIGKILL)

    def _live(self, name: str, use: Callable[[], None]) -> None:
        """Begin a person who works in processes of this name until the work is done."""
        self.open_users += 1
        ended: list[bool] = []

        def main() -> int:
            use()
            ended.append(True)
            self.open_users -= 1
            return 0

        def again() -> None:
            while not ended:
                running = Running(self.machine, name, main)
                running.over.wait()
                if running.broke:
                    raise running.broke
                here().sleep(self.universe.random.choice((0.01, 0.5, 5.0)))

        keeper = self.universe.process(f"keeper of {name}")
        self.universe.begin(keeper, again)

    # What people do

    def _runs(self) -> list[Path]:
        return sorted(path.parent for path in (self.home / "runs").glob("*/run.json"))

    def _finish_one(self) -> None:
        """Begin a run and go on with it until it has succeeded, and maybe once more."""
        universe, draw = self.universe, self.universe.random
        me = self.machine.current().name
        tries = 0
        while True:
            tries += 1
            universe.quiet = universe.quiet or tries > 6 or universe.now > 30_000
            with self._told(), self._patient():
                mine = next((each for each in self._runs() if self.by.get(each) == me), None)
                if mine is None:
                    words = [f"x={draw.choice((1, 2, 3))}", f"y={draw.choice((1, 2))}"]
                    self.begun += 1
                    begun = runs.begin(str(self.home / "p.json"), words)
                    self.by[begun.directory] = me
                    begun.wait()
                    continue
                known = runs.Run(RunRecord.read(mine))
                if known.state == "running":
                    known.wait()
                elif known.state == "succeeded":
                    if universe.quiet or draw.random() < 0.5:
                        return
                    self._change(known).wait()
                elif draw.random() < 0.8 or universe.quiet:
                    self._resume(known).wait()
                else:
                    self._change(known).wait()

    def _resume(self, known: runs.Run, step: str = "") -> runs.Run:
        self.begun, self.resuming = self.begun + 1, self.resuming + 1
        resumed = known.resume(step, wait=False)  # waits for what is left of it
        self.resuming -= 1
        return resumed

    def _change(self, known: runs.Run) -> runs.Run:
        draw = self.universe.random
        names = list(known.record.steps)
        if draw.random() < 0.5 and names:
            return self._resume(known, draw.choice(names))
        self.begun += 1
        return known.rerun([f"{draw.choice('xy')}={draw.choice((1, 2, 3))}"])

    def _meddle(self) -> None:
        """Stop and resume what others run."""
        universe, draw = self.universe, self.universe.random
        for _ in range(3):
            universe.sleep(draw.choice((1.0, 5.0, 30.0)))
            if universe.quiet:
                return
            for directory in self._runs()[:1]:
                with self._told(), self._patient():
                    known = runs.Run(RunRecord.read(directory))
                    if known.state == "running" and draw.random() < 0.7:
                        self._stop(known)
                    elif known.state != "succeeded":
                        self._resume(known).wait()

    def _stop(self, known: runs.Run) -> None:
        alive = [
            each
            for each, order in self.orders.items()
            if order.run == known.id and not each.over.is_set()
        ]
        begun, resuming = self.begun, self.resuming
        try:
            known.stop()
        except Conflict:
            polite = [
                each.step
                for each in self._of_run(known.id)
                if not each.ended and each.manners == "ends" and each.started_by in alive
            ]
            if polite:
                raise Violation(f"{polite[0]} was never told of a stop") from None
            raise
        # One that is dead may still wait for what it was writing; its lock is free.
        if left := [each for each in alive if not (each.over.is_set() or each.life.dead)]:
            raise Violation(f"{left[0].name} of a run that was stopped goes on")
        state = RunRecord.read(known.directory).state
        # One that ended by itself is not stopped, and its recorder may still be at it.
        by_itself = any(each.over.is_set() and each.askers <= {each.life} for each in alive)
        forgotten = begun != self.begun or resuming  # who resumes forgets the stop
        if state == "killed" and not by_itself and not forgotten:
            raise Violation("a run that was stopped counts as killed")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Take what a command says instead of a result, which is a sentence."""
        try:
            yield
        except PodiumError as error:
            if not error.message:
                raise Violation("a command fails without a sentence") from None
            self.universe.sleep(0.5)
            if error.message.endswith("is running"):
                self._check_running(error.message.split()[1])
        except KeyboardInterrupt:
            self.universe.sleep(0.5)
        except BrokenPipeError:
            raise Violation("a command says that a pipe broke") from None
        except OSError:  # which the shell says in a sentence
            self.universe.sleep(0.5)

    @contextmanager
    def _patient(self) -> Iterator[None]:
        """Press Ctrl-C after a while."""
        over = Event()
        me = self.machine.current()

        def wait() -> None:
            while not over.wait(900.0):
                self.universe.interrupt(me.main, KeyboardInterrupt())

        here().spawn(me.life, wait, "hand")
        try:
            yield
        finally:
            if not me.life.dead:
                over.set()

    def _end(self) -> None:
        while self.open_users:
            self.universe.sleep(10.0)
        self.universe.quiet = True
        self.universe.sleep(120.0)
        if left := [each.name for each in self.machine.running.values() if not each.over.is_set()]:
            raise Violation(f"{left[0]} outlives its run")
        self._check()

    # What must hold

    def _known_done(self, order: Order) -> dict[str, Execution]:
        """Return what a run's record calls finished, unless it is to be repeated."""
        file = Path(order.directory, "run.json")
        written = json.loads(real_os.fsdecode(_content(file))) if file.exists() else {"steps": {}}
        done: dict[str, Execution] = {}
        for name, step in written["steps"].items():
            attempt = step["attempt"]
            identity = order.run if attempt == 1 else f"{order.run}.{attempt}"
            good = [each for each in self._of_run(order.run) if each.step == name and each.good]
            is_done = step["state"] in ("succeeded", "cached")
            if is_done and good and order.attempts.get(name) == identity:
                done[name] = good[-1]
        return done

    def _others(self, name: str, me: Running) -> set[Running]:
        """Return the other children of a run that live."""
        return {
            each
            for each, order in self.orders.items()
            if order.run == name and each is not me and not each.over.is_set()
        }

    def _of_run(self, name: str) -> list[Execution]:
        return [each for each in self.executions if self.orders[each.started_by].run == name]

    def _parameters(self, order: Order) -> tuple[int, int]:
        given = dict(word.split("=") for word in order.words)
        given |= dict(order.resumed or {})
        return int(given.get("x", 1)), int(given.get("y", 1))

    def _check_start(self, new: Execution) -> None:
        order = self.orders[new.started_by]
        for other in self._of_run(order.run):
            if not other.ended and other.started_by is not new.started_by:
                raise Violation(f"{new.started_by.name} and {other.started_by.name} own one run")
        if new.function == "tell":
            self._check_told(new)
        else:
            right = self.shape.inputs(*self._parameters(order)).get(new.step)
            if right != new.inputs:
                raise Violation(f"step {new.step} gets {new.inputs}, not {right}")
        done = self.done[new.started_by].get(new.step)
        disturbed = any(
            fault.kind == "io" and fault.process == new.started_by.name
            for fault in self.universe.struck
        )
        if done and done.inputs == new.inputs and not disturbed:
            raise Violation(f"step {new.step} is repeated though it had finished")

    def _check_told(self, new: Execution) -> None:
        """The exit handler begins when all else has ended, and is told how."""
        others = [each for each in self.executions if each.started_by is new.started_by]
        if running := [each.step for each in others if not each.ended]:
            raise Violation(f"the exit handler begins while {running[0]} runs")
        if any(each.function == "tell" and each.good for each in others):
            raise Violation("the exit handler runs twice")
        last = {each.step: each.good for each in others if each.function != "tell"}
        bad = [name for name, good in last.items() if not good]
        if new.inputs["status"]["state"] == "COMPLETE" and bad:
            raise Violation(f"the exit handler is told COMPLETE, and {bad[0]} has failed")

    def _check_running(self, name: str) -> None:
        """Who was refused has left the record of the run that goes on alone."""
        if first := self._unrecorded(name):
            self.universe.sleep(1.0)  # its command may not have taken its first report yet
            if first & self._unrecorded(name):
                raise Violation("the record of a run that goes on says that it has ended")

    def _unrecorded(self, name: str) -> set[Running]:
        """Return who carries out a run whose record says that it has ended."""
        own = [each for each, order in self.orders.items() if order.run == name]
        going = {
            each
            for each in own
            if not (each.over.is_set() or self.starters[each].over.is_set())  # else it is ending
            and len(self.told.get(each, ())) > 2
        }
        late = any(fault.kind in ("stall", "lag") for fault in self.universe.struck)
        written = json.loads(_content(self.home / "runs" / name / "run.json"))
        return set() if late or written["state"] == "running" else going

    def _check_end(self, me: Running, code: int) -> None:
        """A child that was let alone has run all that it could."""
        if me not in self.told or me.askers:
            return
        events = self.told[me]
        if events[-1]["kind"] == "refused":
            others = self._others(self.orders[me].run, me) | self.beside[me]
            if events[-1]["text"].endswith("is running") and not others:
                raise Violation("a run is refused that nobody runs")
            return
        order = self.orders[me]
        ended = {event["step"]: event["kind"] for event in events}
        if code == 0:
            for name, inputs in self.shape.inputs(*self._parameters(order)).items():
                if ended.get(name) not in ("success", "cached"):
                    raise Violation(f"a run succeeds, and {name} is {ended.get(name)}")
                function = name.partition(".")[0]
                if not any(
                    each.good and each.function == function and each.inputs == inputs
                    for each in self.executions
                ):
                    raise Violation(f"a run has the {name} of other inputs")
        if self.shape.handled and ended.get("tell") not in ("success", "failure", "cached"):
            raise Violation("a run has ended without its exit handler")

    def _check(self) -> None:
        for each in self.machine.running.values():
            if each.broke and not isinstance(each.broke, OSError):
                raise Violation(f"{each.name}: {type(each.broke).__name__}: {each.broke}")
        for directory in self._runs():
            known = RunRecord.read(directory)
            x, y = int(known.parameters.get("x", 1)), int(known.parameters.get("y", 1))
            if directory in self.by and known.state != "succeeded" and not self._is_taken(known):
                raise Violation(f"a run is {known.state} in the end")
            last = value("use", self.shape.inputs(x, y)["use"])
            if known.state == "succeeded" and known.outputs.get("last", last) != last:
                raise Violation(f"a run puts out {known.outputs}, not {last}")
            if any(not 0 <= (step.seconds or 0) < 40_000 for step in known.steps.values()):
                raise Violation("a step took the time by which a clock was set")
        for file in (self.home / "cache").glob("*.json"):
            self._check_result(json.loads(file.read_text())["outputs"])

    def _is_taken(self, known: RunRecord) -> bool:
        """Return whether a run was last begun by somebody who looked at it before it succeeded."""
        own = [each for each, order in self.orders.items() if order.run == known.id]
        return self.starters[own[-1]].name not in self.by.values()

    def _check_result(self, outputs: dict[str, Any]) -> None:
        """A result that is kept is that of one execution, which has succeeded."""
        given = outputs["parameters"]
        if "by" not in given:
            return
        files = [held[0]["uri"] for held in outputs["artifacts"].values()]
        there = [_text(file) for file in files if Path(file).exists()]
        made = [int(given["by"]), *(int(text.split()[0]) for text in there)]
        if len(set(made)) > 1:
            raise Violation(f"a result is of the executions {made}")
        execution = self.executions[made[0] - 1]
        if not execution.good:
            raise Violation(f"the result of a failed execution of {execution.step} is kept")


def _content(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _text(path: str) -> str:
    return _content(Path(path)).decode()


class _Program:
    """The program of a step.

    Args:
        universe: Knows how often programs fail.
        number: Of its execution.
        outputs: Where it writes what.
        env: Its environment.
    """

    def __init__(
        self, universe: RunsUniverse, number: int, outputs: dict[str, Any], env: Mapping[str, str]
    ) -> None:
        self.universe, self.number, self.outputs, self.env = universe, number, outputs, env
        self.execution = universe.executions[number - 1]
        self.running: Running | None = None
        draw = universe.universe.random
        self.fate = ""
        if not universe.universe.quiet and draw.random() < universe.failing:
            self.fate = draw.choice(("fails", "fails", "fails late", "fails late", "hangs"))
        self.execution.manners = draw.choice(("ends", "ends", "cleans up", "goes on"))
        self.seconds = draw.choice((0.05, 0.5, 3.0, 20.0))

    def main(self) -> int:
        assert self.running
        self.running.stdout.write(f"{self.execution.step} runs\n".encode())
        here().sleep(1e7 if self.fate == "hangs" else self.seconds)
        if self.fate == "fails":
            Path(self.env[FAILURE]).write_text(json.dumps({"error": "it is bad", "fix": {}}))
            return 1
        if self.execution.function != "tell":
            self._put_out()
        if self.fate:
            return 1
        self.execution.good = True
        return 0

    def _put_out(self) -> None:
        function, inputs = self.execution.function, self.execution.inputs
        result = generated(inputs) if function == "gen" else value(function, inputs)
        maybe = self.fate or here().random.random() < 0.5
        for name, held in self.outputs["artifacts"].items():
            if name == "maybe" and not maybe:
                continue
            Path(held["artifacts"][0]["uri"]).write_text(f"{self.number} {value(function, inputs)}")
        if not self.fate:
            written = {"parameterValues": {"Output": result, "by": str(self.number)}}
            Path(self.outputs["outputFile"]).write_text(json.dumps(written))

    def terminated(self, number: int, _: object) -> None:
        """Take SIGTERM."""
        assert self.running
        if self.execution.manners == "cleans up":
            here().sleep(5.0)
        if self.execution.manners != "goes on":
            self.running.handlers.clear()
            self.running.send(number)


def modules(name: str) -> bool:
    """Return whether a module of podium takes part in this universe."""
    rooms = ("podium.runner", "podium.files.drafts", "podium.training.identity")
    return name.startswith((*rooms, "podium.system.background", "podium.system.interrupts"))

"""Runs a compiled pipeline on this machine: tasks in parallel where the graph allows, conditions,
loops, exit handlers and pipelines inside of it."""

import json
import os
import re
import shlex
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from podium.cluster.local.supplies import Images, Supplies
from podium.errors import Failed, InvalidInput, PodiumError, suggestion
from podium.files.documents import with_whole_numbers
from podium.runner.compiled import (
    EXECUTOR,
    Compiled,
    Condition,
    Constants,
    Path_,
    in_order,
    resolved,
)
from podium.runner.environments import Environment
from podium.runner.kubernetes_settings import NameOf, Provider
from podium.runner.messages import KFP, STARTS, Order
from podium.runner.record import failure_file
from podium.runner.reporter import Reporter, StepLog, end
from podium.runner.step_process import Process, check_runs_here
from podium.runner.steps import (
    CREATE_VOLUME,
    DELETE_VOLUME,
    Cache,
    Step,
    Values,
)
from podium.system.machine import cores
from podium.system.settings import FAILURE

_MOST_ROUNDS = 1000
"""Rounds of loops that are looked at before a run."""

FINALLY = "ALL_UPSTREAM_TASKS_COMPLETED"
"""Trigger of a task that runs however those before it ended."""


@dataclass(frozen=True, kw_only=True)
class _Result:
    """The end of a task."""

    state: str
    """succeeded, failed, skipped, or pending: it was not begun."""

    outputs: Values = field(default_factory=Values)
    exempt: bool = False
    """Whether it runs, and what follows it, although something else has failed."""


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """A group of tasks that runs, one round of a loop."""

    group: Mapping[str, Any]
    inputs: Values
    path: Path_ = ()
    rounds: str = ""
    """Of the loops around it, as it stands in the names of steps."""

    exempt: bool = False


class Interpreter:
    """A pipeline that runs.

    Args:
        compiled: The pipeline.
        order: What to run, and where.
        reporter: Takes what happens.
    """

    def __init__(self, compiled: Compiled, order: Order, reporter: Reporter) -> None:
        self.compiled, self.order, self.reporter = compiled, order, reporter
        self.directory, self.cache = Path(order.directory), Cache(Path(order.cache))
        self.supplies, self.images = _given_here(order)
        self.provider = Provider(supplies=self.supplies, folder=self.directory)
        self.failed = False
        self.is_late = threading.Event()
        """Set when the pipeline's time is up."""

        moment, began = datetime.now(UTC), datetime.fromisoformat(order.began)
        name = re.sub(r"[^\w.-]+", "-", compiled.name)
        self.root = self.directory / "artifacts" / f"{name}-{moment:%Y-%m-%d-%H-%M-%S-%f}"
        self._constants = {
            "pipeline_job_name": f"{compiled.name}-{order.run}",
            "pipeline_job_resource_name": f"{name}-{order.run}",
            "pipeline_job_uuid": order.run,
            "pipeline_root": str(self.directory / "artifacts"),
            "pipeline_job_create_time_utc": f"{began:%Y-%m-%dT%H:%M:%SZ}",
            "pipeline_job_schedule_time_utc": f"{began:%Y-%m-%dT%H:%M:%SZ}",
            "workspace_path": str(self.directory / "workspace"),
        }
        self._slots = threading.Semaphore(max(2, cores()))

    def run(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Run the pipeline; return its outputs, values and URIs of artifacts, None if it failed or
        was stopped.

        Raises:
            InvalidInput: A value that is known only now breaks a rule.
        """
        inputs = Values(parameters=dict(with_whole_numbers(dict(values))))
        _add_defaults(self.compiled.root, inputs)
        (self.directory / "workspace").mkdir(exist_ok=True)
        scope = _Scope(group=self.compiled.root, inputs=inputs)
        with _time_limit(self.compiled.seconds, self.reporter.end) as self.is_late:
            result = _begin(lambda: self._group(scope)).result()
        if result.state != "succeeded" or self.failed:
            return None
        uris = {name: _uris(held) for name, held in result.outputs.artifacts.items()}
        return {**result.outputs.parameters, **uris}

    def _group(self, scope: _Scope) -> _Result:
        begun: dict[str, Future[_Result]] = {}
        for name, task, needs in in_order(scope.group["dag"]["tasks"]):
            before = {need: begun[need] for need in needs if need in begun}
            begun[name] = _begin(partial(self._task, scope, name, task, before))
        errors = [error for error in (each.exception() for each in begun.values()) if error]
        if errors:
            raise errors[0]
        results = {name: each.result() for name, each in begun.items()}
        states = [result.state for result in results.values()]
        worst = next((state for state in ("failed", "pending") if state in states), "succeeded")
        outputs = _outputs_of(scope.group, results)
        return _Result(state=worst, outputs=outputs, exempt=scope.exempt)

    def _task(
        self,
        scope: _Scope,
        name: str,
        task: Mapping[str, Any],
        before: Mapping[str, Future[_Result]],
    ) -> _Result:
        path, component = (*scope.path, name), self.compiled.component(task)
        ended = {need: future.result() for need, future in before.items()}
        trigger = task.get("triggerPolicy", {})
        in_any_case = trigger.get("strategy") == FINALLY
        exempt = scope.exempt or in_any_case or any(result.exempt for result in ended.values())
        states = {result.state for result in ended.values()}
        if not in_any_case and states & {"failed", "pending"}:
            return _Result(state="pending")
        if not in_any_case and "skipped" in states:
            return self._skip(path, scope)
        if self._is_over(exempt):
            return _Result(state="pending")
        constants = {
            **self._constants,
            "pipeline_task_name": name,
            "pipeline_task_uuid": f"{self.order.run}/{name}{scope.rounds}",
        }
        inputs = _inputs(task, component, scope.inputs, ended, constants)
        condition = trigger.get("condition")
        if condition and not Condition(condition).holds(inputs.parameters):
            return self._skip(path, scope)
        inner = _Scope(
            group=component, inputs=inputs, path=path, rounds=scope.rounds, exempt=exempt
        )
        if "dag" not in component:
            name_of = partial(_name_in, inputs=scope.inputs, before=ended)
            return self._step(inner, task, name_of)
        loops = "parameterIterator" in task or "artifactIterator" in task
        return self._loop(inner, task) if loops else self._group(inner)

    def _is_over(self, exempt: bool) -> bool:
        return self.reporter.stopping or (self.failed and not exempt)

    def _skip(self, path: Path_, scope: _Scope) -> _Result:
        for name in self._names(path, scope.rounds):
            self.reporter.report("skipped", step=name)
        return _Result(state="skipped")

    def _names(self, path: Path_, rounds: str) -> list[str]:
        stems = [
            f"{name}{rounds}"
            for each, name in self.compiled.steps.items()
            if each[: len(path)] == path
        ]
        return [name for name in self.reporter.titles if name in stems]

    def _loop(self, scope: _Scope, task: Mapping[str, Any]) -> _Result:
        kind = "parameters" if "parameterIterator" in task else "artifacts"
        iterator = task.get("parameterIterator") or task["artifactIterator"]
        items = _items(iterator, scope.inputs, kind)
        self.reporter.repeat(self._names(scope.path, scope.rounds), len(items))
        limit = task.get("iteratorPolicy", {}).get("parallelismLimit") or len(items) or 1
        slots = threading.Semaphore(limit)

        def one(number: int, item: Any) -> _Result:
            inputs = Values(
                parameters=dict(scope.inputs.parameters), artifacts=dict(scope.inputs.artifacts)
            )
            getattr(inputs, kind)[iterator["itemInput"]] = item
            rounds = f"{scope.rounds}.{number}"
            with slots:
                return self._group(
                    _Scope(
                        group=scope.group,
                        inputs=inputs,
                        path=scope.path,
                        rounds=rounds,
                        exempt=scope.exempt,
                    )
                )

        begun = [_begin(partial(one, number, item)) for number, item in enumerate(items)]
        results = [each.result() for each in begun]
        states = {result.state for result in results}
        worst = next((state for state in ("failed", "pending") if state in states), "succeeded")
        return _Result(state=worst, outputs=_collected(scope.group, results), exempt=scope.exempt)

    def _step(self, scope: _Scope, task: Mapping[str, Any], name_of: NameOf) -> _Result:
        name = f"{self.compiled.steps[scope.path]}{scope.rounds}"
        step = Step(
            name=name,
            component=scope.group,
            executor=self.compiled.executor(scope.group),
            inputs=scope.inputs,
            folder=self.root / name,
            constants={
                **self._constants,
                "pipeline_task_name": scope.path[-1],
                "pipeline_task_uuid": f"{self.order.run}/{scope.path[-1]}{scope.rounds}",
            },
        )
        if name == self.order.debug:
            self._debug(step, name_of)
            return _Result(state="pending")
        key, needs = self._key(step, task)
        outputs = self.cache.get(key, needs)
        if outputs is not None:
            self.reporter.report("cached", step=name)
            return _Result(state="succeeded", outputs=outputs, exempt=scope.exempt)
        with self._slots:
            if self._is_over(scope.exempt):
                return _Result(state="pending")
            outputs = self._carried_out(step, task, key, name_of)
        if outputs is None:
            self.failed = True
            return _Result(state="failed", exempt=scope.exempt)
        return _Result(state="succeeded", outputs=outputs, exempt=scope.exempt)

    def _key(self, step: Step, task: Mapping[str, Any]) -> tuple[str, str]:
        """Return the key of a step's result, and the digest of the inputs it must have; empty where
        the key alone decides.

        Under a key of their own the results of steps that are never cached serve this run alone: to
        resume it. So do those of steps that are repeated.
        """
        options = task.get("cachingOptions", {})
        attempt = self.order.attempt_of(step.name)
        shared = options.get("enableCache", False) and attempt == self.order.run
        shared = shared and step.container.get("image", CREATE_VOLUME) not in (
            CREATE_VOLUME,
            DELETE_VOLUME,
        )
        if "fingerprint" in step.component.get("inputDefinitions", {}).get("parameters", {}):
            # It prepares data that nothing has checked for changes.
            given = task.get("inputs", {}).get("parameters", {})
            shared = shared and "fingerprint" in given
        belongs = "" if shared else f"{attempt}/{step.name}"
        custom = options.get("cacheKey", "")
        needs = "" if shared else self.cache.digest(step)
        return self.cache.key(step, belongs, custom), needs

    def _carried_out(
        self, step: Step, task: Mapping[str, Any], key: str, name_of: NameOf
    ) -> Values | None:
        """Run a step, again after a failure if its task says so; return its outputs, None if it
        failed. They are kept before anybody is told: who resumes repeats no finished step."""
        self.reporter.report("start", step=step.name)
        (self.reporter.logs / f"{step.name}.log").touch()
        self.reporter.log(KFP, f"{step.name}: {STARTS}")
        left = failure_file(self.directory, step.name)
        code, outputs = None, None
        policy = task.get("retryPolicy", {})
        for pause in (*_pauses(policy), None):
            left.unlink(missing_ok=True)
            try:
                code, outputs = self._once(step, name_of)
                if outputs is not None:
                    self.cache.put(key, step, outputs)
            except Exception as error:  # said where the step's own would be
                trace, said = traceback.format_exc(), f"{type(error).__name__}: {error}"
                if isinstance(error, PodiumError):
                    trace, said = "", error.message
                left.write_text(json.dumps({"error": said, "fix": {}}))
                StepLog(self.reporter, step.name).line(f"{trace}error: {said}")
                code, outputs = None, None
            if outputs is not None or pause is None or self.reporter.stopping:
                break
            why = "" if code is None else f"exit code {code}: "
            StepLog(self.reporter, step.name).line(f"{why}it is tried again in {pause:g} s")
            self.reporter.wait(pause)
        ended = "failure" if outputs is None else "success"
        self.reporter.report(ended, step=step.name, code=code if outputs is None else None)
        return outputs

    def _once(self, step: Step, name_of: NameOf) -> tuple[int | None, Values | None]:
        if "importer" in step.executor:
            return None, step.imported()
        image = step.container.get("image")
        if image in (CREATE_VOLUME, DELETE_VOLUME):
            return None, self._volume(step, create=image == CREATE_VOLUME)
        process, command, env = self._prepared(step, name_of)
        started = self.reporter.begin(lambda: process.start(command, env))
        if started is None:
            return None, None
        seconds = int(self.compiled.kubernetes(step.component).get("activeDeadlineSeconds", 0))
        try:
            with _time_limit(seconds, lambda: end([started])) as is_late:
                code = _follow(started, StepLog(self.reporter, step.name))
        finally:
            process.leave_nothing()
        if self.is_late.is_set():
            raise Failed(
                f"the pipeline did not end within its limit of {self.compiled.seconds} s, "
                f"while step {step.name} ran (active_deadline_seconds of dsl.PipelineConfig)"
            )
        if is_late.is_set():
            raise Failed(
                f"step {step.name} did not end within its limit of {seconds} s "
                f"(kubernetes.set_timeout of its task)"
            )
        return code, step.outputs() if code == 0 else None

    def _prepared(self, step: Step, name_of: NameOf) -> tuple[Process, list[str], dict[str, str]]:
        settings = self.compiled.kubernetes(step.component)
        provided = self.provider.provide(settings, step.name, name_of)
        process = Process(step, self.images, self._python(step))
        command, env = process.prepare(
            {**provided.env, FAILURE: str(failure_file(self.directory, step.name))},
            provided.mounts,
            self.reporter.scratch / f"packages-{step.name}",
        )
        for notice in process.notices:
            self.reporter.log(step.name, notice)
        return process, command, env

    def _debug(self, step: Step, name_of: NameOf) -> None:
        """Put what a step needs into a directory for a person, and stop the run."""
        _, command, env = self._prepared(step, name_of)
        folder = self.directory / "debug" / step.name
        _write_for_debugging(folder, command)
        changed = {name: value for name, value in env.items() if os.environ.get(name) != value}
        self.reporter.report("debug", step=step.name, text=str(folder), values=changed)
        self.reporter.stop()

    def _python(self, step: Step) -> Path | None:
        """Return the directory with the programs of a step's own environment; None for podium's."""
        wanted = Environment.of(step.container)
        if wanted is None:
            return None
        log = StepLog(self.reporter, step.name)
        return wanted.made(Path(self.order.environments), step.name, log.line)

    def _volume(self, step: Step, *, create: bool) -> Values:
        given = step.inputs.parameters
        suffix = given.get("pvc_name_suffix")
        name = given.get("pvc_name") or f"{self.order.run}{suffix or ''}"
        place = self.provider.volume(name)
        if create and name not in self.supplies.volume:
            place.mkdir(parents=True, exist_ok=True)
        elif not create and place.is_dir():
            place.rename(place.with_name(f"{name}.deleted-{time.time_ns()}"))
        return Values(parameters={"name": name} if create else {})


def _given_here(order: Order) -> tuple[Supplies, Images]:
    """Return the places that an order names for volumes, Secrets, ConfigMaps and images.

    Raises:
        InvalidInput: One is not there.
    """
    given = dict(order.places)
    images = Images.read(given.pop("image_dir", None))
    return Supplies(**given).checked(), images


def check_runs(compiled: Compiled, values: Mapping[str, Any], order: Order) -> None:
    """Refuse a pipeline that this machine cannot run, before its first step.

    Raises:
        InvalidInput: The message names the step.
    """
    supplies, images = _given_here(order)
    provider = Provider(supplies=supplies, folder=Path(order.directory))
    needed_here = compiled.root.get("inputDefinitions", {}).get("artifacts", {})
    for name, definition in needed_here.items():
        if not definition.get("isOptional"):
            raise InvalidInput(
                f"the pipeline needs the artifact {name}, which only another pipeline can hand on",
                "import it with dsl.importer",
            )
    if order.debug and order.debug.partition(".")[0] not in compiled.steps.values():
        names = list(compiled.steps.values())
        if order.debug not in names:
            raise InvalidInput(
                f"the pipeline has no step {order.debug!r}: it has {', '.join(names)}",
                suggestion(order.debug, names),
            )
    made, missing = set(_claims(compiled)), list[InvalidInput]()
    for path, task, groups in _with_known_inputs(compiled, values):
        component = compiled.component(task)
        if condition := task.get("triggerPolicy", {}).get("condition"):
            Condition(condition)
        if "dag" in component:
            continue
        if len(path) == 1:
            missing += _without_value(path[0], task, component, groups[0])
        step, executor = compiled.steps[path], compiled.executor(component)
        checks: list[Callable[[], None]] = [partial(check_runs_here, step, executor, images)]
        for inputs in groups:
            name_of = partial(_name_in, inputs=inputs, before={})
            settings = compiled.kubernetes(component)
            checks.append(partial(provider.check, settings, step, name_of, made))
        for check in checks:
            try:
                check()
            except InvalidInput as error:
                missing.append(error)
    if missing:
        hints = dict.fromkeys(error.hint for error in missing if error.hint)
        raise InvalidInput(missing[0].message, "; ".join(hints))


def _without_value(
    step: str, task: Mapping[str, Any], component: Mapping[str, Any], inputs: Values
) -> Iterator[InvalidInput]:
    """Yield what is to be said of inputs that must have a value, and would get none of the
    pipeline's parameters."""
    defined = component.get("inputDefinitions", {}).get("parameters", {})
    for name, source in task.get("inputs", {}).get("parameters", {}).items():
        given = source.get("componentInputParameter")
        optional = defined.get(name, {}).get("isOptional") or "defaultValue" in defined.get(
            name, {}
        )
        if given and not optional and inputs.parameters.get(given) is None:
            yield InvalidInput(
                f"step {step} needs {name}, and the pipeline's parameter {given} has no value",
                f"{given}=VALUE",
            )


def _with_known_inputs(
    compiled: Compiled, values: Mapping[str, Any]
) -> Iterator[tuple[Path_, Mapping[str, Any], list[Values]]]:
    """Yield every task with the inputs of its group as far as they are known before a run: one for
    each round of the loops around it."""
    root = Values(parameters=dict(values))
    _add_defaults(compiled.root, root)
    known: dict[Path_, list[Values]] = {(): [root]}
    for path, task in compiled.tasks():
        groups = known[path[:-1]]
        yield path, task, groups
        if "dag" in compiled.component(task):
            rounds = [each for inputs in groups for each in _rounds(compiled, task, inputs)]
            known[path] = rounds[:_MOST_ROUNDS]


def _rounds(compiled: Compiled, task: Mapping[str, Any], inputs: Values) -> list[Values]:
    found = Values()
    for name, source in task.get("inputs", {}).get("parameters", {}).items():
        there, value = _parameter(source, inputs, {})
        if there:
            found.parameters[name] = value
    _add_defaults(compiled.component(task), found)
    iterator = task.get("parameterIterator")
    if iterator is None:
        return [found]
    with suppress(InvalidInput):  # it runs over the output of a step
        return [
            Values(parameters={**found.parameters, iterator["itemInput"]: item})
            for item in _items(iterator, found, "parameters")
        ]
    return [found]


def _claims(compiled: Compiled) -> Iterator[str]:
    """Yield the names of the claims that a pipeline creates, as far as they are constants."""
    for _, task in compiled.tasks():
        component = compiled.component(task)
        if "dag" not in component:
            container = compiled.executor(component).get("container", {})
            if container.get("image") == CREATE_VOLUME:
                source = task.get("inputs", {}).get("parameters", {}).get("pvc_name", {})
                yield str(source.get("runtimeValue", {}).get("constant", ""))


def _name_in(
    entry: Mapping[str, Any], kind: str, inputs: Values, before: Mapping[str, _Result]
) -> str | None:
    """Return the name of a Secret, ConfigMap or claim in a setting, which may be an input of the
    group or an output of a task before; None if it is not known yet."""
    stem = {"pvcMount": "pvcName"}.get(kind, "secretName" if "secret" in kind else "configMapName")
    source = entry.get(f"{stem}Parameter") or entry
    known, name = _parameter(source, inputs, before)
    if "componentInputParameter" in source or "taskOutputParameter" in source:
        return str(name) if known else None
    return str(name or entry.get("constant") or entry.get(stem) or "") or None


@contextmanager
def _time_limit(seconds: int, end: Callable[[], None]) -> Iterator[threading.Event]:
    """Call a function once the time is up, in a thread of its own; the event is set before.

    Args:
        seconds: 0 for no limit.
        end: Ends what takes too long.
    """
    is_over = threading.Event()

    def expire() -> None:
        is_over.set()
        end()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    if seconds:
        timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()


def _begin(work: Callable[[], _Result]) -> Future[_Result]:
    """Begin in a thread of its own, which may wait long for others."""
    future: Future[_Result] = Future()

    def carry_out() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised where somebody waits
            future.set_exception(error)

    threading.Thread(target=carry_out, daemon=True).start()
    return future


def _follow(process: subprocess.Popen[bytes], log: StepLog) -> int:
    """Write what a process prints to its log until it ends; return its exit code. It is killed where
    the log cannot be written: it must not go on beside the next try."""
    assert process.stdout
    assert process.stdin
    try:
        with process.stdout as printed:
            while piece := printed.read1():  # type: ignore[attr-defined]
                log.write(piece)
        log.close()
    except BaseException:
        process.stdin.close()
        process.wait()
        raise
    code = process.wait()
    process.stdin.close()
    return code


def _pauses(policy: Mapping[str, Any]) -> Iterator[float]:
    pause = _seconds(policy.get("backoffDuration", "0s"))
    for _ in range(int(policy.get("maxRetryCount", 0))):
        yield min(pause, _seconds(policy.get("backoffMaxDuration", "3600s")))
        pause *= float(policy.get("backoffFactor", 2.0))


def _seconds(text: str) -> float:
    return float(text.removesuffix("s") or 0)


def _inputs(
    task: Mapping[str, Any],
    component: Mapping[str, Any],
    group: Values,
    before: Mapping[str, _Result],
    constants: Constants,
) -> Values:
    """Return the inputs of a task; one whose source has no value is left out, or has its default.

    Args:
        group: Inputs of its group.
    """
    found = Values()
    sources = task.get("inputs", {})
    for name, source in sources.get("parameters", {}).items():
        known, value = _parameter(source, group, before)
        if "taskFinalStatus" in source:
            value["pipelineJobResourceName"] = constants["pipeline_job_resource_name"]
        if known:
            found.parameters[name] = with_whole_numbers(value)
    for name, source in sources.get("artifacts", {}).items():
        held = _artifacts(source, group, before)
        if held is not None:
            found.artifacts[name] = held
    plain = {"inputs": {"parameterValues": dict(found.parameters)}}
    for name, source in sources.get("parameters", {}).items():
        if isinstance(found.parameters.get(name), str) and "runtimeValue" in source:
            found.parameters[name] = resolved(found.parameters[name], plain, constants)
    _add_defaults(component, found)
    _as_text(component, found)
    return found


def _as_text(component: Mapping[str, Any], found: Values) -> None:
    """Give an input that is text a number, a boolean or a list as text, as KFP's driver does:
    ``1``, ``0.0000001``, ``true``, ``[1,2]``."""
    defined = component.get("inputDefinitions", {}).get("parameters", {})
    for name, value in found.parameters.items():
        is_text = defined.get(name, {}).get("parameterType") == "STRING"
        if not is_text or value is None or isinstance(value, str):
            continue
        if isinstance(value, float):
            found.parameters[name] = format(Decimal(repr(value)), "f")
        else:
            found.parameters[name] = json.dumps(value, separators=(",", ":"))


def _parameter(
    source: Mapping[str, Any], inputs: Values, before: Mapping[str, _Result]
) -> tuple[bool, Any]:
    """Return whether a parameter has a value, and the value."""
    if "runtimeValue" in source:
        return True, source["runtimeValue"].get("constant")
    if given := source.get("taskOutputParameter"):
        held = before[given["producerTask"]].outputs if given["producerTask"] in before else None
        key = given["outputParameterKey"]
        return held is not None and key in held.parameters, held and held.parameters.get(key)
    if given := source.get("taskFinalStatus"):
        return given["producerTask"] in before, _final_status(given["producerTask"], before)
    name = source.get("componentInputParameter")
    if name not in inputs.parameters:
        return False, None
    value = inputs.parameters[name]
    if key := re.search(r'\["(.*)"\]', source.get("parameterExpressionSelector", "")):
        value = json.loads(value) if isinstance(value, str) else value
        return isinstance(value, dict) and key[1] in value, value.get(key[1])
    return True, value


def _artifacts(
    source: Mapping[str, Any], inputs: Values, before: Mapping[str, _Result]
) -> list[dict[str, Any]] | None:
    if given := source.get("taskOutputArtifact"):
        if given["producerTask"] not in before:
            return None
        held = before[given["producerTask"]].outputs
        return held.artifacts.get(given["outputArtifactKey"])
    return inputs.artifacts.get(source.get("componentInputArtifact", ""))


def _final_status(name: str, before: Mapping[str, _Result]) -> dict[str, Any]:
    """Return what an exit handler is told; KFP's backend says COMPLETE (its own
    pipeline_with_input_status_state.py asserts that), where the SDK's docs say SUCCEEDED."""
    ok = name in before and before[name].state == "succeeded"
    return {
        "state": "COMPLETE" if ok else "FAILED",
        "pipelineTaskName": name,
        "error": {} if ok else {"code": 1, "message": f"{name} has failed"},
    }


def _items(iterator: Mapping[str, Any], inputs: Values, kind: str) -> list[Any]:
    """Return what a loop runs over.

    Raises:
        InvalidInput: It is no list.
    """
    items = iterator["items"]
    if kind == "artifacts":
        return [[artifact] for artifact in inputs.artifacts.get(items["inputArtifact"], [])]
    found = items["raw"] if "raw" in items else inputs.parameters.get(items["inputParameter"])
    if isinstance(found, str):
        with suppress(ValueError):
            found = json.loads(found)
    if not isinstance(found, list):
        raise InvalidInput(f"a loop runs over a list, not over {found!r}"[:200])
    return list(with_whole_numbers(found))


def _add_defaults(component: Mapping[str, Any], inputs: Values) -> None:
    definitions = component.get("inputDefinitions", {}).get("parameters", {})
    for name, definition in definitions.items():
        if name not in inputs.parameters and "defaultValue" in definition:
            inputs.parameters[name] = with_whole_numbers(definition["defaultValue"])


def _outputs_of(group: Mapping[str, Any], results: Mapping[str, _Result]) -> Values:
    """Return the outputs of a group, as far as its tasks have them."""
    found, outputs = Values(), group["dag"].get("outputs", {})
    for name, selector in outputs.get("parameters", {}).items():
        choices = selector.get("valueFromOneof", {}).get("parameterSelectors", [])
        for choice in choices or [selector["valueFromParameter"]]:
            held = results[choice["producerSubtask"]].outputs.parameters
            if choice["outputParameterKey"] in held:
                found.parameters[name] = held[choice["outputParameterKey"]]
    for name, selector in outputs.get("artifacts", {}).items():
        for choice in selector["artifactSelectors"]:
            artifacts = results[choice["producerSubtask"]].outputs.artifacts
            if choice["outputArtifactKey"] in artifacts:
                found.artifacts[name] = artifacts[choice["outputArtifactKey"]]
    return found


def _collected(group: Mapping[str, Any], results: list[_Result]) -> Values:
    """Return the outputs of all rounds of a loop: lists of values, and one list of artifacts."""
    found, outputs = Values(), group["dag"].get("outputs", {})
    for name in outputs.get("parameters", {}):
        held = [result.outputs.parameters for result in results]
        found.parameters[name] = [each[name] for each in held if name in each]
    for name in outputs.get("artifacts", {}):
        lists = [result.outputs.artifacts.get(name, []) for result in results]
        found.artifacts[name] = [artifact for each in lists for artifact in each]
    return found


def _uris(held: list[dict[str, Any]]) -> Any:
    uris = [artifact["uri"] for artifact in held]
    return uris[0] if len(uris) == 1 else uris


_COMMAND, _CODE, _INPUTS = "run", "component.py", "inputs.json"


def _write_for_debugging(folder: Path, command: Sequence[str]) -> None:
    """Write a step's command as a script, its code and its inputs as files that it reads."""
    folder.mkdir(parents=True, exist_ok=True)
    line = shlex.join(command)
    match command:
        case [_, _, script, code, *arguments] if "ephemeral_component.py" in script:
            (folder / _CODE).write_text(code)
            words = [shlex.quote(word) for word in arguments]
            at = arguments.index("--executor_input") + 1
            (folder / _INPUTS).write_text(arguments[at])
            words[at] = f'"$(cat {_INPUTS})"'
            module = f"python3 -m {EXECUTOR} --component_module_path {_CODE}"
            line = f"_KFP_RUNTIME=true exec {module} {' '.join(words)}"
    program = folder / _COMMAND
    program.write_text(f'#!/bin/sh\ncd "$(dirname "$0")"\n{line}\n')
    program.chmod(0o700)

"""Runs a compiled pipeline on this machine: tasks in parallel where the graph allows, conditions,
loops, exit handlers and pipelines inside of it."""

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from podium.errors import InvalidInput, suggestion
from podium.files.documents import with_whole_numbers
from podium.runner.compiled import (
    Compiled,
    Condition,
    Constants,
    Path_,
    as_text,
    in_order,
    resolved,
)
from podium.runner.kubernetes_settings import NameOf, Provider
from podium.runner.messages import Order
from podium.runner.reporter import Reporter
from podium.runner.step_process import Process
from podium.runner.step_runner import StepRunner, given_here, time_limit
from podium.runner.steps import (
    CREATE_VOLUME,
    Step,
    Values,
)
from podium.system.machine import cores

T = TypeVar("T")

_LOOK_SECONDS = 1.0
"""Interval in which a signal is noticed at the latest."""

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
        self.directory, self.steps = Path(order.directory), StepRunner(compiled, order, reporter)
        self.failed = False
        self.errors: list[Exception] = []
        """Why a task could not begin: it has failed, and what runs in any case still does."""

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
        self._most_steps = max(2, cores())
        self._slots = threading.Semaphore(self._most_steps)

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
        with time_limit(self.compiled.seconds, self.reporter.end) as self.steps.is_late:
            result = _result_of(_begin(lambda: self._group(scope)))
        if self.errors:
            raise self.errors[0]
        if result.state != "succeeded" or self.failed:
            return None
        uris = {name: _uris(held) for name, held in result.outputs.artifacts.items()}
        return {**result.outputs.parameters, **uris}

    def _group(self, scope: _Scope) -> _Result:
        begun: dict[str, Future[_Result]] = {}
        for name, task, needs in in_order(scope.group["dag"]["tasks"]):
            before = {need: begun[need] for need in needs if need in begun}
            begun[name] = _begin(partial(self._tried, scope, name, task, before))
        results = {name: each.result() for name, each in begun.items()}
        return _together(results.values(), _outputs_of(scope.group, results), scope)

    def _tried(self, *task: Any) -> _Result:
        try:
            return self._task(*task)
        except Exception as error:  # raised at the end of the run
            self.failed = True
            self.errors.append(error)
            return _Result(state="failed")

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
            return self._step(inner, task, name_of, constants)
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
        limit = task.get("iteratorPolicy", {}).get("parallelismLimit") or len(items)

        def inputs_with(item: Any) -> Values:
            inputs = Values(
                parameters=dict(scope.inputs.parameters), artifacts=dict(scope.inputs.artifacts)
            )
            getattr(inputs, kind)[iterator["itemInput"]] = item
            _convert(scope.path[-1], scope.group, inputs)
            return inputs

        inputs = [inputs_with(item) for item in items]  # one that fails, before any round begins
        results = [_Result(state="pending")] * len(inputs)
        debugged = f".{self.order.debug.partition('.')[2]}."

        def is_other(item: tuple[int, Values]) -> bool:
            return not debugged.startswith(f"{scope.rounds}.{item[0]}.")

        # The round of the step to debug begins first: its shell ends the run.
        waiting = iter(sorted(enumerate(inputs), key=is_other))

        def rounds() -> None:
            for number, its in waiting:  # each of several threads takes the next
                named = replace(scope, inputs=its, rounds=f"{scope.rounds}.{number}")
                results[number] = self._group(named)

        # A round more than there are slots for has nothing to do but wait in threads of its own.
        begun = [_begin(rounds) for _ in range(min(limit, len(items), 2 * self._most_steps))]
        for each in begun:
            each.result()
        return _together(results, _collected(scope.group, results), scope)

    def _step(
        self, scope: _Scope, task: Mapping[str, Any], name_of: NameOf, constants: Constants
    ) -> _Result:
        name = f"{self.compiled.steps[scope.path]}{scope.rounds}"
        step = Step(
            name=name,
            component=scope.group,
            executor=self.compiled.executor(scope.group),
            inputs=scope.inputs,
            folder=self.root / name,
            constants=constants,
        )
        if name == self.order.debug:
            self.steps.debug(step, name_of)
            return _Result(state="pending")
        key, needs = self.steps.key(step, task, name_of)
        held = self.steps.cache.get(key, needs)
        if held is not None:
            outputs, made_in = held
            earlier = sorted(self.directory.glob(f"artifacts/*/{name}"))
            if not earlier or earlier[-1] != made_in:  # another run's, or of other values
                step.leave(outputs)
                self.reporter.log(name, f"taken from the cache: {made_in}")
            self.reporter.report("cached", step=name)
            return _Result(state="succeeded", outputs=outputs, exempt=scope.exempt)
        with self._slots:
            if self._is_over(scope.exempt):
                return _Result(state="pending")
            made = self.steps.carry_out(step, task, key, name_of)
        if made is None:
            self.failed = True
            return _Result(state="failed", exempt=scope.exempt)
        return _Result(state="succeeded", outputs=made, exempt=scope.exempt)


def check_runs(compiled: Compiled, values: Mapping[str, Any], order: Order) -> None:
    """Refuse a pipeline that this machine cannot run, before its first step.

    Raises:
        InvalidInput: The message names the step.
    """
    supplies, images = given_here(order)
    provider = Provider(supplies=supplies, folder=Path(order.directory))
    for name, definition in compiled.root.get("inputDefinitions", {}).get("artifacts", {}).items():
        if not definition.get("isOptional"):
            raise InvalidInput(
                f"the pipeline needs the artifact {name}, which only another pipeline can hand on",
                "import it with dsl.importer",
            )
    names = list(compiled.steps.values())
    if order.debug and not {order.debug, order.debug.partition(".")[0]} & {*names}:
        raise InvalidInput(
            f"the pipeline has no step {order.debug!r}: it has {', '.join(names)}",
            suggestion(order.debug, names),
        )
    _check_members(compiled)
    _check_texts(compiled)
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
        checks: list[Callable[[], None]] = [partial(Process.check, step, executor, images)]
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


_MEMBER = re.compile(r".*-loop-item.*-subvar-(\w+)")


def _check_members(compiled: Compiled) -> None:
    """Refuse a pipeline that writes a member of a loop's item into a text, which kfp 2.17 compiles
    as an input that nobody gives, or asks for the member ``name``, for which it takes its own.

    Raises:
        InvalidInput: The message names the member.
    """
    inputs: dict[Path_, set[str]] = {
        (): {*compiled.root.get("inputDefinitions", {}).get("parameters", {})}
    }
    names = set[str]()
    for path, task in compiled.tasks():
        sources = task.get("inputs", {}).get("parameters", {})
        item = task.get("parameterIterator", {}).get("itemInput", "")
        if item.endswith("-loop-item"):  # pipelinechannel--rows-loop-item; its name: rows-loop-item
            names.add("-".join(item.split("-")[-3:]))
        for source in sources.values():
            text = str(source.get("runtimeValue", {}).get("constant", ""))
            if any(name in text for name in names):
                raise InvalidInput(
                    f"step {path[-1]}: .name of a loop's item is not a member of it: kfp compiles "
                    f"it to {text!r}, for a cluster, too",
                    "give that key another name, such as title",
                )
            output = source.get("taskOutputParameter", {}).get("outputParameterKey", "")
            taken = source.get("componentInputParameter", output)
            member = _MEMBER.fullmatch(taken)
            if member and taken not in inputs[path[:-1]]:
                raise InvalidInput(
                    f"the member {member[1]!r} of a loop's item is within a text, where kfp "
                    f"compiles no value for it: a cluster fails, too",
                    "pass the member to the step as an input of its own, and build the text there",
                )
        inputs[path] = {*sources, item}


_CHANNEL = re.compile(r"\{\{channel:task=[^;]*;name=([^;]*);")


def _check_texts(compiled: Compiled) -> None:
    """Refuse a pipeline with a text in which kfp left its own mark in place of a value: of a
    parameter typed List[str], and in any variable of the environment.

    Raises:
        InvalidInput: The message names the step and the value.
    """
    for path, task in compiled.tasks():
        component, texts = compiled.component(task), [task.get("inputs")]
        if "dag" not in component:
            texts.append(compiled.executor(component).get("container", {}).get("env"))
        if left := _CHANNEL.search(json.dumps(texts)):
            raise InvalidInput(
                f"step {path[-1]}: the value of {left[1]!r} is within a text, where kfp puts none: a "
                f"cluster hands on {left[0][:-1]}…, too",
                "pass it to the step as an input of its own, and build the text there",
            )


def _without_value(
    step: str, task: Mapping[str, Any], component: Mapping[str, Any], inputs: Values
) -> Iterator[InvalidInput]:
    """Yield what is to be said of inputs that must have a value, and would get none of the
    pipeline's parameters."""
    defined = component.get("inputDefinitions", {}).get("parameters", {})
    for name, source in task.get("inputs", {}).get("parameters", {}).items():
        parameter = source.get("componentInputParameter")
        optional = _is_optional(defined.get(name, {}))
        if parameter and not optional and inputs.parameters.get(parameter) is None:
            yield InvalidInput(
                f"step {step} needs {_plain(name)}, and the pipeline's parameter {parameter} has no value",
                f"{parameter}=VALUE",
            )


def _with_known_inputs(
    compiled: Compiled, values: Mapping[str, Any]
) -> Iterator[tuple[Path_, Mapping[str, Any], list[Values]]]:
    """Yield every task with the inputs of its group as far as they are known before a run: one for
    each round of the loops around it."""
    root = Values(parameters=dict(values))
    _add_defaults(compiled.root, root)
    group_inputs: dict[Path_, list[Values]] = {(): [root]}
    for path, task in compiled.tasks():
        groups = group_inputs[path[:-1]]
        yield path, task, groups
        if "dag" in compiled.component(task):
            rounds = [each for inputs in groups for each in _rounds(compiled, task, inputs)]
            group_inputs[path] = rounds[:_MOST_ROUNDS]


def _rounds(compiled: Compiled, task: Mapping[str, Any], inputs: Values) -> list[Values]:
    found = Values()
    for name, source in task.get("inputs", {}).get("parameters", {}).items():
        with suppress(InvalidInput):  # an item without that key: its round may never come
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
        if (
            "dag" not in component
            and compiled.executor(component).get("container", {}).get("image") == CREATE_VOLUME
        ):
            source = task.get("inputs", {}).get("parameters", {}).get("pvc_name", {})
            yield str(source.get("runtimeValue", {}).get("constant", ""))


def _name_in(
    entry: Mapping[str, Any], kind: str, inputs: Values, before: Mapping[str, _Result]
) -> str | None:
    """Return the name of a Secret, ConfigMap or claim in a setting, which may be an input of the
    group or an output of a task before; None if it is not known yet."""
    stem = {"pvcMount": "pvcName"}.get(kind, "secretName" if "secret" in kind else "configMapName")
    source = entry.get(f"{stem}Parameter") or entry
    has_value, name = _parameter(source, inputs, before)
    if "componentInputParameter" in source or "taskOutputParameter" in source:
        return str(name) if has_value else None
    return str(name or entry.get("constant") or entry.get(stem) or "") or None


def _together(results: Iterable[_Result], outputs: Values, scope: _Scope) -> _Result:
    states = {result.state for result in results}
    worst = next((state for state in ("failed", "pending") if state in states), "succeeded")
    return _Result(state=worst, outputs=outputs, exempt=scope.exempt)


def _result_of(begun: Future[T]) -> T:
    """Return a result in the main thread: a signal that comes just as a wait begins is handled
    where that ends."""
    while True:
        try:
            return begun.result(timeout=_LOOK_SECONDS)
        except TimeoutError:
            if begun.done():
                return begun.result()


def _begin(work: Callable[[], T]) -> Future[T]:
    """Begin in a thread of its own, which may wait long for others."""
    future: Future[T] = Future()

    def carry_out() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised where somebody waits
            future.set_exception(error)

    threading.Thread(target=carry_out, daemon=True).start()
    return future


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
        has_value, value = _parameter(source, group, before)
        if "taskFinalStatus" in source:
            value["pipelineJobResourceName"] = constants["pipeline_job_resource_name"]
        if has_value:
            found.parameters[name] = with_whole_numbers(value)
    for name, source in sources.get("artifacts", {}).items():
        held = _artifacts(source, group, before)
        if held is not None:
            found.artifacts[name] = held
    _require_values(constants["pipeline_task_name"], component, sources, found)
    plain = {"inputs": {"parameterValues": dict(found.parameters)}}
    for name, source in sources.get("parameters", {}).items():
        if name in found.parameters and "runtimeValue" in source:
            found.parameters[name] = resolved(found.parameters[name], plain, constants)
    _add_defaults(component, found)
    _convert(constants["pipeline_task_name"], component, found)
    return found


def _require_values(
    task: str, component: Mapping[str, Any], sources: Mapping[str, Any], found: Values
) -> None:
    """Refuse a step of which an input, or a part of a text that it is given, has no value.

    Raises:
        InvalidInput: The message names both.
    """
    defined = component.get("inputDefinitions", {}).get("parameters", {})
    for name in sources.get("parameters", {}):
        value = found.parameters.get(name)
        if value is None and not _is_optional(defined.get(name, {})) and "dag" not in component:
            raise InvalidInput(
                f"step {task} needs {_plain(name)}, which has no value",
                "pass one, or declare a default in the pipeline or the component",
            )


def _is_optional(definition: Mapping[str, Any]) -> bool:
    return bool(definition.get("isOptional")) or "defaultValue" in definition


def _plain(name: str) -> str:
    return name.removeprefix("pipelinechannel--")


_KINDS: Mapping[str, tuple[str, type | tuple[type, ...]]] = {
    "NUMBER_INTEGER": ("a number", (int, float)),
    "NUMBER_DOUBLE": ("a number", (int, float)),
    "BOOLEAN": ("true or false", bool),
    "LIST": ("a list", list),
    "STRUCT": ("a dict", dict),
}


def _convert(task: str, component: Mapping[str, Any], found: Values) -> None:
    """Give an input that is text a number, a boolean or a list as text, as KFP's driver does, and
    refuse a value that is not of its input's type, as it does.

    Raises:
        InvalidInput: The message names task, input and value.
    """
    defined = component.get("inputDefinitions", {}).get("parameters", {})
    for name, value in found.parameters.items():
        kind = defined.get(name, {}).get("parameterType")
        if kind == "STRING" and value is not None:
            found.parameters[name] = as_text(value)
        elif kind in _KINDS and value is not None:
            said, types = _KINDS[kind]
            if not isinstance(value, types) or isinstance(value, bool) != (kind == "BOOLEAN"):
                raise InvalidInput(
                    f"{task}: {name} is {said}, not {value!r:.80}, and a cluster refuses it, too",
                    "an item of a plain list is text: -> List[int] or -> List[dict] gives it a type",
                )


def _parameter(
    source: Mapping[str, Any], inputs: Values, before: Mapping[str, _Result]
) -> tuple[bool, Any]:
    """Return whether a parameter has a value, and the value."""
    if "runtimeValue" in source:
        return True, source["runtimeValue"].get("constant")
    if reference := source.get("taskOutputParameter"):
        held = (
            before[reference["producerTask"]].outputs
            if reference["producerTask"] in before
            else None
        )
        key = reference["outputParameterKey"]
        return held is not None and key in held.parameters, held and held.parameters.get(key)
    if reference := source.get("taskFinalStatus"):
        return reference["producerTask"] in before, _final_status(reference["producerTask"], before)
    name = source.get("componentInputParameter")
    if name not in inputs.parameters:
        return False, None
    value = inputs.parameters[name]
    if key := re.search(r'\["(.*)"\]', source.get("parameterExpressionSelector", "")):
        return True, _member(value, key[1])
    return True, value


def _member(item: Any, key: str) -> Any:
    """Return what an item of a loop has under a key.

    Raises:
        InvalidInput: It has no such key.
    """
    held = item
    if isinstance(item, str):
        with suppress(ValueError):
            held = json.loads(item)
    if not isinstance(held, dict) or key not in held:
        raise InvalidInput(f"the item {held!r:.200} of a loop has no {key!r}")
    return held[key]


def _artifacts(
    source: Mapping[str, Any], inputs: Values, before: Mapping[str, _Result]
) -> list[dict[str, Any]] | None:
    if reference := source.get("taskOutputArtifact"):
        if reference["producerTask"] not in before:
            return None
        held = before[reference["producerTask"]].outputs
        return held.artifacts.get(reference["outputArtifactKey"])
    return inputs.artifacts.get(source.get("componentInputArtifact", ""))


def _final_status(name: str, before: Mapping[str, _Result]) -> dict[str, Any]:
    """Return what an exit handler is told; KFP's backend says COMPLETE (its own
    pipeline_with_input_status_state.py asserts that), where the SDK's docs say SUCCEEDED, and
    nothing of the error (2.16, observed)."""
    ok = name in before and before[name].state == "succeeded"
    return {"state": "COMPLETE" if ok else "FAILED", "pipelineTaskName": name, "error": {}}


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
    for name, definition in component.get("inputDefinitions", {}).get("parameters", {}).items():
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


class _OfAllRounds(list[Any]):
    """Values that a loop collected. A loop around it makes one list of all, however deep, as the
    driver of KFP 2.16 does (CollectInputs), whatever type the component names."""


def _collected(group: Mapping[str, Any], results: list[_Result]) -> Values:
    """Return the outputs of all rounds of a loop: lists of values, and one list of artifacts."""
    found, outputs = Values(), group["dag"].get("outputs", {})
    for name in outputs.get("parameters", {}):
        held = [result.outputs.parameters for result in results]
        found.parameters[name] = values = _OfAllRounds()
        for value in (each[name] for each in held if name in each):
            values += value if isinstance(value, _OfAllRounds) else [value]
    for name in outputs.get("artifacts", {}):
        lists = [result.outputs.artifacts.get(name, []) for result in results]
        found.artifacts[name] = [artifact for each in lists for artifact in each]
    return found


def _uris(held: list[dict[str, Any]]) -> Any:
    uris = [artifact["uri"] for artifact in held]
    return uris[0] if len(uris) == 1 else uris

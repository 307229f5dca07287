"""A compiled pipeline (KFP's PipelineSpec) as the runner reads it: its tasks, in order, each with
the name of its step."""

import ast
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from podium.errors import InvalidInput

Path_ = tuple[str, ...]
"""Names of the tasks from the root to one."""

EXECUTOR = "kfp.dsl.executor_main"
"""Module that runs a Python function as a step."""

_BELOW_2_5 = re.compile(r"\bkfp==2\.[0-4]\.[\w.-]+")

_GROUPS = ("condition", "for-loop", "exit-handler")
"""Beginnings of the names of tasks that KFP makes for control flow."""


@dataclass(frozen=True)
class Compiled:
    """A compiled pipeline."""

    spec: Mapping[str, Any]
    platform: Mapping[str, Any] = field(default_factory=dict)
    """The document of platform settings."""

    @property
    def name(self) -> str:
        return str(self.spec["pipelineInfo"]["name"])

    @property
    def root(self) -> Mapping[str, Any]:
        return dict(self.spec["root"])

    def component(self, task: Mapping[str, Any]) -> Mapping[str, Any]:
        return dict(self.spec.get("components", {})[task["componentRef"]["name"]])

    def executor(self, component: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a component that is no group runs."""
        executors = self.spec.get("deploymentSpec", {}).get("executors", {})
        return _with_local_paths(executors[component["executorLabel"]])

    @property
    def seconds(self) -> int:
        """Time limit of the pipeline (dsl.PipelineConfig: active_deadline_seconds); 0 for none."""
        return int(self._on_kubernetes.get("pipelineConfig", {}).get("activeDeadlineSeconds", 0))

    def kubernetes(self, component: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings for Kubernetes of what a component runs."""
        executors = self._on_kubernetes.get("deploymentSpec", {}).get("executors", {})
        return dict(executors.get(component.get("executorLabel"), {}))

    @property
    def _on_kubernetes(self) -> Mapping[str, Any]:
        return dict(self.platform.get("platforms", {}).get("kubernetes", {}))

    def tasks(
        self, group: Mapping[str, Any] | None = None, above: Path_ = ()
    ) -> Iterator[tuple[Path_, Mapping[str, Any]]]:
        """Yield every task with its path, in the order they can run, those of groups in place."""
        for name, task, _ in in_order((self.root if group is None else group)["dag"]["tasks"]):
            yield (*above, name), task
            component = self.component(task)
            if "dag" in component:
                yield from self.tasks(component, (*above, name))

    @cached_property
    def steps(self) -> dict[Path_, str]:
        """Name of the step of each task that is no group, unique in the whole pipeline, in the
        order they run."""
        names = {path: path[-1] for path, task in self.tasks() if "dag" not in self.component(task)}
        for longer in (_without_groups, tuple):  # a pipeline inside may be called condition_x
            often = Counter(names.values())
            names = {
                path: name if often[name] == 1 else ".".join(longer(path))
                for path, name in names.items()
            }
        return names

    @property
    def titles(self) -> dict[str, str]:
        by_path = dict(self.tasks())
        return {
            name: by_path[path].get("taskInfo", {}).get("name") or name
            for path, name in self.steps.items()
        }


def _without_groups(path: Path_) -> Path_:
    return tuple(part for part in path if not part.startswith(_GROUPS))


def in_order(
    tasks: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[str, Mapping[str, Any], set[str]]]:
    """Yield each task of a group, with the names of those that it needs, after all of these."""
    left = {name: (task, _needed(task)) for name, task in sorted(tasks.items())}
    while left:
        ready = [name for name, (_, needs) in left.items() if not left.keys() & needs]
        for name in ready or list(left):
            yield (name, *left.pop(name))


def _needed(task: Mapping[str, Any]) -> set[str]:
    names = set(task.get("dependentTasks", ()))
    inputs = task.get("inputs", {})
    for source in (*inputs.get("parameters", {}).values(), *inputs.get("artifacts", {}).values()):
        for kind in ("taskOutputParameter", "taskOutputArtifact", "taskFinalStatus"):
            if kind in source:
                names.add(source[kind]["producerTask"])
    return names


_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|&&|\|\||!=|!|\w+|.", re.DOTALL)
_WORDS = {
    "&&": " and ",
    "||": " or ",
    "!": " not ",
    "true": "True",
    "false": "False",
    "null": "None",
}


def _same(one: Any, other: Any) -> bool:
    """Return whether values are equal, as CEL does: to it 0 is not false."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: _same,
    ast.NotEq: lambda one, other: not _same(one, other),
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CASTS: Mapping[str, Callable[[Any], Any]] = {"int": int, "double": float}
"""All that kfp writes; CEL's string() and bool() read texts otherwise than Python's."""


class Condition:
    """A condition, read.

    Args:
        text: As compiled.

    Raises:
        InvalidInput: It is of another form.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        words = "".join(_WORDS.get(token, token) for token in _TOKEN.findall(text))
        try:
            self._tree = ast.parse(words.strip(), mode="eval").body
            self._value(self._tree, None)
        except SyntaxError:
            raise self._unknown() from None

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether it holds for these parameters.

        Raises:
            InvalidInput: A parameter has no value, or one that cannot be compared.
        """
        try:
            return bool(self._value(self._tree, values))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"the condition {self.text} cannot be decided: {error}") from None

    def _value(self, node: ast.expr, values: Mapping[str, Any] | None) -> Any:
        """Return the value of a part; without values it is only read."""
        match node:
            case ast.Constant():
                return node.value
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                held = self._value(node.operand, values)
                return not held if isinstance(node.op, ast.Not) else values and -held
            case ast.BoolOp():
                parts: Any = (self._value(part, values) for part in node.values)
                parts = list(parts) if values is None else parts
                return all(parts) if isinstance(node.op, ast.And) else any(parts)
            case ast.Compare(ops=[sign]) if type(sign) in _COMPARISONS:
                left, right = (
                    self._value(part, values) for part in (node.left, node.comparators[0])
                )
                return values is not None and _COMPARISONS[type(sign)](left, right)
            case ast.Call(func=ast.Name(id=name), args=[part]) if name in _CASTS:
                inner = self._value(part, values)
                return None if values is None else _CASTS[name](inner)
            case ast.Subscript(
                value=ast.Attribute(attr="parameter_values"), slice=ast.Constant(value=name)
            ):
                return None if values is None else values[str(name)]
        raise self._unknown()

    def _unknown(self) -> InvalidInput:
        return InvalidInput(f"the condition {self.text} is of a form that is not known")


_STRUCTURE = re.compile(r'\{"(Concat|IfPresent)": ')
_PLACEHOLDER = re.compile(r"\{\{\$(.*?)\}\}")
_PART = re.compile(r"[\w-]+")
_FILES = {"path": "uri", "output_file": "outputFile"}

Constants = Mapping[str, str]
"""Values of placeholders without an index, such as ``pipeline_job_name``."""


def command_of(
    words: Sequence[str], executor_input: Mapping[str, Any], constants: Constants
) -> list[str]:
    """Return a command with its placeholders replaced; those that depend on an optional input give
    any number of words.

    Raises:
        InvalidInput: A parameter in its place has no value.
    """
    found: list[str] = []
    for word in words:
        part = json.loads(word) if _STRUCTURE.match(word) else word
        chosen = _chosen(part, executor_input.get("inputs", {}))
        texts = chosen if isinstance(chosen, list) else [chosen]
        found += [_resolved(each, executor_input, constants) for each in texts]
    return found


def _resolved(text: str, executor_input: Mapping[str, Any], constants: Constants) -> str:
    def value(match: re.Match[str]) -> str:
        path = _PART.findall(match[1])
        if not match[1]:
            return json.dumps(executor_input)
        if len(path) == 1 and path[0] in constants:
            return constants[path[0]]
        is_known = path[:1] in (["inputs"], ["outputs"], ["outputMetadataUri"])
        found = _found(path, executor_input) if is_known else None
        if found is None and path[:2] == ["inputs", "parameters"]:
            name = path[-1].removeprefix("pipelinechannel--")
            raise InvalidInput(
                f"a text or an argument holds {name}, which has no value; it fails on a cluster, too",
                "pass one, or leave the argument out by dsl.IfPresentPlaceholder",
            )
        return match[0] if found is None else as_text(found)  # as KFP's launcher leaves it

    return _PLACEHOLDER.sub(value, text)


def resolved(value: Any, executor_input: Mapping[str, Any], constants: Constants) -> Any:
    """Return a value with the placeholders of all its texts replaced, once: inside of dicts and
    lists too; keys stay."""
    if isinstance(value, dict):
        return {key: resolved(part, executor_input, constants) for key, part in value.items()}
    if isinstance(value, list):
        return [resolved(part, executor_input, constants) for part in value]
    return _resolved(value, executor_input, constants) if isinstance(value, str) else value


def as_text(value: Any) -> str:
    """Write a value as KFP does where text is wanted: ``1``, ``0.0000001``, ``true``, ``[1,2]``."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _found(path: list[str], executor_input: Mapping[str, Any]) -> Any:
    if path in (["outputs", "output_file"], ["outputMetadataUri"]):
        return executor_input["outputs"]["outputFile"]
    side, kind, name, *rest = [*path, ""][: max(3, len(path))]
    held = executor_input.get(side, {})
    if side == "inputs" and kind == "parameters":
        return held.get("parameterValues", {}).get(name)
    entry = held.get(kind, {}).get(name) or {}
    if kind == "artifacts":
        entry = (entry.get("artifacts") or [{}])[0]
    for part in rest:
        entry = entry.get(_FILES.get(part, part)) if isinstance(entry, dict) else None
    return entry


def _chosen(part: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the text or the words that a structure stands for."""
    if isinstance(part, list):
        chosen = [_chosen(each, inputs) for each in part]
        return [
            word for each in chosen for word in (each if isinstance(each, list) else [each]) if word
        ]
    if not isinstance(part, dict):
        return part
    if "Concat" in part:
        return "".join(
            "".join(each) if isinstance(each, list) else each
            for each in (_chosen(inner, inputs) for inner in part["Concat"])
        )
    choice = part["IfPresent"]
    values = inputs.get("parameterValues", {}) | inputs.get("artifacts", {})
    present = values.get(choice["InputName"]) is not None
    return _chosen(choice["Then"] if present else choice.get("Else", []), inputs)


def _with_local_paths(executor: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an executor whose kfp, where its compiler wrote one below 2.5, is 2.5: older ones know
    no artifact outside of buckets (kfp/dsl/types/artifact_types.py, 2.4 and 2.5)."""
    container = executor.get("container", {})
    words = [str(word) for word in container.get("command", ())]
    if not any("ephemeral_component.py" in word for word in words):
        return dict(executor)
    command = [_BELOW_2_5.sub("kfp==2.5.0", word) for word in words]
    command = [word.replace("kfp.components.executor_main", EXECUTOR) for word in command]
    return {**executor, "container": {**container, "command": command}}

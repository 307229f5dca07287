"""Placeholders in a step's command: ``{{$.inputs.parameters['lr']}}`` and others of KFP's."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from podium.errors import InvalidInput

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
        InvalidInput: One is not known.
    """
    found: list[str] = []
    for word in words:
        chosen = _chosen(_structure(word), executor_input.get("inputs", {}))
        for each in chosen if isinstance(chosen, list) else [chosen]:
            found.append(resolved(each, executor_input, constants))
    return found


def resolved(text: str, executor_input: Mapping[str, Any], constants: Constants) -> str:
    """Return a text with its placeholders replaced, once: those in a value stay."""

    def value(match: re.Match[str]) -> str:
        path = _PART.findall(match[1])
        if not path:
            return json.dumps(executor_input)
        if len(path) == 1 and path[0] in constants:
            return constants[path[0]]
        if path[0] not in ("inputs", "outputs", "outputMetadataUri"):
            raise InvalidInput(f"the placeholder {match[0]} is not known")
        found = _found(path, executor_input)
        return found if isinstance(found, str) else json.dumps(found)

    return _PLACEHOLDER.sub(value, text)


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


def _structure(word: str) -> Any:
    return json.loads(word) if re.match(r'\{"(Concat|IfPresent)": ', word) else word


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
    given = inputs.get("parameterValues", {}) | inputs.get("artifacts", {})
    present = given.get(choice["InputName"]) is not None
    return _chosen(choice["Then"] if present else choice.get("Else", []), inputs)

"""Placeholders of a trial template and their values."""

import json
import re
from collections.abc import Mapping
from typing import Any

from podium.errors import InvalidInput

PLACEHOLDER = re.compile(r"\$\{trialParameters\.(.+?)\}")
_META = re.compile(r"\$\{trialSpec\.(.+?)\}")
_INDEXED = re.compile(r"(.+)\[(.+)\]")
_META_KEYS = ("Name", "Namespace", "Kind", "APIVersion", "Annotations", "Labels")


def meta_key(reference: str) -> tuple[str, str | None] | None:
    """Split ``${trialSpec.Labels[app]}`` into ``("Labels", "app")``; None for any other
    reference."""
    match = _META.search(reference)
    if not match:
        return None
    indexed = _INDEXED.fullmatch(match.group(1))
    key, index = indexed.groups() if indexed else (match.group(1), None)
    return (key, index) if key in _META_KEYS else None


def meta_value(
    key: tuple[str, str | None], spec: Mapping[str, Any], name: str, namespace: str
) -> str | None:
    """Return the value of a reference to the trial's own metadata; None if there is no such label
    or annotation."""
    metadata = spec.get("metadata") or {}
    kind, index = key
    if kind in ("Labels", "Annotations"):
        value = (metadata.get(kind.lower()) or {}).get(index)
        return value if value is None else str(value)
    return {
        "Name": name,
        "Namespace": namespace,
        "Kind": str(spec.get("kind")),
        "APIVersion": str(spec.get("apiVersion")),
    }[kind]


def fill(spec: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Replace the placeholders of a trialSpec by values, each by its trialParameter's name.

    Raises:
        InvalidInput: The result is not JSON any more.
    """
    text = json.dumps(spec, ensure_ascii=False)
    filled = PLACEHOLDER.sub(lambda match: values.get(match.group(1), match.group(0)), text)
    try:
        job: dict[str, Any] = json.loads(filled, strict=False)
    except ValueError:
        raise InvalidInput(
            f"the trial template is not JSON any more with {dict(values)!r}",
            'values are put into JSON text: a double quote or a backslash must be written \\" or \\\\',
        ) from None
    return job


_QUERY = re.compile(r"#\(\s*([\w-]+)\s*(==|!=)\s*(\"([^\"\\]*)\"|true|false)\s*\)(#?)")
_FIELD = re.compile(r"[\w-]+")


def parse_condition(text: str) -> list[Any]:
    """Split an expression into steps.

    Raises:
        InvalidInput: It uses a part of GJSON that is not understood here.
    """
    steps: list[Any] = []
    index = 0
    while index < len(text):
        if steps:
            if text[index] not in ".|":
                break
            steps.append(text[index])
            index += 1
        step = _QUERY.match(text, index) or _FIELD.match(text, index)
        if not step:
            break
        steps.append(step)
        index = step.end()
    if index < len(text) or not steps or isinstance(steps[-1], str):
        raise InvalidInput(
            f'a condition is a path of fields and #(field=="text") queries, but this one is {text!r}',
            'for example status.conditions.#(type=="Complete")#|#(status=="True")#',
        )
    return steps


def matches(text: str, value: Mapping[str, Any]) -> dict[str, Any] | None:
    """Evaluate an expression on a job as Katib does; return an object, or the first of a list, None
    without a match.

    Raises:
        InvalidInput: The expression is not understood.
    """
    result: Any = value
    spread = False  # whether "." goes into each element, which it does after a query for all
    for step in parse_condition(text):
        if isinstance(step, str):
            spread = spread and step == "."
        elif step.re is _FIELD:
            result = (
                [_field(item, step[0]) for item in result]
                if spread and isinstance(result, list)
                else _field(result, step[0])
            )
        else:
            result = _query(result, step)
            spread = bool(step[5])
    if isinstance(result, list):
        result = next((item for item in result if item is not None), None)
    return dict(result) if isinstance(result, Mapping) else None


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _query(value: Any, step: re.Match[str]) -> Any:
    field, operator, literal, text, every = step.groups()
    wanted: Any = text if text is not None else literal == "true"
    items = value if isinstance(value, list) else []
    matches = [
        item
        for item in items
        if isinstance(item, Mapping)
        and field in item
        and (item[field] == wanted) == (operator == "==")
    ]
    return matches if every else (matches[0] if matches else None)

"""The trial template: what its placeholders stand for, and a trial's job with all of them filled in."""

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
    """Split ``${trialSpec.Labels[app]}`` into ``("Labels", "app")``; None if it is no such reference."""
    found = _META.search(reference)
    if not found:
        return None
    indexed = _INDEXED.fullmatch(found.group(1))
    key, index = indexed.groups() if indexed else (found.group(1), None)
    return (key, index) if key in _META_KEYS else None


def meta_value(key: tuple[str, str | None], spec: Mapping[str, Any], name: str, namespace: str) -> str | None:
    """Return what a reference to the trial's own metadata stands for; None if there is no such label or annotation."""
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


def render(experiment: Mapping[str, Any], name: str, assignments: Mapping[str, str]) -> dict[str, Any]:
    """Fill in a trial's job.

    Placeholders are replaced in the JSON text of the template, as Katib does it: a value with ``\\n`` becomes a line
    break, one with a double quote breaks the template. Values are not searched for placeholders again.

    Args:
        experiment: Admitted and checked.
        name: Of the trial, and of its job.
        assignments: Value by search parameter.

    Raises:
        InvalidInput: The values break the template, or a reference leads nowhere.
    """
    template = experiment["spec"]["trialTemplate"]
    spec = template["trialSpec"]
    namespace = experiment["metadata"].get("namespace") or "default"
    values: dict[str, str] = {}
    for parameter in template["trialParameters"]:
        key = meta_key(parameter["reference"])
        value = meta_value(key, spec, name, namespace) if key else assignments.get(parameter["reference"])
        if value is None:
            raise InvalidInput(f"{parameter['reference']!r} of trialParameter {parameter['name']!r} has no value")
        values[parameter["name"]] = value
    job = fill(spec, values)
    metadata = {**(job.get("metadata") or {}), "name": name, "namespace": namespace}
    return {**job, "metadata": metadata}


def fill(spec: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Replace the placeholders of a trialSpec by values, each by its trialParameter's name.

    Raises:
        InvalidInput: What comes out is no JSON any more.
    """
    text = json.dumps(spec, ensure_ascii=False)
    filled = PLACEHOLDER.sub(lambda found: values.get(found.group(1), found.group(0)), text)
    try:
        job: dict[str, Any] = json.loads(filled, strict=False)
    except ValueError:
        raise InvalidInput(
            f"`a value leaves the trial template readable` must hold, but got {dict(values)!r}",
            'values are put into JSON text: a double quote or a backslash must be written \\" or \\\\',
        ) from None
    return job

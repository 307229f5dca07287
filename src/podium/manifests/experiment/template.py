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

"""JSON files that any process may read at any time, and the metadata that an API server fills in."""

import json
import secrets
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from podium.cluster.base import KINDS
from podium.errors import Damaged
from podium.files.drafts import appearing
from podium.manifests.conditions import Manifest, timestamp

T = TypeVar("T")


def read_json(path: Path, kind: type[T]) -> T:
    """Read a file that holds JSON of one type.

    Raises:
        FileNotFoundError, NotADirectoryError: There is none.
        Damaged: It holds something else.
    """
    try:
        value = json.loads(path.read_text())
    except (ValueError, RecursionError):  # also bytes that are not UTF-8
        value = None
    return value if isinstance(value, kind) else _refuse(path)


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that holds an object as Kubernetes would show it, with all the fields that lists
    need.

    Raises:
        FileNotFoundError, NotADirectoryError: There is none.
        Damaged: It holds something else.
    """
    value = read_json(path, dict)
    return value if _is_object(value) else _refuse(path)


_NEEDED = {
    "objective": {"type", "objectiveMetricName"},
    "algorithm": {"algorithmName"},
    "trialTemplate": set[str](),
}


def _is_object(value: dict[str, Any]) -> bool:
    metadata, spec, status = value.get("metadata"), value.get("spec"), value.get("status", {})
    if (
        not all(isinstance(part, dict) for part in (metadata, spec, status))
        or value.get("kind") not in KINDS
    ):
        return False
    assert isinstance(metadata, dict)
    assert isinstance(spec, dict)
    named = all(
        isinstance(metadata.get(name), str) for name in ("name", "uid", "creationTimestamp")
    )
    conditions = status.get("conditions", [])
    whole = isinstance(conditions, list) and all(
        isinstance(part, dict) and {"type", "status"} <= part.keys() for part in conditions
    )
    needed = _NEEDED if value["kind"] == "Experiment" else {}
    parts = [(spec.get(part), names) for part, names in needed.items()]
    return (
        named
        and whole
        and all(isinstance(part, dict) and names <= part.keys() for part, names in parts)
    )


def _refuse(path: Path) -> NoReturn:
    raise Damaged(f"{path} is damaged", f"restore its content, or remove {path.parent}")


def write_json(path: Path, value: object) -> None:
    """Replace a file atomically with JSON whose outer levels are indented."""
    with appearing(path) as draft:
        draft.write_text(_indented(value, 2, "\n ") + "\n")


def _indented(value: object, levels: int, separator: str) -> str:
    # json.dumps(indent=1) takes ten times as long, and it would be most of what a short trial costs here.
    if not levels or not isinstance(value, dict) or not value:
        return json.dumps(value)
    members = (
        f"{json.dumps(str(name))}: {_indented(member, levels - 1, separator + ' ')}"
        for name, member in value.items()
    )
    return f"{{{separator}{f',{separator}'.join(members)}{separator[:-1]}}}"


def new_metadata(metadata: Mapping[str, Any]) -> Manifest:
    """Return the metadata that a new object has beside its own."""
    # The uid begins with the time, so that objects of the same second still sort by age.
    uid = uuid.UUID(int=time.time_ns() << 64 | secrets.randbits(64))
    return {
        "namespace": metadata.get("namespace") or "default",
        "uid": str(uid),
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": timestamp(),
    }

"""JSON files that any process may read at any time."""

import json
import secrets
from pathlib import Path


def write_json(path: Path, value: object) -> None:
    """Replace a file atomically with JSON whose outer levels are indented."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        beside.write_text(_indented(value, 2, "\n ") + "\n")
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)  # a full disk needs the room
        raise


def _indented(value: object, levels: int, separator: str) -> str:
    # json.dumps(indent=1) takes ten times as long, and it would be most of what a short trial costs here.
    if not levels or not isinstance(value, dict) or not value:
        return json.dumps(value)
    members = (f"{json.dumps(str(name))}: {_indented(one, levels - 1, separator + ' ')}" for name, one in value.items())
    return f"{{{separator}{f',{separator}'.join(members)}{separator[:-1]}}}"
